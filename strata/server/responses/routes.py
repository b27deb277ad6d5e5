"""What the routes of /v1/responses do: from a body and a memory to a job, and the memory's pages.

A response is remembered with its conversation, under the API key that asked, before its client is
told that it is complete; with `store: false` it is not. Ids of other keys' do not exist.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import TypeAdapter

from strata.server.errors import Refusal
from strata.server.exchange import Exchange
from strata.server.form import Form
from strata.server.job import Job
from strata.server.responses.convert import chat_request, functions
from strata.server.responses.events import Dump, ResponsesForm
from strata.server.responses.schema import Item, Message, Reference, ResponsesBody
from strata.server.responses.store import Kept, Store
from strata.server.service import Service
from strata.server.talk import chat_job
from strata.types import RequestError

_ITEM: TypeAdapter[Item] = TypeAdapter(Item)
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}
_ECHOED = {
    "instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "reasoning",
    "safety_identifier", "top_logprobs", "user",
}  # fmt: skip
MOST_LISTED = 100


class Responses:
    """The routes of one server. Owns its store."""

    def __init__(self) -> None:
        self.store = Store()

    def prepare(self, service: Service, caller: str, body: ResponsesBody) -> tuple[Job, Form]:
        """The job that a body asks for, and how it is told. Raises RequestError."""
        before: dict[str, bytes] = {}
        if body.previous_response_id is not None:
            before = self._previous(caller, body.previous_response_id).items
        items = self._given(caller, body, before)
        old = [_ITEM.validate_python(orjson.loads(raw)) for raw in before.values()]
        chat = chat_request(body, old, items)
        try:
            job = chat_job(service, chat, caller, "resp_")
        except RequestError as error:
            raise _renamed(error) from None
        given = before | _numbered(items, before)

        def keep(response: Dump) -> None:
            if body.store is not False:
                made = {item["id"]: orjson.dumps(item) for item in response["output"]}
                kept = Kept(orjson.dumps(response), given | made, len(given))
                self.store.keep(caller, job.id, kept)

        reasoning = body.reasoning
        form = ResponsesForm(
            job,
            service.names,
            _said(body, job),
            {
                tool["function"]["name"]: _name(space, name)
                for tool, space, name in functions(body.tools)
            },
            keep,
            summary=bool(reasoning and (reasoning.summary or reasoning.generate_summary)),
            seal="reasoning.encrypted_content" in (body.include or ()),
        )
        return job, form

    def _previous(self, caller: str, name: str) -> Kept:
        if (kept := self.store.find(caller, name)) is None:
            raise Refusal(
                f"previous_response_id: no response {name[:100]!r} is remembered here",
                field="previous_response_id",
                code="previous_response_not_found",
            )
        return kept

    def _given(self, caller: str, body: ResponsesBody, before: dict[str, bytes]) -> list[Item]:
        """The items of the input, references replaced by what they mean."""
        given = body.input
        if isinstance(given, str):
            return [Message(role="user", content=given)]
        if not (given or before):
            raise Refusal("input: is required, and must not be empty", field="input")
        items: list[Item] = []
        for i, item in enumerate(given or ()):
            if isinstance(item, Reference):
                raw = None if item.id in before else self.store.item(caller, item.id)
                if raw is None:
                    why = "part of previous_response_id" if item.id in before else "not remembered"
                    raise Refusal(
                        f"input.{i}.id: the item {item.id[:100]!r} is {why}",
                        status=400 if item.id in before else 404,
                        field=f"input.{i}.id",
                    )
                item = _ITEM.validate_python(orjson.loads(raw))
            items.append(item)
        return items

    async def retrieve(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/responses/{id}."""
        if exchange.query().get("stream") == "true":
            raise Refusal("stream: a remembered response is not streamed", field="stream")
        await exchange.reply(200, self._found(exchange, caller).response)

    async def delete(self, exchange: Exchange, caller: str) -> None:
        """DELETE /v1/responses/{id}."""
        self._found(exchange, caller)
        name = exchange.scope["path_params"]["id"]
        self.store.drop(caller, name)
        answer = {"id": name, "object": "response", "deleted": True}
        await exchange.reply(200, orjson.dumps(answer))

    async def input_items(self, exchange: Exchange, caller: str) -> None:
        """GET /v1/responses/{id}/input_items: the conversation before the answer."""
        kept, query = self._found(exchange, caller), exchange.query()
        names = list(kept.items)[: kept.given]
        if query.get("order", "desc") != "asc":
            names.reverse()
        after, limit = query.get("after"), query.get("limit", "20")
        if not (limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= MOST_LISTED):
            raise Refusal(f"limit: must be 1 to {MOST_LISTED}", field="limit")
        if after is not None and after not in names:
            raise Refusal("after: no such item", field="after")
        names = names[names.index(after) + 1 :] if after is not None else names
        page = names[: int(limit)]
        answer = {
            "object": "list",
            "data": [orjson.Fragment(kept.items[name]) for name in page],
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
            "has_more": len(names) > len(page),
        }
        await exchange.reply(200, orjson.dumps(answer))

    def _found(self, exchange: Exchange, caller: str) -> Kept:
        name = exchange.scope["path_params"]["id"]
        if (kept := self.store.find(caller, name)) is None:
            raise Refusal(f"no response {name[:100]!r} is remembered here", status=404)
        return kept


def _numbered(items: Sequence[Item], before: dict[str, bytes]) -> dict[str, bytes]:
    """Items as they are remembered and listed, by their ids: each has one of its own."""
    out: dict[str, bytes] = {}
    for item in items:
        dump = _dump(item)
        name = dump.get("id")
        if name is None or name in before or name in out:
            name = f"{_PREFIXES.get(dump['type'], 'rs')}_{secrets.token_hex(12)}"
        out[name] = orjson.dumps(dump | {"id": name})
    return out


def _dump(item: Item) -> dict[str, Any]:
    """An item with all that OpenAI's lists have."""
    dump = item.model_dump(exclude_none=True)
    if not isinstance(item, Message):
        return {"status": "completed", **dump}
    kind = "output_text" if item.role == "assistant" else "input_text"
    content = item.content
    parts = [part.model_dump(exclude_none=True) for part in content if not isinstance(part, str)]
    if isinstance(content, str):
        parts = [{"text": content}]
    for part in parts:
        if "refusal" not in part:
            part |= {"type": kind}
            part |= {"annotations": [], "logprobs": []} if kind == "output_text" else {}
    return {**dump, "type": "message", "status": "completed", "content": parts}


def _name(namespace: str | None, name: str) -> dict[str, str]:
    return {"name": name} | ({"namespace": namespace} if namespace else {})


def _said(body: ResponsesBody, job: Job) -> dict[str, Any]:
    """The members of a response that the request fixes; sampling as it really is."""
    sampling = job.runs[0].request.sampling
    text = body.text.model_dump(exclude_none=True, by_alias=True) if body.text else {}
    return {
        **body.model_dump(include=_ECHOED),
        "background": False,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "service_tier": "default",
        "store": body.store is not False,
        "temperature": sampling.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }


def _renamed(error: RequestError) -> RequestError:
    """An error about messages, as one about the input that they were made of."""
    if error.field is None or error.field.split(".")[0] != "messages":
        return error
    code = error.code if isinstance(error, Refusal) else None
    return Refusal(str(error), status=error.status, field="input", code=code)
