"""A whole server whose model says what a script says.

Assembled as `strata serve` assembles it: tokenizer, engine, cache and HTTP are the real ones. Only
the model's arithmetic is replaced, by one without weights that checks each row it attends to and
goes on with the next token of the answer that was written for the conversation. So what an answer
says of reuse was really reused. A state for each sequence, as hybrid models have, is checked too.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.scripted import ScriptedModel, chain, prefix_hash

from strata.cli import assemble
from strata.files import open_model
from strata.kernels import StepResult
from strata.models import loader
from strata.server.app import create_app
from strata.server.guard import Access
from strata.server.run import bind, make_server
from strata.server.service import Lobby
from strata.settings import Config
from strata.text import tokenizer
from strata.types import ForwardPlan, Request

TEMPLATE = Path(__file__).with_name("template.jinja")
CONTEXT = 200_000
LIKELY = 40.0  # the next token's logit; all others are 0


@dataclass(frozen=True)
class Say:
    """An answer: reasoning, then content, then calls (name and arguments)."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def text(self, thinking: bool) -> str:
        """As template.jinja writes it; `thinking`: the prompt ends inside reasoning."""
        head = f"{self.reasoning}\n</think>\n\n" if thinking else ""
        calls = "\n".join(_call(name, arguments) for name, arguments in self.calls)
        return head + self.content + ("\n\n" if self.content and calls else "") + calls


def _call(name: str, arguments: dict[str, Any]) -> str:
    made = f"<tool_call>\n<function={name}>\n"
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        made += f"<parameter={key}>\n{text}\n</parameter>\n"
    return made + "</function>\n</tool_call>"


Script = Callable[[str, str], Say]  # from what is asked, and from the whole prompt


class Answering(ScriptedModel):
    """Goes on with the answer that was written for a prompt; ends where nothing was."""

    name = architecture = "scripted"
    weight_bytes = expert_bytes = 0

    def __init__(self, vocab: int, end: int, pause: float) -> None:
        super().__init__(vocab, recurrent=True)
        self.context_length = CONTEXT
        self._end, self._pause = end, pause
        self._next: dict[int, int] = {}

    def expect(self, prompt: tuple[int, ...], answer: list[int]) -> None:
        """From now on `prompt` is answered so."""
        value = prefix_hash(prompt)
        for token in (*answer, self._end):
            self._next[value] = token
            value = chain(value, token)

    def logits(self, value: int) -> np.ndarray:
        row = np.zeros(self.vocab_size, dtype=np.float32)
        row[self._next.get(value, self._end)] = LIKELY
        return row

    def forward(self, plan: ForwardPlan) -> StepResult:
        time.sleep(self._pause)
        self.plans.clear()
        return super().forward(plan)

    def mixtures(self) -> list[Any]:
        return []

    def cache_rows(self, nbytes: int, tokens: int) -> int:
        return 0


@dataclass
class World:
    """Where it listens, and what it was asked: rendered prompts, oldest first."""

    url: str
    model: Answering
    prompts: list[str] = field(default_factory=list)


def asked(prompt: str) -> str:
    """What the answer answers: all turns since the one before it; "" of a bare text."""
    turns = prompt.split("<|im_start|>")[1:-1]
    if turns and turns[0].startswith("system"):
        turns = turns[1:]  # tools are there
    last = max((i for i, turn in enumerate(turns) if turn.startswith("assistant")), default=-1)
    return "".join(turns[last + 1 :])


@contextmanager
def serving(
    words: Path,
    script: Script,
    *,
    pause: float = 0.0005,
    port: int = 0,
    access: Access = Access(),  # noqa: B008 - frozen
    **settings: Any,
) -> Iterator[World]:
    """A server with the tokenizer of the model file `words`. `pause` seconds are a step's cost."""
    known = tokenizer.load(open_model(words))
    end = next(iter(known.encode("<|im_end|>", special=True, start=False)))
    model = Answering(known.vocab_size, end, pause)
    chosen = {"cache_size": "64MB", "served_model_name": "scripted", "temperature": 0.0, **settings}
    config = Config(model=str(words), chat_template=str(TEMPLATE), **chosen)
    with mock.patch.object(loader, "load", lambda *a, **k: model):
        plant = assemble.build(config, words.parent, lambda *a: None, lambda text: None)
    made = World("", model)
    submit = plant.engine.submit

    def note(request: Request, outlet: Any) -> None:
        prompt = plant.service.tokenizer.decode(request.tokens)
        made.prompts.append(prompt)
        answer = script(asked(prompt), prompt).text(prompt.endswith("<think>\n"))
        model.expect(request.tokens, known.encode(answer, special=True, start=False))
        submit(request, outlet)

    plant.engine.submit = note
    listener = bind("127.0.0.1", port)
    made.url = "http://{}:{}".format(*listener.getsockname())
    up = threading.Event()
    lobby = Lobby(plant.service)
    app = create_app(lobby, access)
    server = make_server(app, grace_s=2, on_ready=up.set, on_end=lobby.close)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert up.wait(10)
        yield made
    finally:
        server.should_exit = True
        thread.join(20)
        plant.stop()
    assert not model.wrong, model.wrong[:3]
