"""Checkpoints of the sparse and hybrid families: the forms they come in, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import families
import pytest
import torch
from families import CASES, DENSE, FLASH, MOE, NEXT, OLMOE, SPARSE, Case
from safetensors.torch import load_file, save_file
from torch import Tensor

from strata.files import ModelFile
from strata.models import qwen4_exp
from strata.types import ConfigError, ModelError


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint of a family, to be copied."""
    made: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            families.make(Case(family), made[family])
        return made[family]

    return get


# ----------------------------------------------------------------- formats


def change(folder: Path, how: Callable[[dict[str, Tensor]], None]) -> None:
    """Rewrite the tensors of a checkpoint in one file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    how(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def fuse_experts(tensors: dict[str, Tensor]) -> None:
    """As the authors' own checkpoints hold them: one tensor for all experts of a layer."""
    for first in [name for name in tensors if name.endswith("experts.0.gate_proj.weight")]:
        stem = first.removesuffix("0.gate_proj.weight")
        count = sum(name.startswith(stem) for name in tensors) // 3

        def taken(kind: str, stem: str = stem, count: int = count) -> Tensor:
            return torch.stack([tensors.pop(f"{stem}{i}.{kind}.weight") for i in range(count)])

        tensors[stem + "gate_up_proj"] = torch.cat((taken("gate_proj"), taken("up_proj")), 1)
        tensors[stem + "down_proj"] = taken("down_proj")
    assert any(name.endswith("experts.gate_up_proj") for name in tensors)


def one_table(tensors: dict[str, Tensor]) -> None:
    """Each n-gram table as one tensor; its hashes as the config says."""
    for first in [name for name in tensors if name.endswith(".shard_0.weight")]:
        shards = [first.replace("shard_0", f"shard_{i}") for i in range(4)]
        joined = torch.cat([tensors.pop(shard) for shard in shards])
        tensors[first.replace("shard_0.", "")] = joined
    ends = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    gone = [name for name in tensors if name.endswith(ends)]
    assert gone
    for name in gone:
        del tensors[name]


def other_hashes(tensors: dict[str, Tensor]) -> None:
    next(t for name, t in tensors.items() if name.endswith("layer_multipliers")).add_(2)


@pytest.mark.parametrize(
    ("case", "how"),
    [
        ("qwen3moe", fuse_experts),
        ("qwen3next-dense-layers", fuse_experts),
        ("flash-multimodal", fuse_experts),
        ("flash", one_table),
        ("flash-two-ngram-layers", one_table),
    ],
)
def test_other_forms_of_a_checkpoint(
    case: str, how: Callable[..., None], tmp_path: Path, load: Callable[..., Any]
) -> None:
    families.make(CASES[case], tmp_path)
    tokens = families.tokens(8, 50)
    before = load(tmp_path, "reference")
    change(tmp_path, how)
    after = load(tmp_path, "reference")
    assert torch.equal(before.logits(tokens), after.logits(tokens))


