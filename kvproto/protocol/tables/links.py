"""The links: one on each side of a pair of ranks.

The decode rank calls (`HELLO`, with a *session* that is new at every call after a loss); the prefill rank
checks that the two can work together, connects its transport, and answers with the *epoch* that every later
message carries.  A rank that restarts, or that has lost the link, calls with a new session and gets a new
epoch, so nothing that was said before can be taken for something said after.

Both ends send heartbeats, and each counts its own beats since it last heard anything of the epoch: enough of them, and
the link is lost.  While the peer's connection stands its process lives, though its loop does not run (an engine compiles,
imports, or holds the interpreter's lock): then it takes many more (`longest`), and the engine is told once.  A loss fails the link's rooms on that side; the other side learns of it by a `RESET`, by silence, or
by the next call.

A name, (group, rank), is one life's.  A call in the name of a link that is up, but of another incarnation, is looked
into, each time: the link's own is asked for its watermark, with the caller's session as a nonce.  An answer with that nonce was
given after the call, so it is a sign of life, and the caller is refused by name; a watermark that was told before, and
comes late from an incarnation that is dead, is none.  If
nothing is heard for two beats, the link gives way to a later incarnation: that is a restart.  So two instances that
were given one name by mistake never take the link from each other in turn.

A later call of the link's own incarnation ends the link, whether or not the two still fit: the caller has left it.  So
what no longer fits is refused by the next call, and not only when the old link's silence is long enough.

Two rules keep late writes harmless.  The prefill rank agrees to no new call while a write of the old link is in
flight (`quiet`); what does not fit is refused meanwhile.  So when it agrees again, nothing of the lost link can land, and the decode rank may free what
it had quarantined; until then it waits (`AWAIT_RETURN`) for the return, or for the lease and the longest write
to pass, which is what its tries there amount to.  A refusal proves nothing of that kind: it may come from whoever has
the address now, so rooms end with it, and their memory waits on.

A decode engine may let go of a group (`DisconnectAsked`).  Its rooms end at once, and the link stays as it is, so that
they can drain over it; when none is left (`busy`, of a decode link: a room of its group is not over), the other end is
told that the epoch is over, and the link is forgotten.  So is one that nobody has answered for as long as `forget`, if
no room needs it, and one that was refused so long ago: a fleet whose prefill groups come and go keeps no trace of them.

An address that the engine names for a link that is up is tried beside it, by a connection of its own and with the
link's own call (`TryAddress`): the incarnation that has the link does not hear a call that comes from elsewhere, so
nothing of the link is touched.  A *later* incarnation takes the link over when it answers, nothing was heard of the
link's own for two beats, and its connection is down, which is a restart.  No other answer, and no silence, does: after as many beats as make up a
loss the address is given up.  So an address that somebody has made up costs a few calls, and no link.  While the link is down, also where
it went down during the trial, both addresses are called, until one of them answers: a made-up one displaces no call
either.

A rank that is closed in good order says `GOODBYE` on each link that is up.  The link and its rooms end at once on both
sides, as `CLOSED`, which is no fault of anybody's.  Only a prefill rank may leave writes in flight behind, and says so: the
decode rank waits for them then as after a loss.  It calls again with the timer and not at once, since whoever says goodbye
is still there for a moment.  A goodbye that is lost leaves what a crash leaves: silence.  A decode rank that has called,
and is closed before it is answered, knows no epoch: its goodbye takes the call back, and the half-made link ends at once.

The transport's connection outlives a loss: a peer that was only silent finds it as it was, one that comes back as
another gets its own.  It is taken down when the link is forgotten.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    NO_BUILD,
    AddressAnswered,
    CallAsked,
    CallTakenBack,
    CloseAsked,
    DialFailed,
    DisconnectAsked,
    GoodbyeReceived,
    HeartbeatReceived,
    HelloReceived,
    LinkEvent,
    LinkWentDown,
    OpenAsked,
    PeerBuild,
    PeerQuiet,
    QueueOverflowed,
    QuietAsked,
    RefusalReceived,
    ResetReceived,
    TimerFired,
    TransportLost,
    WatermarkAsked,
    WatermarkSeen,
    WelcomeReceived,
    WiredUp,
    WireFailed,
)
from kvproto.protocol.messages import Goodbye, Heartbeat, WatermarkReq
from kvproto.protocol.states import Cause, DLink, PLink


class PLinkValue(Value, frozen=True, gc=False):
    """A link on a prefill rank."""

    session: int = 0
    #: the incarnation of the peer
    life: int = 0
    epoch: int = 0
    #: own beats since something was last heard
    silent: int = 0
    #: the highest watermark that was seen: (round, tail in bytes)
    mark_round: int = 0
    mark_tail: int = 0
    #: why the peer was refused
    why: str = ""
    #: where the call came from: the link's messages go there
    place: bytes = b""
    #: the last call of another incarnation of this rank (0: none), and where it came from
    rival: int = 0
    rival_place: bytes = b""
    #: since that call no sign of life came from this link's incarnation
    doubted: bool = False
    #: the build at the other end, and the wire version at which the two work
    build: PeerBuild = NO_BUILD


class DLinkValue(Value, frozen=True, gc=False):
    """A link on a decode rank."""

    session: int = 0
    epoch: int = 0
    #: own beats, or calls, since the peer was last heard
    silent: int = 0
    why: str = ""
    #: where the prefill rank listens
    address: str = ""
    #: the engine has let go of it
    leaving: bool = False
    #: the address that is tried beside the link, the beats since then, and whether a later incarnation answers there
    beside: str = ""
    trial: int = 0
    answered: bool = False
    #: as on a prefill rank
    build: PeerBuild = NO_BUILD


P = PLinkValue
D = DLinkValue
#: own beats without a sign of life after which an incarnation gives way to a later one that calls
YIELDS = 2
#: why an address that was tried beside a link is given up
NO_ANSWER = "no prefill rank answers there"
LIVES = "a later incarnation answers there, and the link's own lives: give each instance a group of its own"
#: added to a link's description while two incarnations live
TWO_LIVES = "a second live instance calls under this name, and is refused: give each instance a group of its own"
Both = PLinkValue | DLinkValue


# ------------------------------------------------------------------------------------------- guards
def misfit(v: Both, e: HelloReceived | WelcomeReceived, now: float) -> bool:
    """The two cannot work together."""
    return bool(e.fault)


def same_session(v: Both, e: HelloReceived | WiredUp | WireFailed | CallTakenBack, now: float) -> bool:
    """It is about the call that is being answered."""
    return e.session == v.session


def earlier(v: P, e: HelloReceived, now: float) -> bool:
    """It is of an earlier session: a frame that comes late, or is repeated by somebody."""
    return e.session < v.session


def other_life(v: P, e: HelloReceived, now: float) -> bool:
    """Another incarnation of the rank calls."""
    return e.life != v.life


def rivalled(v: P, e: WatermarkSeen, now: float) -> bool:
    """Another incarnation calls, and this answers the question that its call has raised."""
    return v.doubted and e.nonce == v.rival


def rivalled_higher(v: P, e: WatermarkSeen, now: float) -> bool:
    """It is a sign of life while another incarnation calls, and higher than any before."""
    return rivalled(v, e, now) and higher(v, e, now)


def gives_way(v: P, e: TimerFired, now: float) -> bool:
    """A later incarnation calls, and the first one was not heard for two beats."""
    return v.doubted and v.rival > v.session and v.silent >= YIELDS and not e.heard


def same_call(v: D, e: RefusalReceived, now: float) -> bool:
    """It answers the latest call."""
    return e.session == v.session


def agreed(v: D, e: WelcomeReceived, now: float) -> bool:
    """It answers the latest call, and its epoch is not an earlier incarnation's."""
    return e.session == v.session and e.epoch > v.epoch


