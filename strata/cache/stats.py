"""CacheStats: what a cache says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts at one moment; from `lookups` on, totals since start."""

    pages_total: int
    pages_free: int
    pages_cached: int  # in the trie, whether a lease uses them or not
    page_bytes: int
    states_total: int
    states_free: int
    states_cached: int  # checkpoints
    state_bytes: int
    running: int
    parked: int
    lookups: int  # leases given to holders that may share
    hits: int  # of them, those that resumed beyond their first token
    hit_tokens: int
    waits: int
    evicted_pages: int
    evicted_states: int
