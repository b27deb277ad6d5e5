"""Settings: precedence, parsing, refusals. Expectations are written out by hand."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from strata.config import cache_folder, config_folder, is_loopback, load
from strata.settings import Config
from strata.types import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose home folder is empty."""
    return {"HOME": str(tmp_path)}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_those_of_the_dataclass(home: dict[str, str]) -> None:
    resolved = load({}, home, None)
    assert resolved.config == Config()
    assert set(resolved.sources.values()) == {"default"}


def test_a_flag_beats_the_environment_beats_the_file(home: dict[str, str], tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "batch = 2\nport = 1\nmax_queue = 5\n")
    env = home | {"STRATA_BATCH": "3", "STRATA_PORT": "2"}
    resolved = load({"port": "3"}, env, file)
    assert (resolved.config.port, resolved.config.batch, resolved.config.max_queue) == (3, 3, 5)
    assert resolved.sources["port"] == "--port"
    assert resolved.sources["batch"] == "STRATA_BATCH"
    assert resolved.sources["max_queue"] == f"{file}: max_queue"
    assert resolved.sources["host"] == "default"


def test_the_users_own_file_is_read_unless_another_is_named(home: dict[str, str]) -> None:
    write(config_folder(home) / "config.toml", "batch = 7\n")
    assert load({}, home, None).config.batch == 7
    other = write(Path(home["HOME"]) / "other.toml", "port = 9\n")
    resolved = load({}, home, other)
    assert (resolved.config.batch, resolved.config.port) == (Config().batch, 9)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch", "8", 8),
        ("decode_share", "0.5", 0.5),
        ("request_timeout", "30", 30.0),
        ("insecure", "true", True),
        ("insecure", "0", False),
        ("api_key", "a, b,", ("a", "b")),
        ("temperature", "0", 0.0),
        ("top_k", "40", 40),
        ("cache_size", "25%", "25%"),
    ],
)
def test_environment_values_have_the_fields_type(
    home: dict[str, str], name: str, text: str, value: object
) -> None:
    found = getattr(load({}, home | {f"STRATA_{name.upper()}": text}, None).config, name)
    assert found == value
    assert type(found) is type(value)


def test_repeated_flags_and_switches(home: dict[str, str]) -> None:
    config = load({"api_key": ["a", "b,c"], "insecure": True}, home, None).config
    assert config.api_key == ("a", "b", "c")
    assert config.insecure is True


def test_toml_values_have_the_fields_type(home: dict[str, str], tmp_path: Path) -> None:
    file = write(
        tmp_path / "s.toml",
        'api-key = ["a", "b"]\nallow_host = "x"\ninsecure = true\ntemperature = 1\ntop_k = 3\n',
    )
    config = load({}, home, file).config
    assert (config.api_key, config.allow_host) == (("a", "b"), ("x",))
    assert (config.insecure, config.temperature, config.top_k) == (True, 1.0, 3)


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        ({"batch": "many"}, {}, ["--batch", "'many'", "whole number"]),
        ({"batch": "2.5"}, {}, ["--batch", "whole number"]),
        ({"batch": "0"}, {}, ["--batch", "between 1 and"]),
        ({"port": "70000"}, {}, ["--port", "70000", "65535"]),
        ({"decode_share": "nan"}, {}, ["--decode-share", "finite"]),
        ({"request_timeout": "inf"}, {}, ["--request-timeout", "finite"]),
        ({"request_timeout": "-1"}, {}, ["--request-timeout", "0 or more"]),
        ({"device": "tpu"}, {}, ["--device", "'tpu'", "cpu"]),
        ({"top_p": "1.5"}, {}, ["--top-p", "between 0 and 1"]),
        ({}, {"STRATA_INSECURE": "maybe"}, ["STRATA_INSECURE", "'maybe'"]),
        ({}, {"STRATA_PORT": "tcp://10.0.0.1:80"}, ["STRATA_PORT", "whole number"]),
    ],
)
def test_a_wrong_value_names_its_source(
    home: dict[str, str], flags: dict[str, str], env: dict[str, str], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags, home | env, None)
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batches = 2", ["batches", "did you mean batch"]),
        ("zzz = 2", ["zzz"]),
        ('batch = "2"', ["batch", "whole number"]),
        ("batch = true", ["batch", "whole number"]),
        ("insecure = 1", ["insecure", "true or false"]),
        ("host = 5", ["host", "text"]),
        ("api_key = [1]", ["api_key", "list of texts"]),
        ("batch = ", ["not TOML"]),
    ],
)
def test_a_wrong_file_says_where(
    home: dict[str, str], tmp_path: Path, text: str, said: list[str]
) -> None:
    file = write(tmp_path / "s.toml", text)
    with pytest.raises(ConfigError) as caught:
        load({}, home, file)
    for part in [str(file), *said]:
        assert part in str(caught.value)


def test_a_named_file_must_exist(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load({}, home, tmp_path / "nowhere.toml")


def test_foreign_variables_are_left_alone(home: dict[str, str]) -> None:
    env = home | {"STRATA_SERVICE_HOST": "10.0.0.1", "STRATA_TEST_MODEL": "x"}
    assert load({}, env, None).config == Config()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_an_open_server_needs_a_key_or_insecure(home: dict[str, str], host: str) -> None:
    with pytest.raises(ConfigError, match="--api-key"):
        load({"host": host}, home, None)
    assert load({"host": host, "api_key": ["k"]}, home, None).config.host == host
    assert load({"host": host, "insecure": True}, home, None).config.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_none(home: dict[str, str], host: str) -> None:
    assert is_loopback(host)
    assert load({"host": host}, home, None).config.api_key == ()


def test_keys_from_a_file_join_the_others(home: dict[str, str], tmp_path: Path) -> None:
    file = write(tmp_path / "keys", "# team\nfirst\n\n  second  \n")
    config = load({"api_key_file": str(file), "api_key": ["zero"]}, home, None).config
    assert config.api_key == ("zero", "first", "second")


@pytest.mark.parametrize("text", [None, "# nothing\n"])
def test_a_key_file_without_keys_is_an_error(
    home: dict[str, str], tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "keys"
    if text is not None:
        write(file, text)
    with pytest.raises(ConfigError, match="--api-key-file"):
        load({"api_key_file": str(file)}, home, None)


def test_what_is_printed_hides_keys_and_names_every_setting(home: dict[str, str]) -> None:
    text = str(load({"api_key": ["secret-1", "secret-2"]}, home, None))
    assert "secret" not in text
    assert "(2 hidden)" in text
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in fields(Config)]
    assert lines[0].split() == ["model", "SmolLM2-135M-Instruct", "default"]


def test_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().batch = 2  # type: ignore[misc]


def test_sampling_holds_only_what_was_set(home: dict[str, str]) -> None:
    config = load({"temperature": "0", "top_k": "5"}, home, None).config
    assert config.sampling == {"temperature": 0.0, "top_k": 5}


def test_folders_follow_xdg_but_not_relative_paths() -> None:
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/strata")
    assert cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/strata")
    assert cache_folder({"HOME": "/h", "XDG_CACHE_HOME": "c"}) == Path("/h/.cache/strata")
    assert config_folder({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/strata")
