"""Calls written by chat templates, as transformers renders them, and read back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from answers import DIALECTS, HERMES, LLAMA, XML, calls, split, text
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template
from vocabularies import Pair

from strata.text.delta import Kind
from strata.text.dialects import of
from strata.text.segment import Segmenter
from strata.text.stream import TextStream

PROPERTIES: dict[str, Any] = {
    "q": {"type": "string"},
    "s": {"$ref": "#/$defs/Text"},
    "n": {"type": "integer"},
    "x": {"type": ["number"]},
    "b": {"type": "boolean"},
    "z": {"type": "null"},
    "o": {"type": "object", "additionalProperties": True},
    "l": {"allOf": [{"type": "array"}, {"minItems": 0}]},
    "m": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "i": {"oneOf": [{"type": "integer"}, {"type": "array"}]},
    "e": {"enum": ["red", "a b", "漢"]},
    "odd name>": {"type": "string"},
}
TOOLS = {
    name: {"type": "object", "properties": PROPERTIES, "$defs": {"Text": {"type": "string"}}}
    for name in ("find", "web.search-2")
}
_LOOKALIKES = (
    *("</parameter>", "</parameter", "</function>", "</tool_call>", "<tool_call>", "\n", "\r\n"),
    *("<parameter=q>", "<function=find>", '"', "\\", "{", "}", "]", "'", "null", "a", " ", "\t"),
    *("é", "漢", "😀", "\u2028", "\x7f", "<|python_tag|>", ";", "```", "<think>", "</think>"),
)
_text = st.one_of(
    st.lists(st.sampled_from(_LOOKALIKES), max_size=8).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
_whole = st.integers(-(10**20), 10**20)
_number = st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | _whole | _number | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_NULLABLE = _text.filter(lambda text: text.strip() not in ("null", "None", "") and '"' not in text)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "q": _text,
    "s": _text,
    "n": _whole,
    "x": _number,
    "b": st.booleans(),
    "z": st.none(),
    "o": st.dictionaries(_text, _json, max_size=3),
    "l": st.lists(_json, max_size=3),
    "m": st.none() | _NULLABLE,
    "i": _whole | st.lists(_json, max_size=2),
    "e": st.sampled_from(PROPERTIES["e"]["enum"]),
    "odd name>": _text,
}  # fmt: skip
_arguments = st.fixed_dictionaries({}, optional=_VALUES)
_calls = st.lists(st.tuples(st.sampled_from(list(TOOLS)), _arguments), min_size=1, max_size=3)
# What the form in tags cannot say: a value with a closing tag that a call's next tag follows.
_AMBIGUOUS = re.compile(r"</parameter>\s*(<parameter=|</function>)")


def answer(
    template: str, called: list[tuple[str, Any]], content: str = "", reasoning: str = ""
) -> str:
    """An assistant's message as the template writes it, without what stands around it."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    message["tool_calls"] = [
        {"type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in called
    ]
    (rendered,), _ = render_jinja_template(
        [[{"role": "user", "content": "?"}, message]], chat_template=template
    )
    body: str = re.split(r"<\|im_start\|>assistant\n|assistant<\|end_header_id\|>\n\n", rendered)[
        -1
    ]
    return re.sub(r"<\|im_end\|>\n?$|<\|eot_id\|>$", "", body)


def same(found: list[tuple[str, str]], called: list[tuple[str, Any]]) -> None:
    """The calls that were read are those that were written, to the type of each value."""
    read = [(name, json.loads(arguments)) for name, arguments in found]
    assert json.dumps(read) == json.dumps([[name, arguments] for name, arguments in called])


