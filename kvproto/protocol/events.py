"""The events: facts that have happened, in the past tense.

An event names what it is about: the room (its key, see `room_key`), the chunk, the peer.  `peer` is the index
of a rank in the other side's group, except in link events, where it is the number of the link.  `machine` says
which table it is for; `TimerFired` is the one event that several tables see.

Engines, messages, transports, kernels and timers raise events; so do machines, through effects that the rank
itself carries out (a send that ends tells its room).  What a guard needs to know about the world beside the
machine (does the plan agree? is the region usable?) stands in the event as a fact, put there by the rank.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from kvproto.fsm import vocabulary
from kvproto.fsm.vocabulary import Event
from kvproto.layout.cut import NO_CUT, NO_PART, Cut, Part
from kvproto.protocol.kinds import (
    ChunkNumber,
    ChunkOrAux,
    LayerGroups,
    Mark,
    Rank,
    RankMask,
    RankOrNone,
    RoomKey,
    Tokens,
)
from kvproto.protocol.states import Cause

Machine = Literal["room", "send", "write", "grant", "link", ""]


def room_key(room: int, gen: int) -> int:
    """One number for (room id, gen): the gen above the 64 bits of the room id (gen 0: the id itself)."""
    return gen << 64 | room if gen else room


def room_of(key: int) -> tuple[int, int]:
    """The (room id, gen) of a room key."""
    return key & 0xFFFFFFFFFFFFFFFF, key >> 64


def room_name(key: int) -> str:
    """The room of this key, for a reader."""
    room, gen = room_of(key)
    return f"room {room} (gen {gen})" if gen else f"room {room}"


class Terms(msgspec.Struct, frozen=True, gc=False):
    """The agreement of two groups as one rank needs it; all rooms between them share one object.

    The masks have a bit for each rank of the other group.
    """

    group: int
    #: ranks that share at least one (head, layer) with this one
    everyone: RankMask
    #: prefill: ranks that this one writes tokens' KV to; decode: ranks that write it to this one
    writes: RankMask
    #: prefill: ranks that this one sends the aux row to; decode: the rank that sends it here
    aux: RankMask
    #: tokens a chunk
    chunk_tokens: Tokens
    #: prefill: chunks of a room that are asked for at a time
    window: int = 0
    #: groups of layers, each a chunk of its own, that each cell of the room is cut into; between groups: 1
    layer_groups: LayerGroups = 1
    #: chunks of a room's state, behind those of its tokens, in which this rank takes part: all or none
    state_groups: LayerGroups = 0
    #: as `writes`, of the state
    state_writes: RankMask = 0
    #: the room's last tokens, up to so many, are one chunk with its state, of a rank that takes part in either
    joint_tokens: Tokens = 0


#: the decode group's number, where there is one
DECODE_GROUP = 2


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The owner of a room: the decode group that the prefill engine opened it for, and its secret.

    Of a room that the engine has not opened yet: what a decode rank says of itself.  Group 0: the first decode group
    that shows the secret.
    """

    group: int = DECODE_GROUP
    secret: bytes = b""

    def admits(self, caller: Claim) -> bool:
        """Whether a room with this claim is the caller's, too."""
        return self.secret == caller.secret and self.group in (0, caller.group)


class PeerBuild(msgspec.Struct, frozen=True, gc=False):
    """The build at the other end of a link that was agreed on."""

    #: the wire version at which the two work together; 0: none was agreed on
    version: int = 0
    #: `part:hash` of each part of its tables and code
    digest: str = ""
    #: the names of what it can do, with blanks between them
    capabilities: str = ""


#: of a link that was not agreed on
NO_BUILD = PeerBuild()

#: of a room whose engines say nothing else
DEFAULT = Claim()
#: of a room that the prefill engine has refused before anybody had opened it: whoever asks is told so
ANYBODY = Claim(group=0)


