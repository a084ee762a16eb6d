"""Decode link: invariants of a decode rank's end of a link.

The witness knows whether a write of a link that was lost may still land, and how many calls have gone out since.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import Goodbye, Heartbeat
from kvproto.protocol.states import DLink as S
from kvproto.protocol.tables.links import LIVES, NO_ANSWER, YIELDS, DLinkValue, decode_link
from kvproto.verify.framework.claims import Claims, Ghost, Step, in_order


class Seen(Ghost, frozen=True):
    """`old`: a write of a link that was lost may still land; `calls`: timers that have ended since it was."""

    old: bool = False
    calls: int = 0


link_claims: Claims[DLinkValue, Seen] = Claims(decode_link, Seen)
holds, promises = link_claims.holds, link_claims.promises
V = DLinkValue
CALLED = (S.AWAIT_WELCOME, S.AWAIT_RETURN)


def answers(v: V, e: ev.WelcomeReceived) -> bool:
    """Whether this is the answer to the link's latest call, and not a former incarnation's."""
    return e.session == v.session and e.epoch > v.epoch


@link_claims.ghosts
def follow(step: Step) -> Seen:
    """Writes may be under way on a link that was up; they are over at the peer's return or after lease and
    write.
    """
    seen: Seen = step.seen
    if step.before.state is S.UP and step.after.state in CALLED:
        return Seen(old=not isinstance(step.event, ev.GoodbyeReceived) or not step.event.quiet, calls=0)
    if step.before.state is S.AWAIT_RETURN and isinstance(step.event, ev.TimerFired):
        seen = replace(seen, calls=seen.calls + 1)
    if isinstance(step.event, ev.WelcomeReceived) and answers(step.before, step.event):
        seen = replace(seen, old=False)
    if step.before.state is S.AWAIT_RETURN and step.after.state is S.AWAIT_WELCOME:
        seen = replace(seen, old=False)
    return seen


# ---------------------------------------------------------------------------- the decode rank's invariant
holds(S.NEW, S.AWAIT_WELCOME, S.UP, S.REFUSED)("No write of an earlier link can land.", lambda v, g: not g.old)
holds(S.AWAIT_RETURN)(
    "Writes of the lost link may land, and it has called as often as it counts, at least.",
    lambda v, g: g.old and v.silent <= g.calls and g.calls >= 0,
)
holds(S.UP)("A link that is up is not refused: the reason of an earlier call is gone.", lambda v, g: v.why == "")


@promises("S4", do.RaisePeerQuiet)
def quiet_by_return_or_time(step: Step, effect: do.RaisePeerQuiet) -> bool:
    """A lost link is reported quiet when its peer answered this call, or after enough calls. Enough calls
    make up the lease and the longest write.
    """
    event = step.event
    if isinstance(event, ev.TimerFired):
        return step.seen.calls >= event.tries
    return answers(step.before, event)


promises("S4", ev.PeerQuiet)(
    "A room is told that a prefill rank is quiet if no write is left, or the rank was told nothing of the room.",
    lambda step, effect: not step.seen.old or not step.event.in_doubt,
)
promises("S4", do.RaisePeerQuiet, ev.PeerQuiet)(
    "It is told while the link is down: what was said by it is not heard any more.",
    lambda step, effect: step.before.state is not S.UP,
)


@promises("L1", on=(ev.QuietAsked,))
def says_that_it_was_told_nothing(step: Step) -> bool:
    """While writes of a lost link may land, a room need not wait for a peer that was told nothing of it;
    where none may land, no room waits.
    """
    lands = step.before.state is S.UP or (step.before.state is S.AWAIT_RETURN and step.event.in_doubt)
    return len(step.all_of(ev.PeerQuiet)) == (0 if lands else 1)


@promises("S9")
def counts_its_sessions(step: Step) -> bool:
    """Each call after a loss has the next session. A later incarnation that takes the link over has
    answered this session, and answers it once more with a higher epoch.
    """
    before, after = step.before, step.after
    if before.state is not S.UP or after.state not in CALLED:
        return True
    if isinstance(step.event, ev.AddressAnswered):
        return after.session == before.session and after.epoch == before.epoch
    return after.session == before.session + 1


@promises("S6")
def up_by_its_own_call(step: Step) -> bool:
    """A link comes up by the answer to its latest call, from a rank that fits, with that answer's epoch."""
    if step.before.state is S.UP or step.after.state is not S.UP:
        return True
    event = step.event
    return answers(step.before, event) and step.after.epoch == event.epoch and not event.fault


