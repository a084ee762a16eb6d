"""What is always so of the two ends of a link.

The witness of the prefill rank's end knows whether a write may be in flight to the peer, and the true watermark of the
decode rank; that of the decode rank's end, whether a write of a link that was lost may still land, and how many calls have
gone out since.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.claims import Claims, Ghost, Step, in_order, timed_anew
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import DLink as T
from kvproto.protocol.states import PLink as S
from kvproto.protocol.tables.links import DLinkValue as D
from kvproto.protocol.tables.links import PLinkValue as P
from kvproto.protocol.tables.links import decode_link, prefill_link


class SeenP(Ghost, frozen=True):
    """`writing`: a write may be in flight to the peer; the true watermark of the link's epoch, as `(round, tail)`."""

    writing: bool = False
    true_round: int = 0
    true_tail: int = 0


class SeenD(Ghost, frozen=True):
    """`old`: a write of a link that was lost may still land; `calls`: timers that have ended since it was."""

    old: bool = False
    calls: int = 0


prefill_claims: Claims[P] = Claims(prefill_link, SeenP)
decode_claims: Claims[D] = Claims(decode_link, SeenD)


@prefill_claims.ghosts
def follow_prefill(step: Step) -> SeenP:
    """Only a link that is up is written to."""
    seen: SeenP = step.seen
    if step.after.state is S.UP and step.before.state is not S.UP:
        seen = replace(seen, writing=True)
    return seen


@decode_claims.ghosts
def follow_decode(step: Step) -> SeenD:
    """A link that was up may have been written to; what was is over when the peer returns, or after lease and write."""
    seen: SeenD = step.seen
    if step.before.state is T.UP and step.after.state is T.AWAIT_RETURN:
        return SeenD(old=True, calls=0)
    if step.before.state is T.AWAIT_RETURN and isinstance(step.event, ev.TimerFired):
        seen = replace(seen, calls=seen.calls + 1)
    if isinstance(step.event, ev.WelcomeReceived) and step.event.session == step.before.session:
        seen = replace(seen, old=False)
    if step.before.state is T.AWAIT_RETURN and step.after.state is T.AWAIT_WELCOME:
        seen = replace(seen, old=False)
    return seen


# --------------------------------------------------------------------------- the prefill rank's invariant
@prefill_claims.holds(S.NEW, S.AWAIT_WIRE_UP, S.REFUSED, S.FORGOTTEN)
def nothing_is_written(v: P, g: SeenP) -> bool:
    """No write to the peer is in flight."""
    return not g.writing


@prefill_claims.holds()
def mark_is_true(v: P, g: SeenP) -> bool:
    """The watermark that was seen is no higher than the true one."""
    return (v.mark_round, v.mark_tail) <= (g.true_round, g.true_tail)


@prefill_claims.assumes(ev.HelloReceived, paid="rank: `_writes_to`; prefill_write: its S6")
def knows_whether_it_writes(v: P, e: ev.HelloReceived, g: SeenP) -> bool:
    """`quiet` is said only when no write is in flight."""
    return not e.quiet or not g.writing


@prefill_claims.assumes(ev.TimerFired, paid="rank: `_needed`; prefill_write: its S6")
def knows_whether_it_is_needed(v: P, e: ev.TimerFired, g: SeenP) -> bool:
    """What is not `busy` has no write in flight."""
    return e.busy or not g.writing


@prefill_claims.assumes(ev.WatermarkSeen, paid="ring: the mark rises; routes: only of this epoch")
def marks_are_true(v: P, e: ev.WatermarkSeen, g: SeenP) -> bool:
    """A watermark that comes was the true one once, and the true one never falls."""
    return (e.round, e.tail) <= (g.true_round, g.true_tail)


@prefill_claims.promises("S7")
def mark_never_falls(step: Step) -> bool:
    """Within an epoch the watermark that was seen never falls."""
    before, after = step.before, step.after
    anew = isinstance(step.event, ev.HelloReceived) and after.state in (S.AWAIT_WIRE_UP, S.REFUSED)
    return anew or (after.mark_round, after.mark_tail) >= (before.mark_round, before.mark_tail)


