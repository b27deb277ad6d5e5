"""Refusals and failures, and how an API says them.

OpenAI's way is `{"error": {message, type, param, code}}`.

Knows which kind and code fit an HTTP status. Knows no request and no socket. A message
says what is allowed; it never repeats more of a client's text than a field's name.
"""

from __future__ import annotations

import orjson

from strata.types import RequestError

# Status to type and code.
_KINDS = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("not_found_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("invalid_request_error", "timeout"),
    413: ("invalid_request_error", "request_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    429: ("rate_limit_error", "queue_full"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "unavailable"),
    504: ("server_error", "timeout"),
}
LONGEST_MESSAGE = 1000


class Refusal(RequestError):
    """A RequestError that also carries the code and headers of its HTTP answer."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        field: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message, status=status, field=field, retry_after=retry_after)
        self.code = code
        self.headers = headers


class Voice:
    """What an API says beside its answers: errors and signs of life. This one's is OpenAI's.

    `headers` go with every answer.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def error(self, error: RequestError) -> bytes:
        """The body of an answer that is an error."""
        return error_payload(error)

    def error_event(self, error: RequestError) -> bytes:
        """An error within a stream, its last event."""
        return b"data: " + self.error(error) + b"\n\n"

    def ping(self) -> bytes:
        """What goes into a silent stream, also before its first part; SSE's comment."""
        return b": ping\n\n"


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


def error_payload(error: RequestError) -> bytes:
    """The JSON of an error, for a response's body as for an event within a stream."""
    status = error.status
    other = "server_error" if status >= 500 else "invalid_request_error"
    kind, code = _KINDS.get(status, (other, None))
    if isinstance(error, Refusal) and error.code:
        code = error.code
    body = {"message": sentence(error), "type": kind, "param": error.field, "code": code}
    return orjson.dumps({"error": body})


def sentence(error: RequestError) -> str:
    """What an error says, of bounded length."""
    message = str(error)
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + "…"
    # A message may quote text that is no valid UTF-8 once encoded; the JSON must be.
    return message.encode("utf-8", "replace").decode("utf-8")
