"""Qwen3.8-Flash-Next (`qwen4_exp`): four gated residual streams around Qwen3.5's layers.

No layer has a norm of its own: every sublayer mixes the streams into its input and feeds them
by learnt shares, and so does the head. Attention sees the blocks that an indexer selects. Some
layers begin by adding hashed n-gram embeddings, whose table stays in the file. Text only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strata.files import ModelFile
from strata.kernels import Kernels
from strata.kernels.indexer import IndexerWeights
from strata.kernels.ngram import NgramWeights
from strata.kernels.quant import Format
from strata.kernels.residual import GatedStreams
from strata.models import config_gguf, config_hf, experts, hybrid, ngram_hash
from strata.models.config import ArchConfig, IndexerShape, NgramHash, NgramShape, count
from strata.models.config_hf import HfDefaults
from strata.models.decoder import Decoder
from strata.models.layers import (
    HEAD_NORMS,
    Attention,
    Delta,
    Layer,
    Moe,
    Ngram,
    Sublayer,
    attention,
)
from strata.models.weights import Names, Weights
from strata.types import ModelError, ProgressSink

# ------------------------------------------------------------------ config

DEFAULTS = HfDefaults(
    head_dim=256,
    mrope=True,
    sparse=True,
    kinds={"linear_attention": True, "full_attention": False, "indexed_attention": False},
    usual={
        "attn_output_gate": (True,),
        "output_gate_type": ("sigmoid", "silu", "swish"),
        "indexer_kv_heads": (1,),
        "mlp_only_layers": ([],),
        "decoder_sparse_step": (1,),
    },
)


def read_config(file: ModelFile) -> ArchConfig:
    """The shape of a Flash-Next model. Raises ModelError."""
    if file.kind == "gguf":
        return config_gguf.read(file, hybrid.GGUF_KEYS | config_gguf.STREAMS, sigmoid_gate=True)
    config = config_hf.text_part(file)
    base = config_hf.read(file, DEFAULTS)
    shared = "shared_expert_intermediate_size"
    indexer = _indexer_shape(config)
    if base.rope.dims > indexer.dim:
        raise ModelError(
            f"rotary embedding of {base.rope.dims} dimensions does not fit an indexer of"
            f" {indexer.dim}"
        )
    return replace(
        base,
        experts=config_hf.experts(config, normalise=True, shared=shared),
        delta=config_hf.delta(config, config.get("output_gate_type") == "sigmoid"),
        indexer=indexer,
        streams=count(config, "hc_count", 4),
        stream_rank=count(config, "hc_lowrank", 320),
        ngram=_ngram_shape(config, base),
    )


def _indexer_shape(config: Mapping[str, Any]) -> IndexerShape:
    return IndexerShape(
        heads=count(config, "indexer_n_heads"),
        dim=count(config, "indexer_head_dim"),
        budget=count(config, "indexer_budget"),
        ratio=count(config, "indexer_compress_ratio"),
    )


def _ngram_shape(config: Mapping[str, Any], base: ArchConfig) -> NgramShape | None:
    numbers = sorted(set(config.get("ple_layer_ids") or ()))  # from 1
    if not numbers:
        return None
    if not 1 <= numbers[0] <= numbers[-1] <= base.layers:
        raise ModelError(f"ple_layer_ids is {numbers!r} for {base.layers} layers")
    size, heads = count(config, "ngram_size", 3), count(config, "heads_per_ngram", 8)
    width, hashes = count(config, "ple_embed_dim", base.hidden), (size - 1) * heads
    if not hashes or width % hashes:
        raise ModelError(f"{hashes} hashes cannot share an n-gram embedding of {width}")
    eos = config.get("eos_token_id")
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if not isinstance(eos, int):
        raise ModelError("config.json does not say eos_token_id, which ends an n-gram")
    return NgramShape(
        size=size,
        heads=heads,
        dim=width // hashes,
        kernel=count(config, "ple_conv_kernel_size", 4),
        eos=eos,
        hashes=ngram_hash.hashes(
            [number - 1 for number in numbers],
            hashes,
            size,
            base.vocab,
            least=count(config, "ngram_vocab_size_base", 20_000_000),
            seed=count(config, "seed", 1234),
        ),
    )


# ------------------------------------------------------------------ layers


def streams(weights: Weights, config: ArchConfig, layer: int | None, place: str) -> GatedStreams:
    """How a sublayer ("attention", "mlp"), or the head ("output"), meets the residual streams."""
    width, rank = config.streams * config.hidden, config.stream_rank
    inject = None
    if place != "output":
        inject = weights.matrix(f"{place}_inject", layer, config.streams, width)
    return GatedStreams(
        norm=weights.vector(f"{place}_norm", layer, width),
        eps=config.eps,
        streams=config.streams,
        down=weights.matrix(f"{place}_down", layer, rank, width),
        up=weights.matrix(f"{place}_up", layer, width, rank),
        inject=inject,
    )


def mixer(weights: Weights, config: ArchConfig, number: int) -> Sublayer:
    """The recurrent or the attention part of a layer."""
    residual = streams(weights, config, number, "attention")
    if config.recurrent[number]:
        inputs = hybrid.projections(weights, config, number)
        return Delta(hybrid.delta(weights, config, number, inputs, residual, tiled=True))
    own = attention(
        weights,
        config,
        number,
        HEAD_NORMS,
        gated=True,
        residual=residual,
        indexer=indexer(weights, config, number),
    )
    return Attention(own)


def indexer(weights: Weights, config: ArchConfig, number: int) -> IndexerWeights:
    """The indexer of an attention layer. A checkpoint joins its projections, the key's last."""
    shape = config.indexer
    assert shape is not None
    inner = shape.heads * shape.dim
    if weights.file.kind == "gguf":
        q = weights.matrix("index_q", number, inner, config.hidden)
        k = weights.matrix("index_k", number, shape.dim, config.hidden)
    else:
        joined = weights.matrix("index_qk", number, inner + shape.dim, config.hidden)
        q, k = joined.cut(0, inner), joined.cut(inner, shape.dim)
    return IndexerWeights(
        q=q,
        k=k,
        q_norm=weights.vector("index_q_norm", number, shape.dim),
        k_norm=weights.vector("index_k_norm", number, shape.dim),
        eps=config.eps,
        heads=shape.heads,
        dim=shape.dim,
        budget=shape.budget,
        ratio=shape.ratio,
    )


