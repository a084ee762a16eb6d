"""Diagrams: everything in a table is in its picture, and the picture can be read."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kvproto.cli import main as kvproto_main
from kvproto.fsm.table import Table
from kvproto.protocol.states import Cause
from kvproto.protocol.tables import TABLES
from kvproto.verify.claims.kv import KV
from kvproto.verify.cli.draw_command import main
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.draw.diagram import DiagramOptions, sketch
from kvproto.verify.framework.draw.layers import DiagramLayout, place
from kvproto.verify.framework.draw.mermaid import mermaid
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.draw.sequence_svg import sequence_svg
from kvproto.verify.framework.draw.svg import BIAS, _label_size, _reading_order, _size, svg

LONGEST = DiagramOptions(guards=True, effects=True)
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
SVG = "{http://www.w3.org/2000/svg}"
Boxes = list[tuple[float, float, float, float]]


@every_table
def test_the_way_that_goes_well_is_made_of_rows(table: Table[Any]) -> None:
    steps = {(row.source.name, row.target.name) for row in table.rows if row.verb == "row"}
    way = [state.name for state in table.success_path]
    assert way[0] == table.initial.name
    assert set(pairwise(way)) <= steps
    assert not set(way) & {state.name for state in table.failure_states}
    assert all(state in tuple(table.states) for state in (*table.success_path, *table.failure_states))


@every_table
@pytest.mark.parametrize(
    "look", [DiagramOptions(), DiagramOptions(fold=0), LONGEST], ids=["usual", "unfolded", "longest"]
)
def test_every_row_that_is_shown_is_on_one_edge(table: Table[Any], look: DiagramOptions) -> None:
    picture = sketch(table, look)
    drawn = [index for edge in picture.edges for index in edge.rows]
    assert sorted(drawn) == [r.index for r in table.rows if r.verb == "row" and r.target is not r.source]
    assert {state.name for state in table.states} <= {node.name for node in picture.nodes}


@every_table
def test_an_edge_leads_from_its_rows_source_to_their_target(table: Table[Any]) -> None:
    picture = sketch(table)
    stands_for = {node.name: node.many or (node.name,) for node in picture.nodes}
    for edge in picture.edges:
        rows = [table.rows[index] for index in edge.rows]
        assert {row.target.name for row in rows} == {edge.target}
        assert {row.source.name for row in rows} <= set(stands_for[edge.source])
        assert {row.event.__name__ for row in rows} == {line.partition(" [")[0] for line in edge.lines}


@every_table
@pytest.mark.parametrize("fold", [0, DiagramOptions().fold])
def test_no_two_edges_of_a_state_say_the_same(table: Table[Any], fold: int) -> None:
    picture = sketch(table, DiagramOptions(fold=fold))
    stands_for = {node.name: node.many or (node.name,) for node in picture.nodes}
    said: dict[tuple[str, str], str] = {}
    for edge, line in [(each, line) for each in picture.edges for line in each.lines]:
        for source in stands_for[edge.source]:
            assert said.setdefault((source, line), edge.target) == edge.target


@every_table
def test_mermaid_names_every_node_and_styles_every_edge_once(table: Table[Any]) -> None:
    text = mermaid(sketch(table))
    edges = re.findall(r"^    (\w+) -->\|\"[^\"\[\]]+\"\| (\w+)$", text, re.MULTILINE)
    nodes = re.findall(r"^    (\w+)[(\[].*:::(\w+)$", text, re.MULTILINE)
    styled = [int(i) for line in re.findall(r"linkStyle ([\d,]+) ", text) for i in line.split(",")]
    assert sorted(styled) == list(range(len(edges))) == list(range(len(sketch(table).edges)))
    assert {end for edge in edges for end in edge} <= {name for name, _ in nodes}
    assert {kind for _, kind in nodes} <= set(re.findall(r"classDef (\w+)", text))


def placed(table: Table[Any], look: DiagramOptions) -> tuple[DiagramLayout, Boxes]:
    """The layout as the picture has it, and everything in it that takes room: (left, top, right, bottom)."""
    picture = sketch(table, look)
    nodes = [picture.nodes[i] for i in _reading_order(picture)]
    at = {node.name: i for i, node in enumerate(nodes)}
    ends = [(at[e.source], at[e.target], _label_size(e), e.kind) for e in picture.edges]
    plan = place([_size(node) for node in nodes], [BIAS[node.kind] for node in nodes], ends)
    boxes = [(i.x - i.left, i.y - i.height / 2, i.x + i.right, i.y + i.height / 2) for i in plan.items]
    return plan, boxes


@every_table
@pytest.mark.parametrize("look", [DiagramOptions(), LONGEST], ids=["usual", "with guards and effects"])
def test_no_box_and_no_label_lies_on_another(table: Table[Any], look: DiagramOptions) -> None:
    _, boxes = placed(table, look)
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other_left, other_top, other_right, other_bottom in boxes[i + 1 :]:
            apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
            assert apart


@every_table
def test_the_way_that_goes_well_is_one_straight_line(table: Table[Any]) -> None:
    plan, _ = placed(table, DiagramOptions())
    names = [state.name for state in table.success_path]
    picture = sketch(table)
    order = [picture.nodes[i].name for i in _reading_order(picture)]
    places = [plan.items[order.index(name)] for name in names]
    assert max(p.x for p in places) - min(p.x for p in places) < 2
    assert [p.y for p in places] == sorted(p.y for p in places)


@every_table
def test_the_svg_is_well_formed_and_has_every_state_and_row(table: Table[Any]) -> None:
    text = svg(sketch(table, DiagramOptions(fold=0)))
    root = ET.fromstring(text)  # noqa: S314 - our own
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert ids == [f"{table.name}.{state.name}" for state in table.states]
    rows = {int(i) for each in root.iter() for i in (each.get("data-rows") or "").split()}
    assert rows == {row.index for row in table.rows if row.verb == "row" and row.target is not row.source}
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert svg(sketch(table, DiagramOptions(fold=0))) == text


@every_scene
def test_a_scene_is_played_by_the_rules_and_drawn_the_same_each_time(scene: Scene) -> None:
    stage = scene.play()
    assert not stage.reports
    room = scene.subjects[0]
    ends = {"abort": Cause.DECODE_ABORTED, "lost": Cause.LINK_LOST}
    assert stage.outcomes["D0", room] is ends.get(scene.name, Cause.NONE)


@every_scene
def test_a_scene_s_picture_has_every_arrow_and_every_word(scene: Scene) -> None:
    chart = scene.chart(KV.told(), states=True)
    groups = list(ET.fromstring(sequence_svg(chart)).iter(f"{SVG}g"))  # noqa: S314 - our own
    kinds = Counter(each.get("class") for each in groups)
    for arrow, kind in (("->>", "said"), ("--x", "said lost"), ("-)", "said data")):
        assert kinds[kind] == sum(arrow in line.partition(":")[0] for line in chart.splitlines())
    assert kinds["note"] == chart.count("Note over")
    told = " ".join(line.partition(": ")[2] for line in chart.splitlines()).replace("<br/>", " ")
    said = [each for each in groups if each.get("class") in {"note", "said", "said lost", "said data"}]
    shown = " ".join(text.text or "" for each in said for text in each)
    assert Counter(shown.split()) == Counter(told.split())


def test_a_line_that_is_none_of_a_scene_s_is_refused() -> None:
    with pytest.raises(ValueError, match="no such line: loop for ever"):
        sequence_svg("sequenceDiagram\n    participant A\n    loop for ever\n")


def test_the_command_writes_what_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, suffix in (("mermaid", "mmd"), ("svg", "svg"), ("md", "md")):
        assert main(["decode_link", "--format", form, "--out", str(tmp_path)]) == 0
        assert (tmp_path / f"decode_link.{suffix}").stat().st_size > 500
    assert main(["decode_grant", "--guards", "--effects"]) == 0
    assert "last_part" in capsys.readouterr().out
    assert main(["--scene", "abort"]) == 0
    assert "ABORT" in capsys.readouterr().out
    assert kvproto_main(["draw", "no_such_machine"]) == 2
    assert "prefill_send" in capsys.readouterr().err
