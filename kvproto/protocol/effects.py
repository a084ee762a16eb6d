"""The effects: what is to be done, in the imperative.

Two kinds.  An *internal* effect is carried out by the rank itself, in the same pass and without any I/O: it
takes a slot, frees a region, tells another machine of the same rank.  All others leave the rank and are carried
out by the loop's handlers; only those know sockets, transports, devices and clocks.  Every effect can be
printed, compared and replayed.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import Effect, Internal, Report
from kvproto.layout.cut import Cut
from kvproto.protocol.events import Target
from kvproto.protocol.kinds import ChunkNumber, ChunkOrAux, Rank, RankMask, RankOrNone, RoomKey
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause


# ------------------------------------------------------------------------------------------ messages
class Send(Internal, frozen=True):
    """Say this to these peers (a mask) of the room's other group."""

    room: RoomKey
    peers: RankMask
    body: Message


class Reply(Internal, frozen=True):
    """Say this to whoever sent the message that is being handled."""

    room: RoomKey
    body: Message


class SendWatermark(Internal, frozen=True):
    """Tell the ring's watermark to these peers (a mask) of the room."""

    room: RoomKey
    peers: RankMask


class ReplyWatermark(Internal, frozen=True):
    """Tell the ring's watermark to whoever asked, with the nonce of the question."""

    nonce: int = 0


class SendGrant(Internal, frozen=True):
    """Send these peers the chunk's region and the watermark; `asked`, `queued`: as in the message."""

    room: RoomKey
    peers: RankMask
    chunk: ChunkNumber
    grant: int
    offset: int
    round: int
    end: int
    asked: float = 0.0
    queued: bool = False


class SendQueued(Internal, frozen=True):
    """Send these peers the watermark: the chunk queues for the ring, or waits for its other writers."""

    room: RoomKey
    peers: RankMask
    chunk: ChunkNumber
    early: bool = False


class Transmit(Effect, frozen=True):
    """Put this message on this link."""

    link: int
    epoch: int
    room: RoomKey
    body: Message


class TransmitPages(Effect, frozen=True):
    """Put the pages of the chunk on this link (the handler knows them)."""

    link: int
    epoch: int
    room: RoomKey
    chunk: ChunkNumber
    cut: Cut
    asked: float = 0.0


class TransmitAux(Effect, frozen=True):
    """Send the room's aux row and trace (the handler has them), alone or in the note of its last part."""

    link: int
    epoch: int
    room: RoomKey


# ------------------------------------------------------------------------------------------- engines
class AnnounceOutcome(Effect, frozen=True):
    """Tell the engine how the room ended: `Cause.NONE` is success.

    `peer`: the rank of the other side that it was about (-1: none); `told`: that rank said so, the cause is its own.
    """

    room: RoomKey
    cause: Cause
    peer: RankOrNone = -1
    told: bool = False


class AnnounceReleased(Effect, frozen=True):
    """Tell the engine that the room's pages may be used for something else."""

    room: RoomKey


class DeliverAux(Effect, frozen=True):
    """Hand the aux row to the engine."""

    room: RoomKey
    data: bytes


#: what becomes of a link: its peer was closed in good order; it ended otherwise; its peer misses beats, and lives
CLOSED, LOST, SILENT = "closed", "lost", "silent"


class AnnounceLink(Effect, frozen=True):
    """Tell the engine that a link is up (`why` empty), `CLOSED`, `LOST`, `SILENT` or refused."""

    link: int
    why: str


# -------------------------------------------------------------------------------- kernels, transports
class LaunchGather(Effect, frozen=True):
    """Gather the send's part of the chunk into the slot; answered by Gathered or GatherFailed.

    `offset` and `grant` say where the write will go, so that it can be prepared meanwhile.
    """

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank
    to: Target
    slot: int
    offset: int
    grant: int


