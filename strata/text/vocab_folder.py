"""The tokenizer of a Hugging Face folder: tokenizer.json and tokenizer_config.json.

The pipeline is the file's own, taken as it is (transformers 5 builds another one for
files of class LlamaTokenizer, with other ids for texts that begin with a blank). This
module finds out what the library does not say: which ids begin a text, which end an
answer, and how entries spell bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from strata.text import pieces
from strata.text.vocab import Vocabulary, end_ids
from strata.types import ModelError


def from_folder(folder: Path, metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a folder. `metadata` is its ModelFile's. Raises ModelError."""
    base = _read(folder / "tokenizer.json")
    config = metadata.get("tokenizer_config") or {}
    ids: dict[str, int] = base.get_vocab(with_added_tokens=True)
    named = _named(config, ids)
    tokens = _added(base, config, named, ids)
    spell, strips = _spelling(base)
    roles = {name: ids[text] for name, text in named.items()}
    bos, eos = roles.get("bos_token"), roles.get("eos_token")
    given = [*_stated_ends(metadata, len(ids)), *(() if eos is None else (eos,))]
    return Vocabulary(
        base=base,
        tokens=tokens,
        entries=_entries(ids),
        spell=spell,
        begins=_begins(base, config, bos),
        bos=bos,
        end_ids=end_ids(given, tokens),
        strips=strips,
        named=named,
    )


def _read(path: Path) -> Tokenizer:
    if not path.exists():
        raise ModelError(
            f"{path.parent} has no tokenizer.json; a folder with only tokenizer.model needs to be"
            " saved again with transformers' save_pretrained"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"cannot read {path}: {error}") from error


def _text(value: Any) -> str | None:
    """A token as tokenizer_config.json writes it: a string or {"content": ...}."""
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) else None


def _named(config: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, str]:
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    found = {name: _text(config.get(name)) for name in names}
    return {name: text for name, text in found.items() if text and text in ids}


def _added(
    base: Tokenizer, config: Mapping[str, Any], named: Mapping[str, str], ids: Mapping[str, int]
) -> dict[int, AddedToken]:
    """The added tokens. Those that the configuration gives a role are control tokens too."""
    lists = ("additional_special_tokens", "extra_special_tokens")
    extra = [text for name in lists if isinstance(config.get(name), list) for text in config[name]]
    control = {*named.values(), *(_text(value) for value in extra)}
    tokens: dict[int, AddedToken] = base.get_added_tokens_decoder()
    for token in tokens.values():
        token.special = token.special or token.content in control
    for text in named.values():
        tokens.setdefault(ids[text], AddedToken(text, normalized=False, special=True))
    return tokens


def _entries(ids: Mapping[str, int]) -> list[str | None]:
    entries: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for text, number in ids.items():
        entries[number] = text
    return entries


def _stated_ends(metadata: Mapping[str, Any], size: int) -> Iterator[int]:
    config = metadata.get("config") or {}
    text = config.get("text_config")  # of a multimodal model
    for stating in (metadata.get("generation_config"), config, text):
        stated = stating.get("eos_token_id") if isinstance(stating, dict) else None
        for number in stated if isinstance(stated, list) else [stated]:
            if isinstance(number, int) and 0 <= number < size:
                yield number


def _begins(base: Tokenizer, config: Mapping[str, Any], bos: int | None) -> tuple[int, ...]:
    """Ids before every text: as configured, else what the post processor puts there."""
    stated = config.get("add_bos_token")
    if isinstance(stated, bool):
        return (bos,) if stated and bos is not None else ()
    with_rule = base.encode("a", add_special_tokens=True).ids
    without = base.encode("a", add_special_tokens=False).ids
    for at in range(len(with_rule) - len(without) + 1):
        if with_rule[at : at + len(without)] == without:
            return tuple(with_rule[:at])
    return ()


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """A decoder's steps, sequences unfolded."""
    if isinstance(step, dict):
        yield step
        for inner in step.get("decoders", ()):
            yield from _steps(inner)


def _spelling(base: Tokenizer) -> tuple[Callable[[str], bytes], bool]:
    """How entries spell bytes, and whether a whole text loses one leading blank."""
    state = None if base.decoder is None else json.loads(base.decoder.__getstate__())
    steps = {step["type"]: step for step in _steps(state)}
    if "ByteLevel" in steps:
        return pieces.byte_level(), False
    if "ByteFallback" in steps:
        return pieces.sentencepiece, steps.get("Strip", {}).get("start", 0) > 0
    if "Metaspace" in steps:
        return pieces.sentencepiece, steps["Metaspace"].get("prepend_scheme") != "never"
    raise ModelError(
        f"the tokenizer's decoder ({', '.join(steps) or 'none'}) is not supported; supported:"
        " byte-level BPE and SentencePiece"
    )
