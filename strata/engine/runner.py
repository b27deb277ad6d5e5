"""Runner: a model bound to the memory that it reads and writes.

Owns the arenas of pages and states. The cache owns their slot numbers; nothing
else touches their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from strata.figures import ExpertFigures, ExpertUse
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.models.decoder import Decoder, Experts
from strata.types import Capture, Copy, ForwardPlan, PageCopy

Logits = npt.NDArray[np.float32]


class Runner:
    """Runs plans and copies on one model. Used by the engine thread only."""

    def __init__(
        self,
        model: Decoder,
        *,
        pages: int,
        states: int,
        block: int,
        device: str = "cpu",
        experts: Experts | None = None,
    ) -> None:
        """`states` is ignored when no layer keeps a state per sequence."""
        memory = model.memory(block)
        page_bytes, state_bytes = page_layout(memory).nbytes, state_layout(memory).nbytes
        self.model = model
        self.block = block
        self.pages = SlotArena(pages, page_bytes, device)
        self.states = SlotArena(states, state_bytes, device) if state_bytes else None
        self._experts = experts
        model.bind(self.pages, self.states, block, experts)

    def run(self, plan: ForwardPlan) -> tuple[Logits, frozenset[Capture]]:
        """One step. Logits float32 [m, vocab] on the host, valid until the next call, and those
        of the plan's captures that were really written.
        """
        if self._experts is not None:
            self._experts.begin(plan.row_starts)
        result = self.model.forward(plan)
        assert result.logits.shape[0] == plan.sample.shape[0]
        array: Logits = result.logits.numpy(force=True)
        return array, frozenset(result.captured)

    def tally(self) -> Sequence[ExpertUse]:
        """Where the last step's experts came from, row by row, even when it failed; nothing
        without a store.
        """
        return () if self._experts is None else self._experts.tally()

    def figures(self) -> tuple[ExpertFigures, ...]:
        """Of the store's experts, for each mixture. From any thread."""
        return () if self._experts is None else tuple(self._experts.figures())

    @property
    def waiting(self) -> bool:
        """Whether the step now running waits for experts. From any thread."""
        return self._experts is not None and self._experts.waiting

    def copy(self, copies: Iterable[Copy]) -> None:
        """Carry copies out, at once and in order.

        A page is copied whole: its rows beyond those asked for are never read
        before they are written again.
        """
        for copy in copies:
            if isinstance(copy, PageCopy):
                self.pages.data[copy.dst].copy_(self.pages.data[copy.src])
            elif self.states is not None:
                if copy.src is None:
                    self.states.data[copy.dst].zero_()
                else:
                    self.states.data[copy.dst].copy_(self.states.data[copy.src])
