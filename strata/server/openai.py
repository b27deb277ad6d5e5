"""What chat and text completions have in common on the wire: chunks, choices and usage.

The role travels with a choice's first chunk, and no `choices` chunk precedes the first
token. A chunk's bytes are put together from pieces encoded once a stream; only the text
is encoded for each token.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import orjson

from strata.server import experts, llama
from strata.server.form import Form
from strata.server.generate import Part, Tally, counts
from strata.server.job import Job, Run
from strata.server.logprobs import TokenNames
from strata.types import ProgressEvent

DONE = b"data: [DONE]\n\n"
_PLAIN_END = b',"logprobs":null,"finish_reason":null}]}\n\n'


class CompletionsForm(Form):
    """Chunks of choices. `kinds` are the names of a chunk and of a whole answer.

    `first` says that nothing of a run has been told before.
    """

    kinds: tuple[str, str]

    def __init__(self, job: Job, names: TokenNames, logprobs: bool) -> None:
        super().__init__(job)
        self.names, self.logprobs = names, logprobs
        options = job.options
        self._usage_last = bool(options.include_usage) or any(run.stats for run in job.runs)
        each = options.continuous_usage_stats or job.timings
        self._plain = not (logprobs or job.token_ids or each)
        self._begun = [False] * len(job.runs)
        self._head = b'data: {"id":%s,"object":%s,"created":%d,"model":%s' % (
            orjson.dumps(job.id),
            orjson.dumps(self.kinds[0]),
            job.created,
            orjson.dumps(job.model),
        )
        self._starts = [b'%s,"choices":[{"index":%d,' % (self._head, r.index) for r in job.runs]

    @abstractmethod
    def news(self, run: Run, part: Part, first: bool) -> list[bytes]:
        """What a part adds to its choice, as JSON members: a chunk each."""

    @abstractmethod
    def nothing(self, first: bool) -> bytes:
        """The member of a chunk that only ends its choice."""

    @abstractmethod
    def content(self, run: Run, whole: Part) -> dict[str, Any]:
        """What a whole answer has in a choice."""

    @abstractmethod
    def told(self, run: Run, part: Part, tally: Tally, first: bool) -> dict[str, Any] | None:
        """A part's log probabilities."""

    def part(self, run: Run, part: Part, tally: Tally) -> bytes:
        """The chunks of one part: its news, then its finish reason in a chunk of its own."""
        start, first = self._starts[run.index], not self._begun[run.index]
        news = self.news(run, part, first)
        self._begun[run.index] |= bool(news)
        if self._plain and part.finish is None:
            return b"".join([start + member + _PLAIN_END for member in news])
        if not news and part.finish is None:
            news = [self.nothing(first)]  # its tokens must be told
        logprobs: dict[str, Any] | None = self.told(run, part, tally, first)
        tokens, usage = part.tokens, self._usage(run, tally)
        timed = usage + (self._timings([tally]) if self.job.timings else b"")
        events = b""
        for member in news:
            events += start + member + self._tail(logprobs, tokens, None, timed)
            logprobs, tokens = None, []
        if part.finish is not None:
            last = timed if self._usage_last else usage + self._timings([tally])
            events += start + self.nothing(first and not news)
            events += self._tail(logprobs, tokens, part.finish, last)
        return events

    def _usage(self, run: Run, tally: Tally) -> bytes:
        """A chunk's usage, where each has one."""
        if not self.job.options.continuous_usage_stats:
            return b""
        return b',"usage":' + orjson.dumps(usage_of([run], [tally]))

    def _timings(self, tallies: Sequence[Tally]) -> bytes:
        """The timings of a job of one run: they tell of one."""
        usage = tallies[0].usage if len(self.job.runs) == 1 else None
        return b',"timings":' + orjson.dumps(llama.timings(usage)) if usage else b""

    def _tail(
        self, logprobs: dict[str, Any] | None, tokens: list[int], finish: str | None, more: bytes
    ) -> bytes:
        tail = b',"logprobs":%s,"finish_reason":%s' % (orjson.dumps(logprobs), orjson.dumps(finish))
        if self.job.token_ids:
            tail += b',"token_ids":' + orjson.dumps(tokens)
        return tail + b"}]" + more + b"}\n\n"

    def progress(self, event: ProgressEvent) -> bytes:
        """A chunk without choices, in llama.cpp's names."""
        told = orjson.dumps(llama.progress(event))
        return b'%s,"choices":[],"prompt_progress":%s}\n\n' % (self._head, told)

    def end(self, tallies: Sequence[Tally]) -> bytes:
        """[DONE], behind the usage alone in a chunk without choices where it is wanted."""
        if not self._usage_last:
            return DONE
        usage = orjson.dumps(usage_of(self.job.runs, tallies))
        more = self._timings(tallies)
        return b'%s,"choices":[],"usage":%s%s}\n\n' % (self._head, usage, more) + DONE

    def choice(self, run: Run, whole: Part, tally: Tally) -> dict[str, Any]:
        """One choice of an answer that is not streamed."""
        choice = {
            "index": run.index,
            **self.content(run, whole),
            "logprobs": self.told(run, whole, tally, True),
            "finish_reason": whole.finish,
        }
        return choice | ({"token_ids": whole.tokens} if self.job.token_ids else {})

    def whole(self, wholes: Sequence[Part], tallies: Sequence[Tally]) -> bytes:
        """All choices, and the usage."""
        outcomes = zip(self.job.runs, wholes, tallies, strict=True)
        body = {
            "id": self.job.id,
            "object": self.kinds[1],
            "created": self.job.created,
            "model": self.job.model,
            "choices": [self.choice(*outcome) for outcome in outcomes],
            "usage": usage_of(self.job.runs, tallies),
        }
        return orjson.dumps(body)[:-1] + self._timings(tallies) + b"}"


def usage_of(runs: Sequence[Run], tallies: Sequence[Tally]) -> dict[str, Any]:
    """The usage object."""
    prompt, cached, completion = counts(runs, tallies)
    thoughts = sum(tally.reasoning for tally in tallies)
    accounts = [t.usage for r, t in zip(runs, tallies, strict=True) if r.stats and t.usage]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        **({"completion_tokens_details": {"reasoning_tokens": thoughts}} if thoughts else {}),
        **({"strata": experts.stats(accounts)} if len(accounts) == len(runs) else {}),
    }