def news(v: D, e: RefusalReceived, now: float) -> bool:
    """It answers the latest call, and says what was not known."""
    return e.session == v.session and e.why != v.why


def same_call_misfit(v: D, e: WelcomeReceived, now: float) -> bool:
    """It answers the latest call, and the two cannot work together."""
    return agreed(v, e, now) and bool(e.fault)


def tried(v: D, e: AddressAnswered, now: float) -> bool:
    """It answers the call that the link is up by, from the address that is tried."""
    return v.beside != "" and e.session == v.session


def tried_misfit(v: D, e: AddressAnswered, now: float) -> bool:
    """It answers from the address that is tried, and the two cannot work together."""
    return tried(v, e, now) and e.fault != ""


def tried_later(v: D, e: AddressAnswered, now: float) -> bool:
    """A later incarnation answers from the address that is tried."""
    return tried(v, e, now) and e.later and not v.leaving


def takes_over(v: D, e: AddressAnswered, now: float) -> bool:
    """A later incarnation answers, and the link's own was not heard for two beats and has no connection."""
    return tried_later(v, e, now) and v.silent > YIELDS and not e.lives


def trying(v: D, e: TimerFired, now: float) -> bool:
    """The peer was heard not too long ago, or lives, and an address is tried beside it."""
    return v.beside != "" and (heard(v, e, now) or stands(v, e, now))


def tried_long(v: D, e: TimerFired, now: float) -> bool:
    """And it was called as often as a peer may be silent."""
    return trying(v, e, now) and v.trial >= e.tries


def besides(v: D, e: TimerFired, now: float) -> bool:
    """Another address is tried beside the one that is called."""
    return v.beside != ""


def besides_again(v: D, e: TimerFired, now: float) -> bool:
    """So it is, and the lease and the longest write are not over."""
    return besides(v, e, now) and tries_left(v, e, now)


def answers_beside(v: D, e: AddressAnswered, now: float) -> bool:
    """It answers the latest call from the tried address, with an epoch of no earlier incarnation."""
    return tried(v, e, now) and e.later


def tried_already(v: D, e: CallAsked, now: float) -> bool:
    """A call to this address is under way already."""
    return e.address == v.beside and not v.leaving


def anew(v: D, e: CallAsked, now: float) -> bool:
    """It is wanted on other terms."""
    return e.anew


