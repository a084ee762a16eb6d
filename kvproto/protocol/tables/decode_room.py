"""The decode rank's room: it opens the transfer, and it alone knows when the KV is there.

The engine opens the room when pages are allocated.  Every prefill rank that shares a head and a layer is told
(`OPEN`), again and again until it has confirmed; a chunk may be asked for before the last has.  A chunk for
which a writer asks gets a grant (a machine of its own); a chunk that is in place is remembered in `done`, so a
late request for it is recognised and never granted anew.  A late request for its pages is confirmed: its writer may not
know that the part is in place, because the staged write has failed after its notification was sent.

In a room in which nothing moves they are asked once more, now and then: `OPEN` is answered by whoever knows how the room
stands, so what was told while it could not be heard (the room has ended there; it was never this engine's) is told again.

Once every chunk is in place the aux row alone is missing (`AWAIT_AUX`).  The forward is over by then, so the engine owes
it soon: the wait has a timer and a cause of its own.  A room without chunks stays
`OPEN`, since nothing tells whether its forward has begun.

An engine that still waits for pages may announce the room before (`ANNOUNCED`): the prefill ranks know of it, and one
that has said no, or never heard of the request, says so; as often as the engine renews it, they have the more patience.

A room succeeds when every prefill rank takes part, every chunk of the plan is in its pages and the aux row has
landed.  Nothing less is announced.  The chunks of a model's state, behind those of the tokens or with the last of them,
are chunks like these; their writers may be others.

When it fails, the outcome is announced at once, but the pages are the engine's again only when no prefill rank
can write any more: each is told to stop and must say that it has drained; of a rank whose link is lost, the
lease and the longest write have to pass, or it has to come back with a new epoch (`PeerQuiet`).  Only of one in
*doubt*: one that was told where to write, and whose part is not in place.  Who was told nothing has nothing to
write, and its death delays nobody.  Then the grants' regions are freed (`SETTLING`), and the room is released.

Final rooms stay as tombstones.  A room may fail while a link is down, or not yet up.  The prefill rank at its other end
cannot be told then, and its engine may still open the room.  So the tombstone keeps which prefill ranks have never said
that they drained (`untold`), and each of them is told to stop when its link comes up.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    AuxLanded,
    ChunkLanded,
    ChunkNotified,
    ChunkRequested,
    EngineAborted,
    GrantClosed,
    GrantsStopped,
    LinkCameUp,
    LinkWentDown,
    PagesRequested,
    PeerDrained,
    PeerQuiet,
    PeerReady,
    RoomAnnounced,
    RoomEvent,
    RoomFailed,
    RoomOpened,
    RoomRenewed,
    StagingRequested,
    Terms,
    TimerFired,
)
from kvproto.protocol.kinds import ChunkSet, RankMask, Tokens
from kvproto.protocol.messages import Abort, Announce, AuxAck, ChunkAck, Gone, Noted, Open
from kvproto.protocol.room_chunks import end_chunk, first_chunk, taking_part
from kvproto.protocol.states import Cause
from kvproto.protocol.states import DRoom as S


class DecodeWork(msgspec.Struct, frozen=True, gc=False):
    """The state of a room that has moved KV, has asked again, or has failed."""

    #: chunks (mask) that are in their pages
    done: ChunkSet = 0
    #: grants that have not ended
    live: int = 0
    #: the aux row has landed
    aux: bool = False
    #: why the room failed
    cause: Cause = Cause.NONE
    #: how often the prefill ranks were told, or asked since something last moved
    tries: int = 0
    #: of a room that has failed: prefill ranks (mask) that might have been writing when it did
    in_doubt: RankMask = 0
    #: of a room that has failed: prefill ranks (mask) that have never said that they drained, so may not know of the end
    untold: RankMask = 0


class DRoomValue(Value, frozen=True, gc=False):
    """A room; tokens are counts from the start of the prompt."""

    terms: Terms | None = None
    tokens: Tokens = 0
    prefix: Tokens = 0
    #: prefill ranks (mask) that have confirmed the room; when it has failed: that can still write
    peers: RankMask = 0
    work: DecodeWork | None = None
    #: what the prefill engine asks of whoever claims the room
    secret: bytes = b""
    #: the trace of the request: this engine's, or else what a prefill rank says
    traceparent: bytes = b""
    #: runs of consecutive pages that are to be written (0: not counted)
    runs: Tokens = 0


V = DRoomValue
IDLE = DecodeWork()


def _work(v: V) -> DecodeWork:
    return v.work or IDLE


def _terms(v: V) -> Terms:
    assert v.terms is not None
    return v.terms


def _open(v: V) -> Open:
    return Open(v.tokens, v.prefix, v.secret, v.traceparent, v.runs, _terms(v).layer_groups, v.state in (S.OPEN, S.AWAIT_AUX))


def _writers(v: V, e: ChunkRequested) -> RankMask:
    return taking_part(v, e.chunk)


def _placed(v: V, done: int) -> bool:
    return done | (1 << first_chunk(v)) - 1 == (1 << end_chunk(v)) - 1


def _complete(v: V, done: int, *, aux: bool) -> bool:
    return aux and _placed(v, done)


def _all_placed(v: V, done: int) -> bool:
    return first_chunk(v) < end_chunk(v) and _placed(v, done)


# ------------------------------------------------------------------------------------------- guards
def last_ready_complete(v: V, e: PeerReady, now: float) -> bool:
    """Every prefill rank takes part, and everything is in place already."""
    return last_ready(v, e, now) and _complete(v, _work(v).done, aux=_work(v).aux)


def last_ready_but_aux(v: V, e: PeerReady, now: float) -> bool:
    """Every prefill rank takes part, and every chunk is in place."""
    return last_ready(v, e, now) and _all_placed(v, _work(v).done)


def last_ready(v: V, e: PeerReady, now: float) -> bool:
    """Every prefill rank takes part."""
    return v.peers | 1 << e.peer == _terms(v).everyone


def tries_left(v: V, e: TimerFired, now: float) -> bool:
    """They may be told once more."""
    return _work(v).tries < e.tries


def in_place(v: V, e: ChunkRequested | ChunkNotified, now: float) -> bool:
    """The chunk is in its pages."""
    return bool(_work(v).done >> e.chunk & 1)


def pages_in_place(v: V, e: ChunkRequested, now: float) -> bool:
    """The chunk is in its pages, and its pages are asked for."""
    return e.pages and in_place(v, e, now)


def of_plan(v: V, e: ChunkRequested, now: float) -> bool:
    """The plan has this chunk and this writer."""
    return first_chunk(v) <= e.chunk < end_chunk(v) and bool(_writers(v, e) >> e.peer & 1)


def of_plan_over_pages(v: V, e: ChunkRequested, now: float) -> bool:
    """The plan has this chunk and this writer, who asks for the pages."""
    return e.pages and of_plan(v, e, now)


def tried_so_far(v: V) -> int:
    """How often the state's timer has ended."""
    return _work(v).tries


