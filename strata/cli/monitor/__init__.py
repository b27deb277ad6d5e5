"""`strata monitor [URL]`: what a server is doing, in the terminal.

The same figures as the page's Monitor: `feed` follows the server, `told` is what it says, `seen`
what is kept of it, `wording`, `tables` and `lines` are how it is written, `app` is the screen. With
--once the figures are printed once. The screen is imported only when it is shown; torch never.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from strata.cli import flags
from strata.settings import Config
from strata.types import ConfigError

if TYPE_CHECKING:
    from strata.cli.monitor.feed import Feed

ABOUT = "watch a running server: speed, memory, requests"
_OWN = ("api_key", "api_key_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes: of the settings only those of the key."""
    text = "the server (default: http://127.0.0.1:8080, or the --port of the settings)"
    parser.add_argument("url", nargs="?", default="", metavar="URL", help=text)
    text = "print the figures once, as text, and end"
    parser.add_argument("--once", action="store_true", help=text)
    flags.add_settings(parser, without={one.name for one in fields(Config)} - {*_OWN})


def run(chosen: argparse.Namespace) -> int:
    """Watch until q, or print once. ConfigError, RequestError."""
    from strata.cli.monitor.feed import Feed

    config = flags.resolve(chosen).config
    url = chosen.url or f"http://127.0.0.1:{config.port or 8080}"
    feed = Feed(url, next(iter(config.api_key), ""))
    if chosen.once:
        print(asyncio.run(_once(feed)))
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("the monitor needs a terminal; --once prints the figures as text")

    from strata.cli.monitor.app import Monitor

    Monitor(feed).run()
    return 0


async def _once(feed: Feed) -> str:
    from strata.cli.monitor.lines import plain
    from strata.cli.monitor.seen import Seen

    async with feed:
        seen = Seen()
        seen.take(await feed.once())
        return plain(seen, feed.url)
