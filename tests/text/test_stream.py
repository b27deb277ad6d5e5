"""A stream against an oracle that looks at the whole text at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hostile import HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vocabularies import Pair

from strata.text.stream import Piece, TextStream
from strata.types import RequestError


@dataclass(frozen=True)
class Words:
    """Token i stands for `words[i]`."""

    words: list[bytes]
    control: int = -1

    @property
    def added_ids(self) -> dict[str, int]:
        return {word.decode("utf-8", "replace"): i for i, word in enumerate(self.words)}

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        return b"" if token == self.control and not special else self.words[token]


def run(words: list[bytes], stop: list[str], min_tokens: int) -> list[Piece]:
    """The pieces of an answer whose tokens are 0, 1, 2, ..."""
    stream = TextStream(Words(words), stop, min_tokens)
    pieces = []
    for token in range(len(words)):
        pieces.append(stream.feed(token))
        if pieces[-1].stopped:
            return pieces
    return [*pieces, stream.finish()]


def oracle(words: list[bytes], stop: list[str], min_tokens: int) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, among those that count, and it.

    A character counts for the token with which a decoder that sees all bytes so far, and
    holds back a possible beginning of a character, first shows it.
    """
    shown, owner = "", []
    for token in range(len(words) + 1):
        joined = b"".join(words[: token + 1])
        text = joined.decode("utf-8", "replace")
        if token < len(words):
            text = text[: len(text) - _unfinished(joined)]
        owner += [min(token + 1, len(words))] * (len(text) - len(shown))
        shown = text
    for end in range(1, len(shown) + 1):
        found = [s for s in stop if shown[:end].endswith(s)]
        if found and owner[end - 1] >= min_tokens:
            return shown[: end - max(map(len, found))], max(found, key=len)
    return shown, None


def _unfinished(joined: bytes) -> int:
    """How many characters at the end may still become others with more bytes."""
    text = joined.decode("utf-8", "replace")
    if not text.endswith("\ufffd"):
        return 0
    if joined[-2:-1] == b"\xed" and 0xA0 <= joined[-1] < 0xC0:
        return 2  # half a surrogate: Python waits for its third byte before it replaces all three
    return int(
        any(
            joined.decode("utf-8", "replace")[:-1]
            == (joined + more).decode("utf-8", "replace")[:-1]
            and not (joined + more).decode("utf-8", "replace").endswith("\ufffd")
            for more in (
                b"\x80",
                b"\x9f",
                b"\xa0",
                b"\x8f",
                b"\x90",
                b"\x80\x80",
                b"\x9f\x80",
                b"\xa0\x80",
                b"\x80\x80\x80",
                b"\x90\x80\x80",
                b"\x8f\x80\x80",
            )
        )
    )


_text = st.text(st.sampled_from("ab<>é漢😀\n"), max_size=12)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[bytes], list[str], int]:
    """Bytes cut at random places, with some that are no UTF-8, and stop strings that fit."""
    text = draw(st.one_of(_text, st.text(max_size=12))).encode("utf-8", "replace")
    noise = draw(
        st.lists(st.tuples(st.integers(0, len(text)), st.integers(0x80, 0xFF)), max_size=2)
    )
    for at, byte in noise:
        text = text[:at] + bytes([byte]) + text[at:]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=10)))
    edges = [0, *cuts, len(text)]
    words = [text[a:b] for a, b in pairwise(edges)]
    whole = text.decode("utf-8", "replace")
    stop = draw(
        st.lists(st.text(st.sampled_from("ab<é漢\n\ufffd"), min_size=1, max_size=3), max_size=3)
    )
    if whole and draw(st.booleans()):
        start = draw(st.integers(0, len(whole) - 1))
        stop.append(whole[start : start + draw(st.integers(1, 4))])
    return words, stop, draw(st.integers(0, 6))


@settings(max_examples=800, deadline=None)
@given(answers())
@example(([b"ab", b"cd"], ["bcx", "cd"], 0))
@example(([b"abcd"], ["abcd", "bc"], 0))
@example(([b"aab"], ["aab", "ab", "b"], 0))
@example(([b"a", b"a", b"a"], ["aa"], 3))
@example(([b"\xe6\xbc", b"\xa2"], ["漢"], 2))
@example(([b"\xf0\x9f", b"x"], ["\ufffdx"], 0))
def test_stream_equals_the_oracle(answer: tuple[list[bytes], list[str], int]) -> None:
    words, stop, min_tokens = answer
    pieces = run(words, stop, min_tokens)
    text, found = oracle(words, stop, min_tokens)
    assert "".join(piece.text for piece in pieces) == text
    assert pieces[-1].stop == found
    assert not any(piece.stopped for piece in pieces[:-1])
    for piece in pieces:
        piece.text.encode("utf-8")


