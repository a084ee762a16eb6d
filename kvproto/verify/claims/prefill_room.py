"""Prefill room: invariants of a prefill rank's room.

The witness counts the sends that were opened and have not ended, knows how far chunks were opened, and whether the engine
was told how the room ended.  A room tells its one outcome once (S6), opens each chunk once (S2), and gives the pages back
when no send of it reads or writes any more (S4), however many chunks, decode ranks and messages there were.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.vocabulary import Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import Claim
from kvproto.protocol.kinds import RankMask
from kvproto.protocol.messages import Drained, Opened
from kvproto.protocol.states import PRoom as S
from kvproto.protocol.tables.prefill_room import IDLE, PrefillWork, PRoomValue, prefill_room
from kvproto.verify.framework.claims import OWN, Claims, Ghost, Step, among, begun_anew, in_order, timed_anew


class Seen(Ghost, frozen=True):
    """The witness of a room.

    `live`: sends that were opened and have not ended; `opened`: all chunks below were; `row`: the aux row's sends were;
    `told`: the engine knows the outcome.
    """

    live: int = 0
    opened: int = 0
    row: bool = False
    told: bool = False


room_claims: Claims[PRoomValue, Seen] = Claims(prefill_room, Seen)
holds, assumes, promises = room_claims.holds, room_claims.assumes, room_claims.promises
V = PRoomValue
LIVE = (S.AWAIT_PEERS, S.AWAIT_FORWARD, S.OPEN)
LOST = (S.DRAINING, S.AWAIT_NOTED, S.FAILED, S.ABORTED)
BLAMED = (ev.EngineAborted, ev.EngineRefused, ev.RoomFailed, ev.AbortAsked, ev.LinkWentDown)


@room_claims.ghosts
def follow(step: Step) -> Seen:
    """Sends are opened by windows, and end one by one; a room that begins anew has told nothing."""
    seen: Seen = step.seen
    if step.before.state in LOST and step.after.state is S.AWAIT_PEERS:
        seen = replace(seen, told=False)
    for window in step.all_of(do.OpenWindow):
        # The first window may have chunks of both kinds; each other one is one chunk.
        terms = step.after.terms
        of_tokens = min(window.last, cells_of(step.after) - joined(step.after)) - window.first
        last = window.last - window.first - of_tokens
        count = of_tokens * terms.writes.bit_count() + last * at_end_of(step.after).bit_count()
        count = count if window.aux else fan_out(step.after, window.first)
        seen = replace(seen, live=seen.live + count + (terms.aux.bit_count() if window.aux else 0), opened=window.last)
        if window.aux:
            seen = replace(seen, row=True)
    if isinstance(step.event, ev.SendFinished):
        seen = replace(seen, live=seen.live - 1)
    return replace(seen, told=True) if step.all_of(do.AnnounceOutcome) else seen


def work(v: V) -> PrefillWork:
    """The room's work, or an empty one."""
    return v.work or IDLE


