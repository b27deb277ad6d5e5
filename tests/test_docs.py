"""The documentation keeps up with the code: each setting has its line, each link its target."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from strata.config import Config, flag_name, show

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def setting_lines() -> list[str]:
    """The table of settings, one line a field of Config."""
    lines = []
    for one in fields(Config):
        flag = "MODEL" if one.name == "model" else flag_name(one)
        unit = " ∣ ".join(one.metadata["choices"]) or one.metadata["unit"]
        default = show(one, one.default)
        lines.append(f"| `{flag}` | {one.metadata['help']} | {unit} | {default} |")
    return lines


def test_every_setting_is_in_the_table() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if re.match(r"\| `(--|MODEL)", line)]
    assert found == setting_lines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:strata|tests|bench|docs)/[\w./]+)`", text):
        assert (ROOT / name).exists(), f"{page.name} names {name}"
