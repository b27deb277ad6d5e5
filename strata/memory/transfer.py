"""Transfer and Copier: bytes on their way.

A copier runs jobs, each of which moves bytes to where they belong; a transfer is one of them. It
is the only thing below the engine's client that is not yet true. Knows nothing of what is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol


class Transfer:
    """One job on its way. `settled` once it is over; then `error` says why it failed, if it did.

    Written by the copier alone.
    """

    __slots__ = ("error", "nbytes", "seconds", "settled")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.settled = False
        self.error: str | None = None
        self.seconds = 0.0  # that the job took


class Copier(Protocol):
    """Runs jobs. A job may raise StrataError or OSError: its transfer has then failed."""

    def submit(self, job: Callable[[], None], nbytes: int, urgent: bool = True) -> Transfer:
        """Starts a job as soon as it can; urgent ones come before all others."""

    def hasten(self, transfer: Transfer) -> None:
        """Makes a transfer urgent, if it has not begun."""

    def wait(self, transfers: Collection[Transfer]) -> None:
        """Returns once at least one of them is settled."""

    def close(self) -> None:
        """Waits for what is running and drops the rest, which fails."""