def cells_of(v: V) -> int:
    """How many chunks the tokens behind its prefix make."""
    return -((v.prefix - v.tokens) // v.terms.chunk_tokens) * v.terms.layer_groups


def joined(v: V) -> bool:
    """Its last tokens are so few that its state is in their chunk."""
    size = v.terms.chunk_tokens
    return v.tokens - v.prefix + ((v.prefix - v.tokens) // size + 1) * size <= v.terms.joint_tokens


def chunks_of(v: V) -> int:
    """The number behind its last chunk: of state, if it writes any."""
    return cells_of(v) + (0 if joined(v) else v.terms.state_groups)


def first_of(v: V) -> int:
    """The first chunk that it writes: of tokens, unless it writes state alone."""
    return 0 if v.terms.writes else cells_of(v) - joined(v)


def nothing_to_send(v: V) -> bool:
    """Nobody waits for its aux row, and it has no tokens to write to anybody, and no state."""
    return not v.terms.aux and first_of(v) == chunks_of(v)


def fan_out(v: V, chunk: int) -> int:
    """The sends of this chunk."""
    return (v.terms.writes if chunk < cells_of(v) - joined(v) else at_end_of(v)).bit_count()


def at_end_of(v: V) -> RankMask:
    """The decode ranks to which its state is written, or the last of its tokens with it."""
    return v.terms.state_writes | v.terms.writes if joined(v) else v.terms.state_writes


def meant(room: Claim, caller: Claim) -> bool:
    """A room with this claim is for that decode group, or for any, and asks for the secret that it shows."""
    return room.secret == caller.secret and room.group in (0, caller.group)


def deeper(before: PrefillWork, e: ev.TokensProduced) -> bool:
    """The engine says more than it had of what is computed in its first layers."""
    return e.layers > 0 and (e.ahead > before.ahead or (e.ahead == before.ahead and e.layers > before.layers))


# --------------------------------------------------------------------------------------- the invariant
holds(S.UNKNOWN, S.AWAIT_ENGINE, *LIVE)(
    "Nobody was told of an end, and there is no cause for one.", lambda v, g: not g.told and not work(v).cause
)
holds(S.AWAIT_ENGINE, S.AWAIT_FORWARD, S.OPEN, S.DONE)(
    "Some decode rank has told the terms.", lambda v, g: v.terms is not None
)
holds()(
    "A chunk has tokens and layers, and a window chunks.",
    lambda v, g: v.terms is None or (v.terms.chunk_tokens > 0 and v.terms.layer_groups > 0 and v.terms.window > 0),
)
holds(S.AWAIT_ENGINE, *LIVE, S.DONE)(
    "The prefix, once it is known, lies within the prompt.", lambda v, g: v.prefix <= v.tokens
)


@holds()
def is_somebodys_if_anybody_asked(v: V, g: Seen) -> bool:
    """A room that no decode group has asked for knows no decode rank, and waits or has failed."""
    asked = v.state in (S.AWAIT_ENGINE, S.AWAIT_FORWARD, S.OPEN, S.DONE)
    return v.facts.claim.group > 0 or (not v.peers and not asked)


holds(S.AWAIT_FORWARD, S.OPEN, S.DONE)("Every decode rank has opened it.", lambda v, g: v.peers == v.terms.everyone)
holds(S.OPEN)("Its engine is at work.", lambda v, g: v.work is not None)
holds(S.OPEN)("No chunk was opened that the plan does not have.", lambda v, g: work(v).next <= chunks_of(v))
holds(S.ABORTED)("An engine gave it up.", lambda v, g: v.work is not None and v.work.cause.aborted)
holds(S.FAILED)("Something went wrong.", lambda v, g: v.work is not None and not v.work.cause.aborted)
holds(S.UNKNOWN, S.AWAIT_ENGINE, S.AWAIT_PEERS, S.AWAIT_FORWARD)(
    "No send was opened.", lambda v, g: g.live == 0 and work(v).live == 0
)
holds(S.UNKNOWN, S.AWAIT_ENGINE, S.AWAIT_PEERS, S.AWAIT_FORWARD)(
    "No chunk was opened, nor the aux row's sends.", lambda v, g: g.opened == 0 and not g.row
)
holds(S.OPEN)(
    "It knows how far chunks were opened; the aux row's sends were, with the first.",
    lambda v, g: work(v).next == g.opened and g.row,
)
holds(*LOST)(
    "A room that its engine has not opened has opened no send.",
    lambda v, g: work(v).owned or (g.opened == 0 and not g.row),
)
holds(S.OPEN, S.DONE, *LOST)("It counts the sends that have not ended.", lambda v, g: work(v).live == g.live)
holds(S.AWAIT_NOTED, S.DONE, S.FAILED, S.ABORTED)("Every send has ended.", lambda v, g: g.live == 0)
holds(S.DRAINING)(
    "A room with live sends was opened by its engine; after its end the engine knows the outcome.",
    lambda v, g: not g.live or (g.told and work(v).owned),
)
holds(*LOST)(
    "It is known why the room is over, and the engine was told if it has the room.",
    lambda v, g: v.work is not None and bool(v.work.cause) and bool(g.told) == bool(v.work.owned),
)
holds(S.DONE)("The engine was told of its success.", lambda v, g: g.told and not work(v).cause)


# -------------------------------------------------------------------------------------- the assumptions
@assumes(ev.EngineAborted, ev.EngineRefused, ev.RoomFailed, ev.LinkWentDown, paid="engine: arguments; tables: named causes")
def has_cause(v: V, e: ev.EngineAborted | ev.EngineRefused | ev.RoomFailed | ev.LinkWentDown, g: Seen) -> bool:
    """The end of a room has a cause."""
    return bool(e.cause)


assumes(ev.EngineRefused, paid="engine: arguments")(
    "An engine that says no gives the room up.", lambda v, e, g: e.cause.aborted
)
assumes(ev.PeerOpened, ev.PeerAnnounced, ev.AbortAsked, paid="layout: plans; settings: the window")(
    "The terms are those of a plan: a chunk has tokens and layers, and a window chunks.",
    lambda v, e, g: e.terms.chunk_tokens > 0 and e.terms.layer_groups > 0 and e.terms.window > 0,
)
assumes(ev.PeerOpened, ev.PeerAnnounced, ev.AbortAsked, paid="codec: a HELLO of group 0 is no message")(
    "A decode rank is of a decode group, whose number is not 0.", lambda v, e, g: e.claim.group > 0
)
assumes(ev.PeerOpened, paid="rank: an OPEN whose prefix is longer than its prompt is not heard")(
    "A prefix is no longer than its prompt.", lambda v, e, g: e.prefix <= e.tokens
)
assumes(ev.AbortAsked, paid="codec: an ABORT without a cause is no message")(
    "An abort has a cause.", lambda v, e, g: bool(e.cause)
)
assumes(ev.SendFinished, paid="prefill_send: its S6, one end a send that was opened")(
    "The ending send was opened and has not ended before.", lambda v, e, g: g.live > 0
)
assumes(ev.SendsStopped, paid="rank: said after every live send was told to stop")(
    "There are no fewer than no sends.", lambda v, e, g: g.live >= 0
)


# ---------------------------------------------------------------------------------------- the promises
promises("S4", do.AnnounceReleased)(
    "Pages are released when every send has ended and the engine opened the room and knows the outcome.",
    lambda step, effect: step.then.live == 0 and step.then.told,
)
promises("S4", do.Send, do.Reply)(
    "The room is reported drained when every send of it has ended.",
    lambda step, effect: not isinstance(effect.body, Drained) or step.then.live == 0,
)
promises("S6", do.AnnounceOutcome)(
    "The engine is told one outcome: success in `DONE` alone, a cause in all that have failed.",
    lambda step, effect: not step.seen.told and bool(effect.cause) == (step.after.state is not S.DONE),
)


@promises("S6", do.AnnounceOutcome)
def success_is_all_of_it(step: Step, effect: do.AnnounceOutcome) -> bool:
    """Success is told when every chunk was opened and every send has ended, or nothing was to be sent."""
    after = step.after
    if step.after.state is not S.DONE:
        return True
    return nothing_to_send(after) or (step.then.live == 0 and work(after).next == chunks_of(after))


promises("S6", do.AnnounceOutcome)(
    "The cause is another rank's own if that has given the room up, and else this one's.",
    lambda step, effect: effect.told == isinstance(step.event, ev.AbortAsked),
)


@promises("S6")
def an_end_is_an_end(step: Step) -> bool:
    """A room that has ended stays so, unless it was never this engine's and begins anew."""
    ends = (S.DONE, S.FAILED, S.ABORTED)
    stays = step.before.state not in ends or step.after.state is step.before.state
    if step.before.state in LOST and step.after.state is S.AWAIT_PEERS:
        return not step.seen.told
    return stays


@promises("S1", do.OpenWindow)
def sends_when_all_are_known(step: Step, effect: do.OpenWindow) -> bool:
    """Sends are opened when every decode rank has opened the room, and of chunks that the plan has."""
    after = step.after
    return after.state is S.OPEN and after.peers == after.terms.everyone and effect.last <= chunks_of(after)


@promises("S2", do.OpenWindow)
def opens_each_chunk_once(step: Step, effect: do.OpenWindow) -> bool:
    """A window begins where the last one ended, the first with the rank's first chunk: none is opened
    twice; the aux sends are opened once.
    """
    before_it = first_of(step.after) if effect.aux else step.seen.opened
    return effect.first == before_it and effect.first <= effect.last and not (effect.aux and step.seen.row)


@promises("S12", do.Reply)
def means_the_same_room(step: Step, effect: do.Reply) -> bool:
    """A decode rank is confirmed that means the same prompt, and the same prefix as those before it."""
    before, event = step.before, step.event
    if not isinstance(effect.body, Opened) or before.state not in (S.AWAIT_ENGINE, S.AWAIT_PEERS):
        return True
    return event.tokens == before.tokens and (not before.peers or event.prefix == before.prefix)


@promises("S12")
def announces_the_same_room(step: Step) -> bool:
    """A room goes on with a decode rank that announces it only if that means the same prompt."""
    before, waits = step.before, (S.AWAIT_ENGINE, S.AWAIT_PEERS)
    if before.state not in waits or step.after.state not in waits or not isinstance(step.event, ev.PeerAnnounced):
        return True
    return step.event.tokens == before.tokens


@promises("S9")
def ends_with_its_own_links(step: Step) -> bool:
    """A link that is lost ends the rooms that the decode rank at its other end has opened, and no others."""
    if not isinstance(step.event, ev.LinkWentDown) or step.before.state not in (S.AWAIT_ENGINE, *LIVE):
        return True
    return (step.after.state is not step.before.state) == among(step.event.peer, step.before.peers)


@promises("S9")
def goes_on_with_whom_it_means(step: Step) -> bool:
    """The engine takes over an opened room only for the group that it means, and with that prompt length."""
    before, event = step.before, step.event
    goes_on = step.after.state in (S.AWAIT_PEERS, S.AWAIT_FORWARD, S.DONE)
    if before.state is not S.AWAIT_ENGINE or not isinstance(event, ev.EngineOpened) or not goes_on:
        return True
    return meant(event.claim, before.facts.claim) and before.tokens == event.tokens


assumes(ev.PeerOpened, ev.PeerAnnounced, ev.AbortAsked, paid="rank: `_sender_fact`; routes: who may speak of a room")(
    "A decode rank that speaks of a room that its engine has opened claims it as it is claimed.",
    lambda v, e, g: v.state not in LIVE or meant(v.facts.claim, e.claim),
)
promises("S9", on=(ev.PeerOpened, ev.PeerAnnounced, ev.AbortAsked))(
    "A room that its engine has opened is, from the first word of a decode group on, that group's.",
    lambda step: step.before.state not in LIVE or step.after.facts.claim == step.event.claim,
)


@promises("S9")
def stays_whose_it_is(step: Step) -> bool:
    """A room at work that is some decode group's is not given to another."""
    before, after = step.before, step.after
    return before.state not in LIVE or not before.facts.claim.group or after.facts.claim == before.facts.claim


promises("S9", on=(ev.PeerOpened,))(
    "A room that all have opened and that is forgotten here is over: it does not begin anew to fail without an engine.",
    lambda step: step.before.state is not S.UNKNOWN or not step.event.again or step.after.state is S.UNKNOWN,
)
promises("L1", do.OfferKv, do.OfferAux, do.WithdrawKv)(
    "An open room whose engine moves is given its whole time again.",
    lambda step, effect: step.after.state is not S.OPEN or timed_anew(step.after),
)


@promises("L1", on=(ev.SendFinished, ev.PeerAnnounced))
def has_its_time_when_a_send_ends(step: Step) -> bool:
    """So is one of which a send ends; and one that waits, when a decode rank says that it will open it."""
    after, waits = step.after, (S.AWAIT_ENGINE, S.AWAIT_PEERS)
    moves = after.state in waits if isinstance(step.event, ev.PeerAnnounced) else after.state is S.OPEN
    return not moves or timed_anew(after)


@promises("L1")
def has_its_time_for_progress_alone(step: Step) -> bool:
    """While it stays in a state its time begins anew only by progress, so a stalled room ends. Progress is
    a new statement of its engine, the end of a send, or, where it waits for peers, an announcement of a decode rank.
    """
    before, after = step.before, step.after
    if after.state is not before.state or before.state not in (S.AWAIT_ENGINE, *LIVE) or not begun_anew(step):
        return True
    waits = before.state in (S.AWAIT_ENGINE, S.AWAIT_PEERS) and isinstance(step.event, ev.PeerAnnounced)
    moves = before.state is S.OPEN and step.effects and isinstance(
        step.event, ev.TokensProduced | ev.AuxProvided | ev.TokensWithdrawn
    )
    return waits or bool(moves) or isinstance(step.event, ev.SendFinished)


@promises("L1", on=(ev.TimerFired,))
def ends_in_time(step: Step) -> bool:
    """A room whose time is over ends; one that has ended tells it once more, or no more."""
    over = step.after.state in (S.AWAIT_NOTED, S.FAILED, S.ABORTED)
    return over if step.before.state is S.AWAIT_NOTED else step.after.state is S.DRAINING


@promises("L1", on=(ev.TimerFired,))
def counts_how_often_it_tells(step: Step) -> bool:
    """Each time that the decode ranks are told once more is counted."""
    again = step.before.state is S.AWAIT_NOTED and step.after.state is S.AWAIT_NOTED
    return not again or work(step.after).tries == work(step.before).tries + 1


@promises("S12", on=(ev.TokensProduced, ev.TokensWithdrawn, ev.ForwardScheduled, ev.AuxProvided))
def knows_what_is_computed(step: Step) -> bool:
    """The room records the computed and withdrawn KV, whether the engine is at work, and the aux row."""
    after, e = step.after, step.event
    if step.before.state not in LIVE or after.state not in LIVE:
        return True
    if isinstance(e, ev.TokensProduced):
        first, known = work(step.before), work(after)
        ahead, layers = (e.ahead, e.layers) if deeper(first, e) else (first.ahead, first.layers)
        more = known.produced >= e.tokens and known.produced >= first.produced
        return after.work is not None and more and known.ahead == ahead and known.layers == layers
    if isinstance(e, ev.TokensWithdrawn):
        return work(after).produced <= e.tokens and work(after).layers == 0 and work(after).ahead == 0
    if isinstance(e, ev.ForwardScheduled):
        return after.work is not None
    return not isinstance(e, ev.AuxProvided) or bool(work(after).aux)


@promises("S12", on=(ev.PeerOpened,))
def knows_what_a_peer_said(step: Step) -> bool:
    """An opening decode rank's terms, prompt, prefix, claim, trace and runs are recorded."""
    before, after, e = step.before, step.after, step.event
    meets = before.state in (S.UNKNOWN, S.AWAIT_ENGINE, S.AWAIT_PEERS) and after.state in (S.AWAIT_ENGINE, *LIVE, S.DONE)
    if not meets:
        return True
    same = after.terms == e.terms and after.tokens == e.tokens and after.prefix == e.prefix and among(e.peer, after.peers)
    said = after.facts.claim == e.claim and after.facts.their_runs >= e.runs
    return same and said and after.facts.traceparent == (before.facts.traceparent or e.traceparent)


@promises("S12", on=(ev.PeerAnnounced,))
def knows_what_a_peer_announced(step: Step) -> bool:
    """An announcement of an unknown room records its terms, prompt and claim."""
    after, e = step.after, step.event
    if step.before.state is not S.UNKNOWN or after.state is not S.AWAIT_ENGINE:
        return True
    return after.terms == e.terms and after.tokens == e.tokens and after.facts.claim == e.claim


@promises("S12", on=(ev.EngineOpened,))
def knows_what_its_engine_said(step: Step) -> bool:
    """The engine's trace, time and runs are recorded, and the room is the engine's own."""
    before, after, e = step.before, step.after, step.event
    late = before.state in LOST and after.state is before.state and step.all_of(do.AnnounceOutcome)
    if not late and (before.state is not S.AWAIT_ENGINE or after.state not in (*LIVE, S.DONE)):
        return True
    facts, owned = after.facts, work(after).owned and after.tokens == e.tokens
    said = facts.within == e.within and facts.runs == e.runs and facts.their_runs == before.facts.their_runs
    return owned and said and facts.traceparent == (e.traceparent or before.facts.traceparent)


@promises("L1")
def stops_what_it_began(step: Step) -> bool:
    """The step that ends a room early stops its sends; the room goes on when they have stopped."""
    begins = step.after.state is S.DRAINING and step.before.state is not S.DRAINING
    return len(step.all_of(do.StopSends)) == (1 if begins else 0)


@promises("L1", on=(ev.PeerOpened, ev.PeerAnnounced, ev.PeerNoted, ev.PeerForgot, ev.LinkWentDown))
def tells_who_does_not_know(step: Step) -> bool:
    """After a room's end every rank that opens or announces it is told, except those that confirmed,
    forgot it or are lost.
    """
    before, after, e = step.before, step.after, step.event
    if before.state not in (S.DRAINING, S.AWAIT_NOTED) or after.state not in LOST:
        return True
    if isinstance(e, ev.PeerOpened | ev.PeerAnnounced):
        return among(e.peer, after.peers)
    known = before.state is S.AWAIT_NOTED and isinstance(e, ev.PeerNoted)
    return not (known or isinstance(e, ev.PeerForgot | ev.LinkWentDown)) or not among(e.peer, after.peers)


@promises("L1")
def owes_it_to_whom_it_met(step: Step) -> bool:
    """A room that ends early is reported to ranks that opened it and to the one that ends it, except those
    with a lost link and those that forgot it.
    """
    before, after, e = step.before, step.after, step.event
    if before.state not in (S.AWAIT_ENGINE, *LIVE) or after.state is not S.DRAINING:
        return True
    if isinstance(e, ev.PeerOpened | ev.PeerAnnounced | ev.AbortAsked):
        return after.peers == before.peers | 1 << e.peer
    gone = isinstance(e, ev.LinkWentDown | ev.PeerForgot)
    return after.peers == (before.peers & ~(1 << e.peer) if gone else before.peers)


@promises("L1")
def ends_when_all_are_told(step: Step) -> bool:
    """A room that has ended is closed when nobody is to be told any more, or was told often enough."""
    closes = step.before.state in (S.DRAINING, S.AWAIT_NOTED) and step.after.state in (S.FAILED, S.ABORTED)
    return not closes or isinstance(step.event, ev.TimerFired) or not step.after.peers


@promises("L1", on=(ev.SendFinished, ev.SendsStopped))
def drains_no_longer_than_it_has_to(step: Step) -> bool:
    """It drains until its last send has ended. Then its engine, if it has the room, gets the pages, and it
    waits if a rank is to be told.
    """
    before, after = step.before.state, step.after
    if before is not S.DRAINING or step.then.live > 0:
        return before is not S.DRAINING or after.state is S.DRAINING
    released = len(step.all_of(do.AnnounceReleased)) == (1 if work(after).owned else 0)
    return after.state is not S.DRAINING and released and (after.state is not S.AWAIT_NOTED or bool(after.peers))


@promises("L1", on=(ev.TimerFired,))
def tells_until_its_tries_are_over(step: Step) -> bool:
    """A rank that does not confirm the end is told again until the tries are over, and no longer."""
    before = step.before
    return before.state is not S.AWAIT_NOTED or (step.after.state is S.AWAIT_NOTED) == (work(before).tries < step.event.tries)


promises("L1")(
    "How often it is told is counted from the room's end.",
    lambda step: step.before.state in LOST or step.after.state not in LOST or work(step.after).tries == 0,
)


@promises("S12", on=(ev.AbortAsked,))
def knows_the_terms_of_what_is_given_up(step: Step) -> bool:
    """A room that its decode ranks abort keeps its terms, or takes those of the abort."""
    known = step.before.terms
    if step.before.state not in (S.UNKNOWN, S.AWAIT_ENGINE, *LIVE):
        return True
    return step.after.terms == (step.event.terms if known is None else known)


@promises("L1", on=(ev.SendFinished,))
def slides_its_window(step: Step) -> bool:
    """The end of a send opens the next chunk if the window has room; the end of the last one ends the
    room.
    """
    before, terms = step.before, step.before.terms
    if before.state is not S.OPEN:
        return True
    left, others = work(before).next < chunks_of(before), work(before).live - 1
    held = (terms.window - 1) * fan_out(before, work(before).next) + terms.aux.bit_count()
    first, windows = work(before).next, step.all_of(do.OpenWindow)
    if left and others <= held:
        opened = [each.first == first and each.last == first + 1 for each in windows]
        return step.after.state is S.OPEN and len(opened) == 1 and opened[0] and work(step.after).next == first + 1
    return (step.after.state is S.DONE) == (not left and others == 0) and not windows


@promises("L1", on=(ev.TokensProduced, ev.AuxProvided))
def offers_what_is_new(step: Step) -> bool:
    """Sends are told of newly computed KV and of the aux row when it comes, each once."""
    before, e = step.before, step.event
    if before.state is not S.OPEN:
        return True
    if isinstance(e, ev.AuxProvided):
        return len(step.all_of(do.OfferAux)) == (0 if work(before).aux else 1)
    more = e.tokens > work(before).produced or deeper(work(before), e)
    return len(step.all_of(do.OfferKv)) == (1 if more else 0)


@promises("L5", do.OpenWindow)
def opens_no_more_than_a_window(step: Step, effect: do.OpenWindow) -> bool:
    """When a chunk is opened, no more sends are than those of a window of such chunks, and of the aux row."""
    terms, each = step.after.terms, fan_out(step.after, effect.first)
    return effect.aux or work(step.after).live <= terms.window * each + terms.aux.bit_count()


promises("S6", do.AnnounceReleased)(
    "The engine is told how a room ended before it is given the pages back.",
    lambda step, effect: in_order(step, do.AnnounceOutcome, do.AnnounceReleased),
)


# -------------------------------------------------------------------------------- where each word leads
@promises("S12", on=(ev.PeerOpened,))
def ends_with_whom_it_disagrees(step: Step) -> bool:
    """An opening decode rank ends the room exactly if it means another prompt, or than others another
    prefix or another cut.
    """
    before, e = step.before, step.event
    if before.state not in (S.AWAIT_ENGINE, S.AWAIT_PEERS):
        return True
    cut = before.terms is not None and before.terms.layer_groups != e.terms.layer_groups
    other = before.tokens != e.tokens or (bool(before.peers) and (before.prefix != e.prefix or cut))
    return (step.after.state is S.DRAINING) == bool(other)


@promises("L1", on=(ev.EngineOpened, ev.PeerOpened))
def goes_on_when_all_are_there(step: Step) -> bool:
    """A room that its engine and all decode ranks have opened is done if nothing is to be sent. It opens
    its sends if its engine is at work, and else waits for that; until then it waits for them.
    """
    before, after, opened = step.before, step.after, isinstance(step.event, ev.EngineOpened)
    if before.state is not (S.AWAIT_ENGINE if opened else S.AWAIT_PEERS) or after.state not in (*LIVE, S.DONE):
        return True
    if after.peers != after.terms.everyone:
        return after.state is S.AWAIT_PEERS
    if nothing_to_send(after):
        return after.state is S.DONE
    return after.state is (S.AWAIT_FORWARD if opened or before.work is None else S.OPEN)


@promises("S9", on=(ev.PeerAnnounced, ev.TokensWithdrawn))
def goes_on_as_it_was(step: Step) -> bool:
    """A repeated announcement, and an engine that withdraws KV, move no room that goes on."""
    before, after = step.before.state, step.after.state
    return after is before or before is S.UNKNOWN or after is S.DRAINING


promises("S9", on=(ev.PeerForgot,))(
    "A decode rank that may have all that is for it, and has forgotten the room, does not fail it.",
    lambda step: step.before.state in LOST or step.after.state is step.before.state or step.event.unsent,
)


@promises("L1", on=(ev.PeerForgot,))
def confirms_what_it_may_have_told(step: Step) -> bool:
    """A decode rank that has forgotten its success confirms what a failed write may have told of."""
    over = step.before.state is S.OPEN and not step.event.unsent
    return [each.peer for each in step.all_of(do.ConfirmTold)] == ([step.event.peer] if over else [])


@promises("L1", on=(ev.AbortAsked, ev.EngineRefused, ev.PeerNoted, ev.PeerForgot, ev.LinkWentDown))
def waits_for_whom_it_told(step: Step) -> bool:
    """A room that waits for confirmations of its end waits for at least one rank."""
    waits = step.after.state is S.AWAIT_NOTED
    asked = step.before.state is S.AWAIT_NOTED and isinstance(step.event, ev.AbortAsked | ev.EngineRefused)
    return asked or not waits or bool(step.after.peers)


@promises("S6", on=(ev.EngineOpened,))
def is_opened_for_whom_it_is_meant(step: Step) -> bool:
    """A room that ended before its engine came begins anew if it was another's, unless the engine had
    refused it. A room that is another's still ends, and is opened again.
    """
    before, e = step.before, step.event
    anothers, refused = not meant(e.claim, before.facts.claim), work(before).cause.refusal
    if before.state in (S.AWAIT_NOTED, S.FAILED, S.ABORTED) and not work(before).owned:
        return (step.after.state is S.AWAIT_PEERS) == (anothers and not refused)
    if before.state is not S.AWAIT_ENGINE or not anothers:
        return True
    return step.after.state is S.AWAIT_NOTED and len(step.all_of(ev.EngineOpened)) == 1


promises("S10", Report)(
    "Nobody is blamed who confirms what this rank may have told, and forgotten.",
    lambda step, effect: not isinstance(step.event, ev.PeerNoted),
)


@room_claims.waits("L1")
def waits_for(v: V, g: Seen) -> str:
    """It waits for its engine, then for its decode ranks, then for progress, for as long as the engine
    gives it; and repeats what is not confirmed.
    """
    if work(v).cause:
        return "resend"
    if v.state is S.AWAIT_ENGINE:
        return "engine"
    if v.facts.within:
        return OWN
    return "bootstrap" if v.state is S.AWAIT_PEERS else "stall"


# ------------------------------------------------------------------------ what is said at once, not by a timer
@promises("L1", on=(ev.PeerOpened, ev.PeerAnnounced, ev.AbortAsked))
def answers_at_once(step: Step) -> bool:
    """An opening decode rank is told that the room is open. One that opens, announces or ends a room that
    is over is told that this rank has drained, and one that drains when it has.
    """
    before, after, e = step.before.state, step.after.state, step.event
    if isinstance(e, ev.AbortAsked):
        works = before in (S.AWAIT_ENGINE, *LIVE, S.DRAINING)
        return step.says(Drained) == (0 if works else 1)
    if before in LOST:
        return step.says(Drained) == (0 if before is S.DRAINING else 1)
    if isinstance(e, ev.PeerAnnounced):
        return True
    return step.says(Opened) == (0 if after in (S.UNKNOWN, *LOST) else 1)


@promises("L1")
def tells_that_it_has_drained(step: Step) -> bool:
    """All are told when the room begins to wait for confirmations of its end, and at each counted retry."""
    begins = step.before.state is not S.AWAIT_NOTED and step.after.state is S.AWAIT_NOTED
    again = step.after.state is S.AWAIT_NOTED and isinstance(step.event, ev.TimerFired)
    return len([each for each in step.all_of(do.Send) if isinstance(each.body, Drained)]) == (1 if begins or again else 0)


@promises("L1")
def gives_its_pages_back(step: Step) -> bool:
    """Pages are released with the step after which nothing of the room works. An engine that comes later
    gets them with the outcome.
    """
    before, after = step.before.state, step.after
    ends = before is not S.DONE and after.state is S.DONE
    drained = before is S.DRAINING and after.state is not S.DRAINING and work(after).owned
    late = before in (S.AWAIT_NOTED, S.FAILED, S.ABORTED) and bool(step.all_of(do.AnnounceOutcome))
    return len(step.all_of(do.AnnounceReleased)) == (1 if ends or drained or late else 0)
