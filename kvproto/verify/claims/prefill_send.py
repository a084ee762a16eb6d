"""Prefill send: invariants of a prefill rank's send.

The witness keeps account of what the send has been lent, and by whom: a credit to ask, a slot, a permit (0: none, 1: it is
in the queue, 2: it has it); of what works for it, a gather or a write; and of what it was told and what came of it: whether
the watermark has passed its region, whether it was ever written through the ring, whether every byte is at the peer.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import PagesReq, StagingReq, StgNotify
from kvproto.protocol.states import PSend as S
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send, reads_withdrawn
from kvproto.verify.framework.claims import Claims, Ghost, Step, in_order, timed_anew

NONE, QUEUES, HAS = 0, 1, 2


class Seen(Ghost, frozen=True):
    """The witness of a send.

    `gathers`, `writes`: works for it; `usable`: the watermark has passed its region; `region`: where its write goes (0:
    pages); `complete`: every byte is at the peer; `row`: it is the aux row's; `acked`: the decode rank has confirmed
    it.
    """

    credit: int = NONE
    slot: int = NONE
    permit: int = NONE
    gathers: bool = False
    writes: bool = False
    usable: bool = False
    #: bytes may have come to the peer, or will
    touched: bool = False
    complete: bool = False
    region: int = 0
    row: bool = False
    acked: bool = False


send_claims: Claims[PSendValue, Seen] = Claims(prefill_send, Seen)
holds, assumes, promises = send_claims.holds, send_claims.assumes, send_claims.promises
V = PSendValue
UNASKED = (S.AWAIT_KV, S.AWAIT_CREDIT)
QUEUED = (S.AWAIT_WRITERS, S.AWAIT_TURN)
ASKED = (S.AWAIT_GRANT, *QUEUED)
REGION = (S.AWAIT_WATERMARK, S.AWAIT_SLOT, S.GATHERING, S.WRITING)
RING = (*ASKED, *REGION)
AUX = (S.AWAIT_AUX, S.AWAIT_AUX_ACK)
BYPAGES = (S.AWAIT_PAGES, S.AWAIT_PAGES_KV, S.AWAIT_PERMIT, S.WRITING_PAGES)
OVER = (S.DONE, S.STOPPED)
ASKS = (S.AWAIT_PAGES, S.AWAIT_ACK, S.AWAIT_AUX_ACK)
CALM = tuple(state for state in S if state not in (S.GATHERING, S.WRITING, S.WRITING_PAGES, S.DRAINING))


@send_claims.ghosts
def follow(step: Step) -> Seen:
    """Record what is taken, given, begun and sent; only changes are returned."""
    seen, event, before = step.seen, step.event, step.before.state
    if before is S.NEW and step.after.state is S.NEW:
        return Seen()
    seen = _lent(step)
    if step.all_of(do.LaunchGather):
        seen = replace(seen, gathers=True)
    if isinstance(event, ev.Gathered | ev.GatherFailed):
        seen = replace(seen, gathers=False)
    if isinstance(event, ev.WriteCompleted | ev.WriteLapsed) or (isinstance(event, ev.WriteFailed) and event.settled):
        seen = replace(seen, writes=False)
    if isinstance(event, ev.WriteCompleted | ev.WriteFailed):
        seen = replace(seen, touched=True)
    confirmed = isinstance(event, ev.ChunkAcked) and before is S.AWAIT_PAGES and step.before.told
    failed_late = isinstance(event, ev.WriteFailed) and before is S.WRITING and step.before.acked
    if isinstance(event, ev.WriteCompleted) or confirmed or failed_late:
        seen = replace(seen, complete=True)  # only a part of which every byte is there is confirmed: `ends`
    for begun in step.all_of(ev.WriteBegun):
        seen = replace(seen, writes=True, region=begun.grant)
    if step.all_of(ev.PagesBegun):
        seen = replace(seen, writes=True, region=0)
    if isinstance(event, ev.StagingGranted) and before in ASKED:
        seen = replace(seen, usable=event.usable)
    if isinstance(event, ev.WatermarkReached) and before is S.AWAIT_WATERMARK:
        seen = replace(seen, usable=True)
    if isinstance(event, ev.ChunkAcked):
        seen = replace(seen, acked=True)
    return replace(seen, row=True) if before is S.NEW and step.after.state in AUX else seen


def granted_from(v: V, e: ev.StagingGranted, now: float) -> float:
    """Return when a region became its own: at its first request if it queued, else at the answered one."""
    return v.first if e.queued else min(e.asked, now)


def _lent(step: Step) -> Seen:
    event = step.event
    seen: Seen = step.seen
    if isinstance(event, ev.CreditTaken):
        seen = replace(seen, credit=HAS)
    if isinstance(event, ev.SlotTaken):
        seen = replace(seen, slot=HAS)
    if isinstance(event, ev.PermitTaken):
        seen = replace(seen, permit=HAS)
    for effect in step.effects:
        match effect:
            case do.LeaveQueue():
                left = {name: NONE for name in ("credit", "slot", "permit") if getattr(seen, name) == QUEUES}
                seen = replace(seen, **left)
            case do.TakeCredit() | do.FreeCredit():
                seen = replace(seen, credit=QUEUES if isinstance(effect, do.TakeCredit) else NONE)
            case do.TakePermit() | do.FreePermit():
                seen = replace(seen, permit=QUEUES if isinstance(effect, do.TakePermit) else NONE)
            case do.TakeSlot():
                seen = replace(seen, slot=QUEUES)
            case do.FreeSlot():
                seen = replace(seen, slot=NONE) if seen.slot == HAS else seen
    return seen


# --------------------------------------------------------------------------------------- the invariant
holds(*(state for state in S if state not in (S.AWAIT_CREDIT, S.AWAIT_GRANT)))(
    "It neither has a credit nor queues for one.", lambda v, g: g.credit == NONE
)
holds(S.AWAIT_CREDIT)("It queues for a credit.", lambda v, g: g.credit == QUEUES)
holds(S.AWAIT_GRANT)("It has a credit: its request is unanswered.", lambda v, g: g.credit == HAS)
holds(*(state for state in S if state not in (S.AWAIT_SLOT, S.GATHERING, S.WRITING, S.DRAINING)))(
    "It neither has a slot nor queues for one.", lambda v, g: g.slot == NONE
)
holds(S.AWAIT_SLOT)("It queues for a slot.", lambda v, g: g.slot == QUEUES)
holds(S.GATHERING, S.WRITING)("It has a slot.", lambda v, g: g.slot == HAS)
holds(S.GATHERING, S.WRITING, S.DRAINING)(
    "It knows the slot that it has, and no other.", lambda v, g: (g.slot == HAS) == (v.slot >= 0)
)
holds(*(state for state in S if state not in (S.AWAIT_PERMIT, S.WRITING_PAGES, S.DRAINING)))(
    "It neither has a permit nor queues for one.", lambda v, g: g.permit == NONE
)
holds(S.AWAIT_PERMIT)("It queues for a permit.", lambda v, g: g.permit == QUEUES)
holds(S.WRITING_PAGES)("It has a permit.", lambda v, g: g.permit == HAS)


@holds(S.DRAINING)
def queues_for_nothing(v: V, g: Seen) -> bool:
    """It is in no queue, and one operation at a time works for it; it has a slot or a permit, not both."""
    one = (g.slot == HAS) != (g.permit == HAS)
    return one and g.slot in (NONE, HAS) and g.permit in (NONE, HAS) and bool(g.gathers) != bool(g.writes)


@holds(S.GATHERING)
def gathers(v: V, g: Seen) -> bool:
    """A gather works for it, and nothing else."""
    return g.gathers and not g.writes


@holds(S.WRITING, S.WRITING_PAGES)
def writes(v: V, g: Seen) -> bool:
    """A write works for it, and nothing else."""
    return g.writes and not g.gathers


holds(*CALM)("Neither gather nor write works for it.", lambda v, g: not g.gathers and not g.writes)
holds(*REGION)("It was given a region.", lambda v, g: v.grant > 0)
holds(*UNASKED, *ASKED, *BYPAGES, *AUX)(
    "It was given no region yet, or has given the ring up.", lambda v, g: v.grant == 0
)
holds(S.AWAIT_SLOT, S.GATHERING, S.WRITING)("The watermark has passed its region.", lambda v, g: g.usable)
holds(S.AWAIT_WATERMARK)("The watermark has not passed its region.", lambda v, g: not g.usable)
holds(*UNASKED, *ASKED, S.AWAIT_WATERMARK, S.AWAIT_SLOT, *BYPAGES)("It gathers nowhere.", lambda v, g: v.slot == -1)
holds(S.AWAIT_CREDIT, *ASKED, S.AWAIT_WATERMARK, S.AWAIT_SLOT, S.AWAIT_PERMIT)(
    "Its KV is computed before it requests or holds a region: an empty region never waits for a forward.",
    lambda v, g: v.kv,
)
holds(S.AWAIT_KV, S.AWAIT_PAGES_KV)("Its KV is not computed.", lambda v, g: not v.kv)
holds(*UNASKED, *RING)(
    "No byte of its earlier writes was ever under way.", lambda v, g: not g.touched and not g.complete and not g.row
)
holds(*BYPAGES)(
    "Not all bytes of its earlier writes are at the peer: they failed, if a byte was under way.",
    lambda v, g: not g.complete and not g.row,
)
holds(S.WRITING, S.AWAIT_ACK)(
    "The region that it speaks of is the one that its write went into.", lambda v, g: v.grant == g.region
)
holds(*UNASKED, *RING, *AUX)("No staged write of it has failed.", lambda v, g: not v.told)
holds(*BYPAGES)(
    "It may have told of the part if a staged write of it has failed.",
    lambda v, g: not v.told or (v.native_notify and g.touched),
)
holds(S.AWAIT_PAGES_KV, S.AWAIT_PERMIT)(
    "The time for a write into its pages to begin ends no later than their lease.", lambda v, g: v.begin_by <= v.lease
)
holds(S.WRITING_PAGES)("Its write goes into pages.", lambda v, g: g.region == 0)
holds(S.AWAIT_ACK)("Every byte is at the peer.", lambda v, g: g.complete and not g.row)
holds()("A part that it takes for confirmed has been confirmed.", lambda v, g: not v.acked or g.acked)
holds(*AUX)("It is the aux row's.", lambda v, g: g.row)


@holds(S.DONE)
def ends_well(v: V, g: Seen) -> bool:
    """The decode rank has confirmed it; and every byte is at the peer, or it is the aux row's."""
    return g.acked and (g.complete or g.row)