class Target(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The destination and part of one send, derived once when it opens and shared by all its effects."""

    #: of the link to its decode rank, while the room is alive; 0: there is none
    link: int = 0
    epoch: int = 0
    #: of an aux row: no tokens, no bytes
    cut: Cut = NO_CUT
    part: Part = NO_PART


#: the `chunk` of a timer that is a room's or a link's
ROOM_CHUNK = -2


class TimerFired(vocabulary.TimerFired, frozen=True):
    """The timer of the machine's state ended; the protocol answers `tries` ends with another try.

    A room's and a link's have `ROOM_CHUNK` for a chunk, and a link's its number for a peer (a room's: 0).  `busy`, of
    a link: it is still needed.  On a prefill rank, a write to its peer is in flight; on a decode rank, where the link
    might be forgotten, a room of its group is not over.  `heard`, of a link: something came by it since its last beat.
    `longest`, of a link whose connection stands: how many beats its peer may miss (0: the connection is down).
    Of a send: `mark` is the watermark that its link has seen (round above 48 bits of tail), and `full` says that as
    many sends as may are writing page to page; `pages_extra_s`: seconds that pages would take longer than the ring.
    """

    room: RoomKey
    chunk: ChunkOrAux
    peer: int
    tries: int
    busy: bool = False
    heard: bool = False
    longest: int = 0
    mark: Mark = 0
    full: bool = False
    pages_extra_s: float = 0.0


# --------------------------------------------------------------------------------------------- rooms
class RoomEvent(Event, frozen=True):
    """About a room as a whole."""

    machine: ClassVar[Machine] = "room"
    room: RoomKey


class EngineOpened(RoomEvent, frozen=True):
    """The prefill engine opened the room: a prompt of `tokens`, for the claim's group and secret.

    `within`: seconds that it may wait for its decode ranks, or stand still; 0: as the timers say.
    """

    tokens: Tokens
    claim: Claim = DEFAULT
    #: the engine's trace of the request
    traceparent: bytes = b""
    within: float = 0.0
    #: runs of consecutive pages that its table makes (0: not counted, or pages are yet to come)
    runs: Tokens = 0


class RoomOpened(RoomEvent, frozen=True):
    """The decode engine allocated pages: `tokens` in all, the first `prefix` of them are there already."""

    terms: Terms
    tokens: Tokens
    prefix: Tokens
    #: what the prefill engine asks of whoever claims the room
    secret: bytes = b""
    #: the engine's trace of the request
    traceparent: bytes = b""
    #: runs of consecutive pages that those behind the prefix make (0: not counted)
    runs: Tokens = 0


class RoomAnnounced(RoomEvent, frozen=True):
    """The decode engine will open the room, of `tokens` tokens, when it has pages for it."""

    terms: Terms
    tokens: Tokens
    secret: bytes = b""
    traceparent: bytes = b""


class RoomRenewed(RoomEvent, frozen=True):
    """The decode engine still waits for pages."""


class ForwardScheduled(RoomEvent, frozen=True):
    """The prefill engine will soon compute the room: its sends open, and ask when their KV is there."""


class TokensProduced(RoomEvent, frozen=True):
    """The KV of the first `tokens` tokens is in the pages.

    That of the first `ahead` tokens is in this rank's first `layers` layers (in stream order).
    """

    tokens: Tokens
    ahead: Tokens = 0
    layers: int = 0


class TokensWithdrawn(RoomEvent, frozen=True):
    """The prefill engine takes back the KV beyond the first `tokens` tokens and computes it again."""

    tokens: Tokens


class AuxProvided(RoomEvent, frozen=True):
    """The prefill engine gave the aux row."""


class EngineAborted(RoomEvent, frozen=True):
    """This side's engine gave the room up."""

    cause: Cause


class EngineRefused(RoomEvent, frozen=True):
    """The prefill engine said no to the room, whether or not it, or anybody, had opened it."""

    cause: Cause


class RoomFailed(RoomEvent, frozen=True):
    """An operation of the room failed here; `peer`: it was for this rank of the other side (-1: none)."""

    cause: Cause
    peer: RankOrNone = -1


class PeerOpened(RoomEvent, frozen=True):
    """A decode rank opened the room."""

    peer: Rank
    terms: Terms
    tokens: Tokens
    prefix: Tokens
    claim: Claim = DEFAULT
    traceparent: bytes = b""
    runs: Tokens = 0
    again: bool = False


class PeerAnnounced(RoomEvent, frozen=True):
    """A decode rank will open the room, of so many tokens, when it has pages for it."""

    peer: Rank
    terms: Terms
    tokens: Tokens
    claim: Claim = DEFAULT


class PeerReady(RoomEvent, frozen=True):
    """A prefill rank knows the room."""

    peer: Rank


