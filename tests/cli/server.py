"""A stand-in for a server: OpenAI's streamed chat, each answer written down beforehand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Script:
    """What to answer, and what was asked. `status` other than 200 refuses."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 200
        self.pause = 0.0
        self.broken = threading.Event()


@contextmanager
def running(script: Script) -> Iterator[str]:
    """The URL of a server that follows `script`."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            self._reply(200, {"data": [{"id": "scripted"}]})

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            script.asked.append(json.loads(self.rfile.read(length)))
            script.keys.append(self.headers["Authorization"])
            if script.status != 200:
                self._reply(script.status, {"error": {"message": "not today"}})
                return
            self.send_response(200)
            self.end_headers()
            try:
                for piece in script.answers.pop(0):
                    self._event({"choices": [{"delta": {"content": piece}}]})
                    time.sleep(script.pause)
            except OSError:
                script.broken.set()
                return
            usage = {"prompt_tokens": 9, "completion_tokens": 3}
            usage |= {"prompt_tokens_details": {"cached_tokens": 7}}
            self._event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()

        def _reply(self, status: int, body: dict[str, Any]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
