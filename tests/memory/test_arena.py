"""Arena views are where the layout says, and the bytes stay where they are."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest
import torch

from strata.memory.arena import SlotArena
from strata.memory.layout import DTYPES, page_layout, state_layout
from strata.types import LayerMemory, MemoryField

MEMORY = [
    LayerMemory(
        page=(MemoryField("k", (3, 16, 5), "float16"), MemoryField("v", (3, 16, 5), "float16"))
    ),
    LayerMemory(
        page=(MemoryField("raw", (7,), "uint8"),),
        state=(MemoryField("conv", (10, 3), "float32"), MemoryField("s", (2, 4), "bfloat16")),
    ),
    LayerMemory(state=(MemoryField("s", (1,), "uint8"),)),
    LayerMemory(),
]


@pytest.mark.parametrize("make", [page_layout, state_layout])
def test_fields_are_aligned_and_apart(make) -> None:
    layout = make(MEMORY)
    spans = sorted(
        (p.offset, p.offset + prod(p.field.shape) * DTYPES[p.field.dtype].itemsize)
        for layer in layout.layers
        for p in layer
    )
    assert all(start % 64 == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert spans[-1][1] <= layout.nbytes and layout.nbytes % 64 == 0


def test_views_reach_every_slot_and_nothing_else() -> None:
    layout = page_layout(MEMORY)
    arena = SlotArena(5, layout.nbytes)
    assert not arena.data.any()
    views = layout.views(arena)
    assert [set(view) for view in views] == [{"k", "v"}, {"raw"}, set(), set()]
    for number, (layer, placed) in enumerate(
        (layer, placed) for layer, fields in enumerate(layout.layers) for placed in fields
    ):
        view = views[layer][placed.field.name]
        assert view.shape == (5, *placed.field.shape)
        for slot in range(5):
            values = torch.arange(prod(placed.field.shape)) % 50 + 10 * number + slot
            view[slot] = values.view(placed.field.shape).to(view.dtype)
            size = values.numel() * view.dtype.itemsize
            raw = arena.data[slot, placed.offset : placed.offset + size].view(view.dtype)
            assert torch.equal(raw, values.to(view.dtype))
    assert views[0]["k"].data_ptr() == arena.data.data_ptr()


def test_a_page_of_no_layer_is_empty() -> None:
    assert state_layout(MEMORY[:1]).nbytes == 0
    assert SlotArena(0, 64).data.shape == (0, 64)


def test_records_are_aligned_and_survive_garbage_collection() -> None:
    data = SlotArena(3, 192).data
    assert data.data_ptr() % (2 << 20) == 0
    data[2] = 7
    assert data.sum() == 7 * 192
