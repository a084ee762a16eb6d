"""Mutants: grants, the ring, links and gens."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.layout.cut import Cut, cut_at
from kvproto.protocol import events as ev
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.ring import Ring
from kvproto.protocol.routes import ChunkIs, HeardMessage, decode_routes
from kvproto.protocol.states import DGrant, PLink
from kvproto.rank import prefill
from kvproto.rank.base import Rank
from kvproto.rank.space_queue import SpaceQueue
from kvproto.verify.check.mutations.registry import GRANTS, PLINKS, dg, mutation
from kvproto.verify.framework.table_patching import TablePatch


@mutation("failed-room-leaks-grant", "abort", "L2")
def failed_room_leaks_grant(b: TablePatch) -> None:
    """A failed room's region is not freed."""
    b.without(GRANTS, b.rows(GRANTS, DGrant.QUARANTINED, ev.RoomDrained), "free")


@mutation("empty-ring-stale-watermark", "odd-sizes", "L1", "L2", "L3")
def empty_ring_stale_watermark(b: TablePatch) -> None:
    """The watermark is the end of what was freed last, also when nothing is left in the ring."""

    def free(ring: Any, grant: int) -> list[int]:
        ring.freed.add(grant)
        while ring.live and (oldest := next(iter(ring.live))) in ring.freed:
            ring.tail = ring.live[oldest].round, ring.live[oldest].end
            del ring.live[oldest]
            ring.freed.remove(oldest)
        return list(ring._unblock())  # noqa: SLF001

    b.patch(Ring, "free", free)
    b.patch(Ring, "mark", property(lambda ring: getattr(ring, "tail", (0, 0))))


@mutation("share-starves-oldest", "two-groups", "S13")
def share_starves_oldest(b: TablePatch) -> None:
    """A room's later chunk has a region before its first one that waits."""
    b.patch(SpaceQueue, "is_first", lambda *_: True)


@mutation("count-not-set", "fan-in-duplicate", "S3")
def count_not_set(b: TablePatch) -> None:
    """The fan-in counts notifications; a repeated one counts twice."""

    def arrive(v: Any, e: ev.PartArrived, now: float) -> Any:
        return replace(v, arrived=v.arrived + 1)

    def last_staged(v: Any, e: ev.PartArrived, now: float) -> bool:
        return bool(v.arrived + 1 == v.writers.bit_count())

    b.drop(GRANTS, b.rows(GRANTS, DGrant.FILLING, ev.PartArrived, "there"))
    b.change(GRANTS, b.rows(GRANTS, DGrant.FILLING, ev.PartArrived, "last_staged"), when=last_staged, let=arrive)
    b.change(GRANTS, b.rows(GRANTS, DGrant.FILLING, ev.PartArrived, "as_agreed"), let=arrive)


@mutation("writers-keyed-by-pp", "fan-in-patient", "L1", "L3", "S10")
def writers_keyed_by_pp(b: TablePatch) -> None:
    """Writers of one pipeline stage are one writer."""

    def part(heard: HeardMessage) -> ev.PartArrived:
        return ev.PartArrived(heard.room, heard.body.chunk, 0, heard.body.grant)

    b.reroute(decode_routes, b.routes(decode_routes, StgNotify, ChunkIs.GRANTED), to=(part,))


@mutation("scatter-after-release", "abort", "S4")
def scatter_after_release(b: TablePatch) -> None:
    """A room that fails does not wait for its scatter."""
    rows = b.rows(GRANTS, DGrant.SCATTERING, ev.RoomStopped)
    b.change(GRANTS, rows, verb="row", target=DGrant.FREED, do=(dg.free, dg.close))


@mutation("stale-subscriber", "restart", "S7")
def stale_subscriber(b: TablePatch) -> None:
    """A peer that calls anew is taken for its former self: what was known of its ring is kept."""

    def adopt(v: Any, e: ev.HelloReceived, now: float) -> Any:
        return replace(v, session=e.session, epoch=e.epoch)

    b.change(PLINKS, b.rows(PLINKS, (PLink.LOST, PLink.REFUSED), ev.HelloReceived, None), let=adopt)


@mutation("room-id-reuse", "reuse", "S9", "S1", "S6", "S10", "L1")
def room_id_reuse(b: TablePatch) -> None:
    """Messages name a room by its id alone; they are taken to mean its latest gen."""
    receive = Rank.receive

    def by_id(rank: Any, link: int, epoch: int, room: int, body: Any, now: float, *about: Any) -> Any:
        same = [key for key in (*rank.rooms, *rank.tombs) if room and ev.room_of(key)[0] == ev.room_of(room)[0]]
        return receive(rank, link, epoch, max(same, default=room), body, now, *about)

    b.patch(Rank, "receive", by_id)


@mutation("misaligned-chunk", "prefix", "S12")
def misaligned_chunk(b: TablePatch) -> None:
    """The prefill rank cuts a room's tokens from its start, not from the prefix."""

    def from_zero(value: Any, k: int) -> Cut:
        return cut_at(k, value.tokens, 0, value.terms.chunk_tokens)

    b.patch(prefill, "cut_of", from_zero)
