"""The cache as a hypothesis state machine: the same world, histories that shrink."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sim.memory import VOCAB
from sim.world import Seq, World

TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6)
BLOCK = 4
LONGEST = 40


class Machine(RuleBasedStateMachine):
    """Rules are the engine's operations; `states` draws the slots of the model."""

    states: st.SearchStrategy[int | None]
    tried: Counter[str]

    @initialize(data=st.data(), extra=st.integers(0, 12), batch=st.integers(1, 4))
    def begin(self, data: st.DataObject, extra: int, batch: int) -> None:
        states = data.draw(self.states)
        self.world = World(LONGEST // BLOCK + extra, BLOCK, states, batch)
        self.tried["machines"] += 1

    @rule(
        tokens=TOKENS,
        based=st.one_of(st.none(), st.integers(0, 50)),
        cut=st.integers(0, 30),
        out=st.integers(1, 6),
        times=st.integers(1, 3),
        stable=st.integers(0, 20),
        space=st.sampled_from(["", "", "x"]),
        priority=st.sampled_from([0, 0, 1]),
        cached=st.sampled_from([True, True, True, False]),
    )
    def submit(
        self,
        tokens: list[int],
        based: int | None,
        cut: int,
        out: int,
        times: int,
        stable: int,
        space: str,
        priority: int,
        cached: bool,
    ) -> None:
        world = self.world
        if based is not None and world.all:
            tokens = world.all[based % len(world.all)].tokens[:cut] + tokens
        tokens = tokens[: LONGEST - out]
        for _ in range(times):
            world.submit(
                tokens,
                out,
                namespace=space,
                priority=priority,
                cached=cached,
                stable_len=min(stable, len(tokens)),
                anchors=(min(cut, len(tokens)),),
            )

    @rule(budget=st.sampled_from([1, 2, 3, 5, 8, 40]), lose=st.lists(st.booleans(), max_size=4))
    def step(self, budget: int, lose: list[bool]) -> None:
        self.world.admit()
        self.world.step(budget, lambda: lose.pop() if lose else False)

    def pick(self, index: int, among: list[Seq]) -> Seq:
        return among[index % len(among)]

    @precondition(lambda self: self.world.live())
    @rule(index=st.integers(0, 20))
    def abort(self, index: int) -> None:
        self.world.abort(self.pick(index, self.world.live()))

    @precondition(lambda self: self.world.running)
    @rule(index=st.integers(0, 20))
    def preempt(self, index: int) -> None:
        self.world.preempt(self.pick(index, self.world.running))

    @precondition(lambda self: self.world.running)
    @rule(budget=st.sampled_from([1, 5, 40]), retry=st.booleans())
    def fail(self, budget: int, retry: bool) -> None:
        self.world.fail(budget, retry)

    @rule()
    def clear(self) -> None:
        self.world.clear()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain(8)
            self.tried["checks"] += self.world.checks
            self.tried["requests"] += len(self.world.all)


@pytest.mark.parametrize("kind", ["rows", "states"])
def test_machine(kind: str, scale: float, phases: list[Phase], tried: Counter[str]) -> None:
    class Kind(Machine):
        states = st.none() if kind == "rows" else st.integers(1, 6)

    Kind.tried = tried
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Kind,
        settings=settings(
            max_examples=round(60 * scale),
            stateful_step_count=30,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