@holds()
def works_with_what_it_has(v: V, g: Seen) -> bool:
    """It has a slot or a permit while a gather or write works, and a credit while its request is
    unanswered. So no send waits for the ring, or for KV, with what others wait for.
    """
    lent = HAS in (g.slot, g.permit)
    return (not lent or g.gathers or g.writes) and (g.credit != HAS or v.state == S.AWAIT_GRANT)


# -------------------------------------------------------------------------------------- the assumptions
@assumes(ev.CreditTaken, ev.SlotTaken, ev.PermitTaken, paid="rank: `give`, before anything else happens")
def is_given_what_it_queues_for(v: V, e: ev.SendEvent, g: Seen) -> bool:
    """It is given only what it queues for."""
    if isinstance(e, ev.CreditTaken):
        return g.credit == QUEUES
    return (g.slot if isinstance(e, ev.SlotTaken) else g.permit) == QUEUES


assumes(ev.Gathered, ev.GatherFailed, paid="engine: one end a gather")(
    "The ending gather is under way, and its send gathers or drains.",
    lambda v, e, g: v.state not in (S.GATHERING, S.DRAINING) or g.gathers,
)
assumes(ev.WriteCompleted, ev.WriteFailed, ev.WriteLapsed, paid="prefill_write: its S6")(
    "The ending write is under way.", lambda v, e, g: v.state == S.NEW or g.writes
)
assumes(ev.PagesGranted, paid="timing: a timer has a period above 0")(
    "A lease lasts some time.", lambda v, e, g: e.lease > 0
)
assumes(ev.StagingGranted, paid="ring: ids count from 1; decode_grant: its S1")(
    "A region has a number above 0.", lambda v, e, g: e.grant > 0
)


