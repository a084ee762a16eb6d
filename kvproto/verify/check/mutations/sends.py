"""Mutants: sends of the prefill rank."""

from __future__ import annotations

from typing import Any

from kvproto.fsm.vocabulary import Effect, Event
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import TimerFired
from kvproto.protocol.states import PSend, PWrite
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.check.mutations.registry import SENDS, WRITES, mutation, ps
from kvproto.verify.framework.table_patching import TablePatch

#: what a send waits for before it may write into the ring
BEFORE = (PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK)


def always(v: Any, e: Any, now: float) -> bool:
    """A guard that always passes."""
    return True


@mutation("per-token-writes", "roomy", "sometimes")
def per_token_writes(b: TablePatch) -> None:
    """Every part goes page by page, although the ring is free."""
    for guard in ("staged", "staged_and_produced"):
        b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, guard), target=PSend.AWAIT_PAGES, do=(ps.ask_pages,))


@mutation("closed-gives-up", "withdraw-closed", "sometimes")
def closed_gives_up(b: TablePatch) -> None:
    """KV that is taken back gives the ring up for good, although it cannot go page to page."""

    def never(v: Any, e: Any, now: float) -> bool:
        return False

    for state in (*BEFORE, PSend.AWAIT_SLOT):
        b.change(SENDS, b.rows(SENDS, state, ev.KvWithdrawn, "closed"), when=never)


@mutation("costlier-route", "dear-pages", "sometimes")
def dearer_route(b: TablePatch) -> None:
    """The more expensive one of two routes is chosen (beside the catalogue)."""

    def costlier(v: Any, e: ev.SendOpened, now: float) -> bool:
        return not e.aux and e.staged_cost >= e.pages_cost

    b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged"), when=costlier)


@mutation("ring-left-at-any-price", "dear-pages", "sometimes")
def ring_left_at_any_price(b: TablePatch) -> None:
    """A send that has used up its tries leaves the ring, whatever pages cost (beside the catalogue)."""

    def patient(v: Any, e: TimerFired, now: float) -> bool:
        return v.tries < e.tries or e.full

    for state in BEFORE:
        b.change(SENDS, b.rows(SENDS, state, TimerFired, "patient"), when=patient)


@mutation("dummy-always-true", "patient", "L1")
def dummy_always_true(b: TablePatch) -> None:
    """The destination is never asked for a region."""
    b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged_and_produced"), do=())
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_KV, ev.KvProduced), do=())
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_GRANT, TimerFired, "patient"), do=())


@mutation("leaked-bookkeeping", "abort", "S8")
def leaked_bookkeeping(b: TablePatch) -> None:
    """A send that drains keeps its slot."""
    b.without(SENDS, b.rows(SENDS, PSend.DRAINING, ev.WriteFailed, "settled"), "free_slot")


@mutation("chunk-offset-not-advanced", "roomy", "S1")
def chunk_offset_not_advanced(b: TablePatch) -> None:
    """Every chunk is written where the first one was."""

    def write(v: Any, e: Any) -> ev.WriteBegun:
        return ev.WriteBegun(e.room, e.chunk, e.peer, v.to, v.slot, 0, v.grant, v.lease)

    b.change(SENDS, b.rows(SENDS, PSend.GATHERING, ev.Gathered, "lease_holds"), do=(write,))


@mutation("lost-response", "drop", "L1")
def lost_response(b: TablePatch) -> None:
    """A region is asked for once, and never again."""
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_GRANT, TimerFired, "patient"), do=())


@mutation("lost-watermark", "drop", "L1")
def lost_watermark(b: TablePatch) -> None:
    """The watermark is pushed, and never pulled."""
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_WATERMARK, TimerFired, "patient"), do=())