def elsewhere(v: P, e: HelloReceived, now: float) -> bool:
    """It repeats the call, and comes from another place: a frame that somebody has copied."""
    return e.session == v.session and e.place != v.place


def same_address(v: D, e: CallAsked, now: float) -> bool:
    """The prefill rank is where it was, and so are the terms."""
    return e.address == v.address and not e.anew


def left(v: D, e: OpenAsked, now: float) -> bool:
    """The engine has let go of the group."""
    return v.leaving


def wanted_again(v: D, e: CallAsked, now: float) -> bool:
    """The engine had let go of it, and wants it back; the prefill rank is where it was."""
    return v.leaving and same_address(v, e, now)


def let_go(v: D, e: TimerFired, now: float) -> bool:
    """The engine has let go of it, and no room of its group is left."""
    return v.leaving and not e.busy


def unneeded(v: D, e: TimerFired, now: float) -> bool:
    """The engine has let go of it, or nobody has answered for long; and no room of its group is left."""
    return (v.leaving or v.silent >= e.tries) and not e.busy


def untold(v: D, e: QuietAsked, now: float) -> bool:
    """The prefill rank was never told where to write, or all of it is in place."""
    return not e.in_doubt


def quiet(v: D, e: GoodbyeReceived, now: float) -> bool:
    """Nothing that the prefill rank has written can land any more."""
    return e.quiet


def unquiet(v: P, e: HelloReceived, now: float) -> bool:
    """A write of the old link is in flight."""
    return not e.quiet


def misfit_unquiet(v: P, e: HelloReceived, now: float) -> bool:
    """The two cannot work together, and a write of the old link is in flight."""
    return misfit(v, e, now) and unquiet(v, e, now)


def busy(v: P, e: TimerFired, now: float) -> bool:
    """A write of the old link is in flight: forget nothing."""
    return e.busy


def same_epoch(v: Both, e: HeartbeatReceived | ResetReceived, now: float) -> bool:
    """It is about this epoch."""
    return e.epoch == v.epoch


def heard(v: Both, e: TimerFired, now: float) -> bool:
    """The peer was heard not too long ago."""
    return e.heard or v.silent < e.tries


def falls_silent(v: Both, e: TimerFired, now: float) -> bool:
    """The peer was heard too long ago for the first time, and its connection stands."""
    return stands(v, e, now) and v.silent == e.tries


def stands(v: Both, e: TimerFired, now: float) -> bool:
    """The peer's connection stands, and so it may be silent for longer."""
    return v.silent < e.longest


def tries_left(v: D, e: TimerFired, now: float) -> bool:
    """The lease and the longest write are not over."""
    return v.silent < e.tries


def silent_so_far(v: D) -> int:
    """How often it has called, or beaten, since the peer was heard."""
    return v.silent


def higher(v: P, e: WatermarkSeen, now: float) -> bool:
    """Higher than any before."""
    return (e.round, e.tail) > (v.mark_round, v.mark_tail)


# --------------------------------------------------------------------------------------------- lets
def adopt(v: P, e: HelloReceived, now: float) -> P:
    """The call's session, and a new epoch for it."""
    return PLinkValue(v.state, session=e.session, life=e.life, epoch=e.epoch, place=e.place, build=e.build)


def refuse_call(v: P, e: HelloReceived, now: float) -> P:
    """The call's session, and why it is refused."""
    return PLinkValue(v.state, session=e.session, life=e.life, why=e.fault, place=e.place)


def beat(v: P, e: TimerFired, now: float) -> P:
    """One more beat since the peer was heard."""
    return replace(v, silent=1 if e.heard else v.silent + 1)


def beat_d(v: D, e: TimerFired, now: float) -> D:
    """One more beat, or call, since the peer was heard."""
    return replace(v, silent=1 if e.heard else v.silent + 1)


def raise_mark(v: P, e: WatermarkSeen, now: float) -> P:
    """The watermark rises."""
    return replace(v, mark_round=e.round, mark_tail=e.tail)


def suspect(v: P, e: HelloReceived, now: float) -> P:
    """The call that is being looked into."""
    return replace(v, rival=e.session, rival_place=e.place, doubted=True)


def settle(v: P, e: WatermarkSeen, now: float) -> P:
    """The first incarnation lives, so the other one is refused."""
    return replace(v, doubted=False, why=TWO_LIVES)


def settle_higher(v: P, e: WatermarkSeen, now: float) -> P:
    """The first incarnation lives, and its watermark rises."""
    return raise_mark(settle(v, e, now), e, now)


def call(v: D, e: CallAsked, now: float) -> D:
    """A new session, at that address."""
    return DLinkValue(v.state, session=e.session, address=e.address)


def move(v: D, e: CallAsked, now: float) -> D:
    """The prefill rank is called on other terms, wherever it is."""
    return replace(v, address=e.address, beside="", trial=0, why="", leaving=False)


def leave(v: D, e: DisconnectAsked, now: float) -> D:
    """The engine has let go of it."""
    return replace(v, leaving=True)


def stay(v: D, e: CallAsked, now: float) -> D:
    """The engine wants it again."""
    return replace(v, leaving=False)


