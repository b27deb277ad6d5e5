"""Answers in every way to cut them, against answers worked out by hand."""

# ruff: noqa: E501  (the table has a case a line)

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from answers import DIALECTS, HERMES, LLAMA, XML, Joined, calls, joined, split, text
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strata.text.delta import Delta, Kind
from strata.text.dialects import of
from strata.text.segment import Segmenter

CONTENT, REASONING, CALL = Kind.CONTENT, Kind.REASONING, Kind.CALL
ARGUMENTS, END = Kind.ARGUMENTS, Kind.END
TOOLS: dict[str, Any] = {
    "find": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "o": {"type": "object"},
            "l": {"type": "array", "items": {"type": "string"}},
            "m": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "e": {"enum": [1, "one"]},
            "r": {"$ref": "#/$defs/Pair"},
            "any": {},
            "t": {"$ref": "#/$defs/a~1b/anyOf/1"},
            "o1": {"oneOf": [{"type": "string"}, {"const": "x"}]},
            "all": {"allOf": [{"title": "A"}, {"type": "string"}]},
        },
        "$defs": {"Pair": {"type": "array"}, "a/b": {"anyOf": [{}, {"type": "string"}]}},
    },
    "go": {},
}


def xml(**values: str) -> str:
    """A call of `find` in tags; `_` ends a name that is Python's."""
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=find>\n{inner}</function>\n</tool_call>"


def call(arguments: str, number: int = 0, name: str = "find") -> Joined:
    """A whole call."""
    return [(CALL, name, number), (ARGUMENTS, arguments, number), (END, "", number)]


def content(text: str) -> Joined:
    return [(CONTENT, text, None)]


