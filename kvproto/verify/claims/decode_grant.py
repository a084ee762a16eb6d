"""Decode grant: invariants of a decode rank's grant.

The witness knows two things that the value alone does not tell: the group of writers that the two sides agreed on, and
which region of the ring is given out to this chunk and not given back; and whether the room has failed.  All that a writer is ever told, and all that is
scattered or freed, is measured against it.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.kinds import RankMask
from kvproto.protocol.messages import ChunkAck, StagingRefused
from kvproto.protocol.states import DGrant as S
from kvproto.protocol.tables.decode_grant import DGrantValue, decode_grant
from kvproto.verify.framework.claims import Claims, Ghost, Step, among, apart, in_order, within


class Seen(Ghost, frozen=True):
    """The witness of a grant.

    `agreed`: the chunk's writers (set); `region`: the ring region that it holds (0: none); `queues`: it queues for one;
    `stopped`: the room has failed.
    """

    agreed: RankMask = 0
    region: int = 0
    queues: bool = False
    stopped: bool = False


grant_claims: Claims[DGrantValue, Seen] = Claims(decode_grant, Seen)
holds, assumes, promises = grant_claims.holds, grant_claims.assumes, grant_claims.promises
V = DGrantValue
BEGUN = (S.AWAIT_WRITERS, S.AWAIT_SPACE, S.FILLING, S.FILLING_PAGES, S.SCATTERING, S.QUARANTINED)
OPEN = (S.AWAIT_WRITERS, S.AWAIT_SPACE, S.FILLING, S.FILLING_PAGES)


@grant_claims.ghosts
def follow(step: Step) -> Seen:
    """Regions come with `SpaceReserved` and go with `FreeSpace`."""
    seen, event = step.seen, step.event
    agreed, region, queues = seen.agreed, seen.region, seen.queues
    if step.before.state is S.NEW and isinstance(event, ev.StagingRequested | ev.PagesRequested):
        agreed = event.writers
    if isinstance(event, ev.SpaceReserved):
        region, queues = event.grant, False
    if isinstance(event, ev.SpaceDenied) or step.all_of(do.CancelSpace):
        queues = False
    if step.all_of(do.ReserveSpace):
        queues = True
    if step.all_of(do.FreeSpace):
        region = 0
    return Seen(agreed, region, queues, seen.stopped or isinstance(event, ev.RoomStopped))


# --------------------------------------------------------------------------------------- the invariant
holds(*BEGUN)(
    "Its writers are those of the plan, and there are some.", lambda v, g: v.writers == g.agreed and bool(g.agreed)
)
holds(*BEGUN)(
    "Every writer that asked, arrived or goes by pages is one of the agreed writers.",
    lambda v, g: within(v.asked, g.agreed) and within(v.arrived, g.agreed) and within(v.by_pages, g.agreed),
)
holds(S.AWAIT_SPACE)(
    "It queues without a region; parts by pages alone are in place, and a writer has not given it up.",
    lambda v, g: g.queues and not v.grant and within(v.arrived, v.by_pages) and v.by_pages != v.writers,
)


@holds(S.AWAIT_WRITERS)
def waits_for_a_writer(v: V, g: Seen) -> bool:
    """Some writers have asked and some not; only parts by pages, requested by their writers, are in place."""
    some = v.asked > 0 and v.asked != v.writers
    return some and not v.grant and within(v.arrived, v.by_pages) and within(v.by_pages, v.asked)


holds(S.AWAIT_SPACE, S.FILLING, S.SCATTERING, S.QUARANTINED)(
    "It queues for a region, or has one, because every writer has asked: the KV of all was computed.",
    lambda v, g: v.asked == v.writers,
)
holds(S.FILLING, S.SCATTERING, S.QUARANTINED)(
    "The region that it names is its own, and somebody has not given it up.",
    lambda v, g: v.grant > 0 and v.grant == g.region and v.by_pages != v.writers,
)
holds(S.FILLING_PAGES)(
    "Every writer whose part is not in place goes by pages.", lambda v, g: within(v.writers & ~v.arrived, v.by_pages)
)
holds(S.FILLING)(
    "Some writer has not given the region up, and its part is not in place.",
    lambda v, g: bool(v.writers & ~v.by_pages & ~v.arrived),
)
holds(S.SCATTERING)("It knows whether the room has failed.", lambda v, g: v.over == g.stopped)
holds(*OPEN)("The room has not failed.", lambda v, g: not v.over and not g.stopped)
holds(S.AWAIT_WRITERS, S.AWAIT_SPACE, S.FILLING_PAGES, S.FREED)(
    "It has nothing of the ring.", lambda v, g: not g.region
)
holds(S.AWAIT_WRITERS, S.FILLING, S.FILLING_PAGES, S.SCATTERING, S.QUARANTINED, S.FREED)(
    "It queues for nothing.", lambda v, g: not g.queues
)
holds(*OPEN)("Some writer's part is not in place.", lambda v, g: v.arrived != v.writers)
holds(S.SCATTERING)(
    "The part of every writer that stages is in place.", lambda v, g: within(v.writers & ~v.by_pages, v.arrived)
)


# -------------------------------------------------------------------------------------- the assumptions
@assumes(ev.StagingRequested, ev.PagesRequested, paid="rank: `region_asked`, `pages_asked`; decode_room: `open_grant`, `open_grant_over_pages`")
def writers_of_the_plan(v: V, e: ev.StagingRequested | ev.PagesRequested, g: Seen) -> bool:
    """The event names the writers of the plan, which are some."""
    return bool(e.writers) and (v.state == S.NEW or e.writers == g.agreed)


assumes(ev.StagingRequested, ev.PagesRequested, paid="decode_room: `of_plan`, `of_plan_over_pages`")(
    "The writer that opens a grant is one of its writers.", lambda v, e, g: v.state != S.NEW or among(e.peer, e.writers)
)
assumes(ev.SpaceReserved, ev.SpaceDenied, ev.SpaceQueued, paid="rank: only what queues is served")(
    "The ring answers those that queue.", lambda v, e, g: g.queues
)
assumes(ev.SpaceReserved, paid="ring: ids count from 1")("A region has a number above 0.", lambda v, e, g: e.grant > 0)


# ---------------------------------------------------------------------------------------- the promises
@promises("S1", do.SendGrant)
def told_only_to_its_writers(step: Step, effect: do.SendGrant) -> bool:
    """A region is told while it is held, as it is, and only to writers that have not given it up."""
    after = step.after
    return (
        effect.grant == step.then.region and effect.grant > 0 and effect.offset == after.offset
        and effect.end == after.end and within(effect.peers, step.seen.agreed) and apart(effect.peers, after.by_pages)
    )  # fmt: skip


@promises("S2", do.TransmitPages)
def pages_only_for_parts_to_come(step: Step, effect: do.TransmitPages) -> bool:
    """Pages go, by the request's link, to a writer without a part in place that gave the region up."""
    e, after = step.event, step.after
    asked = effect.link == e.link and effect.epoch == e.epoch and effect.cut == after.cut
    return asked and not among(e.peer, step.before.arrived) and among(e.peer, after.by_pages)