def move_again(v: D, e: CallAsked, now: float) -> D:
    """The next session, at the address that is named; the epoch is over."""
    return DLinkValue(v.state, session=v.session + 1, address=e.address)


def try_beside(v: D, e: CallAsked, now: float) -> D:
    """The address that is named is tried, and the link stays as it is."""
    return replace(v, beside=e.address, trial=0, answered=False, why="", leaving=False)


def try_again(v: D, e: TimerFired, now: float) -> D:
    """One more beat, and the address is called once more."""
    return replace(beat_d(v, e, now), trial=v.trial + 1)


def give_up_trying(v: D, e: TimerFired, now: float) -> D:
    """One more beat; the address is not called any more."""
    return replace(beat_d(v, e, now), beside="", trial=0)


def refuse_address(v: D, e: AddressAnswered, now: float) -> D:
    """The address is not called any more."""
    return replace(v, beside="", trial=0)


def move_to_answer(v: D, e: AddressAnswered, now: float) -> D:
    """The same call, at the address that has answered."""
    return replace(v, address=v.beside, beside="", trial=0, why="")


def note_answer(v: D, e: AddressAnswered, now: float) -> D:
    """A later incarnation answers there."""
    return replace(v, answered=True)


def move_over(v: D, e: AddressAnswered, now: float) -> D:
    """Keep the session at the address that answered; the epoch is over, and a new one is higher."""
    return DLinkValue(v.state, session=v.session, epoch=v.epoch, address=v.beside)


def call_again(v: D, e: LinkEvent | TimerFired, now: float) -> D:
    """The next session; the epoch is over.  What is tried beside it may be where the peer is now."""
    return DLinkValue(v.state, session=v.session + 1, address=v.address, beside=v.beside, leaving=v.leaving)


def take_call_back(v: D, e: CloseAsked, now: float) -> D:
    """The next session: what answers the call comes too late."""
    return replace(v, session=v.session + 1)


def agree(v: D, e: WelcomeReceived, now: float) -> D:
    """The link has an epoch, and a wire version at which the two work; a refusal before it counts no more."""
    return replace(v, epoch=e.epoch, silent=0, why="", build=e.build)


def misfit_why(v: D, e: WelcomeReceived, now: float) -> D:
    """Why the two cannot work together."""
    return replace(v, why=e.fault)


def refusal_why(v: D, e: RefusalReceived, now: float) -> D:
    """Why the prefill rank refuses."""
    return replace(v, why=e.why)


def undialled_why(v: D, e: DialFailed, now: float) -> D:
    """Why the address cannot be called."""
    return replace(v, why=e.why)


def peers_calm(v: D, e: TimerFired, now: float) -> D:
    """Nothing of the lost link is left."""
    return replace(v, silent=0)


# ------------------------------------------------------------------------------------------ effects
def bind(v: P, e: HelloReceived) -> Output:
    """Answers go where the call came from."""
    return do.BindLink(e.peer, v.place)


def probe(v: P, e: HelloReceived) -> Output:
    """Ask the first incarnation for a sign of life: its watermark, which it tells at once."""
    return do.Transmit(e.peer, v.epoch, 0, WatermarkReq(v.rival))


def connect(v: P, e: HelloReceived) -> Output:
    """Connect the transport."""
    return do.Connect(e.peer, v.session)


def adopt_wire(v: P, e: WiredUp) -> Output:
    """Writes go through this connection."""
    return do.AdoptWire(e.peer, e.wire)


def drop_wire(v: P, e: WiredUp) -> Output:
    """Nobody asks for this connection any more."""
    return do.DropWire(e.wire)


def disconnect(v: P, e: TimerFired | TransportLost) -> Output:
    """Take the transport's connection down."""
    return do.Disconnect(e.peer)


def forget(v: Both, e: LinkEvent | TimerFired) -> Output:
    """Nothing is said on it any more."""
    return do.ForgetLink(e.peer)


def dial(v: D, e: CallAsked) -> Output:
    """Messages go to that address."""
    return do.Dial(e.peer, v.address)


def try_address(v: D, e: CallAsked | TimerFired) -> Output:
    """Call at the address that is tried."""
    return do.TryAddress(e.peer, v.beside, v.session)


def leave_address(v: D, e: TimerFired) -> Output:
    """The address is given up, for want of an answer or because two incarnations live."""
    return do.LeaveAddress(e.peer, LIVES if v.answered else NO_ANSWER)


def leave_misfit(v: D, e: AddressAnswered) -> Output:
    """The address is given up: whoever has it does not fit, or refuses."""
    return do.LeaveAddress(e.peer, e.fault)


def take_address(v: D, e: AddressAnswered) -> Output:
    """The link's messages go where the answer came from."""
    return do.TakeAddress(e.peer, v.address)


def say_welcome(v: P, e: HelloReceived | WiredUp) -> Output:
    """Agree."""
    return do.SayWelcome(e.peer, v.session, v.epoch)


def say_refusal(v: P, e: HelloReceived) -> Output:
    """Refuse, with the reason."""
    return do.SayRefusal(e.peer, v.session, v.why)


