"""A sequence chart as an SVG picture, without any other program.

It reads the part of Mermaid's language that scenes are written in: participants, four arrows (a message, a word that is
not waited for, one-sided data, a message that is lost), and notes.  Any other line is refused.  Lanes are as far apart
as what is said between neighbours needs; a text that would be wider than its arrow is broken.  Colours and faces are
those of the other pictures (`svg.stylesheet`).
"""

from __future__ import annotations

import re
import textwrap
from html import escape
from itertools import pairwise

import msgspec

from kvproto.verify.framework.draw.svg import MARGIN, SMALL, WIDE, stylesheet

#: the least and the most that lanes are apart, a line of text, the padding of a note, and the longest line of one
NEAR, FAR, LINE, PAD, LONG = 150.0, 560.0, 13.0, 6.0, 64
PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?")
ARROW = re.compile(r"(\w+?)(->>|-->>|-\)|--x)(\w+): (.+)")
NOTE = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")
STYLE = """
.lane{stroke:var(--detour);stroke-dasharray:2 4} .head rect{fill:var(--fill);stroke:var(--detour);stroke-width:1.2}
.note rect{fill:var(--wellfill);stroke:var(--well)} .said path{fill:none;stroke:var(--ink);stroke-width:1.3}
.said polygon{fill:var(--ink)} .said.aside path{stroke-dasharray:5 3} .said.data path{stroke-width:3}
.said.lost path{stroke:var(--apart);stroke-dasharray:5 3} .said.lost .cross{stroke-dasharray:none;stroke-width:2}
.said text{paint-order:stroke;stroke:var(--page);stroke-width:3px;stroke-linejoin:round}
"""
KINDS = {"->>": "said", "-->>": "said aside", "-)": "said data", "--x": "said lost"}


class Item(msgspec.Struct):
    """An arrow or a note (`kind` is `note`): the lanes between which it is, and its lines of text."""

    kind: str
    lanes: tuple[int, int]
    text: list[str]


def sequence_svg(chart: str) -> str:
    """The chart as a picture.  ValueError: a line that is not of the kinds that scenes have."""
    names, titles, items = _read(chart)
    lanes = _lanes(titles, items)
    top = 44.0
    drawn = list[str]()
    for item in items:
        text, top = _item(item, lanes, top)
        drawn.append(text)
    left = min([lanes[0] - _wide(titles[0]) / 2, *(_left(item, lanes) for item in items)])
    right = max([lanes[-1] + _wide(titles[-1]) / 2, *(_right(item, lanes) for item in items)])
    width, height = right - left + 2 * MARGIN, top + 2 * MARGIN
    heads = [_head(title, x, top) for title, x in zip(titles, lanes, strict=True)]
    inside = "\n".join([*heads, *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kvproto" role="img" aria-label="{", ".join(names)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f'<style>{stylesheet()}{STYLE}</style>\n<rect class="page" width="{width:.0f}" height="{height:.0f}"/>\n'
        f'<g transform="translate({MARGIN - left:.0f},{MARGIN:.0f})">{inside}</g></svg>\n'
    )


def _read(chart: str) -> tuple[list[str], list[str], list[Item]]:
    names, titles, items = list[str](), list[str](), list[Item]()
    for line in filter(None, map(str.strip, chart.splitlines())):
        if line == "sequenceDiagram":
            continue
        if found := PARTICIPANT.fullmatch(line):
            names.append(found[1])
            titles.append(found[2] or found[1])
        elif found := NOTE.fullmatch(line):
            ends = names.index(found[1]), names.index(found[2] or found[1])
            items.append(Item("note", (min(ends), max(ends)), _broken(found[3], LONG)))
        elif found := ARROW.fullmatch(line):
            ends = names.index(found[1]), names.index(found[3])
            items.append(Item(KINDS[found[2]], ends, [found[4]]))
        else:
            raise ValueError(f"a sequence chart has no such line: {line}")
    return names, titles, items


def _broken(text: str, width: int) -> list[str]:
    wrap = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap
    return [line for part in text.split("<br/>") for line in wrap(part) or [""]]


def _wide(text: str) -> float:
    return len(text) * WIDE + 20


def _lanes(titles: list[str], items: list[Item]) -> list[float]:
    """Place the lanes; break texts with too little room between theirs."""
    apart = [max(NEAR, (_wide(one) + _wide(other)) / 2 + 12) for one, other in pairwise(titles)]
    for item in items:
        first, last = sorted(item.lanes)
        if item.kind != "note" and last == first + 1:
            apart[first] = min(FAR, max(apart[first], len(item.text[0]) * SMALL + 24))
    lanes = [0.0]
    for step in apart:
        lanes.append(lanes[-1] + step)
    for item in items:
        if item.kind != "note":
            room = abs(lanes[item.lanes[1]] - lanes[item.lanes[0]])
            item.text = _broken(item.text[0], max(12, int((room - 12) / SMALL)))
    return lanes


def _half(item: Item) -> float:
    return max(map(len, item.text)) * SMALL / 2 + 2 * PAD


def _left(item: Item, lanes: list[float]) -> float:
    return (lanes[item.lanes[0]] + lanes[item.lanes[1]]) / 2 - _half(item)


def _right(item: Item, lanes: list[float]) -> float:
    return (lanes[item.lanes[0]] + lanes[item.lanes[1]]) / 2 + _half(item)


def _head(title: str, x: float, bottom: float) -> str:
    half = _wide(title) / 2
    return (
        f'<path class="lane" d="M{x:.1f},28 V{bottom:.1f}"/><g class="head">'
        f'<rect x="{x - half:.1f}" y="0" width="{2 * half:.1f}" height="28" rx="5"/>'
        f'<text class="name" x="{x:.1f}" y="18" text-anchor="middle">{escape(title)}</text></g>'
    )


def _lines(text: list[str], x: float, top: float) -> str:
    return "".join(
        f'<text class="small" x="{x:.1f}" y="{top + LINE * at:.1f}" text-anchor="middle">{escape(line)}</text>'
        for at, line in enumerate(text)
    )


def _item(item: Item, lanes: list[float], top: float) -> tuple[str, float]:
    """The drawing, and where the next one begins."""
    begin, end = lanes[item.lanes[0]], lanes[item.lanes[1]]
    middle, height = (begin + end) / 2, LINE * len(item.text)
    if item.kind == "note":
        half = max(_half(item), (end - begin) / 2 + 2 * PAD)
        box = f'<rect x="{middle - half:.1f}" y="{top:.1f}" width="{2 * half:.1f}" height="{height + PAD:.1f}" rx="3"/>'
        return f'<g class="note">{box}{_lines(item.text, middle, top + LINE)}</g>', top + height + PAD + 8
    y, way = top + height + 4, 1 if end > begin else -1
    if item.kind == "said lost":
        stop = end - way * 14
        head = f'<path class="cross" d="M{stop - 4:.1f},{y - 4:.1f} l8,8 m0,-8 l-8,8"/>'
    else:
        stop, back = end - way, end - way * 9
        head = f'<polygon points="{stop:.1f},{y:.1f} {back:.1f},{y - 4:.1f} {back:.1f},{y + 4:.1f}"/>'
    line = f'<path d="M{begin:.1f},{y:.1f} H{stop - way * 4:.1f}"/>'
    return f'<g class="{item.kind}">{line}{head}{_lines(item.text, middle, top + LINE - 3)}</g>', y + 8
