"""Flat results: each figure with its name, unit and value, and the labels of its measurement.

A benchmark measures rows: plain dicts, or dicts and lists of them.  `flat` makes figures of them by one rule: text,
whole numbers and yes or no are labels, a number with a fraction is a figure.  A dict within a row is read by both
names, a list of numbers is its median, a list of sentences their number, and a list of rows a table of its own, which
the label `table` names.  A row without a figure, such as a cell that was left out, says so by `measured`.  The unit is
a word of the figure's name: `bulk_gbs` is the figure "bulk" in GB/s.

A file of results is checked against one type, so one that was cut or doctored is refused by run and field.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kvproto.fsm.bounded_files import FileError, decoded, document

UNITS = {"ms": "ms", "us": "us", "gbs": "GB/s", "mib": "MiB", "kibs": "KiB/s"}
#: the inside of single transfers: for whoever looks into one run
_DETAILED = ("phases", "last steps", "odd")
#: times of single transfers, whose median is a figure of its own
ALL = "all_"
TABLE = "table"

Text = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(max_length=256)]
Number = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
Label = bool | Whole | Number | Text
Labels = dict[Name, Label]


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    name: Name
    value: Number
    unit: Name = ""
    labels: Labels = {}

    @property
    def is_detail(self) -> bool:
        return self.name.startswith(_DETAILED)


class MeasuredRun(msgspec.Struct, omit_defaults=True):
    """Figures of one command, the day, and the machine."""

    bench: Name
    command: Text
    figures: list[Figure]
    machine: dict[Name, Label | list[Name] | None]
    date: Name = ""
    cut: bool = False


class MeasuredRow(msgspec.Struct, frozen=True):
    """Figures that share their labels, each by its name and unit in one."""

    labels: Labels
    values: dict[str, float]


def flat(measured: Any) -> list[Figure]:
    """Make figures of a benchmark's rows, or a dict of them, without single transfers' times."""
    rows = measured if isinstance(measured, list) else [measured]
    return [figure for row in rows for figure in _flat(row, {})]


def _flat(row: Mapping[str, Any], outer: Labels) -> Iterator[Figure]:
    labels, values, tables = dict(outer), dict[tuple[str, ...], float](), list[tuple[str, list[Any]]]()
    for path, each in _leaves(row, ()):
        if isinstance(each, str | bool | int):
            labels[", ".join(path).replace("_", " ")] = each
        elif isinstance(each, float):
            values[path] = each
        elif each and isinstance(each[0], dict):
            tables.append((" ".join(path), each))
        elif each:
            values[path] = float(len(each)) if isinstance(each[0], str) else statistics.median(each)
    if not (values or tables):
        yield Figure("measured", 0.0, labels=labels)
    for path, value in values.items():
        name, unit = named(path)
        yield Figure(name, value, unit, labels)
    for table, rows in tables:
        for inner in rows:
            yield from _flat(inner, labels | {TABLE: table})


def _leaves(row: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, each in row.items():
        if key.startswith(ALL) or each is None:
            continue
        if isinstance(each, dict):
            yield from _leaves(each, (*above, key))
        else:
            yield (*above, key), each


def named(path: Iterable[str]) -> tuple[str, str]:
    """Divide the name of a figure from its unit: "bulk" and "GB/s" of `bulk_gbs`."""
    words = [part.replace("_", " ").split() for part in path]
    unit = next((UNITS[word] for part in words for word in part if word in UNITS), "")
    kept = (" ".join(word for word in part if word not in UNITS) for part in words)
    return ", ".join(part for part in kept if part), unit


def rows_of(figures: Iterable[Figure]) -> list[MeasuredRow]:
    rows: dict[tuple[tuple[str, Label], ...], MeasuredRow] = {}
    for figure in figures:
        row = rows.setdefault(tuple(figure.labels.items()), MeasuredRow(figure.labels, {}))
        row.values[column(figure)] = figure.value
    return list(rows.values())


def column(figure: Figure) -> str:
    """Name and unit in one: "bulk GB/s"."""
    return f"{figure.name} {figure.unit}".strip()


def checked_results(path: Path) -> list[MeasuredRun]:
    """Read a file of results, or of one run.  `FileError` names run and field."""
    try:
        data = document(path)
    except FileNotFoundError as error:
        told = "there are no results here: --results FILE names some, and `kvproto bench NAME --json FILE` writes them"
        raise FileError(f"{path}: {told}") from error
    runs = data.get("runs", [data]) if isinstance(data, dict) else None
    if not isinstance(runs, list):
        raise FileError(f"{path}: not a file of results: an object with a list of runs is expected")
    return [decoded(f"{path}: run {number}", run, MeasuredRun) for number, run in enumerate(runs, 1)]