def refuse_unbound(v: P, e: HelloReceived) -> Output:
    """Refuse, with the reason, where the call came from; the link stays the lost one's."""
    return do.RefuseCall(e.place, e.session, e.fault)


def refuse_rival(v: P, e: WatermarkSeen) -> Output:
    """Refuse the other incarnation, by name."""
    return do.RefuseRival(e.peer, v.rival_place, v.rival)


def say_unwired(v: P, e: WireFailed) -> Output:
    """Refuse: the transport cannot connect."""
    return do.SayRefusal(e.peer, v.session, e.why)


def say_hello(v: D, e: LinkEvent | TimerFired) -> Output:
    """Call."""
    return do.SayHello(e.peer, v.session)


def send_beat(v: Both, e: TimerFired) -> Output:
    """I am here."""
    return do.Transmit(e.peer, v.epoch, 0, Heartbeat())


def say_reset(v: Both, e: HeartbeatReceived) -> Output:
    """Your epoch is over."""
    return do.SayReset(e.place, e.epoch)


def say_goodbye(v: P, e: CloseAsked) -> Output:
    """Close the link: nothing more is said or posted on it."""
    return do.Transmit(e.peer, e.epoch, 0, Goodbye(e.quiet))


def answer_goodbye(v: D, e: CloseAsked | GoodbyeReceived) -> Output:
    """Close the link, or confirm that it is closed: no room is opened on it any more."""
    return do.Transmit(e.peer, e.epoch, 0, Goodbye(quiet=True))


def say_call_back(v: D, e: CloseAsked) -> Output:
    """Take the call back that nobody has answered."""
    return do.Transmit(e.peer, 0, 0, Goodbye(quiet=True, session=e.session))


def say_over(v: D, e: TimerFired) -> Output:
    """Close the link, which the engine has let go of: no room is opened on it any more."""
    return do.Transmit(e.peer, v.epoch, 0, Goodbye(quiet=True))


def say_watermark(v: D, e: WatermarkAsked) -> Output:
    """Tell the watermark."""
    return do.ReplyWatermark(e.nonce)


def release_waiting(v: P, e: WatermarkSeen) -> Output:
    """Tell the sends whose region the watermark has passed."""
    return do.ReleaseWaiting(e.peer)


def raise_up(v: Both, e: LinkEvent) -> Output:
    """Tell the rooms that the link is up."""
    return do.RaiseLinkUp(e.peer)


def raise_down(v: Both, e: LinkEvent | TimerFired) -> Output:
    """Tell the rooms that the link is lost."""
    return do.RaiseLinkDown(e.peer, Cause.LINK_LOST)


def raise_replaced(v: D, e: AddressAnswered) -> Output:
    """Tell the rooms that another incarnation takes the link over."""
    return do.RaiseLinkDown(e.peer, Cause.LINK_LOST, replaced=True)


def raise_closed(v: Both, e: CloseAsked | GoodbyeReceived | CallTakenBack) -> Output:
    """Tell the rooms that one of the two ranks was closed."""
    return do.RaiseLinkDown(e.peer, Cause.CLOSED)


def raise_left(v: D, e: DisconnectAsked) -> Output:
    """Tell the rooms that the engine has let go of their group."""
    return do.RaiseLinkDown(e.peer, Cause.DISCONNECTED)


def raise_refused(v: Both, e: LinkEvent) -> Output:
    """Tell the rooms that there will be no link."""
    return do.RaiseLinkDown(e.peer, Cause.REFUSED)


def raise_quiet(v: D, e: LinkEvent | TimerFired) -> Output:
    """Tell the rooms that nothing of the lost link can land."""
    return do.RaisePeerQuiet(e.peer)


def refuse_room(v: D, e: OpenAsked) -> LinkWentDown:
    """Tell the room that there will be no link."""
    return LinkWentDown(e.room, e.rank, Cause.REFUSED)


def end_room(v: D, e: OpenAsked) -> LinkWentDown:
    """Tell the room that the engine has let go of its group."""
    return LinkWentDown(e.room, e.rank, Cause.DISCONNECTED)


def count_quiet(v: D, e: QuietAsked) -> PeerQuiet:
    """Tell the room that nothing of this link can land."""
    return PeerQuiet(e.room, e.rank)


def announce_undialled(v: D, e: DialFailed) -> Output:
    """Tell the engine that the address cannot be called."""
    return do.AnnounceLink(e.peer, f"refused: {e.why}")


def announce_up(v: Both, e: LinkEvent) -> Output:
    """Tell the engine that the link is up."""
    return do.AnnounceLink(e.peer, "")


def announce_lost(v: Both, e: LinkEvent | TimerFired) -> Output:
    """Tell the engine that the link is lost."""
    return do.AnnounceLink(e.peer, do.LOST)


def announce_closed(v: Both, e: GoodbyeReceived | CallTakenBack) -> Output:
    """Tell the engine that the peer has closed the link."""
    return do.AnnounceLink(e.peer, do.CLOSED)


def announce_silent(v: Both, e: TimerFired) -> Output:
    """Tell the engine that the peer misses beats, and lives."""
    return do.AnnounceLink(e.peer, do.SILENT)


