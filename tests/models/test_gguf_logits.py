"""Logits of tiny GGUFs of every tensor type against transformers on their dequantised weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from torch import Tensor

from strata.files import WEIGHTS
from strata.synth import blocks

HIDDEN, FFN, LAYERS, VOCAB = 256, 512, 2, 67
TOKENS = torch.randint(0, VOCAB, (80,), generator=torch.Generator().manual_seed(5)).tolist()

# transformers name -> GGUF name, within a layer and outside
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{kind}"
    _, _, number, rest = stem.split(".", 3)
    return f"blk.{number}.{LAYER[rest]}.{kind}"


def quantised(kind: Type, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Bytes of the given type; random blocks of it where the package cannot make any."""
    try:
        return gguf.quantize(values, kind)
    except NotImplementedError:
        spread = np.full(len(values), values.std(), np.float32)
        return blocks.rows(kind, values.shape[-1], spread, 0.0, rng)


def neighbours(values: np.ndarray, heads: int, back: bool = False) -> np.ndarray:
    """Rows of q or k from halves to neighbouring pairs, as llama.cpp wants them; or back."""
    rest = values.shape[1:]
    split = (heads, -1, 2, *rest) if back else (heads, 2, -1, *rest)
    return values.reshape(split).swapaxes(1, 2).reshape(values.shape)


