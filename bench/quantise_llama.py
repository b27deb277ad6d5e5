"""Quantises matrices by llama.cpp's own routines, for `kl_formats.py`. Runs in a venv of its own,
which holds `xllamacpp` alone, whose library exports ggml's C interface.

Every X.npy (float32 [rows, columns]) of a folder becomes X.bin, the rows of blocks. Where a format
asks for the importance of columns, all are alike.
Usage: python quantise_llama.py FOLDER GGML_TYPE_NUMBER
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from kl_llama import library


def main() -> None:
    folder, kind = Path(sys.argv[1]), int(sys.argv[2])
    lib = library()
    lib.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    lib.ggml_row_size.restype = lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    lib.ggml_row_size.argtypes = [ctypes.c_int, count]
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, *[pointer] * 2, *[count] * 3, pointer]
    lib.ggml_quantize_init(kind)
    for path in sorted(folder.glob("*.npy")):
        matrix = np.ascontiguousarray(np.load(path), dtype=np.float32)
        rows, columns = matrix.shape
        out = np.empty((rows, lib.ggml_row_size(kind, columns)), dtype=np.uint8)
        alike = np.ones(columns, dtype=np.float32)
        importance = alike.ctypes.data if lib.ggml_quantize_requires_imatrix(kind) else None
        size = (0, rows, columns)
        done = lib.ggml_quantize_chunk(kind, matrix.ctypes.data, out.ctypes.data, *size, importance)
        if done != out.nbytes:
            raise SystemExit(f"{path.name}: {done} bytes were written instead of {out.nbytes}")
        out.tofile(path.with_suffix(".bin"))


if __name__ == "__main__":
    main()
