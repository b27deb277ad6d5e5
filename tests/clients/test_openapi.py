"""schemathesis makes requests of every kind that /openapi.json admits, and some that it does not:
nothing fails on the server's side, no status is undocumented, no answer is of another type."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clients.script import script
from clients.world import serving

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "negative_data_rejection",
)
EXAMPLES = 10  # for each operation, beside thousands of corners of the schema: half a minute in all


def test_nothing_fails_and_nothing_is_undocumented(
    default_model: Path, python: Path, tmp_path: Path
) -> None:
    with serving(default_model, script, pause=0, ctx_size=256, batch=16, max_queue=2048) as world:
        done = subprocess.run(
            [
                python.with_name("st"),
                *("run", f"{world.url}/openapi.json", "--checks", ",".join(CHECKS)),
                *("--max-examples", str(EXAMPLES), "--seed", "1", "--no-color"),
                *("--phases", "examples,coverage,fuzzing", "--request-timeout", "20"),
                *("--generation-database", "none", "--continue-on-failure"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stdout[-20_000:]