def ngram(weights: Weights, config: ArchConfig, number: int) -> Ngram:
    """The n-gram embeddings of a layer. A checkpoint may say its hashes itself."""
    shape = config.ngram
    assert shape is not None
    heads = (shape.size - 1) * shape.heads
    own, width, embed = shape.hashes[number], config.streams * config.hidden, heads * shape.dim
    if weights.has("ngram_multipliers", number):
        own = NgramHash(
            multipliers=weights.integers("ngram_multipliers", number, shape.size),
            sizes=weights.integers("ngram_sizes", number, heads),
            offsets=weights.integers("ngram_offsets", number, heads),
        )
    whole = "ngram_table" if weights.has("ngram_table", number) else "ngram_shard"
    table, parts = weights.table(whole, number, shape.dim)
    scaled = weights.has("ngram_scale", number)
    if (table[0].format is Format.E4M3) != scaled:
        raise ModelError(
            f"the n-gram table of layer {number} does not fit its scale: it is damaged"
        )
    rows = sum(part.rows for part in table)
    if rows < own.offsets[-1] + own.sizes[-1]:
        raise ModelError(
            f"the n-gram table of layer {number} has {rows} rows of"
            f" {own.offsets[-1] + own.sizes[-1]}: {weights.file.path} is not complete"
        )
    made = NgramWeights(
        table=table,
        multipliers=own.multipliers,
        sizes=own.sizes,
        offsets=own.offsets,
        eos=shape.eos,
        streams=config.streams,
        key=weights.matrix("ngram_key", number, width, embed),
        value=weights.matrix("ngram_value", number, config.hidden, embed),
        norm_key=weights.vector("ngram_key_norm", number, width),
        norm_query=weights.vector("ngram_query_norm", number, width),
        norm_conv=weights.vector("ngram_conv_norm", number, width),
        eps=config.eps,
        conv=weights.values("ngram_conv", number, width, shape.kernel),
        dilation=shape.size,
        scale=float(weights.vector("ngram_scale", number, 1)) if scaled else 1.0,
    )
    return Ngram(made, parts)


