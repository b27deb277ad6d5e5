"""ExpertLayout: where each expert's record lies in the record file; and the index that tells it.

The index lies beside the record file and names what the records were made of (the fingerprint of
the model) and for (the packing of the kernels). It is written when all of the records are, and
carries a checksum of its own. Knows no kernel beyond the form it gives an expert.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.kernels import Kernels
from strata.kernels.moe import Expert, ExpertForm
from strata.memory.disk import ALIGN, RecordFile
from strata.types import StorageError

# The mixtures of a model: the layer that each is in, and its experts.
Layers = Sequence[tuple[int, Sequence[Expert]]]

RECORDS, INDEX = "experts.bin", "experts.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The experts of one mixture, which is in layer number `layer`: `count` records of `record`
    bytes each, the first at `offset`.
    """

    layer: int
    form: ExpertForm
    count: int
    record: int
    offset: int


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """One place for each mixture, in order; the record of an expert is numbered as its key is,
    place * experts + expert.
    """

    places: tuple[Place, ...]

    @classmethod
    def of(cls, layers: Layers, kernels: Kernels) -> ExpertLayout:
        """The layout of these mixtures, all of the same number of experts."""
        places, offset = list[Place](), 0
        for layer, experts in layers:
            form = kernels.expert_form(experts[0])
            record = -(-form.nbytes // ALIGN) * ALIGN
            places.append(Place(layer, form, len(experts), record, offset))
            offset += record * len(experts)
        assert len({place.count for place in places}) == 1
        return cls(tuple(places))

    @property
    def nbytes(self) -> int:
        """Size of the record file."""
        last = self.places[-1]
        return last.offset + last.count * last.record

    @property
    def experts(self) -> int:
        """Experts of each mixture."""
        return self.places[0].count

    def sizes(self) -> npt.NDArray[np.int64]:
        """[records]: bytes of each."""
        return np.repeat([place.record for place in self.places], self.experts).astype(np.int64)

    def open(self, path: Path, sums: npt.NDArray[np.uint32]) -> RecordFile:
        """The record file at `path`; as many records of it as there are checksums. StorageError."""
        sizes = self.sizes()
        offsets = np.cumsum(sizes) - sizes
        return RecordFile(path, offsets[: len(sums)], sizes[: len(sums)], sums)


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """What is known of a record file: `sums` uint32 [records] are the records' checksums."""

    layout: ExpertLayout
    sums: npt.NDArray[np.uint32]
    fingerprint: str
    packing: str

    def save(self, folder: Path) -> None:
        """Writes it into the folder, whole or not at all. Raises OSError."""
        body = {
            "fingerprint": self.fingerprint,
            "packing": self.packing,
            "places": [asdict(place) for place in self.layout.places],
            "sums": self.sums.tolist(),
        }
        text = json.dumps(body)
        fresh = folder / f"{INDEX}.part"
        with open(fresh, "w", encoding="utf-8") as file:
            crc32 = zlib.crc32(text.encode())
            json.dump({"version": VERSION, "crc32": crc32, "body": text}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, folder / INDEX)

    @classmethod
    def load(cls, folder: Path) -> Index:
        """The index of a folder. StorageError when there is none that can be used."""
        try:
            whole = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if whole["version"] != VERSION:
                raise _unfit(folder, "was written by another version of strata")
            if zlib.crc32(whole["body"].encode()) != whole["crc32"]:
                raise ValueError("its checksum is wrong")
            body = json.loads(whole["body"])
            places = tuple(_place(one) for one in body["places"])
            sums = np.array(body["sums"], np.uint32)
        except OSError as error:
            raise _unfit(folder, f"cannot be read ({error.strerror or error})") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unfit(folder, f"has a damaged index {INDEX} ({error})") from error
        return cls(ExpertLayout(places), sums, body["fingerprint"], body["packing"])

    def open(
        self, folder: Path, fingerprint: str, layout: ExpertLayout, packing: str
    ) -> RecordFile:
        """The record file, if it is that of this model for these kernels. StorageError."""
        if self.fingerprint != fingerprint:
            raise _unfit(folder, "is of another model, or of another quantisation of this one")
        if self.packing != packing:
            raise _unfit(folder, f"was packed for {self.packing}, but the kernels are {packing}")
        if self.layout != layout or len(self.sums) != len(layout.sizes()):
            raise _unfit(folder, "does not have the records that this model needs")
        path = folder / RECORDS
        try:
            size = path.stat().st_size
        except OSError as error:
            raise _unfit(folder, f"lacks its {RECORDS} ({error.strerror})") from error
        if size != layout.nbytes:
            raise _unfit(folder, f"was cut short: {path} has {size} of {layout.nbytes} bytes")
        return layout.open(path, self.sums)


def _unfit(folder: Path, why: str) -> StorageError:
    return StorageError(
        f"the record file in {folder} {why}: pack the model again with `strata pack --force`, or"
        " delete the folder"
    )


def _place(fields: dict[str, Any]) -> Place:
    form = dict(fields["form"])
    for name in ("formats", "offsets"):
        form[name] = tuple(form[name])
    return Place(**{**fields, "form": ExpertForm(**form)})
