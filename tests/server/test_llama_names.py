"""llama.cpp's names: timings, the prompt's progress, /props and /slots, all with true values."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from strata.engine.client import EngineClient
from strata.engine.loop import Engine
from strata.engine.settings import EngineSettings
from strata.server import llama
from strata.server.app import create_app
from strata.server.service import Lobby
from strata.types import Finish, ProgressEvent, Request, RowState, Sampling, Usage

EOS = 257


def test_timings_are_the_requests_own():
    usage = Usage(100, 60, 11, queue_s=9.0, prefill_s=0.5, decode_s=2.0, first_token_s=9.5)
    assert llama.timings(usage) == {
        "cache_n": 60,
        "prompt_n": 40,
        "prompt_ms": 500.0,
        "prompt_per_token_ms": 12.5,
        "prompt_per_second": 80.0,
        "predicted_n": 11,
        "predicted_ms": 2000.0,
        "predicted_per_token_ms": 200.0,
        "predicted_per_second": 5.0,
    }


def test_a_rate_of_nothing_is_null():
    told = llama.timings(Usage(3, 0, 1, 0.0, 0.0, 0.0, 0.0))
    rates = {name: value for name, value in told.items() if "_per_" in name}
    assert len(rates) == 4 and set(rates.values()) == {None}


@pytest.mark.parametrize("path", ["chat", "complete"])
def test_timings_in_a_whole_answer(call, engine, path):
    engine.cached = 1
    timings = getattr(call, path)().json()["timings"]
    assert (timings["cache_n"], timings["predicted_n"]) == (1, len("Hello") + 1)
    assert (timings["prompt_ms"], timings["predicted_ms"]) == (250.0, 500.0)


def test_timings_are_in_the_last_chunk_only(call):
    for options, last in (({}, -2), ({"include_usage": True}, -2)):
        events = call.chat(stream=True, stream_options=options).events()
        assert events[-1] == b"[DONE]"
        assert events[last]["timings"]["predicted_n"] == len("Hello") + 1
        assert not [e for e in events[:-2] if "timings" in e]


def test_timings_per_token_grow(call):
    events = call.chat(stream=True, timings_per_token=True).events()[:-1]
    assert [e["timings"]["predicted_n"] for e in events] == [1, 2, 3, 4, 5, 6]


def test_an_answer_ended_by_a_stop_string_has_its_timings(call, engine, speak):
    engine.script = speak("one END two")
    body = call.chat(stop="END").json()
    assert body["timings"]["predicted_n"] == len("one END") == body["usage"]["completion_tokens"]


def test_several_choices_have_no_timings(call):
    assert "timings" not in call.chat(n=2).json()
    assert all("timings" not in e for e in call.chat(n=2, stream=True).events()[:-1])


def test_progress_chunks_have_no_choices(call, engine):
    engine.script = lambda request: [
        ProgressEvent("", 21, 4, 12, 0.25), ProgressEvent("", 21, 4, 21, 0.5), *b"ok", Finish.STOP
    ]  # fmt: skip
    events = call.chat(stream=True, return_progress=True).events()
    told = [(e["choices"], e["prompt_progress"]) for e in events[:2]]
    first = {"total": 21, "cache": 4, "processed": 12, "time_ms": 250.0}
    assert told == [([], first), ([], first | {"processed": 21, "time_ms": 500.0})]
    assert events[2]["choices"][0]["delta"] == {"role": "assistant", "content": "o"}
    assert engine.requests[0].progress


def test_progress_is_for_streams(call, engine):
    assert call.chat(return_progress=True).status == 200
    assert call.chat(stream=True).status == 200
    assert not any(request.progress for request in engine.requests)


def test_props(call, service, template):
    told = call("GET", "/props").json()
    assert told["total_slots"] == 4
    assert (told["model_alias"], told["model_path"]) == ("toy", "lab/toy")
    assert told["chat_template"] == template.source
    assert told["bos_token"] == "<s>" and told["modalities"] == {"vision": False, "audio": False}
    settings = told["default_generation_settings"]
    assert settings["n_ctx"] == service.model.context
    assert (settings["params"]["temperature"], settings["params"]["top_k"]) == (0.7, 40)


def test_slots(call, engine):
    request = Request("chatcmpl-1", (1,) * 9, 50, Sampling(temperature=0.2, seed=7))
    engine.running = (RowState(request, cached=3, read=8, output=5),)
    first, *others = call("GET", "/v1/slots").json()
    assert (first["id"], first["id_task"], first["is_processing"]) == (0, "chatcmpl-1", True)
    assert (first["n_prompt_tokens"], first["n_prompt_tokens_cache"]) == (9, 3)
    assert first["n_prompt_tokens_processed"] == 5
    assert first["next_token"] == {"has_next_token": True, "n_remain": 45, "n_decoded": 5}
    assert (first["params"]["temperature"], first["params"]["seed"]) == (0.2, 7)
    assert [(o["id"], o["id_task"], o["is_processing"]) for o in others] == [
        (i, -1, False) for i in (1, 2, 3)
    ]


def test_pages_name_no_prompt(call, engine):
    request = Request("x", tuple(b"a secret"), 5)
    engine.running = (RowState(request, 0, 8, 0),)
    assert b"secret" not in call("GET", "/slots").body
    assert str(list(b"a secret"))[1:-1].encode() not in call("GET", "/slots").body


def scripted_model(vocab: int):
    path = Path(__file__).parents[1] / "engine" / "scripted.py"
    spec = importlib.util.spec_from_file_location("scripted_for_llama", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ScriptedModel(vocab)


@pytest.fixture
def real(service):
    """The service with a real engine: chunks of 64 tokens, pages of 16."""
    settings = EngineSettings(batch=4, prefill_chunk=64, mixed_chunk=32)
    engine = Engine(scripted_model(service.tokenizer.vocab_size), settings, pages=600, block=16)
    engine.start()
    yield replace(service, engine=EngineClient(engine), defaults=Sampling(temperature=0.0))
    engine.stop()


def test_progress_of_a_real_engine(real):
    """Each step of 64 tokens is told; the second time all but the last token is cached."""
    caller_of = sys.modules[type(real.tokenizer).__module__].Caller
    call, prompt = caller_of(create_app(Lobby(real))), list(range(200))
    asked = {"stream": True, "return_progress": True, "max_tokens": 2, "ignore_eos": True}

    def told():
        events = call.complete(prompt=prompt, **asked).events()[:-1]
        steps = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert events[: len(steps)] == [e for e in events if "prompt_progress" in e]
        return steps, events[-1]["timings"]

    steps, timings = told()
    assert [(s["cache"], s["processed"]) for s in steps] == [(0, 64), (0, 128), (0, 192), (0, 200)]
    assert all(s["total"] == 200 for s in steps)
    times = [s["time_ms"] for s in steps]
    assert times == sorted(times) and times[-1] == timings["prompt_ms"] > 0
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (0, 200, 2)
    steps, timings = told()
    assert [(s["cache"], s["processed"]) for s in steps] == [(199, 200)]
    assert (timings["cache_n"], timings["prompt_n"]) == (199, 1)


def test_slots_of_a_real_engine(real, eventually):
    caller_of = sys.modules[type(real.tokenizer).__module__].Caller
    call = caller_of(create_app(Lobby(real)))
    long = {"prompt": [5] * 100, "max_tokens": 3000, "ignore_eos": True}
    thread = threading.Thread(target=call.complete, kwargs=long)
    thread.start()

    def first():
        return json.loads(llama.slots(real))[0]

    eventually(lambda: first()["is_processing"] and first()["next_token"]["n_decoded"] > 1)
    seen = first()
    assert seen["n_prompt_tokens"] == seen["n_prompt_tokens_processed"] == 100
    assert seen["params"]["n_predict"] == 3000
    thread.join(60)
    eventually(lambda: not first()["is_processing"])
