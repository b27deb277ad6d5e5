"""Injected bugs that a client notices, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

OPENAI = ("tests/clients/test_clients.py::test_python[openai_python]",)
ANTHROPIC = ("tests/clients/test_clients.py::test_python[anthropic_python]",)
VERCEL = ("tests/clients/test_clients.py::test_node[vercel]",)

CLIENTS: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.server.openai",
        VERCEL,
        [
            (
                "a chunk's choices are no list",
                """b'%s,"choices":[],"usage":%s%s}""",
                """b'%s,"choices":null,"usage":%s%s}""",
            )
        ],
    ),
    (
        "strata.server.chat",
        OPENAI,
        [
            (
                "reasoning is content",
                """b'"reasoning_content":' + text""",
                """b'"content":' + text""",
            ),
            (
                "every call is the first",
                """b'"tool_calls":[{"index":%d,"function":{"arguments":%s}}]' % (delta.call or 0, text)""",
                """b'"tool_calls":[{"index":%d,"function":{"arguments":%s}}]' % (0, text)""",
            ),
            (
                "the tool that is forced is not",
                "tool_choice=choice.function.name if isinstance(choice, NamedChoice) else",
                "tool_choice='none' if isinstance(choice, NamedChoice) else",
            ),
        ],
    ),
    (
        "strata.server.anthropic.events",
        ANTHROPIC,
        [
            (
                "what was reused counts twice",
                '"input_tokens": tally.prompt - tally.cached - created',
                '"input_tokens": tally.prompt - created',
            ),
            (
                "a block is not ended",
                "        events = self._close()\n        self._open = kind",
                '        events = b""\n        self._open = kind',
            ),
        ],
    ),
    (
        "strata.engine.client",
        OPENAI,
        [
            (
                "who leaves is answered all the same",
                "            self._over = True\n            self._engine.cancel(self._request_id, finish)",
                "            self._over = True",
            )
        ],
    ),
    (
        "strata.server.schema",
        ("tests/server/test_validation.py",),
        [("a penalty may divide by nothing", "ge=0.01, le=100", "gt=0, le=100")],
    ),
]  # fmt: skip
