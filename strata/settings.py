"""The table of settings: each one's meaning, unit, default and bounds.

Plain data. Where a value comes from is config.py's affair; what a size or an `auto` comes to is
known by whoever knows the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    shown: str | None = None,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A field with its meaning. `shown` is how the default is printed when it is not itself."""
    bounds = {"choices": choices, "least": least, "most": most}
    return field(default=default, metadata={"help": help, "unit": unit, "shown": shown, **bounds})


def _sampling(help: str, least: float, most: float | None = None) -> Any:
    """A sampling default; None leaves the choice to the model file."""
    help = f"{help}, for requests that do not say"
    return _setting(None, help, shown="the model's", least=least, most=most)


@dataclass(frozen=True, slots=True)
class Config:
    """What a server, or a chat that loads a model itself, is started with."""

    model: str = _setting(
        "",
        "GGUF file (any part of a split one), Hugging Face folder, or hub name"
        " (owner/name, owner/name:part)",
        shown="SmolLM2-135M-Instruct",
    )
    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8080, "TCP port to listen on; 0 takes a free one", least=0, most=65535)
    api_key: tuple[str, ...] = _setting((), "key that clients must send; repeat for several")
    api_key_file: str = _setting("", "file with one key a line", unit="path")
    insecure: bool = _setting(False, "listen beyond this machine without an API key")
    allow_host: tuple[str, ...] = _setting(
        (), "further Host name to answer to (a public name behind a proxy); repeat for several"
    )
    allow_origin: tuple[str, ...] = _setting(
        (), "web origin whose pages may call the API (CORS); repeat for several"
    )
    served_model_name: str = _setting("", "model id in the API", shown="from the file")
    batch: int = _setting(4, "requests that run at the same time", unit="rows", least=1, most=1024)
    ctx_size: int = _setting(
        0, "longest prompt and answer together", unit="tokens", shown="the model's", least=0
    )
    cache_size: str = _setting("25%", "memory for cached prefixes", unit="2GiB, 500MB or 25%")
    block_size: int = _setting(
        16, "tokens in a page of the cache", unit="tokens", least=1, most=256
    )
    kv_type: str = _setting(
        "auto",
        "how the cache keeps keys and values: q8 takes about half the memory of f16",
        choices=("auto", "f16", "bf16", "q8"),
        shown="auto: f16; float32 in the reference kernels",
    )
    prefill_chunk: int = _setting(
        0,
        "prompt tokens read in one step while no row decodes",
        unit="tokens",
        shown="512; with an expert store 2048, or as calibrated",
        least=0,
    )
    mixed_chunk: int = _setting(
        64, "prompt tokens read in one step beside decoding rows", unit="tokens", least=1
    )
    decode_share: float = _setting(
        0.25, "part of their speed that decoding rows keep beside prompts", least=0, most=0.99
    )
    max_queue: int = _setting(64, "requests that may wait; one more gets 429", least=0)
    request_timeout: float = _setting(
        0.0, "longest time for a request, waiting included", unit="seconds", shown="none", least=0
    )
    threads: int = _setting(
        0, "CPU threads", shown="the physical cores this process may use", least=0, most=1024
    )
    device: str = _setting("auto", "where the model runs", choices=("auto", "cpu"))
    kernels: str = _setting(
        "auto", "native code, or the plain torch reference", choices=("auto", "native", "reference")
    )
    isa: str = _setting(
        "auto",
        "instruction set of the native code",
        choices=("auto", "avx512", "avx2", "neon", "portable"),
    )
    expert_ram: str = _setting(
        "auto",
        "RAM for routed experts; the others stay on disk, in record files",
        unit="2GiB, 500MB, 25% or auto",
        shown="auto: all of them where they fit",
    )
    expert_cache: str = _setting(
        "auto",
        "device memory for routed experts; without a device, RAM in its place, for tests alone",
        unit="2GiB, 500MB, 25% or auto",
        shown="auto: none on a CPU",
    )
    expert_policy: str = _setting(
        "value-density",
        "which experts keep their slots",
        choices=("value-density", "lfu", "lru", "least-stale", "tinylfu"),
    )
    expert_floor: int = _setting(
        0, "experts of each layer that keep their slots while others can leave", least=0
    )
    expert_prefetch: str = _setting(
        "auto",
        "read what the next layer will probably choose ahead of it",
        choices=("auto", "on", "off"),
        shown="auto: on, or as calibrated",
    )
    expert_profile: str = _setting(
        "",
        "file with how much each expert was wanted, read at the start and written at the end",
        unit="path",
    )
    expert_records: str = _setting(
        "", "folder of the record files", unit="path", shown="~/.cache/strata/records"
    )
    expert_trace: str = _setting(
        "", "file to record routing to, for `strata trace replay`", unit="path"
    )
    ngram_cache: str = _setting(
        "64MiB",
        "RAM for rows of n-gram tables, which stay on disk; 0 leaves them to the system's cache",
        unit="2GiB, 500MB or 25%",
    )
    chat_template: str = _setting(
        "", "file with a Jinja chat template", unit="path", shown="the model's"
    )
    temperature: float | None = _sampling("temperature (0 is greedy)", 0, 100)
    top_p: float | None = _sampling("nucleus: most likely tokens of this total probability", 0, 1)
    top_k: int | None = _sampling("choose among this many most likely tokens (0 is off)", 0)
    min_p: float | None = _sampling("least probability relative to the most likely token", 0, 1)
    repetition_penalty: float | None = _sampling("divides logits of seen tokens (1 is off)", 0.01)
    presence_penalty: float | None = _sampling("taken off tokens that occurred (0 is off)", -2, 2)
    frequency_penalty: float | None = _sampling("taken off for each occurrence (0 is off)", -2, 2)
    log_level: str = _setting(
        "info", "how much to log", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "text", "how log lines look: json is one object a line", choices=("text", "json")
    )
    tracing: bool = _setting(
        False, "send OpenTelemetry a trace of each request, to where its own variables say"
    )

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling defaults that were set, by the names of `types.Sampling`."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.default is None}
        return {name: value for name, value in values.items() if value is not None}