@promises("S12")
def keeps_its_chunk(step: Step) -> bool:
    """Tokens and layers are those that it was opened with, and the ring is asked for as much."""
    opens = step.before.state is S.NEW and step.after.state is not S.NEW
    reserved = all(each.cut == step.after.cut for each in step.all_of(do.ReserveSpace))
    return step.after.cut == (step.event.cut if opens else step.before.cut) and reserved


@promises("S3", do.LaunchScatter)
def scatters_what_all_have_written(step: Step, effect: do.LaunchScatter) -> bool:
    """A scatter begins when every staged part is in place, and reads its region with all those parts."""
    after, agreed = step.after, step.then.agreed
    return (
        within(effect.writers, after.arrived) and effect.writers == agreed & ~after.by_pages and bool(effect.writers)
        and effect.offset == after.offset and step.then.region == after.grant and after.grant > 0
        and effect.end == after.end and effect.cut == after.cut
    )  # fmt: skip


promises("S9", do.ReserveSpace)(
    "A region is requested when every writer has asked, so it waits for no forward; and only for staging writers.",
    lambda step, effect: step.after.asked == step.then.agreed and step.after.by_pages != step.then.agreed,
)
promises("L2", do.SendQueued)(
    "The requester is told whether the chunk waits for other writers or in the ring's queue.",
    lambda step, effect: effect.early == (step.after.state is S.AWAIT_WRITERS),
)


