"""Decode room: invariants of a decode rank's room.

The witness knows which chunks were ever granted, have a grant, have landed, whether the aux row has, who of the prefill
ranks may still write, and what the engine was told.  Success is all of it (S5), once (S6); pages are given back when
nobody may write (S4).

`live` counts the chunks that are `granted`: both are changed by the same two events, by one (`a_count_is_of_its_set`).
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.layout.cut import chunks
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.kinds import ChunkSet, RankMask
from kvproto.protocol.messages import Abort, Announce, AuxAck, ChunkAck, Gone, Noted, Open
from kvproto.protocol.states import Cause
from kvproto.protocol.states import DRoom as S
from kvproto.protocol.tables.decode_room import IDLE, DecodeWork, DRoomValue, decode_room
from kvproto.verify.framework.claims import Claims, Ghost, Step, among, apart, begun_anew, in_order, timed_anew, within


class Seen(Ghost, frozen=True):
    """The witness of a room.

    `ever`: chunks that were granted, `granted`: that are, `landed` (sets); `may_write`: prefill ranks (set); `live`:
    how many are granted.
    """

    ever: ChunkSet = 0
    granted: ChunkSet = 0
    landed: ChunkSet = 0
    live: int = 0
    row: bool = False
    may_write: RankMask = 0
    over: bool = False


room_claims: Claims[DRoomValue, Seen] = Claims(decode_room, Seen)
holds, assumes, promises = room_claims.holds, room_claims.assumes, room_claims.promises
V = DRoomValue
MET = (S.OPEN, S.AWAIT_AUX)
LIVE = (S.AWAIT_PEERS, *MET)
BEGUN = (S.ANNOUNCED, *LIVE)
LOST = (S.DRAINING, S.SETTLING, S.FAILED, S.ABORTED)
ENDS = (S.DONE, S.FAILED, S.ABORTED)
FAILING = (ev.EngineAborted, ev.RoomFailed, ev.LinkWentDown)


@room_claims.ghosts
def follow(step: Step) -> Seen:
    """Grants begin with a request and end by landing or closing; a drained rank writes no more."""
    seen: Seen = step.seen
    event, opened = step.event, step.all_of(ev.StagingRequested) + step.all_of(ev.PagesRequested)
    if step.before.state in (S.UNKNOWN, S.ANNOUNCED) and step.after.state in BEGUN:
        seen = replace(seen, may_write=step.after.terms.everyone)
    for each in opened:
        one = 1 << each.chunk
        seen = replace(seen, ever=seen.ever | one, granted=seen.granted | one, live=seen.live + 1)
    if isinstance(event, ev.ChunkLanded | ev.GrantClosed):
        seen = replace(seen, granted=seen.granted & ~(1 << event.chunk), live=seen.live - 1)
    if isinstance(event, ev.ChunkLanded):
        seen = replace(seen, landed=seen.landed | 1 << event.chunk)
    if step.all_of(do.DeliverAux):
        seen = replace(seen, row=True)
    quiet = isinstance(event, ev.PeerQuiet) and step.before.state not in BEGUN  # while it is begun one may write later
    if isinstance(event, ev.PeerDrained) or quiet:
        seen = replace(seen, may_write=seen.may_write & ~(1 << event.peer))
    return replace(seen, over=True) if step.all_of(do.AnnounceOutcome) else seen


def work(v: V) -> DecodeWork:
    """The room's moved state, or an empty one."""
    return v.work or IDLE


def cells_of(v: V) -> int:
    """How many chunks the tokens behind its prefix make."""
    return chunks(v.tokens, v.prefix, v.terms.chunk_tokens, v.terms.layer_groups)