# ---------------------------------------------------------------------------------------- the promises
@promises("S1", ev.WriteBegun)
def writes_into_its_region(step: Step, effect: ev.WriteBegun) -> bool:
    """A staged write goes into the region that was given, and that the watermark has passed."""
    after = step.after
    return effect.grant == after.grant and effect.grant > 0 and effect.offset == after.offset and bool(step.seen.usable)


@promises("S1")
def keeps_where_it_goes(step: Step) -> bool:
    """Its link, epoch and part stay those it was opened with, and its messages, writes and grants have
    them.
    """
    before, after = step.before, step.after
    bound = step.event.to if isinstance(step.event, ev.SendOpened) and before.state is S.NEW else before.to
    begun, paged = step.all_of(ev.WriteBegun), step.all_of(ev.PagesBegun)
    given = all(each.slot == after.slot for each in begun) and all(each.pages == after.pages for each in paged)
    said = step.all_of(do.Transmit) + step.all_of(do.TransmitAux)
    goes = all(each.to == after.to for each in (*begun, *paged)) and all(each.epoch == after.to.epoch for each in said)
    return after.to == bound and given and goes


@promises("S1", do.Transmit)
def notifies_what_is_in_place(step: Step, effect: do.Transmit) -> bool:
    """A part is told to be in place when every byte of it is, and where it was written."""
    body = effect.body
    return not isinstance(body, StgNotify) or (bool(step.then.complete) and body.grant == step.then.region)