@settings(max_examples=150, deadline=None)
@given(_calls, st.sampled_from(["", "Let me see.", "a\n\nb < c"]), st.integers(1, 9))
@example([("find", {"q": "\n</parameter>\n</tool_call>\n"}), ("find", {"m": "  \n" * 20})], "", 1)
def test_calls_in_tags_come_back(called: list[tuple[str, Any]], content: str, size: int) -> None:
    strings = [v for _, arguments in called for v in arguments.values() if isinstance(v, str)]
    if any(_AMBIGUOUS.search(f"{value}\n</parameter>\n") for value in strings):
        return
    written = answer(XML, called, content)
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    found = split(DIALECTS["xml"], TOOLS, pieces)
    same(calls(found), called)
    assert text(found, Kind.CONTENT) == content


@settings(max_examples=100, deadline=None)
@given(_calls, st.sampled_from(["", "Let me see.", "a\n\nb < c"]), st.integers(1, 9))
def test_calls_in_json_come_back(called: list[tuple[str, Any]], content: str, size: int) -> None:
    for form, template, several in (("hermes", HERMES, called), ("llama", LLAMA, called[:1])):
        written = answer(template, several, content)
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        found = split(DIALECTS[form], TOOLS, pieces)
        same(calls(found), several)
        assert text(found, Kind.CONTENT) == ("" if form == "llama" else content)


def test_reasoning_comes_back() -> None:
    called = [("find", {"q": "a"})]
    for content in ("", "Hi.\n\nYou."):
        written = answer(XML, called, content, "so\n\nit is")
        found = split(of(XML, ()), TOOLS, [written])
        assert text(found, Kind.REASONING) == "so\n\nit is"
        assert text(found, Kind.CONTENT) == content
        same(calls(found), called)


@pytest.mark.parametrize("spelled", [False, True])
def test_a_published_template_and_its_tokens(qwen_pair: Pair, spelled: bool) -> None:
    """Qwen3's own template through its own tokenizer; markers spelled by letters are text."""
    ours, template = qwen_pair.ours, qwen_pair.theirs.chat_template
    called = [("find", {"q": "a </tool_call> b", "n": 3}), ("web.search-2", {})]
    dialect = of(template, ours.added_tokens)
    markers = dialect.markers()
    assert markers == {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    written = answer(template, called, "Hi.", "say <think>")
    ids = ours.encode(written, special=True, start=False)
    if spelled:  # each marker by the ids of its letters
        ids = [part for i in ids for part in _letters(ours, i, markers)]
    stream = TextStream(ours, markers=markers)
    segmenter = Segmenter(dialect, TOOLS, thinking=False, announced=markers)
    deltas = []
    for piece in (*map(stream.feed, ids), stream.finish()):
        deltas += segmenter.feed(piece.text, piece.marks)
    found = [*deltas, *segmenter.finish()]
    told = [(delta.kind, delta.text, delta.call) for delta in found]
    if spelled:
        assert "".join(delta.text for delta in found) == written
        assert {delta.kind for delta in found} == {Kind.CONTENT}
        return
    names = [text for kind, text, _ in told if kind is Kind.CALL]
    assert names == ["find", "web.search-2"]
    for number, (_, arguments) in enumerate(called):
        joined = "".join(t for kind, t, call in told if (kind, call) == (Kind.ARGUMENTS, number))
        assert json.loads(joined) == arguments
    assert "".join(t for kind, t, _ in told if kind is Kind.REASONING) == "say <think>"
    assert "".join(t for kind, t, _ in told if kind is Kind.CONTENT) == "Hi."


def _letters(ours: Any, token: int, markers: frozenset[str]) -> list[int]:
    spelling = ours.token_bytes(token, True).decode("utf-8", "replace")
    if spelling not in markers:
        return [token]
    return [i for letter in spelling for i in ours.encode(letter, start=False)]


def test_qwen3_is_read_with_random_arguments(qwen_pair: Pair) -> None:
    """The published template writes what the short one of these tests does."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_calls)
    def check(called: list[tuple[str, Any]]) -> None:
        written = answer(qwen_pair.theirs.chat_template, called, "", "hm")
        found = split(of(qwen_pair.theirs.chat_template, ()), TOOLS, [written])
        same(calls(found), called)

    check()
