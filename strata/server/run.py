"""Running the application with uvicorn: the socket, its settings, and a graceful end.

SIGINT or SIGTERM stops accepting, lets answers end for `grace_s` seconds, then ends
them with an error event; a second signal ends at once.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from strata.types import ConfigError

# Longer than any client keeps an idle connection (llama-benchy: 600 s): a POST that
# meets a closing connection is not repeated.
KEEP_ALIVE_S = 620
BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ConfigError when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another "
            "with --host and --port"
        ) from None
    return listener


def address(listener: socket.socket) -> str:
    """The URL under which a bound socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """A uvicorn server that says when it accepts connections, and when it stops to."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready, self._on_end = on_ready, on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept, then tell."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell, then wait for what is being answered."""
        self._on_end()
        await super().shutdown(sockets)


def make_server(
    app: ASGIApp,
    *,
    grace_s: int = 10,
    on_ready: Callable[[], None] = lambda: None,
    on_end: Callable[[], None] = lambda: None,
) -> Server:
    """uvicorn on uvloop and httptools, without its own access log."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )
    return Server(config, on_ready, on_end)


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    grace_s: int = 10,
    on_ready: Callable[[str], None] = lambda url: None,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Serve on the main thread until SIGINT or SIGTERM, then return.

    `on_ready` is told the address once connections are accepted, `on_end` runs when they no longer
    are, and should end what would not end by itself. Raises ConfigError when the address cannot be
    listened on.
    """
    listener = bind(host, port)
    server = make_server(
        app, grace_s=grace_s, on_ready=lambda: on_ready(address(listener)), on_end=on_end
    )
    # uvicorn raises a caught signal again when it has ended; here that is no news.
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, action in before.items():
            signal.signal(number, action)
