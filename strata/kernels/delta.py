"""Gated DeltaNet: a causal convolution and a gated delta rule over one state per sequence.

Weights and the plain torch specification (Yang et al., "Gated Delta Networks", 2024, in the
form that Qwen3-Next and its successors use). Knows the state slots of a step's rows and the
captures asked for; nothing of who owns a slot. The native implementation is cpu/delta.h.

Semantics: each row begins from the bytes of its state slot, which it leaves as they are after
its last token of the step. A capture copies the state after `offset` tokens into its slot. The
rule is scanned token by token, so the bits do not depend on how a sequence is cut into steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from strata.kernels.norm import rms_norm
from strata.kernels.quant import QTensor
from strata.kernels.residual import Residual
from strata.kernels.state import StateStep

_L2_EPS = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class DeltaWeights:
    """The convolution runs over q | k | v together: channels = (2 k_heads + v_heads) * dim.

    qkv [channels, hidden]; z [v_heads * dim, hidden]; beta, alpha [v_heads, hidden];
    conv float32 [channels, kernel], the newest token last; decay float32 [v_heads], negative
    (-exp(A_log)); dt_bias float32 [v_heads]; norm float32 [dim]; out [hidden, v_heads * dim].
    Value head h is served by key head h % k_heads when `tiled`, else by h // (v_heads / k_heads).
    The output gate is silu(z), or sigmoid(z) when `sigmoid_gate`.
    """

    residual: Residual
    qkv: QTensor
    z: QTensor
    beta: QTensor
    alpha: QTensor
    conv: Tensor
    decay: Tensor
    dt_bias: Tensor
    norm: Tensor
    eps: float
    out: QTensor
    k_heads: int
    v_heads: int
    dim: int
    tiled: bool = False
    sigmoid_gate: bool = False

    def __post_init__(self) -> None:
        hidden, inner = self.residual.hidden, self.v_heads * self.dim
        assert self.v_heads % self.k_heads == 0
        assert (self.qkv.rows, self.qkv.cols) == (self.channels, hidden)
        assert (self.z.rows, self.z.cols) == (inner, hidden)
        assert (self.out.rows, self.out.cols) == (hidden, inner)
        for matrix in (self.beta, self.alpha):
            assert (matrix.rows, matrix.cols) == (self.v_heads, hidden)
        assert self.conv.shape[0] == self.channels and self.norm.shape == (self.dim,)
        assert self.decay.shape == self.dt_bias.shape == (self.v_heads,)

    @property
    def channels(self) -> int:
        """Of the convolution."""
        return (2 * self.k_heads + self.v_heads) * self.dim

    @property
    def window(self) -> int:
        """Earlier tokens that the convolution sees."""
        return self.conv.shape[1] - 1


@dataclass(frozen=True, slots=True, eq=False)
class DeltaMatrices:
    """Dequantised, float32."""

    qkv: Tensor
    z: Tensor
    beta: Tensor
    alpha: Tensor
    out: Tensor


def delta(
    h: Tensor, w: DeltaWeights, m: DeltaMatrices, conv: Tensor, state: Tensor, step: StateStep
) -> Tensor:
    """The layer's output for h [n, hidden].

    Reads and writes conv float32 [slots, window, channels] (oldest token first) and
    state float32 [slots, v_heads, dim of k, dim of v].
    """
    mixed, z = h @ m.qkv.T, (h @ m.z.T).view(-1, w.v_heads, w.dim)
    beta = torch.sigmoid(h @ m.beta.T)
    keep = torch.exp(w.decay * softplus(h @ m.alpha.T + w.dt_bias))
    out = torch.empty_like(z)
    for row in step.rows():
        tokens = slice(row.first, row.end)
        history = torch.cat((conv[row.slot], mixed[tokens]))
        taps = history.unfold(0, w.conv.shape[1], 1)  # [count, channels, kernel]
        q, k, v = _heads(silu((taps * w.conv).sum(-1)), w)
        s = state[row.slot].clone()
        for i in range(row.end - row.first):
            s *= keep[row.first + i, :, None, None]
            error = v[i] - (s * k[i, :, :, None]).sum(1)
            s += k[i, :, :, None] * (beta[row.first + i, :, None] * error)[:, None, :]
            out[row.first + i] = (s * q[i, :, :, None]).sum(1)
            for slot in row.captures_after(i + 1):
                state[slot] = s
                conv[slot] = history[i + 1 : i + 1 + w.window]
        state[row.slot] = s
        conv[row.slot] = history[len(history) - w.window :]
    gate = torch.sigmoid(z) if w.sigmoid_gate else silu(z)
    return (rms_norm(out, w.norm, w.eps) * gate).flatten(1) @ m.out.T


def _heads(mixed: Tensor, w: DeltaWeights) -> tuple[Tensor, Tensor, Tensor]:
    """[count, channels] -> q, k, v [count, v_heads, dim]; q and k of length 1, q scaled."""
    size = w.k_heads * w.dim
    q, k, v = mixed[:, :size], mixed[:, size : 2 * size], mixed[:, 2 * size :]
    q, k = (_unit(x.view(-1, w.k_heads, w.dim)) for x in (q, k))
    group = w.v_heads // w.k_heads
    if w.tiled:
        q, k = q.repeat(1, group, 1), k.repeat(1, group, 1)
    else:
        q, k = q.repeat_interleave(group, 1), k.repeat_interleave(group, 1)
    return q * w.dim**-0.5, k, v.view(-1, w.v_heads, w.dim)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + _L2_EPS)
