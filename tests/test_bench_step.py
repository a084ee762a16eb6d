"""The step benchmark times work that is right, complete and compared; speed is not judged here."""

from __future__ import annotations

import gc

import pytest
from msgspec.structs import replace

from kvproto.lab.bench import step, step_life
from kvproto.protocol.states import PRoom
from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.trace.coverage import Collector


@pytest.fixture(autouse=True)
def _collections_see_only_what_is_new() -> None:
    """Freeze what is loaded, so that timed collections leave it out; the benchmark's end thaws it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def figures() -> dict[str, object]:
    return step.bench(300, 1)


def test_all_lives_end_as_in_the_rehearsal(figures: dict[str, object]) -> None:
    assert figures["disagreements"] == []
    assert figures["live_at_end"] == 300
    assert figures["lives"] == 300


def test_steps_are_counted_as_machines_take_them() -> None:
    with Collector(KV.counted).installed() as counts:
        rank, now, _, _ = step.measure_memory(40)
        _, script, _ = step.lives(40, 20, now + 60.0)  # longer than a lease, as with 100,000 rooms
        counts.rows.clear()
        step_life.play(rank, script, 0, len(script.makes), lambda: 0.0)
    taken = sum(n for (table, _), n in counts.rows.items() if not table.endswith("link"))
    assert taken == sum(script.steps) == len(script.fired)
    assert len(rank.rooms) == 40
    assert not rank.sends


def test_a_life_passes_through_the_whole_protocol() -> None:
    _, now, _, _ = step.measure_memory(40)
    _, script, rehearsal = step.lives(40, 30, now)
    seen = {type(event).__name__ for _, _, event in script.fired}
    assert seen >= {
        "EngineOpened", "PeerOpened", "ForwardScheduled", "TokensProduced", "AuxProvided", "SendOpened", "KvProduced",
        "StagingGranted", "SlotTaken", "Gathered", "WriteCompleted", "ChunkAcked", "AuxReady", "SendFinished",
    }  # fmt: skip
    assert sum(value.state is PRoom.DONE for value in rehearsal.tombs.values()) == 30


def test_a_room_that_ended_otherwise_is_found() -> None:
    rank, now, _, _ = step.measure_memory(40)
    alive, script, rehearsal = step.lives(40, 20, now)
    step.time_steps(rank, script)
    assert step.disagreements(rank, script, rehearsal) == []
    key = alive[3].key
    rank.tombs[key] = replace(rank.tombs[key], state=PRoom.FAILED)
    assert len(step.disagreements(rank, script, rehearsal)) == 1


def test_the_table_names_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert step.main(["--rooms", "60", "--quick"]) == 0
    text = capsys.readouterr().out
    assert "per event us" in text
    assert "disagreements" not in text
    assert "bytes per room" in text