@promises("S2", ev.WriteBegun, ev.PagesBegun)
def begins_while_nothing_was_written(step: Step, effect: ev.WriteEvent) -> bool:
    """A write begins if none works, a staged one if no byte of an earlier one was ever under way.

    A write into pages may follow a staged one that has failed, of which no byte can land any more.
    """
    return not step.seen.writes and (not step.seen.touched or isinstance(effect, ev.PagesBegun))


@promises("S2", on=(ev.WriteFailed,))
def retries_settled_staged_writes_alone(step: Step) -> bool:
    """Only a failed staged write is retried, when no byte of it can land and pages are a way. The send
    remembers whether the write may have notified the part, and does not retry a confirmed part.
    """
    before, after = step.before, step.after
    if after.state not in (*BYPAGES, S.GATHERING, S.WRITING):
        return True
    may = before.state is S.WRITING and step.event.settled and not before.closed and not before.acked
    return may and after.told == before.native_notify


@promises("S4", ev.WriteBegun, ev.PagesBegun)
def begins_within_the_lease(step: Step, effect: ev.WriteBegun | ev.PagesBegun) -> bool:
    """A write begins within the lease, one into pages within its first half, and is told when it ends."""
    half = not isinstance(effect, ev.PagesBegun) or step.now < step.before.begin_by
    return effect.until == step.after.lease and step.now < effect.until and half


@promises("S4", ev.SendFinished)
def ends_when_nothing_works(step: Step, effect: ev.SendFinished) -> bool:
    """It says that it has ended when nothing reads or writes for it, and it holds nothing."""
    then = step.then
    idle = not then.gathers and not then.writes
    return idle and then.credit == NONE and then.slot == NONE and then.permit == NONE


@promises("S4", do.Transmit)
def requests_say_when_they_were_made(step: Step, effect: do.Transmit) -> bool:
    """A request says when it was made, or when the first one of those that it repeats was."""
    body, after = effect.body, step.after
    made = after.asked in (step.now, step.before.asked)
    return not isinstance(body, StagingReq | PagesReq) or (made and body.asked == after.asked)


@promises("S4")
def remembers_its_first_request(step: Step) -> bool:
    """The first request for a region is made once, and when that was is not forgotten."""
    asks = isinstance(step.event, ev.CreditTaken) and step.before.state is S.AWAIT_CREDIT
    first = step.now if asks and not step.before.first else step.before.first
    return step.after.first == first or step.before.state is S.NEW


promises("S9", do.Transmit)(
    "A region is asked for when the KV is computed, and not before.",
    lambda step, effect: not isinstance(effect.body, StagingReq) or step.after.kv,
)


@promises("S9", on=(ev.KvWithdrawn,))
def leaves_the_ring_with_its_kv(step: Step) -> bool:
    """A send whose KV is withdrawn before its gather gives up its region at once, if pages are open."""
    before, asked = step.before, [each.body for each in step.all_of(do.Transmit)]
    leaves = before.state in (*ASKED, S.AWAIT_WATERMARK, S.AWAIT_SLOT) and not before.closed
    return any(isinstance(body, PagesReq) for body in asked) == leaves


@promises("L1", on=(ev.KvWithdrawn, ev.Gathered, ev.WriteLapsed))
def comes_back_to_the_ring(step: Step) -> bool:
    """A send whose KV is withdrawn and whose pool is closed waits for KV and the ring, never for pages."""
    before, after = step.before, step.after
    if before.state not in (*ASKED, *REGION) or not before.closed:
        return True
    waits = before.state not in (S.GATHERING, S.WRITING) and isinstance(step.event, ev.KvWithdrawn)
    return after.state not in BYPAGES and (not waits or after.state is S.AWAIT_KV)


