"""Tokenizers of a handful of tokens, spelled byte by byte. For masks that brute force can check."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from strata.text.tokenizer import Tokenizer
from strata.text.vocab import Vocabulary

END, STOP, CONTROL = 0, 1, 2  # two end tokens and a control token


def small(pieces: Iterable[bytes]) -> tuple[Tokenizer, list[bytes]]:
    """A tokenizer and the bytes of each of its tokens in a text: none of control tokens.

    Id 3 is a hole. The pieces follow, each once.
    """
    added = ["<end>", "<stop>", "<c>"]
    ordinary = list(dict.fromkeys(pieces))
    entries = [*added, None, *(piece.hex() for piece in ordinary)]
    tokens = {i: AddedToken(text, special=True, normalized=False) for i, text in enumerate(added)}
    facts = Vocabulary(
        base=Library(BPE()),
        tokens=tokens,
        entries=entries,
        spell=lambda entry: entry.encode() if entry in added else bytes.fromhex(entry),
        begins=(),
        bos=None,
        end_ids=frozenset((END, STOP)),
        strips=False,
        named={},
    )
    return Tokenizer(facts), [b""] * 4 + ordinary
