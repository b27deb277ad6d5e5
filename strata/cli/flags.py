"""Command line flags, made from the fields of Config, and their way into `config.load`.

A flag that was not given is absent from what argparse returns, so that the environment and the
configuration file can speak.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from strata.config import Resolved, environment, flag_name, load, show
from strata.settings import Config

EPILOG = """\
Every setting can also come from the environment (--ctx-size is STRATA_CTX_SIZE; several values
are separated by commas) or from a TOML file (ctx_size = 4096), by default config.toml in
~/.config/strata. A flag beats the environment, the environment beats the file.
"""

# What a chat that loads a model itself can use: all but the settings of a listening server.
SERVER_ONLY = {"host", "port", "api_key", "api_key_file", "insecure", "max_queue"}
SERVER_ONLY |= {"allow_host", "allow_origin", "served_model_name", "request_timeout", "tracing"}


def add_settings(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Adds --config and a flag for each field of Config."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file with settings (STRATA_CONFIG)"
    )
    for one in fields(Config):
        if one.name not in without:
            _add(parser, one)


def _add(parser: argparse.ArgumentParser, one: Field[Any]) -> None:
    data, text = one.metadata, describe(one).replace("%", "%%")
    if one.name == "model":
        parser.add_argument(
            "model", nargs="?", default=argparse.SUPPRESS, metavar="MODEL", help=text
        )
        return
    kind: dict[str, Any] = {"metavar": data["unit"].upper() if data["unit"] == "path" else "X"}
    if data["choices"]:
        kind["metavar"] = "{" + ",".join(data["choices"]) + "}"
    elif one.type == "bool":
        kind = {"action": "store_true"}
    elif str(one.type).startswith("tuple"):
        kind = {"metavar": "X", "action": "append"}
    parser.add_argument(flag_name(one), dest=one.name, default=argparse.SUPPRESS, help=text, **kind)


def sentence(about: str) -> str:
    """What a command does, as a sentence of its own."""
    return f"{about[0].upper()}{about[1:]}."


def describe(one: Field[Any]) -> str:
    """Meaning, unit and default of a setting, on one line."""
    unit = f" [{one.metadata['unit']}]" if one.metadata["unit"] else ""
    return f"{one.metadata['help']}{unit} (default: {show(one, one.default)})"


def resolve(chosen: argparse.Namespace) -> Resolved:
    """The settings that a command line, the environment and the file come to. ConfigError."""
    env = environment()
    file = chosen.config or (Path(env["STRATA_CONFIG"]) if env.get("STRATA_CONFIG") else None)
    names = {one.name for one in fields(Config)}
    given = {name: value for name, value in vars(chosen).items() if name in names}
    return load(given, env, file)