def no_cause(v: V, e: PeerDrained, now: float) -> bool:
    """It says that nothing went wrong."""
    return not e.cause


def last_chunk(v: V, e: ChunkLanded, now: float) -> bool:
    """Every chunk is in place, and the aux row has landed."""
    return _complete(v, _work(v).done | 1 << e.chunk, aux=_work(v).aux)


def last_but_aux(v: V, e: ChunkLanded, now: float) -> bool:
    """Every chunk is in place."""
    return _all_placed(v, _work(v).done | 1 << e.chunk)


def aux_completes(v: V, e: AuxLanded, now: float) -> bool:
    """The aux row was all that was missing."""
    return _complete(v, _work(v).done, aux=True)


def first_aux(v: V, e: AuxLanded, now: float) -> bool:
    """The aux row had not landed."""
    return not _work(v).aux


def untouched(v: V, e: LinkWentDown, now: float) -> bool:
    """Another incarnation takes the link over, and the former one has not confirmed the room."""
    return e.replaced and not v.peers >> e.peer & 1


def _last_writer(v: V, peer: int) -> bool:
    return not v.peers & ~(1 << peer)


def last_writer_aborted(v: V, e: PeerDrained | PeerQuiet, now: float) -> bool:
    """Nobody can write any more, no grant is left, and an engine gave the room up."""
    return last_writer_failed(v, e, now) and _work(v).cause.aborted


