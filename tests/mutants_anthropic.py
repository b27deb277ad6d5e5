"""Injected bugs of Anthropic's API, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

CONVERT = ("tests/server/anthropic/test_convert.py",)
EVENTS = ("tests/server/anthropic/test_events.py",)
ROUTES = ("tests/server/anthropic/test_routes.py",)
SAME = ("tests/server/anthropic/test_same_talk.py",)

ANTHROPIC: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.server.anthropic.convert",
        CONVERT,
        [
            ("the billing header is read by the model", '_BILLING.sub("", text)', "text"),
            ("what follows the billing header is lost", "[^\\n]*\\n*", "(?s:.*)"),
            ("a header in the middle of a text is cut out", r"\Ax-anthropic", "x-anthropic"),
            (
                "an empty system prompt is a message",
                "    if kept:\n",
                "    if system is not None:\n",
            ),
            ("any name is the served model's", 'name.startswith("claude") and name', "name"),
            ("an alias that begins with claude is forgotten", " and name not in known", ""),
            (
                "a tool without a schema is told to the model",
                "if tool.input_schema is not None:",
                "if True:",
            ),
            (
                "a tool without a schema is ignored",
                'if tool.type in (None, "custom"):',
                "if False:",
            ),
            ("any tool is none", '"any": "required"', '"any": "auto"'),
            (
                "a tool that is not there can be forced",
                "choice.name is None or choice.name not in names",
                "False",
            ),
            ("no tool can be forced", 'choice.type == "any" and not tools', "False"),
            ("calls are never parallel", "parallel=not (", "parallel=bool("),
            (
                "disabled thinking has a budget",
                'if body.thinking and body.thinking.type == "enabled" and body',
                "if body.thinking and body",
            ),
            (
                "an effort's budget counts before what is given",
                'body.thinking.type == "enabled" and body.thinking.budget_tokens',
                "False",
            ),
            ("an effort has no budget", 'EFFORTS.get(effort or "", (None, None))[1]', "None"),
            (
                "adaptive thinking is forced",
                "_THINKING.get(body.thinking.type)",
                "_THINKING.get(body.thinking.type, True)",
            ),
            ("the template is not told to think", "if think is None else", "if True else"),
            ("a constraint of Strata's own is lost", ") or format_of(body)", ")"),
            ("the effort is lost", "if config and config.effort else {}", "if False else {}"),
            ("a beta's format is ignored", "(older, ", "(None, "),
            ("stop sequences are ignored", "body.stop_sequences or body.stop}", "body.stop}"),
            (
                "an answer that was begun is answered",
                'continued=last.role == "assistant"',
                'continued=False and last.role == "assistant"',
            ),
            ("a call is gone on with", ' and "tool_calls" not in messages[-1]', ""),
            (
                "results of tools move behind the texts",
                "in groupby(content, key",
                "in groupby(sorted(content, key=lambda b: b.type), key",
            ),
            ("an error looks like a result", "if block.is_error else text", "if False else text"),
            (
                "an assistant's texts are torn apart",
                '"content": "".join(_texts(content))',
                '"content": "\\n".join(_texts(content))',
            ),
            ("thoughts are forgotten", 'message["reasoning_content"] = thoughts', "pass"),
            ("every message has an anchor", "if asked else message", "if True else message"),
            ("no message has an anchor", "if asked else message", "if False else message"),
            ("an empty message is no message", "or not message.content:", "or False:"),
        ],
    ),
    (
        "strata.server.anthropic.events",
        EVENTS,
        [
            (
                "a block's end is forgotten",
                "        events = self._close()\n        self._open = kind",
                '        events = b""\n        self._open = kind',
            ),
            (
                "the last block stays open",
                "return events + self._close()\n\n    def end",
                "return events\n\n    def end",
            ),
            ("thoughts are not signed", "if was is Kind.REASONING:", "if False:"),
            ("text is signed", "if was is Kind.REASONING:", "if was is Kind.CONTENT:"),
            (
                "all blocks have one number",
                "        self._index += 1\n",
                "        self._index = 0\n",
            ),
            (
                "each piece is a block",
                "if kind in _STARTS and kind is not self._open:",
                "if kind in _STARTS:",
            ),
            ("empty pieces are blocks", '        if not delta.text:\n            return b""\n', ""),
            (
                "empty pieces part blocks of a whole answer",
                "if delta.text or delta.kind is Kind.END)",
                "if True)",
            ),
            (
                "a call's end is not told",
                "        if kind is Kind.END:\n            return self._close()\n",
                '        if kind is Kind.END:\n            return b""\n',
            ),
            (
                "what was read is counted twice",
                "tally.prompt - tally.cached - created",
                "tally.prompt - created",
            ),
            (
                "what was created is counted twice",
                "tally.prompt - tally.cached - created",
                "tally.prompt - tally.cached",
            ),
            (
                "created is less than nothing",
                "max(0, stable - tally.cached)",
                "stable - tally.cached",
            ),
            ("created is all that is stable", "max(0, stable - tally.cached)", "stable"),
            (
                "what is not stored is created",
                "run.request.stable_len if run.request.cached else 0",
                "run.request.stable_len",
            ),
            (
                "a stop sequence ends the turn",
                'if reason == "end_turn" and part.stop is not None:',
                "if False:",
            ),
            (
                "a stop sequence hides a call",
                'if reason == "end_turn" and part.stop is not None:',
                "if part.stop is not None:",
            ),
            (
                "a full context is the client's limit",
                'if reason == "max_tokens" and tally',
                "if False and tally",
            ),
            (
                "a finish of its own is lost",
                '_REASONS.get(part.finish or "", part.finish)',
                '_REASONS.get(part.finish or "", "end_turn")',
            ),
            ("a call that was cut off fails", ', allow_partial="trailing-strings"', ""),
            ("a text that was cut off is lost", '"trailing-strings"', "True"),
            ("all calls have one name", "toolu_{secrets.token_hex(12)}", "toolu_{'0' * 24}"),
            ("thoughts are not counted", "tally.reasoning", "0"),
            ("stats are told unasked", "stats = run.stats and tally.usage", "stats = tally.usage"),
        ],
    ),
    (
        "strata.server.anthropic.voice",
        ROUTES,
        [
            (
                "errors have two ids",
                '(b"request-id", self.request_id.encode())',
                '(b"request-id", b"req_0")',
            ),
            ("a ping is a comment", 'return event("ping")', 'return b": ping\\n\\n"'),
            ("no room looks like any fault", 'error.code == "context_length_exceeded"', "False"),
            ("a wrong key looks like any fault", '    401: "authentication_error",\n', ""),
            ("too large looks like any fault", '    413: "request_too_large",\n', ""),
        ],
    ),
    (
        "strata.server.anthropic.pages",
        ROUTES,
        [
            (
                "tokens are counted for models that are not here",
                "    service.named(chat.body.model)\n",
                "",
            ),
            (
                "any model is told of",
                "_model(service, service.named(name))",
                "_model(service, name)",
            ),
            ("there is always more", '"has_more": False', '"has_more": True'),
        ],
    ),
    (
        "strata.server.anthropic.convert",
        SAME,
        [
            (
                "a result stands behind its name",
                '"content": text}\n\n\ndef _assistant',
                '"content": f"{block.tool_use_id} {text}"}\n\n\ndef _assistant',
            ),
            ("arguments are forgotten", '"arguments": block.input}', '"arguments": {}}'),
            (
                "a tool's description is forgotten",
                "if tool.description is not None else {}",
                "if False else {}",
            ),
        ],
    ),
    (
        "strata.text.stream",
        ("tests/text/test_stream.py",),
        [
            (
                "the shortest of the stop strings is told",
                "found.append((at + len(stop), at, stop))",
                "found.append((at + len(stop), at, min(self._stop, key=len)))",
            ),
        ],
    ),
    (
        "strata.server.generate",
        EVENTS,
        [
            (
                "the stop string is lost",
                "split.finish(Finish.STOP.value), piece.stop",
                "split.finish(Finish.STOP.value), None",
            ),
        ],
    ),
    (
        "strata.server.app",
        ROUTES,
        [
            (
                "errors have OpenAI's shape",
                'anthropic.AnthropicVoice if bare.startswith("/messages") else Voice',
                "Voice",
            ),
            (
                "models are told in one shape",
                'if exchange.headers(b"anthropic-version"):',
                "if False:",
            ),
        ],
    ),
    (
        "strata.server.openapi",
        ROUTES,
        [
            (
                "all errors are documented alike",
                '"AnthropicError" if path.startswith("/v1/messages") else "Error"',
                '"Error"',
            ),
            (
                "streams are not documented",
                '"/v1/completions", "/v1/messages"',
                '"/v1/completions"',
            ),
        ],
    ),
]  # fmt: skip
