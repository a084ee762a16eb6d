"""The demonstration layer by layer: what it carries is right, and what it compares is what it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("nixl")
pytest.importorskip("rich")

from kvproto.lab.cli.demo_command import main, parser
from kvproto.lab.cli.demo_run import make_run
from kvproto.lab.demo import by_layer
from kvproto.lab.demo.conduct import DemoResult, Pass, conduct
from kvproto.lab.demo.controls import row_hashes
from kvproto.lab.demo.job import DemoJob, GroupShape, RoomSpec
from kvproto.lab.demo.run import Run, chunk_bytes


def test_rooms_that_leave_layer_by_layer_are_continued_with_the_same_tokens() -> None:
    """Each request says how it is cut; KV is compared by hashes, which also find planted corruptions."""
    rooms = by_layer.make_rooms(((40, 1), (150, 1)), (0, 1, 4), 3, warm=True)
    job = DemoJob(GroupShape(2), GroupShape(1, page_size=64), rooms, layers=4, chunk=64, hashed=True)
    how = by_layer.carried("cpu", "device") | {"cell": 64}
    run = Run(job, 3 * chunk_bytes(job), ("live", "live_layers"), warm=True, window=8, slots=8, **how)
    result = conduct(run)
    assert result.wrong == []
    assert result.tokens == 2 * 3 * len(rooms) and result.controls[0] == result.controls[1] > 0
    whole, cut = result.passes
    assert set(whole.groups.values()) == {1}
    asked = {room.room: room.layer_groups for room in rooms}
    assert all(cut.groups[room] == groups for room, groups in asked.items() if groups)
    assert cut.counts["writes"] == 2 * cut.counts["chunks"] > whole.counts["writes"]
    rows = by_layer.rows(result)
    assert [(row["tokens"], row["asked"]) for row in rows] == [(n, way) for n in (40, 150) for way in (0, 1, 4)]
    assert all(row[way]["whole"] > row[way]["prefill"] > 0 for row in rows for way in ("without", "by_layer"))


def test_a_hash_stands_for_every_byte_of_its_row_and_for_no_other_row() -> None:
    rows = torch.randint(256, (2, 5, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    kept = row_hashes(rows)
    assert kept.shape == (2, 5, 8) and kept.dtype == torch.uint8 and torch.equal(kept, row_hashes(rows.clone()))
    for byte in range(24):
        other = rows.clone()
        other[1, 3, byte] ^= 1
        differs = (row_hashes(other) != kept).any(-1)
        assert differs.nonzero().tolist() == [[1, 3]]


def test_a_gain_is_of_medians_of_the_same_length() -> None:
    rooms = by_layer.make_rooms(((10, 2), (20, 1)), (0, 2), 2, warm=False)
    assert [(room.tokens, room.layer_groups) for room in rooms] == [(10, 0)] * 2 + [(10, 2)] * 2 + [(20, 0), (20, 2)]
    run = Run(DemoJob(GroupShape(1), GroupShape(1), rooms, layers=2), 1 << 20, ("live", "live_layers"))

    def spans(seconds: float) -> dict[str, list[float]]:
        return {part: [seconds] for part in ("prefill", "transfer", "wait", "token", "whole")}

    whole = Pass("live", rooms={room.room: spans(1.0 + room.room) for room in rooms})
    cut = Pass("live_layers", rooms={room.room: spans(1.0) for room in rooms}, groups=dict.fromkeys(range(1, 7), 2))
    rows = by_layer.rows(DemoResult(run, [whole, cut]))
    assert [round(row["gain"], 3) for row in rows] == [round(1 - 1 / 3.5, 3)] * 2 + [round(1 - 1 / 6.5, 3)] * 2
    assert by_layer.rows(DemoResult(run, [whole])) == []


def test_arguments_become_a_run_that_goes_layer_by_layer() -> None:
    run = make_run(parser().parse_args(["--by-layer", "--lengths", "100*2,300", "--layer-groups", "0,4"]))
    assert run.passes == ("live", "live_layers") and run.alone and run.ring_only and not run.job.hashed
    assert [(room.tokens, room.layer_groups) for room in run.timed][:3] == [(100, 0), (100, 0), (100, 4)]
    assert run.first[0].tokens == 300
    assert run.chunk_tokens_of("live") < run.chunk_tokens_of("live_layers") == run.job.chunk
    assert run.settings("live").layer_groups == 1 < run.settings("live_layers").layer_groups
    assert make_run(parser().parse_args(["--by-layer", "--lengths", "9000", "--device", "cuda"])).job.hashed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--by-layer --lengths 0", "'0' is not from 1"),
        ("--by-layer --lengths 10*x", "no whole number"),
        ("--by-layer --lengths 10 --layer-groups 64", "64 layer groups"),
        ("--by-layer --lengths 9000 --passes staged", "nothing is kept"),
    ],
)
def test_what_cannot_go_layer_by_layer_is_refused(text: str, why: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stop:
        main(text.split())
    assert stop.value.code == 2 and why in capsys.readouterr().err
    with pytest.raises(ValueError, match="no prefix is kept"):
        DemoJob(GroupShape(1), GroupShape(1), (RoomSpec(1, 64, 16),), hashed=True)
