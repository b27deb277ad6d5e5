"""What a job costs, when it must end, and how its runs take turns."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from strata.server.app import create_app
from strata.server.generate import Tally
from strata.server.job import Run
from strata.server.openai import usage_of
from strata.server.service import Limits, Lobby
from strata.types import Request


def test_server_imports_without_torch():
    code = (
        "import sys; import strata.server.app, strata.server.run; "
        "sys.exit('torch' in sys.modules or 'strata.engine.loop' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("tallies", "expected"),
    [
        # (prompt number, prompt tokens, cached, completion)
        ([(0, 10, 4, 3)], (10, 4, 3)),
        ([(0, 10, 4, 3), (0, 10, 9, 2)], (10, 4, 5)),
        ([(0, 10, 9, 3), (0, 10, 0, 2)], (10, 0, 5)),
        ([(0, 10, 4, 1), (1, 20, 6, 1)], (30, 10, 2)),
    ],
)
def test_usage(tallies, expected):
    runs = [Run(i, t[0], Request(str(i), (1,), 1), ()) for i, t in enumerate(tallies)]
    counts = [Tally(prompt=t[1], seen=0.0, cached=t[2], completion=t[3]) for t in tallies]
    told = usage_of(runs, counts)
    cached = told["prompt_tokens_details"]["cached_tokens"]
    assert (told["prompt_tokens"], cached, told["completion_tokens"]) == expected
    assert told["total_tokens"] == expected[0] + expected[2]


def test_deadline(make_call, service, engine):
    call = make_call()
    call.app = create_app(Lobby(replace(service, limits=Limits(timeout_s=30))))
    before = time.monotonic()
    assert call.complete().status == 200
    assert before + 30 <= engine.requests[0].deadline <= time.monotonic() + 30


def test_many_runs_take_turns(call, engine):
    """At most `at_once` (here 4) of a request's runs are in the engine's queue."""
    running = []
    most = []

    def script(request):
        running.append(request.id)
        most.append(len(running))
        yield 0.01
        yield 97
        running.remove(request.id)
        from strata.types import Finish

        yield Finish.STOP

    engine.script = script
    body = call.complete(prompt=["a"] * 10, n=2).json()
    assert [c["index"] for c in body["choices"]] == list(range(20))
    assert max(most) == 4