def last_writer_failed(v: V, e: PeerDrained | PeerQuiet, now: float) -> bool:
    """Nobody can write any more, and no grant is left."""
    return _last_writer(v, e.peer) and not _work(v).live


def last_writer(v: V, e: PeerDrained | PeerQuiet, now: float) -> bool:
    """Nobody can write any more."""
    return _last_writer(v, e.peer)


def last_grant_aborted(v: V, e: GrantClosed, now: float) -> bool:
    """No grant is left, and an engine gave the room up."""
    return _work(v).live == 1 and _work(v).cause.aborted


def last_grant(v: V, e: GrantClosed, now: float) -> bool:
    """No grant is left."""
    return _work(v).live == 1


# --------------------------------------------------------------------------------------------- lets
def allocate(v: V, e: RoomOpened, now: float) -> V:
    """The engine's pages."""
    return replace(
        v, terms=e.terms, tokens=e.tokens, prefix=e.prefix, secret=e.secret, traceparent=e.traceparent, runs=e.runs
    )  # fmt: skip


def promise(v: V, e: RoomAnnounced, now: float) -> V:
    """There will be pages."""
    return replace(v, terms=e.terms, tokens=e.tokens, secret=e.secret, traceparent=e.traceparent)


def ready(v: V, e: PeerReady, now: float) -> V:
    """This prefill rank takes part."""
    return replace(v, peers=v.peers | 1 << e.peer)


def ready_all(v: V, e: PeerReady, now: float) -> V:
    """This prefill rank takes part, and with it all: what is counted from now on is another patience."""
    return replace(ready(v, e, now), work=replace(v.work, tries=0) if v.work else None)


def tried(v: V, e: TimerFired, now: float) -> V:
    """Told once more."""
    return replace(v, work=replace(_work(v), tries=_work(v).tries + 1))


def more_grants(v: V, e: ChunkRequested, now: float) -> V:
    """One grant more."""
    return replace(v, work=replace(_work(v), live=_work(v).live + 1, tries=0))


def place(v: V, e: ChunkLanded, now: float) -> V:
    """The chunk is in its pages, its grant has ended."""
    work = _work(v)
    return replace(v, work=replace(work, done=work.done | 1 << e.chunk, live=work.live - 1, tries=0))


def fewer_grants(v: V, e: GrantClosed, now: float) -> V:
    """One grant fewer."""
    return replace(v, work=replace(_work(v), live=_work(v).live - 1))


def have_aux(v: V, e: AuxLanded, now: float) -> V:
    """The aux row has landed."""
    return replace(v, work=replace(_work(v), aux=True, tries=0), traceparent=v.traceparent or e.traceparent)


def _blame(v: V, cause: Cause) -> V:
    everyone = _terms(v).everyone
    return replace(v, peers=everyone, work=replace(_work(v), cause=cause, tries=0, untold=everyone))


def blame(v: V, e: EngineAborted | RoomFailed | LinkWentDown, now: float) -> V:
    """The cause is the event's; every prefill rank may still write, and none knows of the end."""
    return _blame(v, e.cause)


def blame_told(v: V, e: PeerDrained, now: float) -> V:
    """The cause is the event's; every prefill rank may still write, and the sender alone knows of the end."""
    return know(_blame(v, e.cause), e, now)


def blame_silence(v: V, e: TimerFired, now: float) -> V:
    """Nothing was heard for too long; every prefill rank may still write, and none knows of the end."""
    return _blame(v, Cause.NO_ANSWER if v.state is S.AWAIT_PEERS else Cause.STALLED)


def blame_aux(v: V, e: TimerFired, now: float) -> V:
    """The aux row did not come; every prefill rank may still write, and none knows of the end."""
    return _blame(v, Cause.AUX_MISSING)


