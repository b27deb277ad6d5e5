"""The stream of a server's snapshots, followed for ever: what breaks is told and tried again.

Knows HTTP and server-sent events, nothing of a screen. Whatever goes wrong is a `Trouble` with a
sentence for people.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from strata.cli.monitor.told import Recent, Snapshot, clean
from strata.types import ConfigError, RequestError, StrataError

SILENT_S = 15.0  # a server that tells each second has gone when it is silent for so long
_WAIT_S, _LONGEST_S = 0.5, 5.0  # before the next attempt: doubled each time
_LARGEST = 16 << 20
_LINE = re.compile(rb"\r\n|\n|\r(?!$)")
_KEY = re.compile(r"[!-~]+")
_Kind = TypeVar("_Kind", bound=BaseModel)


class Trouble(str):
    """Why nothing comes now, in a sentence."""

    __slots__ = ()


class Feed:
    """One server's figures. `wait_s` is the pause before the first new attempt."""

    def __init__(self, url: str, key: str = "", wait_s: float = _WAIT_S) -> None:
        """Opens nothing yet. ConfigError for a URL or a key that can never work."""
        self.url = _base(url)
        if key and not _KEY.fullmatch(key):
            raise ConfigError("--api-key: a key has letters, digits and signs of ASCII alone")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(10.0, read=SILENT_S)
        self._wait_s = wait_s
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=False
        )

    async def __aenter__(self) -> Feed:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def follow(self) -> AsyncIterator[Snapshot | Trouble]:
        """Snapshots as they come, and what kept them from coming; never ends by itself."""
        wait = self._wait_s
        while True:
            try:
                async for snapshot in self._stream():
                    wait = self._wait_s
                    yield snapshot
                yield Trouble(f"the server at {self.url} closed the connection")
            except StrataError as error:
                yield Trouble(error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_S)

    async def _stream(self) -> AsyncIterator[Snapshot]:
        try:
            async with self._http.stream("GET", "/v1/monitor") as answer:
                if answer.status_code != 200:
                    raise _refusal(self.url, answer.status_code, await answer.aread())
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    raise _stranger(self.url)
                async with aclosing(events(answer.aiter_bytes())) as found:
                    async for name, data in found:
                        if name == b"snapshot":
                            yield _parsed(Snapshot, data, self.url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _lost(self.url, error) from None

    async def once(self) -> Snapshot:
        """One snapshot, now. ConfigError, RequestError."""
        return _parsed(Snapshot, await self._get("/v1/monitor?once=1"), self.url)

    async def older(self) -> Recent:
        """Every finished request that the server still knows. ConfigError, RequestError."""
        return _parsed(Recent, await self._get("/v1/requests"), self.url)

    async def _get(self, path: str) -> bytes:
        try:
            answer = await self._http.get(path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _lost(self.url, error) from None
        if answer.status_code != 200:
            raise _refusal(self.url, answer.status_code, answer.content)
        return answer.content


async def events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[tuple[bytes, bytes]]:
    """Names and data of server-sent events, as the HTML standard parses them (9.2.6).

    Lines end at CR and LF alone, so a text in JSON may hold Unicode's other separators.
    Raises RequestError when a line takes more than 16 MiB.
    """
    rest, name, data = b"", b"message", list[bytes]()
    async for chunk in chunks:
        *lines, rest = _LINE.split(rest + chunk)
        if len(rest) > _LARGEST:
            raise RequestError("the server sent a line without an end", status=502)
        for line in lines:
            field, _, value = line.partition(b":")
            if not line:
                if data:
                    yield name, b"\n".join(data)
                name, data = b"message", []
            elif field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")


def _base(url: str) -> str:
    """The address with a scheme and without /v1. ConfigError."""
    whole = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
    try:
        parsed = httpx.URL(whole)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{clean(url)} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"{clean(url)} is not a URL of a server: http://127.0.0.1:8080 is one")
    return whole


def _parsed(kind: type[_Kind], data: bytes, url: str) -> _Kind:
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        raise _stranger(url) from None


def _stranger(url: str) -> RequestError:
    return RequestError(f"what answers at {url} does not speak as Strata's Monitor", status=502)


def _lost(url: str, error: Exception) -> StrataError:
    """A connection that was not made, or broke."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ConfigError(f"no server answers at {url}: start one with `strata serve`")
    if isinstance(error, httpx.TimeoutException):
        return RequestError(f"the server at {url} has been silent for too long", status=504)
    return RequestError(f"the connection to {url} broke: {clean(str(error))}", status=502)


class _Error(BaseModel):
    message: str


class _Refused(BaseModel):
    error: _Error


def _refusal(url: str, status: int, body: bytes) -> RequestError:
    """An answer that is none."""
    try:
        said = clean(_Refused.model_validate_json(body).error.message)
    except ValidationError:
        said = "" if status != 404 else "there is no Monitor there; is it another server?"
    if status == 401:
        said = "it wants an API key: give one of its own with --api-key"
    return RequestError(f"{url} answered {status}" + (f": {said}" if said else ""), status=status)
