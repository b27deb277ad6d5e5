"""What is remembered of responses: each API key's own, the newest, up to a bound.

Knows ids, bytes and sizes; not what they mean. An entry holds its whole conversation, so no entry
needs another; what conversations have in common is one object in memory, but counted for each.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

# For each API key. An agent's long conversation is about 1 MiB, and each of its turns holds all
# that came before: so the last hundreds of turns of one, or thousands of short ones.
ENTRIES = 4096
BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """A response as JSON, and the JSON of its conversation's items by id: `given` items of input
    (those of earlier responses too), then its output.
    """

    response: bytes
    items: dict[str, bytes]
    given: int

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.response) + sum(map(len, self.items.values()))


class Store:
    """Responses by API key and id. Safe to use from several threads.

    `entries` and `size` (bytes) bound each key's; beyond them those go that were not used longest.
    """

    def __init__(self, entries: int = ENTRIES, size: int = BYTES) -> None:
        self._entries, self._size = entries, size
        self._shelves: dict[str, OrderedDict[str, Kept]] = {}
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    def keep(self, caller: str, name: str, kept: Kept) -> None:
        """Remember a response. One that is larger than the bound is not remembered."""
        if kept.size > self._size:
            return
        with self._lock:
            shelf = self._shelves.setdefault(caller, OrderedDict())
            shelf[name] = kept
            total = self._sizes.get(caller, 0) + kept.size
            while len(shelf) > self._entries or total > self._size:
                total -= shelf.popitem(last=False)[1].size
            self._sizes[caller] = total

    def find(self, caller: str, name: str) -> Kept | None:
        """A response of this caller's; using it keeps it longer."""
        with self._lock:
            shelf = self._shelves.get(caller, OrderedDict())
            if name in shelf:
                shelf.move_to_end(name)
            return shelf.get(name)

    def item(self, caller: str, name: str) -> bytes | None:
        """An item of any of this caller's conversations."""
        with self._lock:
            shelf = self._shelves.get(caller, OrderedDict())
            found = (kept.items[name] for kept in reversed(shelf.values()) if name in kept.items)
            return next(found, None)

    def drop(self, caller: str, name: str) -> bool:
        """Forget a response; whether there was one."""
        with self._lock:
            kept = self._shelves.get(caller, OrderedDict()).pop(name, None)
            self._sizes[caller] = self._sizes.get(caller, 0) - (kept.size if kept else 0)
            return kept is not None
