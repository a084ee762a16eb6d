"""The prefill rank's room: from the first word about a request to its one outcome.

Two parties open a room, in any order: the engine of this rank (`EngineOpened`) and every decode rank that
shares a head and a layer with it (`PeerOpened`).  What comes first waits for the other, within bounds: an
engine that never opens, or a decode rank that never does, ends the room by its timer.  An abort that comes
before anything else is remembered, so the room that is opened later is over at once.

`AWAIT_FORWARD` keeps the ring free of requests that only queue: grants are asked for when the engine schedules
the forward, a window of chunks at a time.  The window slides when a send ends; a send that is slow delays the
opening of later chunks of its own room only, and no other room.

A room succeeds when every send of every decode rank was confirmed.  It fails as a whole: the first cause is
kept and announced at once, the sends are told to stop, and only when the last gather and write of the room is
over (`DRAINING`) are the pages released and the decode ranks told that nothing can land any more; they confirm
(`AWAIT_NOTED`), or their link is lost, or the tries are used up.  What is final stays as a tombstone that
answers late messages.

A room is somebody's: the engine opens it for one decode group, and may ask for a secret (`Claim`).  An engine that does
not know the decode group opens it for the first one that asks, and from then on it is that one's.  Whoever shows
another claim is answered at the rank's edge, before this table (`protocol.routes`).  What is claimed before the engine
has spoken is only noted: if it was not the one whom the engine means, it is told so, the room begins anew, and nothing
that was said about it counts.  It is told once, and if that is lost, again when it asks after a room in which nothing moves.

A decode rank that has no pages yet may announce the room (`PeerAnnounced`): its time to wait begins anew with each word.

An engine may say no to a room that it has not opened (`EngineRefused`): the tombstone answers whoever asks for it, and
an engine that opens it after all is told at once that it is over.

The value is small because idle rooms are many: what only a room at work needs lies in `PrefillWork`.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    ANYBODY,
    DEFAULT,
    AbortAsked,
    AuxProvided,
    Claim,
    EngineAborted,
    EngineOpened,
    EngineRefused,
    ForwardScheduled,
    LinkWentDown,
    PeerAnnounced,
    PeerForgot,
    PeerNoted,
    PeerOpened,
    RoomEvent,
    RoomFailed,
    SendFinished,
    SendsStopped,
    Terms,
    TimerFired,
    TokensProduced,
    TokensWithdrawn,
)
from kvproto.protocol.kinds import RankMask, Tokens
from kvproto.protocol.messages import Drained, Opened
from kvproto.protocol.room_chunks import at_end, cells, end_chunk, first_chunk, taking_part
from kvproto.protocol.states import Cause
from kvproto.protocol.states import PRoom as S


class PrefillWork(msgspec.Struct, frozen=True, gc=False):
    """The state of a room on which its engine works, or which has failed."""

    #: the first chunk that is not yet opened
    next: int = 0
    #: sends that have not ended
    live: int = 0
    #: tokens whose KV is computed; and tokens whose KV is computed in the first `layers` layers of this rank
    produced: Tokens = 0
    ahead: Tokens = 0
    layers: int = 0
    #: the engine gave the aux row
    aux: bool = False
    #: why the room failed
    cause: Cause = Cause.NONE
    #: how often the decode ranks were told
    tries: int = 0
    #: the engine has opened the room
    owned: bool = True


class RequestFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a request beside its length."""

    #: whose the room is; until the engine has opened it: who says so
    claim: Claim = DEFAULT
    #: the trace of the request: this engine's, or else what a decode rank says
    traceparent: bytes = b""
    #: seconds that the engine gives the room where it waits for its decode ranks, or stands still (0: as the timers say)
    within: float = 0.0
    #: runs of consecutive pages, of this rank's table and of a decode rank's (the most of any; 0: not counted)
    runs: Tokens = 0
    their_runs: Tokens = 0


NOTHING_SAID = RequestFacts()


class PRoomValue(Value, frozen=True, gc=False):
    """A room; tokens are counts from the start of the prompt."""

    terms: Terms | None = None
    tokens: Tokens = 0
    prefix: Tokens = 0
    #: decode ranks (mask) that have opened the room; when it has failed: that are still to be told
    peers: RankMask = 0
    work: PrefillWork | None = None
    facts: RequestFacts = NOTHING_SAID

    @property
    def traceparent(self) -> bytes:
        """The trace that the request belongs to; empty: none."""
        return self.facts.traceparent


V = PRoomValue
IDLE = PrefillWork()


