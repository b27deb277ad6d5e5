"""Random walks through grammars of forced calls: what they allow reads back as valid calls."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import llguidance
import pytest
from answers import DIALECTS, calls, split, text

from strata.text.delta import Kind
from strata.types import RequestError

TOOLS: dict[str, Any] = {
    "find": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer", "minimum": -5, "maximum": 70},
            "m": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "l": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        },
        "required": ["q", "n"],
    },
    "texts": {
        "type": "object",
        "properties": {
            "e": {"type": "string", "enum": ["a b", 'é"\n/\\', ""]},
            "c": {"const": "it"},
            "p": {"type": "string", "pattern": "^a/b+$"},
            "f": {"type": "string", "pattern": "x[0-9]"},
            "b": {"type": "string", "minLength": 2, "maxLength": 5},
            "r": {"$ref": "#/$defs/Short", "description": "short"},
            "a": {"anyOf": [{"const": "one"}, {"type": "string", "pattern": "^t"}]},
        },
        "required": ["e", "c", "p", "f", "b", "r", "a"],
        "$defs": {"Short": {"type": "string", "maxLength": 1}},
    },
    "mixed": {
        "type": "object",
        "properties": {
            "b": {"type": "boolean"},
            "x": {"type": ["number", "string"]},
            "any": {},
            "yes": True,
            "no": False,
            "never": {"type": "boolean", "enum": ["yes", "no"]},
            "e": {"enum": [1, "1", None]},
            "z": {"anyOf": [{"type": "string", "pattern": "^[0-9]$"}, {"type": "integer"}]},
        },
        "required": ["b", "x", "any", "yes", "e", "z"],
    },
    'odd.näme "x">/y': {
        "type": "object",
        "properties": {'a>b "': {"$ref": "#/$defs/D"}, "ü/": {"type": "number"}},
        "$defs": {
            "D": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "again": {"$ref": "#/$defs/D"}},
                "required": ["k"],
                "additionalProperties": False,
            }
        },
        "required": ['a>b "'],
        "additionalProperties": False,
    },
    "none": {},
    "empty": {"type": "object", "properties": {}, "additionalProperties": False},
    "free": {"type": "object", "additionalProperties": {"type": "integer"}, "required": ["r"]},
    "either": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
}
END = 256


class Bytes:
    """A tokenizer whose tokens are the bytes, and an end."""

    def __init__(self) -> None:
        self.eos_token_id, self.bos_token_id = END, None
        self.tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]
        self.special_token_ids = [END]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))
_CLOSE = b"\n</parameter>\n"


def walk(grammar: str, rng: random.Random, short: int = 60) -> str:
    """A random text that the grammar allows; after `short` bytes it makes for an end."""
    matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    out = bytearray()
    for count in range(4000):
        mask = matcher.compute_bitmask()
        allowed = [token for token in range(END + 1) if mask[token // 8] >> token % 8 & 1]
        assert allowed, (bytes(out), matcher.get_error())
        token = rng.choice(allowed)
        if count > short or rng.random() < 0.2:
            begun = [_CLOSE[size] for size in range(13, 0, -1) if out.endswith(_CLOSE[:size])]
            wanted = [END, *begun] if count > short and rng.random() < 0.6 else begun
            likely = [t for t in b'"}],\n0x' if t in allowed]
            token = next((t for t in wanted if t in allowed), rng.choice(likely or [token]))
        if token == END:
            return out.decode()
        assert matcher.consume_token(token), (bytes(out), matcher.get_error())
        out.append(token)
        if matcher.is_stopped():
            return out.decode()
    raise AssertionError(f"no end: {bytes(out[-80:])!r}")


def check(form: str, tools: dict[str, Any], choice: str, parallel: bool, seed: int) -> int:
    """One walk: read back whole and valid. How many calls it had."""
    grammar = DIALECTS[form].tool_grammar(tools, choice, parallel)
    answer = walk(grammar, random.Random(seed))
    found = split(DIALECTS[form], tools, [answer])
    read = calls(found)
    assert read and len(read) == sum(kind is Kind.CALL for kind, _, _ in found), answer
    assert not text(found, Kind.CONTENT).strip(), answer
    assert parallel or len(read) == 1
    for name, arguments in read:
        assert choice in ("required", name)
        jsonschema.validate(json.loads(arguments), tools[name])
    return len(read)


@pytest.mark.parametrize("choice", [*TOOLS, "required"])
@pytest.mark.parametrize("form", DIALECTS)
def test_forced_calls_read_back_as_valid(form: str, choice: str) -> None:
    several = 0
    for seed in range(16):
        several += check(form, TOOLS, choice, seed % 2 == 1, seed) > 1
    assert several or choice != "required"


def allows(grammar: str, answer: str) -> bool:
    """Whether the grammar allows an answer as a whole."""
    matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_lark(grammar))
    whole = all(matcher.consume_token(byte) for byte in answer.encode())
    return whole and bool(matcher.is_accepting())


def tagged(**values: str) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=find>\n{inner}</function>\n</tool_call>"


def test_what_a_grammar_of_tags_allows() -> None:
    one = DIALECTS["xml"].tool_grammar(TOOLS, "find", parallel=False)
    assert allows(one, tagged(q='a\n</function> "b"\n\n<parameter=q>', n="-5"))
    assert allows(one, "\n\n" + tagged(q="", n="70", m="bare text", l='["a", "b"]'))
    assert allows(one, tagged(q="", n="70", m="null"))
    assert allows(one, tagged(q="", n="70", m='"null"'))
    assert not allows(one, tagged(q="", n="70", m="nullify")), "it could be read as null"
    assert not allows(one, tagged(q="", n="70", m='"null'))
    assert not allows(one, tagged(q="", n="71"))
    assert not allows(one, tagged(q=""))
    assert not allows(one, tagged(n="1", q=""))
    assert not allows(one, tagged(q="", n="1", l="a"))
    assert not allows(one, tagged(q="a</parameter>b", n="1"))
    assert not allows(one, tagged(q="", n="1", q2="a"))
    assert not allows(one, f"{tagged(q='', n='1')}\n{tagged(q='', n='1')}")
    several = DIALECTS["xml"].tool_grammar(TOOLS, "required", parallel=True)
    assert allows(several, f"{tagged(q='', n='1')}\n{tagged(q='', n='1')}")
    assert not allows(several, tagged(q="", n="1") + "\n")


def test_patterns_of_bare_text_are_searched_for() -> None:
    for pattern, good, bad in (
        ("x[0-9]", "a x1 b\n", "x"),
        ("^/a+$", "/aa", "b/a"),
        ("b$", "ab", "ba"),
    ):
        tools = {"find": {"properties": {"q": {"type": "string", "pattern": pattern}}}}
        grammar = DIALECTS["xml"].tool_grammar(tools, "find", parallel=False)
        assert allows(grammar, tagged(q=good))
        assert not allows(grammar, tagged(q=bad))


def test_what_a_grammar_of_json_allows() -> None:
    """As the templates write it, to the blank."""
    call = '{"name": "find", "arguments": {"q": "é\\n", "n": 1, "l": ["a", "b"]}}'
    hermes = DIALECTS["hermes"].tool_grammar(TOOLS, "required", parallel=True)
    assert allows(hermes, f"<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{call}\n</tool_call>")
    assert not allows(hermes, f"<tool_call>\n{call}\n</tool_call>{call}")
    llama = DIALECTS["llama"].tool_grammar(TOOLS, "find", parallel=True)
    bare = call.replace("arguments", "parameters")
    assert allows(llama, f"{bare}; {bare}")
    assert not allows(llama, bare.replace(", ", ",  "))


@pytest.mark.parametrize("form", DIALECTS)
@pytest.mark.parametrize("tools", [{}, {"find": {}}])
def test_a_choice_that_is_no_tool_is_refused(form: str, tools: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="no tool 'fetch'") as refusal:
        DIALECTS[form].tool_grammar(tools, "fetch", parallel=True)
    assert refusal.value.field == "tool_choice"


def test_no_tools_at_all_are_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice"):
        DIALECTS["xml"].tool_grammar({}, "required", parallel=True)


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"required": ["a"]}},
        {"minProperties": 1},
        {"type": "array"},
        {"if": {}, "then": {}},
    ],
)
def test_parameters_that_tags_cannot_say_are_refused(schema: Any) -> None:
    with pytest.raises(RequestError, match="'find'") as refusal:
        DIALECTS["xml"].tool_grammar({"find": schema}, "find", parallel=False)
    assert refusal.value.field == "tools"


@pytest.mark.parametrize("form", DIALECTS)
@pytest.mark.parametrize("schema", [None, True, 3, [], {"properties": {}}])
def test_what_is_no_schema_allows_any_call(form: str, schema: Any) -> None:
    grammar = DIALECTS[form].tool_grammar({"find": schema}, "required", parallel=False)
    assert calls(split(DIALECTS[form], {"find": schema}, [walk(grammar, random.Random(1))]))


@pytest.mark.parametrize(
    "schema",
    [
        {"required": 5},
        {"required": [1]},
        {"properties": 3},
        {"properties": {"q": {"type": "string", "minLength": "x", "maxLength": {}}}},
        {"properties": {"q": {"type": "string", "pattern": 5, "enum": 3}}},
    ],
)
def test_broken_schemas_of_tags_allow_more(schema: Any) -> None:
    grammar = DIALECTS["xml"].tool_grammar({"find": schema}, "find", parallel=False)
    assert calls(split(DIALECTS["xml"], {"find": schema}, [walk(grammar, random.Random(1))]))