class AbortAsked(RoomEvent, frozen=True):
    """A decode rank wants no more writes."""

    peer: Rank
    terms: Terms
    cause: Cause
    claim: Claim = DEFAULT


class PeerDrained(RoomEvent, frozen=True):
    """A prefill rank has nothing in flight and will post nothing more."""

    peer: Rank
    cause: Cause


class PeerNoted(RoomEvent, frozen=True):
    """A decode rank knows that this one has drained."""

    peer: Rank


class PeerForgot(RoomEvent, frozen=True):
    """A decode rank does not know the room; `unsent`: a part for it was not written yet."""

    peer: Rank
    unsent: bool


class PeerQuiet(RoomEvent, frozen=True):
    """A write of this prefill rank's lost link can no longer land."""

    peer: Rank


class LinkCameUp(RoomEvent, frozen=True):
    """The link to a peer of the room is up."""

    peer: Rank


class LinkWentDown(RoomEvent, frozen=True):
    """A link of the room is lost or refused; `replaced`: a later incarnation of the peer takes it over."""

    peer: Rank
    cause: Cause
    replaced: bool = False


class SendFinished(RoomEvent, frozen=True):
    """A send of the room ended, confirmed or stopped."""

    chunk: ChunkOrAux
    peer: Rank


class SendsStopped(RoomEvent, frozen=True):
    """Every send of the room has been told to stop."""


class ChunkRequested(RoomEvent, frozen=True):
    """A writer asked for a chunk that has no grant: for a region, or (`pages`) for its pages.

    `link`, `epoch`: by which the request came; `cut`: the chunk, if the room has it.
    """

    chunk: ChunkNumber
    peer: Rank
    pages: bool
    asked: float = 0.0
    link: int = 0
    epoch: int = 0
    cut: Cut = NO_CUT


class ChunkNotified(RoomEvent, frozen=True):
    """A writer says that its part is in place; the chunk has no grant."""

    chunk: ChunkNumber
    peer: Rank


class ChunkLanded(RoomEvent, frozen=True):
    """The chunk is in its pages."""

    chunk: ChunkNumber


class GrantClosed(RoomEvent, frozen=True):
    """A grant ended without its chunk being placed."""

    chunk: ChunkNumber


class GrantsStopped(RoomEvent, frozen=True):
    """Every grant of the room has been told that it has failed.

    `in_doubt`: the prefill ranks (mask) that might have been writing: told where to, their part not in place.
    """

    in_doubt: RankMask


class AuxLanded(RoomEvent, frozen=True):
    """The aux row arrived."""

    peer: Rank
    data: bytes
    traceparent: bytes = b""


# --------------------------------------------------------------------------------------------- sends
class SendEvent(Event, frozen=True):
    """About one send of a prefill rank."""

    machine: ClassVar[Machine] = "send"
    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class SendOpened(SendEvent, frozen=True):
    """The room wants this chunk sent; `ready`: its KV (or the aux row) is there already.

    `native_notify`: a staged write of this rank's transport carries its own notification.  `staged_cost` and
    `pages_cost`: what the room would take by each route, in seconds (`kvproto.layout.costs`); `aux`: it is the aux row,
    by neither; `closed`: it cannot go page to page.
    """

    to: Target
    ready: bool
    native_notify: bool = False
    aux: bool = False
    staged_cost: float = 0.0
    pages_cost: float = 0.0
    closed: bool = False


class StagingGranted(SendEvent, frozen=True):
    """The decode rank gave a region; `usable`: the watermark has passed it; the lease is in seconds.

    `asked`: when this rank asked for it, as the answer repeats; `queued`: it comes of the queue, and answers nothing.
    """

    grant: int
    offset: int
    round: int
    end: int
    usable: bool
    lease: float
    asked: float = 0.0
    queued: bool = False


class StagingDeferred(SendEvent, frozen=True):
    """The decode rank has queued the request; `early`: it waits for the chunk's other writers."""

    early: bool = False


class StagingDenied(SendEvent, frozen=True):
    """The decode rank does not stage this chunk."""


class PagesGranted(SendEvent, frozen=True):
    """The decode rank named the pages (u32 little-endian each); `asked`: when this rank asked for them."""

    pages: bytes
    lease: float
    asked: float = 0.0


class WatermarkReached(SendEvent, frozen=True):
    """The watermark has passed this send's region."""


