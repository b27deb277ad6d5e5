"""Masks against brute force over finite languages; errors; what a stranger's grammar may cost."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabulary import CONTROL, END, STOP, small
from vocabularies import Pair

from strata.text import grammar
from strata.text.grammar import Grammars
from strata.text.tokenizer import Tokenizer
from strata.types import Guide, RequestError

ALPHABET = "abé"


def allowed(guide: Guide, size: int) -> set[int]:
    """Tokens that a mask leaves possible, in a row that is longer than the vocabulary."""
    row = np.arange(size + 5, dtype=np.float32)
    guide.mask(row)
    left = np.flatnonzero(row > -np.inf)
    assert (row[left] == left).all(), "what is allowed keeps its logit"
    return set(left.tolist())


# ---------------------------------------------------------------- brute force

Language = tuple[str, frozenset[str]]  # a regular expression and all it matches


def both(parts: tuple[Language, Language]) -> Language:
    (left, xs), (right, ys) = parts
    return left + right, frozenset(x + y for x in xs for y in ys)


def either(parts: tuple[Language, Language]) -> Language:
    (left, xs), (right, ys) = parts
    return f"(?:{left}|{right})", xs | ys


def times(part: Language, least: int, more: int) -> Language:
    text, words = part
    found = [
        "".join(chosen)
        for count in range(least, least + more + 1)
        for chosen in itertools.product(sorted(words), repeat=count)
    ]
    return f"(?:{text}){{{least},{least + more}}}", frozenset(found)


LANGUAGES = st.recursive(
    st.sampled_from([(letter, frozenset((letter,))) for letter in ALPHABET]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(both),
        st.tuples(inner, inner).map(either),
        st.builds(times, inner, st.integers(0, 1), st.integers(0, 2)),
    ),
    max_leaves=5,
).filter(lambda language: len(language[1]) < 400)

SINGLE = [bytes([byte]) for byte in sorted(set(ALPHABET.encode()))]
LONGER = st.lists(st.sampled_from(SINGLE), min_size=2, max_size=4).map(b"".join)


def follow(
    guide: Guide, spelled: list[bytes], words: set[bytes], pick: Callable[[int], int]
) -> None:
    """Walk to an end; at each place a token can come iff some word goes on with it."""
    said = b""
    while True:
        expected = {
            token
            for token, piece in enumerate(spelled)
            if piece and any(word.startswith(said + piece) for word in words)
        }
        if said in words:
            expected |= {END, STOP}
        found = allowed(guide, len(spelled))
        assert found == expected, said
        chosen = sorted(found)[pick(len(found))]
        guide.accept(chosen)
        said += spelled[chosen]
        goes_on = any(word.startswith(said) and word != said for word in words)
        assert guide.ended == (chosen in (END, STOP) or not goes_on), said
        if guide.ended:
            assert said in words
            return


@given(LANGUAGES, st.lists(LONGER, max_size=12), st.sampled_from(["regex", "lark"]), st.data())
@settings(max_examples=150, deadline=None)
def test_a_token_can_come_iff_some_text_goes_on_with_it(
    language: Language, longer: list[bytes], kind: str, data: st.DataObject
) -> None:
    text, words = language
    assert all(re.fullmatch(text, word) for word in words)
    tokenizer, spelled = small([*SINGLE, *longer])
    grammars = Grammars(tokenizer)
    if kind == "regex":
        make = grammars.regex(text)
    else:
        make = grammars.lark("start: " + " | ".join(json.dumps(w) for w in sorted(words)))
    for _ in range(2):  # a grammar is not worn by its use
        pick = lambda count: data.draw(st.integers(0, count - 1))  # noqa: E731
        follow(make(), spelled, {word.encode() for word in words}, pick)


def test_control_tokens_are_named_not_spelled() -> None:
    tokenizer, spelled = small([*SINGLE, b"<", b">", b"x", b"<x>"])
    control = CONTROL
    guide = Grammars(tokenizer).lark('start: "a" <c> "b"')()
    guide.accept(spelled.index(b"a"))
    assert allowed(guide, len(spelled)) == {control}
    plain = Grammars(tokenizer).regex(r"a[<>x]*b")()
    plain.accept(spelled.index(b"a"))
    wanted = [b"<", b">", b"x", b"<x>", b"b"]
    assert allowed(plain, len(spelled)) == {spelled.index(piece) for piece in wanted}


def test_whitespace_in_json_ends() -> None:
    tokenizer, spelled = small([b"{", b"}", b" "])
    guide = Grammars(tokenizer).json_object()()
    guide.accept(spelled.index(b"{"))
    blank = spelled.index(b" ")
    for _ in range(64):
        assert blank in allowed(guide, len(spelled))
        guide.accept(blank)
    assert allowed(guide, len(spelled)) == {spelled.index(b"}")}


def test_guides_of_one_grammar_are_apart_across_threads() -> None:
    tokenizer, spelled = small(SINGLE)
    make = Grammars(tokenizer).regex("(a|b)(a|b)")
    wrong: list[object] = []

    def run(letter: bytes) -> None:
        for _ in range(200):
            guide = make()
            for _ in range(2):
                if allowed(guide, len(spelled)) != {spelled.index(b"a"), spelled.index(b"b")}:
                    wrong.append(letter)
                guide.accept(spelled.index(letter))
            if not guide.ended:
                wrong.append(letter)

    threads = [threading.Thread(target=run, args=(letter,)) for letter in (b"a", b"b", b"a")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---------------------------------------------------------------- errors


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(small([bytes([byte]) for byte in range(32, 127)])[0])


def refused(make: Callable[[], object]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        make()
    assert caught.value.status == 400 and caught.value.field is not None
    assert str(caught.value).startswith(caught.value.field) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 and "1 | " not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "properties": {"a": {"type": "dict"}}}, "dict"),
        ({"type": "string", "format": "telepathy"}, "telepathy"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
        ({"$ref": "http://127.0.0.1/x"}, "127.0.0.1"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "5"),
        ({"type": "string", "pattern": "("}, "unclosed"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "no text can match"),
        ({"allOf": [{"pattern": f".*a{i}.*"} for i in range(12)]}, "regex is empty"),
        ({"const": {1, 2}}, "JSON"),
    ],
)
def test_a_schema_that_cannot_be_compiled_says_why(
    grammars: Grammars, schema: dict[str, Any], says: str
) -> None:
    error = refused(lambda: grammars.json_schema(schema, "tools.3"))
    assert says in str(error) and error.field == "tools.3"


def test_bad_expressions_and_grammars_say_where(grammars: Grammars) -> None:
    assert "unclosed group" in str(refused(lambda: grammars.regex("a(b")))
    assert "look-around" in str(refused(lambda: grammars.regex("(?=a)b")))
    assert "3(" in str(refused(lambda: grammars.lark('start: "a"\n\nfoo: ((')))
    assert "foo" in str(refused(lambda: grammars.lark("start: foo")))
    assert refused(lambda: grammars.lark("")).field == "grammar"


def test_a_library_that_breaks_down_is_a_refusal(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise Panic

    monkeypatch.setattr(grammar, "LLMatcher", panic)
    assert "cannot be compiled" in str(refused(lambda: grammars.regex("panic")))
    assert "Panic" in caplog.text


def test_a_schema_cannot_loosen_its_own_rules(grammars: Grammars) -> None:
    refused(lambda: grammars.json_schema({"not": {}, "x-guidance": {"lenient": True}}))


# ---------------------------------------------------------------- what it may cost

MANY = [f".*a{i}.*" for i in range(40)]


def chain(count: int, link: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    links = {f"a{i}": link(i + 1) for i in range(count)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{count}": {"type": "string"}}}


def ref(i: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/a{i}"}


# Each of these ran for minutes, took gigabytes or ended the process.
HOSTILE_SCHEMAS: dict[str, dict[str, Any]] = {
    "long": {"enum": ["x" * 1000] * 300},
    "a long chain": chain(50_000, ref),
    "a long chain of lists": chain(50_000, lambda i: {"type": "array", "items": ref(i)}),
    "patterns at once": {"allOf": [{"pattern": pattern} for pattern in MANY]},
    "patterns along a chain": chain(40, lambda i: {**ref(i), "pattern": MANY[i - 1]}),
    "patterns beside choices": {
        "pattern": "x",
        "anyOf": [{"pattern": p, "oneOf": [{"pattern": p + "y"}]} for p in MANY],
    },
    "many names": {"type": "object", "properties": {f"k{i}": {} for i in range(10_000)}},
    "many patterns of names": {"patternProperties": {f"^{i:05}_": {} for i in range(1000)}},
    "a long pattern": {"pattern": "a?" * 30_000},
    "many long patterns": {"enum": [{"pattern": f"{i}" + ".?" * 2000} for i in range(9)]},
}
HOSTILE_GRAMMARS: dict[str, str] = {
    "long": "start: " + " ".join('"abcdefgh"' for _ in range(30_000)),
    "a long chain": "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(40_000)),
    "expressions at once": "start: A\nA: " + " & ".join(f"/{p}/" for p in MANY),
    "a slash in quotes": 'start: A\nA: "/" | ' + " & ".join(f"/{p}/" for p in MANY),
    "quoted slashes": "start: A\nA: " + " & ".join(f'/{p}"/' for p in MANY),
    "behind a schema": 'start: A | %json {"type": "null"}\nA: '
    + " & ".join(f"/{p}/" for p in MANY),
    "a comment's schema": "start: A // %json [\nA: " + " & ".join(f"/{p}/" for p in MANY) + "// ]",
    "optional parts": "start: A\nA: " + '"a"? ' * 30_000,
    "a long expression": f"start: /{'a?' * 30_000}/",
    "a schema in it": "start: %json " + json.dumps(HOSTILE_SCHEMAS["patterns at once"]),
}
UNSEEN = "this server refuses it"  # before llguidance sees it
HOSTILE_EXPRESSIONS = ["a?" * 30_000, "(" * 5000 + "a" + ")" * 5000]


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_hostile_schemas_are_refused(grammars: Grammars, name: str) -> None:
    assert UNSEEN in str(refused(lambda: grammars.json_schema(HOSTILE_SCHEMAS[name])))


@pytest.mark.parametrize("name", HOSTILE_GRAMMARS)
def test_hostile_grammars_are_refused(grammars: Grammars, name: str) -> None:
    assert UNSEEN in str(refused(lambda: grammars.lark(HOSTILE_GRAMMARS[name])))


@pytest.mark.parametrize("text", HOSTILE_EXPRESSIONS)
def test_hostile_expressions_are_refused(grammars: Grammars, text: str) -> None:
    assert UNSEEN in str(refused(lambda: grammars.regex(text)))


def test_what_llguidance_itself_finds_too_slow_is_refused(grammars: Grammars) -> None:
    error = refused(lambda: grammars.lark("start: " + "r? " * 4000 + '\nr: "a"'))
    assert "Too many items" in str(error)


def test_a_nested_schema_is_refused(grammars: Grammars) -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"items": deep}
    refused(lambda: grammars.json_schema(deep))


@pytest.mark.parametrize(
    "text",
    ["(a{1000}){1000}", "((a|b){1000}c){1000}", "(a|b)*a(a|b){20}", "(x+x+)+y", r"\p{L}{1,1000}"],
)
def test_large_but_harmless_expressions_compile(grammars: Grammars, text: str) -> None:
    assert not grammars.regex(text)().ended


@pytest.mark.parametrize(
    "schema",
    [
        chain(3000, ref),
        chain(3000, lambda i: {"type": "array", "items": ref(i)}),
        {"type": "array", "minItems": 10**8},
        {"type": "string", "maxLength": 10**8},
        {"enum": [f"value {i}" for i in range(10_000)]},
        {"type": "object", "properties": {f"k{i}": {"pattern": f"^{i}"} for i in range(500)}},
        {"allOf": [{"pattern": "^[a-z]+$"}, {"pattern": "^x"}, {"minLength": 3}]},
        {"description": "R&D " * 1000, "type": "integer", "format": "int32"},
    ],
)
def test_large_but_harmless_schemas_compile(grammars: Grammars, schema: dict[str, Any]) -> None:
    assert not grammars.json_schema(schema)().ended
    assert not grammars.lark("start: %json " + json.dumps(schema))().ended


def test_a_guide_whose_limits_are_passed_on_its_way_says_so() -> None:
    tokenizer, spelled = small(SINGLE)
    # After "b" each further one may belong to any of very many parts.
    text = 'start: "b" ' + "r? " * 3900 + '\nr: "a" r? "b" | "a"'
    guide = Grammars(tokenizer).lark(text, "grammar")()
    row = np.zeros(len(spelled), dtype=np.float32)
    guide.mask(row)
    guide.accept(spelled.index(b"b"))
    with pytest.raises(RequestError, match="too complex") as caught:
        guide.mask(row)
    assert caught.value.status == 400 and caught.value.field == "grammar"
    assert not guide.ended, "an answer that broke off is not whole"


def test_the_last_grammars_are_kept_and_no_more(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = Grammars._build
    monkeypatch.setattr(Grammars, "_build", lambda self, t: (built.append(t), build(self, t))[1])
    grammars.regex("kept 0")
    for i in range(1, 64):
        grammars.regex(f"kept {i}")
    grammars.regex("kept 0")
    assert len(built) == 64
    grammars.regex("one more")  # drops 1, the least recently used
    grammars.regex("kept 0")
    assert len(built) == 65
    grammars.regex("kept 1")
    assert len(built) == 66
    assert len(grammars._compiled) == 64


# ---------------------------------------------------------------- the tokenizer


@pytest.mark.parametrize("name", ["smollm", "qwen", "spm", "bytes"])
def test_the_trie_spells_tokens_as_we_do(name: str, request: pytest.FixtureRequest) -> None:
    pair: Pair = request.getfixturevalue(f"{name}_pair")
    ours = pair.ours
    theirs = Grammars(ours)._tokenizer
    assert theirs.vocab_size == ours.vocab_size
    assert set(theirs.eos_tokens) == ours.end_ids
    for token in range(ours.vocab_size):
        spelled = ours.token_bytes(token, special=True)
        # The byte ff, which no UTF-8 has, is how the trie marks control tokens.
        assert theirs.decode_bytes([token]) == spelled.removeprefix(b"\xff"), token
        if token in ours.special_ids:
            assert theirs.is_special_token(token)


@pytest.mark.parametrize("name", ["smollm", "qwen"])
def test_what_our_tokenizer_makes_of_a_text_of_the_language_is_allowed(
    name: str, request: pytest.FixtureRequest
) -> None:
    ours: Tokenizer = request.getfixturevalue(f"{name}_pair").ours
    texts = ['{"name": "Ünïcödé 字 👍🏽", "n": [1, -2.5e3, null]}', '{\n  "a": {}\n}', "{}"]
    for text in texts:
        guide = Grammars(ours).json_object()()
        for token in ours.encode(text, start=False):
            assert token in allowed(guide, ours.vocab_size), (text, token)
            guide.accept(token)
        assert guide.ended
