"""Injected bugs around states and what the cache tells of itself, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

SCENES = ("tests/engine/test_states.py",)

STATES: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.engine.core",
        SCENES,
        [
            (
                "a capture that the model did not write is attached",
                "[capture for capture in row.captures if capture in captured]",
                "list(row.captures)",
            ),
            (
                "captures that were written are forgotten",
                "[capture for capture in row.captures if capture in captured]",
                "[]",
            ),
        ],
    ),
    (
        "strata.engine.runner",
        SCENES,
        [
            (
                "the runner takes every capture for written",
                "frozenset(result.captured)",
                "frozenset(plan.captures)",
            ),
            (
                "a state is not reset before a new sequence",
                "                    self.states.data[copy.dst].zero_()",
                "                    pass",
            ),
            (
                "a state is not restored",
                "self.states.data[copy.dst].copy_(self.states.data[copy.src])",
                "self.states.data[copy.dst].zero_()",
            ),
        ],
    ),
    (
        "strata.engine.loop",
        SCENES,
        [
            (
                "freed states are not told",
                "states = after.states_free - before.states_free",
                "states = 0",
            ),
        ],
    ),
    (
        "strata.cache.prefix",
        SCENES,
        [
            (
                "emptying the cache leaves the checkpoints of running requests' pages",
                "        self._states.clear()\n",
                "",
            ),
        ],
    ),
    (
        "strata.cache.checkpoints",
        SCENES,
        [
            (
                "rolling checkpoints hold out against contexts",
                "None if rolling else self._least_tail()",
                "None",
            ),
            (
                "a trifle takes the last slot",
                "len(self._free) > self._running",
                "True",
            ),
            (
                "refused rolling checkpoints age all others",
                "self.clock if rolling else worth",
                "worth",
            ),
        ],
    ),
    (
        "strata.text.anchors",
        ("tests/text/test_template.py",),
        [
            (
                "no anchor where a message's content begins",
                "        yield border\n        for at",
                "        for at",
            ),
            (
                "the first anchors of a chat win",
                "[-MOST:]",
                "[:MOST]",
            ),
            (
                "where thinking is left out, the anchor is before it",
                "if end is not None:",
                "if False:",
            ),
        ],
    ),
    (
        "strata.text.messages",
        ("tests/text/test_template.py",),
        [
            (
                "templates see which messages have anchors",
                '    kept.pop("cache_anchor", None)  # for us, not for the template\n',
                "",
            ),
        ],
    ),
    (
        "strata.engine.bench",
        ("tests/engine/test_bench.py",),
        [
            (
                "what was reused counts as read",
                "new = load.depth if first else load.pp",
                "new = len(prompts[0])",
            ),
            (
                "the total rate counts from the first one's end",
                "max(self.first_tokens))",
                "min(self.first_tokens))",
            ),
        ],
    ),
    (
        "strata.memory.budget",
        ("tests/memory/test_budget.py",),
        [
            (
                "states take what the context needs",
                "min(share, spare)",
                "share",
            ),
            (
                "a running row's rolling state is not counted",
                "_ROW_STATES = 2",
                "_ROW_STATES = 1",
            ),
        ],
    ),
]