promises("S6")(
    "With its end, and only then, the room is told that it has ended.",
    lambda step: len(step.all_of(ev.SendFinished)) == (1 if step.after.state in OVER else 0),
)
promises("S12", do.LaunchGather, ev.PagesBegun)(
    "Pages begin to be read when their KV is computed.", lambda step, effect: step.after.kv
)
promises("S12")(
    "A send that has let go of pages whose KV is withdrawn reads none before their KV is computed anew.",
    lambda step: step.before.kv or reads_withdrawn(step.before) or not reads_withdrawn(step.after),
)


@promises("S1", do.LaunchGather, do.WatchWatermark)
def works_with_its_region(step: Step, effect: do.LaunchGather | do.WatchWatermark) -> bool:
    """A gather goes into the slot that was taken, for its part and its region; its end is what is watched."""
    after = step.after
    if isinstance(effect, do.WatchWatermark):
        return effect.round == after.round and effect.end == after.end
    taken = effect.slot == step.event.slot and after.slot == effect.slot and effect.to == after.to
    return taken and effect.offset == after.offset and effect.grant == after.grant


@promises("S1", on=(ev.StagingGranted,))
def takes_the_grant_as_it_was_given(step: Step) -> bool:
    """A region is taken as it was given, with the number, the place and the time that came with it."""
    before, after, e = step.before, step.after, step.event
    if before.state not in ASKED:
        return True
    same = after.grant == e.grant and after.offset == e.offset and after.round == e.round and after.end == e.end
    until = granted_from(before, e, step.now) + e.lease
    return after.state is before.state or (same and after.lease == until and after.tries == 0)


@promises("S1", on=(ev.PagesGranted,))
def takes_the_pages_as_they_were_named(step: Step) -> bool:
    """Pages are taken as they were named, until the lease ends that began with the answered request.

    No permit is asked for when half of it is over.
    """
    before, after, e = step.before, step.after, step.event
    if before.state not in (S.AWAIT_PAGES, S.AWAIT_PERMIT) or after.state not in (S.AWAIT_PAGES_KV, S.AWAIT_PERMIT):
        return True
    late = before.state is S.AWAIT_PAGES and after.state is S.AWAIT_PERMIT and step.now >= e.asked + e.lease / 2
    since = min(e.asked, step.now)
    kept = after.pages == e.pages and after.lease == since + e.lease and after.begin_by == since + e.lease / 2
    older = before.state is S.AWAIT_PERMIT and e.asked < before.asked
    return (after.pages == before.pages and after.lease == before.lease) if older else kept and not late


@promises("L1")
def asks_with_all_its_tries(step: Step) -> bool:
    """A send that begins to ask, for a region, pages or a confirmation, has all its tries; so has one that
    waits while the ring moves.
    """
    before, after = step.before, step.after
    moves = isinstance(step.event, ev.TimerFired) and before.mark != after.mark
    asks = after.state in (*QUEUED, S.AWAIT_PAGES, S.AWAIT_ACK) and after.state is not before.state
    return not (asks or moves) or after.tries == 0


@promises("L1", do.Transmit)
def a_lease_begins_when_it_is_asked_for(step: Step, effect: do.Transmit) -> bool:
    """A request that is the first, or replaces an answer whose time is over or nearly, counts from now on."""
    first = step.before.state is S.AWAIT_CREDIT or isinstance(step.event, ev.StagingGranted)
    anew = step.before.state is not S.AWAIT_PAGES or isinstance(step.event, ev.PagesGranted)
    now = (isinstance(effect.body, StagingReq) and first) or (isinstance(effect.body, PagesReq) and anew)
    return not now or step.after.asked == step.now


@promises("L1", on=(ev.TimerFired,))
def counts_how_often_it_asks(step: Step) -> bool:
    """Each time that it asks again for what is needed is counted."""
    before, after = step.before, step.after
    again = after.state is before.state and after.state is not S.AWAIT_PERMIT
    if not again or step.all_of(ev.RoomFailed) or after.mark != before.mark:
        return True
    return after.tries == before.tries + 1


@promises("L1", on=(ev.TimerFired,))
def asks_until_its_tries_are_over(step: Step) -> bool:
    """A request for pages or a confirmation is repeated until the tries are over, and no longer."""
    before = step.before
    return before.state not in ASKS or len(step.all_of(ev.RoomFailed)) == (0 if before.tries < step.event.tries else 1)


