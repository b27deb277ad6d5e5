"""POST /v1/chat/completions: a body to a Job, and the job's answer as chat completions.

What messages mean (developer is system, parts are joined, where a template refuses a
system message) is the text layer's to decide; here is only what HTTP adds.
"""

from __future__ import annotations

from typing import Any

import orjson

from strata.server.answer import Form
from strata.server.errors import Refusal
from strata.server.generate import Part, Tally
from strata.server.job import Job, Run, make_job
from strata.server.logprobs import chat_logprobs
from strata.server.schema import ChatBody, TokenizeBody
from strata.server.service import Service
from strata.text.template import Prompt


def render_chat(service: Service, body: ChatBody | TokenizeBody) -> Prompt:
    """The prompt of a chat. Raises a 400 when the model has no template or it refuses."""
    if service.template is None:
        raise Refusal(
            "this model has no chat template; use /v1/completions, or start the server "
            "with --chat-template FILE",
            field="messages",
        )
    return service.template.render(
        [message.model_dump(exclude_none=True) for message in body.messages or ()],
        # Tools that are no functions are for other servers.
        tools=[tool for tool in body.tools or () if "function" in tool] or None,
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=isinstance(body, ChatBody) and bool(body.continue_final_message),
        variables=dict(body.chat_template_kwargs or {}),
    )


def chat_job(service: Service, body: ChatBody, caller: str) -> Job:
    """The job that a chat body asks for. Renders and tokenises: slow for long prompts."""
    # What would change the answer, and is not there, is refused rather than ignored.
    if body.response_format is not None and body.response_format.type != "text":
        raise Refusal(
            "response_format: only {'type': 'text'} is supported", field="response_format"
        )
    if body.tool_choice not in (None, "auto", "none"):
        raise Refusal("tool_choice: only 'auto' and 'none' are supported", field="tool_choice")
    if body.tool_choice == "none":
        body = body.model_copy(update={"tools": None})
    prompt = render_chat(service, body)
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal("top_logprobs: needs logprobs to be true", field="top_logprobs")
    limit = body.max_completion_tokens
    return make_job(
        service,
        body,
        [prompt],
        caller,
        kind="chatcmpl",
        field="messages",
        max_tokens=body.max_tokens if limit is None else limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


class ChatForm(Form):
    """Writes one job as chat completions. The role travels in a choice's first delta."""

    kinds = ("chat.completion.chunk", "chat.completion")

    def delta(self, text: str, first: bool) -> bytes:
        """What is new in the message; nothing beside the finish reason of a told text."""
        if first:
            return b'"delta":{"role":"assistant","content":%s}' % orjson.dumps(text)
        return b'"delta":{"content":%s}' % orjson.dumps(text) if text else b'"delta":{}'

    def content(self, text: str) -> dict[str, Any]:
        """The message."""
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def told(self, run: Run, part: Part, tally: Tally, first: bool) -> dict[str, Any] | None:
        """Log probabilities of a part that has tokens."""
        if not (self.logprobs and part.logprobs):
            return None
        return chat_logprobs(self.names, part.logprobs)
