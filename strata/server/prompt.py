"""Chat messages to prompt tokens, through the model's template.

What messages mean (developer is system, parts are joined, where a template refuses a
system message) is the text layer's to decide; here is only what HTTP adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.errors import Refusal
from strata.server.job import Prompt
from strata.server.schema import ChatMessage
from strata.server.service import Service


def render_chat(
    service: Service,
    messages: Sequence[ChatMessage],
    *,
    tools: list[dict[str, Any]] | None,
    variables: Mapping[str, Any] | None,
    generate: bool | None,
    go_on: bool | None = None,
) -> Prompt:
    """The prompt of a chat. Raises a 400 when the model has no template or it refuses.

    `generate` is add_generation_prompt, `go_on` continue_final_message.
    """
    if service.template is None:
        raise Refusal(
            "this model has no chat template; use /v1/completions, or start the server "
            "with --chat-template FILE",
            field="messages",
        )
    prompt = service.template.render(
        [message.model_dump(exclude_none=True) for message in messages],
        # Tools that are no functions are for other servers.
        tools=[tool for tool in tools or () if "function" in tool] or None,
        add_generation_prompt=generate is not False,
        continue_final_message=bool(go_on),
        variables=dict(variables or {}),
    )
    return Prompt(prompt.tokens, prompt.anchors, prompt.stable_len)
