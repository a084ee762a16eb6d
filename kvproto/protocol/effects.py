"""The effects: what is to be done, in the imperative.

Two kinds.  An *internal* effect is carried out by the rank itself, in the same pass and without any I/O: it
takes a slot, frees a region, tells another machine of the same rank.  All others leave the rank and are carried
out by the loop's handlers; only those know sockets, transports, devices and clocks.  Every effect can be
printed, compared and replayed.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import Effect, Internal
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause


# ------------------------------------------------------------------------------------------ messages
class Send(Internal, frozen=True):
    """Say this to these peers (a mask) of the room's other group."""

    room: int
    peers: int
    body: Message


class Reply(Internal, frozen=True):
    """Say this to whoever sent the message that is being handled."""

    room: int
    body: Message


class SendWatermark(Internal, frozen=True):
    """Tell the ring's watermark to these peers (a mask) of the room."""

    room: int
    peers: int


class ReplyWatermark(Internal, frozen=True):
    """Tell the ring's watermark to whoever asked."""


class SendGrant(Internal, frozen=True):
    """Tell these peers where the chunk's region is, and the watermark."""

    room: int
    peers: int
    chunk: int
    grant: int
    offset: int
    round: int
    end: int


class Transmit(Effect, frozen=True):
    """Put this message on this link."""

    link: int
    epoch: int
    room: int
    body: Message


class SendPages(Internal, frozen=True):
    """Tell this peer the chunk's pages."""

    room: int
    peer: int
    chunk: int


class SendAux(Internal, frozen=True):
    """Send this peer the room's aux row."""

    room: int
    peer: int


class TransmitPages(Effect, frozen=True):
    """Put the chunk's pages on this link (the handler knows them)."""

    link: int
    epoch: int
    room: int
    chunk: int


class TransmitAux(Effect, frozen=True):
    """Put the room's aux row on this link (the handler has it)."""

    link: int
    epoch: int
    room: int


# ------------------------------------------------------------------------------------------- engines
class AnnounceOutcome(Effect, frozen=True):
    """Tell the engine how the room ended: `Cause.NONE` is success."""

    room: int
    cause: Cause


class AnnounceReleased(Effect, frozen=True):
    """Tell the engine that the room's pages may be used for something else."""

    room: int


class DeliverAux(Effect, frozen=True):
    """Hand the aux row to the engine."""

    room: int
    data: bytes


class AnnounceLink(Effect, frozen=True):
    """Tell the engine that a link is up (`why` empty), lost or refused."""

    link: int
    why: str


# -------------------------------------------------------------------------------- kernels, transports
class LaunchGather(Effect, frozen=True):
    """Gather the chunk's head slices for this peer into the slot."""

    room: int
    chunk: int
    peer: int
    slot: int


class PostWrite(Effect, frozen=True):
    """Write the slot into the region at `offset` of the peer's ring (its own part of it)."""

    room: int
    chunk: int
    peer: int
    slot: int
    offset: int


class PostPages(Effect, frozen=True):
    """Write the chunk's head slices page by page into the peer's pages."""

    room: int
    chunk: int
    peer: int
    pages: bytes


class LaunchScatter(Effect, frozen=True):
    """Scatter the parts of these writers (a mask) from the region at `offset` into the room's pages."""

    room: int
    chunk: int
    writers: int
    offset: int


class Connect(Effect, frozen=True):
    """Connect the transport to this peer's latest endpoint; answered by WiredUp or WireFailed."""

    link: int
    session: int


class Disconnect(Effect, frozen=True):
    """Take the transport's connection down (once nothing is in flight on it)."""

    link: int


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

    room: int
    first: int
    last: int
    aux: bool


class OfferKv(Internal, frozen=True):
    """Tell the room's sends how far the KV is computed."""

    room: int


class OfferAux(Internal, frozen=True):
    """Tell the room's aux sends that the row is there."""

    room: int


class StopSends(Internal, frozen=True):
    """Tell every send of the room to stop."""

    room: int


class FinishSend(Internal, frozen=True):
    """Tell the room that this send has ended."""

    room: int
    chunk: int
    peer: int


class FailRoom(Internal, frozen=True):
    """Tell the room that something went wrong."""

    room: int
    cause: Cause


class TakeSlot(Internal, frozen=True):
    """Take a local staging slot, or queue for one."""

    room: int
    chunk: int
    peer: int


class LeaveQueue(Internal, frozen=True):
    """Do not queue for a slot any more."""

    room: int
    chunk: int
    peer: int


class FreeSlot(Internal, frozen=True):
    """Give back the slot that this send holds, if any: the oldest in the queue gets it."""

    room: int
    chunk: int
    peer: int


class WatchWatermark(Internal, frozen=True):
    """Tell this send when the watermark passes its region."""

    room: int
    chunk: int
    peer: int
    round: int
    end: int


class ReleaseWaiting(Internal, frozen=True):
    """Tell the sends of this link whose region the watermark has passed."""

    link: int


class AskWatermark(Internal, frozen=True):
    """Ask the room's peer for its watermark."""

    room: int
    peer: int


# ------------------------------------------------------------------------------- internal, decode side
class OpenGrant(Internal, frozen=True):
    """Begin the chunk for which this writer asked."""

    room: int
    chunk: int
    peer: int
    pages: bool


class StopGrants(Internal, frozen=True):
    """Tell every grant of the room that the room has failed."""

    room: int


class DrainGrants(Internal, frozen=True):
    """Tell every grant of the room that nobody writes for it any more."""

    room: int


class CheckLinks(Internal, frozen=True):
    """Count the room's peers whose link is neither up nor in doubt as quiet."""

    room: int


class CountQuiet(Internal, frozen=True):
    """Count this peer of the room as quiet."""

    room: int
    peer: int


class ReserveSpace(Internal, frozen=True):
    """Take a region of the ring for the chunk, or queue for one."""

    room: int
    chunk: int


class CancelSpace(Internal, frozen=True):
    """Do not queue for a region any more."""

    room: int
    chunk: int


class FreeSpace(Internal, frozen=True):
    """The region is free."""

    grant: int


class LandChunk(Internal, frozen=True):
    """Tell the room that the chunk is in its pages."""

    room: int
    chunk: int


class CloseGrant(Internal, frozen=True):
    """Tell the room that the grant has ended without its chunk."""

    room: int
    chunk: int


# ------------------------------------------------------------------------------------- internal, links
class RaiseLinkUp(Internal, frozen=True):
    """Tell the rooms of this link that it is up."""

    link: int


class RaiseLinkDown(Internal, frozen=True):
    """Tell the rooms of this link that it is down."""

    link: int
    cause: Cause


class RaisePeerQuiet(Internal, frozen=True):
    """Tell the rooms of this link that nothing of its former self can land."""

    link: int
