"""The decoder: embedding, layers and head of a loaded model as one program.

Knows sublayers only by what they remember and run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from strata.figures import ExpertFigures, ExpertUse, RowFigures
from strata.kernels import Fields, Kernels, Op, Program, StepResult
from strata.kernels.head import HeadWeights
from strata.kernels.moe import ExpertSource, MoeWeights, NextMixture
from strata.kernels.quant import QTensor
from strata.kernels.residual import PreNorm, Residual
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.memory.rows import RowCache
from strata.models.config import ArchConfig
from strata.models.layers import Layer, Ngram, Place
from strata.models.weights import Weights
from strata.types import ForwardPlan, IntArray, LayerMemory, MemoryField, ProgressSink


class Experts(Protocol):
    """Where the experts of a model's mixtures lie, when a store has them. A place is the number
    of a mixture among the model's mixtures.
    """

    waiting: bool  # whether the step now running waits for an expert; from any thread
    ahead: bool  # whether it has a use for guesses of what the next layer will choose

    def source(self, place: int) -> ExpertSource:
        """The experts of one mixture."""

    def begin(self, row_starts: IntArray) -> None:
        """A step begins, of rows like those of `ForwardPlan.row_starts`."""

    def tally(self) -> Sequence[ExpertUse]:
        """What each row of the step took, the step complete or not."""

    def figures(self) -> Sequence[ExpertFigures]:
        """One for each mixture, since start. From any thread."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A decoder's weights, from token to logits."""

    embedding: QTensor
    streams: int
    layers: tuple[Layer, ...]
    head: HeadWeights

    @classmethod
    def take(
        cls,
        config: ArchConfig,
        weights: Weights,
        layers: Sequence[Layer],
        residual: Residual | None,
    ) -> Parts:
        """Embedding, final norm and output matrix from `weights`. Raises ModelError."""
        embedding = weights.matrix("embedding", None, config.vocab, config.hidden)
        output = embedding
        if not config.tied:
            output = weights.matrix("output", None, config.vocab, config.hidden)
        if residual is None:
            residual = PreNorm(weights.vector("output_norm", None, config.hidden), config.eps)
        streams = residual.width // residual.hidden
        return cls(embedding, streams, tuple(layers), HeadWeights(residual, output))


