"""Real grammars in the engine: every answer is valid, whatever the model says, beside free rows."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import Bench, ScriptedModel
from small_vocabulary import END, STOP, small

from strata.text.grammar import Grammars
from strata.types import DoneEvent, Finish, Request, Sampling, Thinking

LETTERS = [bytes([byte]) for byte in range(32, 127)]
WORDS = [b'{"', b'":', b'",', b'"}', b"true", b"null", b"12", b"-1", b"ab", b"\n", b'", "', b"]}"]
TOKENIZER, SPELLED = small([*LETTERS, *WORDS, "é".encode(), b"\xc3", b"\xa9"])
VOCAB = len(SPELLED) + 9  # a model's matrices have more rows
GRAMMARS = Grammars(TOKENIZER)
ENDS = frozenset((END, STOP))
THINK, CLOSE = 4, 5  # two of the letters

NAMES = st.text(st.sampled_from("abcxyz_"), min_size=1, max_size=5)
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-1000, 1000),
        st.integers(0, 5000),
    ),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.just({"type": "string", "pattern": "^[a-c]{2,4}$"}),
    st.just({"type": "string", "format": "date"}),
    st.lists(st.one_of(st.integers(-9, 9), NAMES, st.booleans()), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
    NAMES.map(lambda value: {"const": value}),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, inner, max_size=3).flatmap(
        lambda properties: (
            st.lists(st.sampled_from(sorted(properties)), unique=True).map(
                lambda required: {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": False,
                }
            )
            if properties
            else st.just({"type": "object", "additionalProperties": False})
        )
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda items: {"type": "array", "items": items, "maxItems": 3}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    ),
    max_leaves=6,
)


def text_of(tokens: list[int]) -> str:
    return b"".join(SPELLED[token] for token in tokens).decode()


def expected(model: ScriptedModel, request: Request) -> list[int]:
    """What it is alone: from the prefix, without any engine."""
    return [event.token for event in model.answer(request)]


@given(st.lists(SCHEMAS, min_size=1, max_size=3), st.integers(0, 2**32), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_answers_are_valid_and_free_rows_are_as_ever(
    schemas: list[dict[str, Any]], seed: int, warm: bool
) -> None:
    model = ScriptedModel(VOCAB)
    bench = Bench(model, pages=3000, batch=4)
    ends = {"stop_token_ids": ENDS}
    sampling = Sampling(seed=seed, temperature=1.0 if warm else 0.0, logprobs=1)
    asked = []
    for place, schema in enumerate(schemas):
        free = bench.ask((place, 7, 8), 30, sampling=sampling, **ends)
        guide = GRAMMARS.json_schema(schema)
        guided = bench.ask((place, 7, 8), 2500, sampling=sampling, guide=guide, **ends)
        asked.append((free, guided, schema))
    bench.drain()
    for free, guided, schema in asked:
        assert bench.tokens(free) == expected(model, free)
        assert bench.tokens(guided) == expected(model, guided)
        end = bench.end(guided)
        assert isinstance(end, DoneEvent) and end.finish is Finish.STOP, schema
        value = json.loads(text_of(bench.tokens(guided)))
        jsonschema.Draft202012Validator(schema).validate(value)


@given(st.integers(0, 2**32), st.sampled_from([(9, 40), (5, 3)]))
@settings(max_examples=25, deadline=None)
def test_reasoning_comes_before_and_is_not_masked(seed: int, shape: tuple[int, int]) -> None:
    budget, pages = shape[0], 3000
    model = ScriptedModel(VOCAB)
    bench = Bench(model, pages=pages)
    thinking = Thinking(close=(CLOSE,), open=False, opens=THINK, budget=budget)
    sampling = Sampling(seed=seed, logit_bias=((THINK, 20.0),))
    request = bench.ask(
        (1, 2),
        600,
        sampling=sampling,
        thinking=thinking,
        guide=GRAMMARS.regex(r"(yes|no), [0-9]{3}"),
        stop_token_ids=ENDS,
    )
    bench.drain()
    said = bench.tokens(request)
    assert said == expected(model, request)
    assert said[0] == THINK
    close = said.index(CLOSE, 1)
    assert close <= budget + 1 and not ENDS & set(said[:close])
    assert re.fullmatch(r"(yes|no), [0-9]{3}", text_of(said[close + 1 :]))


def test_an_answer_ends_where_nothing_can_follow_though_ends_are_ignored() -> None:
    bench = Bench(ScriptedModel(VOCAB))
    request = bench.ask((1, 2), 50, guide=GRAMMARS.regex("ab(c|d)"), stop_token_ids=frozenset())
    open_end = bench.ask((1, 2), 50, guide=GRAMMARS.regex("ab(c|d)?"), stop_token_ids=frozenset())
    bench.drain()
    assert text_of(bench.tokens(request)) in ("abc", "abd")
    assert text_of(bench.tokens(open_end)) in ("ab", "abc", "abd")
    for one in (request, open_end):
        end = bench.end(one)
        assert isinstance(end, DoneEvent) and end.finish is Finish.STOP


def test_preempted_answers_are_those_of_a_calm_engine() -> None:
    model = ScriptedModel(VOCAB)
    bench = Bench(model, pages=60, batch=4)
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 9, "maxItems": 9}
    requests = [
        bench.ask(
            range(i, i + 9),
            180,
            sampling=Sampling(seed=i),
            guide=GRAMMARS.json_schema(schema),
            stop_token_ids=ENDS,
            cached=False,
        )
        for i in range(8)
    ]
    bench.drain()
    assert bench.core.scheduler.preemptions > 0
    for request in requests:
        assert bench.tokens(request) == expected(model, request)
