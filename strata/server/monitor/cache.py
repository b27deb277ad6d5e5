"""The tree of cached prefixes, and the text of one of them.

The tree has sizes and uses, of all namespaces; whose they are is told as a digest that means
nothing elsewhere. Text is told of the caller's own prefixes alone: those under its API key and,
where requests gave a `cache_salt`, to who gives it too.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Any

import orjson

from strata.figures import Stretch
from strata.server.errors import Refusal
from strata.server.exchange import Exchange
from strata.server.job import namespace
from strata.server.service import Lobby

_SALT = secrets.token_bytes(16)
_DEPTH, _LIMIT = (12, 100), (200, 2000)  # as it is when nothing is said, and at most


class CacheTree:
    """The routes of one server."""

    def __init__(self, lobby: Lobby) -> None:
        self._lobby = lobby

    async def tree(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/cache/tree: the stretches used last, with those above them."""
        query, engine = exchange.query(), self._lobby.service().engine
        depth = _number(query, "depth", *_DEPTH)
        survey = await engine.survey(depth, _number(query, "limit", *_LIMIT))
        now = engine.snapshot()
        evicted = {"pages": now.evicted_pages, "states": now.evicted_states, "why": now.gone}
        nodes = [_node(stretch, caller) for stretch in survey.stretches]
        answer = {"nodes": nodes, "evicted": evicted, "shown": survey.pages, "total": survey.total}
        await exchange.reply(200, orjson.dumps({"object": "cache.tree", **answer}))

    async def text(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/cache/text: what a node of the tree and those above it say."""
        query, service = exchange.query(), self._lobby.service()
        node = _number(query, "node", 0, 2**53)
        own = namespace(caller, query.get("cache_salt"))
        found = await service.engine.prefix(node, own)
        if found is None:
            raise Refusal(
                f"no prefix {node} of yours is cached here; it may have been evicted", status=404
            )
        text = service.tokenizer.decode(found.tokens)
        above = service.tokenizer.decode(found.tokens[: len(found.tokens) - found.own])
        answer = {"node": node, "tokens": len(found.tokens), "above": len(above), "text": text}
        await exchange.reply(200, orjson.dumps({"object": "cache.text", **answer}))


def _node(stretch: Stretch, caller: str) -> dict[str, Any]:
    return {
        "id": stretch.number,
        "parent": stretch.parent,
        "depth_tokens": stretch.end,
        "tokens": stretch.tokens,
        "bytes": stretch.bytes,
        "hits": stretch.hits,
        "last_used_s": stretch.idle_s,
        "running": stretch.running,
        "states": stretch.states,
        "namespace": _digest(stretch.namespace),
        "own": stretch.namespace == caller,
    }


def _digest(namespace: str) -> str:
    """The same for the same namespace in this process; "" for the one that needs no name."""
    if not namespace:
        return ""
    return blake2b(namespace.encode(), digest_size=4, key=_SALT).hexdigest()


def _number(query: dict[str, str], name: str, usual: int, most: int) -> int:
    """A whole number of the URL from 1 to `most`; `usual` where it is not given, if not 0."""
    value = query.get(name, str(usual))
    if not (value.isascii() and value.isdecimal() and len(value) < 17 and 1 <= int(value) <= most):
        raise Refusal(f"{name}: must be a whole number from 1 to {most}", field=name)
    return int(value)
