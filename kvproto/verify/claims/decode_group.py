"""Decode group: the claims about a called prefill group.

The witness is what the engine and the rank know: the engine's last `connect`, whether it has let go of the group since, and
the prefill ranks to which there is a link.
"""

from __future__ import annotations

from kvproto.endpoint import group_table as gt
from kvproto.endpoint.group_table import Group as S
from kvproto.endpoint.group_table import GroupValue, decode_group
from kvproto.protocol.kinds import RankMask
from kvproto.verify.framework.claims import Claims, Ghost, Step, among, within


class DecodeGroup(Ghost, frozen=True):
    """The number of the last `connect`, whether it is `wanted` still, and a mask of ranks with a link."""

    call: int = 0
    wanted: bool = False
    links: RankMask = 0


group_claims: Claims[GroupValue, DecodeGroup] = Claims(decode_group, DecodeGroup)
holds, assumes, promises = group_claims.holds, group_claims.assumes, group_claims.promises
V = GroupValue


@group_claims.ghosts
def follow(step: Step) -> DecodeGroup:
    """A call makes links, and whoever ends one says so."""
    call, wanted, links, event = step.seen.call, step.seen.wanted, step.seen.links, step.event
    if isinstance(event, gt.ConnectCalled):
        call, wanted = event.call, True
    if isinstance(event, gt.DisconnectCalled):
        wanted = False
    if isinstance(event, gt.CloseCalled):
        wanted, links = False, 0
    for effect in step.all_of(gt.CallRanks):
        links = links | effect.ranks
    if isinstance(event, gt.LinkEnded):
        links = links & ~(1 << event.rank)
    return DecodeGroup(call, wanted, links)


# --------------------------------------------------------------------------------------- the invariant
holds()("It knows which ranks have a link.", lambda v, g: within(v.links, g.links) and within(g.links, v.links))
holds(S.PREPARING, S.CALLING, S.CALLED, S.UNLINKED)(
    "The engine wants it, and its call is the last one.", lambda v, g: g.wanted and v.call == g.call
)
holds(S.NEW, S.LEFT, S.GONE)("The engine has let go of it.", lambda v, g: not g.wanted)
holds(S.CALLED, S.LEFT)("Some rank has a link.", lambda v, g: bool(v.links))
holds(S.NEW, S.UNLINKED, S.GONE)("No rank has a link.", lambda v, g: not v.links)


# --------------------------------------------------------------------------------------- what others pay for
assumes(gt.LinkEnded, paid="The rank forgets a link once; a call that makes none is told before the next event.")(
    "The rank had a link, or was to get one.", lambda v, e, g: among(e.rank, g.links)
)
assumes(gt.DisconnectCalled, paid="`PrefillGroups.disconnect` and `GroupParty` look first.")(
    "The engine wants the group.", lambda v, e, g: g.wanted
)
assumes(gt.GroupPrepared, paid="A plan links a decode rank to some rank of each group.")(
    "There are ranks to call.", lambda v, e, g: bool(e.ranks)
)
assumes(gt.NameFound, paid="Names are looked up for links alone, and a link that ends is told.")(
    "The rank has a link, or it is known why not.",
    lambda v, e, g: v.call != e.call or among(e.rank, v.links) or among(e.rank, v.unlinked),
)


# --------------------------------------------------------------------------------------- the promises
promises("G1", gt.CallRanks)(
    "Ranks are called for the engine's last `connect` alone, and not if it has let go of the group.",
    lambda step, effect: step.seen.wanted and step.event.call == step.seen.call,
)
promises("G1", gt.LeaveRanks)(
    "Links are let go of when the engine lets go of the group.", lambda step, effect: not step.then.wanted
)


@promises("G2", on=(gt.LinkEnded,))
def tells_each_link_once(step: Step) -> bool:
    """A link that ends is logged once, as one that the engine wants or as one that it has let go of."""
    told = step.all_of(gt.TellUnlinked)
    return len(told) == 1 and told[0].rank == step.event.rank and told[0].left == (not step.seen.wanted)


promises("G2", on=(gt.LinkEnded, gt.GroupPrepared))(
    "The reason is known why a rank must do without a link.",
    lambda step: within(step.after.unlinked, step.before.unlinked) or step.after.why == step.event.why,
)
promises("G3")(
    "A group that was let go is not kept without a link.",
    lambda step: step.then.wanted or bool(step.after.links) or step.after.state in (S.NEW, S.GONE),
)
promises("G3", on=(gt.CloseCalled,))(
    "Nothing is kept, called or let go of when the endpoint is closed: the rank takes leave of all links.",
    lambda step: step.after.state in (S.GONE, S.NEW) and not (step.all_of(gt.CallRanks) or step.all_of(gt.LeaveRanks)),
)
promises("G3", gt.KeepUnlinked)(
    "A group that the engine wants and that has no link is counted.",
    lambda step, effect: step.after.state is S.UNLINKED,
)
