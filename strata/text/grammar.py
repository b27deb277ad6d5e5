"""Constrained decoding: what a JSON schema, a regular expression or a Lark grammar allows next.

`llguidance` does the work (docs: github.com/guidance-ai/llguidance, docs/json_schema.md and
docs/syntax.md say what it understands); here is its tokenizer made from ours, its limits, and its
errors as ours. A token is allowed exactly when some text of the language goes on with its bytes:
the tokenisation is the model's to choose. Control tokens are never part of a text; a Lark grammar
may name them (`<|im_end|>`).

Grammars come from strangers, so `grammar_limits` refuses what llguidance's own limits do not stop.
A compiled grammar is never changed: each sequence follows a copy, which costs microseconds.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark

from strata.text.grammar_limits import check_lark, check_regex, check_schema
from strata.text.pieces import valid
from strata.text.tokenizer import Tokenizer
from strata.types import Guide, RequestError

_log = logging.getLogger(__name__)

_KEPT = 64  # compiled grammars
# Deep chains of rules or references are compiled by recursion: 10 KiB of stack for each, of which
# the limits allow some 10,000. Only what is touched is memory.
_STACK = 256 << 20
_LIMITS = LLParserLimits(
    step_max_items=10_000,  # some 50 ms of a step at the very worst
    max_lexer_states=50_000,  # 2 kB each
    verbose_errors=False,
)
# Whitespace between JSON's tokens is free but not endless: a model could go on with it for ever.
_JSON_OPTIONS = {"whitespace_pattern": r"[ \t\n\r]{1,64}"}
# Else llguidance would force one tokenisation of what only one text can follow, asking for it in
# the middle of a step.
_FREE = '\n%llguidance {"no_forcing": true}\n'
_LEAD = re.compile(r"error: |at \d+\(\d+\): failed to compile JSON schema: ")


class _Vocabulary:
    """Our tokenizer as `TokenizerWrapper` asks for it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.end_ids, default=None)
        self.bos_token_id = tokenizer.bos
        self.tokens = [tokenizer.token_bytes(i, special=True) for i in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted(tokenizer.special_ids)

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", "replace"), start=False)


class _Follower:
    """A Guide: where one sequence stands in its grammar."""

    def __init__(self, matcher: LLMatcher, size: int, field: str) -> None:
        self._matcher, self._size, self._field = matcher, size, field

    @property
    def ended(self) -> bool:
        """Whether nothing can follow: an end token came, or the text is whole and stays so."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def mask(self, row: npt.NDArray[np.float32]) -> None:
        """Tokens that cannot come next become -inf. Raises RequestError beyond the limits."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise RequestError(
                f"{self._field}: following it became too complex: "
                + _sentence(self._matcher.get_error()),
                field=self._field,
            )
        size = min(self._size, row.shape[0])  # a model's matrices may have more rows
        closed = np.unpackbits(~packed, count=size, bitorder="little").view(np.bool_)
        np.copyto(row[:size], -np.inf, where=closed)
        row[size:] = -np.inf

    def accept(self, token: int) -> None:
        """Go on by a token that was allowed. An error is told by the next `mask`."""
        self._matcher.consume_token(token)


def json_rule(schema: Mapping[str, Any], field: str) -> str:
    """A schema as a Lark expression: the JSON texts that it allows. Raises RequestError."""
    check_schema(schema, field)
    try:
        return "%json " + json.dumps({**schema, "x-guidance": _JSON_OPTIONS})
    except (RecursionError, TypeError, ValueError) as error:
        raise RequestError(f"{field}: the schema is no JSON: {error}", field=field) from None


class Grammars:
    """Compiles grammars for one tokenizer. Thread safe; the last `_KEPT` are remembered.

    Each method compiles in the caller's thread and returns what makes a Guide for one sequence.
    `field` is the request's, for errors: a RequestError says what is wrong with the grammar.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._size = tokenizer.vocab_size
        wrapper = TokenizerWrapper(_Vocabulary(tokenizer))
        ends = sorted(tokenizer.end_ids) or None
        self._tokenizer = LLTokenizer(wrapper, eos_token=ends)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def json_schema(
        self, schema: Mapping[str, Any], field: str = "response_format"
    ) -> Callable[[], Guide]:
        """JSON texts that a schema (draft 2020-12) allows, properties in the schema's order."""
        return self._compile(f"start: {json_rule(schema, field)}", field)

    def json_object(self, field: str = "response_format") -> Callable[[], Guide]:
        """Any JSON object."""
        return self.json_schema({"type": "object"}, field)

    def regex(self, text: str, field: str = "regex") -> Callable[[], Guide]:
        """Texts that a regular expression (Rust's syntax, no look-around) matches as a whole."""
        check_regex(text, field)
        return self._compile(f"start: /{regex_to_lark(valid(text))}/", field)

    def lark(self, text: str, field: str = "grammar") -> Callable[[], Guide]:
        """Texts of a grammar in llguidance's variant of Lark."""
        check_lark(text, field)
        return self._compile(valid(text), field)

    def _compile(self, text: str, field: str) -> Callable[[], Guide]:
        with self._lock:
            matcher = self._compiled.get(text)
            if matcher is not None:
                self._compiled.move_to_end(text)
        if matcher is None:
            matcher = self._build(text)
            if matcher is None or matcher.is_error():
                why = "it cannot be compiled" if matcher is None else matcher.get_error()
                raise RequestError(f"{field}: {_sentence(why)}", field=field)
            with self._lock:
                self._compiled[text] = matcher
                while len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
        return lambda: _Follower(matcher.deep_copy(), self._size, field)

    def _build(self, text: str) -> LLMatcher | None:
        """The compiled grammar, its first mask known, or one in error; None when it broke down."""
        built: list[LLMatcher] = []

        def build() -> None:
            try:
                matcher = LLMatcher(self._tokenizer, text + _FREE, log_level=0, limits=_LIMITS)
                matcher.compute_bitmask()
                built.append(matcher)
            except BaseException as error:  # a panic of the library is no Exception
                _log.error("a grammar broke llguidance down: %r", error)

        with self._lock:
            before = threading.stack_size(_STACK)
            try:
                thread = threading.Thread(target=build)
                thread.start()
            finally:
                threading.stack_size(before)
        thread.join()
        return built[0] if built else None


def _sentence(error: str) -> str:
    """What llguidance says, in one line: without its excerpts of the grammar."""
    lines = error.splitlines()
    told = next((line for line in lines if line.startswith("error: ")), "".join(lines[:1]))
    return _LEAD.sub("", told).replace("NoExtensionBias", "no text can match it")[:200]
