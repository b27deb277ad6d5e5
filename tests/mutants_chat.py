"""Injected bugs of chats: tools, reasoning, formats, llama.cpp's names; in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

TOOLS = ("tests/server/test_tools.py",)
FORMATS = ("tests/server/test_formats.py",)
THINKING = ("tests/server/test_reasoning.py",)
NAMES = ("tests/server/test_llama_names.py",)

CHAT: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.server.output",
        (*TOOLS, *FORMATS, *THINKING),
        [
            (
                "none leaves calls to be read",
                'tools = {} if choice == "none" else _parameters(chat.tools)',
                "tools = _parameters(chat.tools)",
            ),
            (
                "a forced call is left to the model",
                'forced = choice not in ("auto", "none")',
                "forced = False",
            ),
            (
                "parallel calls cannot be switched off",
                "one_call=not chat.parallel",
                "one_call=False",
            ),
            (
                "an open prompt is forgotten",
                "thinking=thinking is not None and thinking.open",
                "thinking=False",
            ),
            (
                "grammars may not spell markers",
                "dialect.markers(guide is not None)",
                "dialect.markers(False)",
            ),
            ("markers are not told", "        markers=markers,\n", ""),
            (
                "a format is not followed",
                '    return service.grammars.lark(f"start: {_json(wanted)}", wanted.field)',
                "    return None",
            ),
            (
                "any JSON is an object",
                '{"type": "object"} if wanted.kind == "json_object" else wanted.value',
                '{} if wanted.kind == "json_object" else wanted.value',
            ),
            ("beside tools a regex wins", "if wanted is not None and tools:", "if False:"),
            (
                "a break before the answer is forbidden",
                'lead = _BREAK if service.dialect.think_close else ""',
                'lead = ""',
            ),
            (
                "a schema forbids calls",
                "    if tools:\n        calls =",
                "    if False:\n        calls =",
            ),
            (
                "only one call beside a schema",
                'tool_grammar(tools, "required", True)',
                'tool_grammar(tools, "clock", False)',
            ),
            (
                "forced calls need no tools",
                "    if not tools:\n        raise",
                "    if False:\n        raise",
            ),
            (
                "a forced call drops the format",
                "    if chat.format is not None:\n",
                "    if False:\n",
            ),
            (
                "forced calls may be several",
                "tool_grammar(tools, choice, chat.parallel)",
                "tool_grammar(tools, choice, True)",
            ),
            (
                "any function may be called",
                "tool_grammar(tools, choice, chat.parallel)",
                'tool_grammar(tools, "required", chat.parallel)',
            ),
            (
                "whose schema is broken is not told",
                '                _check(service, f"tools.{i}", name, tools[name])\n',
                "                pass\n",
            ),
            (
                "a schema that is none is a fault of the server",
                "if schema is not None and not isinstance(schema, Mapping):",
                "if False:",
            ),
            ("two tools of one name", "        if name in found:\n", "        if False:\n"),
            (
                "tools are counted without the others",
                '        if "function" in tool:\n            yield i,',
                '        if "function" in tool:\n            yield i - 1,',
            ),
            (
                "no thinking is a wish only",
                "budget=0 if chat.thinking is False else chat.budget",
                "budget=chat.budget",
            ),
            (
                "budgets are dropped",
                "budget=0 if chat.thinking is False else chat.budget",
                "budget=0 if chat.thinking is False else None",
            ),
            (
                "the model cannot open reasoning",
                "opens=opens[0] if len(opens) == 1 else None",
                "opens=None",
            ),
            ("a closed tag is open", "at >= 0 and closing not in rest and", "at >= 0 and"),
            ("an earlier turn's tag counts", " and not service.tokenizer.has_control(rest)", ""),
            ("no tag is an open one", "return at >= 0 and closing", "return closing"),
        ],
    ),
    (
        "strata.server.talk",
        (*TOOLS, *FORMATS, *THINKING),
        [
            ("low effort thinks without end", '"low": (True, 1024)', '"low": (True, None)'),
            ("minimal effort thinks", '"minimal": (False, None)', '"minimal": (True, None)'),
            (
                "the template is not told",
                '{} if chat.thinking is None else {"enable_thinking": chat.thinking}',
                "{}",
            ),
            (
                "none shows the tools",
                '() if chat.tool_choice == "none" else chat.tools',
                "chat.tools",
            ),
            (
                "other tools reach the template",
                '[tool for tool in tools if "function" in tool]',
                "[tool for tool in tools]",
            ),
            (
                "a schema's name is taken for it",
                "inner = wanted.json_schema.content if wanted.json_schema else None",
                "inner = None",
            ),
            ("the last of several formats wins", "    if len(formats) > 1:\n", "    if False:\n"),
            (
                "text is a format",
                'if wanted is not None and wanted.type != "text":',
                "if wanted is not None:",
            ),
        ],
    ),
    (
        "strata.server.chat",
        (*TOOLS, *THINKING),
        [
            (
                "effort counts before a budget",
                "    if given is not None:\n",
                "    if given is not None and budget is None:\n",
            ),
            ("-1 is a budget", "budget = given if given >= 0 else None", "budget = given"),
            (
                "effort counts before enable_thinking",
                "    if isinstance(wanted, bool):\n",
                "    if isinstance(wanted, bool) and thinking is None:\n",
            ),
            ("each chunk has the role", "        if first and said:\n", "        if said:\n"),
            (
                "content is empty beside calls",
                "None if calls and not content else content",
                "content",
            ),
            ("content is null", "None if calls and not content else content", "content or None"),
            (
                "reasoning is left out of whole answers",
                "        if reasoning:\n",
                "        if False:\n",
            ),
            ("calls are left out of whole answers", "        if calls:\n", "        if False:\n"),
            ("a call's end is a chunk", '    if delta.kind is Kind.END:\n        return b""\n', ""),
            ("calls have one id", 'f"call_{secrets.token_hex(12)}"', '"call_0"'),
            (
                "the first call is told again",
                '{"index":%d,"function":{"arguments":%s}}]\' % (delta.call or 0, text)',
                '{"index":%d,"function":{"arguments":%s}}]\' % (0, text)',
            ),
            (
                "calls cannot be one at a time",
                "parallel=body.parallel_tool_calls is not False",
                "parallel=True",
            ),
        ],
    ),
    (
        "strata.server.generate",
        (*TOOLS, *THINKING, *NAMES),
        [
            (
                "markers are not told to the stream",
                "TextStream(service.tokenizer, run.stop, least, markers)",
                "TextStream(service.tokenizer, run.stop, least)",
            ),
            (
                "what was held back is lost",
                "            deltas += self._segmenter.finish()\n",
                "            self._segmenter.finish()\n",
            ),
            (
                "a call that is cut is whole",
                "whole = self._ended and not self._open",
                "whole = bool(self._ended or self._open)",
            ),
            (
                "a call is a plain stop",
                "return TOOL_CALLS if reason == Finish.STOP and whole else reason",
                "return reason",
            ),
            ("the limit is a call", "reason == Finish.STOP and whole", "whole"),
            (
                "what follows the one call is told",
                "                    return deltas[:i]\n",
                "                    return deltas\n",
            ),
            (
                "one call does not end the answer",
                "return self._one_call and self._ended",
                "return False",
            ),
            (
                "progress is not passed on",
                "                yield event\n                continue\n",
                "                continue\n",
            ),
            ("a timed token's account is lost", "        self.usage = event.usage\n", ""),
            (
                "reasoning is not counted",
                "self.reasoning += len(part.tokens)",
                "self.reasoning += 0",
            ),
        ],
    ),
    (
        "strata.server.openai",
        ("tests/server/test_chat.py", *TOOLS, *NAMES),
        [
            (
                "tokens of a part without news are lost",
                "news = [self.nothing(first)]",
                "news = []",
            ),
            (
                "tokens are told with each delta of a part",
                "            logprobs, tokens = None, []\n",
                "",
            ),
            (
                "timings are in each chunk",
                'timed = usage + (self._timings([tally]) if self.job.timings else b"")',
                "timed = usage + self._timings([tally])",
            ),
            (
                "timings are told twice",
                "last = timed if self._usage_last else usage + self._timings([tally])",
                "last = usage + self._timings([tally])",
            ),
            (
                "timings of one choice stand for all",
                "tallies[0].usage if len(self.job.runs) == 1 else None",
                "tallies[0].usage",
            ),
        ],
    ),
    (
        "strata.server.llama",
        NAMES,
        [
            (
                "cached tokens were read",
                "usage.prompt_tokens - usage.cached_tokens",
                "usage.prompt_tokens",
            ),
            (
                "the first token is predicted in no time",
                "usage.completion_tokens - 1",
                "usage.completion_tokens",
            ),
            (
                "waiting is reading",
                '"prompt_ms": usage.prefill_s * 1e3',
                '"prompt_ms": (usage.first_token_s or 0) * 1e3',
            ),
            (
                "a rate of nothing fails",
                "amount / whole if amount > 0 and whole > 0 else None",
                "amount / whole",
            ),
            (
                "progress leaves the cached ones out",
                '"processed": event.read',
                '"processed": event.read - event.cached',
            ),
            (
                "fewer slots than rows",
                "* (service.limits.at_once - len(running))",
                "* (service.limits.at_once - 1 - len(running))",
            ),
            ("what remains is the limit", '"n_remain": limit - row.output', '"n_remain": limit'),
            (
                "cached tokens were read by the slot",
                '"n_prompt_tokens_processed": row.read - row.cached',
                '"n_prompt_tokens_processed": row.read',
            ),
        ],
    ),
    (
        "strata.server.form",
        (*TOOLS, *THINKING),
        [
            (
                "the arguments go to the last block",
                "            calls[delta.call].text += delta.text",
                "            out[0].text += delta.text",
            ),
            (
                "content runs into reasoning",
                "elif out and out[-1].kind is delta.kind:",
                "elif out and out[-1].kind is not Kind.CALL:",
            ),
        ],
    ),
    (
        "strata.server.job",
        (*NAMES, *FORMATS),
        [
            (
                "progress without a stream",
                "progress=bool(body.stream and body.return_progress)",
                "progress=bool(body.return_progress)",
            ),
            (
                "answers ended from here have no account",
                "timed=bool(stops or output.one_call or body.timings_per_token)",
                "timed=bool(body.timings_per_token)",
            ),
            (
                "timings are not taken per token",
                "timed=bool(stops or output.one_call or body.timings_per_token)",
                "timed=bool(stops or output.one_call)",
            ),
            ("guides stay behind", "        guide=output.guide,\n", ""),
            (
                "the guard cannot be switched off",
                "guard=body.repetition_guard is not False and",
                "guard=True and",
            ),
            (
                "the guard cuts benchmarks short",
                "is not False and not body.ignore_eos",
                "is not False",
            ),
        ],
    ),
    (
        "strata.engine.sequence",
        NAMES,
        [
            (
                "progress is that of the last step",
                "cached, seconds = self.cached_tokens or 0, now - begun",
                "cached, seconds = self.computed_len, now - begun",
            ),
            (
                "time is counted from the arrival of nothing",
                "begun = now if self.times.admitted is None else self.times.admitted\n        cached,",
                "begun = 0.0\n        cached,",
            ),
        ],
    ),
    (
        "strata.text.template",
        THINKING,
        [("a client's words can look like tags", "stable, done.text)", "stable, done.plain)")],
    ),
]  # fmt: skip