def announce_refused(v: Both, e: LinkEvent) -> Output:
    """Tell the engine why there will be no link."""
    return do.AnnounceLink(e.peer, f"refused: {v.why}")


prefill_link = Table(
    "prefill_link", PLinkValue, PLink, initial=PLink.NEW, final=(PLink.FORGOTTEN,),
    events=(
        HelloReceived, WiredUp, WireFailed, HeartbeatReceived, WatermarkSeen, ResetReceived, TransportLost,
        QueueOverflowed, GoodbyeReceived, CallTakenBack, CloseAsked, TimerFired,
    ),
    timers={
        PLink.AWAIT_WIRE_UP: "connect_timeout", PLink.UP: "heartbeat", PLink.LOST: "forget", PLink.REFUSED: "forget",
    },
    success_path=(PLink.NEW, PLink.AWAIT_WIRE_UP, PLink.UP),
    failure_states=(PLink.LOST, PLink.REFUSED, PLink.FORGOTTEN),
)  # fmt: skip
opens, row, ignore = prefill_link.opens, prefill_link.row, prefill_link.ignore
S = PLink
AWAY = (S.LOST, S.REFUSED)

# fmt: off
opens(S.NEW,          HelloReceived,     S.REFUSED,       when=misfit, let=refuse_call, do=(bind, say_refusal, announce_refused))
opens(S.NEW,          HelloReceived,     S.AWAIT_WIRE_UP, let=adopt, do=(bind, connect))
row(S.AWAIT_WIRE_UP,  WiredUp,           S.UP,            when=same_session, do=(adopt_wire, say_welcome, announce_up))
row(S.AWAIT_WIRE_UP,  WireFailed,        S.LOST,          when=same_session, do=(say_unwired,))
row(S.AWAIT_WIRE_UP,  TimerFired,        S.LOST)
ignore(S.AWAIT_WIRE_UP, HelloReceived,   "the transport is still connecting", when=same_session)
ignore(S.AWAIT_WIRE_UP, HelloReceived,   "a call that came late", when=earlier)
row(S.AWAIT_WIRE_UP,  HelloReceived,     S.REFUSED,       when=misfit, let=refuse_call, do=(bind, say_refusal, announce_refused))
row(S.AWAIT_WIRE_UP,  HelloReceived,     S.AWAIT_WIRE_UP, let=adopt, do=(bind, connect), again=True)
ignore(S.UP,          HelloReceived,     "the call was answered, and this is not where it came from", when=elsewhere)
row(S.UP,             HelloReceived,                      when=same_session, do=(say_welcome,))
row(S.UP,             HelloReceived,                      when=other_life, let=suspect, do=(probe,))
ignore(S.UP,          HelloReceived,     "a call that came late", when=earlier)
row(S.UP,             HelloReceived,     S.LOST,          do=(raise_down, announce_lost))
ignore(S.UP,          HeartbeatReceived, "whatever comes of the epoch is a sign of life: the next beat looks", when=same_epoch)
row(S.UP,             TimerFired,        S.LOST,          when=gives_way, do=(raise_down, announce_lost))
row(S.UP,             TimerFired,                         when=heard, let=beat, do=(send_beat,))
row(S.UP,             TimerFired,                         when=falls_silent, let=beat, do=(send_beat, announce_silent))
row(S.UP,             TimerFired,                         when=stands, let=beat, do=(send_beat,))
row(S.UP,             TimerFired,        S.LOST,          do=(raise_down, announce_lost))
row(S.UP,             WatermarkSeen,                      when=rivalled_higher, let=settle_higher, do=(refuse_rival, release_waiting))
row(S.UP,             WatermarkSeen,                      when=rivalled, let=settle, do=(refuse_rival,))
row(S.UP,             WatermarkSeen,                      when=higher, let=raise_mark, do=(release_waiting,))
row(S.UP,             ResetReceived,     S.LOST,          when=same_epoch, do=(raise_down, announce_lost))
row(S.UP,             TransportLost,     S.LOST,          do=(raise_down, announce_lost, disconnect))
row(S.UP,             GoodbyeReceived,   S.LOST,          do=(raise_closed, announce_closed))
row(S.UP,             CloseAsked,        S.LOST,          do=(say_goodbye, raise_closed))
row(S.AWAIT_WIRE_UP,  CallTakenBack,     S.LOST,          when=same_session, do=(announce_closed,))
row(S.UP,             CallTakenBack,     S.LOST,          when=same_session, do=(raise_closed, announce_closed))
ignore((S.AWAIT_WIRE_UP, S.UP, *AWAY), CallTakenBack, "an older call, or an epoch that is over")
row(S.LOST,           HelloReceived,                      when=misfit_unquiet, do=(refuse_unbound,))
ignore(S.LOST,        HelloReceived,     "a write of the old link is in flight: it will call again", when=unquiet)
row(AWAY,             HelloReceived,     S.REFUSED,       when=misfit, let=refuse_call, do=(bind, say_refusal, announce_refused), again=True)
row(AWAY,             HelloReceived,     S.AWAIT_WIRE_UP, let=adopt, do=(bind, connect))
row((S.NEW, S.AWAIT_WIRE_UP, S.UP, *AWAY), HeartbeatReceived, do=(say_reset,))
row(S.UP,             QueueOverflowed,   S.LOST,          do=(raise_down, announce_lost))
row((S.AWAIT_WIRE_UP, *AWAY), TransportLost,              do=(disconnect,))
row((S.NEW, S.AWAIT_WIRE_UP, S.UP, *AWAY), WiredUp,       do=(drop_wire,))
row(S.LOST,           TimerFired,                         when=busy)
row(AWAY,             TimerFired,        S.FORGOTTEN,     do=(disconnect, forget))

