"""Hub names with a library in place of the network: choice of files, notes, and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from strata.files import hub
from strata.types import ModelError

FOLDER = ["README.md", "config.json", "model-00001-of-00002.safetensors", "tokenizer.json"]
FOLDER += ["model-00002-of-00002.safetensors", "chat_template.jinja", "original/params.json"]
QUANTS = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-f16.gguf", "README.md"]
SPLIT = ["big-Q8_0-00002-of-00002.gguf", "big-Q8_0-00001-of-00002.gguf", "big-Q2_K.gguf"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", True),
        ("owner/name.v1:Q4_K_M", True),
        ("owner/name:sub/file.gguf", True),
        ("name", False),
        ("/owner/name", False),
        ("./owner/name", False),
        ("a/b/c", False),
        ("owner/", False),
    ],
)
def test_is_name(text: str, expected: bool) -> None:
    assert hub.is_name(text) is expected


@pytest.mark.parametrize(
    ("files", "part", "chosen"),
    [
        (
            FOLDER,
            "",
            [
                "chat_template.jinja",
                "config.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "tokenizer.json",
            ],
        ),
        (QUANTS, "", ["m-Q4_K_M.gguf"]),
        (QUANTS, "Q4_K", ["m-Q4_K.gguf"]),
        (QUANTS, "q8_0", ["m-Q8_0.gguf"]),
        (QUANTS, "m-Q8_0.gguf", ["m-Q8_0.gguf"]),
        (SPLIT, "", ["big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf"]),
        (SPLIT, "Q8_0", ["big-Q8_0-00001-of-00002.gguf", "big-Q8_0-00002-of-00002.gguf"]),
        (["only.gguf"], "", ["only.gguf"]),
        ([*FOLDER, "extra-Q4_0.gguf"], "Q4_0", ["extra-Q4_0.gguf"]),
    ],
)
def test_choose(files: list[str], part: str, chosen: list[str]) -> None:
    assert hub.choose(files, part, "o/n") == chosen


@pytest.mark.parametrize(
    ("files", "part", "said"),
    [
        (["README.md"], "", "neither safetensors"),
        (QUANTS, "Q5_0", "no GGUF like 'Q5_0'"),
        (QUANTS, "m", "several"),
        (["a.gguf", "b.gguf"], "", "o/n:FILE of a.gguf, b.gguf"),
    ],
)
def test_choose_says_what_there_is(files: list[str], part: str, said: str) -> None:
    with pytest.raises(ModelError, match="o/n") as caught:
        hub.choose(files, part, "o/n")
    assert said in str(caught.value)


class Fake:
    """Stands for huggingface_hub: a repository's files, made on disk when downloaded."""

    def __init__(self, at: Path, files: list[str]) -> None:
        self.at, self.files, self.downloads = at, files, 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Fake:
        fake = self

        class Api:
            def list_repo_files(self, repository: str) -> list[str]:
                return fake.files

        def download(repository: str, *, allow_patterns: list[str], **rest: Any) -> str:
            fake.downloads += 1
            for name in allow_patterns:
                (fake.at / name).parent.mkdir(parents=True, exist_ok=True)
                (fake.at / name).write_bytes(b"x")
            return str(fake.at)

        monkeypatch.setattr(huggingface_hub, "HfApi", Api)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        return self


@pytest.mark.parametrize(("files", "model"), [(FOLDER, "."), (QUANTS, "m-Q4_K_M.gguf")])
def test_a_second_start_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], model: str
) -> None:
    fake = Fake(tmp_path / "snapshot", files).install(monkeypatch)
    folder = tmp_path / "models"
    found = hub.locate("o/n", folder)
    assert found == (tmp_path / "snapshot" / model)
    assert hub.locate("o/n", folder) == found
    assert fake.downloads == 1
    next(path for path in fake.at.rglob("*") if path.is_file()).unlink()
    assert hub.locate("o/n", folder) == found
    assert fake.downloads == 2, "a file that has gone is fetched again"
    hub.pull("o/n", folder)
    assert fake.downloads == 3, "pull asks for the newest"


def test_a_damaged_note_is_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(tmp_path / "snapshot", QUANTS).install(monkeypatch)
    found = hub.locate("o/n", tmp_path)
    for note in tmp_path.glob("hub-*.json"):
        note.write_text("{", encoding="utf-8")
    assert hub.locate("o/n", tmp_path) == found
    assert fake.downloads == 2


def response(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "https://hub.invalid/api"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("Name or service not known"), ["Name or service", "check the network"]),
        (errors.GatedRepoError("gated", response=response(403)), ["licence", "HF_TOKEN"]),
        (errors.RepositoryNotFoundError("none", response=response(404)), ["no o/n", "HF_TOKEN"]),
        (RuntimeError(""), ["RuntimeError"]),
    ],
)
def test_failures_are_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: list[str]
) -> None:
    class Api:
        def list_repo_files(self, repository: str) -> list[str]:
            raise error

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(ModelError) as caught:
        hub.locate("o/n", tmp_path)
    assert "\n" not in str(caught.value)
    for part in said:
        assert part in str(caught.value)
