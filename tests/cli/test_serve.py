"""`strata serve` and `strata chat` as processes, with the default model."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from strata.cli import main; sys.exit(main(sys.argv[1:]))",
]
ROOT = Path(__file__).parents[2]
SMALL = ["--cache-size", "512MiB", "--ctx-size", "2048"]
PATIENCE = 240.0


class Served:
    """A server process and the lines of its output as they come."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def line_with(self, text: str) -> str:
        """The next line that holds `text`."""
        until = time.monotonic() + PATIENCE
        while (line := self._lines.get(timeout=max(0.1, until - time.monotonic()))) is not None:
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in {self.seen}, {self.errors()}")

    def url(self) -> str:
        """Where it listens."""
        found = re.search(r"http://\S+?:\d+", self.line_with("listening on"))
        assert found is not None
        return found[0]

    def errors(self) -> str:
        """Standard error, once the process has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def served(*words: str) -> Iterator[Served]:
    """A server that is gone afterwards, come what may."""
    one = Served(list(words))
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def fetch(url: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_it_listens_loads_answers_and_ends(default_model: Path) -> None:
    with served(str(default_model), *SMALL, "--served-model-name", "tiny") as one:
        url = one.url()
        status, health = fetch(f"{url}/health")
        assert status in (200, 503)
        if status == 503:
            assert "loaded" in health["reason"]
        assert url in one.line_with("ready after")
        said = "".join(one.seen)
        assert re.search(r"ctx_size +2048 +--ctx-size\n", said)
        assert re.search(r"batch +4 +default\n", said)
        assert re.search(r"weights +\d+\.\d MiB", said) and re.search(r"pages +\d", said)
        assert fetch(f"{url}/health")[0] == 200
        assert fetch(f"{url}/v1/models")[1]["data"][0]["id"] == "tiny"
        status, answer = fetch(
            f"{url}/v1/chat/completions",
            {
                "model": "tiny",
                "temperature": 0,
                "max_tokens": 16,
                "messages": [{"role": "user", "content": "What is the capital of France?"}],
            },
        )
        assert status == 200
        assert "Paris" in answer["choices"][0]["message"]["content"]
        status, refused = fetch(f"{url}/v1/completions", {"prompt": [5] * 2048, "max_tokens": 1})
        assert status == 400 and "2048" in refused["error"]["message"]
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(30) == 0


def test_what_it_says_of_itself_and_that_watching_does_not_delay_its_end(
    default_model: Path,
) -> None:
    with served(str(default_model), *SMALL, "--log-format", "json") as one:
        url = one.url()
        watcher = urllib.request.urlopen(f"{url}/v1/monitor", timeout=PATIENCE)
        assert watcher.readline() == b"event: snapshot\n"
        one.line_with("ready after")
        about = fetch(f"{url}/v1/about")[1]
        assert about["file"] == default_model.name and "Q4_1" in about["quantisation"]
        assert "threads" in about["kernels"] and len(about["memory_plan"]) == 3
        begun = time.monotonic()
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(PATIENCE) == 0
        assert time.monotonic() - begun < 9  # answers would have ten seconds
        assert watcher.read().endswith(b"}\n\n")
        lines = [json.loads(line) for line in one.errors().splitlines() if line.startswith("{")]
        assert {"/v1/monitor", "/v1/about"} <= {line.get("route") for line in lines}


def test_an_interrupt_while_loading_ends_it(default_model: Path) -> None:
    with served(str(default_model), *SMALL) as one:
        one.url()
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "there is no file or folder"), (b"GGUF but not really" * 10, "GGUF")],
)
def test_a_model_that_cannot_be_loaded_ends_it_with_a_sentence(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with served(str(path), "--log-level", "error") as one:
        assert one.process.wait(PATIENCE) == 2
        error = one.errors()
        assert said in error and "Traceback" not in error
        assert error.startswith("strata: ") or "\nstrata: " in error


def test_a_cache_that_is_too_small_says_what_to_change(default_model: Path) -> None:
    # A page of 8 bits: 30 layers, 16 keys and values of 3 heads, 64 numbers and 2 scales each.
    for kv_type, tokens in (("auto", 32), ("q8", 2**20 // (30 * 16 * 2 * 3 * 68) * 16)):
        with served(str(default_model), "--cache-size", "1MiB", "--kv-type", kv_type) as one:
            assert one.process.wait(PATIENCE) == 2
            error = one.errors()
            assert re.search(
                rf"strata: .*holds {tokens} tokens.*--cache-size to at least \d", error
            )


class Terminal:
    """A person at a terminal with a program."""

    def __init__(self, words: list[str]) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
            os.chdir(ROOT)
            os.execv(words[0], words)
        self.screen = ""

    def expect(self, *texts: str) -> str:
        """Wait until one of `texts` is on the screen, and which; forget all before its end."""
        until = time.monotonic() + PATIENCE
        while not any(text in self.screen for text in texts):
            assert time.monotonic() < until, self.screen
            self._look()
        found = next(text for text in texts if text in self.screen)
        self.screen = self.screen.split(found, 1)[1]
        return found

    def expect_text(self) -> None:
        """Wait for some letters: what a terminal is told beside them is not an answer."""
        until = time.monotonic() + PATIENCE
        while len(re.findall(r"[^\W\d_]", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", self.screen))) < 20:
            assert time.monotonic() < until
            self._look()

    def _look(self) -> None:
        if select.select([self._file], [], [], 0.2)[0]:
            self.screen += os.read(self._file, 4096).decode(errors="replace")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._file, text.encode())

    def end(self) -> int:
        """Exit status. The terminal stays until the program has left it."""
        with contextlib.suppress(OSError):  # how Linux tells that nobody is left
            while os.read(self._file, 4096):
                pass
        os.close(self._file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat_loads_a_model_streams_and_is_stopped_by_an_interrupt(default_model: Path) -> None:
    # So hot that what it says is noise, which does not end by itself.
    words = ["chat", str(default_model), *SMALL, "--temperature", "5"]
    terminal = Terminal([*COMMAND, *words])
    terminal.expect("type a message")
    terminal.expect("> ")
    for _ in range(10):  # noise may end by itself: then there was nothing to stop
        terminal.type("Say many words.\n")
        terminal.expect("words.\r\n")
        terminal.expect_text()
        terminal.type("\x03")
        stopped = terminal.expect("(stopped)", "(/quit or Ctrl-D leaves)") == "(stopped)"
        terminal.expect("> ")
        if stopped:
            break
    assert stopped
    terminal.type("/reset\n")
    terminal.expect("forgotten")
    terminal.type("/quit\n")
    assert terminal.end() == 0