@promises("S9")
def is_reset_by_its_own_epoch(step: Step) -> bool:
    """A link is lost by a reset only if that is about its epoch."""
    stays = not isinstance(step.event, ev.ResetReceived) or step.after.state is step.before.state
    return stays or step.event.epoch == step.before.epoch


@promises("L1")
def begins_with_all_its_calls(step: Step) -> bool:
    """Beats and calls without an answer are counted from the beginning of what they are counted for."""
    before, after = step.before.state, step.after
    return after.state is before or after.silent == 0 or after.state in (S.REFUSED, S.FORGOTTEN)


@promises("S12", do.Dial)
def dials_where_it_is_told(step: Step, effect: do.Dial) -> bool:
    """A call goes to the address that the engine named and wants, and against which nothing is recorded."""
    after = step.after
    return effect.address == step.event.address and after.address == effect.address and not after.leaving and not after.why


@promises("S12", do.TryAddress)
def tries_with_its_own_call(step: Step, effect: do.TryAddress) -> bool:
    """An address is tried beside a link that stays up, with the call that the link is up by."""
    before, after = step.before, step.after
    kept = after.state is before.state and after.address == before.address and after.epoch == before.epoch
    return kept and effect.address == after.beside and effect.session == after.session == before.session


@promises("S9", on=(ev.AddressAnswered,))
def gives_way_to_a_later_life(step: Step) -> bool:
    """A link gives way to a later incarnation that answers at the tried address. It does so only if its
    own incarnation was not heard for two beats and has no connection; else it stays.
    """
    before, after, e = step.before, step.after, step.event
    tried = before.state is S.UP and before.beside != "" and e.session == before.session
    silent = before.silent > YIELDS and not e.lives
    if before.state in CALLED:
        here = before.beside != "" and e.session == before.session and e.later and not e.fault
        return after.state is before.state and after.address == (before.beside if here else before.address)
    if tried and silent and e.later and not e.fault and not before.leaving:
        return after.state is S.AWAIT_RETURN and after.address == before.beside
    stays = after.state is before.state and after.epoch == before.epoch and after.address == before.address
    return stays and after.silent == before.silent


@promises("S9", do.TakeAddress)
def takes_what_has_answered(step: Step, effect: do.TakeAddress) -> bool:
    """The link goes on at the address that was tried; if it was up, its rooms hear that it was replaced."""
    told = [each for each in step.all_of(do.RaiseLinkDown) if each.replaced]
    return len(told) == (1 if step.before.state is S.UP else 0) and effect.address == step.before.beside == step.after.address


promises("S6", do.RaiseLinkDown)(
    "Rooms hear that a link was replaced only from a later incarnation's answer.",
    lambda step, effect: not effect.replaced or isinstance(step.event, ev.AddressAnswered),
)


@promises("S12", do.LeaveAddress)
def says_why_an_address_is_left(step: Step, effect: do.LeaveAddress) -> bool:
    """Why an address is given up is its answer, or that there was none, or that two incarnations live."""
    why = LIVES if step.before.answered else NO_ANSWER
    return step.after.beside == "" and effect.why == (step.event.fault if isinstance(step.event, ev.AddressAnswered) else why)


@promises("S12", on=(ev.AddressAnswered, ev.CallAsked))
def knows_who_has_answered(step: Step) -> bool:
    """The later incarnation is known to live by its answer at the address that is tried now."""
    before, after, e = step.before, step.after, step.event
    if after.state is not S.UP or after.beside == "":
        return True
    if isinstance(e, ev.CallAsked):
        return after.beside == before.beside or not after.answered
    here = e.later and e.session == before.session and not before.leaving
    return after.answered == (before.answered or here)


@promises("L1")
def keeps_what_it_tries(step: Step) -> bool:
    """An address that is tried when the link goes down goes on being called: the peer may be there."""
    before, after, e = step.before, step.after, step.event
    lost = before.state is S.UP and after.state in CALLED and not isinstance(e, ev.AddressAnswered | ev.CallAsked)
    return not lost or after.beside == before.beside


