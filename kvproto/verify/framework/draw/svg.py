"""A sketch as an SVG picture, without any other program.

Its colours are variables with a light and a dark set: alone in a page the picture follows the reader's choice.  Every
box has the id `TABLE.STATE` and every edge lists its rows in `data-rows`, so that a page around the picture (the
inspector) can light them.  Text is in a fixed-width face, because then its width is known.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Literal

from kvproto.verify.framework.draw.diagram import DiagramBox, DiagramSketch, Edge
from kvproto.verify.framework.draw.layers import DiagramLayout, Item, RoutedEdge, place

Theme = Literal["auto", "light", "dark"]
WIDE, SMALL = 7.3, 6.1
MARGIN = 16.0
BIAS = {"well": 0.0, "detour": 1.0, "apart": 2.0}

LIGHT = (
    "--ink:#1f2328;--soft:#59636e;--page:#ffffff;--well:#1a7f37;--detour:#6e7781;--apart:#c4323c;"
    "--fill:#f6f8fa;--wellfill:#dafbe1;--apartfill:#ffebe9"
)
DARK = (
    "--ink:#e6edf3;--soft:#9da7b3;--page:#0d1117;--well:#3fb950;--detour:#8b949e;--apart:#f2727b;"
    "--fill:#21262d;--wellfill:#12361f;--apartfill:#42171b"
)
STYLE = """
.page{fill:var(--page)} text{font-family:ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;fill:var(--ink)}
.box rect{fill:var(--fill);stroke:var(--detour);stroke-width:1.2}
.box.well rect{fill:var(--wellfill);stroke:var(--well);stroke-width:1.8}
.box.apart rect{fill:var(--apartfill);stroke:var(--apart)}
.box.many rect{fill:none;stroke-dasharray:3 3} .box.many text,.box .timer{fill:var(--soft)}
.name{font-size:12px;font-weight:600} .small{font-size:10px}
.edge path{fill:none;stroke:var(--detour);stroke-width:1.3} .edge polygon{fill:var(--detour)}
.edge.well path{stroke:var(--well);stroke-width:3} .edge.well polygon{fill:var(--well)}
.edge.apart path{stroke:var(--apart);stroke-dasharray:5 3} .edge.apart polygon{fill:var(--apart)}
.edge text{paint-order:stroke;stroke:var(--page);stroke-width:3px;stroke-linejoin:round}
"""


def svg(picture: DiagramSketch, *, embedded: bool = False) -> str:
    """The picture; `embedded` leaves out the styles, for a page that has them already (see `stylesheet`)."""
    order = _reading_order(picture)
    nodes = [picture.nodes[i] for i in order]
    at = {node.name: i for i, node in enumerate(nodes)}
    ends = [(at[edge.source], at[edge.target], _label_size(edge), edge.kind) for edge in picture.edges]
    plan = place([_size(node) for node in nodes], [BIAS[node.kind] for node in nodes], ends)
    size = {"width": f"{plan.width + 2 * MARGIN:.0f}", "height": f"{plan.height + 2 * MARGIN:.0f}"}
    lines = sorted(zip(plan.lines, picture.edges, strict=True), key=lambda pair: pair[1].kind == "well")
    drawn = [_edge(plan, line, edge) for line, edge in lines]
    drawn += [_box(picture.table, node, plan.items[i]) for i, node in enumerate(nodes)]
    inside = _tag("g", "\n".join(drawn), transform=f"translate({MARGIN:.0f},{MARGIN:.0f})")
    if not embedded:
        inside = f"<style>{stylesheet()}</style>\n" + _tag("rect", **{"class": "page"}, **size) + "\n" + inside
    named = {"class": "kvproto", "role": "img", "aria-label": picture.table}
    box = f"0 0 {size['width']} {size['height']}"
    return _tag("svg", inside, xmlns="http://www.w3.org/2000/svg", **named, viewBox=box, **size) + "\n"


def _tag(name: str, inside: str = "", **attributes: object) -> str:
    """An element; numbers are rounded to a tenth of a pixel."""
    said = "".join(
        f' {key}="{f"{value:.1f}" if isinstance(value, float) else value}"' for key, value in attributes.items()
    )
    return f"<{name}{said}>{inside}</{name}>" if inside else f"<{name}{said}/>"


def _line(text: str, x: float, y: float, kind: str, *, middle: bool = True) -> str:
    more = {"text-anchor": "middle"} if middle else {}
    return _tag("text", escape(text), **{"class": kind}, x=x, y=y, **more)


def stylesheet(theme: Theme = "auto") -> str:
    if theme == "auto":
        return f"svg.kvproto{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg.kvproto{{{DARK}}}}}{STYLE}"
    return f"svg.kvproto{{{LIGHT if theme == 'light' else DARK}}}{STYLE}"


def _reading_order(picture: DiagramSketch) -> list[int]:
    """Return the nodes from the top down: states by number, a folded box just before its target."""
    names = {node.name: i for i, node in enumerate(picture.nodes)}
    order = [i for i, node in enumerate(picture.nodes) if not node.many]
    for edge in picture.edges:
        if picture.nodes[names[edge.source]].many:
            order.insert(order.index(names[edge.target]), names[edge.source])
    return order


def _size(node: DiagramBox) -> tuple[float, float]:
    if node.many:
        return max(len(name) for name in node.many) * SMALL + 14, len(node.many) * 13 + 8.0
    timer = (len(node.timer) + 6) * SMALL if node.timer else 0
    return max(len(node.name) * WIDE, timer) + 22, 40.0 if node.timer else 30.0


def _label_size(edge: Edge) -> tuple[float, float]:
    return max(len(line) for line in edge.narrow) * SMALL + 12, len(edge.narrow) * 13.0 + 8


def _box(table: str, node: DiagramBox, item: Item) -> str:
    left, top, width = item.x - item.left, item.y - item.height / 2, item.left + item.right
    corner = 15 if node.first or node.last else 5
    drawn = _tag("rect", x=left, y=top, width=width, height=item.height, rx=corner)
    if node.last:
        drawn += _tag("rect", x=left + 3, y=top + 3, width=width - 6, height=item.height - 6, rx=corner - 3)
    if node.many:
        drawn += "".join(_line(name, item.x, top + 14 + 13 * k, "small") for k, name in enumerate(node.many))
        return _tag("g", drawn, **{"class": "box many"})
    drawn += _line(node.name, item.x, item.y + (-1 if node.timer else 4), "name")
    if node.timer:
        drawn += _line(f"timer {node.timer}", item.x, item.y + 13, "small timer")
    return _tag("g", drawn, **{"class": f"box {node.kind}"}, id=f"{table}.{node.name}")


def _edge(plan: DiagramLayout, line: RoutedEdge, edge: Edge) -> str:
    points = _points(plan, line)
    if line.upwards:
        points.reverse()
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x, y, slope), (u, v, slant) in pairwise(points):
        third = (v - y) * 0.45
        begin, end = _between(x, x + slope * third, u), _between(x, u - slant * third, u)
        path += f" C{begin:.1f},{y + third:.1f} {end:.1f},{v - third:.1f} {u:.1f},{v:.1f}"
    x, y, _ = points[-1]
    back = 8 if line.upwards else -8
    drawn = _tag("path", d=path)
    drawn += _tag("polygon", points=f"{x:.1f},{y:.1f} {x - 4:.1f},{y + back:.1f} {x + 4:.1f},{y + back:.1f}")
    label = plan.items[line.label]
    top = label.y - label.height / 2 + 11
    drawn += "".join(_line(t, label.x + 6, top + 13 * k, "small", middle=False) for k, t in enumerate(edge.narrow))
    return _tag("g", drawn, **{"class": f"edge {edge.kind}", "data-rows": " ".join(map(str, edge.rows))})


def _between(one: float, value: float, other: float) -> float:
    """The value, or the end of the range that it is beyond: a line never swings wider than its stops."""
    return min(max(value, min(one, other)), max(one, other))


def _points(plan: DiagramLayout, line: RoutedEdge) -> list[tuple[float, float, float]]:
    """(x, y, dx/dy) from the upper end down: upright at boxes and beside the label, smooth elsewhere."""
    upper, lower = plan.items[line.stops[0]], plan.items[line.stops[-1]]
    points = [(_port(plan, line, first=True), upper.y + upper.height / 2, 0.0)]
    for before, stop, after in zip(line.stops, line.stops[1:], line.stops[2:], strict=False):
        item, above, below = plan.items[stop], plan.items[before], plan.items[after]
        if stop == line.label:
            points += [(item.x, item.y - item.height / 2, 0.0), (item.x, item.y + item.height / 2, 0.0)]
        else:
            turns = (item.x - above.x) * (below.x - item.x) <= 0
            points.append((item.x, item.y, 0.0 if turns else (below.x - above.x) / (below.y - above.y)))
    return [*points, (_port(plan, line, first=False), lower.y - lower.height / 2, 0.0)]


def _port(plan: DiagramLayout, line: RoutedEdge, *, first: bool) -> float:
    """Return the line's end on its box's edge: by the lines' other ends, the straightest in the middle."""
    box = line.stops[0 if first else -1]
    beside = 1 if first else -2
    ends = sorted((each for each in plan.lines if each.stops[0 if first else -1] == box),
                  key=lambda each: plan.items[each.stops[beside]].x)  # fmt: skip
    item = plan.items[box]
    straight = min(range(len(ends)), key=lambda i: abs(plan.items[ends[i].stops[beside]].x - item.x))
    place = ends.index(line) - straight
    space = min(24.0, (item.left - 10) / max(straight, len(ends) - 1 - straight, 1))
    return item.x + place * space
