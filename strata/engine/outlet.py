"""Where events leave the engine.

A sequence has an `Outlet`; outlets of one receiver share a channel, and the events of one step
reach each channel in one call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Protocol

from strata.types import Event

_log = logging.getLogger(__name__)

Told = tuple["Outlet", Event]
Channel = Callable[[list[Told]], None]


class Outlet(Protocol):
    """One sequence's receiver. Its channel takes the events of one step, in order, on the engine
    thread; it must not block and must not raise.
    """

    channel: Channel

    def put(self, event: Event) -> None:
        """Take one event, on the receiver's own thread."""


def send_all(events: Iterable[Told]) -> None:
    """Send the events of a step: one call per channel, order kept."""
    batches: dict[Channel, list[Told]] = {}
    for outlet, event in events:
        batches.setdefault(outlet.channel, []).append((outlet, event))
    for channel, batch in batches.items():
        channel(batch)


def deliver(batch: list[Told]) -> None:
    """The channel straight into the outlets, on the engine thread: they must be thread-safe."""
    for outlet, event in batch:
        outlet.put(event)


def into_loop(loop: asyncio.AbstractEventLoop) -> Channel:
    """A channel into an asyncio event loop, waking it once per step."""

    def send(batch: list[Told]) -> None:
        try:
            loop.call_soon_threadsafe(deliver, batch)
        except RuntimeError:  # the loop is closed: nobody is left to read them
            _log.debug("dropped %d events for a closed event loop", len(batch))

    return send


class QueueOutlet:
    """Events for another thread, in a queue."""

    def __init__(self) -> None:
        self.channel: Channel = deliver
        self.events: SimpleQueue[Event] = SimpleQueue()

    def put(self, event: Event) -> None:
        """Append to the queue."""
        self.events.put(event)