@promises("S3", do.Send)
def confirms_what_came_as_agreed(step: Step, effect: do.Send) -> bool:
    """A writer's part is confirmed when it is in place, and to nobody else."""
    if not isinstance(effect.body, ChunkAck):
        return True
    peer = step.event.peer
    return effect.peers == 1 << peer and (among(peer, step.after.arrived) or not among(peer, step.seen.agreed))


@promises("S4", do.FreeSpace)
def freed_when_nobody_writes(step: Step, effect: do.FreeSpace) -> bool:
    """A region is freed once, by its holder: it is scattered, given up by all, or the room has drained."""
    scattered = step.before.state is S.SCATTERING and isinstance(step.event, ev.Scattered | ev.ScatterFailed)
    drained = step.before.state is S.QUARANTINED and isinstance(step.event, ev.RoomDrained)
    over = scattered or drained or step.after.by_pages == step.seen.agreed
    return over and effect.grant == step.seen.region and effect.grant > 0


@promises("S4", do.SendGrant, do.TransmitPages)
def answers_say_what_they_answer(step: Step, effect: do.SendGrant | do.TransmitPages) -> bool:
    """An answer repeats its request's time; an answer out of the queue says so and goes to all requesters."""
    if isinstance(effect, do.SendGrant) and effect.queued:
        return isinstance(step.event, ev.SpaceReserved) and within(effect.peers, step.before.asked)
    mine = isinstance(effect, do.TransmitPages) or effect.peers == 1 << step.event.peer
    return mine and effect.asked == step.event.asked


@promises("S5", ev.ChunkLanded)
def landed_when_all_is_in_place(step: Step, effect: ev.ChunkLanded) -> bool:
    """A chunk is told to have landed when every writer's part is, and what was staged is scattered."""
    scattered = step.before.state is S.SCATTERING and isinstance(step.event, ev.Scattered)
    return step.after.arrived == step.seen.agreed and (step.before.state is S.FILLING_PAGES or scattered)


@promises("S2", ev.GrantClosed)
def closes_when_its_room_has_failed(step: Step, effect: ev.GrantClosed) -> bool:
    """A grant closes when it knows that its room failed, so no chunk of the room is granted again."""
    fails = bool(step.all_of(ev.RoomFailed)) and in_order(step, ev.RoomFailed, ev.GrantClosed)
    return fails or bool(step.then.stopped) or isinstance(step.event, ev.RoomDrained)


@promises("S6")
def tells_its_end_once(step: Step) -> bool:
    """With its end alone the grant raises one event in the room: the chunk landed, or the grant closed."""
    told = len(step.all_of(ev.ChunkLanded)) + len(step.all_of(ev.GrantClosed))
    return told == (1 if step.after.state is S.FREED else 0)


@promises("S4", on=(ev.StagingRequested, ev.PagesRequested))
def remembers_who_asked(step: Step) -> bool:
    """Every requester that was told a place or a queue is recorded as a possible writer."""
    before, after, peer = step.before, step.after, step.event.peer
    if before.state is S.NEW:
        return after.state is S.NEW or after.asked == 1 << peer
    told = step.all_of(do.SendGrant) + step.all_of(do.SendQueued) + step.all_of(do.TransmitPages)
    return not told or among(peer, after.asked)


@promises("S1", on=(ev.SpaceReserved,))
def has_the_region_that_it_was_given(step: Step) -> bool:
    """The region is the one that the ring gave."""
    after, e = step.after, step.event
    return after.grant == e.grant and after.offset == e.offset and after.round == e.round and after.end == e.end


@promises("S3", on=(ev.PartArrived,))
def counts_what_came_as_agreed(step: Step) -> bool:
    """A part counts exactly if it comes from a writer by the way that was agreed with that writer."""
    before, after, e = step.before, step.after, step.event
    if before.state not in (*OPEN, S.SCATTERING):
        return after.arrived == before.arrived
    by_pages = among(e.peer, before.by_pages)
    way = e.grant == (0 if by_pages else before.grant) and (by_pages or before.grant > 0)
    counts = among(e.peer, before.arrived) or (among(e.peer, step.seen.agreed) and way)
    return after.arrived == (before.arrived | 1 << e.peer if counts else before.arrived)


