"""Anthropic's Messages API: bodies, the chats they ask for, events, errors.

Knows of answering only the seams: a ChatRequest goes out, Deltas come back.
"""

from strata.server.anthropic.convert import chat_request
from strata.server.anthropic.events import MessageForm
from strata.server.anthropic.pages import count_tokens, model, model_list
from strata.server.anthropic.schema import CountBody, MessagesBody
from strata.server.anthropic.voice import AnthropicVoice

__all__ = [
    "AnthropicVoice",
    "CountBody",
    "MessageForm",
    "MessagesBody",
    "chat_request",
    "count_tokens",
    "model",
    "model_list",
]
