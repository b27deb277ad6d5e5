"""Plain data that crosses layers: requests, events, plans, facts and errors.

Knows no torch, no text and no JSON. Everything here is frozen; whoever needs
to change something owns a type of its own (a `Sequence` in the engine, a
`Lease` in the cache).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from strata.figures import ExpertUse

IntArray = npt.NDArray[np.int32]


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from one row of logits.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0, penalties 0 and
    `repetition_penalty` 1 mean off. `logprobs` None returns none; n returns the
    chosen token's and the n most likely ones'. `seed` None draws a fresh one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    min_tokens: int = 0


class Guide(Protocol):
    """What a grammar allows next in one sequence, which owns it. Begins after any reasoning."""

    @property
    def ended(self) -> bool:
        """Whether nothing can follow: the answer is whole."""

    def mask(self, row: npt.NDArray[np.float32]) -> None:
        """Make the logits (float32 [vocab]) of tokens that cannot come next -inf, in place.

        Changes nothing else. When the text may end, end tokens are among those that can come.
        Raises RequestError when what it follows grew too complex.
        """

    def accept(self, token: int) -> None:
        """Go on by a token that could come."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How an answer reasons before it speaks.

    Reasoning is `open` at the start or opened by the token `opens`, and ends with the tokens
    `close`. After `budget` tokens of it those are forced, one by one; None is no bound.
    """

    close: tuple[int, ...]
    open: bool
    budget: int | None = None
    opens: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate. Made once, at the edge, and never changed.

    `anchors` are prompt positions worth remembering on models that keep a state
    per sequence; `stable_len` is how much of the prompt the next turn repeats.
    `namespace` says whose cached prefixes may be shared; `cached` False neither
    looks up nor inserts. `deadline` is in seconds of `time.monotonic()`.
    `stop_token_ids` end the answer (the token is reported, not its text);
    `ignore_eos` is expressed by leaving the end tokens out of that set. `guide` makes the
    sequence's own Guide. `guard` ends an answer that repeats itself without end. `progress`: tell
    how far the prompt is read, step by step; `timed`: each token comes with the usage so far.
    `trace` names the trace that it is part of, for whoever reads its record.
    """

    id: str
    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stop_token_ids: frozenset[int] = frozenset()
    anchors: tuple[int, ...] = ()
    stable_len: int = 0
    namespace: str = ""
    cached: bool = True
    priority: int = 0
    deadline: float | None = None
    guide: Callable[[], Guide] | None = None
    thinking: Thinking | None = None
    guard: bool = True
    progress: bool = False
    timed: bool = False
    trace: str | None = None


# ------------------------------------------------------------------ events


class Finish(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    REPETITION = "repetition"  # it went round in a circle
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural-log probability of one token and of the most likely ones there."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request cost, measured. Times in seconds, counts in tokens; `experts` None where
    no store has them.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    first_token_s: float | None
    experts: ExpertUse | None = None


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A step read more of the prompt: `read` of its `total` tokens are there, of which `cached`
    were before; `seconds` since it began to run.
    """

    request_id: str
    total: int
    cached: int
    read: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token. `cached_tokens` is what the prompt reused.

    `prompt_logprobs` comes with the first token when it was asked for: one
    entry per prompt token, None for the first. `usage` is there when the request is timed.
    """

    request_id: str
    token: int
    index: int
    cached_tokens: int
    logprob: Logprob | None = None
    prompt_logprobs: tuple[Logprob | None, ...] | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The sequence ended; no further event follows."""

    request_id: str
    finish: Finish
    usage: Usage
    prompt_logprobs: tuple[Logprob | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """The sequence ended by an error of the server's; no further event follows."""

    request_id: str
    message: str
    status: int = 500


Event = ProgressEvent | TokenEvent | DoneEvent | FailedEvent


@dataclass(frozen=True, slots=True)
class RowState:
    """A request that runs: `read` tokens of its prompt are there, of which `cached` were
    before, and `output` of its answer.
    """

    request: Request
    cached: int
    read: int
    output: int


# -------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the first `rows` token rows of page `src` into page `dst`."""

    src: int
    dst: int
    rows: int


@dataclass(frozen=True, slots=True)
class StateCopy:
    """Copy state slot `src` into `dst`; `src` None means zeros."""

    src: int | None
    dst: int


Copy = PageCopy | StateCopy


@dataclass(frozen=True, slots=True)
class Capture:
    """Copy the state of row `row` after its first `offset` tokens of this step into `slot`.

    `position` is the same place counted from the start of the sequence.
    """

    row: int
    offset: int
    position: int
    slot: int


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """One step, as flat arrays on the host. n tokens in r rows, m of them sampled.

    tokens, positions   int32 [n]
    row_starts          int32 [r + 1]   row i is tokens[row_starts[i]:row_starts[i + 1]]
    page_table          int32 [r, p]    page of each block of each row, -1 beyond its end
    write_slots         int32 [n]       page * block + offset where the token's keys go, or -1
    state_slots         int32 [r]       live state slot of each row, or -1
    sample              int32 [m]       indices into tokens whose logits are wanted
    captures            state copies to take inside the step
    """

    step: int
    block: int
    tokens: IntArray
    positions: IntArray
    row_starts: IntArray
    page_table: IntArray
    write_slots: IntArray
    state_slots: IntArray
    sample: IntArray
    captures: tuple[Capture, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryField:
    """An array that a layer keeps: per page (`shape` holds one block) or per sequence."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # "float32", "float16", "bfloat16", "int32", "uint8"


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one layer remembers: fields of a page and fields of a sequence's state."""

    page: tuple[MemoryField, ...] = ()
    state: tuple[MemoryField, ...] = ()


class Backend(StrEnum):
    """Which implementation of the kernels runs."""

    AUTO = "auto"
    NATIVE = "native"
    REFERENCE = "reference"


# ------------------------------------------------------------------ errors


class StrataError(Exception):
    """Anything that a user can cause or mend. The message says what to do."""


class ModelError(StrataError):
    """A model file cannot be loaded: missing, damaged or not supported."""


class ConfigError(StrataError):
    """A setting has no meaning or does not fit the machine."""


class StorageError(StrataError):
    """A file of ours on a disk cannot be written, or read as it was written."""


class RequestError(StrataError):
    """A request is refused. `status` is the HTTP status that fits; `field` the culprit."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.field = field
        self.retry_after = retry_after


# Told of a long step: what it is, how much is done, and of how much; None when unknown.
ProgressSink = Callable[[str, int, int | None], None]


def silent(what: str, done: int, total: int | None) -> None:
    """A ProgressSink that shows nothing."""