def _work(v: V) -> PrefillWork:
    return v.work or IDLE


def _terms(v: V) -> Terms:
    return v.terms  # type: ignore[return-value]  # of a room that some decode rank has opened


def _fan_out(v: V, chunk: int) -> int:
    return taking_part(v, chunk).bit_count()


def _held(v: V) -> int:
    """Return the sends of a window of chunks like the next one, but for that one."""
    return (_terms(v).window - 1) * _fan_out(v, _work(v).next) + _terms(v).aux.bit_count()


# ------------------------------------------------------------------------------------------- guards
def disagrees(v: V, e: PeerOpened, now: float) -> bool:
    """The decode rank speaks of another prompt, another prefix or another cut."""
    return v.tokens != e.tokens or (v.peers > 0 and (v.prefix != e.prefix or _cuts_otherwise(v, e)))


def _cuts_otherwise(v: V, e: PeerOpened) -> bool:
    return v.terms is not None and v.terms.layer_groups != e.terms.layer_groups


def asks_after(v: V, e: PeerOpened, now: float) -> bool:
    """Every prefill rank had opened the room, and the decode rank asks how it stands."""
    return e.again


def announces_another(v: V, e: PeerAnnounced, now: float) -> bool:
    """The decode rank means another prompt."""
    return v.tokens != e.tokens


def claimed_by_another(v: V, e: EngineOpened, now: float) -> bool:
    """Another decode group than the engine's has claimed the room so far."""
    return not e.claim.admits(v.facts.claim)


def ended_for_another(v: V, e: EngineOpened, now: float) -> bool:
    """The room ended before the engine opened it, and it was not the one that the engine means."""
    return unowned(v, e, now) and claimed_by_another(v, e, now) and not refused(v)


def refused(v: V) -> bool:
    """The engine has said no to the room without having opened it."""
    return v.work is not None and not v.work.owned and v.work.cause.refusal


def other_length(v: V, e: EngineOpened, now: float) -> bool:
    """The engine's prompt is not as long as the decode ranks say."""
    return v.tokens != e.tokens


def within(v: V) -> float:
    """The time that its engine gives it."""
    return v.facts.within


def opened_by_all(v: V) -> bool:
    """Every decode rank has opened the room, and it has not failed."""
    return v.terms is not None and v.peers == v.terms.everyone and not _work(v).cause


def nothing_to_send(v: V) -> bool:
    """This rank writes to nobody, or there is nothing to write, and it sends no aux row."""
    return not _terms(v).aux and first_chunk(v) == end_chunk(v)


def met_without_duty(v: V, e: EngineOpened, now: float) -> bool:
    """Every decode rank is known and wants nothing from this rank."""
    return v.peers == _terms(v).everyone and nothing_to_send(v)


def met(v: V, e: EngineOpened, now: float) -> bool:
    """Every decode rank is known."""
    return v.peers == _terms(v).everyone


def meets_last_without_duty(v: V, e: PeerOpened, now: float) -> bool:
    """With this one every decode rank is known, and none wants anything from this rank."""
    return meets_last(v, e, now) and nothing_to_send(meet(v, e, now))


def meets_last_at_work(v: V, e: PeerOpened, now: float) -> bool:
    """With this one every decode rank is known, and the engine is at work already."""
    return meets_last(v, e, now) and v.work is not None


def meets_last(v: V, e: PeerOpened, now: float) -> bool:
    """With this one every decode rank is known."""
    return v.peers | 1 << e.peer == e.terms.everyone


def more(v: V, e: TokensProduced, now: float) -> bool:
    """More than before."""
    return e.tokens > _work(v).produced or (e.layers > 0 and _deeper(v, e))


def _deeper(v: V, e: TokensProduced) -> bool:
    work = _work(v)
    return e.ahead > work.ahead or (e.ahead == work.ahead and e.layers > work.layers)


def first_aux(v: V, e: AuxProvided, now: float) -> bool:
    """The row had not been given."""
    return not _work(v).aux


def last_send(v: V, e: SendFinished, now: float) -> bool:
    """Every send has ended and no chunk is left to open."""
    return _work(v).live == 1 and _work(v).next == end_chunk(v)


def window_slides(v: V, e: SendFinished, now: float) -> bool:
    """A chunk is left, and with this end there is room for it in the window."""
    return _work(v).next < end_chunk(v) and _work(v).live - 1 <= _held(v)


def known(v: V, e: LinkWentDown, now: float) -> bool:
    """The lost peer had opened the room."""
    return bool(v.peers >> e.peer & 1)


