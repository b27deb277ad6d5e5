"""Injected bugs of rows that come through a cache, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

TESTS = ("tests/memory/test_rows.py",)

ROWS: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.memory.rows",
        TESTS,
        [
            ("rows of this step give way", "(self._used >= 0) & (self._used < self._now)", "self._used >= 0"),
            ("found rows do not count as used", "        self._used[slots[~missing]] = self._now\n", ""),
            ("the newest give way", "np.argpartition(self._used[old], leave - 1)", "np.argpartition(-self._used[old], leave - 1)"),
            ("rows are known before they are read", "            new = self._take(len(wanted))\n", "            new = self._take(len(wanted))\n            self._rows[new] = wanted\n            self._add(new)\n"),
            ("slots of a failed read are lost", "                self._unused = np.concatenate((self._unused, new))\n                raise", "                raise"),
            ("what gave way is still found", "            self._slots.fill(_FREE)\n", ""),
            ("the first of a chain is taken for the row", "(slots >= 0) & (self._rows[slots] == rows[todo])", "slots >= 0"),
            ("a chain ends at its first place", "todo = todo[(slots >= 0) & ~same]", "todo = todo[:0]"),
            ("of rows that meet only one is found", "todo = todo[self._slots[at[todo]] != slots[todo]]", "todo = todo[:0]"),
            ("duplicates count as misses", "len(rows) - len(wanted), nbytes", "len(rows) - int(missing.sum()), nbytes"),
            ("a cache may be too small for a step", "if slots < min(at_once, self._reader.rows):", "if slots < 1:"),
        ],
    ),
    (
        "strata.memory.row_reader",
        TESTS,
        [
            ("parts are taken for one file's", "self._starts[files] * ALIGN + ", "0 * self._starts[files] + "),
            ("a part's offset is not counted", "[part.offset for part in parts]", "[0 for part in parts]"),
            ("the next part's first row is the last of this one", 'np.searchsorted(self._firsts, rows, side="right")', 'np.searchsorted(self._firsts, rows, side="left")'),
            ("places are not put in order", "order = np.argsort(at)", "order = np.arange(len(at))"),
            ("a row ends in the block where it begins", "(at + row_bytes - 1) // ALIGN", "at // ALIGN"),
            ("neighbours come one by one", "apart[1:] = first[1:] - last[:-1] > _NEAR", "apart[1:] = True"),
            ("a short read is taken for whole", "block * ALIGN, least)", "block * ALIGN, 1)"),
            ("others may still write after a failure", "        wait(jobs)\n", ""),
        ],
    ),
    (
        "strata.kernels.native_states",
        ("tests/kernels/test_ngram.py",),
        [
            ("the op is not told where rows lie", "        self._op.set_slots(self._slots.ctypes.data)\n", ""),
        ],
    ),
    (
        "strata.kernels.ngram",
        ("tests/kernels/test_ngram.py",),
        [
            ("the source is not asked", "if w.source is not None:", "if False:"),
        ],
    ),
    (
        "strata.kernels.quant",
        ("tests/kernels/test_quant.py",),
        [
            ("a type has another's number", "    IQ2_S = 22\n    IQ4_XS = 23\n", "    IQ2_S = 23\n    IQ4_XS = 22\n"),
            ("a dequantised matrix is the file", "copy=True", "copy=False"),
            ("an unsupported type is a number", ".get(number, str(number))", ".get(-1, str(number))"),
        ],
    ),
    (
        "strata.kernels.native_pack",
        ("tests/kernels/test_quant.py",),
        [
            ("a grid's coordinates are not in order", "np.searchsorted(family.grid_map, family.grid)", "len(family.grid_map) - 1 - np.searchsorted(family.grid_map, family.grid)"),
        ],
    ),
    (
        "strata.synth.blocks",
        ("tests/synth/test_blocks.py",),
        [
            ("a scale lies in another's place", "Type.Q3_K: 108", "Type.Q3_K: 0"),
            ("minima are not tied to scales", "(data[..., :16] & 15) * 17", "data[..., :16]"),
            ("a ternary weight may be 2", "        data &= ~((data << 1) & data & 0xAA)\n", "        pass\n"),
            ("all blocks have one sign", "np.where(data[..., -1] & 1, 1, -1)", "1"),
            ("scales in bytes are rounded down", "(below[..., None] + above)", "(below[..., None] + 0 * above)"),
            ("nibbles of a scale change places", "(0, 0, 1, 1)", "(1, 1, 0, 0)"),
        ],
    ),
    (
        "strata.synth.gguf_file",
        ("tests/synth/test_files.py",),
        [
            ("a mixture's third layers are others", "% 3 == 2", "% 3 == 1"),
            ("a mixture's output is coarse", 'if name == "output.weight":', 'if name == "output":'),
        ],
    ),
]  # fmt: skip
