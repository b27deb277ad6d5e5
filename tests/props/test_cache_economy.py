"""What is computed is what nobody had computed: economy, while memory suffices.

The oracle knows texts only: how many different prefixes a set of prompts has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sim.world import World

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=24)
BUDGETS = st.sampled_from([1, 2, 3, 5, 8, 16, 64])
STATES = pytest.mark.parametrize("states", [None, 400], ids=["rows", "states"])


def run(
    count: int, phases: list[Phase], **strategies: object
) -> Callable[[Callable[..., None]], None]:
    """Try `count` examples of a property at once."""

    def decorate(body: Callable[..., None]) -> None:
        chosen = settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        )
        chosen(given(**strategies)(body))()  # type: ignore[arg-type]

    return decorate


def ideal(prompts: Sequence[Sequence[int]]) -> range:
    """Each different prefix once, and once more for each prompt that comes when all of it is
    known, since its last token must be computed. Whether a prompt that others go on from is the
    first to reach its own end depends on who runs first.
    """
    prefixes = {tuple(p[: n + 1]) for p in prompts for n in range(len(p))}
    inner = {tuple(p[: n + 1]) for p in prompts for n in range(len(p) - 1)}
    again = len(prompts) - len({tuple(p) for p in prompts})
    passed = len({tuple(p) for p in prompts} & inner)
    return range(len(prefixes) + again, len(prefixes) + again + passed + 1)


def cuts(data: st.DataObject) -> list[list[int]]:
    """Up to eight prompts that begin as one another do."""
    prompts = [data.draw(TOKENS)]
    for _ in range(data.draw(st.integers(0, 7))):
        other = data.draw(st.sampled_from(prompts))
        keep = data.draw(st.integers(0, len(other)))
        prompts.append((other[:keep] + data.draw(TOKENS))[:40])
    return prompts


def test_any_set_of_prompts_in_any_order_is_read_once(
    scale: float, phases: list[Phase], tried: Counter[str]
) -> None:
    """Without states: exactly the different prefixes, whoever arrives when."""

    @run(
        round(120 * scale),
        phases,
        data=st.data(),
        batch=st.integers(1, 8),
        budget=BUDGETS,
        block=st.sampled_from([1, 2, 4, 8]),
    )
    def _(data: st.DataObject, batch: int, budget: int, block: int) -> None:
        world = World(pages=500, block=block, batch=batch)
        prompts = cuts(data)
        for prompt in prompts:
            world.submit(prompt)
            for _ in range(data.draw(st.integers(0, 2))):  # some arrive later
                world.admit()
                world.step(budget)
        world.drain(budget)
        tried["economies"] += 1
        assert not world.scarce
        assert sum(seq.spent for seq in world.all) in ideal(prompts)


@STATES
def test_a_burst_reads_its_common_prefix_once(
    states: int | None, scale: float, phases: list[Phase], tried: Counter[str]
) -> None:
    @run(
        round(50 * scale),
        phases,
        common=st.lists(st.integers(0, 2), min_size=4, max_size=30),
        own=st.lists(st.integers(1, 6), min_size=2, max_size=7),
        batch=st.integers(1, 8),
        budget=BUDGETS,
    )
    def _(common: list[int], own: list[int], batch: int, budget: int) -> None:
        world = World(pages=500, block=4, states=states, batch=batch)
        for index, length in enumerate(own):
            world.submit([*common, 10 + index, *([1] * (length - 1))])
        world.drain(budget)
        tried["economies"] += 1
        assert sum(seq.spent for seq in world.all) == len(common) + sum(own)


@STATES
def test_the_next_turn_computes_only_what_is_new(
    states: int | None, scale: float, phases: list[Phase], tried: Counter[str]
) -> None:
    """A talk of several turns; the stable part of each prompt comes again, the rest may not."""

    @run(
        round(50 * scale),
        phases,
        turns=st.lists(st.tuples(TOKENS, st.integers(0, 5), st.integers(1, 6)), max_size=5),
        first=TOKENS,
        drop=st.booleans(),
        budget=BUDGETS,
    )
    def _(
        turns: list[tuple[list[int], int, int]], first: list[int], drop: bool, budget: int
    ) -> None:
        world = World(pages=500, block=4, states=states, batch=2)
        talk, known = first, 0
        for new, header, out in turns:
            prompt = [*talk, *([7] * header)]
            seq = world.submit(prompt, out, stable_len=len(talk))
            world.drain(budget)
            assert seq.resumes == [min(known, len(prompt) - 1)]
            # The answer, or the talk without its header and answer, and a new message.
            kept = talk if drop else seq.tokens
            known = len(kept) if drop else len(kept) - 1
            talk = [*kept, *[9 + token for token in new]]
            again = world.submit(prompt, 1, stable_len=len(talk) if drop else 0)
            world.drain(budget)
            assert again.spent == 1
            tried["economies"] += 1
