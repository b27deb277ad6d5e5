"""What a policy of the expert store is: which experts are worth their slots.

A key is place * experts + expert, where place counts the mixtures of the model. Policies see
lookups, and choose among candidates; they know no slots, no bytes and no transfers.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from strata.types import IntArray


class Policy(Protocol):
    """One policy over `keys` keys. Decisions cost microseconds: they are taken in every layer."""

    name: str

    def touch(self, keys: IntArray, counts: IntArray) -> None:
        """One step of one layer looks these keys up (each once), wanted by `counts` entries."""

    def enter(self, key: int) -> None:
        """The key got a slot."""

    def leave(self, key: int) -> None:
        """The key lost its slot."""

    def victims(self, candidates: IntArray, number: int) -> IntArray:
        """`number` of the `candidates`, the least valuable first. All of them have slots, or none
        has: then it is asked which of them most deserves one.
        """

    def admits(self, key: int, victim: int) -> bool:
        """Whether a key that is being read may keep its slot at the price of `victim`'s. When not,
        it is used once from a passing slot, and `enter` is not called.
        """

    def popularity(self) -> npt.NDArray[np.float64]:
        """[keys]: how much each was wanted, the unit the policy's own."""

    def learn(self, popularity: npt.NDArray[np.float64]) -> None:
        """Starts from what an earlier run learned."""


def settle(
    policy: Policy, missing: IntArray, candidates: IntArray, free: int
) -> tuple[IntArray, IntArray]:
    """Which of the `missing` keys of a lookup keep a slot, and which of the `candidates` lose
    theirs: the first `free` of the former take free slots, each of the others the slot of one
    victim, in order. The rest of `missing` pass.

    Ask after `touch`, and with no key of the lookup among the candidates. Changes nothing: whoever
    moves the slots tells the policy with `leave` and `enter`.
    """
    ordered = policy.victims(missing, len(missing))[::-1]
    kept, taken = ordered[:free].tolist(), list[int]()
    rest = ordered[free:].tolist()
    if rest and len(candidates):
        offered = policy.victims(candidates, min(len(rest), len(candidates))).tolist()
        for key in rest:
            if len(taken) < len(offered) and policy.admits(key, offered[len(taken)]):
                taken.append(offered[len(taken)])
                kept.append(key)
    return np.array(kept, np.int32), np.array(taken, np.int32)
