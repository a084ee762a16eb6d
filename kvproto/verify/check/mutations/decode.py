"""Mutants: rooms of the decode rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import DLink, DRoom
from kvproto.rank.decode import DecodeRank
from kvproto.verify.check.mutations.registry import DLINKS, DROOMS, dr, mutation
from kvproto.verify.framework.table_patching import TablePatch


@mutation("last-chunk-arrives-first", "two-slots", "L1")
def last_chunk_arrives_first(b: TablePatch) -> None:
    """Only the last chunk's landing is looked at for completion."""

    def last_chunk(v: Any, e: ev.ChunkLanded, now: float) -> bool:
        return bool(e.chunk == dr.end_chunk(v) - 1 and dr.last_chunk(v, e, now))

    b.change(DROOMS, b.rows(DROOMS, DRoom.OPEN, ev.ChunkLanded, "last_chunk"), when=last_chunk)


@mutation("told-once", "other-secret-lost", "L1")
def told_once(b: TablePatch) -> None:
    """A decode rank does not ask after a room in which nothing moves (beside the catalogue)."""
    b.change(DROOMS, b.rows(DROOMS, DRoom.OPEN, ev.TimerFired, "tries_left"), do=())


@mutation("success-forgotten", "deep-tombstone-drop", "L1")
def success_forgotten(b: TablePatch) -> None:
    """A writer that notifies of a forgotten room is told so, not that its part is in place (beside the
    catalogue)."""
    for event in (ev.ChunkNotified, ev.AuxLanded):
        b.change(DROOMS, b.rows(DROOMS, DRoom.UNKNOWN, event), do=(dr.say_gone,))


@mutation("late-request-after-scatter", "unordered", "L2", "S10")
def late_request_after_scatter(b: TablePatch) -> None:
    """A late request for a chunk that is in place is granted anew."""
    b.drop(DROOMS, b.rows(DROOMS, (DRoom.AWAIT_PEERS, DRoom.OPEN), ev.ChunkRequested, "in_place"))


@mutation("staging-on-one-side", "no-ring", "S10")
def staging_on_one_side(b: TablePatch) -> None:
    """A chunk that no ring can hold is asked of the ring all the same."""

    def reserve(rank: DecodeRank, effect: do.ReserveSpace) -> None:
        value = rank.value_of(effect.room)
        plan = next(peer.plan for peer in rank.peers.values() if peer.plan is not None)
        size = plan.grant_bytes(rank.index, effect.cut)
        rank.space_queue.put((effect.room, effect.chunk), size, value.tokens)
        rank._serve()  # noqa: SLF001

    b.patch(DecodeRank, "_reserve", reserve)


@mutation("request-during-teardown", "abort", "S10")
def request_during_teardown(b: TablePatch) -> None:
    """A request for a room that is being taken down is not expected."""
    b.drop(DROOMS, b.rows(DROOMS, (DRoom.DRAINING, DRoom.SETTLING, DRoom.FAILED, DRoom.ABORTED), ev.ChunkRequested))


@mutation("success-before-all-chunks", "two-slots", "S5")
def success_before_all_chunks(b: TablePatch) -> None:
    """Success is announced when the last chunk lands, whatever of the others."""

    def last_chunk(v: Any, e: ev.ChunkLanded, now: float) -> bool:
        return bool(e.chunk == dr.end_chunk(v) - 1 and dr._work(v).aux)  # noqa: SLF001

    b.change(DROOMS, b.rows(DROOMS, DRoom.OPEN, ev.ChunkLanded, "last_chunk"), when=last_chunk)


@mutation("abort-ignored-after-success", "abort", "S1", "S4")
def abort_ignored_after_success(b: TablePatch) -> None:
    """A room that is given up is over at once; what still comes is ignored."""
    b.change(
        DROOMS, b.rows(DROOMS, (DRoom.AWAIT_PEERS, DRoom.OPEN), ev.EngineAborted), target=DRoom.ABORTED,
        do=(dr.announce, dr.stop_grants, dr.drain_grants, dr.release),
    )  # fmt: skip
    b.ignore(DROOMS, DRoom.ABORTED, ev.GrantClosed)
    b.ignore(DROOMS, DRoom.ABORTED, ev.GrantsStopped)


@mutation("padding-means-done", "two-slots", "S5", "S3")
def padding_means_done(b: TablePatch) -> None:
    """A chunk that lands marks all before it as landed."""

    def place(v: Any, e: ev.ChunkLanded, now: float) -> Any:
        work = dr._work(v)  # noqa: SLF001
        return replace(v, work=replace(work, done=work.done | (1 << e.chunk + 1) - 1, live=work.live - 1))

    def last_chunk(v: Any, e: ev.ChunkLanded, now: float) -> bool:
        return bool(dr._complete(v, place(v, e, now).work.done, aux=dr._work(v).aux))  # noqa: SLF001

    b.change(DROOMS, b.rows(DROOMS, DRoom.OPEN, ev.ChunkLanded, "last_chunk"), when=last_chunk, let=place)


@mutation("ack-by-room-only", "fan-in-abort", "S4", "S1", "L1")
def ack_by_room_only(b: TablePatch) -> None:
    """One prefill rank's word that it has drained counts for all."""
    for guard in ("last_writer_aborted", "last_writer_failed", "last_writer"):
        for row in b.rows(DROOMS, DRoom.DRAINING, ev.PeerDrained, guard):
            before = row.when
            assert before is not None

            def anyone(v: Any, e: Any, now: float, before: Callable[..., bool] = before) -> bool:
                return before(replace(v, peers=1 << e.peer), e, now)

            b.change(DROOMS, [row], when=anyone)


@mutation("end-kept-to-itself", "abort-handshake", "L1")
def end_kept_to_itself(b: TablePatch) -> None:
    """A prefill rank whose link comes up hears nothing of a room that ended before (beside the catalogue)."""
    b.change(DROOMS, b.rows(DROOMS, (DRoom.SETTLING, DRoom.FAILED, DRoom.ABORTED), ev.LinkCameUp), do=())


@mutation("goodbye-in-haste", "close", "S4", "S1")
def goodbye_in_haste(b: TablePatch) -> None:
    """A decode rank takes every goodbye for the end of all that is written (beside the catalogue)."""
    b.change(DLINKS, b.rows(DLINKS, DLink.UP, ev.GoodbyeReceived, "quiet"), when=None)


@mutation("doubt-forgotten", "link", "S4", "S1")
def doubt_forgotten(b: TablePatch) -> None:
    """A lost prefill rank that was told where to write is taken to have no write in flight (beside the
    catalogue)."""
    b.change(DLINKS, b.rows(DLINKS, DLink.AWAIT_RETURN, ev.QuietAsked, "untold"), when=None)
