"""A prefill rank's transfer queue as tables: a chunk in it, and a worker's thread.

A chunk is tried as a whole: from the first decode rank on, until one is not ready, and the next time again.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from examples.others.sglang_staging.effects import (
    Ban,
    Post,
    RetryOne,
)
from examples.others.sglang_staging.events import (
    ChunkDropped,
    ChunkFailed,
    ChunkQueued,
    ChunkSent,
    ChunkStarted,
    ChunkTimer,
    ChunkTried,
    TransportBreaks,
    WriteFailed,
)
from examples.others.sglang_staging.prefill import Mends
from examples.others.sglang_staging.words import (
    Q,
    W,
)
from kvproto.fsm.table import Output, Table, Value


class Chunk(Value, frozen=True, gc=False):
    """What the queue remembers of a chunk: whom it is being written to; by a mend: whom it was written to before."""

    posts: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


def in_order(v: Chunk, e: ChunkTried) -> tuple[int, ...]:
    """As it is: from the first decode rank on, until one is not ready; whatever was written before."""
    at = next((at for at, dest in enumerate(e.dests) if dest not in e.ready), len(e.dests))
    return e.dests[:at]


def in_order_once(v: Chunk, e: ChunkTried) -> tuple[int, ...]:
    """With R1's mend: the same, of those that are left."""
    left = tuple(dest for dest in e.dests if dest not in v.written)
    return left[:next((at for at, dest in enumerate(left) if dest not in e.ready), len(left))]


def each(v: Chunk, e: ChunkTried) -> tuple[int, ...]:
    """With R3's mend: whoever is ready."""
    return tuple(dest for dest in e.dests if dest in e.ready)


def each_once(v: Chunk, e: ChunkTried) -> tuple[int, ...]:
    """With both."""
    return tuple(dest for dest in e.dests if dest in e.ready and dest not in v.written)


# fmt: off
def dead(v: Chunk, e: ChunkTried, now: float) -> bool: return e.worker is W.DEAD
def gone(v: Chunk, e: ChunkTried, now: float) -> bool: return not e.alive
def not_same(v: Chunk, e: ChunkTried, now: float) -> bool: return not e.same
def is_banned(v: Chunk, e: ChunkTried, now: float) -> bool: return any(dest in e.banned for dest in e.dests)
def never_fits(v: Chunk, e: ChunkTried, now: float) -> bool: return any(dest in e.oversized for dest in e.dests)

def retry_one(v: Chunk, e: ChunkTried) -> Output: return RetryOne(e.key)
def next_pass(v: Chunk, e: ChunkTimer) -> Output: return RetryOne(e.key)
def started(v: Chunk, e: ChunkTried) -> ChunkStarted: return ChunkStarted(e.key[0], e.key[1])
def sent(v: Chunk, e: ChunkTried) -> ChunkSent: return ChunkSent(e.key[0], e.key[1], e.key[2])
def dropped(v: Chunk, e: ChunkTried) -> ChunkDropped: return ChunkDropped(e.key[0], e.key[1])
def failed(v: Chunk, e: ChunkTried) -> ChunkFailed: return ChunkFailed(e.key[0], e.key[1])
def write_failed(v: Chunk, e: ChunkTried) -> WriteFailed: return WriteFailed(0)
def ban(v: Chunk, e: ChunkTried) -> Output: return Ban(e.key)
def post(v: Chunk, e: ChunkTried) -> Output: return Post(e.key, v.posts)
# fmt: on


class Worker(Value, frozen=True, gc=False):
    """Nothing but the state."""


def chunks(mends: Mends) -> Table[Chunk]:
    """The table of chunks in the queue."""
    table = Table(
        "prefill_chunk", Chunk, Q, initial=Q.NONE, final=(Q.SENT, Q.DROPPED),
        events=(ChunkQueued, ChunkTried, ChunkTimer), timers={Q.QUEUED: "worker"},
        success_path=(Q.NONE, Q.QUEUED, Q.DEFERRED, Q.SENT), failure_states=(Q.DROPPED,),
    )  # fmt: skip
    opens, row, ignore = table.opens, table.row, table.ignore
    targets: Callable[[Chunk, ChunkTried], tuple[int, ...]] = {
        (False, False): in_order, (True, False): in_order_once, (False, True): each, (True, True): each_once,
    }["R1" in mends, "R3" in mends]  # fmt: skip
    once = "R1" in mends

    def finished(v: Chunk, e: ChunkTried, now: float) -> bool:
        return len({*targets(v, e), *(v.written if once else ())}) == len(e.dests)

    def some(v: Chunk, e: ChunkTried, now: float) -> bool:
        return bool(targets(v, e))

    def faulty(v: Chunk, e: ChunkTried, now: float) -> bool:
        return e.worker is W.FAULTY and bool(targets(v, e))

    def take(v: Chunk, e: ChunkTried, now: float) -> Chunk:
        now_to = targets(v, e)
        return replace(v, posts=now_to, written=tuple(sorted({*v.written, *now_to})) if once else ())

    for function in (finished, some, faulty, take):  # so that rows can be told apart
        function.__name__ += f"_{targets.__name__}"
    # fmt: off
    both = (Q.QUEUED, Q.DEFERRED)
    opens(Q.NONE,  ChunkQueued, Q.QUEUED)
    row(Q.QUEUED,  ChunkTimer,             do=(next_pass,))
    ignore(both,   ChunkTried,  "the worker's thread is dead", when=dead)
    row(Q.QUEUED,  ChunkTried,  Q.DROPPED, when=gone)
    row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=gone, do=(dropped,))
    if "R15" in mends:
        row(Q.QUEUED,   ChunkTried, Q.DROPPED, when=not_same)
        row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=not_same, do=(dropped,))
    row(Q.QUEUED,  ChunkTried,  Q.DEFERRED, do=(started, retry_one))
    if "R9" not in mends:
        row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=is_banned, do=(failed,))
        row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=never_fits, do=(ban, failed))
    else:
        row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=never_fits, do=(failed,))
    if "R10" in mends:
        row(Q.DEFERRED, ChunkTried, Q.DROPPED, when=faulty, do=(write_failed, failed))
    else:
        row(Q.DEFERRED, ChunkTried,            when=faulty, do=(write_failed,))
    row(Q.DEFERRED, ChunkTried, Q.SENT,    when=finished, let=take, do=(post, sent))
    row(Q.DEFERRED, ChunkTried,            when=some, let=take, do=(post,))
    ignore(Q.DEFERRED, ChunkTried, "not ready: it is put back")
    ignore(both,   ChunkQueued, "it is queued")
    ignore(Q.NONE, ChunkTried,  "it is written")
    # fmt: on
    return table


def workers(mends: Mends) -> Table[Worker]:
    """The table of the worker thread."""
    table = Table("prefill_worker", Worker, W, initial=W.RUNNING, events=(TransportBreaks, WriteFailed), timers={},
                  success_path=(W.RUNNING,), failure_states=(W.FAULTY, W.DEAD))  # fmt: skip
    table.opens(W.RUNNING, TransportBreaks, W.FAULTY)
    table.row(W.FAULTY, WriteFailed, W.RUNNING if "R10" in mends else W.DEAD)
    table.ignore((W.FAULTY, W.DEAD), TransportBreaks, "it is broken")
    table.ignore((W.RUNNING, W.DEAD), WriteFailed, "nothing is written")
    return table


