"""How far the logits are from transformers' on the same file: Strata's two modes and llama.cpp.

Teacher-forced over 256 tokens of 8 texts (`tests/data/texts.txt`): mean KL divergence per token,
in nats, from transformers' distribution on the file's dequantised weights in float32; how often
the most likely token is the same; and greedy continuations of 20 prompts. The native kernels once
for each `--kv-type`. llama.cpp is run by `--peer`, a Python that has `xllamacpp`.

    python bench/kl.py MODEL.gguf [--peer /path/to/venv/bin/python] [--threads 2]
        [--kv-type f16 --kv-type bf16 --kv-type q8]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from strata.files import open_model
from strata.kernels import choose
from strata.memory.arena import SlotArena
from strata.memory.layout import page_layout, state_layout
from strata.models import loader
from strata.types import Backend, ForwardPlan

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 16
LENGTH = 64  # of the greedy continuations


class Strata:
    """A model with memory for one sequence."""

    def __init__(
        self, path: Path, backend: Backend, threads: int, length: int, kv_type: str | None = None
    ) -> None:
        self.kernels = choose(backend, "cpu", threads, kv_type=kv_type)
        self.model = loader.load(open_model(path), self.kernels)
        pages = -(-length // BLOCK)
        memory = self.model.memory(BLOCK)
        arena = SlotArena(pages, page_layout(memory).nbytes)
        self.states = SlotArena(1, state_layout(memory).nbytes)
        self.model.bind(arena, self.states if self.states.nbytes else None, BLOCK)

    def step(self, tokens: Sequence[int], start: int, sample: Sequence[int]) -> Tensor:
        if not start:
            self.states.data.zero_()
        positions = np.arange(start, start + len(tokens), dtype=np.int32)
        return self.model.forward(
            ForwardPlan(
                step=0,
                block=BLOCK,
                tokens=np.asarray(tokens, dtype=np.int32),
                positions=positions,
                row_starts=np.asarray([0, len(tokens)], dtype=np.int32),
                page_table=np.arange(positions[-1] // BLOCK + 1, dtype=np.int32)[None, :],
                write_slots=positions,  # page i holds block i
                state_slots=np.asarray([0 if self.states.nbytes else -1], dtype=np.int32),
                sample=np.asarray(sample, dtype=np.int32),
            )
        ).logits.clone()

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.step(tokens, 0, range(len(tokens)))

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        out = [int(self.step(tokens, 0, [len(tokens) - 1])[0].argmax())]
        while len(out) < count:
            logits = self.step(out[-1:], len(tokens) + len(out) - 1, [0])
            out.append(int(logits[0].argmax()))
        return out


@dataclass
class Score:
    """Divergence of one program, token by token."""

    name: str
    kl: list[float]
    same: list[bool]

    def add(self, expected: Tensor, got: Tensor) -> None:
        p, q = expected.double().log_softmax(-1), got.double().log_softmax(-1)
        self.kl += (p.exp() * (p - q)).sum(-1).tolist()
        self.same += (expected.argmax(-1) == got.argmax(-1)).tolist()

    def row(self) -> str:
        kl = np.asarray(self.kl)
        return (
            f"| {self.name} | {kl.mean():.2e} | {np.quantile(kl, 0.99):.2e} | {kl.max():.2e}"
            f" | {np.mean(self.same):.4f} |"
        )


@torch.no_grad()
def oracle_logits(oracle: Any, tokens: Sequence[int]) -> Tensor:
    logits: Tensor = oracle(torch.tensor([tokens])).logits[0]
    return logits


@torch.no_grad()
def oracle_greedy(oracle: Any, tokens: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """transformers' greedy tokens, and the lead of each over the second best."""
    out: list[int] = []
    leads: list[float] = []
    past, feed = None, list(tokens)
    for _ in range(count):
        step = oracle(torch.tensor([feed]), past_key_values=past, use_cache=True)
        best = step.logits[0, -1].topk(2)
        past, feed = step.past_key_values, [int(best.indices[0])]
        out += feed
        leads.append(float(best.values[0] - best.values[1]))
    return out, leads


