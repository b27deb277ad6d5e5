"""`strata trace record MODEL --out FILE` serves and records which experts are looked up;
`strata trace replay FILE` says what each policy would have made of it, without the model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from strata.cli import flags, serve
from strata.cli.terminal import columns
from strata.experts import replay, trace
from strata.experts.policies import POLICIES, make
from strata.experts.replay import BOUNDS, Outcome
from strata.types import ConfigError

ABOUT = "record which experts a model uses; compare policies on such a record"
_HEAD = ("slots", "policy", "hit rate", "of best", "by entries", "GB read", "evicted", "passed")
_BEST = BOUNDS[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two commands of their own."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    about = "serve, and write every lookup of experts to a file"
    record = commands.add_parser("record", help=about, description=flags.sentence(about))
    flags.add_settings(record, without={"expert_trace"})
    record.add_argument("--out", type=Path, required=True, metavar="FILE", help="what to write")
    record.set_defaults(act=_record)
    about = "the hit rates of policies, and of what no policy can beat"
    again = commands.add_parser("replay", help=about, description=flags.sentence(about))
    again.add_argument("file", type=Path, metavar="FILE", help="what `trace record` wrote")
    again.add_argument(
        "--policy",
        action="append",
        choices=POLICIES,
        help=f"only this one, repeat for several: {', '.join(POLICIES)} (default: all)",
        metavar="NAME",
    )
    again.add_argument(
        "--sizes",
        type=_shares,
        default=(0.05, 0.1, 0.25, 0.5),
        metavar="SIZES",
        help="parts of all experts that have slots (default: 5%%,10%%,25%%,50%%)",
    )
    again.add_argument(
        "--floor", type=int, default=0, metavar="N", help="--expert-floor of serve (default: 0)"
    )
    again.add_argument("--json", action="store_true", help="print all figures as JSON")
    again.set_defaults(act=_replay)


def run(chosen: argparse.Namespace) -> int:
    """One of the two."""
    status: int = chosen.act(chosen)
    return status


def _record(chosen: argparse.Namespace) -> int:
    """Serve with a trace."""
    if not chosen.out.absolute().parent.is_dir():
        raise ConfigError(f"--out: there is no folder {chosen.out.absolute().parent}")
    chosen.expert_trace = str(chosen.out)
    return serve.run(chosen)


def _shares(text: str) -> tuple[float, ...]:
    """`5%,10%` as parts of one."""
    shares = tuple(float(part.strip().removesuffix("%")) / 100 for part in text.split(","))
    if not all(0 < share <= 1 for share in shares):
        raise ValueError
    return shares


def _replay(chosen: argparse.Namespace) -> int:
    """Read, replay, print."""
    recorded = trace.read(chosen.file)
    if not recorded.lookups:
        raise ConfigError(f"{chosen.file} has no lookups: send the server requests and stop it")
    outcomes = [
        (share, outcome)
        for share in chosen.sizes
        for outcome in _outcomes(recorded, chosen.policy or list(POLICIES), share, chosen.floor)
    ]
    if chosen.json:
        found = [
            {"share": share, **asdict(one), "rate": one.rate, "entry_rate": one.entry_rate}
            for share, one in outcomes
        ]
        print(json.dumps({**asdict(recorded.head), "results": found}, indent=2))
        return 0
    head, lookups = recorded.head, recorded.lookups
    steps = len({one.step for one in lookups})
    print(f"{head.model}: {head.places} mixtures of {head.experts} experts, {steps} steps\n")
    print(_table(outcomes))
    return 0


def _outcomes(
    recorded: trace.Trace, names: list[str], share: float, floor: int
) -> Iterator[Outcome]:
    """Bounds first."""
    for name in BOUNDS:
        yield replay.bound(recorded, name, share)
    for name in names:
        yield replay.replay(recorded, partial(make, name, floor=floor), share)


def _table(outcomes: list[tuple[float, Outcome]]) -> str:
    """In columns, a blank line between sizes."""
    best = {share: one.rate for share, one in outcomes if one.policy == _BEST}
    rows = [
        (
            f"{100 * share:g} % ({one.slots})",
            one.policy,
            f"{100 * one.rate:.1f} %",
            f"{one.rate / best[share]:.3f}" if best[share] else "",
            f"{100 * one.entry_rate:.1f} %",
            f"{one.moved_bytes / 1e9:.2f}",
            str(one.evicted),
            str(one.passed),
        )
        for share, one in outcomes
    ]
    head, *cells = columns([_HEAD, *rows], left=2)
    lines, last = ["  ".join(head)], ""
    for row in cells:
        lines += [""] * (row[0] != last) + ["  ".join(row)]
        last = row[0]
    return "\n".join(lines)
