"""Injected bugs of the readers of model files, in the form of `ENGINE`."""



from __future__ import annotations

from mutants_engine import Bug

FILES: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.files.gguf",
        ("tests/files/test_gguf.py",),
        [
            (
                "any number of parts is taken for one",
                "if not isinstance(declared, int):",
                "if False:",
            ),
            ("numbers are read beyond the end", "if size > len(self.data) - start:", "if False:"),
            (
                "strings may end beyond the file",
                "        if at > len(data):\n",
                "        if False:\n",
            ),
            ("tensors may end beyond the file", "if start + size > len(data):", "if False:"),
            (
                "a tensor begins at any offset of the file",
                "start, size = base + offset,",
                "start, size = offset,",
            ),
            (
                "alignment is never asked for",
                "base = (reader.at + align - 1) // align * align",
                "base = reader.at",
            ),
            ("shapes are not reversed", "dims)[::-1])", "dims))"),
        ],
    ),
]