@promises("L1", on=(ev.TimerFired,))
def ends_its_trials(step: Step) -> bool:
    """An address is tried with each call, or with each heartbeat as often as a peer may be silent.

    Then a link that is up gives the address up.
    """
    before, after, e = step.before, step.after, step.event
    if before.state in CALLED and after.state is before.state:
        return len(step.all_of(do.TryAddress)) == (1 if before.beside != "" else 0)
    if before.state is not S.UP or after.state is not S.UP or before.beside == "":
        return True
    over = before.trial >= e.tries
    called, left = len(step.all_of(do.TryAddress)), len(step.all_of(do.LeaveAddress))
    return (called, left) == ((0, 1) if over else (1, 0)) and (over or after.trial == before.trial + 1)


@promises("L1", on=(ev.TimerFired,))
def counts_its_words(step: Step) -> bool:
    """Each beat, and each call, is counted from the last one that something was heard before."""
    again = step.after.state is step.before.state and step.before.state in (S.UP, *CALLED)
    return not again or step.after.silent == (1 if step.event.heard else step.before.silent + 1)


@promises("S9")
def is_left_when_it_is_let_go(step: Step) -> bool:
    """A link that the engine has let go of is one that is left, until it asks for it again."""
    after, event = step.after, step.event
    if after.state in (S.FORGOTTEN, S.REFUSED, S.NEW):
        return True
    if isinstance(event, ev.DisconnectAsked | ev.CallAsked):
        return bool(after.leaving) == isinstance(event, ev.DisconnectAsked)
    return bool(after.leaving) == bool(step.before.leaving)


@promises("S12", on=(ev.DialFailed, ev.RefusalReceived, ev.WelcomeReceived))
def says_why_it_is_refused(step: Step) -> bool:
    """Why a link is refused, or cannot be called, is what was last said of it."""
    before, after, event = step.before.state, step.after, step.event
    if isinstance(event, ev.DialFailed) and before in (S.AWAIT_WELCOME, S.AWAIT_RETURN):
        return after.why == event.why
    if isinstance(event, ev.RefusalReceived) and step.all_of(do.RaiseLinkDown):
        return after.why == event.why
    return not isinstance(event, ev.WelcomeReceived) or after.state is before or after.state is S.UP or after.why == event.fault


@promises("L1", do.SayHello, do.Transmit)
def says_it_while_there_is_a_line(step: Step, effect: object) -> bool:
    """A call goes out when its address was dialled, the last word before the line is forgotten."""
    return in_order(step, do.Dial, do.SayHello) and in_order(step, do.TakeAddress, do.SayHello) and in_order(step, do.Transmit, do.ForgetLink)


@promises("S4", do.RaisePeerQuiet)
def quiet_before_anything_new(step: Step, effect: do.RaisePeerQuiet) -> bool:
    """The end of old writes is reported before the new link comes up or is refused."""
    return in_order(step, do.RaisePeerQuiet, do.RaiseLinkUp) and in_order(step, do.RaisePeerQuiet, do.RaiseLinkDown)


# -------------------------------------------------------------------------------- where each word leads
@link_claims.waits("L1")
def waits_for(v: V, g: Seen) -> str:
    """It calls for as long as writes of a lost link may land, else until it is forgotten. A link that is
    up waits for the next beat.
    """
    if v.state is S.UP:
        return "heartbeat"
    if g.old:
        return "return"
    return "welcome" if v.state is S.AWAIT_WELCOME else "forget"


@promises("L1")
def tells_its_rooms(step: Step) -> bool:
    """The step that loses a link reports it to the rooms and calls again; the step that brings it up
    reports it. After a goodbye of either end there is no next call.
    """
    up, down = step.all_of(do.RaiseLinkUp), step.all_of(do.RaiseLinkDown)
    before, after = step.before.state, step.after.state
    if before is S.UP and after in CALLED:
        parted = isinstance(step.event, ev.GoodbyeReceived | ev.CloseAsked)
        return len(down) == 1 and len(step.all_of(do.SayHello)) == (0 if parted else 1)
    return len(up) == (1 if after is S.UP and before is not S.UP else 0)


@promises("L1", on=(ev.GoodbyeReceived, ev.CloseAsked, ev.TimerFired))
def says_goodbye(step: Step) -> bool:
    """The end that closes a link that is up sends a goodbye, and the other end answers it. The answer has
    the epoch that is over, and quiet. A link that is closed while a call is unanswered takes the call back and accepts
    no answer any more.
    """
    before, after = step.before, step.after
    parts = isinstance(step.event, ev.GoodbyeReceived | ev.CloseAsked) or after.state is S.FORGOTTEN
    told = [each for each in step.all_of(do.Transmit) if isinstance(each.body, Goodbye)]
    epoch = before.epoch if isinstance(step.event, ev.TimerFired) else step.event.epoch
    said = [each for each in told if each.epoch == epoch and each.body.quiet]
    if before.state in CALLED and isinstance(step.event, ev.CloseAsked):
        said = [each for each in told if each.epoch == 0 and each.body.session == step.event.session]
        return len(told) == len(said) == 1 and step.after.session == before.session + 1
    return len(told) == len(said) == (1 if before.state is S.UP and parts else 0)


