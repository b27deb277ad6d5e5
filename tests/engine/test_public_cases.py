"""Kinds of faults that other servers have had, where no other test shows their absence.

`docs/public-cases.md` lists all of them with their tests. The model here answers with the marker
that it finds among the rows that it attends to: another chat's rows would be heard at once.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from scripted import Bench, ScriptedModel

from strata.kernels import StepResult
from strata.types import DoneEvent, Finish, ForwardPlan, Request

MARKERS = 100  # tokens from here on are markers


class Parrot(ScriptedModel):
    """Says the last marker of its row, read from the pages, and nothing else."""

    def __init__(self) -> None:
        super().__init__(vocab=200, recurrent=True)

    def forward(self, plan: ForwardPlan) -> StepResult:
        made = super().forward(plan)
        logits = torch.zeros((len(plan.sample), self.vocab_size))
        for line, index in enumerate(plan.sample.tolist()):
            row = int(np.searchsorted(plan.row_starts, index, side="right")) - 1
            places = np.arange(int(plan.positions[index]) + 1)
            pages = plan.page_table[row][places // plan.block]
            seen = self._rows[pages, places % plan.block, 1].astype(np.int64)
            found = seen[seen >= MARKERS]
            logits[line, int(found[-1]) if len(found) else 0] = 9.0
        return StepResult(logits, made.captured)


def bench(model: ScriptedModel | None = None, **sizes: int) -> Bench:
    sizes = {"pages": 300, "states": 40, "block": 16, "prefill_chunk": 64, **sizes}
    return Bench(model or ScriptedModel(recurrent=True), **sizes)


def words(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 61, length).tolist()


def finished(b: Bench, request: Request) -> bool:
    return isinstance(b.end(request), DoneEvent)


@pytest.mark.parametrize(
    "sizes", [{"states": 300}, {"pages": 50, "states": 16, "batch": 3}], ids=["wide", "tight"]
)
def test_no_chat_ever_hears_another_s_codeword(sizes: dict[str, int]) -> None:
    """Twelve chats of several turns each, all at once, while the tight cache evicts."""
    b = bench(Parrot(), **{"batch": 8, **sizes})
    r = random.Random(1)
    chats = {i: [1, 2, 3, MARKERS + i, *words(i, r.randrange(5, 60))] for i in range(12)}
    turns, asked = dict.fromkeys(chats, 0), {}
    while min(turns.values()) < 4 or asked:
        for i, history in chats.items():
            if i not in asked and turns[i] < 4 and r.random() < 0.4:
                asked[i] = b.ask(history, 3, stable_len=len(history), anchors=(4,))
        b.turn()
        for i, request in list(asked.items()):
            if finished(b, request):
                assert b.tokens(request) == [MARKERS + i] * 3
                chats[i] = [*request.tokens, *b.tokens(request), *words(100 + i, 9)]
                turns[i] += 1
                del asked[i]
    stats = b.core.cache.stats()
    if "pages" in sizes:
        assert stats.hits and stats.evicted_states and stats.evicted_pages
    else:
        assert stats.hits == 12 * 3, "every turn but the first"


def test_a_thousand_requests_leave_every_slot_where_it_was() -> None:
    b = bench(pages=60, states=9, batch=4)
    r = random.Random(2)
    stems = [words(i, 60) for i in range(5)]
    asked: list[Request] = []
    for i in range(1000):
        stem = r.choice(stems)
        prompt = [*stem[: r.randrange(1, 60)], *words(i, r.randrange(1, 9))]
        asked.append(b.ask(prompt, r.randrange(4), stable_len=len(prompt) - 1))
        if r.random() < 0.2:
            b.engine.cancel(r.choice(asked[-8:]).id)
        while len(b.engine._alive) > 6:
            b.engine.turn()
        if i % 100 == 0:
            b.check()
    b.drain()
    assert all(b.end(request) is not None for request in asked)
    stats = b.core.cache.stats()
    assert stats.pages_free + stats.pages_cached == 60
    assert stats.states_free + stats.states_cached == 9
    b.core.cache.clear()
    stats = b.core.cache.stats()
    assert (stats.pages_free, stats.states_free) == (60, 9)


@pytest.mark.parametrize("company", [0, 2])
def test_a_request_can_be_ended_after_any_step(company: int) -> None:
    """From before its first step to after its last; what is left is free or cached."""
    for steps in range(16):
        b = bench(batch=3, prefill_chunk=16, mixed_chunk=16)
        others = [b.ask([*words(0, 50), *words(9 + i, 20)], 5) for i in range(company)]
        victim = b.ask([*words(0, 50), *words(1, 30)], 6, stable_len=70, anchors=(33,))
        for _ in range(steps):
            b.turn()
        b.engine.cancel(victim.id)
        b.drain()
        end = b.end(victim)
        assert isinstance(end, DoneEvent) and end.finish in (Finish.CANCELLED, Finish.LENGTH)
        for request in others:
            assert b.tokens(request) == [e.token for e in b.model.answer(request)]
        stats = b.core.cache.stats()
        assert stats.pages_free + stats.pages_cached == stats.pages_total
        assert stats.states_free + stats.states_cached == stats.states_total


def test_reuse_does_not_depend_on_the_load() -> None:
    """Eight chats of four turns, one after another and all together: the same tokens reused."""

    def reuse(batch: int, together: bool) -> list[list[int]]:
        b = bench(batch=batch, pages=600, states=200)
        chats = [[i, *words(i, 40 + i)] for i in range(8)]
        seen: list[list[int]] = [[] for _ in chats]
        for turn in range(4):
            asked = []
            for history in chats:
                asked.append(b.ask(history, 5, stable_len=len(history) - 2))
                if not together:
                    b.drain()
            b.drain()
            for i, request in enumerate(asked):
                end = b.end(request)
                assert isinstance(end, DoneEvent)
                seen[i].append(end.usage.cached_tokens)
                chats[i] = [*request.tokens, *b.tokens(request), *words(50 + turn, 11)]
        return seen

    alone = reuse(1, together=False)
    assert all(turn > 0 for chat in alone for turn in chat[1:])
    assert reuse(2, together=True) == alone
    assert reuse(8, together=True) == alone


def test_many_on_one_prefix_with_little_room_to_grow_all_finish() -> None:
    b = bench(batch=32, pages=24, states=70)
    common = words(0, 200)  # half of the pages
    asked = [b.ask([*common, i, *words(i, 10)], 40) for i in range(32)]
    b.drain()
    for request in asked:
        assert b.tokens(request) == [e.token for e in b.model.answer(request)]


@pytest.mark.parametrize("rows, least", [(3, 0.6), (4, 0.85)])
def test_answers_are_right_when_nearly_all_memory_is_in_use(rows: int, least: float) -> None:
    b = bench(batch=rows, pages=30, states=2 * rows + 1)
    asked = [b.ask(words(i, 70), 50) for i in range(12)]
    used = 0.0
    while not all(finished(b, request) for request in asked):
        b.turn()
        held = {p for s in b.core.scheduler.running if s.lease for p in s.lease.pages}
        used = max(used, len(held) / 30)
    assert used >= least
    for request in asked:
        assert b.tokens(request) == [e.token for e in b.model.answer(request)]


def test_a_shared_prefix_is_stored_once() -> None:
    b = bench()
    for user in range(6):
        b.ask([*words(0, 160), user, *words(1 + user, 15)], 1, anchors=(160,))
        b.drain()
    stats = b.core.cache.stats()
    assert stats.pages_cached == 10 + 6 * 2  # of each user, the last block and the state within it
    assert stats.pages_cached + stats.pages_free == 300


def test_as_many_rows_run_as_were_asked_for() -> None:
    b = bench(batch=6, states=30)
    for i in range(8):
        b.ask(words(i, 20), 30)
    for _ in range(12):
        b.turn()
    assert len(b.core.scheduler.running) == 6
    b.drain()


def test_the_first_repeat_hits() -> None:
    b = bench()
    reused = []
    for _ in range(3):
        request = b.ask(words(0, 130), 3)
        b.drain()
        end = b.end(request)
        assert isinstance(end, DoneEvent)
        reused.append(end.usage.cached_tokens)
    assert reused == [0, 129, 129]


def test_what_is_told_as_reused_was_not_computed() -> None:
    b = bench(batch=3)
    r = random.Random(4)
    asked = []
    for i in range(40):
        stem = words(r.randrange(4), 150)
        asked.append(b.ask([*stem[: r.randrange(1, 150)], i], 2))
        b.turn()
    b.drain()
    told = sum(b.end(request).usage.cached_tokens for request in asked)
    prompts = sum(len(request.tokens) for request in asked)
    assert b.core.scheduler.preemptions == 0 and told > 0
    assert b.model.computed == prompts - told + len(asked)  # and one token of each answer
