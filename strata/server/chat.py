"""POST /v1/chat/completions: a body to a ChatRequest, and the job's answer as chat completions."""

from __future__ import annotations

import secrets
from typing import Any

import orjson

from strata.server.errors import Refusal
from strata.server.form import Block, blocks
from strata.server.generate import Part, Tally
from strata.server.job import Run
from strata.server.logprobs import chat_logprobs
from strata.server.openai import CompletionsForm
from strata.server.schema import ChatBody, NamedChoice
from strata.server.talk import EFFORTS, ChatRequest, format_of
from strata.text.delta import Delta, Kind


def chat_request(body: ChatBody) -> ChatRequest:
    """What a chat body asks for."""
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal("top_logprobs: needs logprobs to be true", field="top_logprobs")
    limit, choice = body.max_completion_tokens, body.tool_choice
    thinking, budget = _thinking(body)
    effort = {"reasoning_effort": body.reasoning_effort} if body.reasoning_effort else {}
    return ChatRequest(
        body,
        [message.model_dump(exclude_none=True) for message in body.messages],
        tools=body.tools or (),
        tool_choice=choice.function.name if isinstance(choice, NamedChoice) else choice or "auto",
        parallel=body.parallel_tool_calls is not False,
        format=format_of(body),
        variables=effort | (body.chat_template_kwargs or {}),
        thinking=thinking,
        budget=budget,
        max_tokens=body.max_tokens if limit is None else limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        header=body.add_generation_prompt is not False,
        continued=bool(body.continue_final_message),
    )


def _thinking(body: ChatBody) -> tuple[bool | None, int | None]:
    """Whether to think, and for how many tokens. A budget given in tokens counts before effort."""
    thinking, budget = EFFORTS[body.reasoning_effort] if body.reasoning_effort else (None, None)
    wanted = (body.chat_template_kwargs or {}).get("enable_thinking")
    if isinstance(wanted, bool):
        thinking = wanted
    budgets = (body.thinking_budget, body.thinking_budget_tokens, body.thinking_token_budget)
    given = next((each for each in budgets if each is not None), None)
    if given is not None:
        budget = given if given >= 0 else None
    return thinking, budget


def call_id() -> str:
    """A call's name, which its result will come back under."""
    return f"call_{secrets.token_hex(12)}"


class ChatForm(CompletionsForm):
    """Writes one job as chat completions."""

    kinds = ("chat.completion.chunk", "chat.completion")

    def news(self, run: Run, part: Part, first: bool) -> list[bytes]:
        """Each delta of the message; the role in the first."""
        said = [member for delta in part.deltas if (member := _member(delta))]
        if first and said:
            said[0] = b'"role":"assistant",' + said[0]
        return [b'"delta":{%s}' % member for member in said]

    def nothing(self, first: bool) -> bytes:
        """An empty delta; of a message without a word, its role."""
        return b'"delta":{"role":"assistant","content":""}' if first else b'"delta":{}'

    def content(self, run: Run, whole: Part) -> dict[str, Any]:
        """The message. Content is null beside calls that came without any."""
        made = blocks(whole.deltas)
        calls = [_call(block) for block in made if block.kind is Kind.CALL]
        content = "".join(b.text for b in made if b.kind is Kind.CONTENT)
        reasoning = "".join(b.text for b in made if b.kind is Kind.REASONING)
        message: dict[str, Any] = {"role": "assistant"}
        message["content"] = None if calls and not content else content
        message["refusal"] = None
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        return {"message": message}

    def told(self, run: Run, part: Part, tally: Tally, first: bool) -> dict[str, Any] | None:
        """Log probabilities of a part that has tokens."""
        if not (self.logprobs and part.logprobs):
            return None
        return chat_logprobs(self.names, part.logprobs)


def _member(delta: Delta) -> bytes:
    """A delta as a member of `delta`; empty for a call's end, which nothing tells."""
    text = orjson.dumps(delta.text)
    if delta.kind is Kind.CONTENT:
        return b'"content":' + text
    if delta.kind is Kind.REASONING:
        return b'"reasoning_content":' + text
    if delta.kind is Kind.ARGUMENTS:
        return b'"tool_calls":[{"index":%d,"function":{"arguments":%s}}]' % (delta.call or 0, text)
    if delta.kind is Kind.END:
        return b""
    return (
        b'"tool_calls":[{"index":%d,"id":"%s","type":"function",'
        b'"function":{"name":%s,"arguments":""}}]' % (delta.call or 0, call_id().encode(), text)
    )


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block.name, "arguments": block.text}
    return {"id": call_id(), "type": "function", "function": function}
