"""Who may speak to this server: Host, Origin and API key.

A web page that someone visits can make their browser send requests to a server on
their own machine, under its own origin or, by rebinding its name to 127.0.0.1, under
the server's. So the Host must be a name that an attacker cannot own, and an Origin must
be the server's own or listed. Keys are compared in constant time, every one of them.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from strata.config import is_loopback
from strata.server.errors import Refusal
from strata.server.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Access:
    """What is let in.

    `hosts` are names accepted in Host beside IP addresses and localhost, "*" any.
    `origins` are web origins (scheme://host[:port]) whose pages may call, "*" any.
    `body_limit` is the largest request body in bytes.
    """

    api_keys: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    body_limit: int = 64 * 1024 * 1024


def own_names(host: str) -> frozenset[str]:
    """Names that mean this machine when it listens on `host`: its host name if not loopback."""
    names = {host.lower()}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def admit(exchange: Exchange, access: Access) -> None:
    """Let a request pass or raise 400/403. The key is asked for by `identify`."""
    hosts = exchange.headers(b"host")
    if len(hosts) > 1:
        raise Refusal("more than one Host header", status=400)
    for host in hosts:
        if not _known_host(host, access):
            raise Refusal(
                f"the host name {host[:100]!r} is not served here (a guard against DNS "
                "rebinding); use an IP address or localhost, or start with --allow-host NAME",
                status=403,
                code="host_not_allowed",
            )
    for origin in exchange.headers(b"origin"):
        if not _known_origin(origin, hosts, access):
            raise Refusal(
                f"pages of {origin[:100]!r} may not call this server; "
                "start with --allow-origin ORIGIN to let them",
                status=403,
                code="origin_not_allowed",
            )


def identify(exchange: Exchange, access: Access) -> str:
    """The caller's name for cache namespaces: "" unless several keys are configured.

    Raises 401 when keys are configured and none of them was sent.
    """
    if not access.api_keys:
        return ""
    sent = _digest(_sent_key(exchange))
    known = [_digest(key) for key in access.api_keys]
    matches = [digest for digest in known if hmac.compare_digest(sent, digest)]
    if not matches:
        raise Refusal(
            "missing or wrong API key; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
            status=401,
            headers=((b"www-authenticate", b"Bearer"),),
        )
    return "" if len(known) == 1 else sent.hex()


def _sent_key(exchange: Exchange) -> str:
    for value in exchange.headers(b"authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            return key.strip()
    return next(iter(exchange.headers(b"x-api-key")), "").strip()


def _digest(key: str) -> bytes:
    """Of equal length for any key, so that comparing tells nothing about lengths."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def _known_host(value: str, access: Access) -> bool:
    """For "name", "name:port" or "[v6]:port"."""
    if "*" in access.hosts:
        return True
    try:
        parts = urlsplit(f"//{value}")
        parts.port  # noqa: B018 - raises on a port that is no number
    except ValueError:
        return False
    if parts.username is not None or parts.netloc != value or not parts.hostname:
        return False
    name = parts.hostname.rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or name in access.hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _known_origin(value: str, hosts: list[str], access: Access) -> bool:
    if "*" in access.origins or value in access.origins:
        return True
    try:
        netloc = urlsplit(value).netloc
    except ValueError:
        return False
    return bool(netloc) and netloc.lower() in (host.lower() for host in hosts)