JSON = '<tool_call>\n{"name": "find", "arguments": {"q": "a"}}\n</tool_call>'
BARE = '{"name": "find", "parameters": {"q": "a"}}'
CASES: list[tuple[str, str, Joined]] = [
    # content alone
    ("xml", "", []),
    ("xml", " \n a < b \n", content(" \n a < b \n")),
    ("xml", "<tool_cal", content("<tool_cal")),
    ("hermes", "a ```json\n{}\n``` b\n", content("a ```json\n{}\n``` b\n")),
    ("llama", '{"name": "x"}', content('{"name": "x"}')),
    # reasoning
    ("xml", "<think>\nhm\n</think>\n\nHi", [(REASONING, "hm", None), (CONTENT, "Hi", None)]),
    ("xml", "<think></think>Hi", content("Hi")),
    ("xml", "<think>\n\na\n\n</think>\n\n\nb", [(REASONING, "\na\n", None), (CONTENT, "\nb", None)]),
    ("xml", "<think>a</thin", [(REASONING, "a</thin", None)]),
    ("xml", "<think>a<think>b</think>", [(REASONING, "a<think>b", None)]),
    ("xml", "a <think>b</think>", content("a <think>b</think>")),
    ("xml", "<think>a</think>b<think>c</think>", [(REASONING, "a", None), (CONTENT, "b<think>c</think>", None)]),
    ("xml", "<thin", content("<thin")),
    ("xml", "<think>" + xml() + "</think>" + xml(), [(REASONING, xml(), None), *call("{}")]),
    ("llama", "<think>a</think>b", content("<think>a</think>b")),
    # blanks around calls
    ("xml", "Hi \n\n" + xml() + "\n" + xml() + "\n", [*content("Hi"), *call("{}"), *call("{}", 1)]),
    ("xml", " \n" + xml() + "\n\nbye\n", [*call("{}"), *content("bye\n")]),
    ("xml", "a\n" + xml() + "\n\nb\n" + xml(), [*content("a"), *call("{}"), *content("\n\nb"), *call("{}", 1)]),
    # values in tags
    ("xml", xml(q="a"), call('{"q": "a"}')),
    ("xml", xml(q=""), call('{"q": ""}')),
    ("xml", xml(q="\n a\n"), call('{"q": "\\n a\\n"}')),
    ("xml", xml(q='"\\\t漢😀\u2028\x00'), call('{"q": "\\"\\\\\\t漢😀\u2028\\u0000"}')),
    ("xml", xml(q="a</parameter>\nb</function></tool_call>"), call('{"q": "a</parameter>\\nb</function></tool_call>"}')),
    ("xml", xml(q="</parameter>"), call('{"q": "</parameter>"}')),
    ("xml", xml(q="5", n="5", x="5", b="true"), call('{"q": "5", "n": 5, "x": 5, "b": true}')),
    ("xml", xml(x="-1.5e3", b="False", z="None"), call('{"x": -1.5e3, "b": false, "z": null}')),
    ("xml", xml(n="five", x="NaN", b="no", z="0"), call('{"n": "five", "x": "NaN", "b": "no", "z": "0"}')),
    ("xml", xml(n="5.5", x="05", b="1"), call('{"n": "5.5", "x": "05", "b": "1"}')),
    ("xml", xml(n=" 5 ", x="Infinity"), call('{"n": 5, "x": "Infinity"}')),
    ("xml", xml(o='{"a": [1]}', l='["a"]', r="[2]"), call('{"o": {"a": [1]}, "l": ["a"], "r": [2]}')),
    ("xml", xml(o="{'a': 1}", l="[1", r="x"), call('{"o": "{\'a\': 1}", "l": "[1", "r": "x"}')),
    ("xml", xml(o="[1]", l="{}"), call('{"o": "[1]", "l": "{}"}')),
    ("xml", xml(l='["\\n</parameter>\\n</function>", "</parameter>\n</function>"]'),
     call('{"l": ["\\n</parameter>\\n</function>", "</parameter>\\n</function>"]}')),
    ("xml", xml(m="null", n="1"), call('{"m": null, "n": 1}')),
    ("xml", xml(m="nullify"), call('{"m": "nullify"}')),
    ("xml", xml(m="5"), call('{"m": "5"}')),
    ("xml", xml(m='"a" b'), call('{"m": "\\"a\\" b"}')),
    ("xml", xml(m='"a'), call('{"m": "\\"a"}')),
    ("xml", xml(m='"a"'), call('{"m": "a"}')),
    ("xml", xml(e="1"), call('{"e": 1}')),
    ("xml", xml(e="one"), call('{"e": "one"}')),
    ("xml", xml(e="2"), call('{"e": "2"}')),
    ("xml", xml(t="5", o1="5", all="5"), call('{"t": "5", "o1": "5", "all": "5"}')),
    ("xml", xml(any="1"), call('{"any": 1}')),
    ("xml", xml(any="a b"), call('{"any": "a b"}')),
    ("xml", xml(other="[]"), call('{"other": []}')),
    ("xml", xml(**{'k"': "1", "m\\": "x"}), call('{"k\\"": 1, "m\\\\": "x"}')),
    # tags written otherwise
    ("xml", "<function=find><parameter=q>a</parameter></function>", call('{"q": "a"}')),
    ("xml", "<tool_call><function=go>\n</function>", call("{}", name="go")),
    # tags that are no call
    ("xml", "<tool_call>\n<function=no>\n</function>\n</tool_call>", content("<tool_call>\n<function=no>\n</function>\n</tool_call>")),
    ("xml", "<tool_call>\nfind\n</tool_call>", content("<tool_call>\nfind\n</tool_call>")),
    ("xml", "<function=find>\nx", content("<function=find>\nx")),
    ("xml", "<function=>", content("<function=>")),
    ("xml", "<tool_call>" + xml(), [*content("<tool_call>"), *call("{}")]),
    # calls in tags that end too soon
    ("xml", xml(q="ab")[:-30], [(CALL, "find", 0), (ARGUMENTS, '{"q": "ab\\n</param', 0)]),
    ("xml", xml(q="ab")[:-24], [(CALL, "find", 0), (ARGUMENTS, '{"q": "ab\\n</parameter>\\n', 0)]),
    ("xml", xml(q="ab")[:-12], call('{"q": "ab"}')),
    ("xml", xml(n="12")[:-38], [(CALL, "find", 0), (ARGUMENTS, '{"n": 12', 0)]),
    ("xml", xml(l='["a", 1')[:-38], [(CALL, "find", 0), (ARGUMENTS, '{"l": ["a", 1', 0)]),
    ("xml", "<function=find><parameter=n>1</parameter><parameter=", [(CALL, "find", 0), (ARGUMENTS, '{"n": 1', 0)]),
    # JSON between tags
    ("hermes", JSON, call('{"q": "a"}')),
    ("hermes", "Hi\n" + JSON + "\n" + JSON, [*content("Hi"), *call('{"q": "a"}'), *call('{"q": "a"}', 1)]),
    ("hermes", '<tool_call>{"name":"find","arguments":{}}</tool_call>', call("{}")),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"q": "</tool_call>\\"}", "n": [{}, [-0.5, true]]}}</tool_call>',
     call('{"q": "</tool_call>\\"}", "n": [{}, [-0.5, true]]}')),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"q": "a\nb\\ud83d\\ude00"}}</tool_call>', call('{"q": "a\\nb\\ud83d\\ude00"}')),
    ("hermes", '<tool_call>{"arguments": {"q": "a"}, "name": "find"}</tool_call>', call('{"q": "a"}')),
    ("hermes", '<tool_call>{"id": 1, "name": "find"}</tool_call>', call("{}")),
    ("hermes", '<tool_call>{"name": "find", "arguments": "{\\"q\\": 1}"}</tool_call>', call('{"q": 1}')),
    ("hermes", '<tool_call>{"n\\u0061me": "f\\u0069nd"}</tool_call>', call("{}")),
    # JSON that is no call
    *(("hermes", whole, content(whole)) for whole in (
        '<tool_call>{"name": "no", "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 1, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "find", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "find" "arguments": {}}</tool_call>',
        '<tool_call>{"name": "find"',
        '<tool_call>{"name": ["find"]}',
        "<tool_call>[1]</tool_call>",
        '```json\n{"name": "no", "arguments": {}}\n```',
        '```json\n{"arguments": {}, "name": "find"}\n```',
    )),
    # calls in JSON that break or end too soon
    ("hermes", '<tool_call>{"name": "find", "arguments": {"n": 01}}', [(CALL, "find", 0), (ARGUMENTS, '{"n": ', 0), (CONTENT, "01}}", None)]),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"n": 1]}', [(CALL, "find", 0), (ARGUMENTS, '{"n": 1', 0), (CONTENT, "]}", None)]),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"n": 1,}', [(CALL, "find", 0), (ARGUMENTS, '{"n": 1,', 0), (CONTENT, "}", None)]),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"n": 12', [(CALL, "find", 0), (ARGUMENTS, '{"n": 12', 0)]),
    ("hermes", '<tool_call>{"name": "find", "arguments": {"q": "a\\u00', [(CALL, "find", 0), (ARGUMENTS, '{"q": "a\\u00', 0)]),
    ("hermes", JSON[:-3], call('{"q": "a"}')),
    ("hermes", JSON[:-14], call('{"q": "a"}')),
    # fences
    ("hermes", 'So:\n```json\n{"name": "find", "arguments": {"q": "```"}}\n```\nok', [*content("So:"), *call('{"q": "```"}'), *content("\nok")]),
    ("hermes", '```\n{"name": "go", "arguments": {}}\n```', call("{}", name="go")),
    # bare JSON
    ("llama", BARE, call('{"q": "a"}')),
    ("llama", f"\n{BARE}; {BARE}\n{BARE}", [*call('{"q": "a"}'), *call('{"q": "a"}', 1), *call('{"q": "a"}', 2)]),
    ("llama", f"<|python_tag|>{BARE}", call('{"q": "a"}')),
    ("llama", f"a <|python_tag|>{BARE}", [*content("a"), *call('{"q": "a"}')]),
    ("llama", f"a {BARE}", content(f"a {BARE}")),
    ("llama", "<|python_tag|>print(1)", content("<|python_tag|>print(1)")),
    ("llama", '{"type": "function", "name": "find", "parameters": {}}', call("{}")),
    ("llama", f"{BARE}; and", [*call('{"q": "a"}'), *content("; and")]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "answer", "expected"), CASES)