@mutation("whole-chunk-retry", "fan-in", "S2")
def whole_chunk_retry(b: TablePatch) -> None:
    """A staged part that is not yet confirmed is gathered and written once more."""

    def staged(v: Any, e: TimerFired, now: float) -> bool:
        return bool(v.grant and ps.tries_left(v, e, now))

    again, last = (b.rows(SENDS, PSend.AWAIT_ACK, TimerFired, guard) for guard in ("tries_left", None))
    b.change(SENDS, again, when=staged, target=PSend.AWAIT_SLOT, do=(ps.take_slot,))
    b.change(SENDS, last, let=ps.tried, target=PSend.AWAIT_ACK, do=(ps.notify,))


@mutation("retry-into-reused-grant", "drop", "S4")
def retry_into_reused_grant(b: TablePatch) -> None:
    """As whole-chunk-retry, when the confirmation was lost: the region is another's by then."""
    whole_chunk_retry(b)


@mutation("break-on-first-not-ready", "heads-of-line", "L1", "L2", "L3")
def break_on_first_not_ready(b: TablePatch) -> None:
    """Sends get a slot in the order in which they were opened; one that waits holds up all behind it."""

    def enroll(v: Any, e: Any) -> Effect:
        return do.TakeSlot(e.room, e.chunk, e.peer)

    def take_slot(rank: PrefillRank, effect: do.TakeSlot) -> None:
        rank.slot_queue.put((effect.room, effect.chunk, effect.peer))
        _first_in_line(rank)

    def free_slot(rank: PrefillRank, effect: do.FreeSlot) -> None:
        slot = rank.slot_of.pop((effect.room, effect.chunk, effect.peer), None)
        if slot is not None:
            rank.free_slots.append(slot)
        _first_in_line(rank)

    b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged_and_produced"), do=(ps.take_credit, enroll))
    b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged"), do=(enroll,))
    b.patch(PrefillRank, "_take_slot", take_slot)
    b.patch(PrefillRank, "_free_slot", free_slot)


def _first_in_line(rank: PrefillRank) -> None:
    key = next(iter(rank.slot_queue), None)
    if key is None or not rank.free_slots:
        return
    room, chunk, peer = key
    if rank.sends[room][chunk << 16 | peer].state is PSend.AWAIT_SLOT:
        rank.slot_queue.leave(key)
        rank._give_slot(key, rank.free_slots.pop())  # noqa: SLF001


@mutation("error-kills-worker", "writes", "L1")
def error_kills_worker(b: TablePatch) -> None:
    """A write that fails ends its send, and nobody is told."""
    failing = [row for guard in ("retries", "settled") for row in b.rows(SENDS, PSend.WRITING, ev.WriteFailed, guard)]
    b.change(SENDS, failing, target=PSend.STOPPED, do=(ps.free_slot,))


@mutation("retry-of-an-unsettled-write", "doubt", "S1", "S4")
def retry_of_an_unsettled_write(b: TablePatch) -> None:
    """A failed staged write is retried page to page while its bytes may still land (beside the catalogue)."""
    b.change(SENDS, b.rows(SENDS, PSend.WRITING, ev.WriteFailed, "retries"), when=always)


@mutation("one-room-blacklists-peer", "no-ring", "S9")
def one_room_blacklists_peer(b: TablePatch) -> None:
    """A chunk that is not staged fails its room, instead of going page to page."""
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_GRANT, ev.StagingDenied), do=(ps.fail_write,))


@mutation("total-handlers", "early", "S10")
def total_handlers(b: TablePatch) -> None:
    """A repeated answer is no longer expected."""
    b.drop(SENDS, b.rows(SENDS, (PSend.AWAIT_SLOT, PSend.GATHERING, PSend.WRITING, PSend.AWAIT_ACK), ev.StagingGranted))


@mutation("read-before-produced", "patient", "S12")
def read_before_produced(b: TablePatch) -> None:
    """A usable region is enough to begin; the KV is not waited for."""
    opened = b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged")
    b.change(SENDS, opened, target=PSend.AWAIT_CREDIT, do=(ps.take_credit,))
    b.ignore(SENDS, (PSend.AWAIT_CREDIT, *BEFORE, PSend.AWAIT_SLOT), ev.KvProduced)