def others_live(v: V, e: SendFinished, now: float) -> bool:
    """Other sends have not ended."""
    return _work(v).live > 1


def some_live(v: V, e: SendsStopped, now: float) -> bool:
    """Some sends have not ended."""
    return _work(v).live > 0


def aborted_unheard(v: V, e: RoomEvent, now: float) -> bool:
    """An engine gave the room up, and no decode rank is to be told."""
    return not v.peers and _work(v).cause.aborted


def unheard(v: V, e: RoomEvent, now: float) -> bool:
    """No decode rank is to be told."""
    return not v.peers


def aborted_unheard_of(v: V, e: RoomEvent, now: float) -> bool:
    """An engine gave the room up that it had not opened, and no decode rank is to be told."""
    return aborted_unheard(v, e, now) and unowned(v, e, now)


def unheard_of(v: V, e: RoomEvent, now: float) -> bool:
    """The engine had not opened the room, and no decode rank is to be told."""
    return unheard(v, e, now) and unowned(v, e, now)


def unsent(v: V, e: PeerForgot, now: float) -> bool:
    """It lacks a part, so the room has not succeeded there."""
    return e.unsent


def last_noted(v: V, e: PeerNoted | LinkWentDown | PeerForgot, now: float) -> bool:
    """It was the last one to be told."""
    return not v.peers & ~(1 << e.peer)


def last_noted_aborted(v: V, e: PeerNoted | LinkWentDown | PeerForgot, now: float) -> bool:
    """It was the last one to be told that an engine gave the room up."""
    return last_noted(v, e, now) and _work(v).cause.aborted


def tried_so_far(v: V) -> int:
    """How often the state's timer has ended."""
    return _work(v).tries


def tries_left(v: V, e: TimerFired, now: float) -> bool:
    """They may be told once more."""
    return _work(v).tries < e.tries


def was_aborted(v: V, e: TimerFired, now: float) -> bool:
    """An engine gave the room up."""
    return _work(v).cause.aborted


def asked_by_engine(v: V, e: AbortAsked, now: float) -> bool:
    """The decode engine gave the room up."""
    return e.cause.aborted


def unowned(v: V, e: RoomEvent, now: float) -> bool:
    """The room ended before the engine opened it."""
    return not _work(v).owned


# --------------------------------------------------------------------------------------------- lets
def own(v: V, e: EngineOpened, now: float) -> V:
    """The engine has the room."""
    work = replace(v.work, owned=True) if v.work else None
    trace = e.traceparent or v.facts.traceparent
    facts = RequestFacts(v.facts.claim, trace, e.within, e.runs, v.facts.their_runs)
    return replace(v, tokens=e.tokens, work=work, facts=facts)


def own_anew(v: V, e: EngineOpened, now: float) -> V:
    """The engine has the room, whatever was said before; nobody has claimed it."""
    return PRoomValue(v.state, tokens=e.tokens, facts=RequestFacts(e.claim, e.traceparent, e.within, e.runs))


def blame_claim(v: V, e: EngineOpened, now: float) -> V:
    """Those who have claimed the room are not entitled to it."""
    return _blame(v, Cause.NOT_ENTITLED, owned=False)


def meet(v: V, e: PeerOpened, now: float) -> V:
    """This decode rank is known."""
    peers = v.peers | 1 << e.peer
    known = v.facts
    trace, runs = known.traceparent or e.traceparent, max(known.their_runs, e.runs)
    facts = RequestFacts(e.claim, trace, known.within, known.runs, runs)
    return replace(v, terms=e.terms, tokens=e.tokens, prefix=e.prefix, peers=peers, facts=facts)


def hear_of(v: V, e: PeerAnnounced, now: float) -> V:
    """This decode rank will open it."""
    return replace(v, terms=e.terms, tokens=e.tokens, facts=RequestFacts(e.claim))


def _bind(v: V, claim: Claim) -> V:
    said = v.facts
    return replace(v, facts=RequestFacts(claim, said.traceparent, said.within, said.runs, said.their_runs))


def bind(v: V, e: PeerAnnounced, now: float) -> V:
    """The room is this decode rank's group's, if it was the first one's that asks."""
    return _bind(v, e.claim)


def start(v: V, e: RoomEvent, now: float) -> V:
    """The engine is at work."""
    return replace(v, work=_work(v))


