"""The format of traces: a round trip, files cut off anywhere, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.experts.trace import TraceHead, TraceWriter, read
from strata.types import ModelError

HEAD = TraceHead("a model, ünnamed", experts=8, record_bytes=(4096, 8192, 4096))
LOOKUPS = [(0, 0, 1, [3], [2]), (0, 1, 1, [0, 7], [1, 1]), (5, 2, 4, [1, 2, 5], [9, 300, 70_000])]


def write(path: Path, lookups: list[tuple[int, int, int, list[int], list[int]]]) -> Path:
    writer = TraceWriter(path, HEAD)
    for step, place, rows, experts, counts in lookups:
        writer.note(step, place, rows, np.array(experts, np.int32), np.array(counts, np.int32))
    writer.close()
    return path


def plain(path: Path) -> list[tuple[int, int, int, list[int], list[int]]]:
    return [
        (one.step, one.place, one.rows, one.experts.tolist(), one.counts.tolist())
        for one in read(path).lookups
    ]


def test_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path / "t", LOOKUPS)
    assert read(path).head == HEAD
    assert plain(path) == LOOKUPS


def test_the_format_is_words(tmp_path: Path) -> None:
    line, _, rest = write(tmp_path / "t", LOOKUPS).read_bytes().partition(b"\n")
    assert json.loads(line)["experts"] == 8
    assert (len(line) + 1) % 4 == 0
    words = [int.from_bytes(rest[at : at + 4], "little") for at in range(0, len(rest), 4)]
    assert words == [0, 0, 1, 1, 3, 2, 0, 1, 1, 2, 0, 7, 1, 1, 5, 2, 4, 3, 1, 2, 5, 9, 300, 70_000]


def test_shelves_are_places_of_one_size(tmp_path: Path) -> None:
    assert list(read(write(tmp_path / "t", [])).shelves()) == [(4096, (0, 2)), (8192, (1,))]


def test_a_file_cut_off_is_good_up_to_there(tmp_path: Path) -> None:
    content = write(tmp_path / "t", LOOKUPS).read_bytes()
    sizes = [24, 32, 40]  # bytes of each lookup
    for cut in range(sum(sizes) + 1):
        whole = next(n for n in range(3, -1, -1) if sum(sizes[:n]) <= sum(sizes) - cut)
        (tmp_path / "cut").write_bytes(content[: len(content) - cut])
        assert plain(tmp_path / "cut") == LOOKUPS[:whole], cut


def test_what_is_written_is_there_before_the_end(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t", HEAD)
    ids = np.arange(8, dtype=np.int32)
    for step in range(10_000):
        writer.note(step, 0, 1, ids, ids + 1)
    assert (tmp_path / "t").stat().st_size > 500_000
    writer.close()
    writer.close()


@given(st.binary(max_size=200))
def test_other_files_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("other") / "t"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="no expert trace"):
        read(path)


def test_damage_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t", LOOKUPS)
    content = bytearray(path.read_bytes())
    content[content.index(b"\n") + 5] = 9  # the first lookup's place
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged at word 0"):
        read(path)


def test_errors_of_the_disk_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read the trace"):
        read(tmp_path / "none")
    with pytest.raises(ModelError, match="cannot write the trace"):
        TraceWriter(tmp_path / "no" / "folder", HEAD)
    full = TraceWriter(Path("/dev/full"), HEAD)
    with pytest.raises(ModelError, match="No space left"):
        full.close()
