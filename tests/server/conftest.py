"""A scripted engine, a byte tokenizer and a plain template, and ways to reach the app.

The tokenizer's ids 0 to 255 are bytes, 256 begins a text, 257 and 258 end an answer. So
what a test expects of text, offsets and counts follows from the bytes alone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest

from strata.figures import ExpertUse, Freed, Record, Snapshot, View
from strata.server.app import create_app
from strata.server.guard import Access
from strata.server.run import bind, make_server
from strata.server.service import Limits, Lobby, ModelFacts, Service
from strata.types import (
    DoneEvent,
    FailedEvent,
    Finish,
    Guide,
    Logprob,
    ProgressEvent,
    Request,
    RequestError,
    RowState,
    Sampling,
    TokenEvent,
    Usage,
)

CONTEXT = 4096
BOS, EOS = 256, 257
VOCAB = 300
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class ByteTokenizer:
    """One token a byte, and the markers that models write."""

    vocab_size = VOCAB
    bos: int | None = BOS
    end_ids = frozenset({EOS, 258})
    special_ids = frozenset({BOS, EOS, 258})
    names: ClassVar = {BOS: "<s>", EOS: "</s>", 258: "<end>"}
    named: ClassVar = {"bos_token": "<s>", "eos_token": "</s>"}
    markers: ClassVar = dict(enumerate(MARKERS, 259))
    added_ids: ClassVar = {text: token for token, text in (names | markers).items()}
    added_tokens: ClassVar = dict.fromkeys(names.values(), True) | dict.fromkeys(MARKERS, False)

    def encode(self, text: str, special: bool = False, start: bool = True) -> list[int]:
        head = [BOS] if start else []
        for token, name in (self.names | self.markers if special else self.markers).items():
            text = text.replace(name, f"\ue000{token:03d}")
        ids: list[int] = []
        for i, piece in enumerate(text.split("\ue000")):
            if i:
                ids.append(int(piece[:3]))
                piece = piece[3:]
            ids += piece.encode()
        return head + ids

    def has_control(self, text: str) -> bool:
        return any(name in text for name in self.names.values())

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        if token < 256:
            return bytes([token])
        if token in self.markers:
            return self.markers[token].encode()
        return self.names.get(token, "").encode() if special else b""

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        return b"".join(self.token_bytes(i, not skip_special) for i in ids).decode(errors="replace")


@dataclass
class Rendered:
    tokens: tuple[int, ...]
    anchors: tuple[int, ...]
    stable_len: int
    text: str


class PlainTemplate:
    """`role: content` lines, then `header`."""

    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tool_source = None
    header = "assistant: "

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: object = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: object = None,
    ) -> Rendered:
        self.seen.append({"messages": messages, "tools": tools, "variables": variables})
        if any(m["role"] == "tool" for m in messages[:1]):
            raise RequestError("a chat cannot begin with a tool", field="messages.0")
        text = "".join(f"{m['role']}: {m.get('content', '')}\n" for m in messages)
        header = add_generation_prompt and not continue_final_message
        encode, end = ByteTokenizer().encode, self.header if header else ""
        stable = encode(text)
        tokens = stable + encode(end, start=False)
        return Rendered(tuple(tokens), (1,), len(stable), text + end)


Step = int | float | Exception | FailedEvent | Finish | ProgressEvent
Script = Callable[[Request], Iterable[Step]]


def say(text: str, *, end: bool = True, wait: float = 0.0) -> Script:
    """A script that answers with the tokens of `text`, then ends as a model does."""

    def script(request: Request) -> Iterator[Step]:
        for count, token in enumerate(ByteTokenizer().encode(text, start=False), 1):
            if wait:
                yield wait
            yield token
            if count == request.max_tokens:
                yield Finish.LENGTH
                return
        if end:
            yield EOS
        yield Finish.STOP

    return script


class ScriptedEvents:
    def __init__(self, engine: ScriptedEngine, request: Request, steps: Iterator[Step]) -> None:
        self.engine, self.request, self.steps = engine, request, steps
        self.index = 0
        self.over = False

    def __aiter__(self) -> ScriptedEvents:
        return self

    async def __anext__(self) -> Any:
        if self.over:
            raise StopAsyncIteration
        while True:
            step = next(self.steps)
            if isinstance(step, bool) or not isinstance(step, float):
                break
            await asyncio.sleep(step)
        if isinstance(step, Exception):
            self.over = True
            raise step
        if isinstance(step, ProgressEvent):
            return step
        if isinstance(step, FailedEvent):
            self.over = True
            return step
        if isinstance(step, Finish):
            self.over = True
            self.engine.ended.append(self.request.id)
            return self.done(step)
        return self.token(step)

    def token(self, token: int) -> TokenEvent:
        sampling, index = self.request.sampling, self.index
        self.index += 1
        logprob = scores = None
        if sampling.logprobs is not None:
            likely = tuple((token + i) % 256 for i in range(sampling.logprobs))
            top = tuple((other, -0.25 * (i + 1)) for i, other in enumerate(likely))
            logprob = Logprob(token, -0.25, top)
        if sampling.prompt_logprobs is not None and index == 0:
            scores = (None, *(Logprob(t, -1.0, ((t, -1.0),)) for t in self.request.tokens[1:]))
        usage = self.usage() if self.request.timed else None
        return TokenEvent(self.request.id, token, index, self.engine.cached, logprob, scores, usage)

    def done(self, finish: Finish) -> DoneEvent:
        scores = None
        if self.request.sampling.prompt_logprobs is not None and not self.index:
            scores = (None, *(Logprob(t, -1.0, ((t, -1.0),)) for t in self.request.tokens[1:]))
        return DoneEvent(self.request.id, finish, self.usage(), scores)

    def usage(self) -> Usage:
        prompt, use = len(self.request.tokens), self.engine.use
        return Usage(prompt, self.engine.cached, self.index, 0, 0.25, 0.5, None, use)

    def close(self, finish: Finish = Finish.CANCELLED) -> None:
        if not self.over:
            self.over = True
            self.engine.cancelled.append(self.request.id)

    async def aclose(self) -> None:
        self.close()


@dataclass
class ScriptedEngine:
    """Plays `script` for every request; notes what was asked and what was cancelled."""

    script: Script = field(default_factory=lambda: say("Hello"))
    cached: int = 0
    ready: bool = True
    error: str | None = None
    requests: list[Request] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    refusal: RequestError | None = None
    past: tuple[Record, ...] = ()
    now: Snapshot | None = None
    use: ExpertUse | None = None
    running: tuple[RowState, ...] = ()
    seen: View = field(default_factory=View)
    freed: Freed = field(default_factory=lambda: Freed(0, 0, 0))

    def submit(self, request: Request) -> ScriptedEvents:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        return ScriptedEvents(self, request, iter(self.script(request)))

    def snapshot(self) -> Snapshot:
        return self.now or Snapshot(ready=self.ready, running=3, prompt_tokens=70, cached_tokens=20)

    def rows(self) -> tuple[RowState, ...]:
        return self.running

    def view(self) -> View:
        return self.seen

    async def clear_cache(self) -> Freed:
        return self.freed

    def records(self) -> tuple[Record, ...]:
        return self.past


@dataclass
class Answer:
    """A response read to its end."""

    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json()["error"])

    def events(self) -> list[Any]:
        """Each event's JSON; checks that the bytes are `data: …` and a blank line, no more."""
        assert self.headers["content-type"].startswith("text/event-stream")
        assert self.body.endswith(b"\n\n")
        lines = self.body[:-2].split(b"\n\n")
        assert all(line.startswith(b"data: ") and b"\n" not in line for line in lines)
        return [line[6:] if line[6:] == b"[DONE]" else json.loads(line[6:]) for line in lines]


