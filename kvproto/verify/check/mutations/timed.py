"""Mutants of time: what a world without numbers cannot tell from the tables as they are."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.protocol import events as ev
from kvproto.protocol.events import TimerFired
from kvproto.protocol.states import DLink, DRoom, PLink, PRoom, PSend
from kvproto.verify.check.mutations.registry import DLINKS, DROOMS, PLINKS, PROOMS, SENDS, links, mutation, ps
from kvproto.verify.framework.table_patching import TablePatch


@mutation("prefetch-starves-ready", "timed-ready", "S9")
def prefetch_starves_ready(b: TablePatch) -> None:
    """A region is asked for when the forward is scheduled, and is empty until that ends."""

    def with_kv(v: Any, e: ev.StagingGranted, now: float) -> bool:
        return bool(e.usable and v.kv)

    def patient(v: Any, e: TimerFired, now: float) -> bool:
        return not v.kv or bool(ps.patient(v, e, now))

    b.change(SENDS, b.rows(SENDS, PSend.NEW, ev.SendOpened, "staged"), target=PSend.AWAIT_CREDIT, do=(ps.take_credit,))
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_TURN, TimerFired, "patient"), when=patient)
    granted = b.rows(SENDS, PSend.AWAIT_GRANT, ev.StagingGranted)
    b.change(SENDS, granted[1:], target=PSend.AWAIT_SLOT, do=(ps.free_credit,))
    b.change(SENDS, granted[:1], when=with_kv)
    before = PSend.AWAIT_CREDIT, PSend.AWAIT_GRANT, PSend.AWAIT_TURN, PSend.AWAIT_SLOT
    b.ignore(SENDS, before, ev.KvProduced)
    b.change(SENDS, b.rows(SENDS, before, ev.KvProduced), verb="row", let=ps.have_kv)
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_SLOT, ev.KvProduced), do=(ps.take_slot,))


@mutation("lost-turns-add-up", "timed-wait", "L1")
def lost_turns_add_up(b: TablePatch) -> None:
    """A send asks only while the ring's queue stands still, so losses are found one by one (beside the
    catalogue).
    """
    b.change(SENDS, b.rows(SENDS, PSend.AWAIT_TURN, TimerFired, "moves"), do=())


@mutation("lost-call-costs-minutes", "timed-hello", "L1")
def lost_call_costs_minutes(b: TablePatch) -> None:
    """A call is repeated by another timer, so a lost one costs five minutes (beside the catalogue)."""
    b.patch(DLINKS, "timers", DLINKS.timers | {DLink.AWAIT_WELCOME: "stall"})


@mutation("stale-reset", "timed-stale", "S9")
def stale_reset(b: TablePatch) -> None:
    """A reset of an earlier epoch ends the link that is there now (beside the catalogue)."""
    b.change(DLINKS, b.rows(DLINKS, DLink.UP, ev.ResetReceived, "same_epoch"), when=None)


@mutation("silence-uncounted", "timed-death", "L1")
def silence_uncounted(b: TablePatch) -> None:
    """A decode rank counts no beats, so a dead peer's rooms are never released (beside the catalogue)."""
    b.change(DLINKS, b.rows(DLINKS, DLink.UP, TimerFired, "heard"), let=None)


@mutation("silence-is-death", "timed-silence", "S9")
def silence_is_death(b: TablePatch) -> None:
    """Missed heartbeats are death although the connection stands (beside the catalogue)."""
    for table, up in ((PLINKS, PLink.UP), (DLINKS, DLink.UP)):
        for guard in ("falls_silent", "stands"):
            b.drop(table, b.rows(table, up, TimerFired, guard))


@mutation("write-less-patient-than-its-link", "timed-silence", "S9")
def write_less_patient_than_its_link(b: TablePatch) -> None:
    """A write to a process that is stopped fails while its link lasts (beside the catalogue)."""
    b.patch(SENDS, "timers", SENDS.timers | {PSend.WRITING: "write", PSend.WRITING_PAGES: "write"})


@mutation("silence-without-end", "timed-silent-death", "L1", "S8")
def silence_without_end(b: TablePatch) -> None:
    """A silent peer whose connection stands is never given up (beside the catalogue)."""

    def stands(v: Any, e: TimerFired, now: float) -> bool:
        return e.longest > 0

    for table, up in ((PLINKS, PLink.UP), (DLINKS, DLink.UP)):
        b.change(table, b.rows(table, up, TimerFired, "stands"), when=stands)


@mutation("beats-unheard", "timed-idle", "S9")
def beats_unheard(b: TablePatch) -> None:
    """Messages count for nothing, so every healthy link is lost every few seconds (beside the catalogue)."""

    def silent(v: Any, e: TimerFired, now: float) -> Any:
        return replace(v, silent=v.silent + 1)

    def heard(v: Any, e: TimerFired, now: float) -> bool:
        return bool(v.silent < e.tries)

    b.change(DLINKS, b.rows(DLINKS, DLink.UP, TimerFired, "heard"), when=heard, let=silent)


@mutation("answer-awaited-too-long", "timed-drop", "L1")
def answer_awaited_too_long(b: TablePatch) -> None:
    """Two timers are exchanged: that of a write and that of an answer (beside the catalogue)."""
    timers = SENDS.timers | {PSend.AWAIT_ACK: "write", PSend.AWAIT_AUX_ACK: "write", PSend.WRITING: "resend"}
    b.patch(SENDS, "timers", timers)


@mutation("engine-awaited-too-long", "timed-alone", "S8")
def engine_awaited_too_long(b: TablePatch) -> None:
    """Two timers are exchanged: of a room that awaits its engine and of one that works (beside the
    catalogue)."""
    b.patch(PROOMS, "timers", PROOMS.timers | {PRoom.AWAIT_ENGINE: "stall", PRoom.OPEN: "engine"})


@mutation("open-asked-too-late", "timed-drop", "L1")
def open_asked_too_late(b: TablePatch) -> None:
    """Two timers are exchanged: a room is opened as seldom as a working one is asked after (beside the
    catalogue)."""
    b.patch(DROOMS, "timers", DROOMS.timers | {DRoom.AWAIT_PEERS: "idle", DRoom.OPEN: "call"})


@mutation("beat-not-again", "timed-idle", "S9")
def beat_not_again(b: TablePatch) -> None:
    """A beat does not start its timer again, which is due for ever (beside the catalogue)."""
    b.change(PLINKS, b.rows(PLINKS, PLink.UP, TimerFired, "heard"), again=False)


@mutation("work-is-no-sign", "timed-pace", "S9")
def work_is_no_sign(b: TablePatch) -> None:
    """Neither computed tokens nor writes start a room's patience again (beside the catalogue)."""
    for event in (ev.TokensProduced, ev.AuxProvided, ev.SendFinished):
        b.change(PROOMS, b.rows(PROOMS, PRoom.OPEN, event), again=False)


@mutation("tried-address-forgotten", "timed-moves-drop", "L1")
def tried_address_forgotten(b: TablePatch) -> None:
    """A link that goes down during a trial calls its dead address alone, for ever (beside the catalogue)."""

    def call_again(v: Any, e: TimerFired, now: float) -> Any:
        return replace(links.call_again(v, e, now), beside="")

    b.change(DLINKS, b.rows(DLINKS, DLink.UP, TimerFired, None), let=call_again)