@promises("L1", on=(ev.PagesGranted,))
def writes_the_pages_in_time(step: Step) -> bool:
    """Pages that come with the KV there and half a lease left are written as soon as a permit is free;
    else they are requested again, once for each request.
    """
    before, e = step.before, step.event
    if before.state is not S.AWAIT_PAGES or not before.kv:
        return True
    in_time = step.now < e.asked + e.lease / 2
    again = 0 if in_time or e.asked < before.asked else 1
    return (step.after.state is S.AWAIT_PERMIT) == in_time and step.says(PagesReq) == again


@promises("L1", on=(ev.ChunkAcked, ev.WriteCompleted))
def is_confirmed_once(step: Step) -> bool:
    """A self-notifying staged write is not notified again, and may be confirmed before its end is seen.
    Then its end completes it.
    """
    before, after = step.before, step.after
    if before.state is not S.WRITING:
        return True
    if isinstance(step.event, ev.ChunkAcked):
        return after.acked == (before.native_notify or before.acked)
    told = len(step.all_of(do.Transmit)) == (0 if before.acked or before.native_notify else 1)
    return told and (after.state is S.DONE) == bool(before.acked)


promises("S6", ev.SendFinished)(
    "A failure is reported before the end: a room whose last send ends is taken for a success.",
    lambda step, effect: in_order(step, ev.RoomFailed, ev.SendFinished),
)


# -------------------------------------------------------------------------------- where each word leads
@promises("S12", on=(ev.SendOpened,))
def knows_what_it_was_opened_with(step: Step) -> bool:
    """A send records its start, whether its KV is there, and whether its write notifies. It takes the
    cheaper way.
    """
    after, e = step.after, step.event
    if e.aux:
        return after.state is (S.AWAIT_AUX_ACK if e.ready else S.AWAIT_AUX)
    ring = S.AWAIT_CREDIT if e.ready else S.AWAIT_KV
    way = ring if e.staged_cost <= e.pages_cost else S.AWAIT_PAGES
    taken = after.kv == e.ready and after.native_notify == e.native_notify and after.closed == e.closed
    return after.state is way and after.asked == step.now and taken


@promises("S12", on=(ev.KvProduced, ev.KvWithdrawn))
def knows_whether_it_is_computed(step: Step) -> bool:
    """It records whether its KV is there, while operations go on; it uses pages with half a lease left."""
    before, after = step.before.state, step.after
    if before not in (*UNASKED, *RING, *BYPAGES):
        return True
    came = isinstance(step.event, ev.KvProduced)
    waited = came and before is S.AWAIT_PAGES_KV
    uses = (after.state is S.AWAIT_PERMIT) == (step.now < step.before.begin_by)
    begins = before is not S.AWAIT_KV or after.state is S.AWAIT_CREDIT
    return after.kv == came and after.state is not S.DRAINING and begins and (not waited or uses)


@promises("L1", on=(ev.StagingGranted,))
def waits_for_what_it_is_told(step: Step) -> bool:
    """A waiter for the watermark is woken by it; a region with little of its lease left is requested
    again.
    """
    before, after, e = step.before, step.after, step.event
    waits = after.state is S.AWAIT_WATERMARK and before.state is not S.AWAIT_WATERMARK
    late = before.state in QUEUED and step.now >= granted_from(before, e, step.now) + e.lease / 2
    return len(step.all_of(do.WatchWatermark)) == (1 if waits else 0) and len(step.all_of(do.Transmit)) == (1 if late else 0)


promises("L1", do.Transmit)(
    "A send that requests, or notifies a part, waits for the answer, for some time.",
    lambda step, effect: step.after.state is step.before.state or timed_anew(step.after),
)


@promises("L3", on=(ev.TimerFired,))
def gives_the_ring_up_in_time(step: Step) -> bool:
    """The ring is given up after the tries if permits are free, waiting costs more and the queue stands;
    not before.
    """
    before, e = step.before, step.event
    if before.state not in (*ASKED, S.AWAIT_WATERMARK):
        return True
    moves = before.state in (S.AWAIT_TURN, S.AWAIT_WATERMARK) and e.mark != before.mark
    spent = before.tries >= e.tries and not e.full and step.now >= before.asked + e.pages_extra_s
    return (step.after.state is S.AWAIT_PAGES) == (not moves and spent)


