"""Quantised folders: every layout's rows, bit by bit, and logits of whole models.

What the weights must be is worked out by the quantiser (`quantisers`), place by place, or by
transformers' own dequantisation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import families
import pytest
import quantisers
import torch
import transformers
from quantisers import Parts
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from strata.files import ModelFile, open_model
from strata.kernels import choose
from strata.kernels.quant import Format, dequantise
from strata.models import loader, quantised
from strata.models.weights import Weights
from strata.types import Backend, ModelError

NAMES = {"w": ("", "X.weight"), "part": ("", "l.{}.experts.{}.X.weight"), "stack": ("", "X")}
BF16, F32 = torch.bfloat16, torch.float32
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are tiny
    yield
    torch.set_num_threads(threads)


def normal(rows: int, cols: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed)) * 0.05


def folder(path: Path, tensors: Parts, config: dict[str, Any]) -> ModelFile:
    """A folder of these tensors; opened, not yet joined."""
    path.mkdir(exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, path / "model.safetensors")
    whole = {"model_type": "llama", "quantization_config": config}
    (path / "config.json").write_text(json.dumps(whole))
    return open_model(path)


def joined(path: Path, parts: Parts, config: dict[str, Any], name: str = "X.") -> Weights:
    file = folder(path, {name + end: t for end, t in parts.items()}, config)
    return Weights(quantised.joined(file), NAMES)


def same(got: Tensor, want: Tensor) -> bool:
    return torch.equal(got, want) and got.dtype == want.dtype == F32


# ------------------------------------------------------------------ layouts


@pytest.mark.parametrize("scales", [F32, BF16])
@pytest.mark.parametrize(
    ("rows", "cols", "height", "width", "kind"),
    [
        (256, 384, 128, 128, Format.F8),
        (130, 256, 128, 128, Format.F8),  # the last block has two rows
        (129, 200, 128, 128, Format.F32),  # and here 72 columns
        (70, 256, 32, 64, Format.F32),
        (7, 256, 1, 256, Format.F8),  # a scale for each row
        (7, 96, 1, 96, Format.F32),
        (9, 256, 9, 256, Format.F8),  # one for all
    ],
)
def test_fp8(
    tmp_path: Path, rows: int, cols: int, height: int, width: int, kind: Format, scales: torch.dtype
) -> None:
    config: dict[str, Any] = {**FP8, "weight_block_size": [height, width]}
    end = "weight_scale_inv"
    if height in (1, rows):
        config, end = (
            {"quant_method": "compressed-tensors", "format": "float-quantized"},
            "weight_scale",
        )
    parts, want = quantisers.fp8(normal(rows, cols), height, width, scales, end)
    parts["input_scale"] = torch.tensor(0.5)
    weights = joined(tmp_path, parts, config)
    q = weights.matrix("w", None, rows, cols)
    assert q.format is kind and same(dequantise(q), want)
    some = torch.tensor([rows - 1, 0, 3])
    assert same(dequantise(q.pick(some)), want[some]) and same(dequantise(q.cut(2, 4)), want[2:6])
    assert weights.nbytes == q.nbytes == q.data.numel()
    weights.finish()


def test_fp8_as_transformers_has_it(tmp_path: Path) -> None:
    parts, _ = quantisers.fp8(normal(256, 256), 128, 128, F32)
    want = Fp8Dequantize(None).convert(parts)["weight"]
    assert same(dequantise(joined(tmp_path, parts, FP8).matrix("w", None, 256, 256)), want)


def test_fp8_in_a_stack(tmp_path: Path) -> None:
    made = [quantisers.fp8(normal(130, 256, i), 128, 128, BF16) for i in range(3)]
    stack = {"X": "weight", "X_scale_inv": "weight_scale_inv"}
    parts = {name: torch.stack([one[0][end] for one in made]) for name, end in stack.items()}
    matrices = joined(tmp_path, parts, FP8, "").stack("stack", None, 3, 130, 256)
    for q, (_, want) in zip(matrices, made, strict=True):
        assert q.format is Format.F8 and same(dequantise(q), want)
        assert same(dequantise(q.cut(100, 30)), want[100:])


GPTQ_CASES = {
    "symmetric": (128, True, {}),
    "of-32": (32, False, {}),
    "of-64": (64, False, {"order": False}),
    "v2": (128, False, {"less": 0}),
    "a-row": (256, False, {}),
}


@pytest.mark.parametrize("case", GPTQ_CASES)
def test_gptq(tmp_path: Path, case: str) -> None:
    group, symmetric, more = GPTQ_CASES[case]
    parts, want = quantisers.gptq(normal(24, 256), group, symmetric, **more)
    version = "gptq_v2" if case == "v2" else "gptq"
    config = {**GPTQ, "checkpoint_format": version, "group_size": -1 if group == 256 else group}
    q = joined(tmp_path, parts, config).matrix("w", None, 24, 256)
    assert q.format is (Format.Q4_0 if symmetric else Format.I4) and same(dequantise(q), want)
    some = torch.tensor([23, 1, 2])
    assert same(dequantise(q.pick(some)), want[some])


@pytest.mark.parametrize("symmetric", [True, False])
def test_awq(tmp_path: Path, symmetric: bool) -> None:
    parts, want = quantisers.awq(normal(24, 256), 64, symmetric)
    q = joined(tmp_path, parts, AWQ).matrix("w", None, 24, 256)
    assert q.format is (Format.Q4_0 if symmetric else Format.I4) and same(dequantise(q), want)
    some = torch.tensor([23, 1, 2])
    assert same(dequantise(q.pick(some)), want[some])


@pytest.mark.parametrize("case", ["symmetric", "zeros", "tiny", "float"])
def test_packed_int4(tmp_path: Path, case: str) -> None:
    w = normal(24, 256)
    parts, want = quantisers.compressed(w, 32, case != "zeros", F32 if case == "float" else BF16)
    kind = {"symmetric": Format.Q4_0, "float": Format.F32}.get(case, Format.I4)
    if case == "tiny":  # a scale that f16 does not hold
        parts["weight_scale"][5, 3] = 1.375e-7
        q = quantisers.int4(w, 32, True, BF16)[0][5, 96:128]
        want[5, 96:128] = torch.from_numpy(q - 8).float() * parts["weight_scale"][5, 3].float()
    made = joined(tmp_path, parts, PACKED).matrix("w", None, 24, 256)
    assert made.format is kind and same(dequantise(made), want)


@pytest.mark.parametrize(("group", "cols"), [(16, 64), (40, 40), (72, 144)])
def test_int4_that_fits_no_block_becomes_floats(tmp_path: Path, group: int, cols: int) -> None:
    parts, want = quantisers.gptq(normal(8, cols), group, False)
    q = joined(tmp_path, parts, GPTQ).matrix("w", None, 8, cols)
    assert q.format is Format.F32 and same(dequantise(q), want)


def test_experts_of_a_layer_have_one_format(tmp_path: Path) -> None:
    """A mixture's kernels take them all alike: the second one alone needs zeros of its own."""
    made = [quantisers.gptq(normal(8, 64, i), 32, i != 1) for i in range(3)]
    parts = {
        f"l.0.experts.{i}.X.{end}": t for i, (one, _) in enumerate(made) for end, t in one.items()
    }
    matrices = joined(tmp_path, parts, GPTQ, "").stack("part", 0, 3, 8, 64)
    assert [q.format for q in matrices] == [Format.I4] * 3
    assert all(same(dequantise(q), left) for q, (_, left) in zip(matrices, made, strict=True))


