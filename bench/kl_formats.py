"""What a weight format costs, and what the arithmetic on it adds: KL divergence for each format.

SmolLM2-135M, its matrices widened with zeros to multiples of 256, which changes no probability, and
quantised anew by llama.cpp's own routines; embeddings and output in F16. Two figures a program:
from transformers in float32 on the same file's dequantised weights (the error of the arithmetic:
activations in eight bits, keys and values in f16), and from the model before quantising (that of
the format as well). Teacher-forced, in nats a token.

    python bench/kl_formats.py --peer /path/to/venv/bin/python [--model FILE] [--format Q4_K ...]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from kl import Score, Strata, inputs, oracle_logits, peer_logits
from requantise import copy_metadata

from strata.cli.terminal import Progress
from strata.config import cache_folder, environment
from strata.files import fetch
from strata.types import Backend

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]

HEADS, KEY_HEADS, HIDDEN, DIM = 9, 3, 576, 64
WIDE_HEADS, WIDE_KEY_HEADS, WIDE = 12, 4, 768
# What a widened file says of itself in place of the source's values. The norm's mean is over more
# numbers: its least grows less, and its weights shrink.
SIZES = {
    "llama.embedding_length": WIDE,
    "llama.attention.head_count": WIDE_HEADS,
    "llama.attention.head_count_kv": WIDE_KEY_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5 * HIDDEN / WIDE,
}
FORMATS = (
    "BF16 F16 Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 NVFP4 Q3_K IQ3_S IQ3_XXS"
    " Q2_K IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0"
)


def widened(name: str, data: Array) -> Array:
    """A tensor of the file with zeros where the wider model has more."""
    if data.ndim == 1:
        return np.pad(data * np.float32((HIDDEN / WIDE) ** 0.5), (0, WIDE - HIDDEN))
    rows, columns = data.shape
    more = {"attn_q": WIDE, "attn_k": WIDE_KEY_HEADS * DIM, "attn_v": WIDE_KEY_HEADS * DIM}
    more |= {"attn_output": WIDE, "ffn_down": WIDE}
    kind = name.split(".")[-2]
    wide_columns = WIDE if columns == HIDDEN else columns
    return np.pad(data, ((0, more.get(kind, rows) - rows), (0, wide_columns - columns)))


def read(source: Path) -> Tensors:
    """All tensors of the file, wide, as the format of files has them."""
    tensors = {}
    for one in GGUFReader(source).tensors:
        data = gguf.quants.dequantize(one.data, one.tensor_type).astype(np.float32)
        tensors[one.name] = widened(one.name, data)
    return tensors


def quantised(name: str, data: Array) -> bool:
    """Whether a tensor is a layer's matrix."""
    return data.ndim == 2 and name.startswith("blk.")


def write(source: Path, target: Path, tensors: Tensors, kind: str, peer: str) -> Tensors:
    """The file with its layers' matrices in a format; returns what its tensors then are."""
    wanted = GGMLQuantizationType[kind]
    writer = GGUFWriter(target, "llama")
    copy_metadata(GGUFReader(source), writer, 0)
    for key, value in SIZES.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        writer.kv_data[0].pop(key, None)
        add(key, value)
    left = {}
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for name, data in tensors.items():
            if quantised(name, data):
                np.save(f"{folder}/{name}.npy", data)
        script = str(Path(__file__).with_name("quantise_llama.py"))
        subprocess.run([peer, script, folder, str(int(wanted))], check=True)
        for name, data in tensors.items():
            if quantised(name, data):
                blocks = np.fromfile(f"{folder}/{name}.bin", dtype=np.uint8)
                blocks = blocks.reshape(data.shape[0], -1)
                writer.add_tensor(name, blocks, raw_dtype=wanted)
                left[name] = gguf.quants.dequantize(blocks, wanted).astype(np.float32)
            elif data.ndim == 2:
                writer.add_tensor(name, data.astype(np.float16))
                left[name] = data.astype(np.float16).astype(np.float32)
            else:
                writer.add_tensor(name, data)
                left[name] = data
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return left


def oracle(tensors: Tensors) -> Any:
    """transformers' model in float32 with these weights."""
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=WIDE,
        intermediate_size=tensors["blk.0.ffn_up.weight"].shape[0],
        num_hidden_layers=1 + max(int(n.split(".")[1]) for n in tensors if n.startswith("blk.")),
        num_attention_heads=WIDE_HEADS,
        num_key_value_heads=WIDE_KEY_HEADS,
        head_dim=DIM,
        rms_norm_eps=SIZES["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    parts = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    state = {}
    for name, data in tensors.items():
        if name in names:
            state[names[name]] = torch.from_numpy(data)
            continue
        _, layer, part, _ = name.split(".")
        if part in (
            "attn_q",
            "attn_k",
        ):  # pairs of neighbours, not of halves
            heads = data.reshape(-1, DIM // 2, 2, data.shape[1])
            data = np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(data.shape)
        state[f"model.layers.{layer}.{parts[part]}.weight"] = torch.from_numpy(data)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    return model


def scored(expected: Sequence[torch.Tensor], got: Sequence[Any]) -> float:
    """The mean divergence."""
    score = Score("", [], [])
    for logits, other in zip(expected, got, strict=True):
        score.add(logits, torch.as_tensor(other))
    return float(np.mean(score.kl))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, help="a Python that has xllamacpp")
    parser.add_argument("--model", type=Path, help="SmolLM2-135M-Instruct; found or fetched")
    parser.add_argument("--format", nargs="*", default=FORMATS.split())
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = cache_folder(environment())
    source = args.model or fetch.locate("", folder / "models", Progress())
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    texts = inputs(tokenizer)[0][: args.texts]
    tensors = read(source)
    whole = oracle(tensors)
    unquantised = [oracle_logits(whole, text) for text in texts]
    print(
        "| format | bits a weight | the format | Strata's arithmetic | llama.cpp's | both, Strata |"
    )
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for kind in args.format:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / f"{kind}.gguf"
            left = write(source, file, tensors, kind, args.peer)
            model = oracle(left)
            expected = [oracle_logits(model, text) for text in texts]
            ours = Strata(file, Backend.NATIVE, args.threads, 1024)
            got = [ours.logits(text) for text in texts]
            theirs = scored(expected, peer_logits(args.peer, file, args.threads, texts))
        block, size = gguf.GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
        figures = [scored(unquantised, expected), scored(expected, got), theirs]
        cells = [f"{one:.1e}" for one in [*figures, scored(unquantised, got)]]
        print(f"| {kind} | {8 * size / block:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