ignore((S.NEW, S.UP, *AWAY, S.AWAIT_WIRE_UP), WireFailed, "an older call's")
ignore(S.UP,          WatermarkSeen,     "not higher than before")
ignore((S.AWAIT_WIRE_UP, S.UP, *AWAY), ResetReceived, "an older epoch's, or a former life's")
ignore(S.NEW,         (TransportLost, QueueOverflowed), "the link was forgotten")
ignore((S.AWAIT_WIRE_UP, *AWAY), QueueOverflowed, "the link is down")
ignore((S.NEW, S.AWAIT_WIRE_UP, *AWAY), CloseAsked, "nobody is to be told")
# fmt: on

decode_link = Table(
    "decode_link", DLinkValue, DLink, initial=DLink.NEW, final=(DLink.FORGOTTEN,),
    events=(
        CallAsked, DisconnectAsked, DialFailed, WelcomeReceived, RefusalReceived, AddressAnswered, HeartbeatReceived,
        WatermarkAsked, ResetReceived, QueueOverflowed, GoodbyeReceived, CloseAsked, OpenAsked, QuietAsked, TimerFired,
    ),
    timers={
        DLink.AWAIT_WELCOME: "welcome", DLink.UP: "heartbeat", DLink.AWAIT_RETURN: "return", DLink.REFUSED: "forget",
    },
    tries=silent_so_far,
    success_path=(DLink.NEW, DLink.AWAIT_WELCOME, DLink.UP),
    failure_states=(DLink.AWAIT_RETURN, DLink.REFUSED, DLink.FORGOTTEN),
)  # fmt: skip
opens_d, row_d, ignore_d = decode_link.opens, decode_link.row, decode_link.ignore
T = DLink
CALLED = (T.AWAIT_WELCOME, T.AWAIT_RETURN)

# fmt: off
opens_d(T.NEW,         CallAsked,          T.AWAIT_WELCOME, let=call, do=(dial, say_hello))
row_d(T.REFUSED,       CallAsked,          T.AWAIT_WELCOME, let=call, do=(dial, say_hello))
row_d(T.AWAIT_WELCOME, WelcomeReceived,    T.REFUSED,       when=same_call_misfit, let=misfit_why, do=(raise_refused, announce_refused))
row_d(T.AWAIT_WELCOME, WelcomeReceived,    T.UP,            when=agreed, let=agree, do=(raise_up, announce_up))
row_d(T.AWAIT_WELCOME, RefusalReceived,    T.REFUSED,       when=same_call, let=refusal_why, do=(raise_refused, announce_refused))
row_d(T.AWAIT_WELCOME, TimerFired,         T.FORGOTTEN,     when=unneeded, do=(forget,))
row_d(T.AWAIT_WELCOME, TimerFired,                          when=besides, let=beat_d, do=(say_hello, try_address))
row_d(T.AWAIT_WELCOME, TimerFired,                          let=beat_d, do=(say_hello,))
ignore_d(T.UP,         HeartbeatReceived,  "whatever comes of the epoch is a sign of life: the next beat looks", when=same_epoch)
row_d(T.UP,            WatermarkAsked,                      do=(say_watermark,))
row_d(T.UP,            TimerFired,         T.FORGOTTEN,     when=let_go, do=(say_over, forget))
row_d(T.UP,            TimerFired,                          when=tried_long, let=give_up_trying, do=(send_beat, leave_address))
row_d(T.UP,            TimerFired,                          when=trying, let=try_again, do=(send_beat, try_address))
row_d(T.UP,            TimerFired,                          when=heard, let=beat_d, do=(send_beat,))
row_d(T.UP,            TimerFired,                          when=falls_silent, let=beat_d, do=(send_beat, announce_silent))
row_d(T.UP,            TimerFired,                          when=stands, let=beat_d, do=(send_beat,))
row_d(T.UP,            TimerFired,         T.AWAIT_RETURN,  let=call_again, do=(raise_down, announce_lost, say_hello))
row_d(T.UP,            ResetReceived,      T.AWAIT_RETURN,  when=same_epoch, let=call_again, do=(raise_down, announce_lost, say_hello))
row_d(T.UP,            QueueOverflowed,    T.AWAIT_RETURN,  let=call_again, do=(raise_down, announce_lost, say_hello))
row_d(T.UP,            GoodbyeReceived,    T.AWAIT_WELCOME, when=quiet, let=call_again, do=(answer_goodbye, raise_closed, announce_closed))
row_d(T.UP,            GoodbyeReceived,    T.AWAIT_RETURN,  let=call_again, do=(answer_goodbye, raise_closed, announce_closed))
row_d(T.UP,            CloseAsked,         T.AWAIT_RETURN,  let=call_again, do=(answer_goodbye, raise_closed))
row_d(CALLED,          CloseAsked,                          let=take_call_back, do=(say_call_back,))
row_d(T.AWAIT_RETURN,  WelcomeReceived,    T.REFUSED,       when=same_call_misfit, let=misfit_why, do=(raise_quiet, raise_refused, announce_refused))
row_d(T.AWAIT_RETURN,  WelcomeReceived,    T.UP,            when=agreed, let=agree, do=(raise_quiet, raise_up, announce_up))
row_d(T.AWAIT_RETURN,  RefusalReceived,                     when=news, let=refusal_why, do=(raise_refused, announce_refused))
ignore_d(T.AWAIT_RETURN, RefusalReceived,  "whoever refuses need not be who wrote: lease and write go by first", when=same_call)
row_d(T.AWAIT_RETURN,  TimerFired,                          when=besides_again, let=beat_d, do=(say_hello, try_address))
row_d(T.AWAIT_RETURN,  TimerFired,                          when=tries_left, let=beat_d, do=(say_hello,))
row_d(T.AWAIT_RETURN,  TimerFired,         T.AWAIT_WELCOME, let=peers_calm, do=(raise_quiet, say_hello))

