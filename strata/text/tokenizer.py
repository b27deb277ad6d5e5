"""Text to token ids and back.

Ids equal those of the `tokenizers` pipeline that the model's file describes (and so of
transformers on the same file). Decoding joins bytes: any list of ids has a decode. The library
decodes a SentencePiece run of byte tokens as a whole, and if any of it is no UTF-8, every byte of
the run becomes U+FFFD. That cannot be streamed; here, as in llama.cpp, bytes are bytes, and only
what is no UTF-8 is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strata.files import ModelFile
from strata.text import vocab, vocab_folder
from strata.text.added import AddedTokens
from strata.text.backend import Added, Backend, Place
from strata.text.pieces import valid
from strata.text.segments import SegmentCache
from strata.text.vocab import Vocabulary
from strata.types import ModelError

_CACHE_BYTES = 64 << 20
_Run = tuple[Added, Place, str]  # a text and how it is read


class Tokenizer:
    """A model's tokenizer. Thread safe; what is cached never changes a result.

    vocab_size: ids are below it (a model's matrices may have more rows). bos: id or None.
    end_ids: ids that end an answer. special_ids: control tokens. named: texts of bos_token,
    eos_token, ... for chat templates. added_tokens: text -> whether it is a control token.
    added_ids: text -> id.
    """

    def __init__(self, facts: Vocabulary, cache_bytes: int = _CACHE_BYTES) -> None:
        self.vocab_size = len(facts.entries)
        self.bos = facts.bos
        self.end_ids = facts.end_ids
        self.special_ids = frozenset(i for i, token in facts.tokens.items() if token.special)
        self.named: Mapping[str, str] = facts.named
        self._begins, self._strips = facts.begins, facts.strips
        self.added_tokens = {token.content: token.special for token in facts.tokens.values()}
        self.added_ids = {token.content: number for number, token in facts.tokens.items()}
        self._backend = Backend(facts.base, facts.tokens)
        self._added = AddedTokens(facts.tokens)
        self._cache = SegmentCache(cache_bytes)
        self._bytes = [b"" if entry is None else facts.spell(entry) for entry in facts.entries]

    # ------------------------------------------------------------- encode

    def encode(self, text: str, special: bool = False, start: bool = True) -> list[int]:
        """Token ids of a text; any text can be encoded.

        special: the text of control tokens stands for them; else it is plain text (other added
        tokens are found either way, as transformers does with `split_special_tokens`). start:
        the text begins the sequence, so that bos and a prefix blank go before it where the model
        wants them. An eos never goes after it: what is encoded here is to be continued.
        """
        text = valid(text)
        place = Place.START if start else Place.INSIDE
        ids = list(self._begins) if start else []
        if not special:
            self._extend(ids, [(Added.USER_DEFINED, place, text)])
            return ids
        self._extend(ids, self._segments(text, place))
        return ids

    def encode_rendered(self, text: str, mark: str | None) -> list[int]:
        """Token ids of a rendered chat template, without bos unless the template wrote it.

        Added tokens stand for themselves unless `mark` (one character) stands inside
        them: it keeps a user's text plain and is removed.
        """
        runs: list[_Run] = []
        ids: list[int] = []
        for run in self._segments(valid(text), Place.START):
            if mark is None or mark not in run[2]:
                runs.append(run)
                continue
            self._extend(ids, runs)
            runs = []
            self._extend_marked(ids, run[2], mark)
        self._extend(ids, runs)
        return ids

    def has_control(self, text: str) -> bool:
        """Whether a rendered text has control tokens in it."""
        return len(self._added.cut(text)) > 1

    def _segments(self, text: str, place: Place) -> list[_Run]:
        """What tokenises apart. All but the first begin with a control token, so at a start."""
        first, *others = self._added.cut(text)
        return [(Added.ALL, place, first), *((Added.ALL, Place.START, each) for each in others)]

    def _extend_marked(self, ids: list[int], segment: str, mark: str) -> None:
        """Append the ids of a segment in which some added tokens are kept plain."""
        place = Place.START  # of the first part, which is empty in all but the first segment
        for part in self._added.split(segment):
            if isinstance(part, int):
                ids.append(part)
                place = Place.AFTER_TOKEN
            else:
                self._extend(ids, [(Added.NONE, place, part.replace(mark, ""))])

    def _extend(self, ids: list[int], runs: Sequence[_Run]) -> None:
        """Append the ids of texts, each under its reading: remembered ones, then new ones."""
        runs = [run for run in runs if run[2]]
        found = [self._cache.get(run[:2], run[2]) for run in runs]
        missing = {run for run, known in zip(runs, found, strict=True) if known is None}
        fresh: dict[_Run, list[int]] = {}
        for added, place in {run[:2] for run in missing}:
            texts = [run[2] for run in missing if run[:2] == (added, place)]
            for text, new in zip(texts, self._backend.encode(texts, added, place), strict=True):
                fresh[added, place, text] = new
                self._cache.put((added, place), text, new)
        for run, known in zip(runs, found, strict=True):
            ids.extend(fresh[run] if known is None else known)

    # ------------------------------------------------------------- decode

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """The bytes of one token; b"" for control tokens (unless `special`) and unknown ids."""
        if not 0 <= token < self.vocab_size or (token in self.special_ids and not special):
            return b""
        return self._bytes[token]

    def decode(self, ids: Iterable[int], skip_special: bool = False, start: bool = True) -> str:
        """The text of token ids; what is no UTF-8 becomes U+FFFD.

        start: the ids begin a text, so a prefix blank that `encode` added is taken off
        (SentencePiece); a continuation keeps it. Ids outside the vocabulary have no text.
        """
        joined = b"".join(self.token_bytes(token, not skip_special) for token in ids)
        if start and self._strips:
            joined = joined.removeprefix(b" ")
        return joined.decode("utf-8", "replace")


def load(model: ModelFile) -> Tokenizer:
    """The tokenizer of a model's file or folder. Raises ModelError."""
    try:
        if model.kind == "gguf":
            return Tokenizer(vocab.from_gguf(model.metadata))
        return Tokenizer(vocab_folder.from_folder(model.path, model.metadata))
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        # Metadata of the wrong shape, which only a damaged or hostile file has.
        raise ModelError(f"the tokenizer of {model.path} is damaged: {e!r}") from e
