"""Where checkpoints are worth taking: the places a prompt wants, and those of its rolling one.

Pure functions of lengths. Knows no slots: whether there is one left to take is not asked here.
"""

from __future__ import annotations

from strata.cache.lease import Holder, Lease
from strata.cache.states import Resume
from strata.cache.trie import Match

CAPTURES = 6  # Captures ahead of one prompt at any time, the wishes of waiting sequences included.
RUNG = 8192  # A prefill renews its rolling checkpoint when it crosses a multiple of so many tokens.


def pays(position: int, resume: Resume, block: int) -> bool:
    """A state here would save a block's worth of tokens: less is not worth a copy."""
    return position - resume.position >= block


def wanted(holder: Holder, match: Match, resume: Resume, block: int) -> list[int]:
    """In order of value: stable end, anchors from the last, branch point, prompt's end."""
    last = holder.prompt_len - 1  # one token must remain when the same prompt comes again
    places = [holder.stable_len, *sorted(holder.anchors, reverse=True)]
    if pays(match.sealed_len, resume, block):  # a second one proves that this is shared
        places.append(match.sealed_len)
    places.append(last)
    within = (p for p in places if resume.position < p <= holder.prompt_len)
    return list(dict.fromkeys(within))[:CAPTURES]


def rolling_place(lease: Lease, start: int, end: int, block: int) -> int:
    """The block border at which a step from `start` to `end` renews the rolling checkpoint, or 0:
    always while decoding, when a rung is crossed while reading.
    """
    border = end - end % block
    decoding = start >= lease.target
    due = decoding or start // RUNG != end // RUNG
    return border if due and border > start and lease.tip is not None else 0