def test_every_split_gives_the_same(form: str, answer: str, expected: Joined) -> None:
    dialect = DIALECTS[form]
    assert split(dialect, TOOLS, [answer]) == expected
    assert split(dialect, TOOLS, list(answer)) == expected
    for at in range(1, len(answer)):
        assert split(dialect, TOOLS, [answer[:at], answer[at:]]) == expected, at


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("hm\n</think>\n\nHi", [(REASONING, "hm", None), (CONTENT, "Hi", None)]),
        ("<think>\nhm</think>", [(REASONING, "hm", None)]),
        ("no end", [(REASONING, "no end", None)]),
        ("\n</think>", []),
    ],
)
def test_an_answer_that_begins_inside_reasoning(answer: str, expected: Joined) -> None:
    for pieces in ([answer], list(answer)):
        assert split(DIALECTS["xml"], {}, pieces, thinking=True) == expected


def test_without_calls_markup_is_content() -> None:
    for tools, allowed in ((TOOLS, False), ({}, True)):
        for pieces in ([f" {xml()}\n"], list(f" {xml()}\n")):
            assert split(DIALECTS["xml"], tools, pieces, calls=allowed) == content(f" {xml()}\n")


_PIECES = (
    *("<tool_call>", "</tool_call>", "<function=find>", "</function>", "<parameter=q>", "\n"),
    *("<parameter=n>", "<parameter=l>", "<parameter=m>", "</parameter>", '{"name": "find", '),
    *('"arguments": {', '"parameters": {', '"q": "a', '"', "}", "[", "]", "\\", "```json\n", "```"),
    *("<think>", "</think>", " ", "a", "é", "😀", "1", "-", "true", "null", ";", "<|python_tag|>"),
    *('{"', "\\u00", ", ", ": ", "</", "<", ">"),
)
_answers = st.lists(st.sampled_from(_PIECES), max_size=25).map("".join)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(list(DIALECTS)), _answers, st.booleans(), st.data())
@example(
    "xml",
    '<function=find><parameter=m>"a</parameter></function>"</parameter></function>',
    False,
    None,
)
def test_random_answers_in_random_splits(
    form: str, answer: str, thinking: bool, data: st.DataObject | None
) -> None:
    whole = split(DIALECTS[form], TOOLS, [answer], thinking)
    assert split(DIALECTS[form], TOOLS, list(answer), thinking) == whole
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
        edges = [0, *cuts, len(answer)]
        pieces = [answer[start:end] for start, end in pairwise(edges)]
        assert split(DIALECTS[form], TOOLS, pieces, thinking) == whole
    for name, arguments in calls(whole):
        assert name in TOOLS
        assert isinstance(json.loads(arguments), dict)
    said = "".join(text for kind, text, _ in whole if kind in (CONTENT, REASONING))
    letters = iter(answer)
    assert all(letter in letters for letter in said), "nothing is told that was not written"


