"""Injected bugs of how answers are split into reasoning, content and calls, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

SPLITS = ("tests/text/test_segment.py",)
READ = ("tests/text/test_segment.py", "tests/text/test_dialects.py")
FORCED = ("tests/text/test_tool_grammar.py",)

SEGMENT: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.text.segment",
        SPLITS,
        [
            ("blanks before a call are told", "        solid = text.rstrip()\n", "        solid = text\n"),
            ("blanks after a call begin the content", "else told.lstrip()", "else told"),
            ("blanks at the end of an answer are lost", "        if not self._called:\n            self._reader.tell(Kind.CONTENT, self._blank)\n", ""),
            ("blanks after the last call are told", "self._called, self._blank = True, \"\"", "self._blank = \"\""),
            ("a line break too many stays after reasoning", "for _ in range(2):", "for _ in range(1):"),
            ("the line break before reasoning stays", "        yield from self._reader.skip(_LINE)\n        if", "        if"),
            ("a prompt that opened reasoning is forgotten", "if opened or thinking:", "if opened:"),
            ("without reasoning in the prompt there is none", "if opened or thinking:", "if thinking:"),
            ("calls are read against the request's will", "if calls and tools else None", "if tools else None"),
            ("a think tag's letters end reasoning", "{marker(dialect.think_close, announced)}", "{marker(dialect.think_close, ())}"),
            ("an object in an answer's middle is a call", "first = self._called or not self._content", "first = True"),
            ("what is no call is lost", "self._say(self._reader.take(1))", "self._reader.take(1)"),
        ],
    ),
    (
        "strata.text.dialects.reader",
        SPLITS,
        [
            ("a match is not waited for", "            if self.ended:\n                return None\n            yield\n\n    def skip", "            return None\n            yield\n\n    def skip"),
            ("a beginning of a tag goes out", "put(self.take(before))\n            if self.ended:", "put(self.rest())\n            if self.ended:"),
            ("what is held at the end is lost", "                put(self.rest())\n                return False", "                return False"),
            ("announcements reach the client", 'return raw.replace(_ANNOUNCED, "")', "return raw"),
            ("only the first mark counts", "edges = [0, *marks, len(text)]", "edges = [0, *marks[:1], len(text)]"),
            ("what was read before a step back is lost", '"".join(self._kept) + self._text', "self._text"),
            ("calls all have one number", "        self._call += 1\n", "        self._call = 0\n"),
            ("letters are markers though tokens are announced", '(_ANNOUNCED if text in announced else f"{_ANNOUNCED}?")', 'f"{_ANNOUNCED}?"'),
        ],
    ),
    (
        "strata.text.dialects.json_text",
        READ,
        [
            ("raw line breaks break the JSON", 'put(quoted(piece) if piece < " " else piece)', "put(piece)"),
            ("an escaped quote ends a string", r"""\\(?:["\\/bfnrt]|u""", r"""\\(?:[\\/bfnrt]|u"""),
            ("words that are no JSON pass", "or (word is not None and not _SCALAR.fullmatch(word))", ""),
            ("half a number is told", "piece = reader.take(len(word or found[0]))", "piece = reader.take(len(found[0]))"),
            ("a list may hold keys", 'due = "key" if closing[-1] == "}" else "value"', 'due = "value"'),
            ("a comma may end an object", "rf'{_BLANK}|\"'", "rf'{_BLANK}|[\"}}]'"),
            ("a number with a leading 0 passes", "-?(?:0|[1-9][0-9]*)", "-?[0-9]+"),
            ("non-ASCII is escaped", "ensure_ascii=False", "ensure_ascii=True"),
        ],
    ),
    (
        "strata.text.dialects.schema",
        READ,
        [
            ("references are not followed", "groups.insert(0, [self._target(reference)])", "pass"),
            ("references that lead to themselves never end", "if reference in seen:", "if False:"),
            ("alternatives without end are followed", "if self._steps > 16 * _MOST or schema is False:", "if schema is False:"),
            ("oneOf says nothing", 'for key in ("anyOf", "oneOf")', 'for key in ("anyOf",)'),
            ("allOf says nothing", '[part] for part in items(schema.get("allOf"))', '[part] for part in items(schema.get("all"))'),
            ("Python's words are strings", "_PYTHON.get(text.strip(), text.strip())", "text.strip()"),
            ("NaN is a number", "json.loads(bare, parse_constant=_refuse)", "json.loads(bare)"),
            ("types do not count", "if any(_fits(value, leaf) for leaf in self.leaves):", "if True:"),
            ("true is an integer", '    if isinstance(value, bool):\n        return "boolean"\n', '    if isinstance(value, bool):\n        return "integer"\n'),
            ("5.5 is an integer", 'return "integer" if value.is_integer() else "number"', 'return "integer"'),
            ("an integer is no number", ' or (kind == "integer" and "number" in allowed)', ""),
            ("choices do not count", "    if listed is not None and json.dumps(value) not in map(json.dumps, listed):\n        return False\n", ""),
        ],
    ),
    (
        "strata.text.dialects.qwen_xml",
        READ,
        [
            ("the first closing tag ends a value", 'rf"(\\n?</parameter>){_NEXT}"', 'r"(\\n?</parameter>)"'),
            ("a value's last line break is lost with the template's", '_CLOSE = regex.compile(rf"(\\n?', '_CLOSE = regex.compile(rf"(\\n*'),
            ("the template's line break begins a value", "        yield from reader.skip(_LINE)\n        reader.argue(f", "        reader.argue(f"),
            ("unknown functions are called", "if name is None or name not in tools:", "if name is None:"),
            ("a name is a call without a body", "        if (yield from reader.match(_BODY, size)) is None:\n            return False\n", ""),
            ("optional strings do not stream", "bare = value.stringly and last not in value.starts", "bare = False"),
            ("closing tags in JSON end a value", "if last in '{[\"' and last in value.starts:", "if False:"),
            ("a call without parameters has no object", 'reader.argue("{}" if before == "{" else "}")', 'reader.argue("}")'),
            ("names with a bracket end at it", 'for name in known if ">" in name', 'for name in known if ">>" in name'),
            ("broken JSON is not read again", "        reader.back()\n        return None", '        return "".join(pieces)'),
        ],
    ),
    (
        "strata.text.dialects.hermes",
        READ,
        [
            ("arguments before the name are content", "return (yield from self._whole(reader, len(tagged[0]), tools))", "return False"),
            ("arguments as text are refused", "given = _loaded(given) if isinstance(given, str) else given", "given = given"),
            ("the closing tag is content", "yield from reader.skip(self._end if tagged else _FENCE_END)", "pass"),
            ("unknown functions are called", "or not isinstance(name, str) or name not in tools", "or not isinstance(name, str)"),
            ("a call that breaks is whole", "    if not (yield from json_text.value(reader, reader.argue)):\n        return False\n", "    yield from json_text.value(reader, reader.argue)\n"),
            ("what is no call after all is lost", "            reader.back()\n            return False", "            return False"),
        ],
    ),
    (
        "strata.text.dialects.llama3",
        READ,
        [
            ("the token before a call is not known", "if opened is None and first:", "opened = None\n        if first:"),
            ("calls are not parted by semicolons", '"{tag}|[;{{]"', '"{tag}|[{{]"'),
        ],
    ),
    (
        "strata.text.dialects.qwen_xml",
        FORCED,
        [
            ("a value may hold a closing tag", '& ~{inside}"', '"'),
            ("patterns do not bind", "if isinstance(leaf.get(\"pattern\"), str):", "if False:"),
            ("patterns are anchored", "{'' if begin else _ANYTHING}", ""),
            ("lengths do not bind", "least = least if isinstance(least, int) else 0", "least, most = 0, None"),
            ("required parameters may be missing", '("" if key in required else "?")', '"?"'),
            ("only what is declared can be written", "(*declared, *map(str, required))", "(*declared,)"),
            ("choices do not bind", "    if listed is not None:\n        texts", "    if False:\n        texts"),
            ("what nothing satisfies is compiled", "                if key not in required and not parameters.possible(inner):\n                    continue\n", ""),
            ("bare text may look like JSON", 'rf"[^\\s{starts}]{_ANYTHING}"', 'rf"{_ANYTHING}"'),
            ("what tags cannot say is forced", "if undone or \"object\" not in types(leaf):", "if False:"),
        ],
    ),
    (
        "strata.text.dialects.lark",
        FORCED,
        [
            ("blanks run on", "_WRITTEN = {\"whitespace_flexible\": False,", "_WRITTEN = {\"whitespace_flexible\": True,"),
            ("references lead nowhere", "for key in (\"$defs\", \"definitions\") if key in root", "for key in () if key in root"),
            ("arguments are any JSON", 'schema if "type" in schema else {"type": "object", **schema}', "schema"),
        ],
    ),
    (
        "strata.text.dialects",
        (*SPLITS, *FORCED),
        [
            ("one call at most", '" if parallel else ""', '" if False else ""'),
            ("any number of calls", '" if parallel else ""', '" if True else ""'),
            ("forced calls must be tokens", "self.tokens & {*_THINK} if forced else self.tokens", "self.tokens"),
            ("a template with tags in it speaks JSON", '    ("<function=", QwenXml),\n', ""),
            ("every model thinks", "thinks = any(", "thinks = True or any("),
        ],
    ),
    (
        "strata.text.stream",
        ("tests/text/test_stream.py",),
        [
            ("control tokens that are markers have no text", "self._tokenizer.token_bytes(token, marker)", "self._tokenizer.token_bytes(token)"),
            ("a mark stands before a broken character", "len(self._held) + len(new) - len(spelled.decode())", "len(self._held)"),
            ("marks of held text go out at once", "if mark < size)", ")"),
            ("held marks keep their old places", "[mark - size for mark", "[mark for mark"),
        ],
    ),
]  # fmt: skip
