"""Injected bugs of the expert store and its parts, in the form of `ENGINE`."""

# ruff: noqa: E501  (pieces of source are quoted as they stand)

from __future__ import annotations

from mutants_engine import Bug

STORE = "tests/experts/test_store.py"
TESTS = (STORE, "tests/props/test_experts.py")

EXPERTS: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.experts.waves",
        TESTS,
        [
            (
                "what a lookup found is not pinned",
                "            self._pin(tier, slots[found].tolist())\n",
                "",
            ),
            (
                "what is on its way is not pinned",
                "            self._pin(tier, [slot])\n            self._join",
                "            self._join",
            ),
            (
                "a lookup given up keeps its pins",
                "            self._unpin(tier, list(feed.pinned))",
                "            pass",
            ),
            (
                "a failed read counts as arrived",
                "                elif tier == self._last:\n                    raise StorageError(transfer.error)\n",
                "                elif tier == self._last:\n                    landed.append(position)\n",
            ),
            (
                "a failed ride is forgotten",
                "                    self._fall_back(position)\n            if tier",
                "                    pass\n            if tier",
            ),
            (
                "what is wanted is not hastened",
                "        self._shelf.copier(into).hasten(transfer)\n",
                "",
            ),
            (
                "the least wanted come first",
                'positions[np.argsort(self._counts[positions], kind="stable")]',
                'positions[np.argsort(-self._counts[positions], kind="stable")]',
            ),
            (
                "what is computed is computed again",
                "            self._feeds[tier].ready = []\n",
                "",
            ),
            (
                "reads wait until what is there is computed",
                "            for tier, feed in enumerate(self._feeds):\n                if feed.ready:\n                    return tier\n            if not any",
                "            if not any(feed.pending or feed.backlog for feed in self._feeds):\n                for tier, feed in enumerate(self._feeds):\n                    if feed.ready:\n                        return tier\n            if not any",
            ),
            (
                "guesses come before what is wanted",
                "        todo = [begun]\n",
                "        begun()\n        todo = [begun][:0]\n",
            ),
            (
                "rides without a slot are waited for",
                "            if not self._give_up_rides():\n                self._wait()",
                "            self._wait()",
            ),
            (
                "a read is told as found",
                "np.where(here[found], *lanes_here)",
                "np.where(here[found], lanes_here[0], lanes_here[0])",
            ),
            (
                "bytes moved are not counted",
                "            self.nbytes[self._way(tier)] += self._shelf.nbytes\n",
                "",
            ),
        ],
    ),
    (
        "strata.experts.residency",
        TESTS,
        [
            (
                "pinned keys are evicted",
                "(self._state == _KEPT) & (self._pins == 0)]",
                "(self._state == _KEPT)]",
            ),
            (
                "a failed transfer leaves its key",
                "                self._forget(slot)\n                self._state[slot], self._stays",
                "                self._state[slot], self._stays",
            ),
            (
                "a failed transfer is kept",
                "            if transfer.error is not None:\n",
                "            if False:\n",
            ),
            ("an evicted key keeps its address", "        self._addresses[key] = 0\n", ""),
            (
                "an address is there before the bytes",
                "        self._state[slot], self._stays[slot] = _COMING, stays\n",
                "        self._state[slot], self._stays[slot] = _COMING, stays\n        self._addresses[key] = stays * (self._begin + slot * self.arena.nbytes)\n",
            ),
            ("what passed is never free again", "        if over.any():\n", "        if False:\n"),
            (
                "moves can be read before they are over",
                "(state == _KEPT) | (state == _PASSING))\n        return found",
                "(state != _FREE))\n        return found",
            ),
            (
                "no slot is left to what passes",
                "return self.arena.slots - self.reserve - int",
                "return self.arena.slots - int",
            ),
            ("the policy is not told who leaves", "        self.policy.leave(key)\n", ""),
            ("the other end of a copy stays pinned", "            then()\n", ""),
        ],
    ),
    (
        "strata.experts.shelf",
        ("tests/experts/test_shelf.py", *TESTS),
        [
            (
                "a copy's source is not pinned",
                "        self.host.pin(source)\n",
                "        self.host.pin(source)\n        self.host.unpin(source)\n        self.host.pin([])\n",
            ),
            (
                "what is expected next is not spared",
                "            if len(others) >= len(wanted) - spare:\n",
                "            if False:\n",
            ),
            (
                "slots promised are promised twice",
                "spare = into.spare - promised",
                "spare = into.spare",
            ),
            (
                "guesses are urgent",
                "partial(self.read, key, target), self.nbytes, urgent)",
                "partial(self.read, key, target), self.nbytes, True)",
            ),
            (
                "everybody evicted is said to stay",
                "            into.evict(key)\n",
                "            pass\n",
            ),
        ],
    ),
    (
        "strata.experts.prefetch",
        TESTS,
        [
            ("a guess is not pinned", "            into.pin([slot])\n", ""),
            (
                "a guess is never given up",
                "            into.unpin([slot])\n",
                "            pass\n",
            ),
            (
                "guesses outlive the step",
                "            self.close(place, None)\n",
                "            pass\n",
            ),
            ("guesses stay", "stays=False, urgent=False", "stays=True, urgent=False"),
            (
                "a guess counts as used in any case",
                "(self.used if hit else self.wasted)[place] += 1",
                "self.used[place] += 1",
            ),
            (
                "guesses need no free slot",
                "            if not into.free:\n                continue\n",
                "",
            ),
        ],
    ),
    (
        "strata.experts.store",
        TESTS,
        [
            ("too few slots are accepted", "if slots < min(top_k, count):", "if slots < 1:"),
            (
                "one slot is kept for good",
                "min(passing, max(slots - 1, 1))",
                "min(passing, slots - 1)",
            ),
            (
                "experts computed at once are not counted",
                "        self._counts.lookup(place, chosen, DEVICE if",
                "        (place, chosen, DEVICE if",
            ),
            (
                "a lookup left unfinished is not ended",
                "            self._running.close()\n            self._running = None\n",
                "            self._running = None\n",
            ),
            (
                "a guess's bytes are nobody's",
                "                    self._counts.moved(following, way, moved[way], every)\n",
                "                    pass\n",
            ),
            (
                "a guess's bytes are the guesser's",
                "self._counts.moved(following, way",
                "self._counts.moved(place, way",
            ),
            (
                "everybody pays for every read",
                "bearers = own if own.any() else every",
                "bearers = every",
            ),
            (
                "the key of an expert is its number",
                "found = Waves(shelf, place * len(counts), ",
                "found = Waves(shelf, 0, ",
            ),
            (
                "a broken trace ends the step",
                "                self._trace = None\n",
                "                raise\n",
            ),
            (
                "active experts are entries",
                "self._active[place] += len(experts)",
                "self._active[place] += chosen.size",
            ),
            (
                "evictions are the place's that caused them",
                "gone = np.array(found.evicted, np.int64) // len(counts)",
                "gone = np.full(len(found.evicted), place)",
            ),
        ],
    ),
    (
        "strata.experts.counts",
        ("tests/experts/test_counts.py",),
        [
            (
                "rows begin one token late",
                "np.repeat(np.arange(rows) * 4, self._tokens)",
                "np.repeat(np.arange(rows) * 4, np.roll(self._tokens, 1))",
            ),
            (
                "a token's second choice is not counted",
                "self._row_of + lane[chosen]",
                "self._row_of + lane[chosen][:, :1]",
            ),
            ("tokens are counted, not entries", "self._tokens * chosen.shape[1]", "self._tokens"),
            ("bytes are lost in division", "    if missing:\n", "    if False:\n"),
            (
                "the smallest remainders are rounded up",
                "np.argsort(-(exact % whole)",
                "np.argsort((exact % whole)",
            ),
            (
                "rows share a wait alike",
                "seconds * (weights / weights.sum())",
                "seconds / len(weights)",
            ),
            (
                "a copy is not one",
                "other.entries, other.nbytes = self.entries.copy(), self.nbytes.copy()",
                "other.entries, other.nbytes = self.entries, self.nbytes",
            ),
            (
                "a step goes on with the last one's counts",
                "        self._by_row = Table(rows)\n",
                "        self._by_row = Table(rows) if rows != self.rows else self._by_row\n",
            ),
        ],
    ),
    (
        "strata.experts.lanes",
        ("tests/experts/test_lanes.py",),
        [
            (
                "the lightest ride",
                'np.argsort(-counts, kind="stable")',
                'np.argsort(counts, kind="stable")',
            ),
            (
                "the bus is not counted",
                "np.argmin(np.maximum(np.arange(len(counts) + 1) * (nbytes / rates.bus), left))",
                "np.argmin(left)",
            ),
            (
                "work is not counted",
                "host = np.maximum(nbytes / rates.host, counts[order] * (nbytes / rates.work))",
                "host = np.full(len(counts), nbytes / rates.host)",
            ),
            (
                "both lanes run in turn",
                "np.argmin(np.maximum(np.arange(len(counts) + 1) * (nbytes / rates.bus), left))",
                "np.argmin(np.arange(len(counts) + 1) * (nbytes / rates.bus) + left)",
            ),
            ("the newest measurement is everything", "_NEWEST = 0.1", "_NEWEST = 1.0"),
            (
                "the wrong rate learns",
                "experts * nbytes / self.host > entries",
                "experts * nbytes / self.host < entries",
            ),
        ],
    ),
    (
        "strata.engine.core",
        ("tests/engine/test_tiered.py",),
        [
            (
                "a failed step's experts are nobody's",
                "        finally:  # a failed step has moved experts too\n",
                "        except ZeroDivisionError:\n",
            ),
            (
                "a disk that fails is a fault of ours",
                "except StorageError as error:",
                "except ZeroDivisionError as error:",
            ),
        ],
    ),
]
