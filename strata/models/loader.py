"""From a model file to a Model: the table of families, and recommended sampling.

The family modules do the work; this one chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from strata.figures import RowFigures
from strata.files import ModelFile
from strata.kernels import Kernels, StepResult
from strata.kernels.moe import MoeWeights
from strata.memory.arena import SlotArena
from strata.models import (
    llama,
    olmoe,
    quantised,
    qwen2,
    qwen3,
    qwen3_5,
    qwen3_moe,
    qwen3_next,
    qwen4_exp,
)
from strata.models.decoder import Experts
from strata.types import ForwardPlan, LayerMemory, ModelError, ProgressSink, silent


class Model(Protocol):
    """What the engine knows of a model."""

    name: str
    architecture: str
    context_length: int
    vocab_size: int
    weight_bytes: int
    expert_bytes: int  # of the weights: those of routed experts

    def memory(self, block: int) -> tuple[LayerMemory, ...]:
        """What each layer remembers, for pages of `block` tokens."""
        ...

    def mixtures(self) -> list[tuple[int, MoeWeights]]:
        """Its mixtures of experts by the numbers of their layers, before it is bound."""
        ...

    def bind(
        self,
        pages: SlotArena,
        states: SlotArena | None,
        block: int,
        experts: Experts | None = None,
    ) -> None:
        """Give it its memory. Once, before the first step. `experts` has those of the mixtures;
        None: they are as they came with the weights.
        """
        ...

    def cache_rows(self, nbytes: int, tokens: int) -> int:
        """Before it is bound: reads tables that stay in the file by the row, through caches of
        `nbytes` in all, for steps of up to `tokens`. The bytes they take; 0 without such a table.
        """
        ...

    def rows(self) -> RowFigures | None:
        """Of those caches; None without one. From any thread."""
        ...

    def forward(self, plan: ForwardPlan) -> StepResult:
        """Run one step."""
        ...


# The names are those of GGUF's general.architecture and of config.json's model_type.
FAMILIES: Mapping[str, Callable[[ModelFile, Kernels, ProgressSink], Model]] = {
    "llama": llama.build,
    "qwen2": qwen2.build,
    "qwen3": qwen3.build,
    "qwen3_moe": qwen3_moe.build,
    "qwen3moe": qwen3_moe.build,
    "olmoe": olmoe.build,
    "qwen3_next": qwen3_next.build,
    "qwen3next": qwen3_next.build,
    "qwen3_5": qwen3_5.build,
    "qwen35": qwen3_5.build,
    "qwen3_5_text": qwen3_5.build,
    "qwen3_5_moe": qwen3_5.build,
    "qwen35moe": qwen3_5.build,
    "qwen3_5_moe_text": qwen3_5.build,
    "qwen4_exp": qwen4_exp.build,
    "qwen4exp": qwen4_exp.build,
    "qwen4_exp_text": qwen4_exp.build,
}


def load(file: ModelFile, kernels: Kernels, *, progress: ProgressSink = silent) -> Model:
    """Build the model of a file for the given kernels.

    `progress` is told ("weights", tensors, tensors in the file). Raises ModelError
    for what is unknown, damaged or would be computed wrongly.
    """
    build = FAMILIES.get(file.architecture)
    if build is None:
        raise ModelError(
            f"the architecture {file.architecture!r} is not supported; supported:"
            f" {', '.join(FAMILIES)}"
        )
    return build(quantised.joined(file), kernels, progress)


# our name -> GGUF key, key of generation_config.json
_SAMPLING: Mapping[str, tuple[str, str]] = {
    "temperature": ("general.sampling.temp", "temperature"),
    "top_p": ("general.sampling.top_p", "top_p"),
    "top_k": ("general.sampling.top_k", "top_k"),
    "min_p": ("general.sampling.min_p", "min_p"),
    "repetition_penalty": ("general.sampling.penalty_repeat", "repetition_penalty"),
}


def sampling_defaults(file: ModelFile) -> dict[str, float]:
    """What the model's authors recommend: fields of `Sampling` -> values; {} when they say nothing.

    A generation_config.json that turns sampling off recommends nothing.
    """
    given: Mapping[str, Any] = file.metadata
    if file.kind == "folder":
        given = file.metadata["generation_config"]
        if given.get("do_sample") is False:
            return {}
    found: dict[str, float] = {}
    for name, keys in _SAMPLING.items():
        value = given.get(keys[file.kind == "folder"])
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            found[name] = int(value) if name == "top_k" else float(value)
    return found
