"""A recorded trace: which experts were looked up, in order, with no tensor and no text.

A file is a line of JSON (the head), padded with spaces to whole words, then words of int32, little
endian: for each lookup step, place, rows, n, n experts, n counts. A file cut off anywhere is good
up to its last whole lookup, so a server may die while it writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from strata.types import IntArray, ModelError

_KIND = "strata expert trace 1"
_WORD = np.dtype("<i4")
_BUFFER = 1 << 18


@dataclass(frozen=True, slots=True)
class TraceHead:
    """What was recorded: `record_bytes` of an expert of each place."""

    model: str
    experts: int
    record_bytes: tuple[int, ...]

    @property
    def places(self) -> int:
        """Mixtures of the model."""
        return len(self.record_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """One step of one mixture: distinct `experts` int32 [n], by how many entries each was wanted,
    and the rows (sequences) of the step.
    """

    step: int
    place: int
    rows: int
    experts: IntArray
    counts: IntArray


class TraceWriter:
    """Appends lookups to a new file. Memory is one buffer. Raises ModelError when it cannot."""

    def __init__(self, path: Path, head: TraceHead) -> None:
        line = json.dumps({"kind": _KIND, **asdict(head)}).encode()
        line += b" " * (-(len(line) + 1) % _WORD.itemsize) + b"\n"
        self._path = path
        with _writing(path):
            self._file = open(path, "wb", buffering=_BUFFER)  # noqa: SIM115
            self._file.write(line)

    def note(self, step: int, place: int, rows: int, experts: IntArray, counts: IntArray) -> None:
        """Appends one lookup."""
        assert len(experts) == len(counts)
        words = np.empty(4 + 2 * len(experts), _WORD)
        words[:4] = step, place, rows, len(experts)
        words[4 : 4 + len(experts)] = experts
        words[4 + len(experts) :] = counts
        with _writing(self._path):
            self._file.write(words.data)

    def close(self) -> None:
        """Writes what is buffered. May be called again."""
        with _writing(self._path):
            self._file.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot write the trace {path}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A trace in memory: its head, and its lookups in order."""

    head: TraceHead
    lookups: tuple[Lookup, ...]

    @property
    def keys(self) -> int:
        """Experts of the whole model."""
        return self.head.places * self.head.experts

    def shelves(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Record sizes and the places of each: places of one size share one cache."""
        for size in sorted(set(self.head.record_bytes)):
            yield size, tuple(p for p, other in enumerate(self.head.record_bytes) if other == size)


def read(path: Path) -> Trace:
    """Reads a file of `TraceWriter`. Raises ModelError when it is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the trace {path}: {error.strerror or error}") from error
    line, newline, _ = content.partition(b"\n")
    try:
        fields = json.loads(line) if newline else {}
        if not isinstance(fields, dict) or fields.pop("kind", None) != _KIND:
            raise ValueError
        head = TraceHead(
            str(fields["model"]), int(fields["experts"]), tuple(map(int, fields["record_bytes"]))
        )
    except (ValueError, KeyError, TypeError):
        raise ModelError(
            f"{path} is no expert trace: record one with `strata trace record`"
        ) from None
    start = len(line) + 1
    whole = (len(content) - start) // _WORD.itemsize
    words = np.frombuffer(content, _WORD, whole, start).astype(np.int32)
    return Trace(head, tuple(_lookups(words, head, path)))


def _lookups(words: IntArray, head: TraceHead, path: Path) -> Iterator[Lookup]:
    at = 0
    while at + 4 <= len(words):
        step, place, rows, number = map(int, words[at : at + 4])
        if not (0 <= place < head.places and 0 < number <= head.experts):
            raise ModelError(f"the trace {path} is damaged at word {at}: record it again")
        end = at + 4 + 2 * number
        if end > len(words):
            return
        yield Lookup(step, place, rows, words[at + 4 : at + 4 + number], words[end - number : end])
        at = end
