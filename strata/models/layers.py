"""What model families share: a layer of attention and MLP, and the decoder around the layers.

A layer says what it remembers (`memory`) and which operations it runs (`ops`); the decoder puts
embedding, layers and head into one program. Another kind of layer would declare other fields, per
page or per sequence, and build other operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strata.kernels import Kernels, Op, Program
from strata.kernels.attention import AttentionWeights
from strata.kernels.head import HeadWeights
from strata.kernels.mlp import MlpWeights
from strata.kernels.quant import QTensor
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.models.config import ArchConfig
from strata.models.weights import Weights
from strata.types import ForwardPlan, LayerMemory, MemoryField, ProgressSink


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """Attention over all earlier tokens, then a gated MLP. Remembers keys and values."""

    attention: AttentionWeights
    mlp: MlpWeights

    def memory(self, block: int, kernels: Kernels) -> LayerMemory:
        """Keys and values of a page: [kv_heads, block, head_dim] each, nothing per sequence."""
        shape = (self.attention.kv_heads, block, self.attention.head_dim)
        return LayerMemory(page=tuple(MemoryField(n, shape, kernels.kv_dtype) for n in "kv"))

    def ops(
        self, kernels: Kernels, page: Mapping[str, Tensor], state: Mapping[str, Tensor], block: int
    ) -> list[Op]:
        """Two operations that add to the residual stream, on views of the fields: [slots, *shape].

        `page` and `state` map the fields' names to them.
        """
        attention = kernels.attention(self.attention, page["k"], page["v"], block)
        return [attention, kernels.mlp(self.mlp)]


def attention_layer(
    weights: Weights, config: ArchConfig, layer: int, extra: Sequence[str] = ()
) -> AttentionLayer:
    """A layer's weights, with those of the optional vectors (biases, norms) named in `extra`."""
    q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes = {"q_bias": q_rows, "k_bias": kv_rows, "v_bias": kv_rows}
    vectors = {n: weights.vector(n, layer, sizes.get(n, config.head_dim)) for n in extra}
    attention = AttentionWeights(
        norm=weights.vector("attention_norm", layer, config.hidden),
        eps=config.eps,
        q=weights.matrix("q", layer, q_rows, config.hidden),
        k=weights.matrix("k", layer, kv_rows, config.hidden),
        v=weights.matrix("v", layer, kv_rows, config.hidden),
        o=weights.matrix("o", layer, config.hidden, q_rows),
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        rope=config.rope,
        scale=config.head_dim**-0.5,
        **vectors,
    )
    mlp = MlpWeights(
        norm=weights.vector("mlp_norm", layer, config.hidden),
        eps=config.eps,
        gate=weights.matrix("gate", layer, config.ffn, config.hidden),
        up=weights.matrix("up", layer, config.ffn, config.hidden),
        down=weights.matrix("down", layer, config.hidden, config.ffn),
    )
    return AttentionLayer(attention, mlp)


def half_split(layer: AttentionLayer) -> AttentionLayer:
    """Reorder the rows of q and k from interleaved pairs (2i, 2i + 1) to halves (i, i + n/2).

    GGUF files of the llama family hold them for a rotation of neighbours; the kernels rotate
    halves. Scores are dot products of q and k, so the same reordering of both changes nothing
    else, and whole rows move: the quantisation stays as it is.
    """
    weights = layer.attention
    dims, head_dim = weights.rope.dims, weights.head_dim

    def order(heads: int) -> Tensor:
        rows = torch.arange(heads * head_dim).view(heads, head_dim)
        pairs = rows[:, :dims].reshape(heads, dims // 2, 2).transpose(1, 2).reshape(heads, dims)
        return torch.cat((pairs, rows[:, dims:]), dim=1).reshape(-1)

    def matrix(q: QTensor, rows: Tensor) -> QTensor:
        return replace(q, data=q.data.view(q.rows, q.row_bytes)[rows].reshape(-1))

    q_rows, k_rows = order(weights.heads), order(weights.kv_heads)
    ordered = replace(
        weights,
        q=matrix(weights.q, q_rows),
        k=matrix(weights.k, k_rows),
        q_bias=None if weights.q_bias is None else weights.q_bias[q_rows],
        k_bias=None if weights.k_bias is None else weights.k_bias[k_rows],
    )
    return replace(layer, attention=ordered)


class Decoder:
    """A loaded model: embedding, layers, head. `bind` gives it memory, `forward` runs a step.

    Holds views of the file until it is bound; afterwards the operations own what they need.
    """

    def __init__(
        self,
        config: ArchConfig,
        weights: Weights,
        layers: Sequence[AttentionLayer],
        kernels: Kernels,
        progress: ProgressSink,
    ) -> None:
        """Takes the last of `weights`: embedding, final norm, output matrix. Raises ModelError."""
        self.name = config.name
        self.architecture = config.architecture
        self.context_length = config.context
        self.vocab_size = config.vocab
        self._kernels = kernels
        self._progress = progress
        size = config.vocab, config.hidden
        embedding = weights.matrix("embedding", None, *size)
        output = embedding if config.tied else weights.matrix("output", None, *size)
        norm = weights.vector("output_norm", None, config.hidden)
        head = HeadWeights(norm=norm, eps=config.eps, weight=output)
        weights.finish(unused=(weights.name("output"),) if config.tied else ())
        self.weight_bytes = weights.nbytes
        self._parts: tuple[QTensor, Sequence[AttentionLayer], HeadWeights] | None
        self._parts = embedding, layers, head  # until it is bound
        self._memory: tuple[LayerMemory, ...] = ()
        self._program: Program | None = None

    def memory(self, block: int) -> tuple[LayerMemory, ...]:
        """What each layer remembers, for pages of `block` tokens (the bound ones, once bound)."""
        if self._parts is None:
            return self._memory
        return tuple(layer.memory(block, self._kernels) for layer in self._parts[1])

    def bind(self, pages: SlotArena, states: SlotArena | None, block: int) -> None:
        """Build the program over the given memory, packing the weights for the kernels. Once.

        Tells `progress` ("weights", layers done, layers).
        """
        assert self._parts is not None, "bound already"
        (embedding, layers, head), kernels = self._parts, self._kernels
        memory = self._memory = self.memory(block)
        page_views = page_layout(memory).views(pages)
        state_views: list[dict[str, Tensor]] = [{} for _ in memory]
        if states is not None:
            state_views = state_layout(memory).views(states)
        ops = [kernels.embed(embedding)]
        for number, layer in enumerate(layers):
            self._progress("weights", number, len(layers))
            ops += layer.ops(kernels, page_views[number], state_views[number], block)
        ops.append(kernels.head(head))
        self._progress("weights", len(layers), len(layers))
        self._program = kernels.program(ops)
        self._parts = None  # what the operations need of the weights, they hold

    def forward(self, plan: ForwardPlan) -> Tensor:
        """Run one step: float32 logits [m, vocab] of the plan's sampled tokens."""
        assert self._program is not None, "bind first"
        return self._program.run(plan)
