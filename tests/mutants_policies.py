"""Injected bugs of expert policies, traces and bounds, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

_POLICY = ("tests/experts/test_policy.py",)

POLICIES: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.experts.policy",
        _POLICY,
        [
            ("free slots are not filled", "ordered[:free].tolist()", "ordered[:0].tolist()"),
            ("a victim is taken twice", "kept.append(key)", "kept += [key, key]"),
        ],
    ),
    (
        "strata.experts.policy",
        _POLICY,
        [
            ("the clock stands still", "self.step += place <= self.place", "self.step += 0"),
            ("the most worthy leaves", "int(worth.argmin())", "int(worth.argmax())"),
            ("what was learned is forgotten", "self.wanted[:] = popularity", "pass"),
        ],
    ),
    (
        "strata.experts.policies.counting",
        _POLICY,
        [
            ("time stands still", "self.time += 1", "self.time += 0"),
            ("whoever is fresh leaves first", "fresh * self.places - ahead", "-ahead"),
            ("the next layer counts as the last", "self.place + 1)) % self.places)[keys", "self.place)) % self.places)[keys"),
        ],
    ),
    (
        "strata.experts.policies.counting",
        _POLICY,
        [
            ("nothing ages", "self.weight *= 2.0 ** ((step - self.step) / _HALF_LIFE)", "pass"),
            ("counts grow for ever", "if self.weight > _LARGEST:", "if False:"),
            ("tinylfu admits everybody", "self.tally.counts[key] > self.tally.counts[victim]", "True"),
        ],
    ),
    (
        "strata.experts.policies.floors",
        _POLICY,
        [
            ("floors hold nobody", "spare = self._kept - self._floor", "spare = self._kept + self._floor"),
            ("a lookup may take all at once", "_earlier(places) < spare[places]", "spare[places] > 0"),
            ("nobody leaves below the floor", "if len(chosen) < number:\n            chosen", "if False:\n            chosen"),
        ],
    ),
    (
        "strata.experts.policies.reuse",
        (*_POLICY, "tests/experts/test_replay.py"),
        [
            ("a scan teaches that the wanted leave", "if found.min() >= 0:", "if True:"),
            ("a prompt counts as one token", "tokens = entries / self._entries", "tokens = 1.0"),
            ("the wait for a layer is not looked at", " / ahead[self.place_of[keys]]", ""),
        ],
    ),
    (
        "strata.experts.bounds",
        ("tests/experts/test_bounds.py",),
        [
            ("what is wanted soonest leaves", "heapq.heappush(latest, (-following_use, key))", "heapq.heappush(latest, (following_use, key))"),
            ("nothing must stay without bypass", "if not bypass:", "if False:"),
            ("the fixed set is there before it is read", "kept[wanted] & seen[wanted]", "kept[wanted]"),
        ],
    ),
    (
        "strata.experts.trace",
        ("tests/experts/test_trace.py",),
        [
            ("half a lookup is one", "if end > len(words):", "if False:"),
            ("damage is not noticed", "if not (0 <= place < head.places and 0 < number <= head.experts):", "if False:"),
        ],
    ),
    (
        "strata.experts.replay",
        ("tests/experts/test_replay.py",),
        [
            ("what is looked up may leave", "        held[wanted] = False\n", ""),
            ("hits are moved too", "(number - found) * size", "number * size"),
            ("shelves share their slots", "share * len(places) * trace", "share * trace.head.places * trace"),
        ],
    ),
]  # fmt: skip
