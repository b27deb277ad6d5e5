"""The tensors of a model under their Hugging Face names: `tensors` in the other layout.

Where the layouts differ: norms may be stored less one, some matrices are joined, experts are
apart or packed by layer, the decay is a logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from strata.synth import ngrams
from strata.synth.shape import Family, Shape
from strata.synth.tensors import Tensor, gguf_tensors

SHARDS = 4  # of the n-gram table

_OUTSIDE: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_MIXER: Mapping[str, str] = {
    "norm": "hc_norm",
    "down": "input_mix_weight_down",
    "up": "input_mix_weight_up",
    "inject": "block_inject_weight",
}
_LAYER: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "indexer.q_proj": "self_attn.indexer.index_qk_proj",
    "indexer.q_norm": "self_attn.indexer.q_layernorm",
    "indexer.k_norm": "self_attn.indexer.k_layernorm",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ple_key": "ple.key_proj",
    "ple_value": "ple.value_proj",
    "ple_norm_key": "ple.norm_key",
    "ple_norm_query": "ple.norm_query",
    "ple_norm_conv": "ple.norm_conv",
    "ple_conv1d": "ple.conv1d",
    **{f"hc_attn_{ours}": f"attn_hyper_connection.{name}" for ours, name in _MIXER.items()},
    **{f"hc_ffn_{ours}": f"mlp_hyper_connection.{name}" for ours, name in _MIXER.items()},
}
_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}


def folder_tensors(family: Family, shape: Shape) -> Iterator[Tensor]:
    """All tensors of weights; none is `exact`: a folder has one type."""
    for one in gguf_tensors(family, shape):
        for own in _renamed(one, family, shape):
            yield replace(own, exact=False)


def constants(family: Family, shape: Shape) -> Iterator[tuple[str, list[int]]]:
    """Tensors of whole numbers: name, values."""
    if family.streams:
        at = "model.layers.1.ple.ple_embedding"
        sizes = ngrams.table_sizes(shape.ngram_heads, shape.ngram_vocab)
        yield f"{at}.layer_multipliers", ngrams.multipliers(shape.vocab)
        yield f"{at}.ngram_heads_vocab_sizes", sizes
        yield f"{at}.ngram_heads_offsets", [sum(sizes[:i]) for i in range(len(sizes))]


def _renamed(one: Tensor, family: Family, s: Shape) -> Iterator[Tensor]:
    if one.name in _OUTSIDE:
        yield replace(_uncentred(one, family), name=_OUTSIDE[one.name])
    elif one.name == "per_layer_token_embd.weight":
        at = "model.layers.1.ple.ple_embedding.ngram_embedding"
        for shard in range(SHARDS):
            rows = one.shape[0] // SHARDS
            yield replace(one, name=f"{at}.shard_{shard}.weight", shape=(rows, one.shape[1]))
    elif one.name.startswith("output_hc_"):
        stem = one.name.removeprefix("output_hc_").removesuffix(".weight")
        name = f"model.hyper_connection_mixer.{_MIXER[stem]}.weight"
        yield replace(_uncentred(one, family), name=name)
    else:
        _, number, rest = one.name.split(".", 2)
        yield from _in_layer(one, f"model.layers.{number}", rest, family, s)


def _in_layer(one: Tensor, at: str, rest: str, family: Family, s: Shape) -> Iterator[Tensor]:
    stem = rest.removesuffix(".weight")
    if stem in _EXPERTS:
        yield from _experts(one, f"{at}.mlp.experts", _EXPERTS[stem], family)
    elif stem == "ssm_a":
        # log of 1 to 16, evenly
        yield replace(one, name=f"{at}.linear_attn.A_log", mean=1.4, spread=0.8)
    elif stem == "ssm_dt.bias":
        yield replace(one, name=f"{at}.linear_attn.dt_bias")
    elif stem == "attn_qkv" and family.gguf == "qwen3next":
        whole = (s.channels + s.inner, s.hidden)
        yield replace(one, name=f"{at}.linear_attn.in_proj_qkvz.weight", shape=whole)
    elif stem == "indexer.q_proj":
        whole = ((s.index_heads + 1) * s.index_dim, s.hidden)
        yield replace(one, name=f"{at}.{_LAYER[stem]}.weight", shape=whole)
    elif stem == "indexer.k_proj" or (stem == "attn_gate" and family.gguf == "qwen3next"):
        return  # joined above
    else:
        own = _uncentred(one, family) if stem != "ssm_norm" else one
        if stem.endswith("conv1d"):
            own = replace(own, shape=(one.shape[0], 1, one.shape[1]))
        elif stem == "ffn_gate_inp_shexp":
            own = replace(own, shape=(1, *one.shape))
        yield replace(own, name=f"{at}.{_LAYER[stem]}.weight")


def _experts(one: Tensor, at: str, name: str, family: Family) -> Iterator[Tensor]:
    count, rows, cols = one.shape
    if not family.packed:
        for expert in range(count):
            yield replace(one, name=f"{at}.{expert}.{name}.weight", shape=(rows, cols))
    elif name == "gate_proj":
        yield replace(one, name=f"{at}.gate_up_proj", shape=(count, 2 * rows, cols))
    elif name == "down_proj":
        yield replace(one, name=f"{at}.down_proj")


def _uncentred(one: Tensor, family: Family) -> Tensor:
    """A norm as the family stores it."""
    norm = len(one.shape) == 1 and one.mean > 0
    return replace(one, mean=one.mean - 1) if norm and family.centred else one
