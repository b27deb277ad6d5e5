"""Engine: the thread that steps the core, and its letter box.

Other threads leave messages (a new sequence, a cancellation, a wish to clear the
cache); the engine thread takes them between two steps and sends out the events of
each step. `turn` is one round of it and can be called by hand instead of `start`.

Idle, it sleeps on a condition. The trie's invariants are not checked when idle: the
walk would delay whoever comes next, and the tests run it after every step.
"""

from __future__ import annotations

import logging
import math
import secrets
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar

from strata.cache.prefix import PrefixCache
from strata.engine.core import Clocks, Core
from strata.engine.outlet import Outlet, Told, send_all
from strata.engine.runner import Runner
from strata.engine.sequence import Sequence
from strata.engine.settings import EngineSettings, Limits
from strata.figures import Freed, Prefix, Record, Snapshot, Survey, View
from strata.models.decoder import Decoder, Experts
from strata.types import DoneEvent, FailedEvent, Finish, Request, RequestError, RowState

_log = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds that another thread may keep the interpreter from the engine thread. A step leaves it
# while kernels run and wants it back at once: Python's own 5 ms are more than a small model's step.
_SWITCH_S = 0.0005
# Pause when sequences live but none could run: a fault elsewhere must not become a spin.
_STUCK_S = 0.01

_LONGEST_RETRY_S = 60


