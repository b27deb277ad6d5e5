"""The web page at `/`: files beside this module, given out as they are.

Knows no engine and no figures: in the browser the page asks the API for them, as any client
does, and with the key that its reader types in. So the files are public, and say nothing of
the server. They are read once; a name that is not among them does not exist, so no path leads
out of the folder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from strata.server.errors import Refusal
from strata.server.exchange import Exchange, Headers

START = "index.html"
VARY = ((b"vary", b"accept"),)
_KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# The page shows text that a model wrote: what is not a file of ours neither runs nor loads.
_POLICY = (
    b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it goes out. `tag` is its ETag."""

    content: bytes
    kind: bytes
    tag: str


@cache
def files() -> dict[str, WebFile]:
    """Every file of the page, by name."""
    found = {}
    for entry in resources.files(__name__).iterdir():
        kind = _KINDS.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            content = entry.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
            found[entry.name] = WebFile(content, kind, tag)
    return found


def wanted(exchange: Exchange) -> bool:
    """Whether a page is asked for: by browsers, which accept text/html, and say so."""
    return any("text/html" in value.lower() for value in exchange.headers(b"accept"))


async def send(exchange: Exchange, name: str, more: Headers = ()) -> None:
    """Answer with a file, or 304 to who has it already. Raises a 404 for one that is not there.

    Browsers keep files and ask each time whether they still hold (RFC 9111, 5.2.2.4), so that a
    new version of the server is never driven by an old page.
    """
    file = files().get(name)
    if file is None:
        raise Refusal("the page has no such file", status=404)
    headers = [
        (b"etag", file.tag.encode()),
        (b"cache-control", b"no-cache"),
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        *more,
    ]
    known = ",".join(exchange.headers(b"if-none-match"))
    if file.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        await exchange.unchanged(headers)
    else:
        await exchange.reply(200, file.content, file.kind, headers)


async def serve(exchange: Exchange, caller: str) -> None:
    """GET /web/{name}."""
    await send(exchange, str(exchange.scope["path_params"]["name"]))
