"""Every setting of Strata: its meaning, unit and default, and where its value came from.

One frozen dataclass, one `load`. A flag beats the environment (STRATA_NAME), which beats the
TOML file, which beats the default. This is the only module that reads the environment. It knows
no command line syntax (see `cli/flags.py`) and measures no machine: 0 threads or `25%` are
turned into numbers by whoever knows the machine.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from strata.types import ConfigError

PREFIX = "STRATA_"
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_KINDS |= {"str": "a text", "tuple": "a list of texts"}


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
        " (owner/name, owner/name:file)",
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
    prefill_chunk: int = _setting(
        512, "prompt tokens read in one step while no row decodes", unit="tokens", least=1
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
        "auto", "instruction set of the native code", choices=("auto", "avx512", "avx2", "portable")
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

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling defaults that were set, by the names of `types.Sampling`."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.default is None}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Resolved:
    """A checked `Config` and the source of each of its values."""

    config: Config
    sources: Mapping[str, str]

    def __str__(self) -> str:
        """One line a setting: name, value, source. Keys are not shown."""
        shown = {one.name: show(one, getattr(self.config, one.name)) for one in fields(Config)}
        return "\n".join(f"{n:<19} {value:<24} {self.sources[n]}" for n, value in shown.items())


def flag_name(one: Field[Any]) -> str:
    """`--ctx-size` for `ctx_size`."""
    return "--" + one.name.replace("_", "-")


def show(one: Field[Any], value: Any) -> str:
    """A value for people: secrets hidden, defaults by what they mean."""
    if one.name == "api_key" and value:
        return f"({len(value)} hidden)"
    shown: str | None = one.metadata["shown"]
    if value == one.default and shown is not None:
        return shown
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if value != "" else "none"


def _parsed(one: Field[Any], text: str) -> Any:
    """What `text`, from a flag or the environment, may mean; the text itself when nothing."""
    kind = _kind(one)
    if kind == "tuple":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind == "bool":
        known = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        return known.get(text.lower(), text)
    try:
        return int(text) if kind == "int" else float(text) if kind == "float" else text
    except ValueError:
        return text


def _typed(one: Field[Any], value: Any, source: str) -> Any:
    """A value from any source as the field's type. Raises ConfigError."""
    kind = _kind(one)
    if kind == "tuple":
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list | tuple) and all(isinstance(item, str) for item in values):
            return tuple(values)
    elif kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif type(value).__name__ == kind:
        return value
    raise ConfigError(f"{source}: {value!r} is not {_KINDS[kind]}")


def _kind(one: Field[Any]) -> str:
    """The type's first word: float for `float | None`, tuple for `tuple[str, ...]`."""
    return re.split(r"\W", str(one.type))[0]


def _check(one: Field[Any], value: Any, source: str) -> None:
    """Choices and bounds. Raises ConfigError."""
    choices, least, most = (one.metadata[key] for key in ("choices", "least", "most"))
    if choices and value not in choices:
        raise ConfigError(f"{source}: {value!r} is not one of {', '.join(choices)}")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if not math.isfinite(value):
        raise ConfigError(f"{source}: {value} is not a finite number")
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"between {least} and {most}"
        raise ConfigError(f"{source}: {value} is out of range; it must be {allowed}")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file; names with - or _. Raises ConfigError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    names = [one.name for one in fields(Config)]
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    for name in settings:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{path}: there is no setting {name!r}{hint}")
    return settings


def load(flags: Mapping[str, Any], env: Mapping[str, str], file: Path | None) -> Resolved:
    """Settle every setting.

    `flags` holds what the command line gave (texts, True for a switch, lists for a repeated flag);
    `env` the environment; `file` a TOML file that must exist, or None for the user's own if there
    is one. Other STRATA_ variables are left alone: container platforms make some up.
    """
    if file is None and (own := config_folder(env) / "config.toml").is_file():
        file = own
    table = read_file(file) if file is not None else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for one in fields(Config):
        name, variable = one.name, PREFIX + one.name.upper()
        source, value = "default", one.default
        if name in flags:
            source, given = "MODEL" if name == "model" else flag_name(one), flags[name]
            text = ",".join(given) if isinstance(given, list) else str(given)
            value = _typed(one, _parsed(one, text), source)
        elif variable in env:
            source, value = variable, _typed(one, _parsed(one, env[variable]), variable)
        elif name in table:
            source = f"{file}: {name}"
            value = _typed(one, table[name], source)
        _check(one, value, source)
        values[name], sources[name] = value, source
    return _with_file_keys(Resolved(Config(**values), sources))


def _with_file_keys(resolved: Resolved) -> Resolved:
    """Adds the keys of `api_key_file` and refuses an open server beyond this machine."""
    config, sources = resolved.config, resolved.sources
    keys = config.api_key
    if config.api_key_file:
        try:
            lines = Path(config.api_key_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{sources['api_key_file']}: cannot read the keys: {error}") from None
        keys += tuple(line.strip() for line in lines if line.strip() and line[0] != "#")
        if not keys:
            raise ConfigError(f"{sources['api_key_file']}: {config.api_key_file} holds no key")
    if not keys and not config.insecure and not is_loopback(config.host):
        open_to_all = f"{config.host} can be reached from other machines"
        raise ConfigError(f"{open_to_all}: give an --api-key, or --insecure to let anyone in")
    return Resolved(replace(config, api_key=keys), sources)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ


def config_folder(env: Mapping[str, str]) -> Path:
    """Where the user's own configuration lies."""
    return _folder(env, "XDG_CONFIG_HOME", ".config")


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where fetched models and packed experts are kept."""
    return _folder(env, "XDG_CACHE_HOME", ".cache")


def model_folder() -> Path:
    """Where this process keeps fetched models."""
    return cache_folder(os.environ) / "models"


def records_folder() -> Path:
    """Where this process keeps packed experts, a folder for each model."""
    return cache_folder(os.environ) / "records"


def _folder(env: Mapping[str, str], name: str, otherwise: str) -> Path:
    # The XDG specification tells to ignore a relative path.
    chosen = env.get(name, "")
    home = Path(env.get("HOME") or Path.home())
    return (Path(chosen) if chosen.startswith("/") else home / otherwise) / "strata"