class KvProduced(SendEvent, frozen=True):
    """The chunk's KV is in the pages (in stream order)."""


class KvWithdrawn(SendEvent, frozen=True):
    """The engine takes the chunk's KV back; what is being read may be read to its end."""


class AuxReady(SendEvent, frozen=True):
    """The aux row is there."""


class CreditTaken(SendEvent, frozen=True):
    """This send may ask its decode rank."""


class PermitTaken(SendEvent, frozen=True):
    """This send may write page to page."""


class SlotTaken(SendEvent, frozen=True):
    """A local staging slot is this send's."""

    slot: int


class Gathered(SendEvent, frozen=True):
    """The kernel is done."""


class GatherFailed(SendEvent, frozen=True):
    """The kernel failed."""


class WriteCompleted(SendEvent, frozen=True):
    """Every byte is visible at the peer."""


class WriteFailed(SendEvent, frozen=True):
    """The write failed; `settled`: no byte of it can land any more."""

    settled: bool


class WriteLapsed(SendEvent, frozen=True):
    """The lease was over before anything of the write was posted."""


class ChunkAcked(SendEvent, frozen=True):
    """The decode rank knows that the part (or the aux row) is in place."""


class SendStopped(SendEvent, frozen=True):
    """The room has ended: post nothing more."""


# -------------------------------------------------------------------------------------------- writes
class WriteEvent(Event, frozen=True):
    """About the writes of one send; a *batch* is what the transport takes in one call."""

    machine: ClassVar[Machine] = "write"
    room: RoomKey
    chunk: ChunkOrAux
    peer: Rank


class WriteBegun(WriteEvent, frozen=True):
    """The send begins its write into the region at `offset`; the lease holds `until` then by this clock."""

    to: Target
    slot: int
    offset: int
    grant: int
    until: float


class PagesBegun(WriteEvent, frozen=True):
    """The send wants its part in these pages (u32 little-endian each), while the lease holds."""

    to: Target
    pages: bytes
    until: float


class BatchReady(WriteEvent, frozen=True):
    """A batch can be posted; `last`: with it all is."""

    last: bool


class BatchUnmade(WriteEvent, frozen=True):
    """No batch of the write could be made ready."""


class BatchDeferred(WriteEvent, frozen=True):
    """The transport has no room for the batch just now; it will be ready again."""


class BatchRefused(WriteEvent, frozen=True):
    """The transport did not take the batch: nothing of it was posted."""


class BatchCompleted(WriteEvent, frozen=True):
    """Every byte of a batch is visible at the peer."""


class BatchFailed(WriteEvent, frozen=True):
    """A batch failed; `settled`: no byte of it can land any more."""

    settled: bool


class BatchSettled(WriteEvent, frozen=True):
    """No byte of a batch that failed before can land any more."""


class WriteStopped(WriteEvent, frozen=True):
    """The send has been stopped: post nothing more."""


# -------------------------------------------------------------------------------------------- grants
class GrantEvent(Event, frozen=True):
    """About one chunk of a decode rank."""

    machine: ClassVar[Machine] = "grant"
    room: RoomKey
    chunk: ChunkNumber


class StagingRequested(GrantEvent, frozen=True):
    """A writer requested the region; `writers`: all that contribute; `asked`: when, by its clock.

    `cut`: the chunk, where the request opens the grant.
    """

    peer: Rank
    writers: RankMask
    asked: float = 0.0
    cut: Cut = NO_CUT


class PagesRequested(GrantEvent, frozen=True):
    """A writer will not stage its part; `asked`: when it said so, by its clock.

    `link`, `epoch`: by which it did; `cut`: as of `StagingRequested`.
    """

    peer: Rank
    writers: RankMask
    asked: float = 0.0
    link: int = 0
    epoch: int = 0
    cut: Cut = NO_CUT


class SpaceReserved(GrantEvent, frozen=True):
    """The ring gave a region."""

    grant: int
    offset: int
    round: int
    end: int


class SpaceDenied(GrantEvent, frozen=True):
    """The chunk is larger than the ring."""


class SpaceQueued(GrantEvent, frozen=True):
    """The ring has promised all that it may; the chunk queues for it."""


class SpaceUsable(GrantEvent, frozen=True):
    """The watermark has passed the region."""


class PartArrived(GrantEvent, frozen=True):
    """A writer's part is in place."""

    peer: Rank
    grant: int