def test_a_checkpoint_in_several_files(tmp_path: Path, load: Callable[..., Any]) -> None:
    expected = families.make(CASES["flash"], tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    got = load(tmp_path, "reference").logits(families.tokens(0))
    assert (got - expected).abs().max() < 1e-4


def test_hashes_that_a_checkpoint_holds_are_obeyed(
    tmp_path: Path, load: Callable[..., Any]
) -> None:
    families.make(CASES["flash"], tmp_path)
    tokens = families.tokens(8, 50)
    before = load(tmp_path, "reference").logits(tokens)
    change(tmp_path, other_hashes)
    assert (load(tmp_path, "reference").logits(tokens) - before).abs().max() > 1e-2


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("case", ["flash", "flash-two-ngram-layers", "flash-multimodal"])
def test_ngrams_through_a_cache_of_rows(
    case: str, backend: str, tmp_path: Path, load: Callable[..., Any]
) -> None:
    if backend == "native":
        pytest.importorskip("strata.kernels._cpu", reason="the native kernels were not built")
    families.make(CASES[case], tmp_path, max_shard_size="60KB")
    tokens = families.tokens(8, 150)
    mapped = load(tmp_path, backend)
    assert mapped.model.rows() is None
    # The smallest cache for 50 tokens, where rows are missed all the time, and one for all.
    settings = CASES[case].settings
    layers, heads = len(settings["ple_layer_ids"]), settings["heads_per_ngram"]
    heads *= settings.get("ngram_size", 3) - 1
    row = settings["ple_embed_dim"] // heads * CASES[case].dtype.itemsize
    least = layers * 50 * heads * (row + 36)
    with pytest.raises(ConfigError, match="--ngram-cache"):
        load(tmp_path, backend, rows=least - 1)
    misses = []
    for rows in (least, 1 << 20):
        cached = load(tmp_path, backend, rows=rows)
        for chunk in (1, 7, 50):
            want = mapped.logits(tokens, chunk)
            assert torch.equal(cached.logits(tokens, chunk), want), (rows, chunk)
        told = cached.model.rows()
        assert told.lookups == 3 * 150 * layers * heads
        misses.append(told.lookups - told.hits)
    assert misses[0] > misses[1] > 0


def test_a_table_of_ngrams_is_no_memory(tmp_path: Path, load: Callable[..., Any]) -> None:
    families.make(CASES["flash"], tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    table = sum(t.nbytes for name, t in tensors.items() if ".shard_" in name)
    whole = sum(t.nbytes for t in tensors.values())
    assert load(tmp_path, "reference").model.weight_bytes == whole - table > 0


@pytest.mark.parametrize("case", ["qwen35moe-multimodal", "flash-multimodal"])
def test_what_text_does_not_need_is_ignored_and_told(
    case: str, tmp_path: Path, load: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    families.make(CASES[case], tmp_path)
    change(tmp_path, lambda t: t.update({"mtp.fc.weight": torch.ones(2), "mtp.x": torch.ones(2)}))
    load(tmp_path, "reference")
    vision = sum(
        name.startswith("model.visual.") for name in load_file(tmp_path / "model.safetensors")
    )
    assert vision > 5
    assert f"{vision} tensors of the part that sees images are not used" in caplog.text
    assert "2 tensors of the head that drafts tokens are not used" in caplog.text


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        (MOE, ["norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "rms_norm_eps"]),
        (OLMOE, ["norm_topk_prob", "rms_norm_eps"]),
        (NEXT, ["norm_topk_prob", "linear_conv_kernel_dim", "rope_parameters"]),
        (SPARSE, ["linear_conv_kernel_dim", "max_position_embeddings"]),
        (FLASH, ["norm_topk_prob", "output_gate_type", "seed", "ngram_size", "hc_count"]),
        (FLASH, ["ple_conv_kernel_size", "ple_embed_dim", "linear_conv_kernel_dim"]),
    ],
)
def test_keys_that_a_config_leaves_out(
    family: str,
    keys: list[str],
    pristine: Callable[[str], Path],
    tmp_path: Path,
    load: Callable[..., Any],
) -> None:
    """Their values are those that transformers assumes, and wrote for this checkpoint."""
    folder, tokens = pristine(family), families.tokens(8, 30)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: config[key] for key in config if key not in keys}))
    whole, less = (load(place, "reference").logits(tokens) for place in (folder, tmp_path))
    assert torch.equal(whole, less)


