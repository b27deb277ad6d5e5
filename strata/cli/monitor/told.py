"""What a server tells its monitors: the JSON of `GET /v1/monitor`, checked and typed.

What a newer server adds is left out, what one does not know is None. Times in seconds, `time` since
1970, rates in tokens per second, sizes in bytes; `strata.server.monitor.definitions` says what each
figure means. No text in here can move a cursor: characters without a shape are replaced.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field


def clean(text: str) -> str:
    """Fit for a terminal, on one line."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


Words = Annotated[str, AfterValidator(clean)]


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Server(_Told):
    """Who answers, and what it is doing."""

    version: Words
    started: float
    state: Words
    reason: Words | None = None
    model: Words | None = None
    uptime_s: float


class Speed(_Told):
    """Of all requests together, over the last second."""

    read: float | None = None
    decode: float | None = None
    step_ms: float | None = None


class Queue(_Told):
    """How many requests run, and how many wait."""

    running: int = 0
    queued: int = 0
    waiting: int = 0
    batch: int = 0


class Tier(_Told):
    """Memory of one kind."""

    tier: Words
    used: int
    total: int
    reusable: int | None = None


class Ram(_Told):
    """Memory of the machine."""

    used: int
    total: int


class Disk(_Told):
    """Bytes per second."""

    read: float
    write: float


class Gpu(_Told):
    """One GPU; `use` in percent."""

    name: Words
    use: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None


class Machine(_Told):
    """The computer; `cpu` in percent, `process` is the server's resident memory."""

    cpu: float | None = None
    ram: Ram | None = None
    process: int | None = None
    disk: Disk | None = None
    gpus: tuple[Gpu, ...] = ()


class Experts(_Told):
    """Where experts came from, in lookups; `hit_rate` and `bus_share` are parts of 1."""

    tier: Words | None = None
    hit_rate: float | None = None
    bus_share: float | None = None
    lookups: int = 0
    device: int = 0
    bus: int = 0
    host: int = 0
    disk: int = 0


class Totals(_Told):
    """Since the server's start."""

    requests: dict[Words, int] = {}
    prompt: int = 0
    reused: int = 0
    output: int = 0
    saved_s: float | None = None
    experts: Experts | None = None


class Entry(_Told):
    """A request: a row while it lives (`age_s`, `read`), then a record (`number`, `duration_s`)."""

    id: Words
    status: Words
    time: float
    prompt: int
    reused: int
    output: int
    # GET /v1/requests has names of its own for the rates.
    prefill_rate: float | None = Field(
        None, validation_alias=AliasChoices("prefill_rate", "prefill_tokens_per_s")
    )
    decode_rate: float | None = Field(
        None, validation_alias=AliasChoices("decode_rate", "decode_tokens_per_s")
    )
    experts: Experts | None = None
    age_s: float | None = None
    read: int | None = None
    number: int | None = None
    first_token_s: float | None = None
    queue_s: float | None = None
    duration_s: float | None = None
    reason: Words | None = None


class Snapshot(_Told):
    """Everything at one moment; `finished` are those that ended since the one before."""

    time: float
    server: Server
    speed: Speed = Speed()
    queue: Queue = Queue()
    memory: tuple[Tier, ...] = ()
    machine: Machine = Machine()
    totals: Totals = Totals()
    rows: tuple[Entry, ...] = ()
    finished: tuple[Entry, ...] = ()


class Recent(_Told):
    """The answer of `GET /v1/requests`: all finished requests that are still known."""

    data: tuple[Entry, ...]
