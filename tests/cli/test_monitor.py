"""`strata monitor` against a feed written beforehand, on a terminal that pyte draws."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyte
import pytest

SNAPSHOT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "monitor.json").read_text(encoding="utf-8")
)
WAIT_S = 40


class Feed:
    """A server of snapshots: `now` is told at once and each tenth of a second."""

    def __init__(self) -> None:
        self.now = copy.deepcopy(SNAPSHOT)
        self.key = ""
        self.open = True
        feed = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                if feed.key and self.headers["Authorization"] != f"Bearer {feed.key}":
                    return self.reply(401, {"error": {"message": "a wrong key"}})
                if "once" in self.path:
                    return self.reply(200, feed.now)
                if self.path == "/v1/requests":
                    return self.reply(200, {"object": "list", "data": feed.now["finished"]})
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                while feed.open:
                    self.wfile.write(
                        b"event: snapshot\ndata: %s\n\n" % json.dumps(feed.now).encode()
                    )
                    self.wfile.flush()
                    time.sleep(0.1)

            def reply(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def handle(self) -> None:
                with suppress(OSError):  # the monitor has left
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.open = False
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def feed() -> Iterator[Feed]:
    made = Feed()
    yield made
    made.close()


class Terminal:
    """`strata monitor` in a pseudo-terminal of `columns` x `lines`."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 132, lines: int = 40) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            command = "import sys; from strata.cli import main; sys.exit(main(sys.argv[1:]))"
            environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": ":".join(sys.path)}
            words = [sys.executable, "-c", command, "monitor", *arguments]
            os.execvpe(sys.executable, words, environment)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, size)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def until(self, holds: Callable[[str], bool]) -> str:
        """The screen once it `holds`."""
        end = time.monotonic() + WAIT_S
        while not holds(self.text):
            assert time.monotonic() < end, self.text
            if select.select([self._file], [], [], 0.2)[0]:
                try:
                    self._stream.feed(os.read(self._file, 1 << 16))
                except OSError:  # it has ended
                    break
        return self.text

    def press(self, keys: str) -> None:
        """Type; what a key changes, such as who gets the next one, is there soon after."""
        os.write(self._file, keys.encode())
        end = time.monotonic() + 1
        while (left := end - time.monotonic()) > 0:
            if select.select([self._file], [], [], left)[0]:
                try:
                    self._stream.feed(os.read(self._file, 1 << 16))
                except OSError:  # it has ended
                    return

    def ended(self) -> int:
        """Its exit status."""
        end = time.monotonic() + WAIT_S
        while (found := os.waitpid(self.pid, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, self.text
            if select.select([self._file], [], [], 0.2)[0]:
                try:
                    os.read(self._file, 1 << 16)
                except OSError:
                    continue
        os.close(self._file)
        return os.waitstatus_to_exitcode(found[1])


def rows_of(screen: str, *words: str) -> list[list[str]]:
    """The lines that have one of `words`, cell by cell."""
    return [line.split() for line in screen.splitlines() if any(word in line for word in words)]


def test_the_screen_has_the_table_of_the_feed(feed: Feed, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, feed.url)
    screen = terminal.until(lambda text: "6 of 6 shown" in text)
    lines = [" ".join(line.split()) for line in screen.splitlines()]
    head = "TIME STATUS PROMPT REUSED OUTPUT PREFILL T/S DECODE T/S GPU HIT RATE DURATION"
    at = lines.index(head)
    assert [line.partition(" ")[2] for line in lines[at + 1 : at + 7]] == [
        "Queued 1,000 0 0 – – – 3.0 s",
        "Waiting for a prefix 1,000 0 0 – – – 4.0 s",
        "Reading 51 % 1,000 0 0 128 – – 5.0 s",
        "Decoding 1,000 800 15 100 2.0 87.4 % +3.7 % PCIe 10.0 s",
        "Max tokens 10,242 8,183 128 721 44.1 87.4 % +3.7 % PCIe 5.8 s",
        "Closed 50 0 0 – – – 250 ms",
    ]
    terminal.press("q")
    assert terminal.ended() == 0


def test_what_changes_is_seen_and_the_filter_narrows_it(feed: Feed, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, feed.url)
    terminal.until(lambda text: "6 of 6 shown" in text)
    feed.now["rows"], feed.now["finished"] = (
        [],
        [feed.now["finished"][0] | {"number": 3, "id": "x"}],
    )
    screen = terminal.until(lambda text: "Decoding  " not in text and "3 of 3 shown" in text)
    assert len(rows_of(screen, "Max tokens  ")) == 2
    terminal.press("/")
    terminal.until(lambda text: "words that a row must have" in text)
    terminal.press("closed")
    screen = terminal.until(lambda text: "1 of 3 shown" in text)
    assert rows_of(screen, "Closed  ") and not rows_of(screen, "Max tokens  ")
    terminal.press("\r")
    terminal.press("e")
    terminal.until(lambda text: "1 requests written" in text)
    (written,) = tmp_path.glob("*.csv")
    head, line = written.read_text(encoding="utf-8").splitlines()
    told = dict(zip(head.split(","), line.split(","), strict=True))
    assert (told["id"], told["prompt"]) == ("cmpl-9", "50")
    terminal.press("d")
    terminal.until(lambda text: "the client left" in text)
    terminal.press("q")  # closes what lies over the table
    terminal.until(lambda text: "the client left" not in text)
    terminal.press("q")
    assert terminal.ended() == 0


def test_help_says_what_the_figures_mean(feed: Feed, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, feed.url, columns=80, lines=24)
    terminal.until(lambda text: "6 of 6 shown" in text)
    terminal.press("?")
    terminal.until(lambda text: "details of the chosen row" in text)
    terminal.press("q")
    terminal.until(lambda text: "6 of 6 shown" in text)
    terminal.press("q")
    assert terminal.ended() == 0


def test_it_says_that_nobody_answers_and_comes_back(tmp_path: Path) -> None:
    feed = Feed()
    terminal = Terminal(tmp_path, feed.url)
    terminal.until(lambda text: "6 of 6 shown" in text)
    feed.open = False
    terminal.until(lambda text: "trying again" in text)
    feed.open = True
    terminal.until(lambda text: "trying again" not in text and "6 of 6 shown" in text)
    terminal.press("q")
    assert terminal.ended() == 0
    feed.close()


def test_a_refused_key_is_a_sentence(feed: Feed, tmp_path: Path) -> None:
    feed.key = "right"
    terminal = Terminal(tmp_path, feed.url, "--api-key", "wrong")
    terminal.until(lambda text: "key" in text.lower() and "trying again" in text)
    terminal.press("q")
    assert terminal.ended() == 0


def once(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = "import sys; from strata.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    words = [sys.executable, "-c", command, "monitor", *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=WAIT_S)


def test_once_prints_the_figures_and_ends(feed: Feed) -> None:
    done = once(feed.url, "--once")
    assert done.returncode == 0, done.stderr
    assert "87.4 % +3.7 % PCIe" in done.stdout and "\x1b" not in done.stdout
    assert len(rows_of(done.stdout, "Decoding", "Max tokens", "Closed")) >= 3


def test_once_without_a_server_is_a_sentence() -> None:
    done = once("http://127.0.0.1:9", "--once")
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr and "Traceback" not in done.stderr


def test_without_a_terminal_it_says_what_to_do(feed: Feed) -> None:
    done = once(feed.url)
    assert done.returncode != 0 and "--once" in done.stderr
