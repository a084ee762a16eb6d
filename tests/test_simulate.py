"""Simulations: one seed is one run, and what breaks a rule ends it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

import kvproto.protocol.ring
import kvproto.rank.prefill_queues
from kvproto.data.room_entry import RoomEntry
from kvproto.layout.caches import END, WINDOW, Cache, CachePart
from kvproto.layout.cut import Cut, Part
from kvproto.protocol.tables.prefill_room import PrefillWork
from kvproto.rank import prefill
from kvproto.settings import Route, Settings
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.cli.simulate_command import main
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing.simulation import FAULTS, Simulation
from kvproto.verify.testing.stage import TIMING

#: parts of two cuts and odd rows, and a cache on one of the two layers
CACHES = (
    Cache("kv", (CachePart("k", 4, 8), CachePart("k scale", 4, 3), CachePart("v", 2, 4))),
    Cache("index", (CachePart("key", 1, 16), CachePart("scale", 1, 5)), (1,)),
)
#: full attention on one layer, and state on both: segments of heads, of one group, and odd rows
HYBRID = (
    Cache("full", (CachePart("k", 4, 8), CachePart("v", 2, 4)), (1,)),
    Cache("state", (CachePart("x", 4, 21), CachePart("B", 1, 10), CachePart("heads", 4, 64)), (0, 1), "", END),
)
#: and a window of ten tokens on both, of heads and of a scale, in pages of its own
WINDOWED = (
    Cache("full", (CachePart("k", 4, 8), CachePart("v", 2, 4)), (1,)),
    Cache("local", (CachePart("k", 4, 12), CachePart("scale", 1, 3)), (0, 1), "", WINDOW, window=10),
)
#: all of it in one model
BOTH = *HYBRID, WINDOWED[1]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_seed_is_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (run(capsys, "--rooms", "60", "--seed", seed) for seed in ("3", "3", "4"))
    for said in (first, again):
        said.pop("seconds"), said.pop("rooms_per_s")
    assert first == again and first["digest"] != other["digest"]
    assert first["outcomes"]["NONE"] > 60 and first["rooms"] == 60
    assert {"lose", "repeat", "reorder"} <= {name for name, count in first["faults"].items() if count}


def test_another_process_sees_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "kvproto.verify.cli.simulate_command", "--rooms", "25", "--seed", "5", "--json"]
    told = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True, check=True).stdout
    assert json.loads(told)["digest"] == run(capsys, *command[3:-1])["digest"]


def test_without_faults_every_room_succeeds_and_the_ring_is_used_hard(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "--rooms", "40", "--faults", "none", "--tp", "2x2", "--ring", "2048")
    assert said["outcomes"] == {"NONE": 160}
    seen = said["witnesses"]
    assert min(seen[name] for name in ("deferrals", "waited for the watermark", "rounds of the ring", "pieces")) > 10


def test_a_fault_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["--faults", "gremlins"])


@pytest.mark.parametrize(
    ("defect", "said"),
    [("late-write-after-abort", "that is over|holds nothing|unknown room"),
     ("room-id-reuse", "holds nothing|healthy|was never granted"),
     ("scatter-after-release", "no room may write them|no scatter is under way"),
     ("request-during-teardown", "breaks the protocol"),
     ("success-before-all-chunks", "wrong bytes|breaks the protocol"), ("slot-reuse", "wrong bytes|is not theirs"),
     ("chunk-offset-not-advanced", "lands at")],
)  # fmt: skip
def test_a_planted_row_ends_a_simulation(defect: str, said: str) -> None:
    breaches = []
    for seed in range(1, 7):
        with TablePatch() as bench:
            MUTANTS[defect].apply(bench)
            breaches.append(Simulation(seed, 80, tuple(FAULTS), ring=4096).run().breach)
        if re.search(said, breaches[-1]):
            return
    pytest.fail(f"{defect} was not seen; the runs said {breaches}")


def test_a_ring_that_lets_everything_be_written_at_once_ends_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kvproto.protocol.ring, kvproto.rank.prefill_queues):
        monkeypatch.setattr(module, "usable", lambda *_: True)
    assert "lands in a region that is still another's" in Simulation(1, 150, tuple(FAULTS), ring=2048).run().breach


@pytest.mark.parametrize("caches", [(), CACHES], ids=["K and V", "named caches"])
def test_an_event_of_a_former_forward_ends_a_simulation(
    monkeypatch: pytest.MonkeyPatch, caches: tuple[Cache, ...]
) -> None:
    def keep_for_all(entry: RoomEntry, _upto: int, layers: int) -> None:
        entry.marks = [(entry.tokens, layers, entry.marks[-1][2])] if entry.marks else []

    monkeypatch.setattr(RoomEntry, "forget_marks", keep_for_all)
    breaches = [Simulation(seed, 60, ("withdraw",), caches=caches).run().breach for seed in range(1, 4)]
    assert any("wrong bytes" in breach for breach in breaches), breaches


@pytest.mark.parametrize(
    ("seed", "route", "tp"), [(1, "cost", (2, 1)), (2, "pages", (2, 2)), (3, "staged", (2, 1)), (4, "pages", (1, 2))]
)
def test_named_caches_live_through_every_fault_by_every_route(seed: int, route: Route, tp: tuple[int, int]) -> None:
    settings = Settings(timing=TIMING, ring_bytes=6144, slots=2, window=2, tombstones=256, route=route)
    said = Simulation(seed, 40, tuple(FAULTS), tp=tp, settings=settings, caches=CACHES).run()
    assert said.breach == "" and said.outcomes["NONE"] > 20


@pytest.mark.parametrize(("seed", "tp"), [(1, (2, 1)), (2, (1, 2)), (3, (4, 2)), (4, (1, 1))])
@pytest.mark.parametrize("caches", [HYBRID, WINDOWED, BOTH], ids=["state", "window", "both"])
def test_state_and_windows_live_through_every_fault(seed: int, tp: tuple[int, int], caches: tuple[Cache, ...]) -> None:
    said = Simulation(seed, 40, tuple(FAULTS), tp=tp, caches=caches).run()
    assert said.breach == "" and said.outcomes["NONE"] > 20


def test_state_of_a_forward_that_was_not_the_last_ends_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = prefill._computed

    def early(work: PrefillWork, cut: Cut, part: Part) -> bool:
        return work.produced > 0 if cut.state else computed(work, cut, part)

    monkeypatch.setattr(prefill, "_computed", early)
    for caches in (HYBRID, WINDOWED, BOTH):
        assert any("wrong bytes" in Simulation(seed, 60, (), caches=caches).run().breach for seed in range(1, 4))
