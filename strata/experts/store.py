"""ExpertStore: experts that are larger than fast memory, and the accounts of it.

Owns the arenas of both tiers and decides, lookup by lookup, what moves. Sees places, experts and
counts of entries; no tensor of an activation, no request. Used by the engine thread, but for
`figures`. A prediction or a policy changes what is moved, never what is computed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from strata.experts.counts import BUS, DEVICE, DISK, HOST, Counts, Longs
from strata.experts.lanes import Rates
from strata.experts.layout import ExpertLayout
from strata.experts.policy import Policy
from strata.experts.prefetch import Guesses
from strata.experts.residency import Residency
from strata.experts.shelf import Read, Shelf
from strata.experts.trace import TraceWriter
from strata.experts.waves import Waves
from strata.figures import ExpertFigures, ExpertUse
from strata.kernels.moe import ExpertForm, ExpertWave
from strata.memory.arena import SlotArena
from strata.memory.transfer import Copier
from strata.types import ConfigError, IntArray, StrataError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TierPlan:
    """`slots` for each record size, in memory of `device`; `copier` runs the transfers there."""

    slots: Mapping[int, int]
    policy: Policy
    copier: Copier
    device: str = "cpu"


class PlaceSource:
    """The experts of one place, as `strata.kernels.moe.ExpertSource`."""

    def __init__(self, store: ExpertStore, place: int) -> None:
        self._store, self._place = store, place
        self.form: ExpertForm = store.layout.places[place].form
        self.arenas: Sequence[Tensor] = [tier.arena.data for tier in store.shelf(place).tiers]
        self.places: npt.NDArray[np.int64] = store.addresses(place)

    def waves(self, chosen: IntArray, ahead: IntArray | None) -> Iterator[ExpertWave]:
        """See ExpertSource."""
        return self._store.waves(self._place, chosen, ahead)

    def served(self, chosen: IntArray) -> None:
        """See ExpertSource."""
        self._store.served(self._place, chosen)


class _Shown(NamedTuple):
    """What `figures` tells: copies of tables at the end of a step."""

    uses: list[ExpertUse]