@pytest.mark.parametrize("form", DIALECTS)
@given(_answers)
@settings(max_examples=200, deadline=None)
def test_what_is_no_call_is_told_whole(form: str, answer: str) -> None:
    """Of an answer without calls and reasoning everything comes out."""
    found = split(DIALECTS[form], {"other": {}}, [answer])
    if not any(kind is REASONING for kind, _, _ in found) and "<think>" not in answer:
        assert text(found, CONTENT) == answer


@pytest.mark.parametrize(
    ("form", "answer", "expected"),
    [
        ("xml", "Hello there", None),
        ("xml", "Hello < there", None),
        ("xml", "Hello <tool", " <tool"),
        ("xml", "<think>abc <b", None),
        ("xml", xml(q="some text")[:-30], "\\n</param"),
        ("xml", xml(q="some text </par x")[:-38], None),
        ("xml", xml(m="some text")[:-38], None),
        ("xml", xml(m="some <b")[:-38], None),
        ("hermes", '<tool_call>{"name": "find", "arguments": {"q": "some te', None),
        ("hermes", '<tool_call>{"name": "find", "arguments": {"q": "some</tool_call', None),
        ("hermes", 'Hi ```json\n{"name": "no", "x', None),
        ("llama", '{"name": "find", "parameters": {"q": "some te', None),
        ("llama", '{"answer": 4', None),
    ],
)
def test_text_goes_out_as_soon_as_it_is_certain(
    form: str, answer: str, expected: str | None
) -> None:
    segmenter = Segmenter(DIALECTS[form], TOOLS, thinking=False)
    for letter in answer:
        segmenter.feed(letter)
    rest = segmenter.finish()
    assert "".join(delta.text for delta in rest) == (expected or "")


def test_a_call_ends_with_its_last_character() -> None:
    """END does not wait for what follows."""
    for form, answer in (("xml", xml()[:-13]), ("hermes", JSON[:-14]), ("llama", BARE[:-1])):
        segmenter = Segmenter(DIALECTS[form], TOOLS, thinking=False)
        deltas: list[Delta] = []
        for letter in answer:
            deltas = segmenter.feed(letter)
        assert deltas and deltas[-1].kind is END