@settings(max_examples=300, deadline=None)
@given(answers())
@example(([b"aEND", b"b"], ["END"], 2))
@example(([b"\xed\xa0"], [], 0))
@example(([b"\xed\xc3", b"\xa9"], [], 0))
def test_no_more_is_held_back_than_needed(answer: tuple[list[bytes], list[str], int]) -> None:
    """What is held begins a stop string or a character; everything else has gone out."""
    words, stop, min_tokens = answer
    stream, sent = TextStream(Words(words), stop, min_tokens), ""
    for token in range(len(words)):
        piece = stream.feed(token)
        if piece.stopped:
            return
        sent += piece.text
        joined = b"".join(words[: token + 1])
        text = joined.decode("utf-8", "replace")
        text = text[: len(text) - _unfinished(joined)]
        held = text[len(sent) :]
        assert text.startswith(sent)
        assert not held or any(s.startswith(held) and s != held for s in stop)


def test_after_a_stop_string_nothing_follows() -> None:
    stream = TextStream(Words([b"a", b"END", b"b"]), ["END"])
    assert stream.feed(0) == Piece("a")
    assert stream.feed(1) == Piece("", "END")
    assert stream.feed(2) == Piece("", "END")
    assert stream.finish() == Piece("", "END")


def test_min_tokens() -> None:
    words = [b"x", b"END", b"y", b"EN", b"D", b"z"]
    assert "".join(piece.text for piece in run(words, ["END"], 2)) == "x"
    assert "".join(piece.text for piece in run(words, ["END"], 3)) == "xENDy"
    assert "".join(piece.text for piece in run(words, ["END"], 5)) == "xENDy"
    assert "".join(piece.text for piece in run(words, ["END"], 6)) == "xENDyENDz"


def test_unfinished_character_at_the_end() -> None:
    stream = TextStream(Words([b"a\xf0\x9f", b"\x98"]))
    assert stream.feed(0).text == "a"
    assert stream.feed(1).text == ""
    assert stream.finish() == Piece("\ufffd")


def test_empty_stop_strings_are_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        TextStream(Words([]), ["a", ""])


def test_markers_are_told_where_they_stand() -> None:
    """Also after a broken character, behind text that was held, and where it is a control token."""
    words = [b"a\xf0", b"<t>", b"x", b"<", b"t>", b"</t>", b"EN"]
    stream = TextStream(Words(words, control=5), ["END"], markers=["<t>", "</t>"])
    assert stream.feed(0) == Piece("a")
    assert stream.feed(1) == Piece("\ufffd<t>", None, (1,))
    assert [stream.feed(token).marks for token in (2, 3, 4)] == [(), (), ()]
    assert stream.feed(6) == Piece("")
    assert stream.feed(1) == Piece("EN<t>", None, (2,))
    assert stream.feed(5) == Piece("</t>", None, (0,))
    assert stream.finish() == Piece("")
    assert TextStream(Words(words, control=5)).feed(5) == Piece("")


def test_markers_and_stop_strings() -> None:
    """A marker is text to a stop string; where one is held, so is its mark."""
    words = [b"a", b"<t>", b"b", b"c"]
    stream = TextStream(Words(words), ["<t>b", "<t>cc"], markers=["<t>"])
    assert stream.feed(0) == Piece("a")
    assert stream.feed(1) == Piece("")
    assert stream.feed(3) == Piece("")
    assert stream.feed(1) == Piece("<t>c", None, (0,))
    assert stream.feed(2) == Piece("", "<t>b")
    stream = TextStream(Words(words), ["t>b"], markers=["<t>"])
    assert stream.feed(1) == Piece("<", None, (0,))
    assert stream.feed(2) == Piece("", "t>b")


def test_streams_of_real_tokens_join_to_the_decode(pair: Pair) -> None:
    ours = pair.ours
    for text in HOSTILE:
        ids = [
            *ours.encode(text, special=True),
            *sorted(ours.end_ids),
            *ours.encode("é" + text)[-9:],
        ]
        stream = TextStream(ours)
        pieces = [*map(stream.feed, ids), stream.finish()]
        joined = "".join(piece.text for piece in pieces)
        assert joined == ours.decode(ids, skip_special=True, start=False)
