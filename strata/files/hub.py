"""Models from the hub: `owner/name`, or `owner/name:part` to choose one GGUF of several.

`huggingface_hub` downloads, shows its progress, resumes and keeps the files in its own cache,
shared with other programs. What a name came to is noted beside our models, so that the next
start asks nobody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from strata.types import ModelError, ProgressSink, silent

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[^:]+)?")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
# Files of a folder model that Strata reads.
_FOLDER = re.compile(r"[^/]+\.(json|safetensors|jinja)|tokenizer\.model")
# Tried in this order when a repository has several GGUF files and none was named.
PREFERRED = ("Q4_K_M", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0")


def is_name(text: str) -> bool:
    """Whether this reads as a hub name (it may still not exist)."""
    return _NAME.fullmatch(text) is not None


def locate(name: str, folder: Path, progress: ProgressSink = silent) -> Path:
    """The model `name` on this machine, downloaded unless an earlier start did. ModelError."""
    try:
        record = json.loads(_note(name, folder).read_text(encoding="utf-8"))
        if all(os.path.isfile(file) for file in record["files"]):
            return Path(record["model"])
    except (OSError, ValueError, KeyError):
        pass  # no note, or none that can be read
    return pull(name, folder, progress)


def _note(name: str, folder: Path) -> Path:
    return folder / f"hub-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def pull(name: str, folder: Path, progress: ProgressSink = silent) -> Path:
    """Downloads the newest version of `name`, going on where an earlier try stopped. ModelError."""
    repository, _, part = name.partition(":")
    progress(f"asking the hub for {repository}", 0, None)
    at, files = _download(repository, part)
    model = at / files[0] if files[0].endswith(".gguf") else at
    note = _note(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    record = {"name": name, "model": str(model), "files": [str(at / file) for file in files]}
    fresh = note.with_name(f"{note.name}.{os.getpid()}")
    fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")
    os.replace(fresh, note)
    return model


def choose(files: Sequence[str], part: str, repository: str) -> list[str]:
    """The files to download of those in a repository, the one to open first. Raises ModelError.

    `part`: a file's name or a piece of it (`Q8_0`), or empty.
    """
    ggufs = sorted(file for file in files if file.endswith(".gguf") and "mmproj" not in file)
    if part:
        exact = [file for file in ggufs if file == part]
        # A quantisation's name must stand alone: Q4_K is not in Q4_K_M.
        alone = re.compile(rf"(?<![A-Za-z0-9]){re.escape(part)}(?![A-Za-z0-9_])", re.IGNORECASE)
        found = exact or [file for file in ggufs if alone.search(file)]
    elif "config.json" in files and any(file.endswith(".safetensors") for file in files):
        return sorted(file for file in files if _FOLDER.fullmatch(file))
    else:
        found = ggufs
        if len(_whole_models(ggufs)) > 1:
            by_kind = ([f for f in ggufs if kind.lower() in f.lower()] for kind in PREFERRED)
            found = next(filter(None, by_kind), ggufs)
    models = _whole_models(found)
    if len(models) == 1:
        return models[0]
    if not ggufs:
        raise ModelError(f"{repository} holds neither safetensors with a config.json nor a GGUF")
    listing = ", ".join(parts[0] for parts in _whole_models(ggufs))
    problem = f"no GGUF like {part!r}" if not found else "several GGUF files that fit"
    raise ModelError(f"{repository} has {problem}; name one as {repository}:FILE of {listing}")


def _whole_models(ggufs: Sequence[str]) -> list[list[str]]:
    """Files grouped into models: the parts of a split file belong together."""
    groups: dict[str, list[str]] = {}
    for file in ggufs:
        groups.setdefault(_PART.sub("", file), []).append(file)
    return [sorted(parts) for parts in groups.values()]


def _download(repository: str, part: str) -> tuple[Path, list[str]]:
    """Downloads what `choose` says. Raises ModelError that tells what to do."""
    import huggingface_hub as library
    from huggingface_hub import errors

    try:
        files = choose(library.HfApi().list_repo_files(repository), part, repository)
        at = library.snapshot_download(repository, allow_patterns=files)
        return Path(at), files
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{repository} asks for a licence to be accepted: do so on its page, then set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no {repository}, or it is private: check the name, or set HF_TOKEN"
        ) from error
    except ModelError:
        raise
    except Exception as error:  # the library lets through what its transport of the day raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"cannot get {repository} from the hub ({reason}): check the network (HF_ENDPOINT"
            " names a mirror), or give a file or folder on this machine"
        ) from error