def test_mxfp4_as_transformers_has_it(tmp_path: Path) -> None:
    made = [quantisers.mxfp4(normal(6, 96, i)) for i in range(2)]
    pairs, scales = (torch.stack([one[i] for one in made]) for i in (0, 1))
    blocks = pairs.view(2, 6, 3, 16)
    want = convert_moe_packed_tensors(blocks, scales, dtype=F32).transpose(1, 2)
    assert same(want[1].contiguous(), made[1][2])
    stack = joined(
        tmp_path, {"X_blocks": blocks, "X_scales": scales}, {"quant_method": "mxfp4"}, ""
    )
    for q, one in zip(stack.stack("stack", None, 2, 6, 96), want, strict=True):
        assert q.format is Format.MXFP4 and torch.equal(dequantise(q), one)
    parts = {"weight_packed": pairs[1], "weight_scale": scales[1]}
    own = joined(tmp_path, parts, {**PACKED, "format": "mxfp4-pack-quantized"})
    assert torch.equal(dequantise(own.matrix("w", None, 6, 96)), want[1])


# ------------------------------------------------------------------ refusals


def _without_zeros(parts: Parts) -> None:
    del parts["qzeros"]


def _shuffled(parts: Parts) -> None:
    parts["g_idx"] = parts["g_idx"].flip(0)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        ({"quant_method": "bitsandbytes"}, None, "with bitsandbytes; from safetensors .* fp8, fbg"),
        ({**GPTQ, "bits": 8}, None, r"of 8 bits \(gptq\) are not supported"),
        (GPTQ, _shuffled, r"'X.g_idx' .* \(desc_act\), which is not supported"),
        (GPTQ, _without_zeros, "'X.weight' lacks 'X.qzeros'"),
        ({**AWQ, "version": "gemv"}, None, "awq, gemv is not read"),
        (
            {**GPTQ, "quant_method": "auto-round", "packing_format": "x"},
            None,
            "x, None is not read",
        ),
        (AWQ, None, r"'X.qweight' of the shape \(32, 8\) does not fit"),
    ],
)
def test_refused(
    tmp_path: Path, config: dict[str, Any], change: Callable[[Parts], None] | None, message: str
) -> None:
    parts, _ = quantisers.gptq(normal(8, 256), 128, True)
    if change:
        change(parts)
    with pytest.raises(ModelError, match=message):
        joined(tmp_path, parts, config)


