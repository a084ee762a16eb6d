"""What SGLang's ranks do: inside of a rank, and what properties see of it."""

from __future__ import annotations

from examples.others.sglang_staging.words import Key
from kvproto.fsm.codec import Body
from kvproto.fsm.vocabulary import Effect, Internal


# ------------------------------------------------------------------------------- effects inside of a rank
class Ask(Internal, frozen=True):
    """STAGING_REQ for every chunk to these decode ranks."""

    room: int
    life: int
    peers: tuple[int, ...]


class Queue(Internal, frozen=True):
    """Queue every chunk."""

    room: int
    life: int
    chunks: int


class Retry(Internal, frozen=True):
    """A worker goes through the room's chunks."""

    room: int


class Sweep(Internal, frozen=True):
    """A worker takes what it had put back of the room, which has failed."""

    room: int


class RetryOne(Internal, frozen=True):
    """A worker takes this chunk once more."""

    key: Key


class Post(Internal, frozen=True):
    """Gather, write, and say CHUNK_READY, to these."""

    key: Key
    peers: tuple[int, ...]


class Ban(Internal, frozen=True):
    """`failed_sessions.add`."""

    key: Key


class Acknowledge(Internal, frozen=True):
    """ABORT_ACK to these."""

    room: int
    life: int
    peers: tuple[int, ...]


class Tell(Internal, frozen=True):
    """The same to several."""

    peers: tuple[int, ...]
    body: Body


class Assign(Internal, frozen=True):
    """A region, and STAGING_RSP to every prefill rank of the room."""

    key: tuple[int, int]


class Answer(Internal, frozen=True):
    """STAGING_RSP again."""

    key: tuple[int, int]
    oversized: bool


class Free(Internal, frozen=True):
    """Give the region back, and WATERMARK to whoever has ever asked."""

    key: tuple[int, int]


class Check(Internal, frozen=True):
    """Ask `is_done`."""

    room: int


class Unregister(Internal, frozen=True):
    """Forget the room's chunks, with their regions."""

    room: int


# ------------------------------------------------------------------------------- effects that properties see
class Reported(Effect, frozen=True):
    """What the scheduler of either side is told of the room."""

    room: int
    life: int
    word: str


class Posted(Effect, frozen=True):
    """A write was done."""

    key: Key
    peer: int


class RegionHeld(Effect, frozen=True):
    """A chunk has this region from now on (`offset` < 0: none any more)."""

    key: Key
    offset: int
    end: int


class Landed(Effect, frozen=True):
    """Bytes are in the ring: whose, and where; the `nth` write of this prefill rank to this decode rank."""

    key: Key
    peer: int
    offset: int
    end: int
    nth: int


class AckHeard(Effect, frozen=True):
    """The prefill rank has stopped after so many writes."""

    peer: int
    posted: int


class ScatterLaunched(Effect, frozen=True):
    """The kernel reads the region."""

    key: Key


class PagesWritten(Effect, frozen=True):
    """The chunk is in the pages."""

    key: Key
