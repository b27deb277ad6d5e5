"""Injected bugs of the Responses API, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

ITEMS = ("tests/server/responses/test_items.py",)
STREAM = ("tests/server/responses/test_stream.py",)
CLIENT = ("tests/server/responses/test_client.py",)
STORE = ("tests/server/responses/test_store.py",)

RESPONSES: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.server.responses.convert",
        ITEMS,
        [
            (
                "each thing that the assistant did is a message of its own",
                'if not out or out[-1]["role"] != "assistant" or apart:',
                "if True:",
            ),
            (
                "messages side by side become one",
                "apart = isinstance(item, Message) and isinstance(last, Message)",
                "apart = False",
            ),
            (
                "reasoning of the history is dropped",
                'message.update({"reasoning_content": text} if text else {})',
                "pass",
            ),
            (
                "a summary counts before what was sealed",
                "if not item.content and sealed is not None:",
                "if not item.content and not item.summary and sealed is not None:",
            ),
            (
                "the text after a call takes the place of that before",
                '_joined(message["content"]) + ',
                "",
            ),
            (
                "a function's namespace is forgotten",
                'return namespace + ("" if namespace.endswith("_") else "__") + name',
                "return name",
            ),
            (
                "tools that are no functions reach the model",
                'if kind not in ("function", "namespace"):',
                "if False:",
            ),
            (
                "strict is not passed on",
                '("description", "parameters", "strict")',
                '("description", "parameters")',
            ),
            (
                "what is not allowed may be called",
                "    if allowed is not None:\n",
                "    if False:\n",
            ),
            (
                "allowed tools are never required",
                'return mode or "auto", {',
                'return "auto", {',
            ),
            (
                "errors count the items of earlier responses",
                "messages_of([*before, *given], -len(before))",
                "messages_of([*before, *given])",
            ),
            ("instructions come last", "messages.insert(0, ", "messages.insert(len(messages), "),
            (
                "one call at most is not asked for",
                "parallel=body.parallel_tool_calls is not False,",
                "parallel=True,",
            ),
            ("the limit is ignored", "max_tokens=body.max_output_tokens,", "max_tokens=None,"),
        ],
    ),
    (
        "strata.server.responses.events",
        STREAM,
        [
            ("events are not numbered", "self._count += 1\n", "pass\n"),
            (
                "an item ends after the next has begun",
                'events, number = self._close("completed"), len(self._output)',
                "events, number = [], len(self._output)",
            ),
            (
                "a part is not announced",
                "if part := _SHAPES[kind].part:\n",
                "if False:\n",
            ),
            (
                "a call that was cut off is complete",
                '"incomplete" if part.finish in _INCOMPLETE else "completed"',
                '"completed"',
            ),
            (
                "all calls are one",
                'number = self._close("completed"), len(self._output)',
                'number = self._close("completed"), 0',
            ),
            (
                "a limit is not told",
                '_INCOMPLETE = {"length": "max_output_tokens", "repetition": "repetition"}',
                "_INCOMPLETE = {}",
            ),
            ("reasoning is always content", '"summary" if summary else "reasoning"', '"reasoning"'),
            (
                "a failed response is in progress",
                'self._response("failed", error=failure)',
                'self._response("in_progress", error=failure)',
            ),
            (
                "what is read without the cache counts as written to it",
                "tally.prompt - tally.cached if run.request.cached else 0",
                "tally.prompt - tally.cached",
            ),
            (
                "log probabilities are not told",
                "mine = logprobs if delta.kind is Kind.CONTENT else []",
                "mine = []",
            ),
            (
                "the response waits for the first token",
                '        response = self._response("in_progress")\n        return b"".join(',
                '        return b""\n        response = self._response("in_progress")\n        return b"".join(',
            ),
        ],
    ),
    (
        "strata.server.responses.events",
        CLIENT,
        [
            ("a response is never remembered", "        self._keep(response)\n", ""),
        ],
    ),
    (
        "strata.server.responses.events",
        ITEMS,
        [
            ("reasoning is always sealed", "if seal and parts:", "if parts:"),
            (
                "a call comes back under the model's name for it",
                'self._names.get(delta.text, {"name": delta.text})',
                '{"name": delta.text}',
            ),
        ],
    ),
    (
        "strata.server.responses.routes",
        ITEMS,
        [
            (
                "an item's id may be another's",
                "if name is None or name in before or name in out:",
                "if name is None:",
            ),
            (
                "an item of the previous response counts twice",
                "raw = None if item.id in before else self.store.item(caller, item.id)",
                "raw = self.store.item(caller, item.id)",
            ),
            (
                "errors name chat's messages",
                "            raise _renamed(error) from None\n",
                "            raise\n",
            ),
            (
                "the page after an item begins with it",
                "names[names.index(after) + 1 :]",
                "names[names.index(after) :]",
            ),
            (
                "keys share a memory",
                "self.store.keep(caller, job.id, kept)",
                'self.store.keep("", job.id, kept)',
            ),
        ],
    ),
    (
        "strata.server.responses.routes",
        CLIENT,
        [
            ("store: false is remembered", "if body.store is not False:\n", "if True:\n"),
            ("earlier items are not remembered again", "given = before | ", "given = "),
            (
                "an earlier response is not read",
                "before = self._previous(caller, body.previous_response_id).items",
                "self._previous(caller, body.previous_response_id)",
            ),
            ("the oldest items come first", "            names.reverse()\n", "            pass\n"),
            ("what was deleted is there", "        self.store.drop(caller, name)\n", ""),
        ],
    ),
    (
        "strata.server.responses.store",
        STORE,
        [
            ("entries are not bounded", "len(shelf) > self._entries or ", ""),
            ("bytes are not bounded", " or total > self._size", ""),
            ("the newest go", "shelf.popitem(last=False)", "shelf.popitem(last=True)"),
            (
                "use counts for nothing",
                "                shelf.move_to_end(name)\n",
                "                pass\n",
            ),
            ("what was dropped counts on", "- (kept.size if kept else 0)", ""),
            (
                "one key's bytes are another's",
                "total = self._sizes.get(caller, 0)",
                "total = sum(self._sizes.values())",
            ),
            (
                "what is too large empties the memory",
                "        if kept.size > self._size:\n            return\n",
                "",
            ),
            ("items weigh nothing", " + sum(map(len, self.items.values()))", ""),
        ],
    ),
    (
        "strata.server.generate",
        ("tests/server/responses/test_stream.py",),
        [
            (
                "the engine's taking of a request is not told",
                '        yield Part("", [], [])  # the engine has taken the request\n',
                "",
            ),
        ],
    ),
]