def test_fp8_that_is_damaged(tmp_path: Path) -> None:
    parts, _ = quantisers.fp8(normal(256, 256), 128, 128, F32)
    with pytest.raises(ModelError, match=r"'X.weight' lacks 'X.weight_scale_inv'"):
        joined(tmp_path, {"weight": parts["weight"]}, {})
    parts["weight_scale_inv"] = torch.ones(2, 3)
    with pytest.raises(ModelError, match=r"weight_scale_inv' of the shape \(2, 3\) does not fit"):
        joined(tmp_path, parts, FP8)


# ------------------------------------------------------------------ models


def _mx(w: Tensor) -> tuple[Parts, Tensor]:
    pairs, scales, left = quantisers.mxfp4(w)
    return {"weight_packed": pairs, "weight_scale": scales}, left


METHODS: dict[str, tuple[dict[str, Any], Callable[[Tensor], tuple[Parts, Tensor]]]] = {
    "fp8": (FP8, lambda w: quantisers.fp8(w, 128, 128, BF16)),
    "gptq": (GPTQ, lambda w: quantisers.gptq(w, 32, True)),
    "awq": (AWQ, lambda w: quantisers.awq(w, 32)),
    "mxfp4": ({**PACKED, "format": "mxfp4-pack-quantized"}, _mx),
}
SIZES = {"hidden_size": 128, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 160}
LLAMA = {
    "vocab_size": families.VOCAB,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,
}
LEFT = (
    "in_proj_a.weight",
    "in_proj_b.weight",
    "embed_tokens.weight",
    "lm_head.weight",
    "gate.weight",
)


def plain(family: str, path: Path) -> None:
    """A checkpoint in float32."""
    if family == "Llama":
        torch.manual_seed(1)
        config = transformers.LlamaConfig(**LLAMA)
        return transformers.LlamaForCausalLM(config).save_pretrained(path)
    case = families.CASES[family]
    families.make(replace(case, changes={**case.changes, **SIZES}), path)