def mark_in_doubt(v: V, e: GrantsStopped, now: float) -> V:
    """These might have been writing."""
    return replace(v, work=replace(_work(v), in_doubt=e.in_doubt))


def quiet(v: V, e: PeerDrained | PeerQuiet, now: float) -> V:
    """This one writes no more."""
    return replace(v, peers=v.peers & ~(1 << e.peer))


def know(v: V, e: PeerDrained, now: float) -> V:
    """This one knows of the end."""
    return replace(v, work=replace(_work(v), untold=_work(v).untold & ~(1 << e.peer)))


def drain(v: V, e: PeerDrained, now: float) -> V:
    """This one writes no more, and knows of the end."""
    return know(quiet(v, e, now), e, now)


# ------------------------------------------------------------------------------------------ effects
def tell_open(v: V, e: RoomOpened | TimerFired) -> Output:
    """Tell the prefill ranks that have not confirmed."""
    return do.Send(e.room, _terms(v).everyone & ~v.peers, _open(v))


def tell_announce(v: V, e: RoomAnnounced | RoomRenewed) -> Output:
    """Tell the prefill ranks that the room will be opened."""
    return do.Send(e.room, _terms(v).everyone, Announce(v.tokens, v.secret, v.traceparent))


def tell_one_announce(v: V, e: LinkCameUp) -> Output:
    """Tell the one whose link has come up that the room will be opened."""
    return do.Send(e.room, 1 << e.peer, Announce(v.tokens, v.secret, v.traceparent))


def tell_one_open(v: V, e: LinkCameUp) -> Output:
    """Tell the one whose link has come up."""
    return do.Send(e.room, 1 << e.peer & ~v.peers, _open(v))


def ask_after(v: V, e: TimerFired) -> Output:
    """Ask every prefill rank how the room stands there."""
    return do.Send(e.room, _terms(v).everyone, _open(v))