class Caller:
    """The app in this process, without a socket."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def __call__(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> Answer:
        content = body if isinstance(body, bytes) else None
        if body is not None and content is None:
            content = json.dumps(body).encode()

        async def call() -> Answer:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost", timeout=20
            ) as client:
                response = await client.request(method, path, content=content, headers=headers)
                return Answer(response.status_code, response.headers, response.content)

        return asyncio.run(call())

    def chat(self, **fields: Any) -> Answer:
        fields.setdefault("messages", [{"role": "user", "content": "hi"}])
        return self("POST", "/v1/chat/completions", fields)

    def complete(self, **fields: Any) -> Answer:
        fields.setdefault("prompt", "abc")
        return self("POST", "/v1/completions", fields)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def template() -> PlainTemplate:
    return PlainTemplate()


@pytest.fixture
def service(engine: ScriptedEngine, template: PlainTemplate) -> Service:
    return Service(
        engine=engine,
        tokenizer=ByteTokenizer(),  # type: ignore[arg-type]
        template=template,  # type: ignore[arg-type]
        model=ModelFacts("toy", "lab/toy", CONTEXT, 1700000000, ("gpt-toy",)),
        defaults=Sampling(temperature=0.7, top_k=40),
        limits=Limits(runs=64, at_once=4),
    )


@pytest.fixture
def call(service: Service) -> Caller:
    return Caller(create_app(Lobby(service)))


@pytest.fixture
def make_call(service: Service) -> Callable[..., Caller]:
    """A caller of an app with other access rules."""
    return lambda **rules: Caller(create_app(Lobby(service), Access(**rules)))


@pytest.fixture
def speak() -> Callable[..., Script]:
    return say


@dataclass
class Live:
    """The app behind uvicorn on a real socket."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=20)

    def send(self, path: str, body: object, **more: str) -> socket.socket:
        """A connection on which a POST has been sent."""
        connection = self.connect()
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(content)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in more.items())
        connection.sendall(head.encode() + b"\r\n" + content)
        return connection


@pytest.fixture
def live(service: Service) -> Iterator[Live]:
    with _serve(create_app(Lobby(service), Access(body_limit=100_000))) as live:
        yield live


@pytest.fixture
def live_of() -> Iterator[Callable[[Service], Live]]:
    """Serves another service on a socket."""
    with ExitStack() as opened:
        yield lambda service: opened.enter_context(_serve(create_app(Lobby(service))))


@contextmanager
def _serve(app: Any) -> Iterator[Live]:
    listener = bind("127.0.0.1", 0)
    host, port = listener.getsockname()
    up = threading.Event()
    server = make_server(app, grace_s=2, on_ready=up.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    assert up.wait(10)
    yield Live(host, port)
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Waits until something is true; fails after three seconds."""

    def wait(true: Callable[[], object], seconds: float = 3.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.005)

    return wait


@pytest.fixture
def allowed(service: Service) -> Callable[[Guide, str], bool]:
    """Whether a guide lets exactly a text come, token by token, and end."""
    tokenizer = service.tokenizer

    def walk(guide: Guide, text: str) -> bool:
        for token in tokenizer.encode(text, start=False):
            row = np.zeros(tokenizer.vocab_size, dtype=np.float32)
            guide.mask(row)
            if row[token] != 0:
                return False
            guide.accept(token)
        if guide.ended:
            return True
        row = np.zeros(tokenizer.vocab_size, dtype=np.float32)
        guide.mask(row)
        return any(row[end] == 0 for end in tokenizer.end_ids)

    return walk
