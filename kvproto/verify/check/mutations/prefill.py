"""Mutants: rooms of the prefill rank."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.protocol import events as ev
from kvproto.protocol.events import TimerFired
from kvproto.protocol.states import DRoom, PLink, PRoom, PSend
from kvproto.verify.check.mutations.registry import DROOMS, PLINKS, PROOMS, SENDS, mutation, pr, ps
from kvproto.verify.framework.table_patching import TablePatch


@mutation("req-before-registration", "patient", "L1", "L2", "S10")
def req_before_registration(b: TablePatch) -> None:
    """A decode rank's word that comes before the engine's is dropped, and not said again."""
    b.change(PROOMS, b.rows(PROOMS, PRoom.UNKNOWN, ev.PeerOpened), verb="ignore", target=PRoom.UNKNOWN, let=None, do=())
    b.change(DROOMS, b.rows(DROOMS, DRoom.AWAIT_PEERS, TimerFired, "tries_left"), do=())


@mutation("grants-for-skipped-chunks", "patient", "S6", "L1", "L2")
def grants_for_skipped_chunks(b: TablePatch) -> None:
    """Chunks that turn out to be cached are not sent; their regions are not given back."""
    granted = b.rows(SENDS, PSend.AWAIT_GRANT, ev.StagingGranted, "usable")
    b.change(SENDS, granted, target=PSend.DONE, do=(ps.free_credit, ps.finish))


@mutation("prefetch-with-partial-peers", "fan-out", "S9", "L1", "S10")
def prefetch_with_partial_peers(b: TablePatch) -> None:
    """Sends begin when the first decode rank is known; the others are taken for known."""

    def met(v: Any, e: Any, now: float) -> bool:
        return bool(v.peers)

    b.change(PROOMS, b.rows(PROOMS, PRoom.AWAIT_ENGINE, ev.EngineOpened, "met"), when=met)


@mutation("late-gone-believed", "deep-overtaken", "S9")
def late_gone_believed(b: TablePatch) -> None:
    """A rank that has forgotten a room fails it, though it may have succeeded (beside the catalogue)."""
    b.change(PROOMS, b.rows(PROOMS, PRoom.OPEN, ev.PeerForgot, "unsent"), when=None)


@mutation("prefill-abort-silent", "abort", "L1")
def prefill_abort_silent(b: TablePatch) -> None:
    """The prefill engine gives a room up, and tells nobody."""
    _end_without_a_word(b, PRoom.ABORTED)


@mutation("decode-death-unnoticed", "death", "L1")
def decode_death_unnoticed(b: TablePatch) -> None:
    """Silence is not counted: a link is up for ever."""
    b.drop(PLINKS, b.rows(PLINKS, PLink.UP, TimerFired, None))
    b.change(PLINKS, b.rows(PLINKS, PLink.UP, TimerFired, "heard"), when=None)


@mutation("abort-before-room", "unordered-abort", "L1", "S10", "S4")
def abort_before_room(b: TablePatch) -> None:
    """An abort that comes before its room is confirmed, and forgotten."""
    b.change(PROOMS, b.rows(PROOMS, PRoom.UNKNOWN, ev.AbortAsked), target=PRoom.UNKNOWN, let=_terms_only)


def _terms_only(v: Any, e: ev.AbortAsked, now: float) -> Any:
    return replace(v, terms=e.terms)


@mutation("orphan-metadata", "restart", "L1", "S8")
def orphan_metadata(b: TablePatch) -> None:
    """A room that only the other side has opened is kept for ever."""
    rows = b.rows(PROOMS, PRoom.AWAIT_ENGINE, TimerFired)
    b.change(PROOMS, rows, target=PRoom.AWAIT_ENGINE, let=None, do=())


@mutation("late-write-after-abort", "abort", "S4", "S1")
def late_write_after_abort(b: TablePatch) -> None:
    """A room counts as drained while a write of it is in flight."""
    b.drop(PROOMS, b.rows(PROOMS, PRoom.DRAINING, ev.SendsStopped, "some_live"))
    ended = (PRoom.AWAIT_NOTED, PRoom.FAILED, PRoom.ABORTED)
    b.ignore(PROOMS, ended, ev.SendFinished)


@mutation("failure-not-told", "doubt", "L1")
def failure_not_told(b: TablePatch) -> None:
    """A room that fails here is over here; the decode ranks are not told."""
    _end_without_a_word(b, PRoom.FAILED)


def _end_without_a_word(b: TablePatch, end: PRoom) -> None:
    for event in (ev.SendFinished, ev.SendsStopped):
        b.change(PROOMS, b.rows(PROOMS, PRoom.DRAINING, event, None), target=end, do=(pr.release,))


@mutation("refusal-forgotten", "refuse", "L1", "S8")
def refusal_forgotten(b: TablePatch) -> None:
    """The prefill engine says no to a room that nobody has opened yet, and that is not remembered."""
    b.change(
        PROOMS, b.rows(PROOMS, PRoom.UNKNOWN, ev.EngineRefused), verb="ignore", target=PRoom.UNKNOWN, let=None, do=()
    )


@mutation("taken-back-and-read", "withdraw", "S12")
def taken_back_and_read(b: TablePatch) -> None:
    """A send that queues for a slot does not hear that its KV was taken back."""
    b.change(
        SENDS, b.rows(SENDS, PSend.AWAIT_SLOT, ev.KvWithdrawn), verb="ignore", target=PSend.AWAIT_SLOT, let=None, do=()
    )


@mutation("given-back-again", "deep-tombstone-link", "S6")
def given_back_again(b: TablePatch) -> None:
    """A room that nobody here has opened is given back, too (beside the catalogue)."""
    for guard in ("aborted_unheard_of", "unheard_of", "unowned"):
        b.drop(PROOMS, b.rows(PROOMS, PRoom.DRAINING, ev.SendsStopped, guard))