@prefill_claims.promises("S7", do.ReleaseWaiting)
def releases_by_what_was_seen(step: Step, effect: do.ReleaseWaiting) -> bool:
    """Who waits is let go by a watermark that the decode rank has told."""
    return step.after.mark_round == step.event.round and step.after.mark_tail == step.event.tail


@prefill_claims.promises("S4", do.SayWelcome)
def welcomes_when_quiet(step: Step, effect: do.SayWelcome) -> bool:
    """A call is answered for the first time when nothing of an earlier link is in flight."""
    return step.before.state is S.UP or not step.seen.writing


@prefill_claims.promises("S1", do.SayWelcome)
def welcomes_its_session(step: Step, effect: do.SayWelcome) -> bool:
    """The answer has the session that was called with and the link's epoch."""
    after, event = step.after, step.event
    return effect.session == event.session and effect.session == after.session and effect.epoch == after.epoch


@prefill_claims.promises("S12", do.ConnectPeer)
def connects_to_who_fits(step: Step, effect: do.ConnectPeer) -> bool:
    """The transport connects only to a rank that fits."""
    return not step.event.fault


@prefill_claims.promises("S9")
def is_not_taken_down_by_what_is_old(step: Step) -> bool:
    """What is repeated, comes late, does not fit or is of another epoch takes no link down, and no call back."""
    before, after, event = step.before, step.after, step.event
    if isinstance(event, ev.ResetReceived):
        return after.state is before.state or event.epoch == before.epoch
    if not isinstance(event, ev.HelloReceived) or before.state not in (S.UP, S.AWAIT_WIRE_UP):
        return True
    if before.state is S.UP:
        return after.state is S.UP or (event.session > before.session and not event.fault)
    return after.session >= before.session


@prefill_claims.promises("S4", do.ForgetLink)
def forgets_when_quiet(step: Step, effect: do.ForgetLink) -> bool:
    """A link is forgotten when nothing of it is in flight."""
    return not step.seen.writing


@prefill_claims.promises("L1", do.ConnectPeer, do.SayRefusal)
def has_its_time_for_each_call(step: Step, effect: object) -> bool:
    """With each call that is taken up, and each that is refused, the time begins anew: of the wire-up, of forgetting."""
    return timed_anew(step.after)


@prefill_claims.promises("L1", do.BindLink, do.SayWelcome, do.ForgetLink)
def says_it_when_there_is_a_line(step: Step, effect: object) -> bool:
    """A link is bound before it is answered or wired, wired before the peer may use it, and taken down before it is
    forgotten.
    """
    bound = in_order(step, do.BindLink, do.SayRefusal) and in_order(step, do.BindLink, do.ConnectPeer)
    return bound and in_order(step, do.AdoptWire, do.SayWelcome) and in_order(step, do.Disconnect, do.ForgetLink)


@prefill_claims.promises("L1", on=(ev.TimerFired,))
def counts_its_beats(step: Step) -> bool:
    """Each beat is counted from the last one that something was heard before."""
    return not _again(step, S.UP) or step.after.silent == (1 if step.event.heard else step.before.silent + 1)


def _again(step: Step, *states: S | T) -> bool:
    return step.after.state is step.before.state and step.before.state in states


# ---------------------------------------------------------------------------- the decode rank's invariant
@decode_claims.holds(T.NEW, T.AWAIT_WELCOME, T.REFUSED)
def nothing_old_is_left(v: D, g: SeenD) -> bool:
    """No write of an earlier link can land."""
    return not g.old


@decode_claims.holds(T.AWAIT_RETURN)
def counts_its_calls(v: D, g: SeenD) -> bool:
    """It has called as often as it counts, at least."""
    return v.silent <= g.calls and g.calls >= 0


@decode_claims.promises("S4", do.RaisePeerQuiet)
def quiet_by_return_or_time(step: Step, effect: do.RaisePeerQuiet) -> bool:
    """That nothing of a lost link can land is told when its peer has answered this call, or after so many calls as make up
    the lease and the longest write."""
    event = step.event
    if isinstance(event, ev.TimerFired):
        return step.seen.calls >= event.tries
    return event.session == step.before.session


