"""Commuting effects: whether two effects of a row can be exchanged unseen, since their places differ.

A rank carries out a row's effects one after the other, and each of those below touches one place only:

    said     what leaves for other ranks, in the order in which it was said
    heard    what the rank's own machines will hear, at the end of their queue, when the row is over
    lent     slots, credits, permits and queues for them; who is given one hears it first, at the head of that queue
    told     what the engine is told: outcomes, releases, aux rows, links that come up or are lost
    done     what kernels and transports are to do, or to forget
    watched  which sends wait for which watermark

So two effects of different places leave the same behind in either order.  What connects and disconnects (`Dial`,
`BindLink` and their like) is in none of these places: what is said before a line is there is lost.  Nor is `FreeSpace`:
it raises the watermark, which is said with grants.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from kvproto.fsm.vocabulary import Event
from kvproto.protocol import effects as do

PLACES: dict[str, tuple[type, ...]] = {
    "said": (
        do.Send, do.Reply, do.Transmit, do.SendGrant, do.SendQueued, do.TransmitPages, do.TransmitAux, do.SayHello,
        do.SayWelcome, do.SayRefusal,
    ),
    "heard": (
        Event, do.StopSends, do.ConfirmTold, do.OpenWindow, do.OfferKv, do.OfferAux, do.WithdrawKv, do.StopGrants,
        do.DrainGrants, do.AskLinks, do.RaiseLinkUp, do.RaiseLinkDown, do.RaisePeerQuiet,
    ),
    "lent": (
        do.TakeSlot, do.FreeSlot, do.TakeCredit, do.FreeCredit, do.TakePermit, do.FreePermit, do.LeaveQueue,
        do.CancelSpace,
    ),
    "told": (do.AnnounceOutcome, do.AnnounceReleased, do.AnnounceLink, do.DeliverAux),
    "done": (do.LaunchGather, do.LaunchScatter, do.PostWrite, do.PreparePages, do.PostBatch, do.DropBatches),
    "watched": (do.WatchWatermark,),
}  # fmt: skip
WHY = "one is {}, the other {}: a rank keeps these apart, and nobody reads both"


def why_apart(one: Callable[..., Any], other: Callable[..., Any]) -> str:
    """Why it makes no difference which of two effects of a row comes first; "": it may."""
    mine, theirs = place_of(made_by(one)), place_of(made_by(other))
    return WHY.format(mine, theirs) if mine and theirs and mine != theirs else ""


def place_of(kind: type | None) -> str:
    """Return the place of such an object; "": none of these places."""
    found = (name for name, kinds in PLACES.items() if kind is not None and issubclass(kind, kinds))
    return next(found, "")


def made_by(effect: Callable[..., Any]) -> type | None:
    """Return the class that the function calls last, or returns as it came; None: that is not seen."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(effect))).body
    last = tree.body[-1] if isinstance(tree, ast.FunctionDef) else None
    made = last.value if isinstance(last, ast.Return) else None
    if isinstance(made, ast.Name):
        return Event if made.id == "e" else None
    if not isinstance(made, ast.Call):
        return None
    found = effect.__globals__.get(made.func.id) if isinstance(made.func, ast.Name) else None
    if isinstance(made.func, ast.Attribute):
        found = getattr(do, made.func.attr, None)
    return found if isinstance(found, type) else None
