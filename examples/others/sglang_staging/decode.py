"""A decode rank of SGLang 0.5.23 as tables: a room, a chunk of it, the thread that listens; and its ring.

The ring's rule is data (`assign`, `free`): a region of round r may be written when all of round r - 1 below its end is
free, so that a grant is given at once, and waits at the writer.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from examples.others.sglang_staging.effects import (
    Answer,
    Assign,
    Check,
    Free,
    PagesWritten,
    Reported,
    ScatterLaunched,
    Tell,
    Unregister,
)
from examples.others.sglang_staging.events import (
    Aborted,
    AckReceived,
    Checked,
    ChunkArrived,
    ChunkForgotten,
    DecodeTimer,
    KvStatusReceived,
    Opened,
    ReqReceived,
    ScatterFinished,
    ThreadRaised,
    Unregistered,
)
from examples.others.sglang_staging.prefill import Mends
from examples.others.sglang_staging.words import (
    Abort,
    D,
    G,
    T,
    TransferInfo,
)
from kvproto.fsm.table import Output, Table, Value


# ---------------------------------------------------------------------------------------------- the ring
class Region(msgspec.Struct, frozen=True, order=True):
    """A part of the ring."""

    offset: int
    end: int
    round: int


class Ring(msgspec.Struct, frozen=True):
    """Regions in the order in which they were given; those that are free again stay until the oldest is."""

    total: int
    head: int = 0
    round: int = 0
    given: tuple[tuple[tuple[int, int], Region, bool], ...] = ()
    watermark: tuple[int, int] = (0, 0)

    def region(self, key: tuple[int, int]) -> Region | None:
        """The region of this chunk."""
        return next((region for owner, region, held in self.given if owner == key and held), None)

    def assign(self, key: tuple[int, int], size: int) -> Ring:
        """The ring with a region for this chunk; it waits for nothing."""
        wraps = size > self.total - self.head
        round_, offset = (self.round + 1, 0) if wraps else (self.round, self.head)
        region = Region(offset, offset + size, round_)
        return replace(self, head=region.end, round=round_, given=(*self.given, (key, region, True)))

    def free(self, key: tuple[int, int]) -> Ring:
        """The ring without this chunk's region, and its new watermark."""
        given = [(owner, region, held and owner != key) for owner, region, held in self.given]
        while given and not given[0][2]:
            del given[0]
        if not given:
            return replace(self, head=0, round=self.round + 1, given=(), watermark=(self.round + 1, 0))
        return replace(self, given=tuple(given), watermark=(given[0][1].round, given[0][1].offset))


def may_be_written(region: Region, watermark: tuple[int, int]) -> bool:
    """Everything that was there before is free, as far as this watermark knows."""
    before, (round_, tail) = region.round - 1, watermark
    return region.round <= 0 or before < round_ or (before == round_ and region.end <= tail)


# ---------------------------------------------------------------------------------------------- rooms
class Room(Value, frozen=True, gc=False):
    """What a decode rank remembers of a room."""

    life: int = 0
    writers: tuple[int, ...] = ()
    succeeded: tuple[int, ...] = ()
    acked: tuple[int, ...] = ()


# fmt: off
def newer(v: Room, e: Opened, now: float) -> bool: return e.life > v.life
def last_success(v: Room, e: KvStatusReceived, now: float) -> bool: return e.ok and {*v.succeeded, e.peer} == {*v.writers}
def success(v: Room, e: KvStatusReceived, now: float) -> bool: return e.ok
def other_life(v: Room, e: KvStatusReceived | AckReceived, now: float) -> bool: return e.life != v.life
def hold(v: Room, e: Aborted, now: float) -> bool: return e.hold
def last_ack(v: Room, e: AckReceived, now: float) -> bool: return {*v.acked, e.peer} == {*v.writers}
def idle(v: Room, e: Checked, now: float) -> bool: return e.idle
def complete(v: Room, e: Checked, now: float) -> bool: return e.complete

def open_(v: Room, e: Opened, now: float) -> Room: return Room(v.state, life=e.life, writers=e.writers)
def succeed(v: Room, e: KvStatusReceived, now: float) -> Room: return replace(v, succeeded=tuple(sorted({*v.succeeded, e.peer})))
def acked(v: Room, e: AckReceived, now: float) -> Room: return replace(v, acked=tuple(sorted({*v.acked, e.peer})))

