"""RecordLayout: where each layer's arrays lie inside one record.

Made from what the layers declare (`LayerMemory`). A page record holds one block
of tokens of all layers, a state record the state of one sequence; the same
class describes both. Offsets are multiples of 64 bytes and never overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import torch

from strata.memory.arena import SlotArena
from strata.types import LayerMemory, MemoryField

_ALIGN = 64
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "uint8": torch.uint8,
}


@dataclass(frozen=True, slots=True)
class Placed:
    """A field at a byte offset of the record."""

    field: MemoryField
    offset: int


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """`layers[i]` are the placed fields of layer i; `nbytes` is the size of a record."""

    layers: tuple[tuple[Placed, ...], ...]
    nbytes: int

    def views(self, arena: SlotArena) -> list[dict[str, torch.Tensor]]:
        """For each layer, name -> strided view [slots, *shape] into the arena."""
        assert arena.nbytes == self.nbytes
        return [
            {
                placed.field.name: arena.field(
                    placed.offset, placed.field.shape, DTYPES[placed.field.dtype]
                )
                for placed in layer
            }
            for layer in self.layers
        ]


def page_layout(memory: Sequence[LayerMemory]) -> RecordLayout:
    """The layout of a page: one block of tokens of every layer."""
    return _lay_out(layer.page for layer in memory)


def state_layout(memory: Sequence[LayerMemory]) -> RecordLayout:
    """The layout of a sequence's state; `nbytes` 0 when no layer keeps one."""
    return _lay_out(layer.state for layer in memory)


def _lay_out(layers: Iterable[tuple[MemoryField, ...]]) -> RecordLayout:
    placed_layers, offset = [], 0
    for fields in layers:
        placed = []
        for field in fields:
            placed.append(Placed(field, offset))
            size = prod(field.shape) * DTYPES[field.dtype].itemsize
            offset += -(-size // _ALIGN) * _ALIGN
        placed_layers.append(tuple(placed))
    return RecordLayout(tuple(placed_layers), offset)
