"""Injected bugs: each is one replacement in one module, and tests that must fail with it.

`tests` are what `mutate.py` runs first to last until one fails. A replacement that changes no
behaviour does not belong here.
"""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from dataclasses import dataclass

from mutants_anthropic import ANTHROPIC
from mutants_chat import CHAT
from mutants_clients import CLIENTS
from mutants_disk import DISK
from mutants_engine import ENGINE
from mutants_experts import EXPERTS
from mutants_files import FILES
from mutants_kv import KV
from mutants_policies import POLICIES
from mutants_pulse import PULSE
from mutants_quantised import QUANTISED
from mutants_responses import RESPONSES
from mutants_rows import ROWS
from mutants_segment import SEGMENT
from mutants_states import STATES
from mutants_steer import STEER
from mutants_web import WEB

SCENES = "tests/cache"
RANDOM = "tests/props/test_cache_random.py"
PROPERTIES = "tests/props"


@dataclass(frozen=True)
class Mutant:
    """`old` occurs once in the module's source; `why` says what the bug would do."""

    module: str
    why: str
    old: str
    new: str
    tests: tuple[str, ...] = (SCENES, RANDOM, PROPERTIES)


def _in(name: str, *bugs: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"strata.cache.{name}", *bug) for bug in bugs]


CACHE = [
    *_in(
        "trie",
        (
            "a claimed block is matched as if its rows existed",
            "if child is None or child.owner is not None:\n                break\n            node, at",
            "if child is None:\n                break\n            node, at",
        ),
        (
            "the last token of a prompt may come from the cache too",
            "rest = data[at : min(at + size, limit * TOKEN)]\n        beside, rows = node.children.nearest(rest)",
            "rest = data[at : at + size]\n        beside, rows = node.children.nearest(rest)",
        ),
        (
            "bytes in common are taken for tokens in common",
            "while a[at : at + TOKEN] == b[at : at + TOKEN]:\n        at += TOKEN\n    return at // TOKEN",
            "while a[at] == b[at]:\n        at += 1\n    return -(-at // TOKEN)",
        ),
        (
            "only one neighbour is looked at",
            "self.order[max(0, at - 1) : at + 1]",
            "self.order[at : at + 1]",
        ),
        (
            "the first claimed sibling is taken, not the nearest",
            "        if shared > rows:\n            best, rows = node, shared",
            "        if shared and not rows:\n            best, rows = node, shared",
        ),
        (
            "namespaces share one tree",
            "key = namespace.encode()\n        root = self.roots.get(key)",
            'key = b""\n        root = self.roots.get(key)',
        ),
        (
            "empty namespaces are kept for ever",
            "            self.roots.pop(node.key, None)",
            "            pass",
        ),
        (
            "a removed key stays in the order",
            "        del children.order[bisect_left(children.order, node.key)]\n",
            "",
        ),
        (
            "checkpoints on partial leaves are not found",
            "            if leaf.checkpoint is not None:\n                return leaf",
            "            pass",
        ),
    ),
    *_in(
        "policy",
        ("uses do not count", "(1 + hits) * saved", "(1 + 0 * hits) * saved"),
        ("age does not count", "return age + (1", "return 0 * age + (1"),
        ("the size does not count", "* saved / size", "* saved"),
        (
            "a value that has risen is not seen",
            "            if now <= known:\n                return item, now",
            "            return item, now",
        ),
        ("the heap grows for ever", "> 64 + 2 *", "> 10**9 + 2 *"),
    ),
    *_in(
        "pages",
        (
            "a node that is pinned can be evicted",
            "        node.pins += 1\n        self.candidates.discard(node)",
            "        node.pins += 1",
        ),
        (
            "what is unpinned is never evicted again",
            "        node.pins -= 1\n        self.offer(node)",
            "        node.pins -= 1",
        ),
        (
            "pinned leaves are candidates",
            "node.owner is None and not node.pins and not",
            "node.owner is None and not",
        ),
        (
            "inner nodes are candidates",
            " and not node.children.by_key:\n            if node.end",
            ":\n            if node.end",
        ),
        (
            "a parent left alone is never evicted",
            "        self.offer(node.parent)\n        self.give(node.page)",
            "        self.give(node.page)",
        ),
        (
            "the checkpoint of an evicted leaf leaks",
            "        self._worth.drop(node, emptied=why is CLEARED)\n",
            "",
        ),
        (
            "the clock stands still",
            "            node, self.clock = lowest",
            "            node, _ = lowest",
        ),
        (
            "using a prefix does not make it young",
            "each.age, each.used = clock, now",
            "each.used = now",
        ),
        (
            "partial leaves outlive their checkpoint",
            "if node.end % self.block and not self._worth.lost(node):",
            "if False and not self._worth.lost(node):",
        ),
    ),
    *_in(
        "parking",
        ("waiting has no bound", "self._counts.get(holder.id, 0) < WAITS", "True"),
        (
            "who has waited is woken too early",
            "reached is None or until <= reached",
            "reached is None or until <= reached + 1",
        ),
        (
            "who has waited is woken too late",
            "reached is None or until <= reached",
            "reached is None or until < reached",
        ),
        (
            "a dead owner wakes nobody",
            "if reached is None or until <= reached:",
            "if reached is not None and until <= reached:",
        ),
        ("the woken are woken again", "        self._woken.clear()\n", ""),
        (
            "who is forgotten is woken",
            "        owner = self._owners.pop(holder.id, None)\n        if owner is not None:",
            "        owner = self._owners.pop(holder.id, None)\n        if owner is not None and False:",
        ),
    ),
    *_in(
        "seal",
        (
            "blocks are published when they are planned",
            "while tip.end + self._block <= lease.computed_len:",
            "while tip.end + self._block <= min(len(lease.pages) * self._block, "
            "len(lease.holder.tokens)):",
        ),
        (
            "only the first block of a step is sealed",
            "while tip.end + self._block <= lease.computed_len:",
            "if tip.end + self._block <= lease.computed_len:",
        ),
        (
            "the old tip stays pinned",
            "            self._pages.unpin(first)\n",
            "",
        ),
        (
            "a sealed page is freed by its writer",
            "            lease.owned.remove(page)\n            return self._seal",
            "            return self._seal",
        ),
        (
            "a page that another reads is exchanged",
            "        if any(theirs in other.pages[index : index + 1] for other in self._leases.values()):"
            "\n            return False\n",
            "",
        ),
        (
            "second pages are never given back",
            "                    if lease.pages[(node.end - 1) // self._block] in lease.owned:",
            "                    if False:",
        ),
        (
            "dead partial leaves keep their pages",
            "            if leaf is not node and leaf.checkpoint is None:",
            "            if False:",
        ),
        (
            "partial leaves with a checkpoint are dropped",
            "if leaf is not node and leaf.checkpoint is None:",
            "if leaf is not node:",
        ),
        (
            "a leaf whose parent was a candidate leaves it one",
            "        self._pages.candidates.discard(parent)  # may be another's leaf that we have reached\n",
            "",
        ),
        (
            "a prompt is not shared to its end while its answer is written",
            "        if self._states.rows_alone():",
            "        if False:",
        ),
        (
            "claims outlive the prompt that made them",
            "        self.unclaim(lease)\n        return tuple(copies)",
            "        return tuple(copies)",
        ),
        (
            "the leaf at the end of a prompt takes the page that is still written",
            "if not lease.open and position == lease.computed_len and mine in lease.owned:",
            "if position == lease.computed_len and mine in lease.owned:",
        ),
        (
            "the rest of an answer is copied at its end, not kept",
            "if not lease.open and position == lease.computed_len and mine in lease.owned:",
            "if False:",
        ),
        (
            "one row too few is copied",
            "copies.append(PageCopy(mine, page, rows))",
            "copies.append(PageCopy(mine, page, max(1, rows - 1)))",
        ),
    ),
    *_in(
        "opening",
        (
            "what is copied from can be evicted by the copy's own page",
            "        for node in [tip, *sources] if tip else sources:\n            self._pages.pin(node)",
            "        sources = []\n        if tip:\n            self._pages.pin(tip)",
        ),
        (
            "a refused request keeps its pin",
            "        if tip is not None and isinstance(answer, Full):\n            self._pages.unpin(tip)\n",
            "",
        ),
        (
            "the copied page leaks",
            "        lease.pages.append(page)\n        lease.owned.add(page)\n        assert",
            "        lease.pages.append(page)\n        assert",
        ),
        (
            "pages reserved in vain are kept",
            "                for extra in lease.pages[had:]:\n                    self._pages.give(extra)",
            "                for extra in lease.pages[had:]:\n                    pass",
        ),
        (
            "one page too few",
            "* self._pages.block < planned_len:",
            "* self._pages.block < planned_len - 1:",
        ),
        (
            "what is resumed inside of a block is not copied",
            "(PageCopy(source.page, page, resume.rows),)",
            "()",
        ),
        (
            "shared rows may be written",
            "writable_from=tip.end if tip else 0",
            "writable_from=0",
        ),
        (
            "the last leaf cannot become its reader's page",
            "            while source in sources:\n                sources.remove(source)",
            "            while False:\n                sources.remove(source)",
        ),
    ),
    *_in(
        "prefix",
        (
            "uncached requests look up",
            "        if not holder.cached:\n            return self._opener",
            "        if False:\n            return self._opener",
        ),
        (
            "an urgent request waits for a slow one",
            "if owner.holder.priority < holder.priority:",
            "if False:",
        ),
        (
            "nobody ever waits",
            "        owner = match.pending.owner if match.pending else None\n        if owner is None or",
            "        owner = None\n        if owner is None or",
        ),
        (
            "nothing is announced",
            "            self._sealer.claim(answer.lease, data)\n",
            "",
        ),
        (
            "who may run is woken as if it waited",
            "            self._parking.forget(holder)\n            self._sealer",
            "            self._sealer",
        ),
        (
            "waiters sleep until the owner ends",
            "        self._parking.wake(lease, computed_len)\n",
            "",
        ),
        (
            "what was computed is sealed at the end only",
            "        self._sealer.blocks(lease)\n        copies",
            "        copies",
        ),
        (
            "the end of a prompt is not noticed",
            "prompt_ends = before < lease.target <= computed_len",
            "prompt_ends = False",
        ),
        (
            "a failed step is released",
            "        if lease.open:\n            lease.open = False\n            self._close(lease)",
            "        self.release(lease, len(lease.pages) * self.block)",
        ),
        (
            "discard is not idempotent",
            "        if lease.open:\n            lease.open = False\n            self._close(lease)",
            "        if True:\n            lease.open = False\n            self._close(lease)",
        ),
        (
            "what a sequence leaves behind is thrown away",
            "            for position, slot in self._states.parting(lease):\n"
            "                self._attach(lease, position, slot, copies)\n",
            "            self._states.abandon(lease)\n",
        ),
        (
            "claims outlive their owner",
            "        self._sealer.unclaim(lease)\n",
            "",
        ),
        (
            "a dead owner's followers are not woken",
            "        self._parking.wake(lease)\n",
            "",
        ),
        (
            "private pages leak",
            "        for page in lease.owned:\n            self._pages.give(page)\n",
            "",
        ),
        (
            "the tip stays pinned for ever",
            "            self._pages.unpin(lease.tip)\n",
            "",
        ),
        (
            "what a queued request wants grows old",
            "        self._pages.touch(match.node, 0)\n        if match.beside",
            "        if match.beside",
        ),
        (
            "who reads is not asked for a checkpoint by who queues",
            "            self._states.ask(match.pending.owner, match, resume)",
            "            pass",
        ),
    ),
    *_in(
        "placing",
        (
            "the stable end is not kept",
            "places = [holder.stable_len, *",
            "places = [*",
        ),
        (
            "anchors are not kept",
            "*sorted(holder.anchors, reverse=True)]",
            "]",
        ),
        (
            "branch points are not kept",
            "        places.append(match.sealed_len)",
            "        pass",
        ),
        (
            "the end of the prompt is not kept",
            "    places.append(last)\n",
            "",
        ),
        (
            "nothing rolls",
            "return border if due and border > start and lease.tip is not None else 0",
            "return 0",
        ),
    ),
    *_in(
        "checkpoints",
        (
            "a live state begins as the last one left it",
            "() if live is None else (StateCopy(None, live),)",
            "()",
        ),
        (
            "the checkpoint to restore can be evicted for the live slot",
            "        self.kept.discard(node)  # taking the slot must not evict what is to be copied into it\n",
            "",
        ),
        (
            "a restored state is not copied",
            "return live, (StateCopy(source.slot, live),)",
            "return live, ()",
        ),
        (
            "the last slot is never moved",
            "        if live is None:  # the last slot: the state itself moves\n"
            "            node.checkpoint = None",
            "        if live is None:\n            self.kept.set(node, self._value(node))\n"
            "            return None, ()  # type: ignore[return-value]\n"
            "            node.checkpoint = None",
        ),
        (
            "a place that is past is promised",
            "if wish > hold.planned_len and len(ahead) < CAPTURES:",
            "if len(ahead) < CAPTURES:",
        ),
        (
            "nobody is asked for a checkpoint",
            "            ahead.append(wish)",
            "            pass",
        ),
        (
            "rows beyond the state count as resumed",
            "return Resume(node.end, source,",
            "return Resume(max(node.end, match.node.end), source,",
        ),
        (
            "captures fall one token late",
            "taken.append(Capture(row, place - start, place, slot))",
            "taken.append(Capture(row, min(count, place - start + 1), place, slot))",
        ),
        (
            "what was reserved and not written leaks",
            "        self._free.extend(c.slot for c in hold.reserved if c.slot != hold.tail)\n",
            "",
        ),
        (
            "what was reserved and not written is attached",
            "        hold.reserved = tuple(capture for capture in hold.reserved if capture not in done)\n"
            "        self._return_reserved(hold)\n",
            "        done, hold.reserved = list(hold.reserved), ()\n",
        ),
        (
            "the rolling checkpoint counts before it is written",
            "        hold.tail_len = 0  # not true again before the step has been committed",
            "        hold.tail_len = place",
        ),
        (
            "rolling checkpoints are never given up for a row",
            "            elif (tail := self._least_tail()) is not None:\n                self._rob(tail[0])\n",
            "",
        ),
        (
            "a worthless capture evicts a precious one",
            "        elif lowest[1] > worth:",
            "        elif False:",
        ),
        (
            "a second checkpoint of a place leaks",
            "        if node is None or node.checkpoint is not None:\n            self._free.append(slot)",
            "        if node is None or node.checkpoint is not None:\n            pass",
        ),
        (
            "a failed sequence's state leaks",
            "        self._free.append(hold.live)\n",
            "",
        ),
        (
            "what is saved is counted from the start",
            "return node.end - (below.end if below else 0)",
            "return node.end",
        ),
    ),
]

MUTANTS: list[Mutant] = CACHE + [
    Mutant(module, *bug, tests)
    for module, tests, bugs in [
        *ENGINE,
        *ANTHROPIC,
        *STATES,
        *CLIENTS,
        *CHAT,
        *STEER,
        *WEB,
        *DISK,
        *ROWS,
        *POLICIES,
        *PULSE,
        *EXPERTS,
        *FILES,
        *KV,
        *QUANTISED,
        *RESPONSES,
        *SEGMENT,
    ]
    for bug in bugs
]