class Decoder:
    """A loaded model: embedding, layers, head. `bind` gives it memory, `forward` runs a step.

    Holds views of the file until it is bound; afterwards the operations own what they need.
    """

    def __init__(
        self,
        config: ArchConfig,
        weights: Weights,
        layers: Sequence[Layer],
        kernels: Kernels,
        progress: ProgressSink,
        residual: Residual | None = None,
    ) -> None:
        """Takes the last of `weights`: embedding, output matrix, and the final norm unless
        `residual` says how the head reads the stream. Raises ModelError.
        """
        self.name = config.name
        self.architecture = config.architecture
        self.context_length = config.context
        self.vocab_size = config.vocab
        self._kernels = kernels
        self._progress = progress
        self._parts: Parts | None = Parts.take(config, weights, layers, residual)
        self._memory: tuple[LayerMemory, ...] = ()
        weights.finish(unused=(weights.name("output"),) if config.tied else ())
        self.weight_bytes, self.expert_bytes = weights.nbytes, weights.expert_nbytes
        self._rows: list[RowCache] = []
        self._program: Program | None = None

    def memory(self, block: int) -> tuple[LayerMemory, ...]:
        """What each layer remembers, for pages of `block` tokens (the bound ones, once bound)."""
        if self._parts is None:
            return self._memory
        return tuple(_joined(layer, block, self._kernels) for layer in self._parts.layers)

    def mixtures(self) -> list[tuple[int, MoeWeights]]:
        """Its mixtures of experts by the numbers of their layers, in order. Before it is bound."""
        assert self._parts is not None, "bound already"
        return [
            (number, sublayer.mixture)
            for number, layer in enumerate(self._parts.layers)
            for sublayer in layer
            if sublayer.mixture is not None
        ]

    def cache_rows(self, nbytes: int, tokens: int) -> int:
        """Before it is bound: reads the rows of tables that stay in the file by caches of `nbytes`
        in all, for steps of up to `tokens`. The bytes that they take; 0 without such a table.
        Raises StrataError.
        """
        assert self._parts is not None, "bound already"
        tables = [s for layer in self._parts.layers for s in layer if isinstance(s, Ngram)]
        made = {id(table): table.cached(nbytes // len(tables), tokens) for table in tables}
        self._rows = [cache for _, cache in made.values()]
        layers = [
            tuple(made[id(s)][0] if id(s) in made else s for s in layer)
            for layer in self._parts.layers
        ]
        self._parts = replace(self._parts, layers=tuple(layers))
        return sum(cache.nbytes for cache in self._rows)

    def rows(self) -> RowFigures | None:
        """Of all row caches; None without one. From any thread."""
        if not self._rows:
            return None
        return sum((cache.figures for cache in self._rows), start=RowFigures())

    def bind(
        self,
        pages: SlotArena,
        states: SlotArena | None,
        block: int,
        experts: Experts | None = None,
    ) -> None:
        """Build the program over the given memory, packing the weights for the kernels. Once.

        With `experts`, those of the weights are never read. Tells `progress` ("weights", layers
        done, layers).
        """
        assert self._parts is not None, "bound already"
        parts, kernels = self._parts, self._kernels
        memory = self._memory = self.memory(block)
        page_views = page_layout(memory).views(pages)
        state_views = [{} for _ in memory] if states is None else state_layout(memory).views(states)
        mixture: Callable[[MoeWeights], Op] = kernels.moe
        if experts is not None:
            mixture = _Tiered(kernels, experts, self.mixtures())
        ops = [kernels.embed(parts.embedding, parts.streams)]
        for number, layer in enumerate(parts.layers):
            self._progress("weights", number, len(parts.layers))
            for i, sublayer in enumerate(layer):
                page, state = _own(page_views[number], i), _own(state_views[number], i)
                ops.append(sublayer.op(kernels, Place(page, state, block, mixture)))
        ops.append(kernels.head(parts.head))
        self._progress("weights", len(parts.layers), len(parts.layers))
        self._program = kernels.program(ops)
        self._parts = None  # what the operations need of the weights, they hold

    def forward(self, plan: ForwardPlan) -> StepResult:
        """Run one step."""
        assert self._program is not None, "bind first"
        return self._program.run(plan)


class _Tiered:
    """Makes the operations of mixtures whose experts a store has, in the model's order."""

    def __init__(
        self, kernels: Kernels, experts: Experts, mixtures: Sequence[tuple[int, MoeWeights]]
    ) -> None:
        self._kernels, self._experts = kernels, experts
        self._routers = [weights.router for _, weights in mixtures]
        self._place = 0

    def __call__(self, weights: MoeWeights) -> Op:
        place, ahead = self._place, None
        assert weights.router is self._routers[place]
        self._place = following = place + 1
        if self._experts.ahead and following < len(self._routers):
            ahead = NextMixture(self._routers[following], self._experts.source(following))
        return self._kernels.tiered_moe(weights, self._experts.source(place), ahead)


# A layer's sublayers may use one name for different fields: their number comes before it.


def _joined(layer: Layer, block: int, kernels: Kernels) -> LayerMemory:
    page: list[MemoryField] = []
    state: list[MemoryField] = []
    for i, sublayer in enumerate(layer):
        own = sublayer.memory(block, kernels)
        page += [replace(field, name=f"{i}.{field.name}") for field in own.page]
        state += [replace(field, name=f"{i}.{field.name}") for field in own.state]
    return LayerMemory(tuple(page), tuple(state))


def _own(views: Fields, i: int) -> Fields:
    prefix = f"{i}."
    return {
        name.removeprefix(prefix): view for name, view in views.items() if name.startswith(prefix)
    }