def send_metadata(v: Room, e: Opened) -> Output: return Tell(v.writers, TransferInfo(e.room, v.life))
def send_abort(v: Room, e: Aborted | KvStatusReceived | DecodeTimer) -> Output: return Tell(v.writers, Abort(e.room, v.life))
def check(v: Room, e: KvStatusReceived) -> Output: return Check(e.room)
def unregister(v: Room, e: Checked | AckReceived | DecodeTimer | Unregistered) -> Output: return Unregister(e.room)
def say_committed(v: Room, e: Checked) -> Output: return Reported(e.room, v.life, "committed")
def say_aborted(v: Room, e: Aborted) -> Output: return Reported(e.room, v.life, "aborted")
def say_detached(v: Room, e: Aborted) -> Output: return Reported(e.room, v.life, "detached")
def say_acknowledged(v: Room, e: AckReceived) -> Output: return Reported(e.room, v.life, "acknowledged")
def say_released(v: Room, e: DecodeTimer | Unregistered) -> Output: return Reported(e.room, v.life, "released")


def rooms(mends: Mends) -> Table[Room]:
    """The table of rooms."""
    table = Table(
        "decode_room", Room, D, initial=D.NEW, final=(D.COMMITTED, D.RELEASED), tombstones=True,
        events=(Opened, KvStatusReceived, Aborted, AckReceived, Checked, Unregistered, DecodeTimer),
        timers={D.HELD: "release"}, success_path=(D.NEW, D.REGISTERED, D.SUCCESS, D.COMMITTED),
        failure_states=(D.HELD, D.DETACHED, D.RELEASED),
    )
    opens, row, ignore = table.opens, table.row, table.ignore
    live, over = (D.REGISTERED, D.SUCCESS), (D.COMMITTED, D.RELEASED)
    done = complete if "R16" in mends else idle
    opens(D.NEW,       Opened,           D.REGISTERED, let=open_, do=(send_metadata,))
    row(over,          Opened,           D.REGISTERED, when=newer, let=open_, do=(send_metadata,))
    ignore((*live, D.HELD, D.DETACHED, *over), Opened, "it is open")
    if "R15" in mends:
        ignore((*live, D.HELD), KvStatusReceived, "of another life", when=other_life)
        ignore(D.HELD, AckReceived, "of another life", when=other_life)
    row(D.REGISTERED,  KvStatusReceived, D.SUCCESS,    when=last_success, let=succeed, do=(check,))
    row(D.REGISTERED,  KvStatusReceived,               when=success, let=succeed)
    row(D.REGISTERED,  KvStatusReceived, D.HELD,       do=(send_abort,))
    ignore((D.NEW, D.SUCCESS, D.HELD, D.DETACHED, *over), KvStatusReceived, "unknown, or it has ended here")
    row(D.SUCCESS,     Checked,          D.COMMITTED,  when=done, do=(unregister, say_committed))
    ignore(tuple(D),   Checked,                        "not yet")
    row(live,          Aborted,          D.HELD,       when=hold, do=(send_abort, say_aborted))
    row(live,          Aborted,          D.DETACHED,   do=(send_abort, say_aborted, say_detached))
    ignore((D.NEW, D.HELD, D.DETACHED, *over), Aborted, "it has ended")
    row(D.DETACHED,    Unregistered,     D.RELEASED,   do=(unregister, say_released))
    ignore((D.NEW, *live, D.HELD, *over), Unregistered, "nothing to do")
    row(D.HELD,        AckReceived,      D.RELEASED,   when=last_ack, let=acked, do=(unregister, say_acknowledged))
    row(D.HELD,        AckReceived,                    let=acked)
    ignore((D.NEW, *live, D.DETACHED, *over), AckReceived, "nobody waits for it")
    if "R12" in mends:
        row(D.HELD,    DecodeTimer,                    do=(send_abort,))
    else:
        row(D.HELD,    DecodeTimer,      D.RELEASED,   do=(unregister, say_released))
    return table


# ---------------------------------------------------------------------------------------------- chunks
class Chunk(Value, frozen=True, gc=False):
    """Who has written, as far as messages say."""

    arrivals: tuple[int, ...] = ()


def no_staging(v: Chunk, e: ReqReceived, now: float) -> bool: return not e.staging
def detached(v: Chunk, e: ReqReceived, now: float) -> bool: return e.detached
def unregistered(v: Chunk, e: ReqReceived, now: float) -> bool: return not e.registered
def fits(v: Chunk, e: ReqReceived, now: float) -> bool: return e.fits
def stray(v: Chunk, e: ChunkArrived, now: float) -> bool: return not e.registered
def of_another(v: Chunk, e: ChunkArrived, now: float) -> bool: return not e.same
def enough(v: Chunk, e: ChunkArrived, now: float) -> bool: return len(v.arrivals) + 1 >= e.needed
def enough_writers(v: Chunk, e: ChunkArrived, now: float) -> bool: return len({*v.arrivals, e.writer}) >= e.needed
def count(v: Chunk, e: ChunkArrived, now: float) -> Chunk: return replace(v, arrivals=(*v.arrivals, e.writer))
def collect(v: Chunk, e: ChunkArrived, now: float) -> Chunk: return replace(v, arrivals=tuple(sorted({*v.arrivals, e.writer})))

