"""Whole runs of the torture, and what they find in ranks that have a fault."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.night import DAY

from kvproto import cli
from kvproto.io.transports.base import BackendUnavailable
from kvproto.lab.cli import torture_command
from kvproto.lab.torture import conduct
from kvproto.lab.torture.plan import SIZES, TortureSize, make_plan
from kvproto.lab.torture.result import TortureResult, slope
from kvproto.lab.torture.soak import FLAT_BYTES, soak

#: eight processes, each of which loads torch, on a machine that may have other things to do
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def nixl() -> None:
    try:
        import nixl._api  # noqa: F401
    except (ImportError, BackendUnavailable):
        pytest.skip("nixl is not installed here")


def test_a_short_run_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = TortureSize(rooms=80, episodes=1, strikes=4, troubled=0.3) if DAY else SIZES["short"]
    counts = "--rooms", str(size.rooms), "--episodes", str(size.episodes)
    code = torture_command.main(["--seed", "1", "--json", "--traces", str(tmp_path / "traces"), *counts])
    told = json.loads(capsys.readouterr().out)
    assert told["found"] == []
    assert code == 0
    assert told["rooms"] + told["troubles"].get("intruder", 0) >= size.rooms
    assert sum(told["strikes"].values()) == size.episodes * size.strikes
    assert told["faults"] == sum(told["strikes"].values()) + sum(told["troubles"].values())
    assert told["undisturbed"] > size.rooms / 3
    assert told["hits"] > 0
    assert told["judged"] > 25 * size.rooms
    assert not (tmp_path / "traces").exists()


def calm_run(traces: Path, players: str) -> TortureResult:
    plan = make_plan(5, TortureSize(rooms=48, episodes=0, strikes=0, troubled=0.0))
    return conduct.torture(plan, "nixl-tcp", traces, players=players)


def test_faults_that_are_built_in_are_found_and_their_story_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conduct, "HANG_S", 5.0)
    monkeypatch.setattr(conduct, "REST_S", 4.0)
    result = calm_run(tmp_path, "torture_faults:several")
    by_kind = {text.partition(":")[0]: text for text in result.found}
    assert by_kind.keys() >= {"wrong", "hang", "leak", "conformance"}
    assert re.search(r"D1: decode_grant: .*not the one that the step before has left", by_kind["conformance"])
    assert re.search(r"way \(\d, 12\)\): E0: [KV] of local layer \d: \d+ of \d+ tokens are wrong", by_kind["wrong"])
    assert re.search(r"way \(\d, 11\)\): D0: room .* (is done|is over)", by_kind["hang"])
    assert "Q0: descriptors" in "".join(result.found)
    assert not result.ok
    traces = sorted(map(str, tmp_path.glob("*.jsonl")))
    assert [Path(each).stem for each in traces] == ["D0", "D1", "E0", "P0", "P1", "Q0"]
    assert cli.main(["replay", *traces]) == 0
    assert capsys.readouterr().out.count("as the tables say") == 6
    found = (tmp_path / "found.txt").read_text()
    named = re.match(r"\w+: room (\d+) gen (\d+) ", found)
    assert named is not None
    assert cli.main(["trace", *traces, "--room", f"{named[1]}.{named[2]}"]) == 0
    assert "RoomOpened" in capsys.readouterr().out


def test_a_rank_that_dies_is_found_and_the_others_tell_their_story(tmp_path: Path) -> None:
    result = calm_run(tmp_path, "torture_faults:one_dies")
    assert [text for text in result.found if text.startswith("death: P1 failed: killed by SIGABRT")]
    assert (tmp_path / "D0.jsonl").exists()
    assert not (tmp_path / "P1.jsonl").exists()


def test_a_plan_is_told_without_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert torture_command.main(["--seed", "7", "--plan"]) == 0
    once = capsys.readouterr().out
    assert torture_command.main(["--seed", "7", "--plan"]) == 0
    assert capsys.readouterr().out == once
    assert once.count("after ") == SIZES["short"].episodes


# ------------------------------------------------------------------------------------------------------- soak
def test_a_soak_carries_every_room_and_holds_no_more_at_the_end() -> None:
    result = soak(2000, "nixl-tcp", batch=500)
    assert result.rooms == 2000
    assert [text for text in result.found if "bytes a room" not in text] == []
    assert [len(samples) for samples in result.rss.values()] == [4, 4]


def test_the_slope_is_that_of_the_second_half() -> None:
    rooms = [1000.0 * batch for batch in range(1, 21)]
    full = [min(n, 8000.0) * 300 for n in rooms]
    assert slope(rooms, full) == 0.0
    leak = [n * 16 + extra for n, extra in zip(rooms, full, strict=True)]
    assert slope(rooms, leak) == pytest.approx(16.0)
    assert slope(rooms, leak) > FLAT_BYTES
    assert slope(rooms[:1], leak[:1]) == 0.0
