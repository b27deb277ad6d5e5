"""A memory of texts that were tokenised before.

A conversation sends its earlier messages again on every turn. Least recently used
texts go first; the bound is on bytes. Thread safe. Ids never depend on what is here.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from sys import getsizeof
from threading import Lock

_OVERHEAD = 400  # bytes of an entry beside text and ids: key, array and dictionary slots


class SegmentCache:
    """(reading, text) -> ids, at most `limit` bytes in all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._entries: OrderedDict[tuple[Hashable, str], array[int]] = OrderedDict()
        self._lock = Lock()

    def get(self, reading: Hashable, text: str) -> array[int] | None:
        """The ids of a text under a reading, or None. Not to be changed."""
        with self._lock:
            found = self._entries.get((reading, text))
            if found is not None:
                self._entries.move_to_end((reading, text))
            return found

    def put(self, reading: Hashable, text: str, ids: Sequence[int]) -> None:
        """Remember a text's ids, unless it is larger than a quarter of the bound."""
        packed = array("i", ids)
        with self._lock:
            if (reading, text) in self._entries or _cost(text, packed) > self._limit // 4:
                return
            self._entries[reading, text] = packed
            self._used += _cost(text, packed)
            while self._used > self._limit:
                (_, oldest), dropped = self._entries.popitem(last=False)
                self._used -= _cost(oldest, dropped)


def _cost(text: str, ids: array[int]) -> int:
    return getsizeof(text) + len(ids) * ids.itemsize + _OVERHEAD
