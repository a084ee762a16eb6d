"""The rank's edge: which event each message becomes, and whom nobody hears.

Three things are asked of a message before any machine sees it.

*Its link* (`LinkIs`).  A frame from a connection that no link is bound to is a stranger's; one of another epoch, or of
a link that is not up, is stale.  Only the handshake and the beats are heard from those.  From an address that is tried
beside a link nothing is heard but the answer to the call.

*Its sender's right to speak of the room* (`SenderIs`). A room belongs to one group of the other side: on a decode
rank to the one that its engine opened it with, on a prefill rank to the one that its engine opened it for, or to the
first one that speaks of it, where that engine means any; where it asks for a secret, OPEN, ANNOUNCE and ABORT show it,
and count from nobody without it. Until the engine has spoken a room
is whose who asks first, and an OPEN that shows another claim is a rival's: it is dropped, and its sender repeats it
until the engine has said whose the room is. Whoever is not of the room's group is no party, whatever its rank's
number: it is not heard, and told at most that the room is not its own, so that it need not wait. This one rule stands
before all messages about rooms. In the same way a connection speaks for one rank only: a call by a link's connection
that names another rank is not heard.

*Its chunk* (`ChunkIs`, decode rank).  What a writer says of a chunk that has a grant is the grant's; what it says of
any other is the room's, which alone knows whether the chunk is in place, to be granted, or none of its own.
"""

from __future__ import annotations

from typing import Any

from kvproto.fsm.routing import Fact, Routes
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.ring import usable
from kvproto.protocol.states import Cause


class LinkIs(Fact):
    """The state of the link by which a message came."""

    #: none: the message came by a connection that no link is bound to
    STRANGER = 0
    #: not up, or the message is of another epoch
    STALE = 1
    #: up, and the message is of its epoch
    CURRENT = 2
    #: the message came by the connection to an address that is tried beside the link (decode rank)
    BESIDE = 3


class SenderIs(Fact):
    """The sender's relation to the room; of a call: to the rank that it names."""

    #: the room is nobody's yet, or not known here; the call comes by a connection that no link is bound to
    UNCLAIMED = 0
    #: the sender is of the group that the room belongs to; the call names the rank whose connection it comes by
    PARTY = 1
    #: the room is another group's; the call comes by another rank's connection
    OUTSIDER = 2
    #: another one has claimed the room, and the prefill engine has not said whose it is
    RIVAL = 3


class ChunkIs(Fact):
    """Whether the chunk has a grant."""

    BARE = 0
    GRANTED = 1


class HeardMessage:
    """A message, and what the rank found out of it; one object a rank, filled anew for each message."""

    __slots__ = ("body", "epoch", "link", "peer", "place", "rank", "room", "terms", "value")

    #: number of the link (0: none), its machine's value, the other end's rank and terms
    link: int
    value: Any
    peer: int
    terms: Any
    epoch: int
    room: int
    place: bytes
    body: Any

    def __init__(self, rank: Any) -> None:
        """`rank`: whose edge it is."""
        self.rank = rank


# ------------------------------------------------------------------------------------------- both sides
def beat(h: HeardMessage) -> ev.HeartbeatReceived:
    """`peer` 0: a stranger's."""
    return ev.HeartbeatReceived(h.link, h.epoch, h.place)


def reset(h: HeardMessage) -> ev.ResetReceived:
    return ev.ResetReceived(h.link, h.epoch)


def goodbye(h: HeardMessage) -> ev.GoodbyeReceived:
    return ev.GoodbyeReceived(h.link, h.epoch, h.body.quiet)


# --------------------------------------------------------------------------------------- prefill side
def taken_back(h: HeardMessage) -> ev.CallTakenBack:
    """The caller has not heard of an epoch, and is closed."""
    return ev.CallTakenBack(h.link, h.body.session)


def call(h: HeardMessage) -> ev.HelloReceived | None:
    """The rank finds the caller's link, or makes it, and looks whether the two fit; None: too many links."""
    event: ev.HelloReceived | None = h.rank.called(h.body, h.place)
    return event


