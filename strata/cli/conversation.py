"""A conversation with an OpenAI-compatible server: history, streaming, and what it cost.

Knows HTTP and the shape of a chat completion, no terminal. A stopped answer stays in the history
as far as it came.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterator
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

    def __exit__(self, *failure: object) -> None:
        self._http.close()

    def chat(self, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a streamed completion. Closing it cancels. RequestError, ConfigError."""
        with self._asked("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                    chunk: dict[str, Any] = json.loads(data)
                    if "error" in chunk:
                        raise RequestError(str(chunk["error"].get("message")), status=500)
                    yield chunk

    def served(self) -> str:
        """The id of the first model that the server offers. ConfigError, RequestError."""
        with self._asked("GET", "/v1/models") as answer:
            return str(json.loads(answer.read())["data"][0]["id"])

    @contextlib.contextmanager
    def _asked(self, method: str, path: str, **body: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, path, **body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise RequestError(_reason(answer), status=answer.status_code)
                yield answer
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise ConfigError(
                f"no server answers at {self.url} ({error}): start one with `strata serve`"
            ) from None
        except httpx.HTTPError as error:
            raise RequestError(f"the connection broke: {error}", status=502) from None


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
        began = time.monotonic()
        times: list[float] = []
        usage: dict[str, Any] = {}
        answer: list[str] = []
        try:
            with contextlib.closing(self.link.chat(body)) as chunks:
                for chunk in chunks:
                    usage = chunk.get("usage") or usage
                    for choice in chunk.get("choices", ()):
                        times.append(time.monotonic() - began)
                        if piece := choice.get("delta", {}).get("content"):
                            answer.append(piece)
                            yield piece
        finally:
            self.note = _cost(usage, times)
            if answer:
                self.messages = [*messages, {"role": "assistant", "content": "".join(answer)}]


def _cost(usage: dict[str, Any], times: list[float]) -> str:
    """What an answer took: "" when it was cut off before its usage came."""
    if not usage or not times:
        return ""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    note = f"{usage['prompt_tokens']} tokens read, {cached} of them reused"
    note += f", first token after {times[0]:.2f} s"
    seconds, more = times[-1] - times[0], usage["completion_tokens"] - 1
    return f"{note}, {more / seconds:.0f} tokens/s" if more > 0 and seconds > 0 else note
