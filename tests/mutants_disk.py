"""Injected bugs of record files, packing and copiers, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

DISK: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.memory.disk",
        ("tests/memory/test_disk.py",),
        [
            ("checksums are not looked at", "zlib.crc32(view) == self._sums[number]", "True"),
            ("a damaged record counts as checked", "            self._fetch(number, view)\n            if", "            self._fetch(number, view)\n            self._verified[number] += 1\n            if"),
            ("a garbled read is not tried again", "for _ in range(2):", "for _ in range(1):"),
            ("a short read is taken for whole", "if count >= least:", "if count:"),
            ("a failed read is not tried again", "_RETRIES = 3", "_RETRIES = 0"),
            ("the page cache fills up", "        if not direct:\n            _forget(fd, offset, len(view))\n", ""),
            ("every error is taken for a refusal", "return direct and error.errno == errno.EINVAL", "return direct"),
            ("a short write is not gone on with", "view = view[count:]", "view = view[len(view):]"),
            ("what lies behind the start is kept", "        os.truncate(path, offset)\n", ""),
            ("the deepest queue is chosen", "return min(depth for", "return max(depth for"),
        ],
    ),
    (
        "strata.memory.transfer",
        ("tests/memory/test_transfer.py",),
        [
            ("nothing is urgent", "queue = self._urgent or self._later", "queue = self._later or self._urgent"),
            ("hastening does nothing", "                self._urgent[transfer] = job\n\n", "                self._later[transfer] = job\n\n"),
            ("the last comes first", "queue.popitem(last=False)", "queue.popitem()"),
            ("a failure is not told", "error = str(failure)", "pass"),
            ("a transfer settles before its bytes are there", "                job()\n", "                threading.Thread(target=job).start()\n"),
        ],
    ),
    (
        "strata.experts.pack",
        ("tests/experts/test_pack.py",),
        [
            ("a mixture is noted before it is durable", "    out.sync()\n", ""),
            ("what was written is not checked", "            records.read(number, record)", "            pass"),
            ("packing begins without room", "if need > free:", "if False:"),
            ("the file is there before its index", "            Index(layout, _flat(journal), fingerprint, kernels.packing).save(folder)\n            os.replace(folder / _PART, folder / RECORDS)\n", "            os.replace(folder / _PART, folder / RECORDS)\n            Index(layout, _flat(journal), fingerprint, kernels.packing).save(folder)\n"),
        ],
    ),
    (
        "strata.experts.journal",
        ("tests/experts/test_pack.py",),
        [
            ("a journal of something else is believed", "if lines and lines[0] == self._head.encode():", "if lines:"),
            ("a torn line is believed", '.split(b"\\n")[:-1]', '.split(b"\\n")'),
        ],
    ),
    (
        "strata.experts.layout",
        ("tests/experts/test_layout.py",),
        [
            ("another model's records are taken", "if self.fingerprint != fingerprint:", "if False:"),
            ("another instruction set's records are taken", "if self.packing != packing:", "if False:"),
            ("a file cut short is opened", "if size != layout.nbytes:", "if size > layout.nbytes:"),
            ("a changed index is believed", 'if zlib.crc32(whole["body"].encode()) != whole["crc32"]:', "if False:"),
        ],
    ),
    (
        "strata.experts.fingerprint",
        ("tests/experts/test_layout.py",),
        [
            ("only the headers are looked at", "                seen.update(data[start : start + _BYTES].numpy().tobytes())", "                pass"),
            ("the down matrices are not looked at", "(expert.gate.data, expert.up.data, expert.down.data)", "(expert.gate.data, expert.up.data)"),
        ],
    ),
]  # fmt: skip
