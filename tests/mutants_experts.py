"""Injected bugs of the expert store and its accounts, in the form of `ENGINE`."""

from __future__ import annotations

from mutants_engine import Bug

_STORE = ("tests/experts/test_store.py",)

EXPERTS: list[tuple[str, tuple[str, ...], list[Bug]]] = [
    (
        "strata.experts.waves",
        _STORE,
        [
            (
                "a slot found is not pinned",
                "            self._pin(tier, slots[found].tolist())\n",
                "",
            ),
            (
                "a lookup given up keeps its pins",
                "            self._unpin(tier, list(feed.pinned))\n",
                "            pass\n",
            ),
            ("a failed read is taken for good", "if transfer.error is None:", "if True:"),
        ],
    ),
    (
        "strata.experts.residency",
        _STORE,
        [
            ("an evicted key keeps its address", "        self._addresses[key] = 0\n", ""),
            (
                "a pinned slot may be evicted",
                "(self._state == _KEPT) & (self._pins == 0)",
                "self._state == _KEPT",
            ),
            ("what failed is kept", "if transfer.error is not None:", "if False:"),
        ],
    ),
    (
        "strata.experts.store",
        _STORE,
        [
            ("guesses outlive their step", "        self._guesses.clear()\n", ""),
            (
                "the bytes of guesses are nobody's",
                "                if moved[way]:\n",
                "                if False:\n",
            ),
            (
                "evictions are not counted",
                "self._evicted += np.bincount",
                "self._evicted = self._evicted * 0 + 0 * np.bincount",
            ),
        ],
    ),
    (
        "strata.experts.counts",
        _STORE,
        [
            ("rounding loses bytes", "    if missing:\n", "    if False:\n"),
            (
                "rows are counted for one token each",
                "entries[:, lane] = self._tokens *",
                "entries[:, lane] = 1 *",
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
