"""The sketch: what a picture of one table shows, before anything is placed or coloured.

A table has too many rows to draw each.  So the rows that lead from one state to another become one *edge*, labelled
with its events; what stays where it is, what is ignored and what is refused is left out.
Where one event leads from many states to the same one, the many edges are *folded*: the sources are listed in a small
box of their own, and one edge leaves it.  Where one event leads from a state to several others, the guards say which
(`[else]`: none of those before), so that no two edges of a state look the same.

Every renderer (Mermaid, DOT, SVG) draws the same sketch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, get_args

import msgspec

from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Event, State

Kind = Literal["well", "detour", "apart"]
FOLD = 3


class DiagramOptions(msgspec.Struct, frozen=True):
    """The parts of a table that are shown."""

    #: every guard; else only those without which two edges of a state would look the same
    guards: bool = False
    effects: bool = False
    #: fold what leads from this many states to the same one; 0: never
    fold: int = FOLD


class DiagramBox(msgspec.Struct, frozen=True):
    """A box: a state, or (`many`) the states that share an edge."""

    name: str
    kind: Kind
    timer: str = ""
    first: bool = False
    last: bool = False
    many: tuple[str, ...] = ()


class Edge(msgspec.Struct, frozen=True):
    """Rows that lead from `source` to `target` (names of nodes); `lines` is its label."""

    source: str
    target: str
    kind: Kind
    lines: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def narrow(self) -> tuple[str, ...]:
        """The label with each guard on a line of its own, below its event."""
        return tuple(part for line in self.lines for part in line.replace(" [", "\n[", 1).split("\n"))


class DiagramSketch(msgspec.Struct, frozen=True):
    """A picture's content; nodes in the order of the states."""

    table: str
    nodes: tuple[DiagramBox, ...]
    edges: tuple[Edge, ...]


def sketch(table: Table[Any], look: DiagramOptions | None = None) -> DiagramSketch:
    look = look or DiagramOptions()
    drawn = [row for row in table.rows if row.verb == "row" and row.target is not row.source]
    folded = _folded(table, drawn, look.fold)
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in drawn:
        groups[folded.get(row.index, row.source.name), row.target.name].append(row)
    nodes = [_node(table, state) for state in table.states]
    nodes += [
        DiagramBox(name, "apart" if _apart(table, target) else "detour", many=tuple(name.split(" or ")))
        for name, target in dict.fromkeys((s, t) for s, t in groups if " or " in s)
    ]
    forks = _forks(drawn)
    edges = [
        Edge(source, target, _kind(table, source, target), _lines(rows, look, forks), tuple(r.index for r in rows))
        for (source, target), rows in groups.items()
    ]  # fmt: skip
    edges.sort(key=lambda edge: get_args(Kind).index(edge.kind))  # what is named first, is placed first
    return DiagramSketch(table.name, tuple(nodes), tuple(edges))


def _forks(rows: Iterable[Row]) -> set[tuple[State, type[Event]]]:
    targets: dict[tuple[State, type[Event]], set[State]] = defaultdict(set)
    for row in rows:
        targets[row.source, row.event].add(row.target)
    return {pair for pair, found in targets.items() if len(found) > 1}


def _folded(table: Table[Any], rows: Iterable[Row], fold: int) -> dict[int, str]:
    """Map a row to the box that stands for its source and others; the success path is never folded."""
    shared: dict[tuple[str, State], list[Row]] = defaultdict(list)
    for row in rows:
        if _kind(table, row.source.name, row.target.name) != "well":
            shared[_text(row, guards=True, effects=True), row.target].append(row)
    return {
        row.index: " or ".join(dict.fromkeys(r.source.name for r in same))
        for same in shared.values()
        if fold and len({r.source for r in same}) >= fold
        for row in same
    }


def _node(table: Table[Any], state: State) -> DiagramBox:
    kind: Kind = "well" if state in table.success_path else "apart" if _apart(table, state.name) else "detour"
    return DiagramBox(state.name, kind, table.timers.get(state, ""), state is table.initial, state in table.final)


def _apart(table: Table[Any], state: str) -> bool:
    return any(each.name == state for each in table.failure_states)


def _kind(table: Table[Any], source: str, target: str) -> Kind:
    names = [state.name for state in table.success_path]
    if (source, target) in pairwise(names):
        return "well"
    return "apart" if _apart(table, target) else "detour"


def _text(row: Row, *, guards: bool, effects: bool, fork: bool = False) -> str:
    text = row.event.__name__
    if (guards or fork) and row.when:
        text += f" [{row.when.__name__}]"
    elif fork:
        text += " [else]"
    if effects and row.do:
        text += " / " + ", ".join(f.__name__ for f in row.do)
    return text


def _lines(rows: list[Row], look: DiagramOptions, forks: set[tuple[State, type[Event]]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(
        _text(row, guards=look.guards, effects=look.effects, fork=(row.source, row.event) in forks) for row in rows
    ))  # fmt: skip
