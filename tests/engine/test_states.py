"""A model that keeps a state per sequence behind the whole engine: what is reused, to the token.

The scripted model checks that each state it is given is that of exactly the prefix before it, and
the answers are compared with a function of the prompt alone. The numbers of reused tokens are
worked out by hand from where the design takes checkpoints: stable end, anchors, branch point,
the last token but one of a prompt, and where a sequence ended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scripted import Bench, ScriptedModel
from sim.invariants import nodes_of

from strata.figures import Freed
from strata.types import Capture, Request

BLOCK = 16
HEADER = [7, 8]  # begins an answer, and is repeated by the next turn
THINK = [9, 10]  # what some templates write after it, and the next turn does not repeat
END = 5


def words(seed: int, length: int) -> list[int]:
    """Words of a message; none of them has a meaning."""
    return np.random.default_rng(seed).integers(11, 61, length).tolist()


def bench(states: int = 40, pages: int = 400, **settings: int) -> Bench:
    settings = {"prefill_chunk": 64, **settings}
    model = ScriptedModel(recurrent=True)
    return Bench(model, pages=pages, states=states, block=BLOCK, **settings)


def chat(
    b: Bench, history: list[int], header: list[int] = HEADER, count: int = 20, **fields: object
) -> Request:
    """Ask for the answer to a chat, as the server does."""
    return b.ask([*history, *header], count, stable_len=len(history), **fields)


def reused(b: Bench, request: Request) -> int:
    """Tokens that its prompt reused; its answer must be right."""
    b.drain()
    assert b.tokens(request) == [e.token for e in b.model.answer(request)]
    end = b.end(request)
    assert end is not None
    return end.usage.cached_tokens


def follow(b: Bench, request: Request, seed: int, length: int) -> list[int]:
    """The history of the next turn: all of this one, its answer, and another message."""
    return [*request.tokens, *b.tokens(request), END, *words(seed, length)]


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("chunk", [7, 64, 512])
@pytest.mark.parametrize("length", [3, 16, 41])
def test_an_append_only_chat_reads_only_what_is_new(chunk: int, length: int) -> None:
    b = bench(prefill_chunk=chunk)
    request = chat(b, words(0, 100))
    assert reused(b, request) == 0
    seen = []
    for turn in range(6):
        known = len(request.tokens) + len(b.tokens(request)) - 1  # its last token was not read
        request = chat(b, follow(b, request, turn, length))
        assert reused(b, request) == known
        seen.append(known)
    assert seen == sorted(set(seen)), "reuse grows with every turn"


def test_an_edited_last_message_reuses_all_before_it() -> None:
    b = bench()
    first = chat(b, words(0, 100))
    reused(b, first)
    before = [*first.tokens, *b.tokens(first)]
    second = chat(b, [*before, END, *words(1, 50)])
    assert reused(b, second) == len(before) - 1
    edited = chat(b, [*before, END, *words(2, 50)])
    assert reused(b, edited) == len(before) - 1


def test_a_late_edit_in_a_long_message_is_the_second_one_s_gain() -> None:
    """The first edit proves that the message's beginning is shared, and leaves a state there."""
    b = bench()
    long = words(0, 300)
    assert reused(b, chat(b, long)) == 0
    assert reused(b, chat(b, [*long[:250], *words(1, 50)])) == 0
    assert reused(b, chat(b, [*long[:250], *words(2, 50)])) == 250
    assert reused(b, chat(b, [*long[:250], *words(3, 50)])) == 250


def test_dropped_thinking_costs_only_the_answer() -> None:
    """The next turn shows the answer without what was thought: the stable end is reused."""
    b = bench()
    history, known = words(0, 103), 0
    for turn in range(4):
        request = chat(b, history, [*HEADER, *THINK])
        assert reused(b, request) == known
        known = len(history)
        spoken = b.tokens(request)[-5:]  # all but the thinking
        history = [*history, *HEADER, *spoken, END, *words(10 + turn, 37)]