def assign(v: Chunk, e: ReqReceived) -> Output: return Assign(e.key)
def answer(v: Chunk, e: ReqReceived) -> Output: return Answer(e.key, oversized=False)
def answer_never(v: Chunk, e: ReqReceived) -> Output: return Answer(e.key, oversized=True)
def raise_(v: Chunk, e: ReqReceived) -> ThreadRaised: return ThreadRaised(0)
def scatter(v: Chunk, e: ChunkArrived) -> Output: return ScatterLaunched((e.key[0], 0, e.key[1]))
def in_pages(v: Chunk, e: ScatterFinished) -> Output: return PagesWritten((e.key[0], 0, e.key[1]))
def free(v: Chunk, e: ScatterFinished | ChunkForgotten) -> Output: return Free(e.key)
def check_room(v: Chunk, e: ScatterFinished) -> Output: return Check(e.key[0])


def chunks(mends: Mends) -> Table[Chunk]:
    """The table of chunks."""
    table = Table(
        "decode_chunk", Chunk, G, initial=G.NONE, final=(G.GONE,),
        events=(ReqReceived, ChunkArrived, ScatterFinished, ChunkForgotten), timers={},
        success_path=(G.NONE, G.GRANTED, G.SCATTERING, G.DONE), failure_states=(G.OVERSIZED, G.GONE),
    )
    opens, row, ignore = table.opens, table.row, table.ignore
    there = (G.GRANTED, G.OVERSIZED, G.SCATTERING, G.DONE)
    if "R6" in mends:
        row(G.NONE,    ReqReceived,              when=no_staging, do=(answer_never,))
    else:
        row(G.NONE,    ReqReceived,              when=no_staging, do=(raise_,))
    if "R7" in mends:
        ignore((G.NONE, *there), ReqReceived,    "its room is being taken down", when=detached)
    else:
        row((G.NONE, *there), ReqReceived,       when=detached, do=(raise_,))
    ignore(G.NONE,     ReqReceived,              "its room is not registered", when=unregistered)
    opens(G.NONE,      ReqReceived, G.GRANTED,   when=fits, do=(assign,))
    opens(G.NONE,      ReqReceived, G.OVERSIZED, do=(answer_never,))
    row((G.GRANTED, G.SCATTERING), ReqReceived,  do=(answer,))
    row(G.OVERSIZED,   ReqReceived,              do=(answer_never,))
    if "R4" in mends:
        ignore(G.DONE, ReqReceived,              "it is in the pages")
    else:
        row(G.DONE,    ReqReceived, G.GRANTED,   let=forget_arrivals, do=(assign,))
    ignore((G.NONE, *there), ChunkArrived,       "its room is not registered", when=stray)
    if "R15" in mends:
        ignore((G.NONE, *there), ChunkArrived,   "of another life", when=of_another)
    if "R5" in mends:
        row(G.GRANTED, ChunkArrived, G.SCATTERING, when=enough_writers, let=collect, do=(scatter,))
        row(G.GRANTED, ChunkArrived,             let=collect)
    else:
        row(G.GRANTED, ChunkArrived, G.SCATTERING, when=enough, let=count, do=(scatter,))
        row(G.GRANTED, ChunkArrived,             let=count)
    ignore((G.NONE, G.OVERSIZED, G.SCATTERING, G.DONE), ChunkArrived, "nothing to scatter")
    row(G.SCATTERING,  ScatterFinished, G.DONE,  do=(in_pages, free, check_room))
    ignore((G.NONE, G.GRANTED, G.OVERSIZED, G.DONE), ScatterFinished, "no kernel runs")
    row((G.GRANTED, G.SCATTERING), ChunkForgotten, G.GONE, do=(free,))
    row((G.OVERSIZED, G.DONE), ChunkForgotten, G.GONE)
    ignore(G.NONE,     ChunkForgotten,           "there is nothing")
    return table


def forget_arrivals(v: Chunk, e: ReqReceived, now: float) -> Chunk: return replace(v, arrivals=())
# fmt: on


class Listener(Value, frozen=True, gc=False):
    """Nothing but the state."""


def listeners(mends: Mends) -> Table[Listener]:
    """The table of the thread that takes messages."""
    del mends
    table = Table("decode_listener", Listener, T, initial=T.RUNNING, events=(ThreadRaised,), timers={},
                  success_path=(T.RUNNING,), failure_states=(T.DEAD,))  # fmt: skip
    table.opens(T.RUNNING, ThreadRaised, T.DEAD)
    table.ignore(T.DEAD, ThreadRaised, "it is dead")
    return table
