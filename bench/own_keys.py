"""Gives every row of a measurement its own copy of a prefix that Strata reads once.

Rows that share a prefix share its pages, and then its keys come from a cache of the processor. To
measure rows whose keys differ without reading a prompt for each of them, the prefix is read into
one namespace of the prefix cache; its requests in the others run no model but copy pages and
states from there. Numbers, places and sizes are those of rows that had read it themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from strata.kernels import StepResult
from strata.types import ForwardPlan


class OwnKeys:
    """Watches one runner's model read a prefix, then copies what it wrote."""

    def __init__(self, runner: Any, length: int) -> None:
        self._runner = runner
        self._pages = np.zeros(-(-length // runner.block), np.int64)  # page of each block
        self._state: torch.Tensor | None = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The next request reads the prefix."""
        forward = self._runner.model.forward

        def watched(plan: ForwardPlan) -> StepResult:
            result: StepResult = forward(plan)
            block = self._runner.block
            self._pages[plan.positions // block] = plan.write_slots // block
            if self._runner.states is not None:
                self._state = self._runner.states.data[int(plan.state_slots[0])].clone()
            return result

        with self._in_place_of_forward(watched):
            yield

    @contextmanager
    def copying(self) -> Iterator[None]:
        """Further requests for the prefix get copies."""

        def copied(plan: ForwardPlan) -> StepResult:
            block = self._runner.block
            target = np.unique(
                np.stack([plan.positions // block, plan.write_slots // block]), axis=1
            )
            data = self._runner.pages.data
            data[torch.from_numpy(target[1])] = data[torch.from_numpy(self._pages[target[0]])]
            if self._state is not None:
                for slot in (*plan.state_slots, *(one.slot for one in plan.captures)):
                    self._runner.states.data[int(slot)] = self._state
            logits = torch.zeros((len(plan.sample), self._runner.model.vocab_size))
            return StepResult(logits, tuple(plan.captures))

        with self._in_place_of_forward(copied):
            yield

    @contextmanager
    def _in_place_of_forward(self, other: Any) -> Iterator[None]:
        model = self._runner.model
        plain = model.forward
        model.forward = other
        try:
            yield
        finally:
            model.forward = plain
