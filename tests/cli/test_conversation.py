"""Conversations with a scripted server: history, streaming, stopping, refusals."""

from __future__ import annotations

import io
import sys
from types import ModuleType

import pytest

from strata.cli import main
from strata.cli.conversation import Conversation, Link
from strata.types import ConfigError, RequestError


def test_history_system_and_what_is_sent(scripted: ModuleType) -> None:
    script = scripted.Script([["Pa", "ris", "."], ["Rome."]])
    with scripted.running(script) as url, Link(url + "/v1/", key="secret") as link:
        talk = Conversation(link, "be brief", {"temperature": 0.0})
        assert list(talk.ask("France?")) == ["Pa", "ris", "."]
        assert list(talk.ask("Italy?")) == ["Rome."]
        assert talk.note.startswith("9 tokens read, 7 of them reused")
    first, second = script.asked
    assert first["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "France?"},
    ]
    assert second["messages"] == [
        *first["messages"],
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "Italy?"},
    ]
    assert first["model"] == "scripted" and first["temperature"] == 0.0
    assert first["stream"] is True
    assert script.keys == ["Bearer secret"] * 2


def test_reset_keeps_the_system_message_and_a_new_one_resets(scripted: ModuleType) -> None:
    script = scripted.Script([["a"]])
    with scripted.running(script) as url, Link(url) as link:
        talk = Conversation(link, "one")
        list(talk.ask("x"))
        talk.reset()
        assert talk.messages == [{"role": "system", "content": "one"}]
        talk.set_system("")
        assert talk.messages == []


def test_a_stopped_answer_stays_as_far_as_it_came_and_the_server_is_told(
    scripted: ModuleType,
) -> None:
    script = scripted.Script([["one ", "two "] + ["more "] * 1000])
    script.pause = 0.01
    with scripted.running(script) as url, Link(url) as link:
        talk = Conversation(link)
        stream = talk.ask("count")
        assert [next(stream), next(stream)] == ["one ", "two "]
        stream.close()
        assert talk.messages[-1] == {"role": "assistant", "content": "one two "}
        assert script.broken.wait(10), "the connection is closed"


def test_a_refusal_has_the_servers_words_and_leaves_no_trace(scripted: ModuleType) -> None:
    script = scripted.Script([])
    script.status = 429
    with scripted.running(script) as url, Link(url) as link:
        talk = Conversation(link)
        with pytest.raises(RequestError, match="not today") as caught:
            list(talk.ask("x"))
        assert caught.value.status == 429
        assert talk.messages == []


def test_no_server_names_the_remedy() -> None:
    with Link("http://127.0.0.1:9", model="m") as link, pytest.raises(ConfigError) as caught:
        list(Conversation(link).ask("x"))
    assert "strata serve" in str(caught.value)


def test_chat_reads_a_pipe(
    scripted: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = scripted.Script([["Hello", " you"], ["again"]])
    lines = "hi \\\nthere\n\n/system be nice\n/what\nmore\n/quit\nnever read\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    with scripted.running(script) as url:
        assert main(["chat", "--url", url, "--top-k", "5", "--max-tokens", "9"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Hello you\n(system message set")
    assert "there is no command /what" in out and out.endswith("again\n")
    assert [asked["messages"][-1]["content"] for asked in script.asked] == ["hi \nthere", "more"]
    assert script.asked[1]["messages"][0] == {"role": "system", "content": "be nice"}
    assert (script.asked[0]["top_k"], script.asked[0]["max_tokens"]) == (5, 9)


def test_chat_on_a_pipe_ends_with_2_on_an_error(
    scripted: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = scripted.Script([])
    script.status = 503
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n"))
    with scripted.running(script) as url:
        assert main(["chat", "--url", url]) == 2
    assert capsys.readouterr().err == "strata: not today\n"