@promises("S4", on=(ev.GoodbyeReceived, ev.CloseAsked))
def waits_for_what_is_written(step: Step) -> bool:
    """A link that ends by a goodbye is called again; until then writes may land, unless the rank has none."""
    quiet = isinstance(step.event, ev.GoodbyeReceived) and step.event.quiet
    return step.before.state is not S.UP or step.after.state is (S.AWAIT_WELCOME if quiet else S.AWAIT_RETURN)


promises("S9", on=(ev.OpenAsked, ev.QuietAsked, ev.DialFailed, ev.HeartbeatReceived))(
    "Requests of rooms, beats, and an address that cannot be called move no link.",
    lambda step: step.after.state is step.before.state,
)


@promises("S9", on=(ev.WelcomeReceived, ev.RefusalReceived))
def is_moved_by_its_answer(step: Step) -> bool:
    """Only the answer to its latest call moves a link: up if the two fit, else to its refusal. While
    writes of a lost link may land, a refusal only records its reason, once.
    """
    before, e, then, told = step.before, step.event, step.before.state, False
    welcome = isinstance(e, ev.WelcomeReceived)
    if then in CALLED and e.session == before.session and (not welcome or e.epoch > before.epoch):
        if welcome:
            then, told = (S.REFUSED, True) if e.fault else (S.UP, False)
        else:
            told = then is S.AWAIT_WELCOME or e.why != before.why
            then = S.REFUSED if then is S.AWAIT_WELCOME else then
    return step.after.state is then and len(step.all_of(do.RaiseLinkDown)) == (1 if told else 0)


@promises("L1", on=(ev.CallAsked, ev.DisconnectAsked, ev.QueueOverflowed))
def goes_where_its_engine_wants(step: Step) -> bool:
    """The rank is called at the engine's address, and again if the terms change. A link that is up,
    or called, is not given up for another address, which is tried beside it. A refused link can be forgotten at once. A link that is
    up is lost with its queue.
    """
    before, e, then = step.before, step.event, step.before.state
    if isinstance(e, ev.CallAsked):
        tried = then in (S.UP, *CALLED) and not e.anew and e.address != before.address
        if step.after.address != (before.address if tried else e.address):
            return False
        if tried:
            begun = before.trial if e.address == before.beside and not before.leaving else 0  # no trial is prolonged
            return step.after.state is then and step.after.beside == e.address and step.after.trial == begun
        if then in (S.NEW, S.REFUSED):
            then = S.AWAIT_WELCOME
        elif then is S.UP and e.anew:
            then = S.AWAIT_RETURN
    elif isinstance(e, ev.DisconnectAsked):
        then = S.FORGOTTEN if then is S.REFUSED else then
    else:
        then = S.AWAIT_RETURN if then is S.UP else then
    return step.after.state is then


@promises("L1", on=(ev.TimerFired,))
def moves_in_time(step: Step) -> bool:
    """A link that no room needs is forgotten when its engine disconnected it, or nothing answered for
    long. A silent peer is lost, later if its connection stands. A peer that does not return is harmless after enough
    calls.
    """
    before, e, then = step.before, step.event, step.before.state
    if then is S.REFUSED:
        then = S.FORGOTTEN
    elif then is S.AWAIT_RETURN:
        then = S.AWAIT_RETURN if before.silent < e.tries else S.AWAIT_WELCOME
    elif not e.busy and (before.leaving or (then is S.AWAIT_WELCOME and before.silent >= e.tries)):
        then = S.FORGOTTEN
    elif then is S.UP:
        then = S.UP if e.heard or before.silent < e.tries or before.silent < e.longest else S.AWAIT_RETURN
    return step.after.state is then


@promises("S6", on=(ev.OpenAsked,))
def tells_a_room_that_there_is_none(step: Step) -> bool:
    """A requesting room is told that no link will come if none is called or its engine disconnected it."""
    gone = step.before.leaving or step.before.state in (S.NEW, S.REFUSED)
    return len(step.all_of(ev.LinkWentDown)) == (1 if gone else 0)