def joined(v: V) -> bool:
    """Its last tokens are so few that its state is in their chunk."""
    size = v.terms.chunk_tokens
    return v.tokens - v.prefix + ((v.prefix - v.tokens) // size + 1) * size <= v.terms.joint_tokens


def first_of(v: V) -> int:
    """The first chunk of which this rank has a part: of tokens, unless it has state alone."""
    return 0 if v.terms.writes else cells_of(v) - joined(v)


def end_of(v: V) -> int:
    """The number behind the last one: of state, if it has any."""
    return cells_of(v) + (0 if joined(v) else v.terms.state_groups)


def chunks_of(v: V) -> ChunkSet:
    """The chunks of which this rank has a part."""
    return (1 << end_of(v)) - 1 & ~((1 << first_of(v)) - 1)


def complete(v: V, landed: ChunkSet) -> bool:
    """Every chunk of which this rank has a part has landed."""
    return landed | (1 << first_of(v)) - 1 == (1 << end_of(v)) - 1


def writers_of(v: V, chunk: int) -> RankMask:
    """The prefill ranks that write the chunk."""
    of_tokens, at_end = chunk < cells_of(v), chunk >= cells_of(v) - joined(v)
    return (v.terms.writes if of_tokens else 0) | (v.terms.state_writes if at_end else 0)


def patient_anew(v: V) -> bool:
    """Its time begins anew, and nobody has been asked since."""
    return timed_anew(v) and work(v).tries == 0


# --------------------------------------------------------------------------------------- the invariant
@holds(*BEGUN, *LOST, S.DONE)
def knows_the_terms(v: V, g: Seen) -> bool:
    """It has terms, of a plan, and a prompt that is no shorter than its prefix."""
    return v.terms is not None and v.terms.chunk_tokens > 0 and v.terms.layer_groups > 0 and 0 <= v.prefix <= v.tokens


holds(S.UNKNOWN, *BEGUN)(
    "The engine was told of no end, and there is no cause for one.", lambda v, g: not g.over and not work(v).cause
)
holds(*LIVE, *LOST)("It counts the grants that have not ended.", lambda v, g: work(v).live == g.live)
holds(S.ANNOUNCED)(
    "No chunk has a grant, and none has landed.",
    lambda v, g: not g.granted and not g.landed and g.live == 0 and not g.row and v.work is None,
)
holds(*LIVE, S.DONE)(
    "It knows which chunks have landed, and whether the aux row has.",
    lambda v, g: work(v).done == g.landed and bool(work(v).aux) == bool(g.row),
)
holds(*LIVE, S.DRAINING, S.SETTLING, *ENDS)(
    "None are live when no chunk is granted.", lambda v, g: g.live >= 0 and (g.live == 0) == (not g.granted)
)


@holds(*LIVE, S.DONE)
def grants_are_of_chunks_to_come(v: V, g: Seen) -> bool:
    """A granted chunk is of the plan and has not landed; a landed chunk is of the plan."""
    every = chunks_of(v)
    return apart(g.granted, g.landed) and within(g.granted, every) and within(g.landed, every)


holds(S.UNKNOWN, *BEGUN, S.DONE)(
    "Each chunk ever granted is granted yet or has landed: grants close after failure, and then none begins.",
    lambda v, g: within(g.ever, g.granted | g.landed),
)
holds(S.DONE)("Everything is in place.", lambda v, g: g.over and complete(v, g.landed) and g.row)
holds(S.DRAINING)(
    "Every possible writer is among the peers that the room waits for.", lambda v, g: within(g.may_write, v.peers)
)
holds(*MET, S.DONE)("Every prefill rank takes part.", lambda v, g: v.peers == v.terms.everyone)
holds(S.OPEN)(
    "A chunk is missing, or the aux row of a room without chunks.",
    lambda v, g: not complete(v, g.landed) or (first_of(v) >= end_of(v) and not g.row),
)
holds(S.AWAIT_AUX)(
    "Every chunk is in place, and there is one; the aux row has not landed.",
    lambda v, g: first_of(v) < end_of(v) and complete(v, g.landed) and not g.row,
)
holds(S.SETTLING)("It has a grant.", lambda v, g: g.live > 0)
holds(S.ABORTED)("An engine gave it up.", lambda v, g: v.work is not None and v.work.cause.aborted)
holds(S.FAILED)("Something went wrong.", lambda v, g: v.work is not None and not v.work.cause.aborted)
holds(S.SETTLING, S.FAILED, S.ABORTED)("Nobody may write for it any more.", lambda v, g: not g.may_write)
holds(S.FAILED, S.ABORTED)("It has no grant.", lambda v, g: g.live == 0)
holds(*LOST)(
    "It is known why it is over, and so the engine was told.",
    lambda v, g: v.work is not None and bool(v.work.cause) and g.over,
)
holds(*BEGUN, S.DRAINING)(
    "Every possible writer is a prefill rank of the room's plan.", lambda v, g: within(g.may_write, v.terms.everyone)
)


# -------------------------------------------------------------------------------------- the assumptions
assumes(ev.RoomOpened, ev.RoomAnnounced, paid="engine: arguments and the plan")(
    "The engine opens a room with terms of a plan.",
    lambda v, e, g: e.terms.chunk_tokens > 0 and e.terms.layer_groups > 0 and e.tokens >= 0,
)
assumes(ev.RoomOpened, paid="engine: arguments")(
    "A prefix is no longer than its prompt.", lambda v, e, g: 0 <= e.prefix <= e.tokens
)
assumes(*FAILING, paid="engine: arguments; tables: named causes")(
    "The end of a room has a cause.", lambda v, e, g: bool(e.cause)
)
assumes(ev.ChunkRequested, paid="routes: `ChunkIs.BARE`; codec: a chunk is not negative")(
    "A request that reaches the room is for a chunk without a grant.", lambda v, e, g: not among(e.chunk, g.granted)
)


@assumes(ev.ChunkLanded, ev.GrantClosed, paid="decode_grant: its S6, one end a grant")
def ends_a_grant(v: V, e: ev.ChunkLanded | ev.GrantClosed, g: Seen) -> bool:
    """The ending grant is the room's; if it is the only one, none is left."""
    left = g.granted & ~(1 << e.chunk)
    return among(e.chunk, g.granted) and g.live > 0 and (g.live == 1) == (not left)


assumes(ev.PeerDrained, ev.PeerQuiet, paid="prefill_room: its S4; decode_link: its S4")(
    "A prefill rank that has drained, or is quiet, writes no more (and so is taken from those that may).",
    lambda v, e, g: e.peer >= 0,
)


# ---------------------------------------------------------------------------------------- the promises
@promises("S5", do.AnnounceOutcome)
def success_is_all_of_it(step: Step, effect: do.AnnounceOutcome) -> bool:
    """Success is announced when every chunk and the aux row are in place and every prefill rank takes
    part.
    """
    after = step.after
    if after.state is not S.DONE:
        return bool(effect.cause)
    return not effect.cause and complete(after, step.then.landed) and step.then.row


@promises("S5", do.Reply)
def confirms_what_is_in_place(step: Step, effect: do.Reply) -> bool:
    """A part without a grant is confirmed when its chunk has landed; of a forgotten room, always."""
    forgotten = step.before.state is S.UNKNOWN
    return not isinstance(effect.body, ChunkAck) or forgotten or among(step.event.chunk, step.seen.landed)


promises("S6", do.DeliverAux)("The engine is given the aux row once.", lambda step, effect: not step.seen.row)
promises("S6", do.AnnounceOutcome)("The engine is told one outcome.", lambda step, effect: not step.seen.over)
promises("S6", do.AnnounceOutcome)(
    "The cause is another rank's own if that says that it has drained, and else this one's.",
    lambda step, effect: effect.told == isinstance(step.event, ev.PeerDrained),
)
promises("S6")(
    "A room that has ended stays so.",
    lambda step: step.before.state not in ENDS or step.after.state is step.before.state,
)


@promises("S4", do.AnnounceReleased)
def released_when_nobody_writes(step: Step, effect: do.AnnounceReleased) -> bool:
    """Pages are released after the outcome, with no grant left, and with no possible writer or all in
    place.
    """
    then = step.then
    return then.over and not then.granted and (step.after.state is S.DONE or not then.may_write)


promises("S4", do.DrainGrants)(
    "Grants are told that nobody writes when nobody may.", lambda step, effect: not step.then.may_write
)


@promises("S4", ev.StagingRequested, ev.PagesRequested)
def grants_begin_with_what_was_asked(step: Step, effect: ev.StagingRequested | ev.PagesRequested) -> bool:
    """A grant begins with the request as it came: its link, writer, chunk, and the time it was made."""
    e = step.event
    came = isinstance(effect, ev.StagingRequested) or (effect.link == e.link and effect.epoch == e.epoch)
    return came and effect.peer == e.peer and effect.asked == e.asked and effect.cut == e.cut


@promises("S2", ev.StagingRequested, ev.PagesRequested)
def one_grant_a_chunk(step: Step, effect: ev.StagingRequested | ev.PagesRequested) -> bool:
    """A chunk is granted once, ever, to a writer of the plan."""
    fresh = not among(effect.chunk, step.seen.ever)
    return fresh and among(effect.peer, effect.writers) and effect.writers == writers_of(step.after, effect.chunk)


promises("L1", ev.StagingRequested, ev.PagesRequested, do.DeliverAux)(
    "A request for a chunk, or the landing aux row, gives a room that is not over its whole time again.",
    lambda step, effect: step.after.state is S.DONE or patient_anew(step.after),
)


@promises("L1")
def has_its_time_for_progress_alone(step: Step) -> bool:
    """While it stays in a state its time begins anew only by progress, so a stalled room ends. Progress is
    a chunk that is granted or lands for the first time, or the aux row. Everything else is counted.
    """
    before, after, seen, then = step.before, step.after, step.seen, step.then
    if after.state is not before.state or before.state not in LIVE or isinstance(step.event, ev.TimerFired):
        return True
    anew = begun_anew(step) or work(after).tries < work(before).tries
    return not anew or then.ever != seen.ever or then.landed != seen.landed or bool(then.row) != bool(seen.row)


@promises("L1", on=(ev.ChunkLanded, ev.RoomRenewed))
def has_its_time_when_it_lands(step: Step) -> bool:
    """A landing chunk gives a room with all its peers its time again; so does a renewed announcement."""
    waits = S.ANNOUNCED if isinstance(step.event, ev.RoomRenewed) else S.OPEN
    return step.after.state is not waits or step.before.state is not waits or patient_anew(step.after)


@promises("L1")
def begins_with_all_its_tries(step: Step) -> bool:
    """The counts of a state (calls, questions, reports of its end) begin at zero with the state."""
    return step.after.state is step.before.state or work(step.after).tries == 0 or step.after.state in (S.SETTLING, *ENDS)


@promises("S12", on=(ev.RoomOpened,))
def knows_what_it_was_opened_with(step: Step) -> bool:
    """A room has the terms, prompt, prefix, secret and trace with which its engine opened it."""
    after, e = step.after, step.event
    if after.state is not S.AWAIT_PEERS or step.before.state is S.AWAIT_PEERS:
        return True
    same = after.terms == e.terms and after.tokens == e.tokens and after.prefix == e.prefix and after.runs == e.runs
    return same and after.secret == e.secret and after.traceparent == e.traceparent


@promises("S12", on=(ev.RoomAnnounced,))
def announces_what_it_is_told(step: Step) -> bool:
    """So has one that is announced."""
    after, e = step.after, step.event
    if after.state is not S.ANNOUNCED or step.before.state is S.ANNOUNCED:
        return True
    same = after.terms == e.terms and after.tokens == e.tokens
    return same and after.secret == e.secret and after.traceparent == e.traceparent


@promises("S12", do.Send, do.Reply)
def says_what_its_engine_said(step: Step, effect: do.Send | do.Reply) -> bool:
    """A prefill rank is sent prompt, prefix, secret, trace, runs and cut as the engine gave them. It is
    also told whether all take part, and why the room is over.
    """
    after, body = step.after, effect.body
    if isinstance(body, Abort):
        return body.cause == work(after).cause and body.secret == after.secret
    if not isinstance(body, Open | Announce):
        return True
    same = body.tokens == after.tokens and body.secret == after.secret and body.traceparent == after.traceparent
    if isinstance(body, Announce):
        return same
    cut = body.prefix == after.prefix and body.runs == after.runs and body.layer_groups == after.terms.layer_groups
    return same and cut and body.again == (after.state in MET)


promises("S12", do.DeliverAux)(
    "A room belongs to its engine's trace, or else to the one that comes with the aux row.",
    lambda step, effect: step.after.traceparent == (step.before.traceparent or step.event.traceparent),
)
promises("L1", on=(ev.TimerFired,))(
    "Each time that the prefill ranks are asked, or told, once more is counted.",
    lambda step: step.after.state is not step.before.state or work(step.after).tries == work(step.before).tries + 1,
)


@promises("L1")
def stops_what_it_began(step: Step) -> bool:
    """The step that ends a room early stops its grants; when no rank may write, they are told so."""
    begins = step.after.state is S.DRAINING and step.before.state is not S.DRAINING
    stops, drains = step.all_of(do.StopGrants), step.all_of(do.DrainGrants)
    settles = step.after.state is S.SETTLING and step.before.state is not S.SETTLING
    return len(stops) == (1 if begins else 0) and len(drains) == (1 if settles else 0)


@promises("S6", do.AnnounceReleased)
def is_told_the_outcome_first(step: Step, effect: do.AnnounceReleased) -> bool:
    """The engine gets the aux row before the outcome, and the outcome before the pages."""
    return in_order(step, do.AnnounceOutcome, do.AnnounceReleased) and in_order(step, do.DeliverAux, do.AnnounceOutcome)


# -------------------------------------------------------------------------------- where each word leads
@promises("L1", on=(ev.PeerReady, ev.ChunkLanded, ev.AuxLanded))
def is_done_when_all_is_there(step: Step) -> bool:
    """A room waits for all prefill ranks, and is done as soon as everything is in place. The engine is
    given the aux row when it comes first.
    """
    before, after, then = step.before, step.after, step.then
    if before.state not in LIVE:
        return True
    row = isinstance(step.event, ev.AuxLanded) and not step.seen.row
    missing = not complete(after, then.landed) or (first_of(after) >= end_of(after) and not then.row)
    waits = before.state is S.AWAIT_PEERS and (not isinstance(step.event, ev.PeerReady) or after.peers != after.terms.everyone)
    ends = S.AWAIT_PEERS if waits else S.OPEN if missing else S.DONE if then.row else S.AWAIT_AUX
    return after.state is ends and len(step.all_of(do.DeliverAux)) == (1 if row else 0)


@promises("L1", on=(ev.ChunkRequested,))
def confirms_pages_that_are_in_place(step: Step) -> bool:
    """A request for the pages of a landed chunk is confirmed: the write may have failed after its
    notification.
    """
    before, e = step.before, step.event
    if before.state not in (*LIVE, S.DONE):
        return True
    there = e.pages and among(e.chunk, step.seen.landed)
    return len([each for each in step.all_of(do.Reply) if isinstance(each.body, ChunkAck)]) == (1 if there else 0)


@promises("L1", on=(ev.ChunkRequested,))
def grants_what_is_of_its_plan(step: Step) -> bool:
    """A chunk of the plan that has not landed is granted to its requesting writer, by the requested way.
    Where all have landed, none is granted.
    """
    before, e = step.before, step.event
    if before.state is S.AWAIT_AUX:
        return not step.all_of(ev.StagingRequested) and not step.all_of(ev.PagesRequested)
    if before.state not in LIVE:
        return True
    planned = first_of(before) <= e.chunk < end_of(before) and among(e.peer, writers_of(before, e.chunk))
    planned = planned and not among(e.chunk, step.seen.landed)
    granted = step.all_of(ev.PagesRequested if e.pages else ev.StagingRequested)
    return len(granted) == (1 if planned else 0)


@promises("L1", on=(ev.PeerDrained, ev.PeerQuiet, ev.GrantClosed, ev.ChunkLanded))
def ends_when_nothing_is_left(step: Step) -> bool:
    """A failed room drains while a prefill rank may write, then settles while a grant is left."""
    before, after = step.before.state, step.after
    if before not in (S.DRAINING, S.SETTLING):
        return True
    if before is S.DRAINING and (not isinstance(step.event, ev.PeerDrained | ev.PeerQuiet) or after.peers):
        return after.state is S.DRAINING
    return (after.state is S.SETTLING) == (step.then.live > 0) and after.state is not S.DRAINING


@promises("S6", on=(ev.TimerFired,))
def names_what_did_not_come(step: Step) -> bool:
    """The cause names the missing part: no answer, no progress, or the aux row alone."""
    before, after = step.before.state, step.after
    if before is S.DRAINING or after.state is not S.DRAINING:
        return True
    if before is S.AWAIT_AUX:
        return work(after).cause == Cause.AUX_MISSING
    return work(after).cause == (Cause.NO_ANSWER if before is S.AWAIT_PEERS else Cause.STALLED)


@promises("L1", do.Send)
def tells_who_does_not_know(step: Step, effect: do.Send) -> bool:
    """Announcements and questions go to all prefill ranks, an open to those that have not confirmed it.
    That the room is over goes to those that may write. Each of these goes to every peer whose link comes up. That it is
    over is repeated to such a peer until it has drained, also when nothing can land any more.
    """
    after, e = step.after, step.event
    if after.state in LOST and isinstance(e, ev.LinkCameUp):
        return effect.peers == 1 << e.peer & work(after).untold
    asked = 1 << e.peer if isinstance(e, ev.LinkCameUp) else after.terms.everyone
    if after.state is S.AWAIT_PEERS:
        return effect.peers == asked & ~after.peers
    if after.state is S.DRAINING:
        return effect.peers == after.peers
    return effect.peers == asked


@promises("L1", on=(ev.RoomAnnounced, ev.RoomRenewed, ev.RoomOpened, ev.LinkCameUp, ev.TimerFired))
def tells_it_again(step: Step) -> bool:
    """Each step that begins a room, and each event of the engine, the time or a link, is sent once."""
    before, after, e = step.before.state, step.after.state, step.event
    begins = before is S.UNKNOWN and after is not S.UNKNOWN
    opens = before is S.ANNOUNCED and isinstance(e, ev.RoomOpened | ev.RoomRenewed | ev.LinkCameUp)
    again = isinstance(e, ev.TimerFired) or (isinstance(e, ev.LinkCameUp) and before in (S.AWAIT_PEERS, *LOST))
    return len(step.all_of(do.Send)) == (1 if begins or opens or again else 0)


@promises("L1")
def remembers_who_knows(step: Step) -> bool:
    """When a room fails no prefill rank knows of it; exactly those that report drained do."""
    before, after = step.before, step.after
    if after.state not in LOST:
        return True
    untold = work(before).untold if before.state in LOST else after.terms.everyone
    drained = 1 << step.event.peer if isinstance(step.event, ev.PeerDrained) else 0
    return work(after).untold == untold & ~drained


@promises("L1", do.AskLinks)
def asks_its_links(step: Step, effect: do.AskLinks) -> bool:
    """Links are asked for ranks that are to open the room, and after its end which possible writers are
    quiet.
    """
    after, over = step.after, step.after.state is S.DRAINING
    if not over:
        return not effect.quiet and effect.peers == after.terms.everyone & ~after.peers
    whom = after.peers & 1 << step.event.peer if isinstance(step.event, ev.LinkWentDown) else after.terms.everyone
    return effect.quiet and effect.peers == whom and effect.in_doubt == work(after).in_doubt


@promises("L1", on=(ev.TimerFired,))
def gives_up_in_time(step: Step) -> bool:
    """A room asks until its tries are over, and no longer."""
    before, after, e = step.before, step.after.state, step.event
    asks = before.state in LIVE and work(before).tries < e.tries
    return before.state is S.DRAINING or after is (before.state if asks else S.DRAINING)


promises("S12", on=(ev.LinkCameUp, ev.RoomRenewed))(
    "A link that comes up, or an announcement that holds, moves no room.",
    lambda step: step.after.state is step.before.state,
)
promises("S4", on=(ev.PeerDrained, ev.PeerQuiet))(
    "The room does not wait for a rank that writes no more.",
    lambda step: step.before.state is not S.DRAINING or not among(step.event.peer, step.after.peers),
)


@room_claims.waits("L1")
def waits_for(v: V, g: Seen) -> str:
    """It calls until all take part, then asks after missing progress or the aux row. It repeats that it is
    over until all have drained. An announcement holds until it is renewed.
    """
    if work(v).cause:
        return "resend"
    if v.state is S.ANNOUNCED:
        return "stall"
    if v.state is S.AWAIT_AUX:
        return "aux"
    return "call" if v.state is S.AWAIT_PEERS else "idle"


# ------------------------------------------------------------------------ what is said at once, not by a timer
@promises("L1", on=(ev.ChunkRequested, ev.ChunkNotified, ev.AuxLanded))
def answers_at_once(step: Step) -> bool:
    """A prefill rank that notifies a part or requests one is answered in the same step: the part is in
    place, or the room is over or unknown.
    """
    before, e = step.before.state, step.event
    acks = step.says(AuxAck if isinstance(e, ev.AuxLanded) else ChunkAck)
    if before in LOST:
        return step.says(Abort) == 1 and acks == 0
    if isinstance(e, ev.ChunkRequested):
        return before is not S.UNKNOWN or step.says(Gone) == 1
    if before is S.ANNOUNCED:
        return acks == 0
    there = isinstance(e, ev.AuxLanded) or before is S.UNKNOWN or among(e.chunk, step.seen.landed)
    return acks == (1 if there else 0)


@promises("L1", on=(ev.PeerDrained,))
def confirms_that_one_has_drained(step: Step) -> bool:
    """A prefill rank that has drained hears that it is known; it is quiet in a room that ends by that."""
    begun = step.before.state in BEGUN
    if begun and not step.event.cause:
        return step.says(Noted) == 0
    return step.says(Noted) == 1 and len(step.all_of(ev.PeerQuiet)) == (1 if begun else 0)


@promises("L1")
def tells_all_that_it_ends(step: Step) -> bool:
    """With the step that ends a room early all who may write are told to stop."""
    begins = step.before.state is not S.DRAINING and step.after.state is S.DRAINING
    return not begins or step.says(Abort) == 1


@promises("L1", on=(ev.RoomAnnounced, ev.RoomRenewed, ev.RoomOpened, ev.TimerFired))
def asks_whether_there_are_links(step: Step) -> bool:
    """Each time that prefill ranks are told of a room that waits for them, their links are asked for, too."""
    waits = step.after.state in (S.ANNOUNCED, S.AWAIT_PEERS)
    return not waits or len(step.all_of(do.AskLinks)) == len(step.all_of(do.Send))


promises("L1", on=(ev.GrantsStopped, ev.LinkWentDown))(
    "A draining room asks which ranks write no more: when its grants stopped, and for each lost link.",
    lambda step: step.before.state is not S.DRAINING or len(step.all_of(do.AskLinks)) == 1,
)


@promises("L1")
def gives_its_pages_back(step: Step) -> bool:
    """With the step that ends a room for good its pages are the engine's again."""
    ends = step.before.state not in ENDS and step.after.state in ENDS
    return len(step.all_of(do.AnnounceReleased)) == (1 if ends else 0)