@mutation("capacity-inversion", "memory", "L1", "L2", "L5")
def capacity_inversion(b: TablePatch) -> None:
    """Sends wait for the ring for ever; it cannot go page to page."""
    for state in BEFORE:
        b.drop(SENDS, b.rows(SENDS, state, TimerFired, None))
        b.change(SENDS, b.rows(SENDS, state, TimerFired, "patient"), when=None)


@mutation("slot-reuse", "one-slot", "S12")
def slot_reuse(b: TablePatch) -> None:
    """The slot is free once its write is posted, not once it is over."""
    rows = b.rows(SENDS, PSend.GATHERING, ev.Gathered, "lease_holds")
    b.change(SENDS, rows, do=(ps.write, ps.free_slot))
    b.without(SENDS, b.rows(SENDS, PSend.WRITING, ev.WriteCompleted), "free_slot")


@mutation("slot-overtaken", "credit-abort", "S8", "S10")
def slot_overtaken(b: TablePatch) -> None:
    """A send hears of its credit, slot or permit after all queued events, perhaps after its own end."""

    def give(rank: PrefillRank, *events: Event) -> None:
        rank._queue.extend(events)  # noqa: SLF001

    b.patch(PrefillRank, "give", give)


@mutation("deferral-taxes-ready", "wait", "L4")
def deferral_taxes_ready(b: TablePatch) -> None:
    """A chunk for which there is no space yet is put off, and asked for again at once."""
    put_off = b.rows(SENDS, PSend.AWAIT_GRANT, ev.StagingDeferred)
    b.change(SENDS, put_off, target=PSend.AWAIT_GRANT, let=None, do=(ps.ask_grant,))


@mutation("lease-ignored", "late", "S1", "S4")
def lease_ignored(b: TablePatch) -> None:
    """A write is posted although the lease is over (beside the catalogue)."""
    b.change(SENDS, b.rows(SENDS, PSend.GATHERING, ev.Gathered, "lease_holds"), when=always)
    _post_whatever_the_lease(b)


@mutation("lease-asked-once", "prepare-late", "S1", "S4")
def lease_asked_once(b: TablePatch) -> None:
    """A lease that held when a write was begun is not asked for when it is posted."""
    _post_whatever_the_lease(b)


def _post_whatever_the_lease(b: TablePatch) -> None:
    def last(v: Any, e: ev.BatchReady, now: float) -> bool:
        return e.last

    b.change(WRITES, b.rows(WRITES, PWrite.POSTING, ev.BatchReady, "lease_holds_for_last"), when=last)


@mutation("lapse-fails-room", "prepare-late", "S9")
def lapse_fails_room(b: TablePatch) -> None:
    """A write of which nothing was posted when its lease ended fails its room (beside the catalogue)."""
    b.drop(WRITES, b.rows(WRITES, PWrite.POSTING, ev.BatchReady, "untouched"))


@mutation("write-ends-with-first-batch", "batches", "S4", "S5", "S6")
def write_ends_with_first_batch(b: TablePatch) -> None:
    """A write of several batches counts as complete when the first one is."""
    rows = b.rows(WRITES, PWrite.IN_FLIGHT, ev.BatchCompleted, "last_flies")
    b.change(WRITES, rows, when=None)


@mutation("early-answer-kept-aside", "smoke-tells", "L3", "sometimes")
def early_answer_kept_aside(b: TablePatch) -> None:
    """A confirmation that comes before its write is seen to end is nothing to the send."""
    b.change(SENDS, b.rows(SENDS, PSend.WRITING, ev.ChunkAcked, "native_notify"), verb="ignore")


@mutation("notified-twice", "smoke-tells", "sometimes")
def notified_twice(b: TablePatch) -> None:
    """A part whose write has told of itself is told of once more."""
    b.change(SENDS, b.rows(SENDS, PSend.WRITING, ev.WriteCompleted, "native_notify"), do=(ps.free_slot, ps.notify))
