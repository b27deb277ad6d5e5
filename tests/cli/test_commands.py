"""The command line from outside: help, errors in one sentence, exit statuses, flags to settings."""

from __future__ import annotations

import argparse
import socket
from dataclasses import fields
from pathlib import Path

import pytest

import strata
from strata.cli import flags, main, pull
from strata.cli.terminal import Progress
from strata.config import flag_name
from strata.settings import Config


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    flags.add_settings(parser)
    return parser.parse_args(words)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"strata {strata.__version__}\n"


def test_help_of_serve_names_every_setting_its_unit_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for one in fields(Config):
        if one.name != "model":
            assert flag_name(one) in text
        # argparse breaks lines at hyphens too.
        assert flags.describe(one).replace(" ", "") in text.replace(" ", "")
    assert "[tokens] (default: 64)" in text
    assert "(default: 25%)" in text


@pytest.mark.parametrize("words", [[], ["fly"], ["serve", "--nope"], ["serve", "a", "b"]])
def test_a_wrong_command_line_ends_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: strata" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "--batch", "none"], "--batch"),
        (["serve", "--host", "0.0.0.0"], "--api-key"),
        (["serve", "--cache-size", "1XB"], "--cache-size: '1XB'"),
        (["serve", "--chat-template", "/nowhere/t.jinja"], "/nowhere/t.jinja"),
        (["serve", "--config", "/nowhere/c.toml"], "/nowhere/c.toml"),
        (["chat", "--max-tokens", "0"], "--max-tokens"),
        (["pull", "not a name"], "not a name"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("strata: ") and said in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another" in capsys.readouterr().err


def test_flags_become_settings() -> None:
    words = ["m.gguf", "--batch", "8", "--api-key", "a", "--api-key", "b", "--insecure"]
    resolved = flags.resolve(parse(*words, "--temperature", "0"))
    config = resolved.config
    assert (config.model, config.batch, config.api_key) == ("m.gguf", 8, ("a", "b"))
    assert (config.insecure, config.temperature) == (True, 0.0)
    assert resolved.sources["model"] == "MODEL"
    assert resolved.sources["host"] == "default"


def test_the_environment_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    named = tmp_path / "named.toml"
    named.write_text("batch = 3\n")
    monkeypatch.setenv("STRATA_CONFIG", str(named))
    assert flags.resolve(parse()).config.batch == 3
    other = tmp_path / "other.toml"
    other.write_text("batch = 5\n")
    assert flags.resolve(parse("--config", str(other))).config.batch == 5


def test_pull_of_a_file_here_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x")
    found = pull.pull(str(tmp_path / "m.gguf"), tmp_path, Progress())
    assert found == tmp_path / "m.gguf"


def test_pull_asks_the_hub_even_for_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull.hub, "pull", lambda name, *rest: Path("/new") / name)
    monkeypatch.setattr(pull.hub, "locate", lambda name, *rest: Path("/old") / name)
    assert pull.pull("owner/name:Q8_0", tmp_path, Progress()) == Path("/new/owner/name:Q8_0")
