"""The default model against transformers on the same file: divergence and greedy text.

A part of what `bench/kl.py` measures in full (8 texts, 20 prompts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

DATA = Path(__file__).resolve().parent.parent / "data"
TEXTS, PROMPTS, LENGTH = (0, 5), (0, 6, 13), 64
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


class Oracle:
    """transformers on the file's dequantised weights, in float32."""

    def __init__(self, path: Path) -> None:
        source = {"gguf_file": path.name}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **source)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, **source, dtype=torch.float32
        ).eval()
        self.greedy = cache(self._greedy)

    def tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text)["input_ids"])

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        return self.model(torch.tensor([tokens])).logits[0]

    @torch.no_grad()
    def _greedy(self, prompt: tuple[int, ...]) -> tuple[list[int], list[float]]:
        """64 tokens, and the lead of each over the second best."""
        out, leads, past, feed = [], [], None, list(prompt)
        for _ in range(LENGTH):
            step = self.model(torch.tensor([feed]), past_key_values=past, use_cache=True)
            best = step.logits[0, -1].topk(2)
            past, feed = step.past_key_values, [int(best.indices[0])]
            out += feed
            leads.append(float(best.values[0] - best.values[1]))
        return out, leads


@pytest.fixture(scope="module")
def oracle(default_model: Path) -> Oracle:
    return Oracle(default_model)


@pytest.fixture(scope="module")
def benches(default_model: Path, load: Callable[..., Any]) -> Callable[[str], Any]:
    return cache(lambda backend: load(default_model, backend))


@pytest.mark.parametrize(("backend", "limit"), [("reference", 1e-6), ("native", 2e-3)])
def test_divergence(
    backend: str, limit: float, oracle: Oracle, benches: Callable[[str], Any]
) -> None:
    texts = (DATA / "texts.txt").read_text(encoding="utf-8").split("\n----\n")
    assert len(texts) == 8
    for number in TEXTS:
        tokens = oracle.tokens(texts[number])[:256]
        assert len(tokens) == 256
        p = oracle.logits(tokens).double().log_softmax(-1)
        q = benches(backend).logits(tokens).double().log_softmax(-1)
        assert (p.exp() * (p - q)).sum(-1).mean() < limit


@pytest.mark.parametrize("number", PROMPTS)
def test_greedy_text_of_the_reference(
    number: int, oracle: Oracle, benches: Callable[[str], Any]
) -> None:
    """Equal for 64 tokens; where two tokens are as good as tied, the tie is shown."""
    line = (DATA / "prompts.txt").read_text(encoding="utf-8").splitlines()[number]
    prompt = oracle.tokens(CHAT.format(line))
    expected, leads = oracle.greedy(tuple(prompt))
    got, _ = benches("reference").greedy(prompt, LENGTH)
    if got != expected:
        at = next(i for i in range(LENGTH) if got[i] != expected[i])
        assert leads[at] < 1e-3, f"token {at} differs although transformers led by {leads[at]}"
        pytest.xfail(f"token {at} is a near tie: {leads[at]:.1e} in the logits")


def test_native_answers_like_the_reference(oracle: Oracle, benches: Callable[[str], Any]) -> None:
    """Eight-bit activations may turn a close decision, not a clear one."""
    prompt = oracle.tokens(CHAT.format("What is the capital of France?"))
    expected, leads = oracle.greedy(tuple(prompt))
    got, _ = benches("native").greedy(prompt, LENGTH)
    same = next((i for i in range(LENGTH) if got[i] != expected[i]), LENGTH)
    assert same == LENGTH or leads[same] < 0.5
    assert "Paris" in oracle.tokenizer.decode(got)