class Scattered(GrantEvent, frozen=True):
    """The kernel is done: the chunk is in its pages."""


class ScatterFailed(GrantEvent, frozen=True):
    """The kernel failed."""


class RoomStopped(GrantEvent, frozen=True):
    """The room has failed."""


class RoomDrained(GrantEvent, frozen=True):
    """Nobody writes for the room any more."""


# --------------------------------------------------------------------------------------------- links
class LinkEvent(Event, frozen=True):
    """About one link; `peer` is its number."""

    machine: ClassVar[Machine] = "link"
    peer: int


class HelloReceived(LinkEvent, frozen=True):
    """A decode rank called.  `fault`: why the two cannot work together; `quiet`: no write is in flight.

    `place`: where the call came from, in the control plane; `life`: the incarnation that calls; `build`: its build.
    """

    session: int
    epoch: int
    fault: str
    quiet: bool
    place: bytes
    life: int = 0
    build: PeerBuild = NO_BUILD


class WiredUp(LinkEvent, frozen=True):
    """The transport has connected for this session; `wire` is its name of the peer."""

    session: int
    wire: str


class WireFailed(LinkEvent, frozen=True):
    """The transport could not connect for this session."""

    session: int
    why: str


class CallAsked(LinkEvent, frozen=True):
    """The decode engine wants the link to the rank at this address; `anew`: on other terms than now."""

    session: int
    address: str
    anew: bool = False


class DisconnectAsked(LinkEvent, frozen=True):
    """The decode engine has let go of the prefill group: no new room will be opened at it."""


class CloseAsked(LinkEvent, frozen=True):
    """The engine closes this rank; `quiet`: no write of this rank to the link's other end is in flight."""

    #: the link's, which ends
    epoch: int
    quiet: bool
    #: the link's latest call
    session: int = 0


class DialFailed(LinkEvent, frozen=True):
    """The control plane cannot connect to the link's address."""

    why: str


class OpenAsked(LinkEvent, frozen=True):
    """A room wants to be opened at the link's other end, the prefill rank `rank`."""

    room: RoomKey
    rank: Rank


class QuietAsked(LinkEvent, frozen=True):
    """A failed room asks whether the prefill rank `rank` at the link's other end may still write for it.

    `in_doubt`: it was told where to write, and its part was not in place when the room failed.
    """

    room: RoomKey
    rank: Rank
    in_doubt: bool = True


class WelcomeReceived(LinkEvent, frozen=True):
    """The prefill rank answered the call of this session; `build`: with which build it did."""

    session: int
    epoch: int
    fault: str
    build: PeerBuild = NO_BUILD


class RefusalReceived(LinkEvent, frozen=True):
    """The prefill rank refused the call of this session."""

    session: int
    why: str


class AddressAnswered(LinkEvent, frozen=True):
    """The call of this session was answered, or refused (`fault`), at the address tried beside the link.

    `later`: by a later incarnation than the link's own; `lives`: of that something came since the last beat, or its
    connection stands.
    """

    session: int
    fault: str = ""
    later: bool = False
    lives: bool = False


class ResetReceived(LinkEvent, frozen=True):
    """The peer does not know this epoch."""

    epoch: int


class HeartbeatReceived(LinkEvent, frozen=True):
    """The peer is there; from a place that no link is bound to, `peer` is 0."""

    epoch: int
    place: bytes


class GoodbyeReceived(LinkEvent, frozen=True):
    """The peer closes the link in good order; `quiet`: nothing that it has written can land any more."""

    #: the link's, which ends
    epoch: int
    quiet: bool


class CallTakenBack(LinkEvent, frozen=True):
    """The decode rank that has called was closed before it was answered."""

    #: of the call
    session: int


class TransportLost(LinkEvent, frozen=True):
    """The transport gave the peer up."""


class QueueOverflowed(LinkEvent, frozen=True):
    """More messages wait for the peer than may: it is as good as gone."""


class WatermarkSeen(LinkEvent, frozen=True):
    """The decode rank told its watermark; `nonce`: of the question that it answers (0: none)."""

    round: int
    tail: int
    nonce: int = 0


class WatermarkAsked(LinkEvent, frozen=True):
    """A prefill rank wants to know the watermark, or whether this incarnation lives (`nonce`)."""

    nonce: int = 0
