"""A conversation with an OpenAI-compatible server: history, streaming, and what it cost.

Knows HTTP and the shape of a chat completion, no terminal. A stopped answer stays in the history
as far as it came.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any

import httpx

from strata.types import ConfigError, RequestError


class Link:
    """A server to talk to. `url` with or without /v1; `model` empty takes what is served."""

    def __init__(self, url: str, key: str = "", model: str = "") -> None:
        """Opens nothing yet."""
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A long prompt may take minutes until its first token.
        timeout = httpx.Timeout(10.0, read=None)
        try:
            self._http = httpx.Client(
                base_url=self.url, headers=headers, timeout=timeout, trust_env=False
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"--url: {url} is not a URL: {error}") from None

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def chat(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a streamed completion. Closing it cancels. RequestError, ConfigError."""
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise RequestError(_reason(answer), status=answer.status_code)
                for line in answer.iter_lines():
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        chunk: dict[str, Any] = json.loads(data)
                        if "error" in chunk:
                            raise RequestError(str(chunk["error"].get("message")), status=500)
                        yield chunk
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            raise ConfigError(
                f"no server answers at {self.url} ({error}): start one with `strata serve`"
            ) from None
        except httpx.HTTPError as error:
            raise RequestError(f"the connection broke: {error}", status=502) from None

    def served(self) -> str:
        """The id of the first model that the server offers. ConfigError, RequestError."""
        try:
            answer = self._http.get("/v1/models")
        except httpx.HTTPError as error:
            raise ConfigError(
                f"no server answers at {self.url} ({error}): start one with `strata serve`"
            ) from None
        if answer.status_code != 200:
            raise RequestError(_reason(answer), status=answer.status_code)
        return str(answer.json()["data"][0]["id"])


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}"


class Conversation:
    """Messages so far. `note` tells what the last answer cost; `extra` goes into each request."""

    def __init__(self, link: Link, system: str = "", extra: dict[str, Any] | None = None) -> None:
        """Starts empty, under a system message if one is given."""
        self.link = link
        self.note = ""
        self._extra = extra or {}
        self._system = system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def set_system(self, text: str) -> None:
        """Start again under another system message; empty for none."""
        self._system = text
        self.reset()

    def ask(self, text: str) -> Generator[str, None, None]:
        """Say `text`; yields the answer piece by piece. Closing it stops the answer."""
        if not self.link.model:
            self.link.model = self.link.served()
        messages = [*self.messages, {"role": "user", "content": text}]
        body = self._extra | {
            "model": self.link.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        cost = Cost()
        answer: list[str] = []
        try:
            with contextlib.closing(self.link.chat(body)) as chunks:
                for chunk in chunks:
                    cost.note(chunk)
                    for choice in chunk.get("choices", ()):
                        if piece := choice.get("delta", {}).get("content"):
                            answer.append(piece)
                            yield piece
        finally:
            self.note = str(cost)
            if answer:
                self.messages = [*messages, {"role": "assistant", "content": "".join(answer)}]


class Cost:
    """Times seen by the client and counts told by the server."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: float | None = None
        self._last = self._began
        self._usage: dict[str, Any] = {}

    def note(self, chunk: dict[str, Any]) -> None:
        """Take a chunk in."""
        if chunk.get("choices"):
            self._last = time.monotonic()
            self._first = self._first or self._last
        self._usage = chunk.get("usage") or self._usage

    def __str__(self) -> str:
        """`""` when the answer was cut off before its usage came."""
        if not self._usage or self._first is None:
            return ""
        count = self._usage["completion_tokens"]
        cached = (self._usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        parts = [f"{self._usage['prompt_tokens']} tokens read, {cached} of them reused"]
        parts.append(f"first token after {self._first - self._began:.2f} s")
        if count > 1 and self._last > self._first:
            parts.append(f"{(count - 1) / (self._last - self._first):.0f} tokens/s")
        return ", ".join(parts)