SHIPPED = {
    "hidden_size": 2560,
    "num_hidden_layers": 48,
    "vocab_size": 248320,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12,
    "rope_parameters": {
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "output_gate_type": "sigmoid",
    "mamba_ssm_dtype": "float32",
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "ple_layer_ids": [2],
    "ple_embed_dim": 2560,
    "eos_token_id": 248044,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "mtp_num_hidden_layers": 1,
}


def test_the_shape_of_flash_next_as_it_ships() -> None:
    """Against sizes that are known of the checkpoint: 36 recurrent layers, 64 dimensions that
    turn, and a table of 320,001,536 rows of 160, which are padded to a multiple of 128.
    """
    outer = {"model_type": "qwen4_exp", "text_config": SHIPPED, "tie_word_embeddings": False}
    file = ModelFile("folder", Path("Flash"), "qwen4_exp", {"config": outer}, {})
    config = qwen4_exp.read_config(file)
    assert (sum(config.recurrent), len(config.recurrent), config.rope.dims) == (36, 48, 64)
    assert config.ngram is not None and config.delta is not None and config.experts is not None
    assert config.delta.sigmoid_gate and config.experts.normalise and config.experts.dense == ()
    assert set(config.ngram.hashes) == {1} and config.ngram.dim == 160
    own = config.ngram.hashes[1]
    rows = own.offsets[-1] + own.sizes[-1]
    assert len(own.sizes) == 16 and -(-rows // 128) * 128 == 320_001_536
    assert all(0 < m * 248319 < 1 << 63 and m % 2 for m in own.multipliers)


# ---------------------------------------------------------------- refusals

_LINEAR = "linear_attention"


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (MOE, {"norm_topk_prob": True, "num_experts_per_tok": 9}, "takes 9 of 6 experts"),
        (MOE, {"rope_parameters": {"mrope_section": [1]}}, "with mrope_section is not supported"),
        (MOE, {"use_sliding_window": True}, "use_sliding_window = True"),
        (MOE, {"num_experts": "gone", "num_local_experts": "gone"}, "does not say num_experts"),
        (OLMOE, {"clip_qkv": 8.0}, "clip_qkv = 8.0"),
        (NEXT, {"layer_types": [_LINEAR, _LINEAR, "chunked"]}, "layers of the kind chunked"),
        (NEXT, {"layer_types": [_LINEAR]}, "1 layer_types for 3 layers"),
        (NEXT, {"linear_value_head_dim": 16}, "keys and values of different lengths"),
        (NEXT, {"linear_num_key_heads": 3}, "4 value heads .* cannot share 3 key heads"),
        (NEXT, {"attn_output_gate": False}, "attn_output_gate = False"),
        (DENSE, {"output_gate_type": "sigmoid"}, "output_gate_type = 'sigmoid'"),
        (DENSE, {"num_experts": 4}, "num_experts = 4"),
        (SPARSE, {"norm_topk_prob": False}, "norm_topk_prob = False"),
        (SPARSE, {"mlp_only_layers": [1]}, r"mlp_only_layers = \[1\]"),
        (FLASH, {"indexer_kv_heads": 2}, "indexer_kv_heads = 2"),
        (FLASH, {"indexer_budget": 30}, "budget of 30 tokens is no whole number of blocks of 4"),
        (FLASH, {"indexer_head_dim": 4}, "8 dimensions does not fit an indexer of 4"),
        (FLASH, {"indexer_n_heads": "gone"}, "does not say indexer_n_heads"),
        (FLASH, {"eos_token_id": "gone"}, "does not say eos_token_id"),
        (FLASH, {"ple_layer_ids": [4]}, r"ple_layer_ids is \[4\] for 3 layers"),
        (FLASH, {"ple_embed_dim": 30}, "4 hashes cannot share an n-gram embedding of 30"),
        (FLASH, {"output_gate_type": "tanh"}, "output_gate_type = 'tanh'"),
    ],
)
def test_configurations_that_are_refused(
    family: str,
    changes: dict[str, Any],
    message: str,
    pristine: Callable[[str], Path],
    tmp_path: Path,
    load: Callable[..., Any],
) -> None:
    for path in pristine(family).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "gone"}))
    with pytest.raises(ModelError, match=message):
        load(tmp_path, "reference")


@pytest.mark.parametrize(
    ("family", "missing", "message"),
    [
        (MOE, "layers.1.mlp.experts.3.up_proj.weight", "no tensor .*experts.3.up_proj"),
        (FLASH, "layers.1.ple.ple_embedding.ngram_embedding.shard_3.weight", r"has \d+ rows of"),
        (FLASH, "hyper_connection_mixer.hc_norm.weight", "no tensor .*mixer.hc_norm"),
        (NEXT, "layers.0.linear_attn.A_log", "no tensor .*A_log"),
    ],
)
def test_a_missing_tensor_is_named(
    family: str,
    missing: str,
    message: str,
    pristine: Callable[[str], Path],
    tmp_path: Path,
    load: Callable[..., Any],
) -> None:
    for path in pristine(family).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    change(tmp_path, lambda tensors: tensors.pop("model." + missing))
    with pytest.raises(ModelError, match=message):
        load(tmp_path, "reference")


def test_pages_hold_whole_blocks_of_the_index(tmp_path: Path, load: Callable[..., Any]) -> None:
    families.make(Case(FLASH, {"indexer_budget": 12, "indexer_compress_ratio": 3}), tmp_path)
    with pytest.raises(ModelError, match="pages of 16 tokens do not hold whole index blocks of 3"):
        load(tmp_path, "reference")