# --------------------------------------------------------------------- what is said and done at once, not by a timer
@promises("L1", on=(ev.CallAsked,))
def calls_at_once(step: Step) -> bool:
    """A call that the engine wants is dialled and sent; another address for a link that is there is tried."""
    before, e = step.before, step.event
    there = before.state in (S.UP, *CALLED) and not e.anew
    known = there and e.address == before.address
    beside = there and not known
    trying = beside and e.address == before.beside and not before.leaving
    dialled, called = len(step.all_of(do.Dial)), len(step.all_of(do.SayHello))
    calls = 0 if known or beside else 1
    return dialled == called == calls and len(step.all_of(do.TryAddress)) == (1 if beside and not trying else 0)


@promises("L1", on=(ev.TimerFired,))
def calls_or_beats(step: Step) -> bool:
    """Each timer calls a called peer again and sends a beat on a link that is up; a forgotten link is
    reported.
    """
    before, after = step.before.state, step.after.state
    calls, beats = before in CALLED and after in CALLED, before is S.UP and after is S.UP
    if before is S.UP and after in CALLED:
        return True
    said = len(step.all_of(do.SayHello)) == (1 if calls else 0) and step.says(Heartbeat) == (1 if beats else 0)
    return said and len(step.all_of(do.ForgetLink)) == (1 if after is S.FORGOTTEN else 0)


@promises("L1", on=(ev.DisconnectAsked,))
def lets_go_at_once(step: Step) -> bool:
    """Rooms of a group that the engine lets go of hear so; a link that was refused is forgotten."""
    before = step.before.state
    down, forgot = len(step.all_of(do.RaiseLinkDown)), len(step.all_of(do.ForgetLink))
    return (down, forgot) == (1 if before in (S.UP, *CALLED) else 0, 1 if before is S.REFUSED else 0)


@promises("L1")
def tells_its_engine(step: Step) -> bool:
    """The engine is told when a link comes up, is lost or refused, and when its address cannot be called.
    It is told of a silent peer whose connection stands, but not of what it has closed or disconnected itself.
    """
    before, after, e = step.before, step.after.state, step.event
    told = len(step.all_of(do.AnnounceLink))
    if isinstance(e, ev.DialFailed):
        return told == (1 if before.state in CALLED else 0)
    if isinstance(e, ev.WelcomeReceived | ev.RefusalReceived):
        return told == len(step.all_of(do.RaiseLinkDown)) + len(step.all_of(do.RaiseLinkUp))
    if before.state is S.UP and after in CALLED:
        return told == (0 if isinstance(e, ev.CloseAsked) else 1)
    stays = before.state is S.UP and after is S.UP and isinstance(e, ev.TimerFired)
    return not stays or told == (1 if not e.heard and before.silent == e.tries and before.beside == "" else 0)


@promises("L1")
def says_when_nothing_can_land(step: Step) -> bool:
    """With the step after which no write of a lost link can land, its rooms hear so."""
    over = step.before.state is S.AWAIT_RETURN and step.after.state is not S.AWAIT_RETURN
    return len(step.all_of(do.RaisePeerQuiet)) == (1 if over else 0)


@promises("L1", on=(ev.HeartbeatReceived, ev.WatermarkAsked))
def answers_at_once(step: Step) -> bool:
    """A beat in an epoch that is not there is answered by a reset, unless the link is being called.
    A request for the watermark is answered by it.
    """
    before, e = step.before, step.event
    if isinstance(e, ev.WatermarkAsked):
        return before.state is not S.UP or len(step.all_of(do.ReplyWatermark)) == 1
    own = before.state in CALLED or (before.state is S.UP and e.epoch == before.epoch)
    return len(step.all_of(do.SayReset)) == (0 if own else 1)


@promises("L1", on=(ev.AddressAnswered,))
def takes_or_leaves_what_answers(step: Step) -> bool:
    """An answering address is left if it does not fit, and taken if the link or its call gives way to it."""
    before, e = step.before, step.event
    tried = before.state in (S.UP, *CALLED) and before.beside != "" and e.session == before.session
    called = before.state in CALLED and tried and e.later and not e.fault
    taken, left = called or (before.state is S.UP and step.after.state in CALLED), tried and e.fault != ""
    moves = 1 if taken else 0
    moved = len(step.all_of(do.TakeAddress)) == moves and len(step.all_of(do.SayHello)) == moves
    return moved and len(step.all_of(do.LeaveAddress)) == (1 if left else 0)