def tell_abort(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell those who may still write to stop."""
    return do.Send(e.room, v.peers, Abort(_work(v).cause, v.secret))


def tell_one_abort(v: V, e: LinkCameUp) -> Output:
    """Tell the one whose link has come up to stop, unless it has said that it has."""
    return do.Send(e.room, 1 << e.peer & _work(v).untold, Abort(_work(v).cause, v.secret))


def say_abort(v: V, e: RoomEvent) -> Output:
    """Tell the sender that the room is over."""
    return do.Reply(e.room, Abort(_work(v).cause, v.secret))


def say_noted(v: V, e: PeerDrained) -> Output:
    """Confirm that it has drained."""
    return do.Reply(e.room, Noted())


def say_gone(v: V, e: RoomEvent) -> Output:
    """The room is not known here."""
    return do.Reply(e.room, Gone())


def open_grant(v: V, e: ChunkRequested) -> StagingRequested:
    """Begin the chunk: its first writer asks for a region."""
    return StagingRequested(e.room, e.chunk, e.peer, _writers(v, e), e.asked, e.cut)


def open_grant_over_pages(v: V, e: ChunkRequested) -> PagesRequested:
    """Begin the chunk: its first writer asks for the pages."""
    return PagesRequested(e.room, e.chunk, e.peer, _writers(v, e), e.asked, e.link, e.epoch, e.cut)


def say_in_place(v: V, e: ChunkNotified | ChunkRequested) -> Output:
    """Confirm the part."""
    return do.Reply(e.room, ChunkAck(e.chunk))


def say_aux_landed(v: V, e: AuxLanded) -> Output:
    """Confirm the aux row."""
    return do.Reply(e.room, AuxAck())


def deliver_aux(v: V, e: AuxLanded) -> Output:
    """Give the engine the aux row."""
    return do.DeliverAux(e.room, e.data)


def stop_grants(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell the grants that the room has failed."""
    return do.StopGrants(e.room)


def ask_open(v: V, e: RoomOpened | RoomAnnounced | RoomRenewed | TimerFired) -> Output:
    """Ask the links to those that have not confirmed whether the room can be opened there."""
    return do.AskLinks(e.room, _terms(v).everyone & ~v.peers, quiet=False)


def ask_quiet(v: V, e: RoomEvent | TimerFired) -> Output:
    """Ask the links which prefill ranks never knew the room, are long gone, or left with nothing to write."""
    return do.AskLinks(e.room, _terms(v).everyone, quiet=True, in_doubt=_work(v).in_doubt)


def ask_one_quiet(v: V, e: LinkWentDown) -> Output:
    """Ask the link that was lost whether its prefill rank may still write."""
    return do.AskLinks(e.room, v.peers & 1 << e.peer, quiet=True, in_doubt=_work(v).in_doubt)


def count_quiet(v: V, e: PeerDrained) -> PeerQuiet:
    """Count the one that has drained as quiet."""
    return PeerQuiet(e.room, e.peer)


def drain_grants(v: V, e: RoomEvent) -> Output:
    """Tell the grants that nobody writes any more."""
    return do.DrainGrants(e.room)


def announce(v: V, e: RoomEvent | TimerFired) -> Output:
    """Tell the engine how the room ended."""
    return do.AnnounceOutcome(e.room, _work(v).cause)


def announce_peer(v: V, e: LinkWentDown | RoomFailed) -> Output:
    """Tell the engine how the room ended, and which prefill rank it was about."""
    return do.AnnounceOutcome(e.room, _work(v).cause, e.peer)


def announce_told(v: V, e: PeerDrained) -> Output:
    """Tell the engine what the prefill rank said."""
    return do.AnnounceOutcome(e.room, _work(v).cause, e.peer, told=True)


def release(v: V, e: RoomEvent) -> Output:
    """Tell the engine that the pages are its own again."""
    return do.AnnounceReleased(e.room)


decode_room = Table(
    "decode_room", DRoomValue, S, initial=S.UNKNOWN, final=(S.DONE, S.FAILED, S.ABORTED),
    events=(
        RoomAnnounced, RoomRenewed, RoomOpened, PeerReady, ChunkRequested, ChunkNotified, ChunkLanded, AuxLanded, EngineAborted, RoomFailed,
        PeerDrained, GrantClosed, GrantsStopped, LinkCameUp, LinkWentDown, PeerQuiet, TimerFired,
    ),
    timers={S.ANNOUNCED: "stall", S.AWAIT_PEERS: "call", S.OPEN: "idle", S.AWAIT_AUX: "aux", S.DRAINING: "resend"},
    tries=tried_so_far,
    tombstones=True,
    success_path=(S.UNKNOWN, S.AWAIT_PEERS, S.OPEN, S.AWAIT_AUX, S.DONE),
    failure_states=(S.DRAINING, S.SETTLING, S.FAILED, S.ABORTED),
)  # fmt: skip
opens, row, ignore, refuse = decode_room.opens, decode_room.row, decode_room.ignore, decode_room.refuse

#: chunks are missing, or may be
FILLS = (S.AWAIT_PEERS, S.OPEN)
LIVE = (*FILLS, S.AWAIT_AUX)
BEGUN = (S.ANNOUNCED, *LIVE)
FAILED = (S.FAILED, S.ABORTED)
OVER = (S.DONE, *FAILED)
FAIL = (tell_abort, stop_grants)

# fmt: off
# ---------------------------------------------------------------------------------- the way that goes well
opens(S.UNKNOWN,   RoomAnnounced,  S.ANNOUNCED,   let=promise, do=(tell_announce, ask_open))
row(S.ANNOUNCED,   RoomRenewed,                   do=(tell_announce, ask_open), again=True)
row(S.ANNOUNCED,   LinkCameUp,                    do=(tell_one_announce,))
row(S.ANNOUNCED,   RoomOpened,     S.AWAIT_PEERS, let=allocate, do=(tell_open, ask_open))
opens(S.UNKNOWN,   RoomOpened,     S.AWAIT_PEERS, let=allocate, do=(tell_open, ask_open))
row(S.AWAIT_PEERS, PeerReady,      S.DONE,        when=last_ready_complete, let=ready, do=(announce, release))
row(S.AWAIT_PEERS, PeerReady,      S.AWAIT_AUX,   when=last_ready_but_aux, let=ready_all)
row(S.AWAIT_PEERS, PeerReady,      S.OPEN,        when=last_ready, let=ready_all)
row(S.AWAIT_PEERS, PeerReady,                     let=ready)
row(S.AWAIT_PEERS, TimerFired,                    when=tries_left, let=tried, do=(tell_open, ask_open))
row(S.AWAIT_PEERS, LinkCameUp,                    do=(tell_one_open,))
row((S.OPEN, S.AWAIT_AUX), TimerFired,            when=tries_left, let=tried, do=(ask_after,))
row((*LIVE, S.DONE), ChunkRequested,              when=pages_in_place, do=(say_in_place,))
ignore(LIVE,       ChunkRequested, "a late request: the chunk is in place", when=in_place)
row(FILLS,         ChunkRequested,                when=of_plan_over_pages, let=more_grants, do=(open_grant_over_pages,), again=True)
row(FILLS,         ChunkRequested,                when=of_plan, let=more_grants, do=(open_grant,), again=True)
row(S.AWAIT_PEERS, ChunkLanded,                   let=place)
row(S.OPEN,        ChunkLanded,    S.DONE,        when=last_chunk, let=place, do=(announce, release))
row(S.OPEN,        ChunkLanded,    S.AWAIT_AUX,   when=last_but_aux, let=place)
row(S.OPEN,        ChunkLanded,                   let=place, again=True)
row(S.OPEN,        AuxLanded,      S.DONE,        when=aux_completes, let=have_aux, do=(say_aux_landed, deliver_aux, announce, release))
row(S.AWAIT_AUX,   AuxLanded,      S.DONE,        let=have_aux, do=(say_aux_landed, deliver_aux, announce, release))
row(FILLS,         AuxLanded,                     when=first_aux, let=have_aux, do=(say_aux_landed, deliver_aux), again=True)
row(FILLS,         AuxLanded,                     do=(say_aux_landed,))
row((*LIVE, S.DONE), ChunkNotified,               when=in_place, do=(say_in_place,))
row(S.DONE,        AuxLanded,                     do=(say_aux_landed,))

# ------------------------------------------------------------------------------------- what ends it early
row(BEGUN,         EngineAborted,  S.DRAINING,    let=blame, do=(announce, *FAIL))
row(BEGUN,         RoomFailed,     S.DRAINING,    let=blame, do=(announce_peer, *FAIL))
ignore((S.ANNOUNCED, S.AWAIT_PEERS), LinkWentDown, "the incarnation that takes the link over is told when it is up", when=untouched)
row(BEGUN,         LinkWentDown,   S.DRAINING,    let=blame, do=(announce_peer, *FAIL))
row(S.AWAIT_AUX,   TimerFired,     S.DRAINING,    let=blame_aux, do=(announce, *FAIL))
row((S.ANNOUNCED, *FILLS), TimerFired, S.DRAINING, let=blame_silence, do=(announce, *FAIL))
refuse(BEGUN,      PeerDrained,    "a prefill rank is done only when this one has told it so", when=no_cause)
row(BEGUN,         PeerDrained,    S.DRAINING,    let=blame_told, do=(say_noted, announce_told, *FAIL, count_quiet))

# ---------------------------------------------------------------------------------- draining and settling
row(S.DRAINING,    GrantsStopped,                 let=mark_in_doubt, do=(ask_quiet,))
row(S.DRAINING,    LinkWentDown,                  do=(ask_one_quiet,))
row(S.DRAINING,    PeerDrained,    S.ABORTED,     when=last_writer_aborted, let=drain, do=(say_noted, release))
row(S.DRAINING,    PeerDrained,    S.FAILED,      when=last_writer_failed, let=drain, do=(say_noted, release))
row(S.DRAINING,    PeerDrained,    S.SETTLING,    when=last_writer, let=drain, do=(say_noted, drain_grants))
row(S.DRAINING,    PeerDrained,                   let=drain, do=(say_noted,))
row(S.DRAINING,    PeerQuiet,      S.ABORTED,     when=last_writer_aborted, let=quiet, do=(release,))
row(S.DRAINING,    PeerQuiet,      S.FAILED,      when=last_writer_failed, let=quiet, do=(release,))
row(S.DRAINING,    PeerQuiet,      S.SETTLING,    when=last_writer, let=quiet, do=(drain_grants,))
row(S.DRAINING,    PeerQuiet,                     let=quiet)
row(S.DRAINING,    TimerFired,                    let=tried, do=(tell_abort,))
row(S.DRAINING,    LinkCameUp,                    do=(tell_one_abort,))
row(S.DRAINING,    GrantClosed,                   let=fewer_grants)
row(S.SETTLING,    GrantClosed,    S.ABORTED,     when=last_grant_aborted, let=fewer_grants, do=(release,))
row(S.SETTLING,    GrantClosed,    S.FAILED,      when=last_grant, let=fewer_grants, do=(release,))
row(S.SETTLING,    GrantClosed,                   let=fewer_grants)

# ---------------------------------------------------------------- tombstones, and rooms that are not known
row((S.UNKNOWN, S.DONE), PeerDrained,             do=(say_noted,))
row((S.SETTLING, *FAILED), PeerDrained,           let=know, do=(say_noted,))
row((S.SETTLING, *FAILED), LinkCameUp,            do=(tell_one_abort,))
row((S.DRAINING, S.SETTLING, *FAILED), ChunkRequested, do=(say_abort,))
row((S.DRAINING, S.SETTLING, *FAILED), ChunkNotified, do=(say_abort,))
row((S.DRAINING, S.SETTLING, *FAILED), AuxLanded, do=(say_abort,))
row(S.UNKNOWN,     ChunkNotified,                 do=(say_in_place,))
row(S.UNKNOWN,     AuxLanded,                     do=(say_aux_landed,))
row(S.UNKNOWN,     ChunkRequested,                do=(say_gone,))

# --------------------------------------------------------------------------------------- what means nothing
ignore(S.DONE,     ChunkRequested, "a late request: the chunk is in place")
ignore((S.DRAINING, S.SETTLING), (EngineAborted, RoomFailed), "the first cause counts")
ignore(OVER,       EngineAborted,  "the room is over; the engine has been told")
ignore((S.UNKNOWN, S.ANNOUNCED, S.OPEN, S.AWAIT_AUX, S.DRAINING, S.SETTLING, *OVER), PeerReady, "a repeated answer")
ignore((S.OPEN, S.AWAIT_AUX), LinkCameUp, "nobody is to be told anything")
ignore(S.UNKNOWN,  LinkCameUp,     "another room of the link has ended since, and this tombstone made room for it")
ignore((S.SETTLING, *FAILED), LinkWentDown, "nothing can land any more")
ignore((*BEGUN, S.SETTLING, *FAILED), PeerQuiet, "nothing of the room is in doubt")

# ------------------------------------------------------------------------------- what breaks the protocol
refuse(LIVE,       ChunkRequested, "not a chunk, or not a writer, of the plan")
refuse((*LIVE, S.DONE), ChunkNotified, "the chunk was never granted")
ignore((S.DRAINING, S.SETTLING, *FAILED), RoomOpened, "it was announced, and is over; the engine is told")
refuse((*LIVE, S.DONE), RoomOpened, "the room is open: a new attempt needs a new gen")
refuse(S.UNKNOWN,  (EngineAborted, RoomFailed), "the engine has not opened the room")
refuse(OVER,       RoomFailed,     "the room is over")
ignore((S.UNKNOWN, *LIVE, S.DRAINING, S.SETTLING, *OVER), RoomRenewed, "nothing is announced")
refuse((S.ANNOUNCED, *LIVE, S.DRAINING, S.SETTLING, *OVER), RoomAnnounced, "the room is known: a new attempt needs a new gen")
refuse(S.ANNOUNCED, (ChunkRequested, ChunkNotified, AuxLanded), "the room has no pages yet")
# fmt: on