@decode_claims.promises("S4", ev.PeerQuiet)
def quiet_if_nothing_is_old(step: Step, effect: ev.PeerQuiet) -> bool:
    """A room is told that a prefill rank is quiet if nothing of the link is left, or it was told nothing of the room."""
    return not step.seen.old or not step.event.doubt


@decode_claims.promises("S6")
def up_by_its_own_call(step: Step) -> bool:
    """A link comes up by the answer to its latest call, from a rank that fits, and has that answer's epoch."""
    if step.before.state is T.UP or step.after.state is not T.UP:
        return True
    event = step.event
    return event.session == step.before.session and step.after.epoch == event.epoch and not event.fault


@decode_claims.promises("S9")
def is_reset_by_its_own_epoch(step: Step) -> bool:
    """A link is lost by a reset only if that is about its epoch."""
    stays = not isinstance(step.event, ev.ResetReceived) or step.after.state is step.before.state
    return stays or step.event.epoch == step.before.epoch


@decode_claims.promises("L1")
def begins_with_all_its_calls(step: Step) -> bool:
    """Beats and calls without an answer are counted from the beginning of what they are counted for."""
    before, after = step.before.state, step.after
    return after.state is before or after.silent == 0 or after.state in (T.REFUSED, T.FORGOTTEN)


@decode_claims.promises("S12", do.Dial)
def dials_where_it_is_told(step: Step, effect: do.Dial) -> bool:
    """A call goes to the address that the engine has named; the engine wants it, and nothing is held against it."""
    after = step.after
    return effect.address == step.event.address and after.address == effect.address and not after.leaving and not after.why


@decode_claims.promises("L1", on=(ev.TimerFired,))
def counts_its_words(step: Step) -> bool:
    """Each beat, and each call, is counted from the last one that something was heard before."""
    again = _again(step, T.UP, T.AWAIT_WELCOME, T.AWAIT_RETURN)
    return not again or step.after.silent == (1 if step.event.heard else step.before.silent + 1)


@decode_claims.promises("S9")
def is_left_when_it_is_let_go(step: Step) -> bool:
    """A link that the engine has let go of is one that is left, until it asks for it again."""
    after, event = step.after, step.event
    if after.state in (T.FORGOTTEN, T.REFUSED, T.NEW):
        return True
    if isinstance(event, ev.DisconnectAsked | ev.CallAsked):
        return bool(after.leaving) == isinstance(event, ev.DisconnectAsked)
    return bool(after.leaving) == bool(step.before.leaving)


@decode_claims.promises("S12", on=(ev.DialFailed, ev.RefusalReceived, ev.WelcomeReceived))
def says_why_it_is_refused(step: Step) -> bool:
    """Why a link is refused, or cannot be called, is what was last said of it."""
    before, after, event = step.before.state, step.after, step.event
    if isinstance(event, ev.DialFailed) and before in (T.AWAIT_WELCOME, T.AWAIT_RETURN):
        return after.why == event.why
    if isinstance(event, ev.RefusalReceived) and step.all_of(do.RaiseLinkDown):
        return after.why == event.why
    return not isinstance(event, ev.WelcomeReceived) or after.state is before or after.state is T.UP or after.why == event.fault


@decode_claims.promises("L1", do.SayHello, do.Transmit)
def says_it_while_there_is_a_line(step: Step, effect: object) -> bool:
    """A call goes out when its address was dialled, the last word before the line is forgotten."""
    return in_order(step, do.Dial, do.SayHello) and in_order(step, do.Transmit, do.ForgetLink)


@decode_claims.promises("S4", do.RaisePeerQuiet)
def quiet_before_anything_new(step: Step, effect: do.RaisePeerQuiet) -> bool:
    """What is over of the old link is told before the new one comes up, or is refused."""
    return in_order(step, do.RaisePeerQuiet, do.RaiseLinkUp) and in_order(step, do.RaisePeerQuiet, do.RaiseLinkDown)
