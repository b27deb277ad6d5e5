"""Injected bugs of the engine, as plain data for `mutants.py`: module, tests, replacements.

A replacement is (what the bug would do, text that occurs once, text in its place).
"""

from __future__ import annotations

Bug = tuple[str, str, str]

TRAFFIC = ("tests/engine/test_core.py", "tests/engine/test_traffic.py")
POLICY = ("tests/engine/test_pace.py", "tests/engine/test_scheduling.py")
CHOICE = ("tests/engine/test_draw.py", "tests/engine/test_sampler.py")

ENGINE: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.engine.core",
        ("tests/engine/test_core.py", POLICY[1], "tests/engine/test_traffic.py"),
        [
            (
                "what a failed step wrote is shared",
                "message, 500, keep=False) for g in grants",
                "message, 500) for g in grants",
            ),
            (
                "a row with broken logits is committed",
                "broken = choice if isinstance(choice, NotFinite) else self._score(row, logits)",
                "broken = None",
            ),
            (
                "the last event is told before the memory is back",
                "        self._leave(sequence, finish, reason, keep=True)\n",
                "        sequence.outlet.put(DoneEvent(sequence.id, finish, sequence.usage(0.0)))\n"
                "        self._leave(sequence, finish, reason, keep=True)\n",
            ),
            (
                "rows get each other's logits",
                "logits = logits[[row.stop - 1 for row in speaking]]",
                "logits = logits[[row.first for row in speaking]]",
            ),
            (
                "a resumed prompt is scored twice",
                "if position == len(scores) and position < sequence.prompt_len",
                "if position < sequence.prompt_len",
            ),
            (
                "copies that the cache asks for are not carried out",
                "self.runner.copy(self.cache.commit(sequence.lease, end, written))",
                "self.cache.commit(sequence.lease, end, written)",
            ),
            (
                "captures are asked for and never handed to the model",
                "captures=tuple(capture for row in rows for capture in row.captures)",
                "captures=()",
            ),
            (
                "reuse is counted again when a row resumes",
                "resumed = sequence.times.admitted is not None",
                "resumed = False",
            ),
            (
                "deadlines of waiting requests are forgotten",
                "if sequence.status is not Status.FINISHED",
                "if sequence.status is Status.RUNNING",
            ),
            (
                "a cancelled request's work is thrown away",
                "self.scheduler.remove(sequence, keep=keep)",
                "self.scheduler.remove(sequence, keep=keep and finish is not Finish.CANCELLED)",
            ),
        ],
    ),
    (
        "strata.engine.scheduler",
        (*POLICY, *TRAFFIC),
        [
            (
                "the oldest is preempted",
                "victim = max(self.running, key=lambda running: running.rank)",
                "victim = min(self.running, key=lambda running: running.rank)",
            ),
            (
                "preemption loses what was computed",
                "                    self._stop(victim, Status.QUEUED)\n"
                "                    self._enqueue(victim)\n",
                "                    self._stop(victim, Status.QUEUED, keep=False)\n"
                "                    self._enqueue(victim)\n",
            ),
            (
                "a preempted row comes back at once, to be preempted again",
                "            if self._shut and self.running:\n",
                "            if False:\n",
            ),
            (
                "rows are admitted without room to grow",
                "return len(held) + wanted <= self._pages",
                "return True",
            ),
            (
                "those behind the head may pass it",
                "                self._shut = True  # nobody passes the head\n"
                "                return",
                "                self.queue.append(self.queue.pop(0))\n                return",
            ),
            (
                "priority does not count",
                "key=lambda waiting: waiting.rank",
                "key=lambda waiting: waiting.order",
            ),
            (
                "a long prompt is read in whole chunks beside decoding rows",
                "budget = settings.mixed_chunk if rows else settings.prefill_chunk",
                "budget = settings.prefill_chunk",
            ),
            (
                "decoding rows have no share",
                "if not prompts or not self.pace.may_read(len(rows))",
                "if not prompts",
            ),
            (
                "a cancelled parked request stays in the cache's list",
                "del self.parked[sequence.id]\n            self._cache.forget(sequence)\n",
                "del self.parked[sequence.id]\n",
            ),
            (
                "the logits of a scored prompt are not bounded",
                "min(s.todo, SCORE_CHUNK) if s.scoring else s.todo",
                "s.todo",
            ),
            (
                "a private copy of a page is not made on admission",
                "                self._copy(verdict.copies)\n",
                "",
            ),
        ],
    ),
    (
        "strata.engine.pace",
        POLICY,
        [
            (
                "the oldest prompt has no part of its own",
                "grants[0] = min(todos[0], -(-budget // _OLDEST_PART))",
                "grants[0] = 0",
            ),
            (
                "the longest prompt goes first",
                "least = min((more for more in rest if more), default=0)",
                "least = max(rest)",
            ),
            (
                "credit is saved up",
                "self._balance = min(0.0, self._balance + self.solo",
                "self._balance = (self._balance + self.solo",
            ),
            (
                "mixed steps are taken for solo ones",
                "        if reading == 0:\n",
                "        if True:\n",
            ),
        ],
    ),
    (
        "strata.engine.plan",
        ("tests/engine/test_plan.py",),
        [
            (
                "shared pages are written",
                "if at >= writable else -1",
                "if at >= 0 else -1",
            ),
            (
                "rows take their page numbers from their neighbour",
                "table[row, :length] = grant.sequence.table()[:length]",
                "table[row - 1, :length] = grant.sequence.table()[:length]",
            ),
            (
                "positions begin at the start of the step",
                "positions += range(grant.start, stop)",
                "positions += range(grant.start + starts[-1], stop + starts[-1])",
            ),
        ],
    ),
    (
        "strata.engine.sequence",
        ("tests/engine/test_plan.py", *TRAFFIC),
        [
            (
                "a resumed row uses the page numbers of its former life",
                '        self._table = array("i")\n\n    def let_go',
                "\n    def let_go",
            ),
            (
                "a scored prompt is taken from the cache",
                "self.cached = request.cached and not scored",
                "self.cached = request.cached",
            ),
            (
                "penalties forget the answer",
                "        self.chooser.saw(token)\n",
                "",
            ),
            (
                "one token more than was asked for",
                "if said >= request.max_tokens",
                "if said > request.max_tokens",
            ),
            (
                "a stop token does not stop",
                "if self.tokens[-1] in request.stop_token_ids or (",
                "if (",
            ),
        ],
    ),
    (
        "strata.engine.sampler",
        CHOICE,
        [
            (
                "the number drawn does not move on",
                "uniform(chooser.seed, said)",
                "uniform(chooser.seed, 0)",
            ),
            (
                "log-probabilities are of the altered logits",
                "logprob(raw, token, sampling.logprobs, self._room)",
                "logprob(row, token, sampling.logprobs, self._room)",
            ),
            (
                "the model's logits are changed in place",
                "            np.copyto(self._altered, row)\n            row = self._altered\n",
                "",
            ),
            (
                "the stop tokens are possible one token too soon",
                "            return said < self.sampling.min_tokens\n",
                "            return said < self.sampling.min_tokens - 1\n",
            ),
            (
                "negative logits are made more likely by a repetition penalty",
                "np.where(old > 0, old / penalty, old * penalty)",
                "old / penalty",
            ),
            (
                "a broken row passes for a choice",
                "            if not isfinite(row[token]):\n",
                "            if False:\n",
            ),
        ],
    ),
    (
        "strata.engine.draw",
        CHOICE,
        [
            (
                "a nucleus stops one token short",
                "            return ids[: found + 1]\n",
                "            return ids[: max(1, found)]\n",
            ),
            (
                "a wide nucleus starts its last bin from nothing",
                "goal - before))\n    return np.concatenate",
                "goal))\n    return np.concatenate",
            ),
            (
                "ties go to the higher id",
                "| ids.astype(np.uint64)\n    keys.sort()",
                "| (np.uint64(0xFFFFFFFF) - ids.astype(np.uint64))\n    keys.sort()\n"
                "    keys ^= np.uint64(0xFFFFFFFF)",
            ),
            (
                "impossible tokens can be drawn",
                'index = int(np.searchsorted(sums, goal, side="right"))',
                "index = int(np.searchsorted(sums, goal))",
            ),
        ],
    ),
    (
        "strata.engine.loop",
        ("tests/engine/test_loop.py", "tests/engine/test_core.py"),
        [
            (
                "the queue has no end",
                "if len(self._alive) >= self._settings.batch + self._settings.max_queue",
                "if len(self._alive) < 0",
            ),
            (
                "whoever waits when the engine stops waits for ever",
                "        self._tell([(outlet, FailedEvent",
                "        ([(outlet, FailedEvent",
            ),
            (
                "ended requests are remembered for ever",
                "                    self._alive.pop(name, None)\n",
                "                    pass\n",
            ),
        ],
    ),
    (
        "strata.engine.client",
        ("tests/engine/test_loop.py",),
        [
            (
                "a client that drops its stream is served on",
                "    def __del__(self) -> None:\n        self.close()",
                "    def __del__(self) -> None:\n        pass",
            ),
            (
                "closing does not cancel",
                "            self._engine.cancel(self._request_id, finish)\n",
                "            pass\n",
            ),
        ],
    ),
]
