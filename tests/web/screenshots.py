"""Takes the pictures of the page in docs/images, from a server that runs.

    strata serve MODEL --prefill-chunk 128     # a mixture, so that there is a hit rate
    python tests/web/screenshots.py http://127.0.0.1:8080

Two clients play llama-benchy's pattern meanwhile: both load a context of their own, then both ask
about it. So what the pictures show was measured.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import Any

from openai import OpenAI
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from web.conftest import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "images"
LARGEST = 200_000
WORDS = 700
FOLLOW_UP = "What is a page? Explain it in a few sentences, with an example. " * 12
QUESTION = "Write a Python function that reverses a string, and explain it in two sentences."


class Pattern:
    """Clients that ask at the same time."""

    def __init__(self, url: str) -> None:
        self._client = OpenAI(base_url=f"{url}/v1", api_key="EMPTY", timeout=600)
        self._model = self._client.models.list().data[0].id
        texts = [(ROOT / "docs" / name).read_text() for name in ("api.md", "kernels.md")]
        self._texts = [text.split() for text in texts]
        self._at = 0
        self._threads: list[threading.Thread] = []

    def ask(self, question: str, tokens: int) -> None:
        """Each asks about its context."""
        for text in self._texts:
            context = " ".join(text[self._at : self._at + WORDS])
            messages = [
                {"role": "system", "content": context},
                {"role": "user", "content": question},
            ]
            thread = threading.Thread(target=self._one, args=(messages, tokens))
            self._threads.append(thread)
            thread.start()

    def _one(self, messages: list[Any], tokens: int) -> None:
        with self._client.chat.completions.create(
            model=self._model, messages=messages, max_tokens=tokens, stream=True
        ) as stream:
            for _ in stream:
                pass

    def turn(self) -> None:
        """Other contexts."""
        self._at += WORDS

    def wait(self, page: Page) -> None:
        """Until all have ended; the page lives meanwhile."""
        while any(thread.is_alive() for thread in self._threads):
            page.wait_for_timeout(200)


def shoot(page: Page, name: str, **options: Any) -> None:
    """One picture; says how large it is."""
    path = OUT / f"{name}.png"
    page.screenshot(path=path, **options)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    assert size < LARGEST


def reading(page: Page) -> None:
    """Wait until both are being read, and some way on."""
    page.wait_for_function(
        """() => {
          const bars = [...document.querySelectorAll(".row .bar:not([hidden])")];
          const part = (bar) => bar.ariaValueNow / bar.ariaValueMax;
          return bars.length === 2 && bars.every((bar) => part(bar) > 0.2);
        }"""
    )
    page.wait_for_timeout(1000)  # the bars move on for so long


def headline(page: Page, text: str) -> None:
    page.wait_for_function(
        "text => document.getElementById('headline').textContent.includes(text)", arg=text
    )


def monitor(page: Page, pattern: Pattern) -> None:
    """The report's pattern; then a picture while contexts are read, and one while answers come."""
    pattern.ask(".", 48)
    pattern.wait(page)
    page.wait_for_timeout(3000)
    pattern.ask(FOLLOW_UP, 48)
    pattern.wait(page)
    pattern.turn()
    pattern.ask(".", 48)
    reading(page)
    shoot(page, "monitor-light")
    headline(page, "Answering 2")
    page.wait_for_timeout(2000)
    page.emulate_media(color_scheme="dark")
    shoot(page, "monitor-dark")
    page.emulate_media(color_scheme="light")
    pattern.wait(page)


def phone(page: Page, pattern: Pattern) -> None:
    """While new contexts are read."""
    pattern.turn()
    pattern.ask(".", 16)
    reading(page)
    shoot(page, "monitor-phone")
    pattern.wait(page)


def chat(page: Page) -> None:
    page.click("#tab-chat")
    page.fill("#question", QUESTION)
    page.click("#send")
    page.wait_for_selector("#send:visible")
    shoot(page, "chat-light")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    url = parser.parse_args().url
    OUT.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        wide = browser.new_page(viewport={"width": 1280, "height": 1000})
        wide.set_default_timeout(120_000)
        narrow = browser.new_page(viewport={"width": 390, "height": 844}, device_scale_factor=1.5)
        narrow.set_default_timeout(120_000)
        wide.goto(url)
        narrow.goto(url)
        pattern = Pattern(url)
        monitor(wide, pattern)
        phone(narrow, pattern)
        chat(wide)
        wide.click("#tab-cache")
        wide.wait_for_selector(".leaf")
        shoot(wide, "cache-light")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
