"""Kernels: the arithmetic of a step, in interchangeable implementations.

`choose` picks one for the process; the rest of the program builds ops from it and
runs programs. The reference is the specification, the native one is fast and gives
a row the same bits whatever shares its step.
"""

from __future__ import annotations

import importlib.util

import torch

from strata.kernels import kv
from strata.kernels.program import Fields, Kernels, Op, Program, StepResult
from strata.kernels.reference import ReferenceKernels
from strata.types import Backend, ConfigError

__all__ = ["Fields", "Kernels", "Op", "Program", "StepResult", "choose"]


def choose(
    mode: Backend, device: str, threads: int, isa: str | None = None, kv_type: str | None = None
) -> Kernels:
    """The implementation for a device; `isa` forces a native instruction set, `kv_type` (f16,
    bf16, q8) how pages keep keys and values: f16 by default, float32 in the reference.

    Also sets torch's thread count, since both share one pool of threads. AUTO is
    native where the extension was built. Raises ConfigError for what cannot run.
    """
    if device != "cpu":
        raise ConfigError(f"there are no kernels for the device {device!r}; use --device cpu")
    if threads < 1:
        raise ConfigError(f"--threads must be at least 1, not {threads}")
    torch.set_num_threads(threads)
    options = {} if kv_type is None else {"kv_dtype": kv.dtype_of(kv_type)}
    built = importlib.util.find_spec("strata.kernels._cpu") is not None
    if mode is Backend.REFERENCE or (mode is Backend.AUTO and not built):
        return ReferenceKernels(**options)
    if not built:
        raise ConfigError(
            "the native kernels were not built: reinstall strata with a C++20 compiler, "
            "or use --kernels reference"
        )
    from strata.kernels.native import NativeKernels

    return NativeKernels(threads, isa, **options)
