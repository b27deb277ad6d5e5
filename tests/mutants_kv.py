"""Injected bugs of the types of keys and values in pages, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

TESTS = ("tests/kernels/test_kv.py",)

KV: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.kernels.kv",
        TESTS,
        [
            (
                "numbers are divided by another scale than the one that is kept",
                "steps = scales.float()[..., None]",
                "steps = scales.float()[..., None] * 1.05",
            ),
            (
                "a last group of few has no scale",
                "return -(-head_dim // _SCALED)",
                "return max(1, head_dim // _SCALED)",
            ),
            (
                "a number takes the scale of another group",
                "scales.repeat_interleave(_SCALED, -1)",
                "scales.repeat(*[1] * (scales.dim() - 1), _SCALED)",
            ),
            ("what a type cannot hold is infinite", "    x = x.clamp(-most, most)\n", ""),
            (
                "numbers are cut, not rounded",
                ".round().clamp(-127, 127)",
                ".trunc().clamp(-127, 127)",
            ),
            (
                "an unknown type is taken for the first",
                "    if kv_type not in TYPES:\n",
                "    if False:\n",
            ),
        ],
    ),
    (
        "strata.models.layers",
        ("tests/models/test_families.py",),
        [
            ("pages have no room for scales", "kv.width(kind, w.head_dim)", "w.head_dim"),
            (
                "an indexer's keys are kept like the others",
                'raw = "float32" if kind == "float32" else "float16"',
                "raw = kind",
            ),
        ],
    ),
    (
        "strata.cli.assemble",
        ("tests/cli/test_serve.py",),
        [("the type of pages is not passed on", "threads, isa, kv_type)", "threads, isa)")],
    ),
]
