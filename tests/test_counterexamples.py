"""Counterexamples that once went wrong are walked again: none of them may go wrong any more.

Each file of spec/counterexamples holds the world and the way to a broken property as it was found.  `STORIES` says what
was wrong, and plants it again, so that a way that no longer breaks anything is known to have broken it once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvproto.protocol import events as ev
from kvproto.protocol.states import DLink, PLink, PSend, PWrite
from kvproto.protocol.tables.links import decode_link, prefill_link, say_reset
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.tables.prefill_write import prefill_write
from kvproto.verify.check.story import replay
from kvproto.verify.cli.replay_command import main
from kvproto.verify.framework.table_patching import TablePatch

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "spec" / "counterexamples").glob("*.jsonl"))


def resets_from_callers(b: TablePatch) -> None:
    rows = b.rows(decode_link, (DLink.AWAIT_WELCOME, DLink.AWAIT_RETURN), ev.HeartbeatReceived)
    b.change(decode_link, rows, verb="row", do=(say_reset,))


def resets_unexpected(b: TablePatch) -> None:
    resets_from_callers(b)
    b.change(prefill_link, b.rows(prefill_link, PLink.AWAIT_WIRE_UP, ev.ResetReceived), verb="refuse")


def pages_without_lease(b: TablePatch) -> None:
    def produced(v: object, e: object, now: float) -> bool:
        del e, now
        return bool(getattr(v, "kv", False))

    def last(v: object, e: ev.BatchReady, now: float) -> bool:
        del v, now
        return e.last

    rows = b.rows(prefill_send, PSend.AWAIT_PAGES, ev.PagesGranted, "produced_in_time")
    b.change(prefill_send, rows, when=produced)
    b.change(prefill_send, b.rows(prefill_send, PSend.AWAIT_PERMIT, ev.PermitTaken, "may_begin"), when=None)
    b.change(prefill_write, b.rows(prefill_write, PWrite.POSTING, ev.BatchReady, "lease_holds_for_last"), when=last)


STORIES: dict[str, Callable[[TablePatch], None]] = {
    "beat-before-welcome": resets_from_callers,
    "late-pages-answer": pages_without_lease,
    "reset-for-a-former-life": resets_unexpected,
}


def broken_now(path: Path) -> str | None:
    """The property that the recorded way breaks now; None if none, or if the way is gone."""
    try:
        return replay(path.read_text())[1]
    except LookupError:
        return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_does_not_happen_any_more(path: Path) -> None:
    assert broken_now(path) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_happens_when_the_fault_is_planted_again(path: Path) -> None:
    with TablePatch() as bench:
        STORIES[path.stem](bench)
        once, now = replay(path.read_text())
    assert now == once


def test_they_are_stepped_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path) for path in FILES]) == 0
    said = capsys.readouterr().out
    assert said.count("cannot happen any more") + said.count("now everything holds") == len(FILES)
    with TablePatch() as bench:
        STORIES["late-pages-answer"](bench)
        assert main([str(path) for path in FILES if path.stem == "late-pages-answer"]) == 1
    assert "now S4 is broken" in capsys.readouterr().out
