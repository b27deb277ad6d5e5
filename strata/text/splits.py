"""How byte-level vocabularies cut text before merging: `tokenizer.ggml.pre`.

A table from the names that GGUF files use to the pre-tokenizer that the model was trained with, as
its published tokenizer.json has it. (transformers 5.24 reads `smollm` as plain GPT-2, which cuts
blanks before a digit otherwise; llama.cpp and the table below do not.)
"""

from __future__ import annotations

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from strata.types import ModelError

_ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)
_QWEN35 = (
    rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
)


def _regex(pattern: str) -> PreTokenizer:
    split = Split(Regex(pattern), behavior="isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2 = ByteLevel(add_prefix_space=False, use_regex=True)
_SINGLE_DIGITS = Sequence([Digits(individual_digits=True), _GPT2])

_TABLE: dict[str, PreTokenizer] = {
    **dict.fromkeys(("default", "gpt-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _SINGLE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _regex(_QWEN2)),
    "qwen35": _regex(_QWEN35),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe"), _regex(_LLAMA3)),
    "tekken": _regex(_TEKKEN),
}

# Published tokenizers of these look a whole word up before they merge (`ignore_merges`) and
# begin every text with bos, which their GGUF files often leave unsaid.
WHOLE_WORDS_AND_BOS = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken"})

SUPPORTED = tuple(sorted(_TABLE))


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer that a GGUF file's `tokenizer.ggml.pre` names.

    ModelError lists the supported names: guessing would give other ids silently.
    """
    if name not in _TABLE:
        raise ModelError(
            f"the file's pre-tokenizer {name!r} is not supported; supported: {', '.join(SUPPORTED)}"
        )
    return _TABLE[name]