def test_where_thinking_begins_with_one_token_the_header_is_reused_as_well() -> None:
    b = bench()
    history = words(0, 103)
    first = chat(b, history, [*HEADER, THINK[0]])
    reused(b, first)
    following = chat(b, [*history, *HEADER, *b.tokens(first)[-5:], END, *words(1, 30)])
    assert reused(b, following) == len(history) + len(HEADER)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 64, 65, 200])
def test_an_identical_prompt_computes_one_token(length: int) -> None:
    b = bench()
    asked = [b.ask(words(0, length), 9) for _ in range(1)]
    assert reused(b, asked[0]) == 0
    for _ in range(3):
        assert reused(b, b.ask(words(0, length), 9)) == length - 1


@pytest.mark.parametrize("system", [5, 16, 77, 160])
def test_users_share_a_system_prompt_from_the_second_one_on(system: int) -> None:
    b = bench()
    common = words(0, system)
    for user in range(4):
        request = chat(b, [*common, *words(1 + user, 30)], anchors=(system,))
        assert reused(b, request) == (system if user else 0)


@pytest.mark.parametrize("states", [8, 40])
def test_side_calls_do_not_cost_a_long_chat_its_prefix(states: int) -> None:
    """Titles, summaries: short calls of their own, and one that reads the whole chat."""
    b = bench(states=states, batch=2)
    request = chat(b, words(0, 900))
    reused(b, request)
    for turn in range(3):
        known = len(request.tokens) + len(b.tokens(request)) - 1
        history = follow(b, request, 20 + turn, 30)
        for call in range(4):
            title = [3, *words(100 + 10 * turn + call, 40)]
            assert reused(b, chat(b, title, count=6)) == 0
        # Four checkpoints in all: a title is worth more than the last twenty tokens, and no more.
        least = known if states > 8 else request.stable_len
        summary = chat(b, [*request.tokens, *b.tokens(request), END, 4, 4, 4], count=12)
        assert least <= reused(b, summary) <= known
        request = chat(b, history)
        assert least <= reused(b, request) <= known


def test_a_context_takes_the_slot_of_a_rolling_checkpoint() -> None:
    """Three states: two rows', and the one that the first row rolls on while it answers."""
    b = bench(states=3, batch=2)
    chat(b, [1, *words(1, 30)], count=200)
    for _ in range(60):
        b.turn()
    context = [2, *words(2, 300)]
    chat(b, context, count=1)
    for _ in range(40):
        b.turn()
    again = chat(b, [*context, *words(3, 40)], count=1)
    assert reused(b, again) == 301


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("more", [0, 1, 4])
def test_the_least_memory_keeps_a_full_batch_s_contexts(rows: int, more: int) -> None:
    """Two states a row are what the memory plan gives at least: each client finds its own again."""
    b = bench(states=2 * rows + more, pages=rows * 80, batch=rows)
    contexts = [[i, *words(i, 300)] for i in range(rows)]
    for context in contexts:
        chat(b, context, count=40)
    b.drain()
    asked = [chat(b, [*context, *words(50, 60)], count=40) for context in contexts]
    b.drain()
    assert [reused(b, request) for request in asked] == [301] * rows


# ---------------------------------------------------------------- at the same time


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("parting", [180, 192, 199])
def test_a_prefix_that_is_being_read_is_read_once(count: int, parting: int) -> None:
    b = bench(batch=count, prefill_chunk=32)
    common = words(0, parting)
    asked = [b.ask([*common, *words(1, 30)], 3)]
    b.turn()
    b.turn()
    asked += [b.ask([*common, i, *words(2 + i, 30)], 3) for i in range(1, count)]
    b.drain()
    assert [reused(b, r) for r in asked] == [0] + [parting] * (count - 1)
    whole = sum(len(r.tokens) for r in asked)
    answers = count * 2  # the last token of an answer is never computed
    assert b.model.computed == whole - parting * (count - 1) + answers


def test_one_prompt_asked_for_by_many_at_once_is_read_once() -> None:
    b = bench(batch=4)
    asked = [b.ask(words(0, 300), 5) for _ in range(6)]
    b.drain()
    assert [reused(b, r) for r in asked] == [0] + [299] * 5
    assert len({tuple(b.tokens(r)) for r in asked}) == 1


