"""What of the disk's speed reaches the expert store: its reads against a plain direct reader.

Takes a folder that `strata pack` wrote. In turns, round after round: plain threads read random
records with direct I/O into memory that is there already; a store with few slots looks random
experts up, whose records it reads, keeps or passes on, and nobody computes anything with them.
Prints medians in MB/s and their ratio. See README.md.

    python bench/disk_rate.py FOLDER [--rounds 5] [--records 400]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from strata.experts.layout import Index
from strata.experts.policies import make
from strata.experts.store import ExpertStore, TierPlan
from strata.memory.arena import SlotArena
from strata.memory.transfer import ThreadCopier

GOAL = 0.85
TOGETHER = 32  # experts of one lookup


def plain(path: Path, offsets: list[int], size: int, depth: int) -> float:
    """Bytes/s of these records of one size, read by `depth` threads."""
    arena = SlotArena(8 * depth, size)
    arena.data.fill_(1)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def reader(first: int) -> None:
        for turn, offset in enumerate(offsets[first::depth]):
            slot = arena.data[first + depth * (turn % 8)].numpy()
            assert os.preadv(file, [slot.data], offset) == size

    began = time.perf_counter()
    with ThreadPoolExecutor(depth) as pool:
        list(pool.map(reader, range(depth)))
    seconds = time.perf_counter() - began
    os.close(file)
    return len(offsets) * size / seconds


def lookups(store: ExpertStore, draw: random.Random, records: int) -> float:
    """Bytes/s of lookups until that many records were read."""

    def read() -> int:
        return sum(place.use.disk_bytes for place in store.figures())

    places, experts = len(store.layout.places), store.layout.experts
    size, before = store.layout.places[0].record, read()
    began = time.perf_counter()
    while (got := read() - before) < records * size:
        chosen = np.array([draw.sample(range(experts), min(TOGETHER, experts))], np.int32)
        store.begin(np.array([0, 1], np.int32))
        for _ in store.source(draw.randrange(places)).waves(chosen, None):
            pass
        store.tally()
    return got / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where `strata pack` has put the records")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=400, help="records of a round")
    parser.add_argument("--depth", type=int, default=4, help="reads at once")
    options = parser.parse_args()
    index = Index.load(options.folder)
    layout = index.layout
    size = layout.places[0].record
    assert all(place.record == size for place in layout.places), "records of one size only"
    records = layout.open(options.folder / "experts.bin", index.sums)
    copier = ThreadCopier(options.depth)
    policy = make("value-density", len(layout.places), layout.experts)
    plan = TierPlan({size: 2 * TOGETHER}, policy, copier)
    store = ExpertStore(layout, records.read, plan, top_k=1, prefetch=False)
    draw, rates = random.Random(1), dict[str, list[float]]()
    count = len(records.sizes)
    print(f"checking {count} records first, so that no checksum is made below", file=sys.stderr)
    spare = SlotArena(1, size)
    for number in range(count):
        records.read(number, spare.data[0])
    for turn in range(options.rounds):
        for name in ("plain", "store")[:: 1 if turn % 2 else -1]:
            if name == "plain":
                offsets = [draw.randrange(count) * size for _ in range(options.records)]
                rate = plain(records.path, offsets, size, options.depth)
            else:
                rate = lookups(store, draw, options.records)
            rates.setdefault(name, []).append(rate / 1e6)
    copier.close()
    records.close()
    own, bare = (statistics.median(rates[name]) for name in ("store", "plain"))
    verdict = "reached" if own / bare >= GOAL else "MISSED"
    print(f"records of {size / 1e6:.2f} MB, {options.depth} reads at once, {options.rounds} rounds")
    print(f"plain direct reads {bare:.0f} MB/s, the store {own:.0f} MB/s: {own / bare:.2f}"
          f" (goal {GOAL}, {verdict})")  # fmt: skip


if __name__ == "__main__":
    main()
