"""Slots for experts by hand-made arithmetic, and what the errors advise really works."""

from __future__ import annotations

import re

import pytest

from strata.memory.expert_budget import DEVICE, HOST, automatic, reserve, share
from strata.types import ConfigError

MIB, GIB = 2**20, 2**30
RECORDS = [2 * MIB] * 64 + [3 * MIB] * 64  # 320 MiB


def slots(nbytes: int, least: int = 4) -> list[int]:
    made = share(HOST, nbytes, RECORDS, least)
    assert sum(one.total for one in made) <= nbytes
    assert [one.nbytes for one in made] == [2 * MIB, 3 * MIB]
    return [one.slots for one in made]


def test_each_size_gets_its_part() -> None:
    assert slots(160 * MIB) == [32, 32]
    assert slots(GIB) == [64, 64]  # no more than there are
    assert slots(20 * MIB) == [4, 4]
    assert slots(20 * MIB + 30 * MIB, least=4) == [10, 10]  # 30 of the other 300 MiB


@pytest.mark.parametrize(("tier", "flag"), [(HOST, "--expert-ram"), (DEVICE, "--expert-cache")])
def test_too_little_for_a_wave(tier: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} to at least") as caught:
        share(tier, 20 * MIB - 1, RECORDS, 4)
    advised = re.search(r"at least (\d+)MiB \(all experts take 320MiB\)", str(caught.value))
    assert advised
    assert [one.slots for one in share(tier, int(advised[1]) * MIB, RECORDS, 4)] == [4, 4]


def test_auto_holds_all_where_all_fit_beside_the_reserve() -> None:
    assert (
        reserve(GIB) == 256 * MIB and reserve(4 * GIB) == 512 * MIB and reserve(64 * GIB) == 4 * GIB
    )
    others, available = GIB, 4 * GIB
    spare = available - others - 512 * MIB
    assert automatic(spare, others, available) is None
    assert automatic(spare + 1, others, available) == spare
    with pytest.raises(ConfigError, match=r"take 5.0 GiB, 512.0 MiB are in reserve; .*expert-ram"):
        automatic(GIB, 5 * GIB, available)
