"""The pages that tell: what this is, whether it is well, its models, its last requests.

Also text to token ids and back, in vLLM's and llama.cpp's names.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

import strata
from strata.figures import Record, Snapshot
from strata.server import experts
from strata.server.errors import Refusal
from strata.server.job import check_tokens
from strata.server.schema import Common, DetokenizeBody, TokenizeBody
from strata.server.service import Lobby, Service
from strata.server.talk import ChatRequest, render


def about(lobby: Lobby) -> bytes:
    """GET /: one object that says what answers here and where to go on."""
    service = lobby.present
    return orjson.dumps(
        {
            "name": "strata",
            "version": strata.__version__,
            "model": service.model.id if service else None,
            "status": lobby.reason or "ok",
            "openai_base_url": "/v1",
            "openapi": "/openapi.json",
        }
    )


def model_list(service: Service) -> bytes:
    """GET /v1/models: one entry, whatever names the model answers to."""
    return orjson.dumps({"object": "list", "data": [_model(service)]})


def model(service: Service, name: str) -> bytes:
    """GET /v1/models/{name}; raises 404 for a name that is not served."""
    service.named(name)
    return orjson.dumps(_model(service))


def _model(service: Service) -> dict[str, Any]:
    facts = service.model
    return {
        "id": facts.id,
        "object": "model",
        "created": facts.created,
        "owned_by": "strata",
        "root": facts.root,
        "parent": None,
        "aliases": list(facts.aliases),
        "max_model_len": facts.context,
        "context_length": facts.context,
    }


def request_list(service: Service) -> bytes:
    """GET /v1/requests: the last finished requests, newest first. No content."""
    records = service.engine.records()
    return orjson.dumps({"object": "list", "data": [_record(record) for record in records]})


def _record(record: Record) -> dict[str, Any]:
    """Rates in tokens/s, times in seconds, `time` since 1970."""
    row = asdict(record)
    row["prefill_tokens_per_s"] = row.pop("prefill_rate")
    row["decode_tokens_per_s"] = row.pop("decode_rate")
    row["experts"] = experts.use(record.experts)
    row["wait_s"] = record.wait_s
    del row["waits"], row["trace"]
    return row


def cache(now: Snapshot) -> bytes:
    """GET /v1/cache: what is cached, how much may be, and what that has saved."""
    pages = _slots(now.pages_total, now.pages_free, now.pages_cached, now.page_bytes)
    states = _slots(now.states_total, now.states_free, now.states_cached, now.state_bytes)
    return orjson.dumps(
        {
            "object": "cache",
            "block_size": now.block,
            "pages": {**pages, "evicted": now.evicted_pages},
            "states": {**states, "evicted": now.evicted_states},
            "lookups": now.lookups,
            "hits": now.hits,
            "hit_tokens": now.hit_tokens,
            "prompt_tokens": now.prompt_tokens,
            "saved_tokens": now.cached_tokens,
        }
    )


def _slots(total: int, free: int, cached: int, size: int) -> dict[str, int]:
    """Counts, and the bytes of one, of the cached ones and of all there may be."""
    return {
        "total": total,
        "free": free,
        "cached": cached,
        "bytes_each": size if total else 0,
        "bytes_cached": cached * size,
        "bytes_budget": total * size,
    }


async def clear(service: Service) -> bytes:
    """DELETE /v1/cache: drop what no running request uses; what that freed."""
    freed = await service.engine.clear_cache()
    return orjson.dumps(
        {
            "object": "cache.cleared",
            "pages_freed": freed.pages,
            "states_freed": freed.states,
            "bytes_freed": freed.bytes,
        }
    )


def tokenize(service: Service, body: TokenizeBody) -> bytes:
    """Token ids of a raw text or of a rendered chat; raises a 400 unless exactly one is given."""
    text = body.prompt if body.prompt is not None else body.content
    if (text is None) == (body.messages is None):
        raise Refusal("give either prompt (a text) or messages (a chat)", field="prompt")
    if text is None:
        chat = ChatRequest(
            Common(),
            [message.model_dump(exclude_none=True) for message in body.messages or ()],
            tools=body.tools or (),
            variables=body.chat_template_kwargs or {},
            header=body.add_generation_prompt is not False,
        )
        tokens = list(render(service, chat).tokens)
    else:
        start = body.add_special_tokens is not False
        tokens = service.tokenizer.encode(text, special=True, start=start)
    answer: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": service.model.context,
        "tokens": tokens,
    }
    if body.return_token_strs:
        answer["token_strs"] = [service.names[token][0] for token in tokens]
    return orjson.dumps(answer)


def detokenize(service: Service, body: DetokenizeBody) -> bytes:
    """The text of token ids, control tokens in their written form."""
    check_tokens(body.tokens, service.tokenizer.vocab_size, "tokens")
    text = service.tokenizer.decode(body.tokens)
    return orjson.dumps({"prompt": text, "content": text})
