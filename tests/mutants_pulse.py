"""Injected bugs of what the Monitor is told: views, rates, streams, the tree, metrics and traces."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

WINDOW = ("tests/engine/test_window.py",)
MONITOR = ("tests/server/test_monitor.py",)
LIVE = ("tests/server/test_monitor_live.py",)
RATES = ("tests/server/test_rates.py",)
SURVEY = ("tests/cache/test_survey.py",)
SUMS = ("tests/server/test_monitor_sums.py", "tests/server/test_facts.py")

PULSE: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.engine.window",
        WINDOW,
        [
            ("who comes is seen a tenth of a second later", "places == self._places and not reading", "not reading"),
            ("a reading row stands still", "self._places and not reading:", "self._places:"),
            ("every step lays rows out", "if now < self._due and places", "if places"),
            ("decoding rows are shown once", "if now < self._due and places", "if places != () and places"),
            ("parked rows are not shown", "(*running, *parked.values(), *queue)", "(*running, *queue)"),
            ("all rows have a part in the step", "sequence.live(sequence.id in stepping)", "sequence.live(True)"),
        ],
    ),
    (
        "strata.engine.sequence",
        WINDOW,
        [
            ("a preempted row seems to decode while it reads", "times.first is None or self.todo > 1", "times.first is None"),
            ("progress goes beyond the prompt", "            min(self.computed_len, self.prompt_len),\n            self.read_tokens", "            self.computed_len,\n            self.read_tokens"),
            ("the end of a grammar is told as a token", "ended = last in self.request.stop_token_ids", "ended = True"),
            ("a wait that ended twice counts twice", "            self.parked = None\n", ""),
        ],
    ),
    (
        "strata.engine.core",
        WINDOW,
        [
            ("the last view has a row that ended", "        self.show(grants)\n", "        if schedule.admitted: self.show(grants)\n"),
            ("a wait never ends", "            sequence.times.end_wait(begun)\n", "            pass\n"),
            ("a stop is told as a client that left", "reason = _LEFT if finish is Finish.CANCELLED else _COMPLETE", "reason = _LEFT"),
        ],
    ),
    (
        "strata.engine.loop",
        WINDOW,
        [("who was cancelled last stays in view", "        if not self.core.busy:\n            self.core.show()\n", "")],
    ),
    (
        "strata.engine.stats",
        (*WINDOW, *SUMS),
        [
            ("numbers stand still", "        self.ended += 1\n", ""),
            ("a spread forgets", "            self.spreads[name] = spread.add(getattr(told, name))", "            spread.add(getattr(told, name))"),
        ],
    ),
    (
        "strata.server.monitor.rates",
        RATES,
        [
            ("a long step is told as standstill", "return self.speed if view.rows else Speed(0.0, 0.0, None)", "return Speed(0.0, 0.0, None)"),
            ("idle time slows the first second", "before.stepped if before.rows else max(before.at, before.stepped)", "before.stepped"),
            ("a step under way counts as time", "(view.stepped if view.rows else now) - begun", "now - begun"),
            ("rates of long ago are told", "if now - seen > _OLD_S:", "if False:"),
            ("a row's rate never falls", "min(known, 1 / waited)", "known"),
            ("the first token counts as time", "(row.output - 1) / (row.last - row.first)", "row.output / (row.last - row.first)"),
        ],
    ),
    (
        "strata.server.monitor.snapshot",
        MONITOR,
        [
            ("every row is loading", "counts.loading and row.stepping", "counts.loading"),
            ("a GPU's hits have those of RAM", "told.device if tier == _GPU else told.device + told.host", "told.device + told.host"),
            ("free pages are used", "size * (total - free)", "size * total"),
            ("the failed engine is loading", '"failed" if failed else ', ""),
            ("reading is answering", 'if any(row.status == "decoding"', 'if any(row.status == "reading"'),
            ("a row's age is its arrival", '"age_s": now - begun', '"age_s": begun'),
        ],
    ),
    (
        "strata.server.monitor.pulse",
        (*MONITOR, *LIVE),
        [
            ("who ended is shown twice", "if row.id not in ended)", ")"),
            ("a failed engine's rows stay", "engine.view() if engine.error is None else View()", "engine.view()"),
            ("each event has the last hundred", "            since = beat.last\n", ""),
            ("the first event is unbounded", "new = self.records[:FIRST]", "new = self.records"),
            ("what is beyond a hundred is lost", "for record in self.records if", "for record in self.records[:FIRST] if"),
            ("each watcher builds", "            if self._task is None or self._task.done():\n", "            if True:\n"),
            ("a stream outlives its server", "        return None if self._closed else self._beat", "        return self._beat"),
            ("a watcher that leaves is a client that left early", "        exchange.gone = False  #", "        #"),
            ("an old beat is told", "        if self._beat is not None and time.monotonic() - self._beat.at > _FRESH * self._beat_s:\n            self._beat = None\n", ""),
        ],
    ),
    (
        "strata.cache.survey",
        SURVEY,
        [
            ("a stretch goes through a branch", "len(order := nodes[-1].children.order) == 1", "len(order := nodes[-1].children.order) >= 1"),
            ("another's text is told", "    if root.key != namespace.encode():\n        return None\n", ""),
            ("the oldest come first", "(-head.used, next(order)", "(head.used, next(order)"),
            ("states take no bytes", " + states * sizes[1]", ""),
            ("there is no end of depth", "        if level < depth:\n            push", "        if level:\n            push"),
            ("there is no end of stretches", "len(found) < limit and ", ""),
            ("who runs deeper does not run here", "for lease in leases if lease.tip for node in lease.tip.path()", "for lease in leases if lease.tip for node in [lease.tip]"),
        ],
    ),
    (
        "strata.cache.trie",
        SURVEY,
        [("what is gone can be read", "        self.named.pop(node.number, None)\n", "")],
    ),
    (
        "strata.cache.pages",
        SURVEY,
        [
            ("what was emptied had to make room", "self.drop(lowest[0], CLEARED)", "self.drop(lowest[0], ROOM)"),
            ("time stands still", "each.age, each.used = clock, now", "each.age = clock"),
        ],
    ),
    (
        "strata.cache.checkpoints",
        SURVEY,
        [("what was emptied went with a page", "_CLEARED if emptied else _PAGE", "_PAGE")],
    ),
    (
        "strata.server.monitor.cache",
        LIVE,
        [
            ("another's salt is open", 'namespace(caller, query.get("cache_salt"))', 'caller + "\\n" + query.get("cache_salt", "s")'),
            ("everything is one's own", '"own": stretch.namespace == caller', '"own": True'),
            ("the bound of a number is not held", " and 1 <= int(value) <= most", ""),
        ],
    ),
    (
        "strata.server.metrics",
        SUMS,
        [
            ("reasons keep the engine's words", "FINISHED.get(finish, finish)", "finish"),
            ("who waits for a prefix is not waiting", "now.queued + now.parked", "now.queued"),
            ("buckets are not cumulative", "accumulate(spread.counts)", "spread.counts"),
        ],
    ),
    (
        "strata.server.monitor.machine",
        ("tests/server/test_machine.py",),
        [
            ("rates are since the start", "        before, self._disk = self._disk, now\n", "        before = self._disk\n        self._disk = self._disk or now\n"),
            ("a lost GPU takes the others with it", "except nvml.NVMLError:", "except ZeroDivisionError:"),
            ("hidden disks are an error", "except (OSError, RuntimeError):", "except ValueError:"),
        ],
    ),
    (
        "strata.server.monitor.traces",
        ("tests/server/test_traces.py",),
        [
            ("everything is told again", "            self._told = record.number\n", ""),
            ("what ends at the end is lost", "            self._look()\n        self._look()", "            self._look()"),
            ("a wait is beside the queue", 'made("wait", begin, end, queue)', 'made("wait", begin, end, whole)'),
            ("the caller's trace is not gone on with", "if record.trace else {}", "if False else {}"),
            ("reading begins with the arrival", 'made("read", record.queue_s, ', 'made("read", 0.0, '),
        ],
    ),
    (
        "strata.cli.log",
        ("tests/cli/test_log.py", "tests/server/test_facts.py"),
        [
            ("the request's figures are left out", ' | getattr(record, "request", {})', ""),
            ("a failure has no trace", "        if record.exc_info:\n", "        if False:\n"),
        ],
    ),
]  # fmt: skip
