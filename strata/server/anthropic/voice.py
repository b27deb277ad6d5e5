"""What Anthropic's API says beside its answers: errors, pings, and a request's id."""

from __future__ import annotations

import secrets

import orjson

from strata.server.errors import Refusal, Voice, sentence
from strata.types import RequestError

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def event(kind: str, members: bytes = b"") -> bytes:
    """An event of a stream; `members` of its JSON beside the type, each behind a comma."""
    name = kind.encode()
    return b'event: %s\ndata: {"type":"%s"%s}\n\n' % (name, name, members)


class AnthropicVoice(Voice):
    """The voice of one request, whose id is in a header and in its errors."""

    def __init__(self) -> None:
        self.request_id = f"req_{secrets.token_hex(12)}"
        self.headers = ((b"request-id", self.request_id.encode()),)

    def error(self, error: RequestError) -> bytes:
        """`{"type": "error", "error": {type, message}, "request_id"}`."""
        return b"{%s}" % self._members(error)

    def error_event(self, error: RequestError) -> bytes:
        """The same as an event of that name."""
        return b"event: error\ndata: {%s}\n\n" % self._members(error)

    def ping(self) -> bytes:
        """An event without a meaning."""
        return event("ping")

    def _members(self, error: RequestError) -> bytes:
        other = "api_error" if error.status >= 500 else "invalid_request_error"
        kind, message = _KINDS.get(error.status, other), sentence(error)
        if isinstance(error, Refusal) and error.code == "context_length_exceeded":
            message = f"prompt is too long: {message}"  # what Claude Code looks for to compact
        told = orjson.dumps({"type": kind, "message": message})
        return b'"type":"error","error":%s,"request_id":"%s"' % (told, self.request_id.encode())
