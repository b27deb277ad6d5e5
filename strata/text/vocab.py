"""The tokenizer that a model's file describes, as plain facts and a library object.

Reads GGUF metadata (`tokenizer.ggml.*`) here and Hugging Face folders in `vocab_folder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace

from strata.text import pieces, splits
from strata.types import ModelError

# Texts that end a turn in some family of models, where the vocabulary has them as control tokens.
_END_TEXTS = frozenset(
    (
        *("</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
        *("<|end|>", "<|return|>", "<end_of_turn>", "<EOT>", "<｜end▁of▁sentence｜>"),
    )
)
_NAMES = ("bos", "eos", "unk", "pad")


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """A tokenizer's facts.

    tokens: added tokens by id, control ones `special`. entries: the text of each id, None for
    holes. spell: entry -> bytes. begins: ids before every text. strips: one leading blank of a
    whole text is not part of it. named: bos_token, ... as a chat template may ask for them.
    """

    base: Tokenizer
    tokens: Mapping[int, AddedToken]
    entries: Sequence[str | None] = field(repr=False)
    spell: Callable[[str], bytes]
    begins: tuple[int, ...]
    bos: int | None
    end_ids: frozenset[int]
    strips: bool
    named: Mapping[str, str]


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a GGUF file. Raises ModelError."""
    entries, types = _entries(metadata)
    roles = _roles(metadata, len(entries))
    tokens = _added(entries, types, roles)
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    strips = adds_bos = False
    if kind == "gpt2":
        base, spell = _byte_level(metadata, entries, pre), pieces.byte_level()
        adds_bos = pre in splits.WHOLE_WORDS_AND_BOS
    elif kind == "llama":
        base, spell = _sentencepiece(metadata, entries, types, roles), pieces.sentencepiece
        strips, adds_bos = _prefix_blank(metadata), True
    else:
        raise ModelError(
            f"the file's tokenizer is of kind {kind!r}; supported: gpt2 (byte-level BPE) and"
            " llama (SentencePiece)"
        )
    stated = metadata.get("tokenizer.ggml.add_bos_token")
    adds_bos = adds_bos if stated is None else bool(stated)
    return Vocabulary(
        base=base,
        tokens=tokens,
        entries=entries,
        spell=spell,
        begins=(roles["bos"],) if "bos" in roles and adds_bos else (),
        bos=roles.get("bos"),
        end_ids=end_ids((roles[name] for name in ("eos", "eot", "eom") if name in roles), tokens),
        strips=strips,
        named={f"{name}_token": entries[roles[name]] for name in _NAMES if name in roles},
    )


def end_ids(given: Iterable[int], tokens: Mapping[int, AddedToken]) -> frozenset[int]:
    """The ids that end an answer: the given ones and control tokens known to end a turn."""
    known = (i for i, token in tokens.items() if token.special and token.content in _END_TEXTS)
    return frozenset((*given, *known))


def _entries(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    entries = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(entries, list) or not entries:
        raise ModelError("the file has no tokenizer.ggml.tokens: it carries no tokenizer")
    types = metadata.get("tokenizer.ggml.token_type") or [TokenType.NORMAL] * len(entries)
    if len(types) != len(entries):
        raise ModelError(
            f"the file has {len(entries)} tokens but {len(types)} token types: it is damaged"
        )
    return entries, types


def _roles(metadata: Mapping[str, Any], size: int) -> dict[str, int]:
    """Role (bos, eos, unk, pad, eot, eom) -> id, where the file names a valid one."""
    roles, longer = {}, {"unk": "unknown", "pad": "padding"}
    for role in (*_NAMES, "eot", "eom"):
        number = metadata.get(f"tokenizer.ggml.{longer.get(role, role)}_token_id")
        if number is None:
            continue
        if not isinstance(number, int) or not 0 <= number < size:
            raise ModelError(f"the file's {role} token has id {number}, of {size} tokens")
        roles[role] = number
    return roles


def _added(
    entries: Sequence[str], types: Sequence[int], roles: Mapping[str, int]
) -> dict[int, AddedToken]:
    """The tokens that are found whole in a text. Control ones are `special`.

    Of entries with one text the last counts, as in the vocabulary.
    """
    named = set(roles.values())
    last = {entry: number for number, entry in enumerate(entries)}
    return {
        number: AddedToken(entry, normalized=False, special=kind != TokenType.USER_DEFINED)
        for number, (entry, kind) in enumerate(zip(entries, types, strict=True))
        if entry
        and last[entry] == number
        and (kind in (TokenType.CONTROL, TokenType.USER_DEFINED) or number in named)
    }


def _byte_level(metadata: Mapping[str, Any], entries: Sequence[str], pre: str) -> Tokenizer:
    pairs = (merge.partition(" ") for merge in metadata.get("tokenizer.ggml.merges") or ())
    merges = [(left, right) for left, _, right in pairs]
    base = _bpe(entries, merges, ignore_merges=pre in splits.WHOLE_WORDS_AND_BOS)
    base.pre_tokenizer = splits.pre_tokenizer(pre)
    return base


def _sentencepiece(
    metadata: Mapping[str, Any], entries: Sequence[str], types: Sequence[int], roles: dict[str, int]
) -> Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(entries):
        raise ModelError("the file's SentencePiece tokenizer has no score for each token")
    merged, reserved = (TokenType.NORMAL, TokenType.USER_DEFINED), set(roles.values())
    usable = [kind in merged and i not in reserved for i, kind in enumerate(types)]
    merges = merges_by_score(entries, scores, usable)
    unknown = entries[roles["unk"]] if "unk" in roles else None
    base = _bpe(entries, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    scheme = "first" if _prefix_blank(metadata) else "never"
    base.pre_tokenizer = Metaspace(replacement=pieces.BLANK, prepend_scheme=scheme, split=False)
    return base


def merges_by_score(
    entries: Sequence[str], scores: Sequence[float], usable: Sequence[bool]
) -> list[tuple[str, str]]:
    """The merges that SentencePiece's scores imply, best first.

    SentencePiece joins the neighbours whose union scores highest, the leftmost of equals. As
    merges: every way to cut a usable entry (no control token) into two, ordered by its score and
    then by the lengths, longest first, as transformers orders them.
    """
    known = {entry: i for i, entry in enumerate(entries) if usable[i]}
    found = []
    for entry, number in known.items():
        cuts = [(entry[:at], entry[at:]) for at in range(1, len(entry))]
        cuts = [(left, right) for left, right in cuts if left in known and right in known]
        found += [(-scores[number], -len(left), -len(right), (left, right)) for left, right in cuts]
    found.sort(key=lambda item: item[:3])
    return [pair for *_, pair in found]


def _bpe(entries: Sequence[str], merges: list[tuple[str, str]], **options: Any) -> Tokenizer:
    """A library tokenizer. The library refuses merges of entries that do not exist."""
    vocab = {entry: number for number, entry in enumerate(entries)}
    try:
        return Tokenizer(BPE(vocab=vocab, merges=merges, **options))
    except Exception as error:  # the library raises bare Exception and panics
        raise ModelError(f"the file's tokenizer is damaged: {error}") from error


def _prefix_blank(metadata: Mapping[str, Any]) -> bool:
    return bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