@promises("L1", on=(ev.StagingRequested, ev.SpaceQueued, ev.SpaceUsable))
def answers_who_waits(step: Step) -> bool:
    """A requester is told that it queues; queued ones and waiters for the watermark are told."""
    before, peers = step.before, [each.peers for each in step.all_of(do.SendQueued)]
    if isinstance(step.event, ev.SpaceUsable):
        waiting = before.asked & ~before.by_pages & ~before.arrived
        told = [each.peers for each in step.all_of(do.SendWatermark)]
        return before.state is not S.FILLING or told == [waiting]
    if isinstance(step.event, ev.SpaceQueued):
        return before.state is not S.AWAIT_SPACE or peers == [before.asked]
    if step.after.state not in (S.AWAIT_WRITERS, S.AWAIT_SPACE):
        return True
    peer, reserves = step.event.peer, bool(step.all_of(do.ReserveSpace))
    queues = among(peer, step.then.agreed) and not among(peer, before.by_pages) and not reserves
    return peers == [1 << peer] if queues else not peers


@promises("L1", on=(ev.PagesRequested,))
def answers_who_asks_for_pages(step: Step) -> bool:
    """A request for pages is answered by them, or by a confirmation if the part is in place."""
    before, peer = step.before, step.event.peer
    opens = before.state is S.NEW and step.after.state is not S.NEW
    if not opens and (before.state not in (*OPEN, S.SCATTERING) or not among(peer, step.seen.agreed)):
        return True
    confirmed = [each for each in step.all_of(do.Send) if isinstance(each.body, ChunkAck)]
    there = 1 if among(peer, before.arrived) else 0
    return len(confirmed) == there and len(step.all_of(do.TransmitPages)) == 1 - there


promises("L5", do.FreeSpace)(
    "A region is the ring's again before anybody hears of it: who comes next finds it.",
    lambda step, effect: step.effects[0] == effect,
)


@promises("L1", on=(ev.PartArrived,))
def confirms_at_once(step: Step) -> bool:
    """A notification of a counted part is confirmed in the same step, also when repeated, unless it names
    another way than agreed.
    """
    counted = among(step.event.peer, step.after.arrived) and not step.all_of(Report)
    waits = step.before.state in (S.AWAIT_WRITERS, S.AWAIT_SPACE, S.FILLING, S.FILLING_PAGES, S.SCATTERING)
    return not (waits and counted) or step.says(ChunkAck) == 1


@promises("L1", on=(ev.SpaceReserved, ev.SpaceDenied))
def tells_what_came_of_the_queue(step: Step) -> bool:
    """Those that asked hear of their region, or that there is none."""
    given = isinstance(step.event, ev.SpaceReserved)
    told = len(step.all_of(do.SendGrant)) if given else step.says(StagingRefused)
    return step.before.state is not S.AWAIT_SPACE or told == 1


@promises("L1", on=(ev.StagingRequested,))
def answers_who_asks_for_a_region(step: Step) -> bool:
    """A writer that gave the ring up is told that it has no region, and so is one of a chunk that goes
    over pages, unless its part is in place. A writer whose chunk has a region is told that region.
    """
    before, peer = step.before, step.event.peer
    if before.state not in OPEN or not among(peer, before.writers):
        return True
    by_pages = before.state is S.FILLING_PAGES
    refused = not among(peer, before.arrived) if by_pages else among(peer, before.by_pages)
    given = before.state is S.FILLING and not refused
    return step.says(StagingRefused) == (1 if refused else 0) and len(step.all_of(do.SendGrant)) == (1 if given else 0)


@promises("L1")
def scatters_what_is_to_be_scattered(step: Step) -> bool:
    """With the step that makes a chunk ready it is scattered."""
    begins = step.before.state is not S.SCATTERING and step.after.state is S.SCATTERING
    return len(step.all_of(do.LaunchScatter)) == (1 if begins else 0)