class Engine:
    """One model, one cache, one thread. `start` it, or call `turn` by hand.

    `error` says why it stopped for good; None while all is well.
    """

    def __init__(
        self,
        model: Decoder,
        settings: EngineSettings,
        *,
        pages: int,
        states: int = 0,
        block: int = 16,
        device: str = "cpu",
        context: int | None = None,
        clocks: Clocks | None = None,
        experts: Experts | None = None,
    ) -> None:
        """`pages` of `block` tokens and, where the model keeps states, `states` of them.

        `context` bounds prompt and answer together, in tokens; None is the model's own.
        `experts` has those of the model's mixtures, unless they are held with the weights.
        """
        clocks = clocks or Clocks(time.monotonic, time.time)
        runner = Runner(
            model, pages=pages, states=states, block=block, device=device, experts=experts
        )
        cache = PrefixCache(
            pages,
            block,
            states if runner.states else None,
            runner.pages.nbytes,
            runner.states.nbytes if runner.states else 1,
            clocks.now,
        )
        self.limits = Limits(context or model.context_length, pages * block, model.vocab_size)
        self.core = Core(runner, cache, settings, clocks)
        self.error: str | None = None
        self._settings = settings
        self._bell = threading.Condition()
        self._box: list[Callable[[Core], list[Told]]] = []
        self._alive: dict[str, Outlet] = {}
        self._asked: set[Future[Any]] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False

    # -------------------------------------------------------------- from any thread

    def submit(self, request: Request, outlet: Outlet) -> None:
        """Have `request` answered into `outlet`; its last event is a Done or a Failed one.

        Raises RequestError: 400 when it can never run, 429 when the queue is full,
        503 when the engine has stopped.
        """
        request = self.limits.admit(request)
        seed = request.sampling.seed
        sequence = Sequence(
            request,
            seed=secrets.randbits(63) if seed is None else seed,
            arrived=self.core.clocks.now(),
            outlet=outlet,
        )
        with self._bell:
            self._check_open()
            if request.id in self._alive:
                raise RequestError(f"a request {request.id!r} is running already", field="id")
            if len(self._alive) >= self._settings.batch + self._settings.max_queue:
                raise RequestError(
                    f"{self._settings.max_queue} requests are waiting already; try again later",
                    status=429,
                    retry_after=self._retry_after(),
                )
            self._alive[request.id] = outlet
            self._leave_message(lambda core: core.add(sequence))

    def cancel(self, request_id: str, finish: Finish = Finish.CANCELLED) -> None:
        """End a request at the next step. Harmless when it has ended or never was.

        `finish` is what its record says: STOP when its reader has seen a stop string.
        """
        with self._bell:
            if request_id in self._alive:
                self._leave_message(lambda core: core.cancel(request_id, finish))

    def clear_cache(self) -> Future[Freed]:
        """Drop every cached prefix that no running row uses; resolves to what that freed."""

        def clear(core: Core) -> Freed:
            before = core.cache.stats()
            core.cache.clear()
            after = core.cache.stats()
            pages = after.pages_free - before.pages_free
            states = after.states_free - before.states_free
            size = pages * after.page_bytes + states * after.state_bytes
            return Freed(pages, states, size)

        return self._ask(clear)

    def survey(self, depth: int, limit: int) -> Future[Survey]:
        """What is cached: at most `limit` stretches, the last used first, `depth` deep."""
        return self._ask(lambda core: core.cache.survey(depth, limit))

    def prefix(self, number: int, namespace: str) -> Future[Prefix | None]:
        """The tokens of a stretch; None when it is gone or another namespace's."""
        return self._ask(lambda core: core.cache.prefix(number, namespace))

    def _ask(self, question: Callable[[Core], T]) -> Future[T]:
        """Have the engine thread answer between two steps. Raises RequestError 503."""
        done: Future[T] = Future()

        def answer(core: Core) -> list[Told]:
            self._asked.discard(done)
            done.set_result(question(core))
            return []

        with self._bell:
            self._check_open()
            self._asked.add(done)
            self._leave_message(answer)
        return done

    def snapshot(self) -> Snapshot:
        """Counters of this moment, at most a step old: all of them are plain numbers."""
        core = self.core
        scheduler, runner = core.scheduler, core.runner
        counted = asdict(core.cache.stats()) | asdict(core.counters)
        del counted["stepped"]
        counted |= {"running": len(scheduler.running), "parked": len(scheduler.parked)}
        return Snapshot(
            **counted,
            ready=self.ready,
            queued=len(scheduler.queue),
            preemptions=scheduler.preemptions,
            experts=runner.figures(),
            rows=runner.model.rows(),
            loading=runner.waiting,
            spreads=core.journal.spreads.copy(),
        )

    def rows(self) -> tuple[RowState, ...]:
        """The requests that run at this moment, at most a step old."""
        return tuple(sequence.state() for sequence in tuple(self.core.scheduler.running))

    @property
    def view(self) -> View:
        """Who lives, at most a step or a tenth of a second old."""
        return self.core.window.view

    @property
    def records(self) -> tuple[Record, ...]:
        """The last 500 finished requests, the newest first."""
        return self.core.journal.records

    @property
    def ready(self) -> bool:
        """Whether requests are being answered."""
        return self.error is None and self._thread is not None and self._thread.is_alive()

    # -------------------------------------------------------------- the thread

    def start(self) -> None:
        """Begin to answer, on a thread of the engine's own."""
        assert self._thread is None
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_S))
        self._thread = threading.Thread(target=self._run, name="strata-engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step now running; whoever still waits gets a FailedEvent."""
        with self._bell:
            self._stopping = True
            self._bell.notify()
        if self._thread is not None:
            self._thread.join()

    def turn(self) -> bool:
        """One round: take messages, compute a step, tell. Whether any sequence still lives."""
        with self._bell:
            messages, self._box = self._box, []
        told: list[Told] = []
        for message in messages:
            told += message(self.core)
        if self.core.busy:
            told += self.core.step()
        if not self.core.busy:
            self.core.show()
        self._tell(told)
        return self.core.busy

    def _run(self) -> None:
        message = "the server is shutting down"
        try:
            while self._sleep():
                before = self.core.counters.steps
                busy = self.turn()
                if busy and self.core.counters.steps == before and not self._box:
                    time.sleep(_STUCK_S)
        except Exception as error:
            _log.exception("the engine stopped")
            message = self.error = f"the engine stopped: {type(error).__name__}: {error}"
        finally:
            self._close(message)

    def _sleep(self) -> bool:
        """Wait until there is something to do; False when it is time to end."""
        with self._bell:
            while not (self._box or self.core.busy or self._stopping):
                self._bell.wait()
            return not self._stopping

    def _close(self, message: str) -> None:
        """Tell everyone who still waits that no answer will come."""
        with self._bell:
            self._stopping = True
            self._box.clear()
            asked, self._asked = self._asked, set()
            waiting = list(self._alive.items())
        for future in asked:
            future.cancel()
        self._tell([(outlet, FailedEvent(name, message, 503)) for name, outlet in waiting])

    # -------------------------------------------------------------- inside

    def _leave_message(self, message: Callable[[Core], list[Told]]) -> None:
        self._box.append(message)
        self._bell.notify()

    def _check_open(self) -> None:
        if self.error is not None or self._stopping:
            raise RequestError(self.error or "the server is shutting down", status=503)

    def _retry_after(self) -> int:
        """Seconds until a place in the queue should be free: a row's mean time over the rows."""
        mean = self.core.journal.mean_s or 1.0
        return max(1, min(_LONGEST_RETRY_S, math.ceil(mean / self._settings.batch)))

    def _tell(self, told: list[Told]) -> None:
        ended = [e.request_id for _, e in told if isinstance(e, DoneEvent | FailedEvent)]
        if ended:
            with self._bell:
                for name in ended:
                    self._alive.pop(name, None)
        if told:
            send_all(told)