def checkpoint(family: str, method: str, path: Path, fused: bool = False) -> Tensor:
    """A quantised folder at `path`; transformers' logits on the weights that are left."""
    config, quantise = METHODS[method]
    plain(family, path)
    tensors = load_file(path / "model.safetensors")
    left, made = dict(tensors), dict(tensors)
    for name, w in tensors.items():
        if w.dim() == 2 and name.endswith(".weight") and not name.endswith(("gate.weight", *LEFT)):
            parts, left[name] = quantise(w)
            del made[name]
            made |= {name.removesuffix("weight") + end: t for end, t in parts.items()}
    save_file(
        {n: t.contiguous() for n, t in left.items()}, path / "model.safetensors", {"format": "pt"}
    )
    stored = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=F32).eval()
    with torch.no_grad():
        logits: Tensor = stored(torch.tensor([families.tokens(0)]), use_cache=False).logits[0]
    whole = json.loads((path / "config.json").read_text())
    folder(path, _fused(made) if fused else made, {})
    (path / "config.json").write_text(json.dumps({**whole, "quantization_config": config}))
    return logits


def _fused(tensors: Parts) -> Parts:
    """FP8 experts as one tensor of a layer, gate and up joined."""
    out = {name: t for name, t in tensors.items() if ".experts." not in name}
    bases = {name.split(".experts.")[0] for name in tensors.keys() - out.keys()}
    for base in bases:
        for end in ("", "_scale_inv"):
            gate, up, down = (
                torch.stack([tensors[f"{base}.experts.{i}.{x}_proj.weight{end}"] for i in range(6)])
                for x in ("gate", "up", "down")
            )
            out[f"{base}.experts.gate_up_proj{end}"] = torch.cat((gate, up), dim=1)
            out[f"{base}.experts.down_proj{end}"] = down
    return out


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize(
    ("family", "method", "fused"),
    [
        ("Llama", "fp8", False),
        ("Llama", "gptq", False),
        ("Llama", "awq", False),
        ("qwen3moe", "fp8", False),
        ("qwen3moe", "fp8", True),
        ("qwen3moe", "gptq", False),
        ("qwen3moe", "mxfp4", False),
        ("qwen35moe", "fp8", False),
        ("qwen35moe", "awq", False),
        ("qwen3next", "gptq", False),
    ],
)
def test_logits(
    family: str, method: str, fused: bool, backend: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    expected = checkpoint(family, method, tmp_path, fused)
    assert expected.std() > 0.2  # a comparison of almost equal logits would show nothing
    bench = load(tmp_path, backend, kv_dtype="float32" if backend == "reference" else None)
    got = bench.logits(families.tokens(0), 64)
    if backend == "reference":
        assert (got - expected).abs().max() < 5e-4
    p, q = expected.double().log_softmax(-1), got.double().log_softmax(-1)
    assert float((p.exp() * (p - q)).sum(-1).mean()) < 1e-5


@pytest.mark.parametrize("rows", [None, 1 << 20])
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_a_table_of_fp8(
    backend: str, rows: int | None, tmp_path: Path, load: Callable[..., Any]
) -> None:
    """Flash-Next's n-grams: shards of bytes with one scale, read where they lie or by the row."""
    families.make(families.CASES["flash"], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    whole, scale = dict(tensors), torch.tensor([0.0031], dtype=BF16)
    shards = [name for name in tensors if "ngram_embedding.shard_" in name]
    assert len(shards) == 4
    for name in shards:
        whole[name] = (tensors[name] / scale.float()).to(torch.float8_e4m3fn)
        tensors[name] = whole[name].float() * scale.float()
    whole[shards[0].split("shard_")[0] + "weight_scale"] = scale
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    plain = load(tmp_path, backend).logits(families.tokens(0), 50)
    save_file(whole, tmp_path / "model.safetensors")
    got = load(tmp_path, backend, rows=rows).logits(families.tokens(0), 50)
    assert torch.equal(got, plain)
    del whole[shards[0].split("shard_")[0] + "weight_scale"]
    save_file(whole, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="n-gram table of layer 1 does not fit its scale"):
        load(tmp_path, backend)


def test_a_bias_of_zeros_is_nothing(tmp_path: Path) -> None:
    checkpoint("Llama", "gptq", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.bias"] = torch.zeros(160, dtype=torch.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    loader.load(open_model(tmp_path), choose(Backend.REFERENCE, "cpu", 1))
    tensors["model.layers.0.mlp.up_proj.bias"][7] = 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"does not use here: model.layers.0.mlp.up_proj.bias"):
        loader.load(open_model(tmp_path), choose(Backend.REFERENCE, "cpu", 1))