def peer_logits(python: str, model: Path, threads: int, texts: Sequence[Sequence[int]]) -> Any:
    """llama.cpp's logits [texts, tokens, vocab]."""
    with tempfile.TemporaryDirectory() as folder:
        tokens, logits = f"{folder}/tokens.npy", f"{folder}/logits.npy"
        np.save(tokens, np.asarray(texts, dtype=np.int32))
        script = str(Path(__file__).with_name("kl_llama.py"))
        command = [python, script, str(model), str(threads), tokens, logits]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return np.load(logits)


def compare_greedy(
    expected: Sequence[tuple[list[int], list[float]]], ours: Strata, prompts: Sequence[list[int]]
) -> list[str]:
    """One line for each prompt whose continuation differs from transformers'."""
    lines = []
    for number, (prompt, (tokens, leads)) in enumerate(zip(prompts, expected, strict=True)):
        got = ours.greedy(prompt, LENGTH)
        if got != tokens:
            at = next(i for i in range(LENGTH) if got[i] != tokens[i])
            lines.append(f"prompt {number}: token {at} differs; transformers' lead {leads[at]:.4f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--peer", help="a Python that has xllamacpp")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-type", action="append", help="f16 (if none is given), bf16, q8")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source = {"gguf_file": args.model.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model.parent, **source)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(
        args.model.parent, **source, dtype=torch.float32
    ).eval()
    texts, prompts = inputs(tokenizer)
    expected = [oracle_logits(oracle, text) for text in texts]
    answers = [oracle_greedy(oracle, prompt, LENGTH) for prompt in prompts]
    scores = []
    greedy: dict[str, list[str]] = {}
    natives = [(Backend.NATIVE, kv_type) for kv_type in args.kv_type or ["f16"]]
    for backend, kv_type in ((Backend.REFERENCE, None), *natives):
        ours = Strata(args.model, backend, args.threads, 1024, kv_type)
        score = Score(f"Strata, {ours.kernels.name}, {ours.kernels.kv_dtype} pages", [], [])
        for text, logits in zip(texts, expected, strict=True):
            score.add(logits, ours.logits(text))
        scores.append(score)
        greedy[score.name] = compare_greedy(answers, ours, prompts)
    if args.peer:
        score = Score("llama.cpp", [], [])
        theirs = peer_logits(args.peer, args.model, args.threads, texts)
        for logits, got in zip(expected, theirs, strict=True):
            score.add(logits, torch.from_numpy(got))
        scores.append(score)
    report(args, scores, greedy, len(prompts))


def inputs(tokenizer: Any) -> tuple[list[list[int]], list[list[int]]]:
    """The texts, 256 tokens each, and the prompts in the model's chat format."""
    data = ROOT / "tests" / "data"
    texts = (data / "texts.txt").read_text(encoding="utf-8").split("\n----\n")
    prompts = []
    for line in (data / "prompts.txt").read_text(encoding="utf-8").splitlines():
        chat = [{"role": "user", "content": line}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompts.append(tokenizer(text, add_special_tokens=False)["input_ids"])
    return [tokenizer(text)["input_ids"][:256] for text in texts], prompts


def report(
    args: argparse.Namespace, scores: list[Score], greedy: dict[str, list[str]], prompts: int
) -> None:
    """Print the tables; exit 1 where a bound of the project is broken."""
    print(f"{args.model.name}, {len(scores[0].kl)} tokens, against transformers in float32")
    print("| program | mean KL | 99 % | worst | same top token |")
    print("|---|---:|---:|---:|---:|")
    for score in scores:
        print(score.row())
    for name, lines in greedy.items():
        print(f"greedy, 64 tokens, {name}: {prompts - len(lines)} of {prompts} equal")
        for line in lines:
            print(f"  {line}")
    means = [float(np.mean(score.kl)) for score in scores]
    if args.json:
        table = {score.name: mean for score, mean in zip(scores, means, strict=True)}
        args.json.write_text(json.dumps(table, indent=1))
    broken = means[0] > 1e-6 or means[1] > 2e-3 or (len(means) > 2 and means[1] > 1.1 * means[2])
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