def mark(h: HeardMessage) -> ev.WatermarkSeen:
    """The decode rank's watermark."""
    return ev.WatermarkSeen(h.link, h.body.round, h.body.tail, h.body.nonce)


def granted_mark(h: HeardMessage) -> ev.WatermarkSeen:
    """The watermark that comes with a region, or with a place in the queue."""
    return ev.WatermarkSeen(h.link, h.body.mark_round, h.body.mark_tail)


def granted(h: HeardMessage) -> ev.StagingGranted:
    """Usable by the higher of the watermark that comes with it and the one that was seen before."""
    body, seen = h.body, (h.value.mark_round, h.value.mark_tail)
    ready = usable(body.round, body.end, max((body.mark_round, body.mark_tail), seen))
    return ev.StagingGranted(
        h.room, body.chunk, h.peer, body.grant, body.offset, body.round, body.end, ready, h.rank.lease,
        body.asked, body.queued,
    )  # fmt: skip


def queued(h: HeardMessage) -> ev.StagingDeferred:
    """The request is in the decode rank's queue."""
    return ev.StagingDeferred(h.room, h.body.chunk, h.peer, h.body.early)


def denied(h: HeardMessage) -> ev.StagingDenied:
    return ev.StagingDenied(h.room, h.body.chunk, h.peer)


def pages(h: HeardMessage) -> ev.PagesGranted:
    return ev.PagesGranted(h.room, h.body.chunk, h.peer, h.body.pages, h.rank.lease, h.body.asked)


def acked(h: HeardMessage) -> ev.ChunkAcked:
    return ev.ChunkAcked(h.room, h.body.chunk, h.peer)


def aux_acked(h: HeardMessage) -> ev.ChunkAcked:
    return ev.ChunkAcked(h.room, AUX_CHUNK, h.peer)


def opened(h: HeardMessage) -> ev.PeerOpened | None:
    """The decode rank's pages are there; None: too many rooms, or a cut that is refused."""
    terms = h.rank.cut_for(h.link, h.body.layer_groups)
    if terms is None:
        h.rank.refuse_cut(h)
        return None
    if h.rank.full(h.room):
        return None
    tokens, prefix = h.rank.shared(h.body.tokens), h.rank.shared(h.body.prefix)
    claim = h.rank.claim(h.terms.group, h.body.secret)
    runs = h.rank.shared(h.body.runs)
    return ev.PeerOpened(h.room, h.peer, terms, tokens, prefix, claim, h.body.traceparent, runs, h.body.again)


def announced(h: HeardMessage) -> ev.PeerAnnounced | None:
    """The decode rank will open the room; None: the room is one too many."""
    if h.rank.full(h.room):
        return None
    claim = h.rank.claim(h.terms.group, h.body.secret)
    return ev.PeerAnnounced(h.room, h.peer, h.terms, h.rank.shared(h.body.tokens), claim)


def abort(h: HeardMessage) -> ev.AbortAsked:
    """The decode rank wants no more writes."""
    claim = h.rank.claim(h.terms.group, h.body.secret)
    return ev.AbortAsked(h.room, h.peer, h.terms, h.body.cause, claim)


def noted(h: HeardMessage) -> ev.PeerNoted:
    """The decode rank knows that this one has drained."""
    return ev.PeerNoted(h.room, h.peer)


def gone(h: HeardMessage) -> ev.PeerForgot:
    return ev.PeerForgot(h.room, h.peer, h.rank.unsent(h.room, h.peer))


def taken(_: HeardMessage) -> msg.Drained:
    """Nothing is in flight for the asker, and nothing will be."""
    return msg.Drained(Cause.NOT_ENTITLED)


# ---------------------------------------------------------------------------------------- decode side
def welcome(h: HeardMessage) -> ev.WelcomeReceived:
    """The rank looks whether it is the one that was called, and fits."""
    why = h.rank.misfit_of(h.link, h.body)
    return ev.WelcomeReceived(h.link, h.body.session, h.body.epoch, why, h.rank.spoken_with(h.body))


def refusal(h: HeardMessage) -> ev.RefusalReceived:
    return ev.RefusalReceived(h.link, h.body.session, h.body.why)


