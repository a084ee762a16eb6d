"""End share: what travels at the end, cut by cache, for writes into rows without staging.

In the ring a room's state and windows are one part with a block for each cache.  Written straight into the peer's rows,
each cache is a copy of its own: it has its own table, its own rows and its own placement.  So a share of the end is one
share for each cache, of a plan between the two layouts of that cache alone, and byte runs, kernels and costs need to
know nothing else of it.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from kvproto.layout.cut import in_block
from kvproto.layout.placement import Placement, closed_between
from kvproto.layout.plan import Plan, Share


class EndShare(msgspec.Struct, frozen=True):
    """One cache of a share of what travels at the end."""

    #: its number among `Layout.ends`
    at: int
    #: between the two layouts of this cache
    plan: Plan
    share: Share
    ours: Placement
    theirs: Placement


def end_shares(plan: Plan, share: Share, ours: Placement | None, theirs: Placement | None) -> tuple[EndShare, ...]:
    """Cut a share of `plan.state` by cache; only where `why_end_staged` is empty."""
    assert ours is not None
    assert theirs is not None
    assert plan.state is not None
    found = list[EndShare]()
    for at, block in enumerate(plan.state.prefill.blocks):
        mine = in_block(share, *block)
        if any(piece.units for piece in mine.pieces):
            found.append(EndShare(at, plan.end_plan(at), mine, ours.ends[at], theirs.ends[at]))
    return tuple(found)


@lru_cache(maxsize=256)
def why_end_staged(plan: Plan, share: Share, ours: Placement | None, theirs: Placement | None) -> str:
    """Say why a share of `plan.state` is not written from rows to rows; empty: it may be.

    `ours` and `theirs`: the two ranks' placements.
    """
    if closed := closed_between(ours, theirs):
        return closed
    for side, placement in (("prefill", ours), ("decode", theirs)):
        if placement is None or not placement.ends:
            return f"the {side} rank has not opened what travels at the end"
    for near, far in zip(plan.prefill.ends, plan.decode.ends, strict=True):
        if near.page_size != far.page_size:
            sizes = f"{near.page_size} tokens on the prefill side and {far.page_size} on the decode side"
            return f"pages of {near.name} have {sizes}"
    found = (closed_between(each.ours, each.theirs) for each in end_shares(plan, share, ours, theirs))
    return next(filter(None, found), "")
