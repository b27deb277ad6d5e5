"""Copiers: what runs first, what failures come to, waiting and closing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import pytest

from strata.memory.transfer import ThreadCopier
from strata.types import StorageError


class Gate:
    """A job that holds a thread until it is opened."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.open.wait(10)


@pytest.fixture
def copier() -> Iterator[ThreadCopier]:
    copier = ThreadCopier(1)
    yield copier
    copier.close()


def settle(copier: ThreadCopier, transfers: list) -> None:
    while left := [one for one in transfers if not one.settled]:
        copier.wait(left)


def fail(error: Exception) -> None:
    raise error


def test_urgent_jobs_come_first_and_equals_in_turn(copier: ThreadCopier) -> None:
    gate, order = Gate(), list[str]()
    transfers = [copier.submit(gate, 0)]
    gate.begun.wait(10)
    for name, urgent in (("a", False), ("b", False), ("C", True), ("c", False), ("D", True)):
        transfers.append(copier.submit(lambda name=name: order.append(name), 1, urgent))
    copier.hasten(transfers[2])  # b
    copier.hasten(transfers[3])  # C, urgent already: keeps its turn
    assert not any(one.settled for one in transfers)
    gate.open.set()
    settle(copier, transfers)
    assert "".join(order) == "CDbac"


def test_hastening_what_has_begun_or_ended_does_nothing(copier: ThreadCopier) -> None:
    runs, gate = list[int](), Gate()

    def job() -> None:
        runs.append(1)
        gate()

    transfer = copier.submit(job, 7, urgent=False)
    gate.begun.wait(10)
    copier.hasten(transfer)
    gate.open.set()
    copier.wait([transfer])
    copier.hasten(transfer)
    settle(copier, [copier.submit(lambda: None, 0)])
    assert runs == [1] and transfer.nbytes == 7 and transfer.error is None


def test_waiting_ends_with_the_first_that_settles() -> None:
    copier, gate = ThreadCopier(2), Gate()
    slow, quick = copier.submit(gate, 0), copier.submit(lambda: None, 0)
    copier.wait([slow, quick])
    assert quick.settled and not slow.settled
    gate.open.set()
    copier.wait([slow])
    assert slow.settled and slow.seconds > quick.seconds > 0
    copier.close()


def test_failures_are_told_and_the_thread_lives_on(
    copier: ThreadCopier, caplog: pytest.LogCaptureFixture
) -> None:
    for error, text in (
        (StorageError("record 3 is gone"), "record 3 is gone"),
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
    ):
        transfer = copier.submit(lambda error=error: fail(error), 1)
        copier.wait([transfer])
        assert transfer.error == text
    assert not caplog.records
    transfer = copier.submit(lambda: fail(ZeroDivisionError("ours")), 1)
    copier.wait([transfer])
    assert transfer.error == "ZeroDivisionError: ours"
    assert "ZeroDivisionError" in caplog.text
    after = copier.submit(lambda: None, 1)
    copier.wait([after])
    assert after.error is None


def test_closing_waits_for_what_runs_and_fails_the_rest() -> None:
    copier, gate, ran = ThreadCopier(1), Gate(), list[int]()
    running = copier.submit(gate, 0)
    gate.begun.wait(10)
    queued = [copier.submit(lambda: ran.append(1), 0, urgent) for urgent in (True, False)]
    closing = threading.Thread(target=copier.close)
    closing.start()
    settle(copier, queued)  # at once, though the thread is busy
    assert closing.is_alive() and not running.settled
    gate.open.set()
    closing.join(10)
    assert running.settled and running.error is None
    assert not ran and all("closed" in (one.error or "") for one in queued)
    late = copier.submit(lambda: ran.append(1), 0)
    assert late.settled and late.error and not ran
    copier.wait([late])
    copier.close()


def test_what_a_job_holds_is_let_go_once_it_ran(copier: ThreadCopier) -> None:
    job = Gate()
    gone = weakref.ref(job)
    job.open.set()
    settle(copier, [copier.submit(job, 0)])
    del job
    assert gone() is None


def test_many_jobs_on_many_threads_all_run_once() -> None:
    copier, ran, lock = ThreadCopier(4), list[int](), threading.Lock()

    def job(number: int) -> None:
        with lock:
            ran.append(number)

    transfers = [copier.submit(lambda n=n: job(n), 0, n % 3 == 0) for n in range(2000)]
    for transfer in transfers[::5]:
        copier.hasten(transfer)
    settle(copier, transfers)
    assert sorted(ran) == list(range(2000))
    copier.close()