@promises("L1", on=(ev.TimerFired, ev.SendStopped, ev.ChunkAcked, ev.WriteCompleted))
def ends_as_it_should(step: Step) -> bool:
    """An operation that takes too long, or is stopped at work, drains. An unanswered send waits until it
    is stopped, and that ends it. A confirmed send, or one whose write is reported complete, has not stopped.
    """
    e, before, after = step.event, step.before.state, step.after.state
    works = step.seen.gathers or step.seen.writes
    if isinstance(e, ev.ChunkAcked | ev.WriteCompleted):
        return after is not S.STOPPED and (before is not S.AWAIT_PAGES or (after is S.DONE) == step.before.told)
    if isinstance(e, ev.SendStopped):
        return before is S.NEW or after is (S.DRAINING if works else S.STOPPED)
    if works:
        return after is S.DRAINING
    return after is before or not step.all_of(ev.RoomFailed)


@promises("L3", do.FreeCredit, ev.RoomFailed)
def gives_back_before_it_takes(step: Step, effect: object) -> bool:
    """Loans are returned before more is taken, and a write is stopped before its room learns that it
    failed.
    """
    return in_order(step, do.FreeCredit, do.TakeSlot) and in_order(step, ev.WriteStopped, ev.RoomFailed)


@send_claims.waits("L1")
def waits_for(v: V, g: Seen) -> str:
    """A gather has its longest time, a write its own after its peer's silence, a region its lease. Pages
    are renewed before theirs ends. Moves of the ring are polled, and requests with immediate answers are resent.
    """
    if g.gathers or g.writes:
        return "kernel" if g.gathers else "flight"
    if v.grant and not g.complete:
        return "lease" if g.usable else "grant_retry"
    if g.permit == QUEUES:
        return "renew"
    if g.credit == HAS:
        return "grant_retry"
    if v.state is S.AWAIT_WRITERS:
        return "fan_in_retry"
    return "queue_retry" if v.state is S.AWAIT_TURN else "answer"


# ------------------------------------------------------------------------ what is said at once, not by a timer
@promises("L1")
def says_for_what_it_waits(step: Step) -> bool:
    """A send that begins to wait for an answer has sent its request in the same step, not at its first
    timer.
    """
    before, after = step.before.state, step.after.state
    if after is before or after not in (S.AWAIT_GRANT, *ASKS):
        return True
    if after is S.AWAIT_AUX_ACK:
        return len(step.all_of(do.TransmitAux)) == 1
    if after is S.AWAIT_ACK:
        return step.says(StgNotify) == (0 if before is S.WRITING and step.before.native_notify else 1)
    return step.says(StagingReq if after is S.AWAIT_GRANT else PagesReq) == 1


@promises("L1", on=(ev.TimerFired,))
def says_it_again(step: Step) -> bool:
    """Each counted retry resends the request, as does each end of a timer in the ring's queue. Pages that
    queue for a permit are requested anew.
    """
    before, after = step.before, step.after
    if after.state is not before.state or not (after.tries > before.tries or after.state in (S.AWAIT_TURN, S.AWAIT_PERMIT)):
        return True
    if after.state is S.AWAIT_AUX_ACK:
        return len(step.all_of(do.TransmitAux)) == 1
    if after.state is S.AWAIT_WATERMARK:
        return len(step.all_of(do.AskWatermark)) == 1
    if after.state is S.AWAIT_ACK:
        return step.says(StgNotify) == 1
    return step.says(StagingReq if after.state in ASKED else PagesReq) == 1


@promises("L1")
def tells_its_room_that_it_failed(step: Step) -> bool:
    """A gather or write that fails or takes too long ends the room in the same step, unless the part is
    retried or confirmed. Posting stops.
    """
    before, after, e = step.before.state, step.after.state, step.event
    if before not in (S.GATHERING, S.WRITING, S.WRITING_PAGES) or after not in (S.DRAINING, S.STOPPED):
        return True
    asked = isinstance(e, ev.SendStopped)
    stops = before is not S.GATHERING and isinstance(e, ev.SendStopped | ev.TimerFired)
    failed, stopped = len(step.all_of(ev.RoomFailed)), len(step.all_of(ev.WriteStopped))
    return failed == (0 if asked else 1) and stopped == (1 if stops else 0)
