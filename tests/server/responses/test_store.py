"""The memory's bounds, against a model of it that is written down plainly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.server.responses.store import BYTES, ENTRIES, Kept, Store

NAMES = st.sampled_from("abcdefgh")
STEP = st.one_of(
    st.tuples(st.just("keep"), st.sampled_from("xy"), NAMES, st.sampled_from([2, 5, 30])),
    st.tuples(st.just("find"), st.sampled_from("xy"), NAMES, st.just(0)),
    st.tuples(st.just("drop"), st.sampled_from("xy"), NAMES, st.just(0)),
)


@given(st.lists(STEP, max_size=40))
def test_the_newest_of_each_key_up_to_the_bounds(steps):
    store, plain = Store(entries=3, size=60), {"x": [], "y": []}
    fresh, ever = 0, {"x": [], "y": []}
    for what, caller, name, size in steps:
        mine = plain[caller]
        known = [each for each in mine if each[0] == name]
        if what == "keep":
            fresh += 1
            name = f"{name}{fresh}"  # ids are never used twice
            store.keep(caller, name, Kept(b"r" * (size - 1), {f"i{name}": b"i"}, 1))
            mine.append((name, size))
            ever[caller].append(name)
            while len(mine) > 3 or sum(each[1] for each in mine) > 60:
                del mine[0]
        for each in [e for e in mine if e[0].startswith(name)] if what == "find" else []:
            mine.remove(each)
            mine.append(each)
            assert store.find(caller, each[0]) is not None
        if what == "drop":
            assert not known and not store.drop(caller, name)
            for each in [e for e in mine if e[0].startswith(name)]:
                assert store.drop(caller, each[0])
                mine.remove(each)
        for caller in "xy":
            kept = [each[0] for each in plain[caller]]
            for each in ever["x"] + ever["y"]:
                expected = b"i" if each in kept else None
                assert store.item(caller, f"i{each}") == expected


def test_what_was_used_stays_longer():
    store = Store(entries=3, size=1000)
    for name in "abc":
        store.keep("x", name, Kept(b"1", {}, 0))
    assert store.find("x", "a")
    store.keep("x", "d", Kept(b"1", {}, 0))
    assert [bool(store.find("x", name)) for name in "abcd"] == [True, False, True, True]


def test_what_was_dropped_gives_its_room_back():
    store = Store(entries=9, size=10)
    for name in "abc":
        store.keep("x", name, Kept(b"1234567890"[: 4 if name == "a" else 5], {}, 0))
        assert name != "b" or store.drop("x", "b")
    assert store.find("x", "a") and store.find("x", "c")


def test_what_is_too_large_pushes_nothing_out():
    store = Store(entries=9, size=10)
    store.keep("x", "a", Kept(b"12345", {}, 0))
    store.keep("x", "b", Kept(b"12345", {"i": b"123456"}, 1))
    assert store.find("x", "a") and store.find("x", "b") is None


def test_the_bounds_are_set():
    assert ENTRIES == 4096 and BYTES == 2**27
