"""What an answer's text turns out to be, piece by piece: reasoning, content, calls of tools.

The one vocabulary between the text layer, which splits answers, and the interfaces, which write
them. Joined, the texts of a kind are the whole; how they are cut means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a piece of an answer is. A call comes as one CALL, any ARGUMENTS, one END."""

    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"  # its text is the function's name
    ARGUMENTS = "arguments"  # its text is a piece of JSON: joined, an object's text
    END = "end"  # the call is whole: its arguments are an object's text


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece. `call` numbers an answer's calls from 0; it is None for what belongs to none.

    A call without END was cut off, by the limit of tokens or an end in its middle.
    """

    kind: Kind
    text: str = ""
    call: int | None = None
