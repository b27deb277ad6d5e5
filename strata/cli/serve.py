"""`strata serve`: listens at once, loads the model meanwhile, then answers.

While the model loads, GET /health says 503 and how far it is. The first interrupt lets answers
end, a second one does not. A load that fails ends the server with one sentence.
"""

from __future__ import annotations

import argparse
import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import strata
from strata.cli import assemble, flags
from strata.cli.log import set_up_log
from strata.cli.terminal import Progress
from strata.config import model_folder
from strata.settings import Config

ABOUT = "serve a model over the OpenAI API"
add_arguments = flags.add_settings


def run(chosen: argparse.Namespace, greet: Callable[[str], None] | None = None) -> int:
    """Serve until interrupted. `greet` is called with the URL once the model is there."""
    resolved = flags.resolve(chosen)
    config = resolved.config
    assemble.check(resolved)
    set_up_log(config.log_level, config.log_format)

    from strata.server.app import create_app
    from strata.server.guard import Access, own_names
    from strata.server.monitor.traces import Traces
    from strata.server.run import serve
    from strata.server.service import Lobby

    print(f"strata {strata.__version__}\n\nsettings\n{_indent(str(resolved))}\n")
    lobby = Lobby()
    traces = Traces(lobby) if config.tracing else None
    loading = Loading(config, lobby, greet)
    access = Access(
        config.api_key,
        own_names(config.host) | {name.lower() for name in config.allow_host},
        frozenset(config.allow_origin),
    )
    app = create_app(lobby, access)
    serve(app, config.host, config.port, on_ready=loading.begin, on_end=lobby.close)
    try:
        return loading.end()
    finally:
        if traces is not None:
            traces.close()


class Loading:
    """Loads the model on a thread of its own and opens the lobby; owns the engine."""

    def __init__(
        self, config: Config, lobby: Any, greet: Callable[[str], None] | None = None
    ) -> None:
        """`lobby` is a `strata.server.service.Lobby`."""
        self._greet = greet
        self._config, self._lobby, self._url = config, lobby, ""
        self._progress = Progress()
        self._plant: assemble.Plant | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._load, name="strata-load", daemon=True)

    def begin(self, url: str) -> None:
        """Start to load, for the server that listens at `url`."""
        self._url = url
        print(f"listening on {self._url} and loading the model\n", flush=True)
        self._thread.start()

    def end(self) -> int:
        """Stop loading and the engine; the exit status. Raises what the load failed with."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        self._progress.close()
        if self._error is not None:
            raise self._error
        if self._plant is not None:
            self._plant.stop()
        print("stopped")
        return 0

    def _load(self) -> None:
        began = time.monotonic()
        try:
            self._plant = assemble.build(self._config, model_folder(), self._watch, self._report)
        except _Stopped:
            return
        except Exception as error:
            self._error = error
            signal.raise_signal(signal.SIGTERM)  # ends `serve`, which runs on the main thread
            return
        gc.collect()
        gc.freeze()  # what loading made stays: collections need not walk it again
        self._lobby.open(self._plant.service)
        model = self._plant.service.model
        print(
            f"\nready after {time.monotonic() - began:.1f} s: {self._url}/v1   model {model.id}\n"
            f"{self._url} in a browser shows what it does; Ctrl-C stops it",
            flush=True,
        )
        if self._greet is not None:
            self._greet(self._url)

    def _watch(self, what: str, done: int, total: int | None) -> None:
        """A ProgressSink that can also end the load."""
        if self._stopping:
            raise _Stopped
        part = f" ({100 * done // total} %)" if total else ""
        self._lobby.say(f"the model is being loaded: {what}{part}")
        self._progress(what, done, total)

    def _report(self, text: str) -> None:
        self._progress.close()
        print(_indent(text), flush=True)


class _Stopped(Exception):
    """The server ends before the model is there."""


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
