"""The documentation keeps up with the code: each setting has its line, each link its target."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from strata.config import flag_name, show
from strata.settings import Config

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


CASES = [
    line.split(" | ")
    for line in (ROOT / "docs" / "public-cases.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]


def test_each_public_case_is_answered_once() -> None:
    numbers = [int(case[0].strip("| ")) for case in CASES]
    assert len(numbers) == 54 and numbers == sorted(set(numbers))
    for number, kind, answer in CASES:
        assert kind.strip() and len(answer.strip(" |")) > 20, number


def test_each_test_that_answers_a_public_case_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", "".join(case[2] for case in CASES))
    assert len(named) > 50
    for path, name in set(named):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.startswith("test_") and name in functions, f"{path} has no {name}"
