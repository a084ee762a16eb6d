"""Conversations of several turns: what goes back is right, what is saved is counted, faults are found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("nixl")
pytest.importorskip("rich")

from kvproto.lab.demo import turns_report
from kvproto.lab.demo.job import DemoJob, GroupShape, RoomSpec
from kvproto.lab.demo.run import Run, chunk_bytes
from kvproto.lab.demo.turns import Turn, make_turns
from kvproto.lab.demo.turns_conduct import conduct_turns

ROOMS = (RoomSpec(1, 71, new=9), RoomSpec(2, 40, new=9))


def run(p: GroupShape, d: GroupShape, **more: Any) -> Run:
    job = DemoJob(p, d, ROOMS, layers=2, chunk=32, **more)
    return Run(job, 2 * chunk_bytes(job), ("live",))


def test_a_turn_begins_where_the_one_before_has_kv() -> None:
    talks = make_turns(run(GroupShape(1), GroupShape(1, page_size=32)), 3)
    assert talks.turns[1] == (Turn(0, 71, 9), Turn(79, 88, 9), Turn(96, 105, 9))
    assert [each.input for each in talks.turns[1]] == [71, 9, 9] and talks.turns[1][-1].after == 113
    assert [room.tokens for room in talks.run.job.rooms] == [105, talks.turns[2][-1].tokens]
    assert (talks.at_prefill(1, 0), talks.at_decode(1, 1)) == (64, 64)
    with pytest.raises(ValueError, match="--new 2 or more"):
        make_turns(replace(talks.run, job=replace(talks.run.job, rooms=(RoomSpec(1, 40, new=1),))), 2)


@pytest.mark.parametrize(
    ("p", "d", "more"),
    [
        (GroupShape(2), GroupShape(1), {}),
        (GroupShape(1, page_size=64, order="HND"), GroupShape(2), {"family": "qwen3"}),
    ],
    ids=["2->1", "1->2"],
)
def test_answers_come_back_and_every_bit_is_that_of_the_model_alone(p: GroupShape, d: GroupShape, more: Any) -> None:
    result = conduct_turns(make_turns(run(p, d, **more), 3))
    assert result.wrong == []
    assert result.tokens == 2 * 3 * 9
    rows, saved = turns_report.rows(result), turns_report.saving(result)
    assert [row["back"] for row in rows] == [0, 16, 16] and saved["tokens"] == 32
    assert [row["prompt"] for row in rows] == [row["own"] + row["back"] + row["computed"] for row in rows]
    # K and V of 4 heads of 16 in 2 layers; P's last page comes back whole
    token = 2 * 2 * 4 * 16 * 2
    assert 32 * token <= saved["bytes"] <= (32 + 4 * p.page_size) * token
    assert saved["back_s"] > 0 < saved["recomputed_s"]
    assert json.loads(json.dumps(turns_report.as_json(result)))["saving"] == saved


def test_what_comes_back_wrong_is_found() -> None:
    result = conduct_turns(make_turns(run(GroupShape(1), GroupShape(1)), 2), players="demo_faults")
    assert any("P0 differs in layer" in text for text in result.wrong)
