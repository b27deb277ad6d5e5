"""The decoder: embedding, layers and head of a loaded model as one program.

Knows sublayers only by what they remember and run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.kernels import Fields, Kernels, Program, StepResult
from strata.kernels.head import HeadWeights
from strata.kernels.quant import QTensor
from strata.kernels.residual import PreNorm, Residual
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.models.config import ArchConfig
from strata.models.layers import Layer
from strata.models.weights import Weights
from strata.types import ForwardPlan, LayerMemory, MemoryField, ProgressSink


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
        self.weight_bytes = weights.nbytes
        self._program: Program | None = None

    def memory(self, block: int) -> tuple[LayerMemory, ...]:
        """What each layer remembers, for pages of `block` tokens (the bound ones, once bound)."""
        if self._parts is None:
            return self._memory
        return tuple(_joined(layer, block, self._kernels) for layer in self._parts.layers)

    def bind(self, pages: SlotArena, states: SlotArena | None, block: int) -> None:
        """Build the program over the given memory, packing the weights for the kernels. Once.

        Tells `progress` ("weights", layers done, layers).
        """
        assert self._parts is not None, "bound already"
        parts, kernels = self._parts, self._kernels
        memory = self._memory = self.memory(block)
        page_views = page_layout(memory).views(pages)
        state_views = [{} for _ in memory] if states is None else state_layout(memory).views(states)
        ops = [kernels.embed(parts.embedding, parts.streams)]
        for number, layer in enumerate(parts.layers):
            self._progress("weights", number, len(parts.layers))
            for place, sublayer in enumerate(layer):
                page = _own(page_views[number], place)
                ops.append(sublayer.op(kernels, page, _own(state_views[number], place), block))
        ops.append(kernels.head(parts.head))
        self._progress("weights", len(parts.layers), len(parts.layers))
        self._program = kernels.program(ops)
        self._parts = None  # what the operations need of the weights, they hold

    def forward(self, plan: ForwardPlan) -> StepResult:
        """Run one step."""
        assert self._program is not None, "bind first"
        return self._program.run(plan)


# A layer's sublayers may use one name for different fields: their number comes before it.


def _joined(layer: Layer, block: int, kernels: Kernels) -> LayerMemory:
    page: list[MemoryField] = []
    state: list[MemoryField] = []
    for place, sublayer in enumerate(layer):
        own = sublayer.memory(block, kernels)
        page += [replace(field, name=f"{place}.{field.name}") for field in own.page]
        state += [replace(field, name=f"{place}.{field.name}") for field in own.state]
    return LayerMemory(tuple(page), tuple(state))


def _own(views: Fields, place: int) -> Fields:
    prefix = f"{place}."
    return {
        name.removeprefix(prefix): view for name, view in views.items() if name.startswith(prefix)
    }