@pytest.mark.parametrize("chunk", [30, 64])
@pytest.mark.parametrize("steps", [1, 3])
def test_what_a_cancelled_reader_had_read_is_reused(chunk: int, steps: int) -> None:
    b = bench(prefill_chunk=chunk)
    victim = b.ask(words(0, 300), 5)
    for _ in range(steps):
        b.turn()
    b.engine.cancel(victim.id)
    b.turn()
    assert reused(b, b.ask(words(0, 300), 5)) == chunk * steps


def test_who_waited_for_a_cancelled_reader_goes_on_from_there() -> None:
    b = bench(prefill_chunk=50, batch=4)
    victim = b.ask(words(0, 300), 5)
    b.turn()
    others = [b.ask([*words(0, 300), i], 5) for i in range(2)]
    b.turn()
    assert {r.id for r in others} <= set(b.core.scheduler.parked)
    b.engine.cancel(victim.id)
    b.drain()
    assert [reused(b, r) for r in others] == [100, 300]


# ---------------------------------------------------------------- captures that are not written


def scene(lose: Callable[[Capture], bool]) -> tuple[Bench, list[Request]]:
    """Readers of one prefix, some of which wait for the first, while captures are lost."""
    b = bench(batch=4, prefill_chunk=32)
    b.model.lose = lose
    common = words(0, 150)
    asked = [chat(b, [*common, *words(1, 40)], anchors=(70, 150), count=40)]
    b.turn()
    asked += [chat(b, [*common, i, *words(2 + i, 20)], anchors=(70, 150)) for i in range(1, 5)]
    b.drain()
    return b, asked


def kept(b: Bench) -> set[int]:
    """Where checkpoints are."""
    return {node.end for node in nodes_of(b.core.cache._trie) if node.checkpoint}


def test_a_capture_that_the_model_did_not_write_is_not_used() -> None:
    """Its slot is free again, who waited for it goes on without, and every answer is right."""
    whole, asked = scene(lambda capture: False)
    assert {70, 150} <= kept(whole)
    assert [reused(whole, r) for r in asked] == [0, 150, 150, 150, 150]
    short, asked = scene(lambda capture: capture.position == 150)
    assert short.model.wrong == [] and 70 in kept(short) and 150 not in kept(short)
    assert [reused(short, r) for r in asked] == [0, 70, 70, 70, 70]
    none, asked = scene(lambda capture: True)
    assert reused(none, asked[0]) == 0
    ends = {len(r.tokens) + len(none.tokens(r)) - 1 for r in asked}
    assert kept(none) <= ends, "only what a live state was donated for"
    for b in (whole, short, none):
        stats = b.core.cache.stats()
        assert stats.states_free + stats.states_cached == stats.states_total
        assert not b.core.scheduler.parked


def test_answers_are_right_whatever_is_lost() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        b, asked = scene(lambda capture, rng=rng: rng.random() < 0.5)
        for request in [*asked, chat(b, [*asked[0].tokens, *b.tokens(asked[0]), 3, 4])]:
            reused(b, request)


# ---------------------------------------------------------------- emptying


def test_clearing_drops_all_but_what_runs_and_says_how_much() -> None:
    b = bench(batch=2)
    done = chat(b, words(0, 200), anchors=(48,))  # on a page that the other one uses
    reused(b, done)
    running = chat(b, [*words(0, 200), *words(1, 100)], count=60)
    for _ in range(8):
        b.turn()
    before = b.core.cache.stats()
    assert before.running == 1 and before.states_cached > 3
    asked = b.engine.clear_cache()
    b.turn()
    freed, now = asked.result(0), b.core.cache.stats()
    assert isinstance(freed, Freed) and freed.states == before.states_cached
    assert freed.pages >= 1
    assert freed.bytes == freed.pages * now.page_bytes + freed.states * now.state_bytes
    reused(b, running)
    everything = b.engine.clear_cache()
    b.turn()
    assert everything.result(0).pages > 0
    stats = b.core.cache.stats()
    assert (stats.pages_free, stats.states_free) == (stats.pages_total, stats.states_total)
    assert reused(b, chat(b, words(0, 200))) == 0
