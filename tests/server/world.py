"""A server on a socket in front of the real engine, with a model that needs no weights."""

from __future__ import annotations

import http.client
import importlib.util
import json
import random
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

from strata.engine.client import EngineClient
from strata.engine.loop import Engine
from strata.engine.settings import EngineSettings
from strata.server.app import create_app
from strata.server.guard import Access
from strata.server.run import bind, make_server
from strata.server.service import Lobby
from strata.types import Request, Sampling

PAGES, BLOCK, QUEUE = 600, 16, 24


def scripted_model(vocab: int):
    path = Path(__file__).parents[1] / "engine" / "scripted.py"
    spec = importlib.util.spec_from_file_location("scripted_for_server", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ScriptedModel(vocab)


class World:
    """A server on a socket, its engine and its model."""

    def __init__(self, service, keys=()) -> None:
        self.model = scripted_model(service.tokenizer.vocab_size)
        settings = EngineSettings(batch=4, prefill_chunk=64, mixed_chunk=32, max_queue=QUEUE)
        self.engine = Engine(self.model, settings, pages=PAGES, block=BLOCK)
        self.engine.start()
        self.service = replace(
            service, engine=EngineClient(self.engine), defaults=Sampling(temperature=0.0)
        )
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        up = threading.Event()
        lobby = Lobby(self.service)
        app = create_app(lobby, Access(api_keys=keys))
        self.pulse = lobby.ends[0].__self__
        self.server = make_server(app, on_ready=up.set, on_end=lobby.close)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self.thread.start()
        assert up.wait(10)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.engine.stop()

    def ask(self, key: str = "", **body) -> tuple[int, dict]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"authorization": f"Bearer {key}"}
        client.request("POST", "/v1/completions", json.dumps(body), headers)
        response = client.getresponse()
        answer = json.loads(response.read())
        client.close()
        return response.status, answer

    def expected(self, tokens: list[int], max_tokens: int) -> list[int]:
        ends = self.service.tokenizer.end_ids
        request = Request("x", tuple(tokens), max_tokens, Sampling(temperature=0.0), ends)
        return [event.token for event in self.model.answer(request)]

    def idle(self) -> bool:
        now = self.engine.snapshot()
        busy = now.running or now.queued or now.parked or self.engine.core.busy
        return not busy and now.pages_free + now.pages_cached == PAGES


def raw(world: World, body: dict) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", world.port), timeout=30)
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}"
    connection.sendall(head.encode() + b"\r\n\r\n" + content)
    return connection


def tokens_of(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(256), k=length)