def write(path: Path, model: Any, kinds: Callable[[str], str], extra: dict[str, Any]) -> None:
    """Write the model as a GGUF and give it back the values that the quantisation left."""
    config, rng = model.config, np.random.default_rng(7)
    arch = config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim if hasattr(config, "head_dim") else HIDDEN // 4)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for key, value in extra.items():
        if isinstance(value, np.ndarray):
            writer.add_tensor(key, value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        else:
            writer.add_uint32(f"{arch}.{key}", value)
    tied = config.tie_word_embeddings
    for name, parameter in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = parameter.numpy()
        heads = config.num_attention_heads if ".q_proj" in name else config.num_key_value_heads
        turned = arch == "llama" and (".q_proj" in name or ".k_proj" in name)
        values = neighbours(values, heads) if turned else values
        target = gguf_name(name)
        kind = Type[kinds(target)] if values.ndim == 2 else Type.F32
        data = quantised(kind, values, rng)
        writer.add_tensor(target, data, raw_dtype=kind)
        values = gguf.dequantize(data, kind)
        values = neighbours(values, heads, back=True) if turned else values
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_model(family: str, **changes: Any) -> Any:
    torch.manual_seed(11)
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.08,
        "tie_word_embeddings": False,
    }
    config = getattr(transformers, f"{family}Config")(**{**settings, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.dim() == 1:
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def make(
    path: Path, family: str, kinds: Callable[[str], str], extra: dict[str, Any], **changes: Any
) -> Tensor:
    """A GGUF at `path`; transformers' logits on its dequantised weights."""
    model = random_model(family, **changes)
    write(path, model, kinds, extra)
    logits: Tensor = model(torch.tensor([TOKENS])).logits[0]
    assert logits.std() > 0.5
    return logits


def check(bench: Any, expected: Tensor, chunks: tuple[int | None, ...] = (None, 7)) -> None:
    for chunk in chunks:
        worst = (bench.logits(TOKENS, chunk) - expected).abs().max()
        assert worst < 1e-4, f"chunks of {chunk}: {worst}"


@pytest.mark.parametrize("kind", WEIGHTS)
def test_every_type_in_reference_mode(kind: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    expected = make(tmp_path / "m.gguf", "Llama", lambda _: kind, {})
    check(load(tmp_path / "m.gguf", "reference"), expected)


def divergence(expected: Tensor, got: Tensor) -> float:
    """Mean KL divergence per token."""
    p, q = expected.double().log_softmax(-1), got.double().log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


@pytest.mark.parametrize("kind", WEIGHTS)
def test_every_type_with_native_kernels(
    kind: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    """Activations are rounded to eight bits for the quantised types."""
    pytest.importorskip("strata.kernels._cpu")
    expected = make(tmp_path / "m.gguf", "Llama", lambda _: kind, {})
    bench = load(tmp_path / "m.gguf", "native")
    whole = bench.logits(TOKENS)
    limit = 1e-5 if kind in ("F32", "F16", "BF16") else 5e-3
    assert divergence(expected, whole) < limit
    for chunk in (33, 1):
        assert torch.equal(bench.logits(TOKENS, chunk), whole)


MIXED = {"attn_q": "Q5_0", "attn_v": "Q8_0", "ffn_down": "Q6_K", "ffn_up": "Q4_K"}


def mixed(name: str) -> str:
    """Another type for each matrix, as real files have it."""
    for part, kind in MIXED.items():
        if part in name:
            return kind
    return "Q4_1"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_families(family: str, tied: bool, tmp_path: Path, load: Callable[..., Any]) -> None:
    path = tmp_path / "m.gguf"
    expected = make(path, family, mixed, {}, tie_word_embeddings=tied)
    check(load(path, "reference"), expected, (None, 64, 1))


def test_biases_of_a_llama(tmp_path: Path, load: Callable[..., Any]) -> None:
    """Biases of q and k are reordered with the rows they belong to."""
    path = tmp_path / "m.gguf"
    model = random_model("Llama", attention_bias=True)
    for layer in model.model.layers:
        layer.self_attn.o_proj.bias = None
    write(path, model, lambda _: "Q8_0", {})
    check(load(path, "reference"), model(torch.tensor([TOKENS])).logits[0])


def llama3_divisors() -> np.ndarray:
    """The tensor rope_freqs.weight that converters write for the settings of the next test."""
    base = 1.0 / 10000.0 ** (np.arange(0, 64, 2) / 64)
    divisors = []
    for frequency in base:
        wave = 2 * np.pi / frequency
        if wave < 64 / 4:
            divisors.append(1.0)
        elif wave > 64 / 1:
            divisors.append(8.0)
        else:
            smooth = (64 / wave - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / 8 + smooth))
    return np.asarray(divisors, dtype=np.float32)


SCALED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": (
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"rope_type": "linear", "factor": 4.0},
    ),
    "factor-alone": ({"rope.scaling.factor": 2.0}, {"rope_type": "linear", "factor": 2.0}),
    "none": (
        {"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
        {"rope_type": "default"},
    ),
    "llama3": (
        {"rope_freqs.weight": llama3_divisors()},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "yarn": (
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    ),
}


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
@pytest.mark.parametrize("case", SCALED)
def test_rope_scaling(case: str, family: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    extra, settings = SCALED[case]
    path = tmp_path / "m.gguf"
    rope = {**settings, "rope_theta": 10000.0}
    expected = make(path, family, lambda _: "F16", extra, rope_parameters=rope)
    check(load(path, "reference"), expected)


def test_partial_rotation_turns_neighbours_of_the_first_dimensions(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    """llama with rope.dimension_count below the head size, against the definition by hand."""
    path = tmp_path / "m.gguf"
    model = random_model("Llama", num_hidden_layers=1)
    write(path, model, lambda _: "F32", {"rope.dimension_count": 32})
    # The rows of q and k as the file has them: pairs (2i, 2i + 1) of the first 32 turn.
    attention = model.model.layers[0].self_attn
    for projection, heads in ((attention.q_proj, 4), (attention.k_proj, 2)):
        rows = neighbours(projection.weight.numpy(), heads)
        projection.weight.copy_(torch.from_numpy(np.ascontiguousarray(rows)))
    angles = torch.arange(len(TOKENS))[:, None] * 10000.0 ** (-torch.arange(0, 32, 2) / 32)

    def rotate(x: Tensor, cos: Tensor, sin: Tensor, **_: Any) -> Tensor:
        a, b, rest = x[..., 0:32:2], x[..., 1:32:2], x[..., 32:]
        cos, sin = angles.cos(), angles.sin()
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return torch.cat((turned, rest), -1)

    from transformers.models.llama import modeling_llama

    both = lambda q, k, cos, sin, **_: (rotate(q, cos, sin), rotate(k, cos, sin))  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_llama, "apply_rotary_pos_emb", both)
        expected = model(torch.tensor([TOKENS])).logits[0]
    check(load(path, "reference"), expected)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_transformers_own_reader_agrees(
    family: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    """The names and the order of rows are those that transformers reads from a GGUF."""
    path = tmp_path / "m.gguf"
    make(path, family, lambda _: "Q8_0", {"vocab_size": VOCAB})
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", dtype=torch.float32
    )
    with torch.no_grad():
        expected = model(torch.tensor([TOKENS])).logits[0]
    check(load(path, "reference"), expected)
