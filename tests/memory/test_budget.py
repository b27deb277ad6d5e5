"""Memory plans by hand-made arithmetic, and what their errors advise really works."""

from __future__ import annotations

import re

import pytest

from strata.memory.budget import MemoryPlan, SlotShare, parse_size, plan_memory, show_bytes
from strata.types import ConfigError

MIB, GIB = 2**20, 2**30
SMOL = {
    "weights": 98 * MIB,
    "page_bytes": 368_640,
    "state_bytes": 0,
    "block": 16,
    "cache_bytes": 2 * GIB,
    "context": 8192,
    "batch": 4,
    "memory": 16 * GIB,
}


def plan(**changes: int) -> MemoryPlan:
    return plan_memory(**{**SMOL, **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 * GIB),
        ("1.5gib", 3 * GIB // 2),
        ("500MB", 500_000_000),
        ("500M", 500_000_000),
        ("4096", 4096),
        ("64 KiB", 65536),
        ("25%", 250),
        ("100%", 1000),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text, 1000) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "2 apples", "101%", "nan", "1e9", "25%%"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_size(text, 1000)


def test_all_of_the_cache_becomes_pages() -> None:
    made = plan()
    assert made.pages == 2 * GIB // 368_640 == 5825
    assert made.cache_tokens == 93_200 and made.states == 0
    assert "98.0 MiB" in str(made) and "5825 of 360.0 KiB" in str(made)


def test_states_take_half_but_enough_for_the_batch() -> None:
    made = plan(state_bytes=MIB, cache_bytes=GIB)
    assert made.states == 512 and made.pages == 512 * MIB // 368_640
    assert plan(state_bytes=62 * MIB, cache_bytes=GIB).states == 8
    assert plan(state_bytes=70 * MIB, cache_bytes=GIB).states == 8, "two for each of four rows"
    assert made.cache_bytes <= GIB
    assert "512.0 MiB   512 of 1.0 MiB" in str(made)


def test_states_leave_the_context_its_pages() -> None:
    """A context of 40,000 tokens takes 879 of 1,024 MiB: states have to do with the rest."""
    made = plan(state_bytes=8 * MIB, cache_bytes=GIB, context=40_000)
    assert made.pages >= 2501 and made.states == (GIB - 2501 * 368_640) // (8 * MIB) == 18


def test_a_model_without_pages() -> None:
    made = plan(page_bytes=0, state_bytes=MIB, cache_bytes=64 * MIB)
    assert made.pages == 0 and made.states == 32


@pytest.mark.parametrize("state_bytes", [0, 4 * MIB])
def test_advice_on_a_small_cache_works(state_bytes: int) -> None:
    small = 60 * MIB
    with pytest.raises(ConfigError) as caught:
        plan(cache_bytes=small, state_bytes=state_bytes)
    message = str(caught.value)
    advice = re.search(r"at least (\d+MiB) or --ctx-size to at most (\d+)", message)
    assert advice is not None
    wanted, shorter = advice.groups()
    assert plan(cache_bytes=parse_size(wanted, 0), state_bytes=state_bytes).pages >= 513
    plan(cache_bytes=small, state_bytes=state_bytes, context=int(shorter))
    with pytest.raises(ConfigError):
        plan(cache_bytes=small, state_bytes=state_bytes, context=int(shorter) + 17)


def test_advice_where_states_are_what_does_not_fit() -> None:
    """A context of 8,192 tokens takes 181 MiB; a row's two states 120."""
    sizes = {"state_bytes": 60 * MIB, "cache_bytes": 500 * MIB}
    with pytest.raises(ConfigError) as caught:
        plan(**sizes)
    assert str(caught.value).endswith(
        "beside the 8 states of 60.0 MiB of running rows, but --ctx-size 8192 with --batch 4 needs"
        " more: set --cache-size to at least 661MiB or --ctx-size to at most 880"
        " or --batch to at most 2"
    )
    assert plan(**sizes, batch=2).pages >= 513
    assert plan(**sizes, context=880).states == 8
    assert plan(**{**sizes, "cache_bytes": 661 * MIB}).states == 8
    for wrong in ({"batch": 3}, {"context": 900}, {"cache_bytes": 660 * MIB}):
        with pytest.raises(ConfigError):
            plan(**{**sizes, **wrong})


def test_more_than_the_memory() -> None:
    with pytest.raises(ConfigError, match=r"--cache-size to at most 926MiB"):
        plan(memory=GIB)
    with pytest.raises(ConfigError, match="smaller model"):
        plan(memory=50 * MIB)


def test_experts_lie_in_slots_beside_the_weights() -> None:
    slots = (SlotShare("RAM", 2 * MIB, 300, 3072),)
    made = plan_memory(**SMOL, experts=slots)
    assert "600.0 MiB   RAM: 300 of 3072 in slots of 2.0 MiB" in str(made)
    assert f"{(98 * MIB + 600 * MIB + made.cache_bytes) / GIB:.1f} GiB   of 16.0 GiB" in str(made)
    with pytest.raises(ConfigError, match=r"--cache-size to at most 326MiB"):
        plan_memory(**{**SMOL, "memory": GIB}, experts=slots)
    with pytest.raises(ConfigError, match=r"--expert-ram to at most 102MiB"):
        plan_memory(**{**SMOL, "memory": 400 * MIB, "cache_bytes": 200 * MIB}, experts=slots)


def test_show_bytes() -> None:
    assert [show_bytes(n) for n in (0, 1023, 1024, 1536, 5 * GIB, 3 * 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]
