"""The policies by name, as `--expert-policy` takes them. Each is made of places and experts."""

from __future__ import annotations

from collections.abc import Callable

from strata.experts.policies.counting import LeastStale, Lfu, Lru, TinyLfu
from strata.experts.policies.floors import Floors
from strata.experts.policies.reuse import ValueDensity
from strata.experts.policy import Policy

POLICIES: dict[str, Callable[[int, int], Policy]] = {
    one.name: one for one in (ValueDensity, Lru, Lfu, LeastStale, TinyLfu)
}


def make(name: str, places: int, experts: int, floor: int = 0) -> Policy:
    """The policy of that name; with a floor, each layer keeps its last `floor` experts longest."""
    policy = POLICIES[name](places, experts)
    return Floors(policy, places, experts, floor) if floor else policy