class PostWrite(Effect, frozen=True):
    """Write the slot into the region at `offset` of the peer's ring (its own part of it).

    Answered by its end, or by BatchDeferred or BatchRefused.  Where the transport can, the write carries STG_NOTIFY of
    `grant`.
    """

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank
    to: Target
    slot: int
    offset: int
    grant: int


class PreparePages(Effect, frozen=True):
    """Prepare the writes of the send's part into the peer's pages; answered by BatchReady or BatchUnmade."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank
    to: Target
    pages: bytes


class PostBatch(Effect, frozen=True):
    """Post the batch that is ready; answered by its end, or by BatchDeferred or BatchRefused."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class DropBatches(Effect, frozen=True):
    """Give up the batches of the write that are not posted yet."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class LaunchScatter(Effect, frozen=True):
    """Scatter these writers' (a mask) parts from the region, `offset` to `end`, into the room's pages.

    Answered by Scattered or ScatterFailed.
    """

    room: RoomKey
    chunk: ChunkNumber
    writers: RankMask
    offset: int
    end: int
    cut: Cut


class Connect(Effect, frozen=True):
    """Connect the transport to the rank that called with this session; answered by WiredUp or WireFailed.

    The rank knows which one that is, and what it said of itself (`LinkPeer`).
    """

    link: int
    session: int


class AdoptWire(Effect, frozen=True):
    """Route the link's writes through this connection; take a former one down when it is idle."""

    link: int
    wire: str


class DropWire(Effect, frozen=True):
    """Take this connection of the transport down when it is idle, unless a link has it already."""

    wire: str


class Disconnect(Effect, frozen=True):
    """Take the link's connection of the transport down, once nothing is in flight on it."""

    link: int


class Dial(Effect, frozen=True):
    """Have the link's messages go to this address; answered by DialFailed if they cannot."""

    link: int
    address: str


class TryAddress(Effect, frozen=True):
    """Call at this address with the link's session, by a connection beside the link's own."""

    link: int
    address: str
    session: int


class TakeAddress(Effect, frozen=True):
    """The connection beside the link's own, which leads to this address, becomes the link's."""

    link: int
    address: str


class LeaveAddress(Effect, frozen=True):
    """Nothing is said by the connection beside the link's own any more; log why."""

    link: int
    why: str


class BindLink(Effect, frozen=True):
    """The link's messages go to where its call came from."""

    link: int
    place: bytes


class ForgetLink(Effect, frozen=True):
    """Nothing is said to the link's other end any more: its connection can go."""

    link: int


class SayReset(Effect, frozen=True):
    """Tell who is at this place that the epoch is not one of this rank's."""

    place: bytes
    epoch: int


class RefuseCall(Effect, frozen=True):
    """Refuse the call that came from this place; no link is bound to it."""

    place: bytes
    session: int
    why: str


class RefuseRival(Internal, frozen=True):
    """Refuse the call of another incarnation of this link's rank, while the first one lives."""

    link: int
    place: bytes
    session: int


# ------------------------------------------------------------------------------------- link messages
class SayHello(Effect, frozen=True):
    """Call the prefill rank."""

    link: int
    session: int


class SayWelcome(Effect, frozen=True):
    """Agree to the call."""

    link: int
    session: int
    epoch: int


class SayRefusal(Effect, frozen=True):
    """Refuse the call."""

    link: int
    session: int
    why: str


# ------------------------------------------------------------------------------- internal, prefill side
class OpenWindow(Internal, frozen=True):
    """Open the sends of the chunks `first` .. `last - 1` (and those of the aux row)."""

    room: RoomKey
    first: int
    last: int
    aux: bool


class OfferKv(Internal, frozen=True):
    """Tell the room's sends how far the KV is computed."""

    room: RoomKey


class WithdrawKv(Internal, frozen=True):
    """Tell the room's sends whose KV is not computed any more."""

    room: RoomKey


class OfferAux(Internal, frozen=True):
    """Tell the room's aux sends that the row is there."""

    room: RoomKey