def answered(h: HeardMessage) -> ev.AddressAnswered:
    """The rank looks whether it is the one that was called, fits, and is a later incarnation."""
    later, lives = h.rank.is_later(h.link, h.body.epoch), h.rank.lives(h.link)
    return ev.AddressAnswered(h.link, h.body.session, h.rank.misfit_of(h.link, h.body), later, lives)


def unanswered(h: HeardMessage) -> ev.AddressAnswered:
    """The call was refused at the address that is tried."""
    return ev.AddressAnswered(h.link, h.body.session, h.body.why)


def mark_asked(h: HeardMessage) -> ev.WatermarkAsked:
    """A prefill rank wants to know the watermark."""
    return ev.WatermarkAsked(h.link, h.body.nonce)


def region_asked(h: HeardMessage) -> ev.StagingRequested:
    return ev.StagingRequested(h.room, h.body.chunk, h.peer, h.rank.writers_of(h.room, h.body.chunk), h.body.asked)


def first_asked(h: HeardMessage) -> ev.ChunkRequested:
    """Request a region for a chunk without a grant."""
    return _requested(h, pages=False)


def pages_asked(h: HeardMessage) -> ev.PagesRequested:
    writers = h.rank.writers_of(h.room, h.body.chunk)
    return ev.PagesRequested(h.room, h.body.chunk, h.peer, writers, h.body.asked, h.link, h.epoch)


def first_pages_asked(h: HeardMessage) -> ev.ChunkRequested:
    """Request the pages of a chunk without a grant."""
    return _requested(h, pages=True)


def _requested(h: HeardMessage, *, pages: bool) -> ev.ChunkRequested:
    cut = h.rank.cut_of(h.room, h.body.chunk)
    return ev.ChunkRequested(h.room, h.body.chunk, h.peer, pages, h.body.asked, h.link, h.epoch, cut)


def part(h: HeardMessage) -> ev.PartArrived:
    return ev.PartArrived(h.room, h.body.chunk, h.peer, h.body.grant)


def late_part(h: HeardMessage) -> ev.ChunkNotified:
    """Notify a part of a chunk without a grant."""
    return ev.ChunkNotified(h.room, h.body.chunk, h.peer)


def ready(h: HeardMessage) -> ev.PeerReady:
    """The prefill rank knows the room."""
    return ev.PeerReady(h.room, h.peer)


def aux(h: HeardMessage) -> ev.AuxLanded:
    return ev.AuxLanded(h.room, h.peer, h.body.data, h.body.traceparent)


def drained(h: HeardMessage) -> ev.PeerDrained:
    """Nothing of the prefill rank is in flight any more."""
    return ev.PeerDrained(h.room, h.peer, h.body.cause)


def not_yours(_: HeardMessage) -> msg.Gone:
    """No room of the sender's is known here."""
    return msg.Gone()


def note(_: HeardMessage) -> msg.Noted:
    """It need not be said again."""
    return msg.Noted()


NOT_UP = "stale messages"
NO_PARTY = "messages of outsiders"
ONLY_TRIED = "messages from addresses that are only tried"
RIVALRY = "rooms that are claimed twice"
NOBODY = "messages of strangers"
WRONG_WAY = "messages for the other side"

P_LINK = (msg.Watermark,)
P_SENDS = (msg.StagingRsp, msg.StagingQueued, msg.StagingRefused, msg.PagesRsp, msg.ChunkAck, msg.AuxAck)
P_ROOMS = (msg.Open, msg.Announce, msg.Abort, msg.Noted, msg.Gone)
D_LINK = (msg.WatermarkReq,)
D_CHUNKS = (msg.StagingReq, msg.PagesReq, msg.StgNotify)
D_ROOMS = (*D_CHUNKS, msg.Opened, msg.Aux, msg.Drained)
TO_PREFILL = (msg.Hello, msg.Heartbeat, msg.Reset, msg.Goodbye, *P_LINK, *P_SENDS, *P_ROOMS)
TO_DECODE = (msg.Welcome, msg.Refusal, msg.Heartbeat, msg.Reset, msg.Goodbye, *D_LINK, *D_ROOMS)
ALL = tuple(dict.fromkeys((*TO_PREFILL, *TO_DECODE)))

