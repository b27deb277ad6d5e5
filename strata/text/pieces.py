"""What a vocabulary entry stands for, in bytes.

Two spellings exist. Byte-level vocabularies write each byte as one printable
character; SentencePiece ones write a blank as U+2581 and lone bytes as `<0x0A>`.
Knows single entries only; joining them is the tokenizer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tokenizers import pre_tokenizers

BLANK = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level() -> Callable[[str], bytes]:
    """Entry -> bytes for byte-level vocabularies.

    In their alphabet printable Latin-1 characters stand for themselves, and those from U+0100 on
    for the other bytes, in order (source: OpenAI's GPT-2 encoder). An entry with any character
    outside of it (an added token) is plain text.
    """
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    others = (byte for byte in range(256) if chr(byte) not in characters)
    table = {char: ord(char) if ord(char) < 0x100 else next(others) for char in characters}

    def spell(entry: str) -> bytes:
        try:
            return bytes([table[character] for character in entry])
        except KeyError:
            return entry.encode("utf-8", "replace")

    return spell


def sentencepiece(entry: str) -> bytes:
    """Entry -> bytes for SentencePiece vocabularies."""
    byte = _BYTE.fullmatch(entry)
    if byte:
        return bytes([int(byte[1], 16)])
    return entry.replace(BLANK, " ").encode("utf-8", "replace")


_SURROGATES = re.compile("[\ud800-\udfff]")


def valid(text: str) -> str:
    """The text as UTF-8 can hold it: surrogate pairs joined, lone surrogates U+FFFD.

    JSON can spell lone surrogates, so they reach us inside of strings.
    """
    if _SURROGATES.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
