"""Hit rates of every expert policy on traces, as the table of docs/experts.md.

Each cell is the hit rate over distinct experts, and behind it the part of what is possible: of
Belady's choice with bypass.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from strata.experts import trace
from strata.experts.policies import POLICIES
from strata.experts.replay import BOUNDS, bound, replay

SIZES = (0.05, 0.1, 0.25, 0.5)


def table(recorded: trace.Trace, sizes: tuple[float, ...]) -> str:
    """One line for each bound and policy, a column for each size."""
    best = [bound(recorded, BOUNDS[0], size).rate for size in sizes]
    lines = [
        f"| policy | {' | '.join(f'{100 * size:g} %' for size in sizes)} |",
        f"| --- |{' ---: |' * len(sizes)}",
    ]
    for name in (*BOUNDS, *POLICIES):
        rates = [
            (
                bound(recorded, name, size)
                if name in BOUNDS
                else replay(recorded, POLICIES[name], size)
            ).rate
            for size in sizes
        ]
        cells = [
            f"{100 * mine:.1f} ({mine / top:.2f})" for mine, top in zip(rates, best, strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        recorded = trace.read(path)
        head, lookups = recorded.head, recorded.lookups
        active = sum(len(one.experts) for one in lookups) / len(lookups)
        print(
            f"\n{path.stem}: {head.places} x {head.experts} experts, {len(lookups)} lookups of"
            f" {active:.1f} experts on average\n\n{table(recorded, SIZES)}"
        )


if __name__ == "__main__":
    main()