prefill_routes = Routes("prefill", ALL, (LinkIs, SenderIs))
route, answer, drop = prefill_routes.route, prefill_routes.answer, prefill_routes.drop

# fmt: off
drop(tuple(each for each in ALL if each not in TO_PREFILL),     why=WRONG_WAY)
drop(ALL,                LinkIs.BESIDE,                           why=ONLY_TRIED)
drop(msg.Hello,          SenderIs.OUTSIDER,                     why="calls in another rank's name")
route(msg.Hello,                                                to=call)
route(msg.Heartbeat,                                            to=beat)
drop(ALL,                LinkIs.STRANGER,                         why=NOBODY)
route(msg.Reset,                                                to=reset)
route(msg.Goodbye,       LinkIs.STALE,                            to=taken_back)
drop(ALL,                LinkIs.STALE,                            why=NOT_UP)
route(msg.Goodbye,                                              to=goodbye)
route(msg.Watermark,                                            to=mark)
drop((msg.Open, msg.Announce), SenderIs.RIVAL,                    why=RIVALRY)
answer((msg.Open, msg.Announce, msg.Abort), SenderIs.OUTSIDER, SenderIs.RIVAL,  to=taken, why="the room is another's")
drop(ALL,                SenderIs.OUTSIDER, SenderIs.RIVAL,       why=NO_PARTY)
route(msg.Open,                                                 to=opened)
route(msg.Announce,                                             to=announced)
route(msg.StagingRsp,                                           to=granted, then=granted_mark)
route(msg.StagingQueued,                                        to=queued, then=granted_mark)
route(msg.StagingRefused,                                       to=denied)
route(msg.PagesRsp,                                             to=pages)
route(msg.ChunkAck,                                             to=acked)
route(msg.AuxAck,                                               to=aux_acked)
route(msg.Abort,                                                to=abort)
route(msg.Noted,                                                to=noted)
route(msg.Gone,                                                 to=gone)
# fmt: on

decode_routes = Routes("decode", ALL, (LinkIs, SenderIs, ChunkIs))
route, answer, drop = decode_routes.route, decode_routes.answer, decode_routes.drop

# fmt: off
drop(tuple(each for each in ALL if each not in TO_DECODE),      why=WRONG_WAY)
route(msg.Welcome,       LinkIs.BESIDE,                           to=answered)
route(msg.Refusal,       LinkIs.BESIDE,                           to=unanswered)
drop(ALL,                LinkIs.BESIDE,                           why=ONLY_TRIED)
route(msg.Heartbeat,                                            to=beat)
drop(ALL,                LinkIs.STRANGER,                         why=NOBODY)
route(msg.Welcome,                                              to=welcome)
route(msg.Refusal,                                              to=refusal)
route(msg.Reset,                                                to=reset)
drop(ALL,                LinkIs.STALE,                            why=NOT_UP)
route(msg.Goodbye,                                              to=goodbye)
route(msg.WatermarkReq,                                         to=mark_asked)
answer(msg.Drained,      SenderIs.OUTSIDER,                       to=note, why="the room is another group's")
answer((*D_CHUNKS, msg.Aux), SenderIs.OUTSIDER,                   to=not_yours, why="the room is another group's")
drop(ALL,                SenderIs.OUTSIDER,                       why=NO_PARTY)
route(msg.StagingReq,    ChunkIs.GRANTED,                         to=region_asked)
route(msg.StagingReq,                                           to=first_asked)
route(msg.PagesReq,      ChunkIs.GRANTED,                         to=pages_asked)
route(msg.PagesReq,                                             to=first_pages_asked)
route(msg.StgNotify,     ChunkIs.GRANTED,                         to=part)
route(msg.StgNotify,                                            to=late_part)
route(msg.Opened,                                               to=ready)
route(msg.Aux,                                                  to=aux)
route(msg.Drained,                                              to=drained)
# fmt: on
