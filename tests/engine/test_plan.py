"""Plans against a plain token-by-token construction."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine.plan import build
from strata.engine.scheduler import Grant
from strata.engine.sequence import Sequence
from strata.types import Capture, Request, Sampling


def sequence(name: str, tokens: list[int], start: int, block: int, writable: int, live, scored):
    sampling = Sampling(temperature=0.0, prompt_logprobs=1 if scored else None)
    request = Request(id=name, tokens=tuple(tokens), max_tokens=9, sampling=sampling)
    made = Sequence(request, seed=1, arrived=0.0, outlet=None)  # type: ignore[arg-type]
    pages = [100 * int(name) + i for i in range(-(-len(tokens) // block) + 1)]
    made.hold(
        SimpleNamespace(pages=pages, resume_len=start, writable_from=writable, live=live)  # type: ignore[arg-type]
    )
    return made


@st.composite
def steps(draw):
    block = draw(st.sampled_from([1, 4, 16]))
    grants = []
    for name in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 60))
        start = draw(st.integers(0, length - 1))
        count = draw(st.integers(1, length - start))
        tokens = draw(st.lists(st.integers(0, 999), min_size=length, max_size=length))
        writable = block * draw(st.integers(0, length // block))
        live = draw(st.sampled_from([None, 3]))
        made = sequence(str(name), tokens, start, block, writable, live, draw(st.booleans()))
        grants.append(Grant(made, start, count))
    return block, grants


@settings(max_examples=200, deadline=None)
@given(steps())
def test_a_plan_is_what_it_says(step) -> None:
    block, grants = step
    capture = Capture(row=0, offset=1, position=1, slot=5)
    plan = build(grants, step=7, block=block, captures=(capture,))
    assert plan.step == 7 and plan.block == block and plan.captures == (capture,)
    tokens, positions, slots, sample, starts = [], [], [], [], [0]
    for row, grant in enumerate(grants):
        own, lease = grant.sequence, grant.sequence.lease
        for position in range(grant.start, grant.start + grant.count):
            last = position + 1 == len(own.tokens)
            if last or (own.request.sampling.prompt_logprobs is not None and own.scoring):
                sample.append(len(tokens))
            tokens.append(own.tokens[position])
            positions.append(position)
            page = lease.pages[position // block]
            shared = position < lease.writable_from
            slots.append(-1 if shared else page * block + position % block)
        starts.append(len(tokens))
        needed = -(-(grant.start + grant.count) // block)
        assert plan.page_table[row, :needed].tolist() == lease.pages[:needed]
        assert (plan.page_table[row, needed:] == -1).all()
        assert plan.state_slots[row] == (-1 if lease.live is None else lease.live)
    assert plan.tokens.tolist() == tokens
    assert plan.positions.tolist() == positions
    assert plan.write_slots.tolist() == slots
    assert plan.row_starts.tolist() == starts
    assert plan.sample.tolist() == sample
    for array in (
        plan.tokens,
        plan.positions,
        plan.write_slots,
        plan.row_starts,
        plan.sample,
        plan.page_table,
        plan.state_slots,
    ):
        assert array.dtype == np.int32 and array.flags.c_contiguous


def test_the_page_table_follows_a_growing_lease() -> None:
    made = sequence("1", list(range(30)), 0, 4, 0, None, False)
    lease = made.lease
    for page in range(500, 600):
        lease.pages.append(page)
        assert made.table().tolist() == lease.pages
    made.hold(SimpleNamespace(pages=[7, 8], resume_len=3, writable_from=0, live=None))  # type: ignore[arg-type]
    assert made.table().tolist() == [7, 8] and made.computed_len == 3


def test_answers_grow_beside_the_prompt() -> None:
    made = sequence("1", [5, 6], 0, 4, 0, None, False)
    for token in range(300):
        made.append(token)
    assert made.tokens == [5, 6, *range(300)]
    assert (made.prompt_len, made.output_len, made.todo) == (2, 300, 302)
