"""The native mixtures of experts: packed experts, all in memory or in waves from a source.

Knows what lies where in a packed expert, and how a step that stops at a mixture is fed; not what
else the kernels pack, nor where a source keeps experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

import strata.kernels._cpu as _cpu
from strata.kernels.moe import Expert, ExpertForm, ExpertSource, MoeWeights, NextMixture
from strata.kernels.native_pack import NativeOp, NativePort, Packer


class Waves:
    """Feeds one mixture from its source, whenever a step stops there; keeps what it chose."""

    def __init__(self, op: _cpu.TieredMoe, source: ExpertSource, top_k: int, guesses: bool) -> None:
        self._op, self._source, self._guesses = op, source, guesses
        self._arenas = [(arena.data_ptr(), arena.stride(0)) for arena in source.arenas]
        assert all(start % 64 == stride % 64 == 0 for start, stride in self._arenas)
        self._chosen = self._guess = np.empty((0, top_k), np.int32)

    def reserve(self, tokens: int) -> None:
        """Room for a step of this many tokens."""
        if tokens <= len(self._chosen):
            return
        self._chosen = np.empty((tokens, self._chosen.shape[1]), np.int32)
        self._guess = np.empty_like(self._chosen)
        self._op.keep(self._chosen.ctypes.data, self._guess.ctypes.data)

    def served(self, tokens: int) -> None:
        """Tells the source that the step found everything in its places."""
        self._source.served(self._chosen[:tokens])

    def feed(self, program: _cpu.Program, tokens: int) -> None:
        """Computes every expert that the stopped step chose. Raises what the source raises."""
        guess = self._guess[:tokens] if self._guesses else None
        for wave in self._source.waves(self._chosen[:tokens], guess):
            arena, stride = self._arenas[wave.arena]
            self._op.feed(program, arena, stride, wave.experts, wave.slots)
        assert self._op.whole(), "the waves left experts out"


@dataclass(frozen=True, slots=True, eq=False)
class TieredOp(NativeOp):
    """The last of its ops stops a step whose experts are not all at hand."""

    waves: Waves = field(kw_only=True)


def expert_form(pack: Packer, expert: Expert) -> ExpertForm:
    """Where an expert's packed matrices lie."""
    return ExpertForm.of(expert, [pack.nbytes(q) for q in expert.matrices])


def pack_expert(pack: Packer, expert: Expert, record: Tensor) -> None:
    """Packs into `record`, uint8 [form.nbytes]."""
    record.zero_()  # the bytes that no matrix needs too: equal experts are equal records
    for q, at in zip(expert.matrices, expert_form(pack, expert).offsets, strict=True):
        pack.write(q, record.data_ptr() + at)


def moe(pack: Packer, w: MoeWeights) -> NativeOp:
    """The op of one layer, all experts in memory."""
    form = expert_form(pack, w.experts[0])
    assert all(expert_form(pack, expert) == form for expert in w.experts)
    records = pack.take(form.nbytes * len(w.experts)).view(-1, form.nbytes)
    for expert, record in zip(w.experts, records, strict=True):
        pack_expert(pack, expert, record)
    port, weights, owned = _weights(pack, w, form)
    op = _cpu.moe(weights, [record.data_ptr() for record in records])
    return port.op(op, owned, records)


def tiered_moe(
    pack: Packer, w: MoeWeights, source: ExpertSource, ahead: NextMixture | None
) -> TieredOp:
    """The op of one layer, its experts from `source`."""
    port, weights, owned = _weights(pack, w, source.form)
    router = None if ahead is None else pack.early(ahead.router)
    places = [source.places] if ahead is None else [source.places, ahead.source.places]
    for place in places:
        assert place.dtype == np.int64 and place.flags.c_contiguous
    addresses = [place.ctypes.data for place in places]
    op = _cpu.tiered_moe(weights, addresses[0], router, addresses[-1])
    plain = port.op(op, owned, router, source.arenas, places)
    waves = Waves(op, source, w.top_k, ahead is not None)
    return TieredOp(plain.ops, plain.width, plain.owned, waves=waves)


def _weights(
    pack: Packer, w: MoeWeights, form: ExpertForm
) -> tuple[NativePort, _cpu.MixtureWeights, object]:
    """All but the routed experts, and what keeps it alive."""
    port, router = pack.port(w.residual), pack.linear(w.router)
    gate = None if w.shared_gate is None else pack.linear(w.shared_gate)
    shared, record = None, None
    if w.shared is not None:
        own = expert_form(pack, w.shared)
        shared, record = _native(own), pack.take(own.nbytes)
        pack_expert(pack, w.shared, record)
    place = 0 if record is None else record.data_ptr()
    weights = _cpu.MixtureWeights(
        port.port, router, w.top_k, w.normalise, _native(form), shared, place, gate
    )
    return port, weights, (router, gate, record)


def _native(form: ExpertForm) -> _cpu.ExpertForm:
    return _cpu.ExpertForm(form.formats, form.ffn, form.hidden, form.offsets)
