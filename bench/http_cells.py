"""What a client sees of both programs: streamed completions over HTTP, by the wall clock."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

from sides import Side


async def stream(url: str, body: dict[str, Any]) -> tuple[float, float]:
    """Seconds until the first token and until the end of a streamed completion."""
    parts = urlsplit(url)
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    writer.write(head.encode() + payload)
    first, tail = 0.0, b""
    while piece := await reader.read(1 << 16):
        if not first and b"data:" in piece:
            first = time.perf_counter() - began
        tail = (tail + piece)[-4096:]
    writer.close()
    if b"[DONE]" not in tail or not first:
        raise SystemExit(f"{url} did not finish an answer: {tail[-300:]!r}")
    return first, time.perf_counter() - began


def request(tokens: list[int], length: int, cached: bool) -> dict[str, Any]:
    """A greedy streamed completion of exactly `length` tokens, as both servers take it."""
    return {
        "prompt": tokens,
        "max_tokens": length,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": cached,
        "stream": True,
    }


def first_token(side: Side, tokens: list[int]) -> float:
    """Seconds to the first token of a prompt that may be cached."""
    return asyncio.run(stream(side.facts["url"], request(tokens, 1, True)))[0]


def http_rate(side: Side, prompts: list[list[int]], length: int) -> float:
    """Total tokens a second of answers streamed side by side, by the wall clock."""

    async def all_of_them() -> float:
        began = time.perf_counter()
        bodies = [request(tokens, length, False) for tokens in prompts]
        await asyncio.gather(*[stream(side.facts["url"], body) for body in bodies])
        return length * len(prompts) / (time.perf_counter() - began)

    return asyncio.run(all_of_them())