class ConfirmTold(Internal, frozen=True):
    """Confirm the parts for this peer whose staged write has failed, and may have told of its part."""

    room: RoomKey
    peer: Rank


class StopSends(Internal, frozen=True):
    """Tell every send of the room to stop."""

    room: RoomKey


class TakeSlot(Internal, frozen=True):
    """Take a local staging slot, or queue for one."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class TakeCredit(Internal, frozen=True):
    """Be let ask the decode rank, or queue for it."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class FreeCredit(Internal, frozen=True):
    """This send's request is answered, or nobody waits for the answer any more."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class TakePermit(Internal, frozen=True):
    """Be let write page to page, or queue for it."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class FreePermit(Internal, frozen=True):
    """This send writes page to page no more, if it did: the oldest in the queue may."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class LeaveQueue(Internal, frozen=True):
    """Do not queue for a slot, or to be let ask or write, any more."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class FreeSlot(Internal, frozen=True):
    """Give back the slot that this send holds, if any: the queue serves rooms in turn."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class WatchWatermark(Internal, frozen=True):
    """Tell this send when the watermark passes its region."""

    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank
    round: int
    end: int


class ReleaseWaiting(Internal, frozen=True):
    """Tell the sends of this link whose region the watermark has passed."""

    link: int


class AskWatermark(Internal, frozen=True):
    """Ask the room's peer for its watermark."""

    room: RoomKey
    peer: Rank


# ------------------------------------------------------------------------------- internal, decode side


class StopGrants(Internal, frozen=True):
    """Tell every grant of the room that the room has failed, and the room who might have been writing."""

    room: RoomKey


class DrainGrants(Internal, frozen=True):
    """Tell every grant of the room that nobody writes for it any more."""

    room: RoomKey


class AskLinks(Internal, frozen=True):
    """Ask these peers' links (mask) whether the room can be opened, or (`quiet`) they still write.

    `in_doubt`: those of them (mask) that might have been writing when the room failed.
    """

    room: RoomKey
    peers: RankMask
    quiet: bool
    in_doubt: RankMask = 0


class ReserveSpace(Internal, frozen=True):
    """Take a region of the ring for the chunk, or queue for one."""

    room: RoomKey
    chunk: ChunkNumber
    cut: Cut


class CancelSpace(Internal, frozen=True):
    """Do not queue for a region any more."""

    room: RoomKey
    chunk: ChunkNumber


class FreeSpace(Internal, frozen=True):
    """The region is free."""

    grant: int


# ------------------------------------------------------------------------------------- internal, links
class RaiseLinkUp(Internal, frozen=True):
    """Tell the rooms of this link that it is up."""

    link: int


class RaiseLinkDown(Internal, frozen=True):
    """Raise a lost link in its rooms; `replaced`: another incarnation of its peer takes it over."""

    link: int
    cause: Cause
    replaced: bool = False


class RaisePeerQuiet(Internal, frozen=True):
    """Tell the rooms of this link that nothing of its former self can land."""

    link: int


# ------------------------------------------------------------------------------ what leaves which rank
_BOTH: frozenset[type[Effect]] = frozenset({
    Transmit, AnnounceOutcome, AnnounceReleased, AnnounceLink, ForgetLink, SayReset, Report,
})  # fmt: skip
#: the effects that leave a prefill rank, and those that leave a decode rank: each has one handler there
PREFILL: frozenset[type[Effect]] = _BOTH | {
    TransmitAux, LaunchGather, PostWrite, PreparePages, PostBatch, DropBatches, BindLink, Connect, AdoptWire,
    DropWire, Disconnect, RefuseCall, SayWelcome, SayRefusal,
}  # fmt: skip
DECODE: frozenset[type[Effect]] = _BOTH | {
    TransmitPages, DeliverAux, LaunchScatter, Dial, SayHello, TryAddress, TakeAddress, LeaveAddress,
}  # fmt: skip
