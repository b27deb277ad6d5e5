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
        """`number` of the `candidates`, all of which have slots, the least valuable first."""

    def admits(self, key: int, victim: int) -> bool:
        """Whether a key that is being read may keep its slot at the price of `victim`'s. When not,
        it is used once from a passing slot, and `enter` is not called.
        """

    def popularity(self) -> npt.NDArray[np.float64]:
        """[keys]: how much each was wanted, the unit the policy's own."""

    def learn(self, popularity: npt.NDArray[np.float64]) -> None:
        """Starts from what an earlier run learned."""
