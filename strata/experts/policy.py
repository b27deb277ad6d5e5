"""What a policy of the expert store is: which experts are worth their slots.

A key is place * experts + expert, where place counts the mixtures of the model. Policies see
lookups, and choose among candidates; they know no slots, no bytes and no transfers. Each gives
every key a worth: the least worthy lose their slots.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strata.types import IntArray

Floats = npt.NDArray[np.float64]
_FEW = 16


class Policy:
    """The clock, how often each key was wanted, and choices by worth; what a slot is worth to a key
    is the subclass's idea. Decisions cost microseconds: they are taken in every layer.

    `step` counts the rounds of layers, `place` is the layer at work.
    """

    name: str

    def __init__(self, places: int, experts: int) -> None:
        self.places, self.experts = places, experts
        self.step, self.place = 0, -1
        self.wanted: Floats = np.zeros(places * experts)

    def worth(self, keys: IntArray) -> Floats:
        """What a slot is worth to each key, in a new array; only the order counts."""
        raise NotImplementedError

    def note(self, keys: IntArray, counts: IntArray) -> None:
        """Takes in a lookup; the clock is set already."""
        raise NotImplementedError

    def touch(self, keys: IntArray, counts: IntArray) -> None:
        """One step of one layer looks these keys up (each once), wanted by `counts` entries. A
        place that is not beyond the last one begins a step.
        """
        place = int(keys[0]) // self.experts
        self.step += place <= self.place
        self.place = place
        self.wanted[keys] += 1
        self.note(keys, counts)

    def enter(self, key: int) -> None:
        """The key got a slot, which changes nothing of what it is worth."""

    def leave(self, key: int) -> None:
        """The key lost its slot."""

    def victims(self, candidates: IntArray, number: int) -> IntArray:
        """`number` of the `candidates`, the least worthy first. All of them have slots, or none
        has: then it is asked which of them most deserves one.
        """
        worth = self.worth(candidates)
        if number > _FEW:
            return candidates[worth.argsort()[:number]]
        # Some ten passes over thousands cost a tenth of partitioning them, which ties slow further.
        least = []
        for _ in range(min(number, len(candidates))):
            least.append(int(worth.argmin()))
            worth[least[-1]] = np.inf
        return candidates[least]

    def admits(self, key: int, victim: int) -> bool:
        """Whether a key that is being read may keep its slot at the price of `victim`'s. When not,
        it is used once from a passing slot, and `enter` is not called. Whoever is worth more may.
        """
        mine, its = self.worth(np.array([key, victim], np.int32))
        return bool(mine > its)

    def popularity(self) -> Floats:
        """[keys]: how often each was wanted, since the beginning of what was learned."""
        return self.wanted.copy()

    def learn(self, popularity: Floats) -> None:
        """Goes on counting from what an earlier run learned."""
        self.wanted[:] = popularity


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
