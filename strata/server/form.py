"""How an API writes a job: the seam between answering and the wire.

A Form belongs to one job and is written by one event loop, in the order in which things
happen. It knows its API's JSON; it knows no engine, no socket, and not when it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strata.server.errors import Voice
from strata.server.generate import Part, Tally
from strata.server.job import Job, Run
from strata.text.delta import Delta, Kind
from strata.types import ProgressEvent


class Form(Voice, ABC):
    """One job as its API tells it.

    A stream is: `accepted`, as soon as the engine has taken a run; `begin`, right before its
    first part and no sooner; a `part` for each part of each run; `end`. Before and between them
    there may be a `ping`, before them `progress`, and after an error there is nothing but
    `error_event`. `tallies` are those of the job's runs; they grow as the answer does. Each
    returns bytes as they go out: whole events, or none.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def accepted(self) -> bytes:
        """What may stand before everything, while the prompt is not read yet."""
        return b""

    def begin(self, tallies: Sequence[Tally]) -> bytes:
        """What stands before the first part. The prompt is read: its counts are known."""
        return b""

    def progress(self, event: ProgressEvent) -> bytes:
        """How far a prompt is read, before `begin`."""
        return b""

    @abstractmethod
    def part(self, run: Run, part: Part, tally: Tally) -> bytes:
        """The events of one part; a run's last has a finish."""

    @abstractmethod
    def end(self, tallies: Sequence[Tally]) -> bytes:
        """What ends a stream whose runs have all ended."""

    @abstractmethod
    def whole(self, wholes: Sequence[Part], tallies: Sequence[Tally]) -> bytes:
        """The body of an answer that is not streamed: each run as one part."""


@dataclass(slots=True)
class Block:
    """A stretch of an answer of one kind: REASONING, CONTENT, or CALL.

    Of a call, `name` is the function's, `text` its arguments, and `ended` says that it is whole.
    """

    kind: Kind
    text: str = ""
    name: str = ""
    ended: bool = False


def blocks(deltas: Iterable[Delta]) -> list[Block]:
    """Deltas as blocks, in order."""
    out: list[Block] = []
    calls: dict[int | None, Block] = {}
    for delta in deltas:
        if delta.kind is Kind.CALL:
            calls[delta.call] = block = Block(Kind.CALL, name=delta.text)
            out.append(block)
        elif delta.kind is Kind.ARGUMENTS:
            calls[delta.call].text += delta.text
        elif delta.kind is Kind.END:
            calls[delta.call].ended = True
        elif out and out[-1].kind is delta.kind:
            out[-1].text += delta.text
        else:
            out.append(Block(delta.kind, delta.text))
    return out