# ------------------------------------------------------------------------------------- what the engine wants
row_d((T.UP, *CALLED), DisconnectAsked,                     let=leave, do=(raise_left,))
row_d(T.REFUSED,       DisconnectAsked,    T.FORGOTTEN,     do=(forget,))
row_d(T.REFUSED,       TimerFired,         T.FORGOTTEN,     do=(forget,))
row_d((T.UP, *CALLED), CallAsked,                           when=wanted_again, let=stay)
ignore_d((T.UP, *CALLED), CallAsked,       "the link is there, or called", when=same_address)
row_d(CALLED,          CallAsked,                           when=anew, let=move, do=(dial, say_hello))
row_d(T.UP,            CallAsked,          T.AWAIT_RETURN,  when=anew, let=move_again, do=(raise_down, announce_lost, dial, say_hello))
ignore_d((T.UP, *CALLED), CallAsked,       "its answer, or the last beat of the trial, will tell", when=tried_already)
row_d((T.UP, *CALLED), CallAsked,                           let=try_beside, do=(try_address,))
row_d((T.UP, *CALLED), AddressAnswered,                     when=tried_misfit, let=refuse_address, do=(leave_misfit,))
row_d(T.UP,            AddressAnswered,    T.AWAIT_RETURN,  when=takes_over, let=move_over, do=(raise_replaced, take_address, announce_lost, say_hello))
row_d(T.UP,            AddressAnswered,                     when=tried_later, let=note_answer)
ignore_d(T.UP,         AddressAnswered,    "the incarnation that has the link answers there, too, or an earlier one")
row_d(CALLED,          AddressAnswered,                     when=answers_beside, let=move_to_answer, do=(take_address, say_hello))
ignore_d(CALLED,       AddressAnswered,    "an older call's answer, or an earlier incarnation's")
ignore_d((T.NEW, T.REFUSED), AddressAnswered, "nothing is tried beside a link that is not called")
row_d(CALLED,          DialFailed,                          let=undialled_why, do=(announce_undialled,))

# ------------------------------------------------------------------------------------- what rooms ask of a link
row_d((T.NEW, T.REFUSED), OpenAsked,                        do=(refuse_room,))
row_d((T.UP, *CALLED), OpenAsked,                           when=left, do=(end_room,))
ignore_d((T.UP, *CALLED), OpenAsked,       "the room is opened there, now or when the link comes up")
row_d((T.NEW, T.AWAIT_WELCOME, T.REFUSED), QuietAsked,             do=(count_quiet,))
row_d(T.AWAIT_RETURN,  QuietAsked,                          when=untold, do=(count_quiet,))
ignore_d((T.UP, T.AWAIT_RETURN), QuietAsked, "writes may still land")

row_d((T.NEW, T.UP, T.REFUSED), HeartbeatReceived,          do=(say_reset,))
ignore_d(CALLED,       HeartbeatReceived,  "the call says all that a reset would; the beat may be the new link's")
ignore_d((T.UP, T.REFUSED, *CALLED), (WelcomeReceived, RefusalReceived), "an older call's, or the same answer again")
ignore_d((T.UP, T.REFUSED, *CALLED), ResetReceived, "an older epoch's")
ignore_d((T.NEW, T.REFUSED, *CALLED), QueueOverflowed, "the link is down")
ignore_d((T.NEW, T.REFUSED), CloseAsked,   "nobody is to be told")
ignore_d((T.NEW, T.UP, T.REFUSED), DialFailed,    "an older address")
ignore_d(T.NEW,        DisconnectAsked,    "the link was forgotten")
# fmt: on
