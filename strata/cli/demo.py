"""`strata demo`: a mixture of experts with memory for a third of them, served, and a first answer.

The mixture is made of the default model the first time: noisy copies of its feed-forward, so it
speaks, and needs its experts from the disk as a model ten times larger would.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from strata.cli import flags, serve
from strata.cli.conversation import Link
from strata.cli.terminal import Progress
from strata.config import cache_folder, environment, model_folder
from strata.files import fetch, open_model
from strata.synth import upcycle
from strata.types import ModelError, StrataError

ABOUT = "serve a small mixture of experts that keeps a third of them in memory"
_MIXTURE = upcycle.Mixture(experts=16, top_k=4, noise=0.05)
_PART = 3
_QUESTION = "What is the capital of France, and what is it known for?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every setting of a server but the model."""
    flags.add_settings(parser, without={"model"})


def run(chosen: argparse.Namespace) -> int:
    """Make the model if need be, serve it, and ask it something once it is there."""
    chosen.model = str(path := _made())
    settled = flags.resolve(chosen)
    if settled.sources["expert_ram"] == "default":
        chosen.expert_ram = str(_expert_bytes(path) // _PART)
    keys = settled.config.api_key
    return serve.run(chosen, lambda url: print(_first_answer(url, *keys[:1]), flush=True))


def _made() -> Path:
    """Where the mixture is; made when it is not there."""
    progress = Progress()
    try:
        source = fetch.locate("", model_folder(), progress)
        folder = cache_folder(environment()) / "demo"
        path = folder / f"{source.stem}-{_MIXTURE.experts}-experts.gguf"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            upcycle.write(source, path, _MIXTURE, 0, progress)
        return path
    except OSError as error:
        raise ModelError(f"cannot write the model of the demo: {error}") from error
    finally:
        progress.close()


def _expert_bytes(path: Path) -> int:
    """Of all experts in the file."""
    tensors = open_model(path).tensors.values()
    return sum(one.data.nbytes for one in tensors if "_exps." in one.name)


def _first_answer(url: str, key: str = "") -> str:
    """A question, its answer, and where its experts came from."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": 100,
        "stream_options": {"include_usage": True},
        "strata_stats": True,
    }
    text, usage = "", dict[str, Any]()
    try:
        with Link(url, key) as link:
            for chunk in link.chat({**body, "model": link.served(), "stream": True}):
                text += "".join(c["delta"].get("content") or "" for c in chunk["choices"])
                usage = chunk.get("usage") or usage
    except StrataError as error:
        return f"the first question failed: {error}"
    lines = [f"\nasked:     {_QUESTION}", f"answered:  {text.strip()}"]
    if experts := (usage.get("strata") or {}).get("experts"):
        found = experts["lookups"] - experts["disk"]
        share = 100 * found / max(1, experts["lookups"])
        lines.append(
            f"experts:   {share:.1f} % of {experts['lookups']} lookups were in memory; "
            f"{experts['disk_bytes'] / 2**20:.0f} MiB came from the disk"
        )
    lines.append(f"more:      {url}/v1/experts, {url}/v1/requests, strata chat --url {url}")
    return "\n".join(lines)
