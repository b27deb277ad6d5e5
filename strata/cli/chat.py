"""`strata chat`: a conversation in the terminal, with a running server or a model of its own.

A model of its own is served too, by this process on a free local port with a key that nobody else
knows: so there is one way to talk, and a chat shows what any client would see.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import threading
from collections.abc import Iterator
from typing import Any

from strata.cli import assemble, flags
from strata.cli.conversation import Conversation, Link
from strata.cli.log import set_up_log
from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.settings import Config
from strata.types import ConfigError, StrataError

ABOUT = "talk to a running server, or to a model loaded for it"
HELP = """\
/system TEXT  set the system message (without TEXT: remove it) and start again
/reset        forget the conversation
/help         show this
/quit         leave (so does Ctrl-D)
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes beside settings."""
    text = "a running server, http://127.0.0.1:8080 (default: load MODEL in this process)"
    parser.add_argument("--url", default="", help=text)
    parser.add_argument("--key", default="", help="API key of that server (default: none)")
    text = "system message (default: none)"
    parser.add_argument("--system", default="", metavar="TEXT", help=text)
    text = "longest answer [tokens] (default: what the context leaves)"
    parser.add_argument("--max-tokens", type=int, metavar="X", help=text)
    flags.add_settings(parser, without=flags.SERVER_ONLY)


def run(chosen: argparse.Namespace) -> int:
    """Talk until /quit or the end of the input."""
    resolved = flags.resolve(chosen)
    config = resolved.config
    extra: dict[str, Any] = {**config.sampling}
    if chosen.max_tokens is not None:
        if chosen.max_tokens < 1:
            raise ConfigError(f"--max-tokens: {chosen.max_tokens} must be 1 or more")
        extra["max_tokens"] = chosen.max_tokens
    with contextlib.ExitStack() as stack:
        if chosen.url:
            link = Link(chosen.url, chosen.key, config.model)
        else:
            assemble.check(resolved)
            set_up_log("error" if config.log_level == "info" else config.log_level)
            link = stack.enter_context(_own_server(config))
        stack.enter_context(link)
        talk(Conversation(link, chosen.system, extra))
    return 0


@contextlib.contextmanager
def _own_server(config: Config) -> Iterator[Link]:
    """Loads the model and serves it to this process alone."""
    from strata.server.app import create_app
    from strata.server.guard import Access
    from strata.server.run import address, bind, make_server
    from strata.server.service import Lobby

    progress = Progress()
    plant = assemble.build(config, model_folder(), progress, lambda text: None)
    progress.close()
    key = secrets.token_urlsafe(32)
    started = threading.Event()
    with bind("127.0.0.1", 0) as listener:
        app = create_app(Lobby(plant.service), Access((key,)))
        server = make_server(app, grace_s=1, on_ready=started.set)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        started.wait()
        try:
            yield Link(address(listener), key, plant.service.model.id)
        finally:
            server.should_exit = True
            thread.join()
            plant.stop()


def talk(conversation: Conversation) -> None:
    """Read messages from standard input and stream the answers."""
    person = sys.stdin.isatty()
    if person:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() editing and recall
        print(f"{conversation.link.model or 'chat'}: type a message, or /help\n")
    while (line := _read(person)) is not None:
        text = line.strip()
        if text in ("/quit", "/exit"):
            return
        if text.startswith("/"):
            print(_command(conversation, text))
        elif text:
            _answer(conversation, text, person)


def _read(person: bool) -> str | None:
    """A message, its continued lines joined; None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = input(("> " if not lines else "  ") if person else "")
        except EOFError:
            if person:
                print()
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            if not person:
                raise
            print("\n(/quit or Ctrl-D leaves)")
            lines.clear()
            continue
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            return "\n".join(lines)


def _command(conversation: Conversation, text: str) -> str:
    name, _, rest = text.partition(" ")
    if name == "/reset":
        conversation.reset()
        return "(the conversation is forgotten)"
    if name == "/system":
        conversation.set_system(rest.strip())
        return f"(system message {'set' if rest.strip() else 'removed'}, conversation forgotten)"
    return HELP if name == "/help" else f"there is no command {name}\n{HELP}"


def _answer(conversation: Conversation, text: str, person: bool) -> None:
    """Stream one answer; an interrupt stops it, an error is told and the talk goes on."""
    stream = conversation.ask(text)
    try:
        for piece in stream:
            print(piece, end="", flush=True)
        print()
    except KeyboardInterrupt:
        print("\n(stopped)")
    except StrataError as error:
        if not person:
            raise
        print(f"strata: {error}", file=sys.stderr)
    finally:
        stream.close()
    if person and conversation.note:
        print(f"\x1b[2m{conversation.note}\x1b[0m", file=sys.stderr)
