"""Prefill link: invariants of a prefill rank's end of a link.

The witness knows whether a write may be in flight to the peer, and the true watermark of the decode rank.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import Goodbye, Heartbeat, WatermarkReq
from kvproto.protocol.states import PLink as S
from kvproto.protocol.tables.links import YIELDS, PLinkValue, prefill_link
from kvproto.verify.framework.claims import Claims, Ghost, Step, in_order, timed_anew


class Seen(Ghost, frozen=True):
    """The witness: `writing`, a write may be in flight; the true watermark `(round, tail)` of the epoch."""

    writing: bool = False
    true_round: int = 0
    true_tail: int = 0


link_claims: Claims[PLinkValue, Seen] = Claims(prefill_link, Seen)
holds, assumes, promises = link_claims.holds, link_claims.assumes, link_claims.promises
V = PLinkValue
AWAY = (S.LOST, S.REFUSED)


def another_life(v: V, e: ev.HelloReceived) -> bool:
    """The call is another incarnation's than the link's."""
    return e.session != v.session and e.life != v.life


@link_claims.ghosts
def follow(step: Step) -> Seen:
    """Only a link that is up is written to."""
    seen: Seen = step.seen
    if step.after.state is S.UP and step.before.state is not S.UP:
        seen = replace(seen, writing=True)
    return seen


# --------------------------------------------------------------------------- the prefill rank's invariant
holds(S.NEW, S.AWAIT_WIRE_UP, S.REFUSED, S.FORGOTTEN)("No write to the peer is in flight.", lambda v, g: not g.writing)
holds()(
    "The watermark that was seen is no higher than the true one.",
    lambda v, g: (v.mark_round, v.mark_tail) <= (g.true_round, g.true_tail),
)
assumes(ev.HelloReceived, ev.CloseAsked, paid="rank: `_writes_to`; prefill_write: its S6")(
    "`quiet` is said only when no write is in flight.", lambda v, e, g: not e.quiet or not g.writing
)
assumes(ev.TimerFired, paid="rank: `_needed`; prefill_write: its S6")(
    "A link that is not `busy` has no write in flight.", lambda v, e, g: e.busy or not g.writing
)
assumes(ev.WatermarkSeen, paid="ring: the mark rises; routes: only of this epoch")(
    "A watermark that comes was the true one once, and the true one never falls.",
    lambda v, e, g: (e.round, e.tail) <= (g.true_round, g.true_tail),
)


@promises("S7")
def mark_never_falls(step: Step) -> bool:
    """Within an epoch the watermark that was seen never falls."""
    before, after = step.before, step.after
    anew = isinstance(step.event, ev.HelloReceived) and after.state in (S.AWAIT_WIRE_UP, S.REFUSED)
    return anew or (after.mark_round, after.mark_tail) >= (before.mark_round, before.mark_tail)


promises("S7", do.ReleaseWaiting)(
    "Waiting sends are released by a watermark that the decode rank has sent.",
    lambda step, effect: step.after.mark_round == step.event.round and step.after.mark_tail == step.event.tail,
)
promises("S4", do.SayWelcome)(
    "A call is answered for the first time when nothing of an earlier link is in flight.",
    lambda step, effect: step.before.state is S.UP or not step.seen.writing,
)


@promises("S1", do.SayWelcome)
def welcomes_its_session(step: Step, effect: do.SayWelcome) -> bool:
    """The answer has the session that was called with and the link's epoch."""
    after, event = step.after, step.event
    return effect.session == event.session and effect.session == after.session and effect.epoch == after.epoch


@promises("S9", on=(ev.HelloReceived,))
def answers_again_where_it_was_called_from(step: Step) -> bool:
    """A call that is repeated is answered again, unless it comes from another place than the first time."""
    before, e = step.before, step.event
    again = e.session == before.session and e.place == before.place
    return before.state is not S.UP or len(step.all_of(do.SayWelcome)) == (1 if again else 0)