def _begin(v: V) -> V:
    terms, first = _terms(v), first_chunk(v)
    end = min(first + terms.window, end_chunk(v))
    whole = min(end, cells(v)) - first
    sends = whole * terms.writes.bit_count() + (end - first - whole) * at_end(v).bit_count()
    return replace(v, work=replace(_work(v), next=end, live=sends + terms.aux.bit_count()))


def begin(v: V, e: RoomEvent, now: float) -> V:
    """The first window is open."""
    return _begin(v)


def meet_and_begin(v: V, e: PeerOpened, now: float) -> V:
    """The last decode rank is known, the first window is open."""
    return _begin(meet(v, e, now))


def count(v: V, e: TokensProduced, now: float) -> V:
    """So much is computed."""
    work = _work(v)
    ahead, layers = (e.ahead, e.layers) if e.layers > 0 and _deeper(v, e) else (work.ahead, work.layers)
    return replace(v, work=replace(work, produced=max(work.produced, e.tokens), ahead=ahead, layers=layers))


def uncount(v: V, e: TokensWithdrawn, now: float) -> V:
    """No more than this is computed."""
    work = v.work
    if work is None:
        return v
    return replace(v, work=replace(work, produced=min(work.produced, e.tokens), ahead=0, layers=0))


def count_and_begin(v: V, e: TokensProduced, now: float) -> V:
    """So much is computed, the first window is open."""
    return _begin(count(v, e, now))


def give_aux(v: V, e: AuxProvided, now: float) -> V:
    """The aux row is there."""
    return replace(v, work=replace(_work(v), aux=True))


def give_aux_and_begin(v: V, e: AuxProvided, now: float) -> V:
    """The aux row is there, the first window is open."""
    return _begin(give_aux(v, e, now))


def end_one(v: V, e: SendFinished, now: float) -> V:
    """One send fewer."""
    return replace(v, work=replace(_work(v), live=_work(v).live - 1))


def slide(v: V, e: SendFinished, now: float) -> V:
    """One send fewer, one chunk more."""
    work = _work(v)
    return replace(v, work=replace(work, live=work.live - 1 + _fan_out(v, work.next), next=work.next + 1))


def _blame(v: V, cause: Cause, *, owned: bool = True) -> V:
    return replace(v, work=replace(_work(v), cause=cause, tries=0, owned=owned))


def decline(v: V, e: EngineRefused, now: float) -> V:
    """The engine has said no to the room, before anybody has claimed it."""
    return _blame(replace(v, facts=RequestFacts(ANYBODY)), e.cause, owned=False)


def decline_claimed(v: V, e: EngineRefused, now: float) -> V:
    """The engine has said no to the room; who has claimed it is told."""
    return _blame(v, e.cause, owned=False)


def blame(v: V, e: EngineAborted | EngineRefused | RoomFailed | AbortAsked, now: float) -> V:
    """The cause is the event's."""
    return _blame(v, e.cause)


def blame_unowned(v: V, e: AbortAsked, now: float) -> V:
    """The cause is the event's; the engine has not heard of the room."""
    return _blame(replace(v, terms=e.terms, facts=RequestFacts(e.claim)), e.cause, owned=False)


def blame_asked(v: V, e: AbortAsked, now: float) -> V:
    """The cause is the event's; the asker is to be told, whether or not it has opened the room."""
    bound = _bind(v, e.claim)
    return _blame(replace(bound, terms=v.terms or e.terms, peers=v.peers | 1 << e.peer), e.cause)


def blame_asked_unowned(v: V, e: AbortAsked, now: float) -> V:
    """As `blame_asked`; the engine has not heard of the room."""
    return _blame(replace(v, peers=v.peers | 1 << e.peer), e.cause, owned=False)


def blame_link(v: V, e: LinkWentDown, now: float) -> V:
    """The cause is the link's; that peer cannot be told."""
    return _blame(replace(v, peers=v.peers & ~(1 << e.peer)), e.cause)


def blame_link_unowned(v: V, e: LinkWentDown, now: float) -> V:
    """As `blame_link`; the engine has not heard of the room."""
    return _blame(replace(v, peers=v.peers & ~(1 << e.peer)), e.cause, owned=False)


def blame_forgetful(v: V, e: PeerForgot, now: float) -> V:
    """The peer has forgotten the room; it need not be told."""
    return _blame(replace(v, peers=v.peers & ~(1 << e.peer)), Cause.FORGOTTEN)


def blame_plan(v: V, e: PeerOpened | PeerAnnounced, now: float) -> V:
    """The two sides mean different rooms; this peer is told, too."""
    bound = _bind(v, e.claim)
    return _blame(replace(bound, terms=e.terms, peers=v.peers | 1 << e.peer), Cause.PLAN_MISMATCH)