def layer(weights: Weights, config: ArchConfig, number: int) -> Layer:
    """One layer."""
    residual = streams(weights, config, number, "mlp")
    after = Moe(experts.moe(weights, config, number, residual))
    if config.ngram is not None and number in config.ngram.hashes:
        return (ngram(weights, config, number), mixer(weights, config, number), after)
    return (mixer(weights, config, number), after)


def build(file: ModelFile, kernels: Kernels, progress: ProgressSink) -> Decoder:
    """The whole model. Raises ModelError."""
    config = read_config(file)
    weights = Weights(file, NAMES, centred=CENTRED, ignored=hybrid.ignored(config))
    layers = [layer(weights, config, number) for number in range(config.layers)]
    head = streams(weights, config, None, "output")
    return Decoder(config, weights, layers, kernels, progress, head)


# ------------------------------------------------------------------- names

_NONE = ""  # the other kind of file has no such tensor
_LAYER = "model.layers.{}."
_INDEX = _LAYER + "self_attn.indexer."
_PLE = _LAYER + "ple."
_TABLE = _PLE + "ple_embedding."


def _stream_names(place: str, gguf: str, hf: str) -> Names:
    return {
        f"{place}_norm": (gguf + "norm.weight", hf + "hc_norm.weight"),
        f"{place}_down": (gguf + "down.weight", hf + "input_mix_weight_down.weight"),
        f"{place}_up": (gguf + "up.weight", hf + "input_mix_weight_up.weight"),
        f"{place}_inject": (gguf + "inject.weight", hf + "block_inject_weight.weight"),
    }


NAMES: Names = {
    **hybrid.NAMES,
    **experts.NAMES,
    **_stream_names("attention", "blk.{}.hc_attn_", _LAYER + "attn_hyper_connection."),
    **_stream_names("mlp", "blk.{}.hc_ffn_", _LAYER + "mlp_hyper_connection."),
    **_stream_names("output", "output_hc_", "model.hyper_connection_mixer."),
    "index_qk": (_NONE, _INDEX + "index_qk_proj.weight"),
    "index_q": ("blk.{}.indexer.q_proj.weight", _NONE),
    "index_k": ("blk.{}.indexer.k_proj.weight", _NONE),
    "index_q_norm": ("blk.{}.indexer.q_norm.weight", _INDEX + "q_layernorm.weight"),
    "index_k_norm": ("blk.{}.indexer.k_norm.weight", _INDEX + "k_layernorm.weight"),
    "ngram_key": ("blk.{}.ple_key.weight", _PLE + "key_proj.weight"),
    "ngram_value": ("blk.{}.ple_value.weight", _PLE + "value_proj.weight"),
    "ngram_key_norm": ("blk.{}.ple_norm_key.weight", _PLE + "norm_key.weight"),
    "ngram_query_norm": ("blk.{}.ple_norm_query.weight", _PLE + "norm_query.weight"),
    "ngram_conv_norm": ("blk.{}.ple_norm_conv.weight", _PLE + "norm_conv.weight"),
    "ngram_conv": ("blk.{}.ple_conv1d.weight", _PLE + "conv1d.weight"),
    "ngram_table": ("per_layer_token_embd.weight", _TABLE + "ngram_embedding.weight"),
    "ngram_shard": (_NONE, _TABLE + "ngram_embedding.shard_{}.weight"),
    "ngram_scale": (_NONE, _TABLE + "ngram_embedding.weight_scale"),
    "ngram_multipliers": (_NONE, _TABLE + "layer_multipliers"),
    "ngram_sizes": (_NONE, _TABLE + "ngram_heads_vocab_sizes"),
    "ngram_offsets": (_NONE, _TABLE + "ngram_heads_offsets"),
}
# Stored less one in a Hugging Face checkpoint: all norms but that of the Gated DeltaNet's output.
CENTRED = (
    *hybrid.CENTRED,
    "index_q_norm",
    "index_k_norm",
    "ngram_key_norm",
    "ngram_query_norm",
    "ngram_conv_norm",
)