@promises("L1", on=(ev.WatermarkSeen,))
def wakes_by_what_is_new(step: Step) -> bool:
    """Waiting sends are released when a watermark is higher than any before."""
    before, e = step.before, step.event
    rises = (e.round, e.tail) > (before.mark_round, before.mark_tail)
    return before.state is not S.UP or len(step.all_of(do.ReleaseWaiting)) == (1 if rises else 0)


promises("S12", do.Connect)(
    "The transport connects only to a rank that fits.", lambda step, effect: not step.event.fault
)


@promises("S9")
def is_not_taken_down_by_what_is_old(step: Step) -> bool:
    """A message that is repeated, late, another life's or of another epoch takes down no link and no call."""
    before, after, event = step.before, step.after, step.event
    if isinstance(event, ev.ResetReceived):
        return after.state is before.state or event.epoch == before.epoch
    if not isinstance(event, ev.HelloReceived) or before.state not in (S.UP, S.AWAIT_WIRE_UP):
        return True
    if before.state is S.UP:
        anew = event.session > before.session and not another_life(before, event)
        return after.state is S.UP or anew
    return after.session >= before.session


@promises("L1", on=(ev.HelloReceived,))
def refuses_at_once(step: Step) -> bool:
    """A new call that does not fit is refused at once where the link is not up, whatever is in flight."""
    before, e = step.before, step.event
    if not e.fault or before.state is S.UP or (before.state is S.AWAIT_WIRE_UP and e.session <= before.session):
        return True
    return len(step.all_of(do.SayRefusal)) + len(step.all_of(do.RefuseCall)) == 1


@promises("S4", do.Transmit)
def says_goodbye_as_it_is(step: Step, effect: do.Transmit) -> bool:
    """A goodbye is quiet only when nothing is in flight, and is of the epoch that is over."""
    said = isinstance(effect.body, Goodbye)
    return not said or (effect.epoch == step.event.epoch and not (effect.body.quiet and step.seen.writing))


@promises("L1", on=(ev.GoodbyeReceived, ev.CloseAsked))
def ends_by_a_goodbye(step: Step) -> bool:
    """A link that is up ends by a goodbye, its own or its peer's, and only its own is said."""
    before, told = step.before.state, step.all_of(do.Transmit)
    own = before is S.UP and isinstance(step.event, ev.CloseAsked)
    return step.after.state is (S.LOST if before is S.UP else before) and len(told) == (1 if own else 0)


@promises("L1", on=(ev.CallTakenBack,))
def ends_with_the_call_that_is_taken_back(step: Step) -> bool:
    """A link ends at once, made or half made, when its caller takes its call back; no other does."""
    before = step.before
    ends = before.state in (S.AWAIT_WIRE_UP, S.UP) and step.event.session == before.session
    return step.after.state is (S.LOST if ends else before.state)


promises("S4", do.ForgetLink)(
    "A link is forgotten when nothing of it is in flight.", lambda step, effect: not step.seen.writing
)


@promises("S4")
def tells_its_rooms(step: Step) -> bool:
    """Exactly the step that loses a link reports it to the rooms: work of its epoch ends with it."""
    lost = step.before.state is S.UP and step.after.state is not S.UP
    return len(step.all_of(do.RaiseLinkDown)) == (1 if lost else 0)


promises("L1", do.Connect, do.SayRefusal)(
    "Each call that is taken up or refused restarts the time: of the wire-up, of forgetting.",
    lambda step, effect: timed_anew(step.after),
)


@promises("L1", do.BindLink, do.SayWelcome, do.ForgetLink)
def says_it_when_there_is_a_line(step: Step, effect: object) -> bool:
    """A link is bound before it is answered or wired, and wired before the peer may use it. It is taken
    down before it is forgotten.
    """
    bound = in_order(step, do.BindLink, do.SayRefusal) and in_order(step, do.BindLink, do.Connect)
    return bound and in_order(step, do.AdoptWire, do.SayWelcome) and in_order(step, do.Disconnect, do.ForgetLink)


