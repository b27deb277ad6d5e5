"""llama.cpp's logits, for `kl.py`. Runs in a venv of its own, which holds `xllamacpp` alone.

The package offers a server but no logits; its library exports llama.cpp's C interface, which is
called here directly. Parameter structs are llama.cpp's own defaults, passed on unread (their
layout changes from version to version, their order of call does not).
Usage: python kl_llama.py MODEL.gguf THREADS TOKENS.npy LOGITS.npy
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys

import numpy as np
import xllamacpp


class Params(ctypes.Structure):
    """Any parameter struct: larger than each of them, so that its head is what llama.cpp reads."""

    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def library() -> ctypes.CDLL:
    (path,) = glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), "xllamacpp*.so"))
    lib = ctypes.CDLL(path)
    pointers = ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab")
    for name in (*pointers, "llama_get_memory"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.llama_model_default_params.restype = Params
    lib.llama_context_default_params.restype = Params
    lib.llama_batch_init.restype = Batch
    lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    return lib


def main() -> None:
    model_path, threads, tokens_path, logits_path = sys.argv[1:]
    texts = np.load(tokens_path)  # int32 [texts, tokens]
    lib = library()
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    model = ctypes.c_void_p(lib.llama_model_load_from_file(model_path.encode(), params))
    context = ctypes.c_void_p(lib.llama_init_from_model(model, lib.llama_context_default_params()))
    if not model or not context:
        raise SystemExit("llama.cpp did not load the model")
    lib.llama_set_n_threads(context, int(threads), int(threads))
    vocabulary = lib.llama_vocab_n_tokens(ctypes.c_void_p(lib.llama_model_get_vocab(model)))
    count = texts.shape[1]
    batch = lib.llama_batch_init(count, 0, 1)
    out = np.empty((*texts.shape, vocabulary), dtype=np.float32)
    for t, text in enumerate(texts):
        lib.llama_memory_clear(ctypes.c_void_p(lib.llama_get_memory(context)), ctypes.c_bool(True))
        batch.n_tokens = count
        for i in range(count):
            batch.token[i], batch.pos[i], batch.logits[i] = int(text[i]), i, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        if lib.llama_decode(context, batch):
            raise SystemExit("llama.cpp failed")
        for i in range(count):
            row = lib.llama_get_logits_ith(context, i)
            out[t, i] = np.ctypeslib.as_array(row, (vocabulary,))
    np.save(logits_path, out)


if __name__ == "__main__":
    main()
