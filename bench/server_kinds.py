"""The servers that `compare_servers.py` compares: how each is installed, started and stopped.

Each is an async context manager that yields a `Running`. Knows commands and ports; nothing of
what is asked.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

MAIN = "import sys; from strata.cli import main; sys.exit(main())"
HERE = Path(__file__).resolve().parent
PEERS = {
    "llama.cpp": ["xllamacpp==2026.10.11549"],
    "mlx-lm": ["mlx[cpu]==0.32.4", "mlx-lm==0.32.2"],
}
ROWS, CONTEXT = 8, 8192
SHAPE = {
    "layers": 8, "hidden": 512, "heads": 8, "kv-heads": 2, "head-dim": 64, "experts": 16,
    "top-k": 4, "expert-ffn": 256, "vocab": 4096, "context": 32768, "seed": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Models:
    """One random model in both forms, and where virtual environments are kept."""

    gguf: Path
    folder: Path
    venvs: Path


@dataclass(frozen=True)
class Running:
    """A server that answers. `model` is the name it goes by."""

    client: httpx.AsyncClient
    model: str


def models(at: Path) -> Models:
    """The random model of the comparison; made the first time."""
    made = Models(at / "model.gguf", at / "model", at / "venvs")
    at.mkdir(parents=True, exist_ok=True)
    shape = [part for name, value in SHAPE.items() for part in (f"--{name}", str(value))]
    synth = [sys.executable, "-c", MAIN, "synth", "qwen3_next", *shape]
    # mlx computes experts on the processor in float32 alone.
    forms = (("--safetensors", "F32", made.folder), ("--gguf", "F16", made.gguf))
    for form, kind, path in forms:
        if not path.exists():
            subprocess.run([*synth, form, "--quant", kind, "--out", path], check=True)
    return made


def peer_python(kind: str, venvs: Path) -> Path:
    """The interpreter of a server's own virtual environment; made the first time."""
    at = venvs / kind
    python = at / "bin" / "python"
    if not (at / "ready").exists():
        print(f"installing {' '.join(PEERS[kind])} into {at}", file=sys.stderr)
        venv.create(at, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[kind]], check=True)
        (at / "ready").touch()
    return python


def strata(at: Models, threads: int) -> AbstractAsyncContextManager[Running]:
    """This server."""
    command = [sys.executable, "-c", MAIN, "serve", str(at.gguf)]
    flags = ["--batch", ROWS, "--threads", threads, "--ctx-size", CONTEXT, "--cache-size", "4GiB"]
    return _started([*command, *map(str, flags)], "--port")


def llama(at: Models, threads: int) -> AbstractAsyncContextManager[Running]:
    """llama.cpp's, with as many slots and its own defaults for caching."""
    python = peer_python("llama.cpp", at.venvs)
    script = [python, HERE / "llama_server.py", at.gguf, "PORT", threads, ROWS, CONTEXT]
    return _started([str(part) for part in script], None)


def mlx(at: Models, threads: int) -> AbstractAsyncContextManager[Running]:
    """mlx-lm's, on the processor, with room for every prompt of the trace in its cache."""
    python = peer_python("mlx-lm", at.venvs)
    command = [str(python), "-m", "mlx_lm", "server", "--model", str(at.folder)]
    (at.venvs / "hub").mkdir(exist_ok=True)  # it lists this folder among its models
    settings = {"HF_HUB_CACHE": str(at.venvs / "hub"), "HF_HUB_OFFLINE": "1"}
    command += ["--prompt-cache-size", "100"]
    return _started(command, "--port", name=str(at.folder), settings=settings)


KINDS: dict[str, Callable[[Models, int], AbstractAsyncContextManager[Running]]] = {
    "strata": strata,
    "llama.cpp": llama,
    "mlx-lm": mlx,
}


@asynccontextmanager
async def _started(
    command: list[str],
    flag: str | None,
    name: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """A process on a free loopback port, from when it answers until it is stopped.

    `name`: what its model is asked for by, else the first that it lists.
    """
    port = str(_free_port())
    command = [*command, flag, port] if flag else [port if c == "PORT" else c for c in command]
    with open("compare_servers.log", "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **(settings or {})},
        )
    try:
        # A connection each: some servers close idle ones just when they are to be used again.
        fresh = httpx.Limits(max_keepalive_connections=0)
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=None, limits=fresh) as client:
            yield Running(client, await _ready(client, process, name))
    finally:
        process.terminate()
        process.wait()


async def _ready(
    client: httpx.AsyncClient, process: subprocess.Popen[bytes], known: str | None
) -> str:
    """Wait until it answers; the model's name."""
    while True:
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended: see compare_servers.log")  # type: ignore[str-bytes-safe]
        try:
            answer = await client.get("/v1/models")
            if answer.status_code == 200:
                name: str = known or answer.json()["data"][0]["id"]
                return name
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
