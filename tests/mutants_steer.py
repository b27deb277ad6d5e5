"""Injected bugs of constrained decoding, thinking budgets and the guard, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

STEERED = ("tests/engine/test_steer.py",)
GUIDED = ("tests/engine/test_steer.py", "tests/engine/test_guided.py")
GRAMMAR = ("tests/text/test_grammar.py",)

STEER: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.engine.steer",
        STEERED,
        [
            (
                "reasoning is never open at the start",
                "self._open = thinking is not None and thinking.open",
                "self._open = False",
            ),
            (
                "a guide alone is no reason to steer",
                "if request.guide is None and (thinking is None or thinking.budget is None)",
                "if thinking is None or thinking.budget is None",
            ),
            (
                "a budget alone is no reason to steer",
                "if request.guide is None and (thinking is None or thinking.budget is None)",
                "if request.guide is None",
            ),
            (
                "rows that think are always copied",
                "return self._guide is not None if not self._open else self._due",
                "return self._guide is not None or self._open",
            ),
            (
                "an answer may end in reasoning",
                "return self._open and self._guide is not None",
                "return False",
            ),
            (
                "an end waits though there is no guide",
                "return self._open and self._guide is not None",
                "return self._open",
            ),
            (
                "a guide's end is not seen",
                "return self._guide is not None and not self._open and self._guide.ended",
                "return False",
            ),
            ("one token more than the budget", "self._spent >= budget", "self._spent > budget"),
            (
                "no budget is a budget of 0",
                "return budget is not None and self._spent",
                "return self._spent",
            ),
            (
                "what closes reasoning is begun again",
                "_keep(row, thinking.close[self._closed])",
                "_keep(row, thinking.close[0])",
            ),
            (
                "the guide forbids to open reasoning",
                "                row[opens] = before\n",
                "                pass\n",
            ),
            (
                "reasoning may be opened at any time beside a guide",
                "            self._may_open = False\n            self._guide.accept(token)",
                "            self._guide.accept(token)",
            ),
            (
                "reasoning may be opened twice beside a guide",
                "self._may_open = self._guide is None",
                "self._may_open = True",
            ),
            (
                "reasoning may be opened once only",
                "self._may_open = self._guide is None",
                "self._may_open = False",
            ),
            ("reasoning costs nothing", "            self._spent += 1\n", ""),
            (
                "reasoning is closed one token too soon",
                "if self._closed == len(thinking.close):",
                "if self._closed >= len(thinking.close) - 1:",
            ),
            (
                "the guide takes what closes reasoning",
                "                self._open, self._closed = False, 0\n",
                "                self._open, self._closed = False, 0\n                if self._guide is not None:\n                    self._guide.accept(token)\n",
            ),
            (
                "what the last time closed reasoning still counts",
                "self._open, self._closed = False, 0",
                "self._open = False",
            ),
            (
                "a broken start of the close counts from its beginning",
                "return next(n for n in range(len(seen), -1, -1) if seen[len(seen) - n :] == goal[:n])",
                "return len(seen) if seen == goal[: len(seen)] else 0",
            ),
            (
                "a forced token hides a broken row",
                "    row[token] = logit\n",
                "    row[token] = 0.0\n",
            ),
            ("other tokens stay possible beside a forced one", "    row.fill(-np.inf)\n", ""),
            ("the guard does not wait", "if said < SPAN or said % CIRCLE:", "if said % CIRCLE:"),
            (
                "the guard looks at the prompt",
                "if said < SPAN or said % CIRCLE:",
                "if len(tokens) < SPAN or said % CIRCLE:",
            ),
            (
                "the guard looks at each token",
                "if said < SPAN or said % CIRCLE:",
                "if said < SPAN:",
            ),
            ("a short circle is enough", " and tail[n:] == tail[:-n] for", " for"),
            (
                "the longest circle is not found",
                "for n in range(1, CIRCLE + 1)",
                "for n in range(1, CIRCLE)",
            ),
            ("one token only goes round", "for n in range(1, CIRCLE + 1)", "for n in range(1, 2)"),
        ],
    ),
    (
        "strata.engine.sampler",
        STEERED,
        [
            (
                "min_tokens breaks a grammar",
                "return not steer.acts and (steer.waits or said < self.sampling.min_tokens)",
                "return steer.waits or said < self.sampling.min_tokens",
            ),
            (
                "a guide that waits does not hold the end",
                "return not steer.acts and (steer.waits or said < self.sampling.min_tokens)",
                "return not steer.acts and said < self.sampling.min_tokens",
            ),
            (
                "rows are not altered for a guide",
                "        if self.steer is not None and self.steer.acts:\n            return True\n",
                "",
            ),
            ("a guide is not told", "            self.steer.accept(token)\n", "            pass\n"),
            (
                "one guide's failure is everyone's",
                "except (NotFinite, RequestError) as error:",
                "except NotFinite as error:",
            ),
            (
                "log-probabilities are those under the mask",
                "return Choice(token, logprob(raw, token",
                "return Choice(token, logprob(row, token",
            ),
        ],
    ),
    (
        "strata.engine.sequence",
        STEERED,
        [
            (
                "a guide is told twice after a preemption",
                '        self._table = array("i")\n\n    def let_go',
                '        self._table = array("i")\n        if self.output_len and self.chooser.steer is not None:\n            self.chooser.steer.accept(self.tokens[-1])\n\n    def let_go',
            ),
            ("an answer goes on beyond its grammar", " or (steer is not None and steer.ended)", ""),
            (
                "the limit comes before the end",
                "        if self.tokens[-1] in request",
                "        if said >= request.max_tokens:\n            return Finish.LENGTH\n        if self.tokens[-1] in request",
            ),
            ("the guard is on though it was put off", "if request.guard and said", "if said"),
            (
                "the guard does not wait for min_tokens",
                "request.guard and said >= request.sampling.min_tokens and",
                "request.guard and",
            ),
            ("a circle is told as a limit", "return Finish.REPETITION", "return Finish.LENGTH"),
        ],
    ),
    (
        "strata.engine.core",
        STEERED,
        [
            (
                "a failed guide's row goes on for ever",
                "                told.append(self._fail(sequence, str(choice), choice.status))\n",
                "                pass\n",
            ),
            (
                "what a failed guide's row computed is lost",
                "self._fail(sequence, str(choice), choice.status)",
                "self._fail(sequence, str(choice), choice.status, keep=False)",
            ),
        ],
    ),
    (
        "strata.engine.settings",
        STEERED,
        [
            (
                "reasoning may be closed by nothing",
                "if not thinking.close or not all(",
                "if not all(",
            ),
            (
                "reasoning may be closed by what is no token",
                "not all(0 <= token < self.vocab for token in ids)",
                "False",
            ),
            (
                "reasoning may be opened by what is no token",
                "*(() if thinking.opens is None else (thinking.opens,))",
                "*()",
            ),
        ],
    ),
    (
        "strata.text.grammar",
        (*GRAMMAR, "tests/engine/test_guided.py"),
        [
            (
                "control tokens are spelled",
                "self.special_token_ids = sorted(tokenizer.special_ids)",
                "self.special_token_ids = []",
            ),
            (
                "control tokens have no names",
                "tokenizer.token_bytes(i, special=True)",
                "tokenizer.token_bytes(i)",
            ),
            (
                "one end token ends",
                "ends = sorted(tokenizer.end_ids) or None",
                "ends = sorted(tokenizer.end_ids)[:1] or None",
            ),
            (
                "a guide that broke is one that ended",
                "return self._matcher.is_stopped() and not self._matcher.is_error()",
                "return self._matcher.is_stopped()",
            ),
            (
                "an answer ends where it may",
                "return self._matcher.is_stopped() and",
                "return self._matcher.is_accepting() and",
            ),
            (
                "a guide that broke ends the answer",
                '        if self._matcher.is_error():\n            raise RequestError(\n                f"{self._field}: following',
                '        if False:\n            raise RequestError(\n                f"{self._field}: following',
            ),
            ("what is allowed is forbidden", "np.unpackbits(~packed", "np.unpackbits(packed"),
            ("bits are read the other way round", 'bitorder="little"', 'bitorder="big"'),
            ("rows beyond the vocabulary stay possible", "        row[size:] = -np.inf\n", ""),
            (
                "the guide does not move",
                "        self._matcher.consume_token(token)\n",
                "        pass\n",
            ),
            (
                "all sequences share one guide",
                "_Follower(matcher.deep_copy(), self._size, field)",
                "_Follower(matcher, self._size, field)",
            ),
            ("whitespace goes on for ever", '{"whitespace_pattern": r"[ \\t\\n\\r]{1,64}"}', "{}"),
            (
                "a schema may loosen its rules",
                '{**schema, "x-guidance": _JSON_OPTIONS}',
                '{"x-guidance": _JSON_OPTIONS, **schema}',
            ),
            ("one tokenisation is forced", '{"no_forcing": true}', '{"no_forcing": false}'),
            (
                "a grammar that is none is taken",
                "if matcher is None or matcher.is_error():",
                "if matcher is None:",
            ),
            (
                "a panic is nobody's",
                "except BaseException as error:",
                "except Exception as error:",
            ),
            (
                "what is used is dropped",
                "                self._compiled.move_to_end(text)\n",
                "                pass\n",
            ),
            ("grammars are kept for ever", "while len(self._compiled) > _KEPT:", "while False:"),
            ("nothing is kept", "                self._compiled[text] = matcher\n", ""),
            ("the first mask is nobody's", "                matcher.compute_bitmask()\n", ""),
            (
                "chains of rules overflow the stack",
                "threading.stack_size(_STACK)",
                "threading.stack_size(1 << 20)",
            ),
            ("errors quote the grammar", '"".join(lines[:1])', '" ".join(lines)'),
            ("errors have no end", "[:200]", ""),
            (
                "schemas are not looked at",
                "    check_schema(schema, field)\n    try:\n        return",
                "    try:\n        return",
            ),
            ("expressions are not looked at", "        check_regex(text, field)\n", ""),
            ("grammars are not looked at", "        check_lark(text, field)\n", ""),
        ],
    ),
    (
        "strata.text.grammar_limits",
        GRAMMAR,
        [
            ("names of properties do not count", '"properties": 2000', '"properties": 200_000'),
            (
                "patterns of names do not count",
                '"patternProperties": 64',
                '"patternProperties": 20_000',
            ),
            ("patterns at once do not count", "_check(len(patterns), _JOINED", "_check(0, _JOINED"),
            (
                "patterns beside references do not count",
                '_JOINING = ("$ref",',
                '_JOINING = ("$id",',
            ),
            ("patterns beside choices do not count", '"anyOf", "oneOf")', ")"),
            ("allOf joins nothing", '"allOf" in node', '"allof" in node'),
            (
                "long patterns do not count",
                "_check(sum(map(len, patterns)), _REGEX",
                "_check(0, _REGEX",
            ),
            ("patterns that nothing joins count too", "    if joins:\n", "    if True:\n"),
            (
                "a slash in quotes begins an expression",
                r"""'"(?:\\.|[^"\\\n])*"|/(""",
                r"""'/(""",
            ),
            (
                "schemas inside grammars are not looked at",
                "        check_schema(schema, field)\n        plain",
                "        plain",
            ),
            (
                "expressions at once do not count",
                '_check(bare.count("&"), _JOINED',
                "_check(0, _JOINED",
            ),
            ("optional parts do not count", "_check(operators, _OPERATORS", "_check(0, _OPERATORS"),
            (
                "what comes behind a schema is not looked at",
                'rest = "".join((*plain, text[at:]))',
                'rest = "".join(plain)',
            ),
        ],
    ),
]
