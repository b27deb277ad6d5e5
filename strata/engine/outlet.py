"""Where events leave the engine.

A sequence has an `Outlet`; outlets of one receiver share a `Channel`, and the
events of one step reach each channel in one call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Protocol

from strata.types import Event

_log = logging.getLogger(__name__)


class Channel(Protocol):
    """Takes the events of one step for one receiver. Called on the engine thread."""

    def send(self, batch: list[tuple[Outlet, Event]]) -> None:
        """Hand the events over, in order. Must not block and must not raise."""


class Outlet(Protocol):
    """One sequence's receiver."""

    @property
    def channel(self) -> Channel:
        """Through what the events go."""

    def put(self, event: Event) -> None:
        """Take one event, on the receiver's own thread."""


def send_all(events: Iterable[tuple[Outlet, Event]]) -> None:
    """Send the events of a step: one call per channel, order kept."""
    batches: dict[Channel, list[tuple[Outlet, Event]]] = {}
    for outlet, event in events:
        batches.setdefault(outlet.channel, []).append((outlet, event))
    for channel, batch in batches.items():
        channel.send(batch)


class LoopChannel:
    """Into an asyncio event loop, waking it once per step."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def send(self, batch: list[tuple[Outlet, Event]]) -> None:
        """Schedule the delivery on the loop's thread."""
        try:
            self._loop.call_soon_threadsafe(_deliver, batch)
        except RuntimeError:  # the loop is closed: nobody is left to read them
            _log.debug("dropped %d events for a closed event loop", len(batch))


class DirectChannel:
    """Straight into the outlets, on the engine thread: they must be thread-safe."""

    def send(self, batch: list[tuple[Outlet, Event]]) -> None:
        """Deliver at once."""
        _deliver(batch)


class QueueOutlet:
    """Events for another thread, in a queue."""

    channel: Channel = DirectChannel()

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()

    def put(self, event: Event) -> None:
        """Append to the queue."""
        self.events.put(event)


def _deliver(batch: list[tuple[Outlet, Event]]) -> None:
    for outlet, event in batch:
        outlet.put(event)