def blame_plan_unowned(v: V, e: PeerOpened | PeerAnnounced, now: float) -> V:
    """As `blame_plan`; the engine has not heard of the room."""
    return _blame(replace(v, peers=v.peers | 1 << e.peer), Cause.PLAN_MISMATCH, owned=False)


def blame_length(v: V, e: EngineOpened, now: float) -> V:
    """The engine means another prompt than the decode ranks."""
    return _blame(v, Cause.PLAN_MISMATCH)


def blame_engine(v: V, e: TimerFired, now: float) -> V:
    """The engine never opened the room."""
    return _blame(v, Cause.NEVER_OPENED, owned=False)


def blame_absent(v: V, e: TimerFired, now: float) -> V:
    """Some decode rank never opened the room."""
    return _blame(v, Cause.PEERS_MISSING)


def blame_stall(v: V, e: TimerFired, now: float) -> V:
    """Nothing moved for too long."""
    return _blame(v, Cause.STALLED)


def owe(v: V, e: PeerOpened | PeerAnnounced, now: float) -> V:
    """This late one is to be told, too."""
    return replace(_bind(v, e.claim), peers=v.peers | 1 << e.peer)


def drop(v: V, e: PeerNoted | LinkWentDown | PeerForgot, now: float) -> V:
    """This one need not be told any more."""
    return replace(v, peers=v.peers & ~(1 << e.peer))


def tried(v: V, e: TimerFired, now: float) -> V:
    """Told once more."""
    return replace(v, work=replace(_work(v), tries=_work(v).tries + 1))


# ------------------------------------------------------------------------------------------ effects
def say_opened(v: V, e: PeerOpened) -> Output:
    """Confirm the room to the decode rank."""
    return do.Reply(e.room, Opened())


def say_drained(v: V, e: AbortAsked | PeerOpened | PeerAnnounced) -> Output:
    """Tell the asker that nothing of the room is in flight."""
    return do.Reply(e.room, Drained(_work(v).cause))


def ask_again(v: V, e: EngineOpened) -> EngineOpened:
    """Open the room once more, now that nobody has it."""
    return e


