"""The trace of `compare_servers.py`: what clients of a coding agent do, as plain data.

A phase is a list of chats that are sent at once (or spaced); phases follow each other. Every
phase talks about its own subject, so that it shares nothing with the others. Sizes are in words;
a word is some two tokens. Knows nothing of servers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

Message = dict[str, str]

TEXT = (
    "river bread clock spring window paper engine garden letter winter market bridge number table"
    " silver forest harbour candle engineer question mountain village morning answer pencil station"
)
WORDS = TEXT.split()


@dataclass(frozen=True)
class Chat:
    """One request. `cancel`: the client leaves after that many seconds. `running`: a long answer
    whose gaps between tokens are measured while the rest of the phase is read.
    """

    messages: list[Message]
    tokens: int = 16
    cancel: float | None = None
    running: bool = False
    after: float = 0.0


@dataclass(frozen=True)
class Phase:
    """Chats sent together. `name` is the row of the table; `scored`: its reuse counts."""

    name: str
    chats: list[Chat]
    scored: bool = True
    same: bool = False
    notes: dict[str, str] = field(default_factory=dict)


def prose(seed: str, words: int) -> str:
    """Random words, the same for the same seed."""
    source = random.Random(seed)
    return " ".join(source.choice(WORDS) for _ in range(words))


def talk(system: str, *turns: str) -> list[Message]:
    """A system message, then user and assistant in turn."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return [{"role": "system", "content": system}, *said]


def phases(length: int) -> Iterator[Phase]:
    """The whole trace; `length` words of a long prefix."""
    yield from _appending(length)
    yield from _edited(length)
    yield from _shared(length)
    yield from _side_calls(length)
    yield from _bursts(length)
    yield from _cancelled(length)
    yield from _codewords(length)


def _appending(length: int) -> Iterator[Phase]:
    system, turns = prose("append", length), [prose("a0", 30)]
    yield Phase("append-only chat", [Chat(talk(system, *turns))], scored=False)
    for turn in range(1, 4):
        turns += [prose(f"reply{turn}", 20), prose(f"a{turn}", 30)]
        yield Phase("append-only chat", [Chat(talk(system, *turns))])


def _edited(length: int) -> Iterator[Phase]:
    system = prose("edit", length)
    yield Phase("edited last message", [Chat(talk(system, prose("e0", 60)))], scored=False)
    for edit in range(1, 4):
        yield Phase("edited last message", [Chat(talk(system, prose(f"e{edit}", 60)))])


def _shared(length: int) -> Iterator[Phase]:
    system = prose("shared", length)
    yield Phase("shared system prompt", [Chat(talk(system, prose("u0", 40)))], scored=False)
    for user in range(1, 5):
        yield Phase("shared system prompt", [Chat(talk(system, prose(f"u{user}", 40)))])


def _side_calls(length: int) -> Iterator[Phase]:
    system, turns = prose("side", length), [prose("s0", 40)]
    yield Phase("side calls", [Chat(talk(system, *turns))], scored=False)
    for turn in range(1, 4):
        for kind in ("title", "summary"):
            chat = Chat(talk(f"Write a {kind}.", prose(f"{kind}{turn}", 80)), tokens=8)
            yield Phase("side calls", [chat], scored=False)
        turns += [prose(f"sr{turn}", 20), prose(f"s{turn}", 40)]
        yield Phase("side calls", [Chat(talk(system, *turns))])


def _bursts(length: int) -> Iterator[Phase]:
    one = talk(prose("identical", length), prose("same", 30))
    yield Phase("identical burst of 4", [Chat(one)] * 4, same=True)
    for count in (4, 8):
        name, running = (
            f"cold burst of {count}",
            Chat(talk("Count.", f"to {count}"), 800, running=True),
        )
        system = prose(name, length)
        burst = [Chat(talk(system, prose(f"{name}{i}", 30)), after=0.5) for i in range(count)]
        yield Phase(name, [running, *burst])
    system = prose("warm", length)
    yield Phase("warm prefix, then 4", [Chat(talk(system, prose("w", 30)))], scored=False)
    yield Phase("warm prefix, then 4", [Chat(talk(system, prose(f"w{i}", 30))) for i in range(4)])


def _cancelled(length: int) -> Iterator[Phase]:
    system = prose("storm", length)
    storm = [Chat(talk(system, prose(f"c{i}", 30)), 64, cancel=0.05 * (i + 1)) for i in range(8)]
    yield Phase("cancel storm", storm, scored=False)
    last = talk(system, prose("after", 30))
    yield Phase("cancel storm", [Chat(last)], scored=False)
    yield Phase("cancel storm", [Chat(talk(system, prose("after2", 30))) for _ in range(2)])


def _codewords(length: int) -> Iterator[Phase]:
    common = prose("codes", length // 2)
    secrets = ("heron", "basalt", "tulip", "comet", "walnut", "zephyr")
    for turn in range(2):
        chats = [
            Chat(talk(f"{common} The secret word is {secret}.", f"Say it. {turn}"), 24)
            for secret in secrets
        ]
        yield Phase("codewords", chats, scored=turn > 0)
