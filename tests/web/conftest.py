"""A browser, and a whole server for it whose model says what a script says."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from clients.world import Answering, Say, World, serving

from strata.types import ForwardPlan

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 20_000  # of machines that are busy with other things
LONG = " ".join(f"word{i}" for i in range(60))
HOSTILE = (
    "<img src=x onerror=document.title='owned'> <b>bold</b>\n\n"
    "[go](javascript:document.title='owned') [ok](https://example.org/a)\n\n"
    "```html\n<script>document.title='owned'</script>\n```\n\n"
    "| a | b |\n|---|---|\n| **1** | `2` |\n\n1. one\n   - two\n"
)


def script(asked: str, prompt: str) -> Say:
    """What the model says: by a word of the question."""
    if "weather?" in asked:
        return Say("", "", (("weather", {"city": "Zürich"}),))
    if "tool_response" in asked:
        return Say("It is 21 degrees.")
    for word, answer in (("long", LONG), ("hostile", HOSTILE), ("capital", "It is **Paris**.")):
        if word in asked:
            return Say(answer, "I know this.\n" if word == "capital" else "")
    return Say("All is well.")


class Gate:
    """Lets a model's steps through: all of them, or those that are let."""

    def __init__(self, model: Answering) -> None:
        self.step_s = 0.0  # what each takes more
        self._open = threading.Event()
        self._let = threading.Semaphore(0)
        self._open.set()
        forward = model.forward

        def gated(plan: ForwardPlan) -> Any:
            time.sleep(self.step_s)
            while not self._open.is_set() and not self._let.acquire(timeout=0.02):
                pass
            return forward(plan)

        model.forward = gated  # type: ignore[method-assign]

    def close(self) -> None:
        self._open.clear()

    def let(self, steps: int) -> None:
        """That many more, although it is closed."""
        self._let.release(steps)

    def open(self) -> None:
        self.step_s = 0.0
        self._open.set()


@dataclass
class Stage:
    """A server, and the gate of its model."""

    url: str
    world: World
    gate: Gate


@pytest.fixture(scope="module")
def serve(default_model: Path) -> Callable[..., Any]:
    """A server, as a context: `serve(port=8080)`."""

    @contextmanager
    def stage(**settings: Any) -> Iterator[Stage]:
        settings = {"prefill_chunk": 128, "ctx_size": 4096, **settings}
        with serving(default_model, script, **settings) as world:
            gate = Gate(world.model)
            try:
                yield Stage(world.url, world, gate)
            finally:
                gate.open()

    return stage


@pytest.fixture(scope="module")
def one_stage(serve: Callable[..., Any]) -> Iterator[Stage]:
    with serve() as stage:
        yield stage


@pytest.fixture
def stage(one_stage: Stage) -> Iterator[Stage]:
    """The server of this module, its gate open before and after each test."""
    yield one_stage
    one_stage.gate.open()


# Of a module and not of the session: Playwright runs an event loop on this thread as long as it
# lives, and other tests have their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: the page is not tried (apt-get install chromium)")
    api.expect.set_options(timeout=TIMEOUT_MS)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page for someone new. What its scripts complain of fails the test; `allowed` are
    pieces of complaints that belong to the test.
    """
    with ExitStack() as opened:
        complaints: list[str] = []

        def go(url: str, *allowed: str, **options: Any) -> Any:
            context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            opened.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(TIMEOUT_MS)

            def note(text: str) -> None:
                if not any(piece in text for piece in allowed):
                    complaints.append(text)

            page.on("pageerror", lambda error: note(str(error)))
            page.on("console", lambda said: said.type in ("error", "warning") and note(said.text))
            page.goto(url)
            return page

        yield go
        assert not complaints
