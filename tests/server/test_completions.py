"""Text completions: prompts of every kind, echo, log probabilities."""

from __future__ import annotations

import pytest

BOS, EOS = 256, 257


def test_whole(call, engine):
    body = call.complete().json()
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}
    ]
    assert body["usage"]["prompt_tokens"] == 4
    assert engine.requests[0].tokens == (BOS, *b"abc")


def test_stream(call):
    events = call.complete(stream=True, stream_options={"include_usage": True}).events()
    assert [e["choices"][0]["text"] for e in events[:-2]] == [*"Hello", ""]
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert events[0]["choices"][0] == {
        "index": 0,
        "text": "H",
        "logprobs": None,
        "finish_reason": None,
    }


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("a", [(BOS, 97)]),
        ("a</s>", [(BOS, 97, EOS)]),  # a raw prompt: special text is the special token
        ([97, 98], [(97, 98)]),
        (["a", ""], [(BOS, 97), (BOS,)]),
        ([[97], [98, 99]], [(97,), (98, 99)]),
    ],
)
def test_prompts(call, engine, prompt, tokens):
    body = call.complete(prompt=prompt, n=2).json()
    assert [r.tokens for r in engine.requests] == [t for t in tokens for _ in range(2)]
    assert [c["index"] for c in body["choices"]] == list(range(2 * len(tokens)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, tokens))


@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_logprobs(call, engine, speak, stream):
    engine.script = speak("é", end=False)
    answer = call.complete(prompt="ab", echo=True, logprobs=1, max_tokens=2, stream=stream)
    choices = (
        [e["choices"][0] for e in answer.events()[:-1]] if stream else answer.json()["choices"]
    )
    assert "".join(c["text"] for c in choices) == "abé"
    told: dict[str, list] = {}
    for choice in choices:
        for key, values in (choice["logprobs"] or {}).items():
            told[key] = told.get(key, []) + values
    assert told == {
        "tokens": ["<s>", "a", "b", "bytes:\\xc3", "bytes:\\xa9"],
        "token_logprobs": [None, -1.0, -1.0, -0.25, -0.25],
        "top_logprobs": [
            None,
            {"a": -1.0},
            {"b": -1.0},
            {"bytes:\\xc3": -0.25},
            {"bytes:\\xa9": -0.25},
        ],
        "text_offset": [0, 3, 4, 5, 6],
    }
    assert engine.requests[0].sampling.prompt_logprobs == 1


def test_echo_of_token_ids(call):
    assert call.complete(prompt=[104, 105], echo=True).json()["choices"][0]["text"] == "hiHello"


def test_scoring_alone(call, engine):
    from strata.types import Finish

    engine.script = lambda request: [Finish.LENGTH]
    body = call.complete(prompt="ab", echo=True, logprobs=0, max_tokens=0).json()
    assert engine.requests[0].max_tokens == 0
    assert body["choices"][0]["text"] == "ab"
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [None, -1.0, -1.0]
    assert body["usage"]["completion_tokens"] == 0


def test_chosen_token_is_among_the_top_ones(call, engine):
    body = call.complete(logprobs=0, max_tokens=1).json()
    assert body["choices"][0]["logprobs"]["top_logprobs"] == [{"H": -0.25}]


def test_null_logprobs_and_unknown_fields(call):
    answer = call.complete(logprobs=None, repetition_penalty=1.0, use_beam_search=False, user="u")
    assert answer.status == 200


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt.0"),
        ({"prompt": [[97], []]}, "prompt.1"),
        ({"prompt": [97, 300]}, "prompt.1"),
        ({"prompt": [[97, 299], [300]]}, "prompt.1.0"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": ["a"] * 33, "n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": 1}, "echo"),
        ({"max_tokens": -1}, "max_tokens"),
    ],
)
def test_refusals(call, engine, fields, field):
    answer = call.complete(**fields)
    assert (answer.status, answer.error["param"]) == (400, field)
    assert field in answer.error["message"] and not engine.requests


def test_best_of_equal_to_n_and_empty_suffix_are_fine(call):
    assert call.complete(best_of=2, n=2, suffix="").status == 200


def test_empty_prompt_of_a_tokenizer_without_start_token(call, service, monkeypatch):
    monkeypatch.setattr(type(service.tokenizer), "bos", None)
    monkeypatch.setattr(type(service.tokenizer), "encode", lambda *a, **k: [])
    assert call.complete(prompt="").status == 400


def test_prompt_beyond_the_context_names_both_numbers(call):
    answer = call.complete(prompt="a" * 5000)
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"
    assert "5001" in answer.error["message"] and "4096" in answer.error["message"]
    assert call.complete(prompt="a" * 4095).status == 400  # no room for one token
    assert call.complete(prompt="a" * 4094).status == 200


def test_max_tokens_is_cut_to_the_context(call, engine):
    call.complete(prompt="a" * 4000, max_tokens=100000)
    assert engine.requests[0].max_tokens == 4096 - 4001