@promises("L1", on=(ev.TimerFired,))
def counts_its_beats(step: Step) -> bool:
    """Each beat is counted from the last one that something was heard before."""
    again = step.before.state is S.UP and step.after.state is S.UP
    return not again or step.after.silent == (1 if step.event.heard else step.before.silent + 1)


# -------------------------------------------------------------------------------- where each word leads
@link_claims.waits("L1")
def waits_for(v: V, g: Seen) -> str:
    """A link that is up waits for its next beat, a connecting one for the wire; one that is down is
    forgotten in time.
    """
    if v.state is S.AWAIT_WIRE_UP:
        return "connect_timeout"
    return "heartbeat" if v.state is S.UP else "forget"


@promises("S9", do.BindLink)
def takes_the_call(step: Step, effect: do.BindLink) -> bool:
    """A bound caller is refused if it does not fit, else connected; of the link before only the call is
    left.
    """
    after, e = step.after, step.event
    call = after.session == e.session and after.place == e.place and after.why == e.fault
    fits = after.state is S.AWAIT_WIRE_UP and after.epoch == e.epoch
    fresh = not after.silent and not after.mark_round and not after.mark_tail
    return call and fresh and (after.state is S.REFUSED if e.fault else fits)


@promises("S6", do.SayRefusal)
def refuses_the_call(step: Step, effect: do.SayRefusal) -> bool:
    """A refused caller is told the reason and which call it was."""
    why = step.event.why if isinstance(step.event, ev.WireFailed) else step.event.fault
    return effect.session == step.event.session and effect.why == why


@promises("L1", on=(ev.HelloReceived,))
def makes_way_for_a_new_call(step: Step) -> bool:
    """A link that is up ends when its own incarnation calls anew; the next such call is answered."""
    before, e = step.before, step.event
    stays = e.session <= before.session or another_life(before, e)
    return before.state is not S.UP or step.after.state is (S.UP if stays else S.LOST)


@promises("S9", on=(ev.HelloReceived,))
def looks_into_another_life(step: Step) -> bool:
    """Each call of another incarnation asks the link's own for a sign of life; a question may be lost."""
    before, after, e = step.before, step.after, step.event
    if before.state is not S.UP or not another_life(before, e):
        return not step.all_of(do.Transmit)
    asked = [each for each in step.all_of(do.Transmit) if isinstance(each.body, WatermarkReq)]
    meant = all(each.body.nonce == e.session for each in asked)
    return meant and len(asked) == 1 and after.doubted and (after.rival == e.session)


@promises("S9", on=(ev.WatermarkSeen,))
def refuses_the_second_life(step: Step) -> bool:
    """The answer to that question refuses the other incarnation once, at the address of its call."""
    before, after = step.before, step.after
    doubted = before.state is S.UP and before.doubted and step.event.nonce == before.rival
    told = [(each.place, each.session) for each in step.all_of(do.RefuseRival)]
    stays = bool(before.doubted and not doubted)
    return told == ([(before.rival_place, before.rival)] if doubted else []) and bool(after.doubted) == stays


@promises("S9", on=(
    ev.HeartbeatReceived, ev.WiredUp, ev.WireFailed, ev.ResetReceived, ev.TransportLost, ev.QueueOverflowed,
))  # fmt: skip
def moves_by_what_concerns_it(step: Step) -> bool:
    """A link comes up by its own wire-up, and is lost with it. A link that is up is lost by a reset of its
    epoch, with its transport or its queue; beats move none.
    """
    before, e, then = step.before, step.event, step.before.state
    if before.state is S.AWAIT_WIRE_UP and isinstance(e, ev.WiredUp | ev.WireFailed) and e.session == before.session:
        then = S.UP if isinstance(e, ev.WiredUp) else S.LOST
    elif before.state is S.UP and isinstance(e, ev.ResetReceived | ev.TransportLost | ev.QueueOverflowed):
        then = S.LOST if not isinstance(e, ev.ResetReceived) or e.epoch == before.epoch else S.UP
    return step.after.state is then