def tell_drained(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell every decode rank that does not know yet."""
    return do.Send(e.room, v.peers, Drained(_work(v).cause))


def open_first(v: V, e: RoomEvent) -> Output:
    """Open the first window and the aux row's sends."""
    return do.OpenWindow(e.room, first_chunk(v), _work(v).next, aux=True)


def open_next(v: V, e: SendFinished) -> Output:
    """Open the chunk that came into the window."""
    return do.OpenWindow(e.room, _work(v).next - 1, _work(v).next, aux=False)


def offer_kv(v: V, e: TokensProduced) -> Output:
    """Tell the sends how far the KV is."""
    return do.OfferKv(e.room)


def withdraw_kv(v: V, e: TokensWithdrawn) -> Output:
    """Tell the sends whose KV is there no more."""
    return do.WithdrawKv(e.room)


def offer_aux(v: V, e: AuxProvided) -> Output:
    """Tell the aux sends that the row is there."""
    return do.OfferAux(e.room)


def confirm_told(v: V, e: PeerForgot) -> Output:
    """Confirm the parts that it may have been told of: it has everything, and has forgotten its success."""
    return do.ConfirmTold(e.room, e.peer)


def stop_sends(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell the sends to stop."""
    return do.StopSends(e.room)


def announce(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell the engine how the room ended."""
    return do.AnnounceOutcome(e.room, _work(v).cause)


def announce_peer(v: V, e: PeerOpened | PeerAnnounced | LinkWentDown | PeerForgot | RoomFailed) -> Output:
    """Tell the engine how the room ended, and which decode rank it was about."""
    return do.AnnounceOutcome(e.room, _work(v).cause, e.peer)


def announce_told(v: V, e: AbortAsked) -> Output:
    """Tell the engine what the decode rank said."""
    return do.AnnounceOutcome(e.room, _work(v).cause, e.peer, told=True)


def release(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell the engine that the pages are its own again."""
    return do.AnnounceReleased(e.room)


prefill_room = Table(
    "prefill_room", PRoomValue, S, initial=S.UNKNOWN, final=(S.DONE, S.FAILED, S.ABORTED),
    events=(
        EngineOpened, PeerOpened, PeerAnnounced, ForwardScheduled, TokensProduced, TokensWithdrawn, AuxProvided, SendFinished,
        SendsStopped,
        EngineAborted, EngineRefused, AbortAsked, RoomFailed, LinkWentDown, PeerForgot, PeerNoted, TimerFired,
    ),
    timers={
        S.AWAIT_ENGINE: "engine", S.AWAIT_PEERS: "bootstrap", S.AWAIT_FORWARD: "stall", S.OPEN: "stall",
        S.AWAIT_NOTED: "resend",
    },
    tries=tried_so_far,
    periods={S.AWAIT_PEERS: within, S.AWAIT_FORWARD: within, S.OPEN: within},
    tombstones=True,
    success_path=(S.UNKNOWN, S.AWAIT_PEERS, S.AWAIT_FORWARD, S.OPEN, S.DONE),
    failure_states=(S.DRAINING, S.AWAIT_NOTED, S.FAILED, S.ABORTED),
)  # fmt: skip
opens, row, ignore, refuse = prefill_room.opens, prefill_room.row, prefill_room.ignore, prefill_room.refuse

LIVE = (S.AWAIT_PEERS, S.AWAIT_FORWARD, S.OPEN)
FAILED = (S.FAILED, S.ABORTED)
OVER = (S.DONE, *FAILED)
WORK = (ForwardScheduled, TokensProduced, TokensWithdrawn, AuxProvided)

# fmt: off
# ---------------------------------------------------------------------------------- the way that goes well
opens(S.UNKNOWN,     EngineOpened,     S.AWAIT_PEERS,   let=own_anew)
ignore(S.UNKNOWN,    PeerOpened,       "all have opened it, so it is over here: its tombstone is gone", when=asks_after)
opens(S.UNKNOWN,     PeerOpened,       S.AWAIT_ENGINE,  let=meet, do=(say_opened,))
row(S.AWAIT_ENGINE,  PeerOpened,       S.DRAINING,      when=disagrees, let=blame_plan_unowned, do=(stop_sends,))
row(S.AWAIT_ENGINE,  PeerOpened,                        let=meet, do=(say_opened,))
opens(S.UNKNOWN,     PeerAnnounced,    S.AWAIT_ENGINE,  let=hear_of)
row(S.AWAIT_ENGINE,  PeerAnnounced,    S.DRAINING,      when=announces_another, let=blame_plan_unowned, do=(stop_sends,))
row(S.AWAIT_PEERS,   PeerAnnounced,    S.DRAINING,      when=announces_another, let=blame_plan, do=(announce_peer, stop_sends))
row(S.AWAIT_ENGINE,  PeerAnnounced,                     again=True)
row(S.AWAIT_PEERS,   PeerAnnounced,                     let=bind, again=True)
ignore((S.AWAIT_FORWARD, S.OPEN, S.DONE), PeerAnnounced, "it has opened the room")
row(S.AWAIT_ENGINE,  EngineOpened,     S.AWAIT_NOTED,   when=claimed_by_another, let=blame_claim, do=(tell_drained, ask_again))
row((S.AWAIT_NOTED, *FAILED), EngineOpened, S.AWAIT_PEERS, when=ended_for_another, let=own_anew)
row(S.AWAIT_ENGINE,  EngineOpened,     S.DRAINING,      when=other_length, let=blame_length, do=(announce, stop_sends))
row(S.AWAIT_ENGINE,  EngineOpened,     S.DONE,          when=met_without_duty, let=own, do=(announce, release))
row(S.AWAIT_ENGINE,  EngineOpened,     S.AWAIT_FORWARD, when=met, let=own)
row(S.AWAIT_ENGINE,  EngineOpened,     S.AWAIT_PEERS,   let=own)
row(S.AWAIT_PEERS,   PeerOpened,       S.DRAINING,      when=disagrees, let=blame_plan, do=(announce_peer, stop_sends))
row(S.AWAIT_PEERS,   PeerOpened,       S.DONE,          when=meets_last_without_duty, let=meet, do=(say_opened, announce, release))
row(S.AWAIT_PEERS,   PeerOpened,       S.OPEN,          when=meets_last_at_work, let=meet_and_begin, do=(say_opened, open_first))
row(S.AWAIT_PEERS,   PeerOpened,       S.AWAIT_FORWARD, when=meets_last, let=meet, do=(say_opened,))
row(S.AWAIT_PEERS,   PeerOpened,                        let=meet, do=(say_opened,))
row(S.AWAIT_PEERS,   ForwardScheduled,                  let=start)
row(S.AWAIT_PEERS,   TokensProduced,                    let=count)
row(S.AWAIT_PEERS,   AuxProvided,                       let=give_aux)
row(S.AWAIT_FORWARD, ForwardScheduled, S.OPEN,          let=begin, do=(open_first,))
row(S.AWAIT_FORWARD, TokensProduced,   S.OPEN,          let=count_and_begin, do=(open_first,))
row(S.AWAIT_FORWARD, AuxProvided,      S.OPEN,          let=give_aux_and_begin, do=(open_first,))
row(S.OPEN,          TokensProduced,                    when=more, let=count, do=(offer_kv,), again=True)
row(S.OPEN,          AuxProvided,                       when=first_aux, let=give_aux, do=(offer_aux,), again=True)
row((S.AWAIT_PEERS, S.AWAIT_FORWARD), TokensWithdrawn,  let=uncount)
row(S.OPEN,          TokensWithdrawn,                   let=uncount, do=(withdraw_kv,), again=True)
row(S.OPEN,          SendFinished,     S.DONE,          when=last_send, let=end_one, do=(announce, release))
row(S.OPEN,          SendFinished,                      when=window_slides, let=slide, do=(open_next,), again=True)
row(S.OPEN,          SendFinished,                      let=end_one, again=True)
row((S.AWAIT_FORWARD, S.OPEN, S.DONE), PeerOpened,      do=(say_opened,))

# ------------------------------------------------------------------------------------- what ends it early
opens(S.UNKNOWN,     AbortAsked,       S.ABORTED,       when=asked_by_engine, let=blame_unowned, do=(say_drained,))
opens(S.UNKNOWN,     AbortAsked,       S.FAILED,        let=blame_unowned, do=(say_drained,))
opens(S.UNKNOWN,     EngineRefused,    S.ABORTED,       let=decline)
row(S.AWAIT_ENGINE,  EngineRefused,    S.DRAINING,      let=decline_claimed, do=(stop_sends,))
row(LIVE,            EngineRefused,    S.DRAINING,      let=blame, do=(announce, stop_sends))
row(S.AWAIT_ENGINE,  AbortAsked,       S.DRAINING,      let=blame_asked_unowned, do=(stop_sends,))
row(S.AWAIT_ENGINE,  LinkWentDown,     S.DRAINING,      when=known, let=blame_link_unowned, do=(stop_sends,))
row(S.AWAIT_ENGINE,  TimerFired,       S.DRAINING,      let=blame_engine, do=(stop_sends,))
row(LIVE,            EngineAborted,    S.DRAINING,      let=blame, do=(announce, stop_sends))
row(LIVE,            AbortAsked,       S.DRAINING,      let=blame_asked, do=(announce_told, stop_sends))
row(LIVE,            LinkWentDown,     S.DRAINING,      when=known, let=blame_link, do=(announce_peer, stop_sends))
row(S.OPEN,          PeerForgot,       S.DRAINING,      when=unsent, let=blame_forgetful, do=(announce_peer, stop_sends))
row(S.OPEN,          PeerForgot,                        do=(confirm_told,))
row(S.AWAIT_PEERS,   TimerFired,       S.DRAINING,      let=blame_absent, do=(announce, stop_sends))
row(S.AWAIT_FORWARD, TimerFired,       S.DRAINING,      let=blame_stall, do=(announce, stop_sends))
row(S.OPEN,          TimerFired,       S.DRAINING,      let=blame_stall, do=(announce, stop_sends))
row(S.OPEN,          RoomFailed,       S.DRAINING,      let=blame, do=(announce_peer, stop_sends))

# ---------------------------------------------------------------------------------------------- draining
row(S.DRAINING,      SendFinished,                      when=others_live, let=end_one)
row(S.DRAINING,      SendFinished,     S.ABORTED,       when=aborted_unheard, let=end_one, do=(release,))
row(S.DRAINING,      SendFinished,     S.FAILED,        when=unheard, let=end_one, do=(release,))
row(S.DRAINING,      SendFinished,     S.AWAIT_NOTED,   let=end_one, do=(tell_drained, release))
ignore(S.DRAINING,   SendsStopped,     "gathers or writes are in flight", when=some_live)
row(S.DRAINING,      SendsStopped,     S.ABORTED,       when=aborted_unheard_of)
row(S.DRAINING,      SendsStopped,     S.FAILED,        when=unheard_of)
row(S.DRAINING,      SendsStopped,     S.AWAIT_NOTED,   when=unowned, do=(tell_drained,))
row(S.DRAINING,      SendsStopped,     S.ABORTED,       when=aborted_unheard, do=(release,))
row(S.DRAINING,      SendsStopped,     S.FAILED,        when=unheard, do=(release,))
row(S.DRAINING,      SendsStopped,     S.AWAIT_NOTED,   do=(tell_drained, release))
row(S.DRAINING,      PeerOpened,                        let=owe)
row(S.DRAINING,      PeerAnnounced,                     let=owe)
row(S.DRAINING,      LinkWentDown,                      let=drop)
row(S.DRAINING,      PeerForgot,                        let=drop)
ignore(S.DRAINING,   AbortAsked,       "the asker is told when all is drained")
row(S.AWAIT_NOTED,   PeerNoted,        S.ABORTED,       when=last_noted_aborted, let=drop)
row(S.AWAIT_NOTED,   PeerNoted,        S.FAILED,        when=last_noted, let=drop)
row(S.AWAIT_NOTED,   PeerNoted,                         let=drop)
row(S.AWAIT_NOTED,   LinkWentDown,     S.ABORTED,       when=last_noted_aborted, let=drop)
row(S.AWAIT_NOTED,   LinkWentDown,     S.FAILED,        when=last_noted, let=drop)
row(S.AWAIT_NOTED,   LinkWentDown,                      let=drop)
row(S.AWAIT_NOTED,   PeerForgot,       S.ABORTED,       when=last_noted_aborted, let=drop)
row(S.AWAIT_NOTED,   PeerForgot,       S.FAILED,        when=last_noted, let=drop)
row(S.AWAIT_NOTED,   PeerForgot,                        let=drop)
row(S.AWAIT_NOTED,   TimerFired,                        when=tries_left, let=tried, do=(tell_drained,))
row(S.AWAIT_NOTED,   TimerFired,       S.ABORTED,       when=was_aborted)
row(S.AWAIT_NOTED,   TimerFired,       S.FAILED)
row(S.AWAIT_NOTED,   PeerOpened,                        let=owe, do=(say_drained,))
row(S.AWAIT_NOTED,   PeerAnnounced,                     let=owe, do=(say_drained,))
row(S.AWAIT_NOTED,   EngineOpened,                      when=unowned, let=own, do=(announce, release))
row(S.AWAIT_NOTED,   AbortAsked,                        do=(say_drained,))

# -------------------------------------------------------------------------------------------- tombstones
row(OVER,            AbortAsked,                        do=(say_drained,))
row(FAILED,          PeerOpened,                        do=(say_drained,))
row(FAILED,          PeerAnnounced,                     do=(say_drained,))
row(FAILED,          EngineOpened,                      when=unowned, let=own, do=(announce, release))

# --------------------------------------------------------------------------------------- what means nothing
ignore(S.OPEN,       ForwardScheduled, "the sends are under way")
ignore(S.OPEN,       TokensProduced,   "not more than before")
ignore(S.OPEN,       AuxProvided,      "the row is there")
ignore((S.AWAIT_ENGINE, *LIVE), LinkWentDown, "that peer has not opened the room")
ignore((S.DRAINING, S.AWAIT_NOTED, *OVER), (*WORK, EngineAborted, EngineRefused), "the room is over; the engine has been told")
ignore((S.DRAINING, S.AWAIT_NOTED), RoomFailed, "the first cause counts")
ignore(S.DRAINING,   PeerNoted,        "an older room's confirmation")
ignore((S.AWAIT_ENGINE, *LIVE), PeerNoted, "who says so was told that it is not entitled to the room, or that it is over, which is forgotten")
ignore(OVER,         (PeerNoted, PeerForgot), "nobody is to be told any more")
ignore(S.UNKNOWN,    (PeerNoted, PeerForgot), "the room's tombstone is gone")
ignore(S.AWAIT_NOTED, SendsStopped,    "the last send has ended")

# ------------------------------------------------------------------------------- what breaks the protocol
refuse((*LIVE, S.DRAINING, S.AWAIT_NOTED, *OVER), EngineOpened, "the room is open: a new attempt needs a new gen")
refuse((S.UNKNOWN, S.AWAIT_ENGINE), (*WORK, EngineAborted), "the engine has not opened the room")
refuse((S.AWAIT_ENGINE, S.AWAIT_PEERS, S.AWAIT_FORWARD), PeerForgot, "nothing was asked")
refuse((S.UNKNOWN, S.AWAIT_ENGINE, S.AWAIT_PEERS, S.AWAIT_FORWARD, *OVER), RoomFailed, "no send is under way")
# fmt: on
