"""What every setting of Strata is set to, and where its value came from.

The settings are in settings.py; here is one `load`. A flag beats the environment (STRATA_NAME),
which beats the TOML file, which beats the default. This is the only module that reads the
environment. It knows no command line syntax (see `cli/flags.py`) and measures no machine: 0
threads or `25%` are turned into numbers by whoever knows the machine.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any

from strata.settings import Config
from strata.types import ConfigError

PREFIX = "STRATA_"
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_KINDS |= {"str": "a text", "tuple": "a list of texts"}


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