@promises("L1", on=(ev.TimerFired,))
def moves_in_time(step: Step) -> bool:
    """A wire-up that takes too long is lost, and so is a silent peer, later if its connection stands. A
    link that is down is forgotten if nothing of it is in flight.
    """
    before, e = step.before, step.event
    if before.state is S.UP:
        yields = before.doubted and before.rival > before.session and before.silent >= YIELDS
        late = before.silent >= e.tries and before.silent >= e.longest
        then = S.UP if e.heard or not (yields or late) else S.LOST
    elif before.state is S.LOST and e.busy:
        then = S.LOST
    else:
        then = S.FORGOTTEN if before.state in AWAY else S.LOST
    return step.after.state is then


# --------------------------------------------------------------------- what is said and done at once, not by a timer
@promises("L1", on=(ev.HelloReceived,))
def takes_a_call_up_at_once(step: Step) -> bool:
    """A call is bound to its place and connected, or refused; a refusal is sent and reported to the
    engine.
    """
    before, after, e = step.before, step.after, step.event
    taken = after.state in (S.AWAIT_WIRE_UP, S.REFUSED) and after.session == e.session
    if not taken or (before.state is S.AWAIT_WIRE_UP and before.session == e.session):
        return not step.all_of(do.BindLink)
    refused = len(step.all_of(do.SayRefusal)), len(step.all_of(do.AnnounceLink)), len(step.all_of(do.Connect))
    return len(step.all_of(do.BindLink)) == 1 and refused == ((1, 1, 0) if after.state is S.REFUSED else (0, 0, 1))


@promises("L1", on=(ev.WiredUp, ev.WireFailed))
def uses_its_wire_or_drops_it(step: Step) -> bool:
    """The wire of the answered call is used and the peer welcomed, or refused if there is no wire. Any
    other wire is dropped.
    """
    before, e = step.before, step.event
    own = before.state is S.AWAIT_WIRE_UP and e.session == before.session
    if isinstance(e, ev.WireFailed):
        return len(step.all_of(do.SayRefusal)) == (1 if own else 0)
    used = len(step.all_of(do.AdoptWire)), len(step.all_of(do.SayWelcome)), len(step.all_of(do.DropWire))
    return used == ((1, 1, 0) if own else (0, 0, 1))


@promises("L1", on=(ev.HeartbeatReceived,))
def resets_what_is_not_its_epoch(step: Step) -> bool:
    """A beat in an epoch that is not there is answered by a reset: its sender need not wait for a silence."""
    own = step.before.state is S.UP and step.event.epoch == step.before.epoch
    return len(step.all_of(do.SayReset)) == (0 if own else 1)


@promises("L1")
def tells_its_engine(step: Step) -> bool:
    """The engine is told when a link comes up, is lost or is refused, when a call is taken back, and of a
    silent peer whose connection stands. It is not told of what it has closed itself.
    """
    before, after, e = step.before, step.after.state, step.event
    if isinstance(e, ev.CallTakenBack):
        return len(step.all_of(do.AnnounceLink)) == (1 if after is not before.state else 0)
    if before.state is S.UP and after is S.UP:
        silent = isinstance(e, ev.TimerFired) and not e.heard and before.silent == e.tries
        return len(step.all_of(do.AnnounceLink)) == (1 if silent else 0)
    if before.state is S.UP:
        return len(step.all_of(do.AnnounceLink)) == (0 if isinstance(e, ev.CloseAsked) else 1)
    return after is not S.UP or len(step.all_of(do.AnnounceLink)) == 1


@promises("L1", on=(ev.TimerFired, ev.TransportLost))
def leaves_no_connection(step: Step) -> bool:
    """A link that stays up beats; a link lost with its transport, or forgotten, has its connection taken
    down.
    """
    before, after = step.before.state, step.after.state
    if before is S.UP and after is S.UP:
        return step.says(Heartbeat) == 1
    forgets = after is S.FORGOTTEN
    down = forgets or (before is not S.NEW and isinstance(step.event, ev.TransportLost))
    return len(step.all_of(do.Disconnect)) == (1 if down else 0) and len(step.all_of(do.ForgetLink)) == (1 if forgets else 0)
