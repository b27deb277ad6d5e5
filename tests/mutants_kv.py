"""Injected bugs: types of keys and values in pages."""

from __future__ import annotations

PAGES = ("tests/kernels/test_kv.py", "tests/models/test_families.py")

# module, what the bug would do, the piece, its replacement, tests
KV = [
    (
        "strata.kernels.kv",
        "a scale is not what numbers are divided by",
        ".to(torch.bfloat16)\n    steps = scales.float()[..., None]",
        ".to(torch.bfloat16)\n    steps = groups.abs().amax(-1, keepdim=True) / 120",
        PAGES,
    ),
    (
        "strata.kernels.kv",
        "the last scale is for all that is left",
        "    return -(-head_dim // _SCALED)",
        "    return max(1, head_dim // _SCALED)",
        PAGES,
    ),
    (
        "strata.kernels.kv",
        "scales are taken for the numbers that stand where they do",
        "scales.repeat_interleave(_SCALED, -1)[..., :head_dim]",
        "scales.repeat(*[1] * (scales.dim() - 1), _SCALED)[..., :head_dim]",
        PAGES,
    ),
    (
        "strata.kernels.kv",
        "what a type cannot hold is infinite",
        "    x = x.clamp(-most, most)\n",
        "",
        PAGES,
    ),
    (
        "strata.models.layers",
        "pages have no room for the scales",
        "kv.width(kind, w.head_dim)",
        "w.head_dim",
        PAGES,
    ),
    (
        "strata.kernels",
        "the type of pages is not heard",
        'options = {} if kv_type is None else {"kv_dtype": kv.dtype_of(kv_type)}',
        "options = {}",
        PAGES,
    ),
    (
        "strata.cli.assemble",
        "the setting is not passed on",
        "threads, isa, kv_type)",
        "threads, isa)",
        ("tests/cli/test_serve.py",),
    ),
]
