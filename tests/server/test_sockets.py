"""Over real connections: clients that leave, long bodies, keep-alive, comments, the end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import strata.server.exchange as exchange
import strata.server.resource as resource
from strata.server.run import address, bind
from strata.types import ConfigError, Finish

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def forever(request):
    while True:
        yield 0.005
        yield 97


def never(request):
    while True:
        yield 0.05


def read_until(connection, mark: bytes) -> bytes:
    got = b""
    while mark not in got:
        piece = connection.recv(65536)
        assert piece, got
        got += piece
    return got


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [forever, never])
@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_cancels(live, engine, eventually, stream, script, n):
    """While its prompt waits or is read (never), and while it is answered (forever)."""
    engine.script = script
    connection = live.send("/v1/chat/completions", {**CHAT, "stream": stream, "n": n})
    eventually(lambda: len(engine.requests) == n)
    if stream and script is forever:
        read_until(connection, b"data: ")
    assert not engine.cancelled
    connection.close()
    eventually(lambda: sorted(engine.cancelled) == sorted(r.id for r in engine.requests), 1.0)


def test_a_client_that_leaves_is_counted(live, engine, eventually):
    engine.script = never
    connection = live.send("/v1/completions", {"prompt": "a"})
    eventually(lambda: engine.requests)
    connection.close()
    eventually(lambda: engine.cancelled)

    def page():
        client = http.client.HTTPConnection(live.host, live.port)
        client.request("GET", "/metrics")
        return client.getresponse().read().decode()

    eventually(lambda: "strata_client_disconnects_total 1.0" in page())
    assert 'strata_http_requests_total{route="/v1/completions",status="499"} 1.0' in page()


def test_leaving_within_the_body_asks_nothing(live, engine):
    connection = live.connect()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: 1000\r\n\r\n{")  # fmt: skip
    connection.close()
    time.sleep(0.1)
    assert not engine.requests


def test_a_body_that_does_not_arrive_is_given_up(live, engine, monkeypatch):
    monkeypatch.setattr(exchange, "STALLED_S", 0.1)
    connection = live.connect()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Length: 1000\r\n\r\n{")  # fmt: skip
    assert b" 408 " in read_until(connection, b"\r\n\r\n")
    assert not engine.requests


def test_others_go_on_when_one_leaves(live, engine, eventually):
    engine.script = forever
    leaving = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    staying = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    read_until(leaving, b"data: ")
    read_until(staying, b"data: ")
    leaving.close()
    eventually(lambda: len(engine.cancelled) == 1)
    read_until(staying, b"data: ")
    assert len(engine.cancelled) == 1
    staying.close()


def test_each_token_is_sent_at_once(live, engine):
    release = threading.Event()

    def script(request):
        yield 97
        while not release.is_set():
            yield 0.005
        yield 98
        yield Finish.LENGTH

    engine.script = script
    connection = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    first = read_until(connection, b'"content":"a"')
    assert first.count(b"data: ") == 1 and b'"role":"assistant"' in first
    release.set()
    assert b'"content":"b"' in read_until(connection, b"[DONE]")


def test_comments_come_only_after_silence_and_before_any_choice(live, engine, monkeypatch):
    monkeypatch.setattr(resource, "PING_S", 0.15)
    engine.script = lambda request: [0.5, 97, 0.5, 98, Finish.LENGTH]
    connection = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    got = read_until(connection, b"[DONE]")
    before, after = got.split(b"data: ", 1)
    assert before.startswith(b"HTTP/1.1 200") and before.count(b": ping\n\n") >= 1
    assert b": ping\n\n" in after
    engine.script = lambda request: [0.05, 97, 0.05, 98, Finish.LENGTH]
    connection = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    assert b": ping" not in read_until(connection, b"[DONE]")


def test_no_comment_in_an_answer_that_is_not_streamed(live, engine, monkeypatch):
    monkeypatch.setattr(resource, "PING_S", 0.05)
    engine.script = lambda request: [0.3, 97, Finish.LENGTH]
    client = http.client.HTTPConnection(live.host, live.port)
    client.request("POST", "/v1/chat/completions", json.dumps(CHAT))
    assert json.loads(client.getresponse().read())["choices"][0]["message"]["content"] == "a"


def test_failure_after_comments_is_an_event(live, engine, monkeypatch):
    from strata.types import FailedEvent

    monkeypatch.setattr(resource, "PING_S", 0.05)
    engine.script = lambda request: [0.3, FailedEvent(request.id, "gone wrong", 500)]
    connection = live.send("/v1/chat/completions", {**CHAT, "stream": True})
    got = read_until(connection, b"0\r\n\r\n")
    assert b'data: {"error":{"message":"gone wrong"' in got and b"[DONE]" not in got


def test_one_connection_serves_many_requests(live):
    client = http.client.HTTPConnection(live.host, live.port)
    for _ in range(3):
        for method, path, body in (
            ("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True})),
            ("POST", "/v1/completions", json.dumps({"prompt": "a", "n": 0})),
            ("HEAD", "/v1/models", None),
            ("GET", "/v1/models", None),
        ):
            client.request(method, path, body)
            kept = client.sock
            response = client.getresponse()
            response.read()
            assert response.headers.get("connection") != "close"
            assert client.sock is kept


def test_idle_connections_are_kept_longer_than_clients_do():
    from strata.server.run import KEEP_ALIVE_S, make_server

    assert make_server(lambda *a: None).config.timeout_keep_alive == KEEP_ALIVE_S >= 75


@pytest.mark.parametrize("chunked", [True, False])
def test_body_limit(live, engine, chunked):
    """100 kB are allowed; with a length or without one, and the connection lives on."""
    client = http.client.HTTPConnection(live.host, live.port, timeout=10)
    big = json.dumps({"prompt": "a" * 150_000}).encode()
    for body, status in ((big, 413), (b'{"prompt":"a"}', 200), (big, 413)):
        pieces = (body[i : i + 10_000] for i in range(0, len(body), 10_000))
        if chunked:
            client.request("POST", "/v1/completions", pieces, encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        else:
            client.request("POST", "/v1/completions", body)
        response = client.getresponse()
        content = json.loads(response.read())
        assert response.status == status
        assert status == 200 or content["error"]["code"] == "request_too_large"
    assert len(engine.requests) == 1


def test_a_long_prompt_does_not_stop_the_others(live, engine, service, monkeypatch):
    """Tokenising in a thread: a stream goes on while it lasts."""
    encode = type(service.tokenizer).encode

    def slow(self, text, **options):
        if len(text) > 50_000:
            time.sleep(0.6)
        return encode(self, text, **options)

    monkeypatch.setattr(type(service.tokenizer), "encode", slow)
    engine.script = forever
    stream = live.send("/v1/completions", {"prompt": "a", "stream": True})
    read_until(stream, b"data: ")
    live.send("/v1/completions", {"prompt": "a" * 60_000})
    stream.settimeout(0.3)
    for _ in range(20):
        read_until(stream, b"data: ")
    assert len(engine.requests) == 1
    stream.close()


def test_request_id_is_echoed(live):
    for sent, back in (("abc-1", "abc-1"), ("x" * 200, None)):
        client = http.client.HTTPConnection(live.host, live.port)
        client.request("GET", "/health", headers={"x-request-id": sent})
        assert client.getresponse().headers.get("x-request-id") == back


def test_odd_requests_do_not_hurt(live):
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        + b"\xff" * 9,
        b"GET http://evil.com/v1/models HTTP/1.1\r\nHost: evil.com\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        connection = live.connect()
        connection.sendall(sent)
        connection.settimeout(0.5)
        try:
            got = connection.recv(4096)
        except OSError:
            got = b""
        assert b" 200 " not in got[:20] and b" 500 " not in got[:20]
    client = http.client.HTTPConnection(live.host, live.port)
    client.request("GET", "/health")
    assert client.getresponse().status == 200


def test_address_that_is_taken(live):
    with pytest.raises(ConfigError, match=str(live.port)):
        bind(live.host, live.port).listen()
    with pytest.raises(ConfigError, match=r"203\.0\.113\.7"):
        bind("203.0.113.7", 0)


def test_address_text():
    listener = bind("127.0.0.1", 0)
    assert address(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


PROGRAM = """
import sys, importlib.util
spec = importlib.util.spec_from_file_location("parts", sys.argv[1])
parts = importlib.util.module_from_spec(spec)
sys.modules["parts"] = parts
spec.loader.exec_module(parts)
from strata.server.run import serve
from strata.server.service import Service, Lobby, ModelFacts

def forever(request):
    while True:
        yield 0.01
        yield 97

engine = parts.ScriptedEngine(script=forever)
service = Service(engine, parts.ByteTokenizer(), parts.PlainTemplate(), ModelFacts("t", "t", 99, 1))
serve(parts.create_app(Lobby(service)), "127.0.0.1", 0, grace_s=1,
      on_ready=lambda url: print(url, flush=True))
print("closed", len(engine.cancelled), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_server(number):
    """New connections are refused, a stream is ended by an error, then `serve` returns."""
    here = Path(__file__)
    environment = {**os.environ, "PYTHONPATH": str(here.parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(here.with_name("conftest.py"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        url = process.stdout.readline().strip()
        host, port = url.removeprefix("http://").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=10)
        client.request("POST", "/v1/completions", json.dumps({"prompt": "a", "stream": True}))
        response = client.getresponse()
        assert response.readline().startswith(b"data: ")
        process.send_signal(number)
        rest = response.read()
        assert b"shutting down" in rest and b"[DONE]" not in rest
        out, err = process.communicate(timeout=10)
        assert out == "closed 1\n" and process.returncode == 0, err
        assert "Traceback" not in err
    finally:
        process.kill()
