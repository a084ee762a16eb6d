"""Layers: a layered layout of boxes and lines in plain Python, so an SVG needs no other program.

*Layers*: the states' own order says which way is down; each box lies below all that lead to it. Boxes take the even
layers; an edge passes each layer between its ends at a *stop*, and the stop in its middle carries the label. *Order*:
of sweeps down and up the order with the fewest crossings is kept. *Places*: each layer is placed as near to its
neighbours as the widths allow, solved exactly (pooling adjacent violators); the way that goes well is pinned to one
straight line. *Lines* run through their stops. The same sketch gives the same picture, so it can be compared with its
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

GAP_X = 22.0
GAP_Y = 26.0
SWEEPS = 24
PULL = {"well": 8.0, "detour": 2.0, "apart": 1.0}
HEAVY = 1e6
EAGER = 1.7  # over-relaxation: how far beyond its neighbours' middle an item is moved, to be there sooner


class Item(msgspec.Struct):
    """A box or a stop (pixels): it reaches `left` and `right` of `x`; `y` is the middle of its layer.

    The line runs through `x`, at a box's middle and to the left of a label.
    """

    left: float
    right: float
    height: float
    layer: int
    bias: float
    pinned: bool = False
    x: float = 0.0
    y: float = 0.0
    up: list[tuple[int, float]] = []
    down: list[tuple[int, float]] = []


class RoutedEdge(msgspec.Struct):
    """An edge: its items from the upper end to the lower, and the one that has the label."""

    stops: list[int]
    label: int
    upwards: bool


class DiagramLayout(msgspec.Struct):
    """A finished layout; the first items are the boxes, in the order in which they were given."""

    items: list[Item]
    lines: list[RoutedEdge]
    width: float = 0.0
    height: float = 0.0


Size = tuple[float, float]


def place(boxes: Sequence[Size], biases: Sequence[float], edges: Sequence[tuple[int, int, Size, str]]) -> DiagramLayout:
    """Place boxes (width, height) and edges (source, target, label size, kind); `biases` > 0 move right."""
    layers = _layers(len(boxes), edges)
    sized = zip(boxes, layers, biases, strict=True)
    plan = DiagramLayout([Item(w / 2, w / 2, height, layer, bias) for (w, height), layer, bias in sized], [])
    for source, target, label, kind in edges:
        plan.lines.append(_thread(plan.items, source, target, label, kind))
    rows = _order(plan.items)
    _spread(plan, rows)
    return plan


def _layers(count: int, edges: Iterable[tuple[int, int, Size, str]]) -> list[int]:
    down = [(min(s, t), max(s, t)) for s, t, _, _ in edges if s != t]
    layer = [0] * count
    for upper, lower in sorted(down):
        layer[lower] = max(layer[lower], layer[upper] + 2)
    for node in reversed(range(count)):  # what nothing leads to stands just above what it leads to
        below = [layer[lower] for upper, lower in down if upper == node]
        if below and not any(lower == node for _, lower in down):
            layer[node] = min(below) - 2
    return layer


def _thread(items: list[Item], source: int, target: int, label: Size, kind: str) -> RoutedEdge:
    upper, lower = min(source, target), max(source, target)
    first, last = items[upper].layer, items[lower].layer
    stops = [upper]
    middle = (first + last) // 2 | 1
    at = upper
    for layer in range(first + 1, last):
        width, height = label if layer == middle else (5.0, 6.0)
        items.append(Item(5.0, width, height, layer, items[lower].bias))
        stops.append(len(items) - 1)
        at = len(items) - 1 if layer == middle else at
    stops.append(lower)
    for stop in stops if kind == "well" else ():
        items[stop].pinned = True
    for above, below in pairwise(stops):
        pull = PULL[kind] if kind == "well" else PULL[kind] * (1.0 if above == upper or below == lower else 6.0)
        items[above].down = [*items[above].down, (below, pull)]
        items[below].up = [*items[below].up, (above, pull)]
    return RoutedEdge(stops, at, upwards=source > target)


def _order(items: list[Item]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(item.layer for item in items) + 1)]
    for index in sorted(range(len(items)), key=lambda i: items[i].bias):
        rows[items[index].layer].append(index)
    best, fewest = [row[:] for row in rows], _crossings(items, rows)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        where = {index: float(i) for row in rows for i, index in enumerate(row)}
        for row in rows if downwards else reversed(rows):
            row.sort(key=lambda i: _middle(items[i].up if downwards else items[i].down, where, where[i]))
            where.update({index: float(i) for i, index in enumerate(row)})
        crossings = _crossings(items, rows)
        if crossings < fewest:
            best, fewest = [row[:] for row in rows], crossings
    return _swapped(items, best)


def _swapped(items: list[Item], rows: list[list[int]]) -> list[list[int]]:
    """Swap neighbours as long as that saves crossings."""
    for _ in range(SWEEPS):
        before = _crossings(items, rows)
        for at, row in enumerate(rows):
            near = rows[max(0, at - 1) : at + 2]  # a swap changes no crossing between other layers
            for i in range(len(row) - 1):
                old = _crossings(items, near)
                row[i], row[i + 1] = row[i + 1], row[i]
                if _crossings(items, near) >= old:
                    row[i], row[i + 1] = row[i + 1], row[i]
        if _crossings(items, rows) == before:
            break
    return rows


def _middle(neighbours: list[tuple[int, float]], where: dict[int, float], otherwise: float) -> float:
    weight = sum(pull for _, pull in neighbours)
    return sum(where[index] * pull for index, pull in neighbours) / weight if weight else otherwise


def _crossings(items: list[Item], rows: list[list[int]]) -> float:
    """Count crossings, weighing the success path more, and failure states on its left a little."""
    total = 0.0
    for upper, lower in pairwise(rows):
        where = {index: i for i, index in enumerate(lower)}
        ends = [(i, where[b], pull) for i, index in enumerate(upper) for b, pull in items[index].down]
        for k, (a, b, pull) in enumerate(ends):
            total += sum(pull * p for c, d, p in ends[k + 1 :] if (a - c) * (b - d) < 0)
    for row in rows:
        biases = [items[index].bias for index in row]
        total += 0.5 * sum(x > y for i, x in enumerate(biases) for y in biases[i + 1 :])
    return total


def _spread(plan: DiagramLayout, rows: list[list[int]]) -> None:
    items = plan.items
    for row in rows:
        _settle(items, row, lambda _: 0.0)
    where = {i: item.x for i, item in enumerate(items)}

    def wish(index: int) -> float:
        here, item = where[index], items[index]
        return here + EAGER * (_middle(item.up + item.down, where, here) - here)

    for sweep in range(8 * SWEEPS):
        for row in rows if sweep % 2 else rows[::-1]:
            _settle(items, row, wish)
            where.update({i: items[i].x for i in row})
    left = min(item.x - item.left for item in items)
    y = 0.0
    for row in rows:
        height = max((items[i].height for i in row), default=0.0)
        for i in row:
            items[i].x, items[i].y = items[i].x - left, y + height / 2
        y += height + GAP_Y / 2
    plan.width, plan.height = max(item.x + item.right for item in items), y - GAP_Y / 2


def _settle(items: list[Item], row: list[int], wish: Callable[[int], float]) -> None:
    """Place a layer: as near to the wishes as order and widths allow (least squares, weighted by pull)."""
    offset, offsets = 0.0, []
    for k, index in enumerate(row):
        if k:
            offset += items[row[k - 1]].right + items[index].left + GAP_X
        offsets.append(offset)
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, how many)
    for index, off in zip(row, offsets, strict=True):
        item, many = items[index], 1
        weight = HEAVY if item.pinned else max(sum(pull for _, pull in item.up + item.down), 0.1)
        mean = (0.0 if item.pinned else wish(index)) - off
        while blocks and blocks[-1][0] > mean:
            other, heavy, more = blocks.pop()
            mean, weight, many = (mean * weight + other * heavy) / (weight + heavy), weight + heavy, many + more
        blocks.append((mean, weight, many))
    means = [mean for mean, _, many in blocks for _ in range(many)]
    for index, off, mean in zip(row, offsets, means, strict=True):
        items[index].x = mean + off
