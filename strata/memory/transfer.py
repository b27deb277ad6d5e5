"""Transfer and ThreadCopier: bytes on their way.

A copier runs jobs, each of which moves bytes to where they belong; a transfer is one of them. It
is the only thing below the engine's client that is not yet true. Knows nothing of what is moved.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from time import perf_counter

from strata.types import StrataError

_log = logging.getLogger(__name__)
Job = Callable[[], object]


class Transfer:
    """One job on its way. `settled` once it is over; then `error` says why it failed, if it did.

    Written by the copier alone, `settled` last: whoever sees it set may read the rest, and the
    bytes that were moved.
    """

    __slots__ = ("error", "nbytes", "seconds", "settled")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.settled = False
        self.error: str | None = None
        self.seconds = 0.0  # that the job took


class ThreadCopier:
    """Runs jobs on `threads` threads, urgent ones first, in the order of submission among equals. A
    job may raise StrataError or OSError: its transfer has then failed.

    The lock guards both queues and every transfer; jobs run outside of it.
    """

    def __init__(self, threads: int, name: str = "strata-copier") -> None:
        """`name` is what the threads are called."""
        assert threads > 0
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._urgent: OrderedDict[Transfer, Job] = OrderedDict()
        self._later: OrderedDict[Transfer, Job] = OrderedDict()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, nbytes: int, urgent: bool = True) -> Transfer:
        """Queues a job; after `close` it fails at once."""
        transfer = Transfer(nbytes)
        with self._lock:
            if self._closed:
                _settle(transfer, "the copier is closed")
            else:
                (self._urgent if urgent else self._later)[transfer] = job
                self._work.notify()
        return transfer

    def hasten(self, transfer: Transfer) -> None:
        """Moves a job that waits among the others behind the urgent ones."""
        with self._lock:
            if (job := self._later.pop(transfer, None)) is not None:
                self._urgent[transfer] = job

    def wait(self, transfers: Collection[Transfer]) -> None:
        """Returns once at least one of `transfers`, of which there must be some, is settled."""
        assert transfers
        with self._lock:
            self._done.wait_for(lambda: any(one.settled for one in transfers))

    def close(self) -> None:
        """Drops what has not begun and waits for the rest. May be called again."""
        with self._lock:
            self._closed = True
            for transfer in (*self._urgent, *self._later):
                _settle(transfer, "the copier was closed before it began")
            self._urgent.clear()
            self._later.clear()
            self._work.notify_all()
            self._done.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (taken := self._next()) is not None:
            transfer, job = taken
            began, error = perf_counter(), None
            try:
                job()
            except (StrataError, OSError) as failure:
                error = str(failure)
            except Exception as failure:
                # Our own mistake: it must not end the thread, or whoever waits waits for ever.
                _log.exception("a transfer failed")
                error = f"{type(failure).__name__}: {failure}"
            del taken, job  # what the job holds is not held until the next one comes
            with self._lock:
                _settle(transfer, error, perf_counter() - began)
                self._done.notify_all()

    def _next(self) -> tuple[Transfer, Job] | None:
        """The job to run now; None once closed."""
        with self._lock:
            self._work.wait_for(lambda: self._urgent or self._later or self._closed)
            queue = self._urgent or self._later
            return queue.popitem(last=False) if queue else None


def _settle(transfer: Transfer, error: str | None, seconds: float = 0.0) -> None:
    transfer.error, transfer.seconds = error, seconds
    transfer.settled = True
