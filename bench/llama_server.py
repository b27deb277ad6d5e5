"""llama.cpp's server on one port, for `compare_servers.py`. Runs in the venv of `xllamacpp`.

    python llama_server.py MODEL PORT THREADS ROWS CONTEXT

Prints "ready" once it answers; ends with its standard input.
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    """Serve until standard input ends."""
    model, port, threads, rows, context = sys.argv[1], *map(int, sys.argv[2:6])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_parallel = rows
    params.n_ctx = rows * context
    params.port = port
    params.use_jinja = True
    params.verbosity = 1
    server = xllamacpp.Server(params)
    print("ready", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
