"""A Segmenter that takes all text for content, until the text layer has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strata.text.delta import Delta, Kind


class Segmenter:
    """All text is content."""

    def __init__(
        self, dialect: Any, tools: Mapping[str, Any], *, thinking: bool, calls: bool = True
    ) -> None:
        pass

    def feed(self, text: str) -> list[Delta]:
        """The text as it is."""
        return [Delta(Kind.CONTENT, text)]

    def finish(self) -> list[Delta]:
        """Nothing was held back."""
        return []
