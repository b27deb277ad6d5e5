"""Injected bugs in Anthropic's API."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

HERE = ("tests/server/anthropic",)


def _in(name: str, *bugs: tuple[str, str, str]) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    return [(f"strata.server.anthropic.{name}", *bug, HERE) for bug in bugs]
