"""The list of injected bugs is in order, and a sample of them is caught.

All of them: `python tests/mutate.py`, which takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_bug_applies_to_the_source_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "mutate.py", "--list"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) >= 80 and len(set(lines)) == len(lines)


def test_a_sample_of_the_cache_s_bugs_is_caught() -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "mutate.py", "cache", "--every", "15"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
