"""Top: what `kvproto top` shows of numbers that are written down here."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from kvproto.cli import top_command
from kvproto.cli.top_command import CLEAR, Ranks, main, screen

WHO = ("decode", "2", "0")
MANY = {f"kind {number}": 10.0 * number for number in range(1, 9)}
NOW: Ranks = {
    WHO: {
        ("up", ()): 1.0, ("snapshot_age_seconds", ()): 1.0, ("rooms", ("OPEN",)): 3.0,
        **{(name, (what,)): value for what, value in MANY.items()
           for name in ("outcomes_total", "parts_total", "staging_fallbacks_total", "timer_ends_total",
                        "anomalies_total")},
        ("slots", ("free",)): 4.0, ("slot_queue", ()): 2.0,
        ("ring_bytes", ("size",)): 200.0, ("ring_bytes", ("used",)): 50.0, ("oldest_grant_seconds", ()): 7.0,
        ("space_queue", ()): 5.0,
        ("links", ("UP",)): 2.0, ("link_missed_heartbeats", ("1",)): 1.0, ("link_missed_heartbeats", ("2",)): 3.0,
        ("pass_seconds_count", ()): 100.0, ("pass_seconds_bucket", ("0.001",)): 98.0,
        ("pass_seconds_bucket", ("0.01",)): 99.0, ("pass_seconds_bucket", ("0.1",)): 100.0,
    }
}  # fmt: skip
FORMER: Ranks = {WHO: {key: value - 4.0 for key, value in NOW[WHO].items()}}
RISE = [f"kind {number} {10 * number} (2.0/s)" for number in range(8, 0, -1)]
ALL, SIX = ", ".join(RISE), ", ".join(RISE[:6])
SHOWN = f"""\
decode rank 0 of group 2
  rooms             OPEN 3
  outcomes          {ALL}
  parts             {ALL}
  staging fallbacks {SIX}
  slots             free 4; queue 2
  ring bytes        used 25 %; oldest grant 7 s, queue 5
  links             UP 2; most beats missed 3
  timer ends        {SIX}
  anomalies         {SIX}
  pass seconds      100, 99 % within 0.01 s"""


def test_a_screen_has_every_number_in_its_place() -> None:
    assert screen(NOW, FORMER, 2.0) == SHOWN
    assert screen({}, {}, 2.0) == "no endpoint is served here"
    assert screen({WHO: {("snapshot_age_seconds", ()): 2.0}}, {}, 2.0).startswith(
        "decode rank 0 of group 2, closed or broken, as of 2 s ago\n"
    )


def test_screens_follow_each_other_until_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, slept = [NOW, FORMER], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr(top_command, "read", lambda _: answers.pop())
    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["http://here", "--every", "2"]) == 0
    assert slept == [2.0, 2.0]
    first, second = capsys.readouterr().out.split(CLEAR)[1:]
    assert "/s)" not in first and second == f"{SHOWN}\n"


@pytest.mark.parametrize("how", [["--once"], ["--json"]])
def test_one_screen_leaves_the_terminal_as_it_is(
    how: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top_command, "read", lambda _: NOW)
    assert main(["http://here", *how]) == 0
    said = capsys.readouterr().out
    if how == ["--once"]:
        assert said == f"{screen(NOW, {}, 2.0)}\n"
    else:
        (told,) = json.loads(said)
        assert (told["side"], told["group"], told["rank"]) == WHO
        assert told["numbers"]["up"] == 1.0 and told["numbers"]["parts_total"] == MANY