def test_markers_that_are_tokens() -> None:
    """Announced, only the token counts; the same letters are text wherever they stand."""
    added = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    dialect = of(HERMES, added)
    assert dialect.markers() == set(added)
    assert dialect.markers(forced=True) == {"<think>", "</think>"}
    spelled = "<think>a</think> "
    answer = f"<think>a</think>b</think>{spelled}{JSON} {JSON}"
    at = answer.rindex(JSON)
    marks = [0, answer.index("</think>b") + 9, at, at + JSON.index("</")]
    expected = [
        (REASONING, "a</think>b", None),
        *content(f"{spelled}{JSON}"),
        *call('{"q": "a"}'),
    ]
    for size in (1, 7, len(answer)):
        segmenter = Segmenter(dialect, TOOLS, thinking=False, announced=dialect.markers())
        deltas = []
        for start in range(0, len(answer), size):
            here = [mark - start for mark in marks if start <= mark < start + size]
            deltas += segmenter.feed(answer[start : start + size], here)
        assert joined([*deltas, *segmenter.finish()]) == expected


def test_announced_markers_inside_arguments_are_text() -> None:
    answer = xml(q="a</tool_call>b", l='["<think>"]')
    segmenter = Segmenter(
        of(XML, ("<tool_call>",)), TOOLS, thinking=False, announced=["<tool_call>"]
    )
    marks = [0, answer.index("</tool_call>b"), answer.index("<think>")]
    found = joined([*segmenter.feed(answer, marks), *segmenter.finish()])
    assert calls(found) == [("find", '{"q": "a</tool_call>b", "l": ["<think>"]}')]


def test_names_with_odd_characters() -> None:
    tools = {
        'a>b "é': {"properties": {"x>": {"type": "string"}, "x": {"type": "integer"}}},
        "a": {},
    }
    answer = '<tool_call>\n<function=a>b "é><parameter=x>>1</parameter><parameter=x>1</parameter></function>'
    found = split(DIALECTS["xml"], tools, list(answer))
    assert calls(found) == [('a>b "é', '{"x>": "1", "x": 1}')]
    answer = '<tool_call>{"name": "a>b \\"\\u00e9", "arguments": {}}</tool_call>'
    assert calls(split(DIALECTS["hermes"], tools, list(answer))) == [('a>b "é', "{}")]


@pytest.mark.parametrize(
    "schema",
    [
        None, [], 1, "x", True, False, {"properties": []}, {"properties": {"q": 1}},
        {"type": 5}, {"type": [{}]}, {"anyOf": 3, "required": True}, {"$ref": "#/a/b"}, {"$ref": 1},
        {"$ref": "#"}, {"properties": {"q": {"$ref": "#/properties/q"}}}, {"$ref": "http://x/y"},
        {"properties": {"q": {"enum": 1}}}, {"allOf": [1, {"allOf": []}]},
        {"$defs": {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(60)}
         | {"a60": False},
         "properties": {"q": {"$ref": "#/$defs/a0"}}},
    ],
)  # fmt: skip
def test_any_schema_reads_any_value(schema: Any) -> None:
    found = split(DIALECTS["xml"], {"find": schema}, list(xml(q="[1]", w="a")))
    ((_, arguments),) = calls(found)
    assert json.loads(arguments)["w"] == "a"


def test_which_dialect() -> None:
    assert of(XML, ()).form is DIALECTS["xml"].form
    assert len({dialect.form for dialect in DIALECTS.values()}) == 3
    assert of("{{ messages }}", ()).form is DIALECTS["hermes"].form
    assert of("{{ messages }}", ()).think_open is None
    assert of("{{ messages }}", ("</think>",)).think_open == "<think>"
    assert of("{{ '</think>' }}", ()).think_close == "</think>"
    assert of(LLAMA, ("<|python_tag|>", "</s>")).markers() == {"<|python_tag|>"}


@pytest.mark.parametrize("form", DIALECTS)
def test_long_answers_take_time_in_proportion(form: str) -> None:
    """Each stretch that could be held back without end comes through a character at a time."""
    for stretch in (" ", "\n", "<", "</parameter>", "1", "[", "{", '"', "`", ";", "\\n", "a>"):
        begin = '<tool_call>{"name": "find", "arguments": {"l": ' if form == "hermes" else ""
        begin = xml(l="[")[:-38] if form == "xml" else begin
        answer = begin + stretch * 3000
        assert split(DIALECTS[form], TOOLS, answer) == split(DIALECTS[form], TOOLS, [answer])
