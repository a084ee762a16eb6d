"""Pivot: one Markdown table of any results, a line for each set of labels, a column for each figure.

Labels and figures that are the same in all lines are told once, above the table.  `across` names labels whose values
make columns instead of lines.  A table of one line is turned, so that a terminal shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from kvproto.lab.bench.flat import TABLE, Figure, Label, MeasuredRun, rows_of

#: a column: a figure, and the values of the labels that are laid across
Column = tuple[str, tuple[Label, ...]]
#: from here on a number has no digits behind its point
LARGE = 1000


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    table: str = tabulate(rows, head, tablefmt="github", disable_numparse=True)
    return table


def number(value: float) -> str:
    """Write a figure with four digits."""
    return f"{value:.0f}" if abs(value) >= LARGE else f"{value:.4g}"


def tables(figures: Iterable[Figure]) -> str:
    """Make a pivot of each table that the labels name; rows with wrong bytes are named again below all."""
    figures = list(figures)
    parts = []
    for name in dict.fromkeys(figure.labels.get(TABLE, "") for figure in figures):
        told = pivot(figure for figure in figures if figure.labels.get(TABLE, "") == name)
        parts += [f"{name}:\n\n{told}" if name else told] if told else []
    wrong = (row.labels for row in rows_of(figures) if row.labels.get("right") is False)
    return "\n\n".join([*parts, *(f"WRONG: {labels}" for labels in wrong)])


def pivot(figures: Iterable[Figure], across: Sequence[str] = ()) -> str:
    """Make one table; empty: there is no figure that is shown."""
    rows = rows_of(figure for figure in figures if not figure.is_detail)
    if not rows:
        return ""
    labels = dict.fromkeys(name for row in rows for name in row.labels if name not in (*across, TABLE))
    alike = [name for name in labels if len({(type(v := row.labels.get(name)), v) for row in rows}) == 1]
    varying = [name for name in labels if name not in alike]
    lines: dict[tuple[Any, ...], dict[Column, str]] = {}
    for row in rows:
        place = tuple(row.labels.get(name, "") for name in across)
        line = lines.setdefault(tuple(row.labels.get(name, "") for name in varying), {})
        line |= {(name, place): number(value) for name, value in row.values.items()}
    heads = {each: ", ".join(filter(None, [each[0], *map(_text, each[1])])) for line in lines.values() for each in line}
    told = [f"{name} {_text(rows[0].labels[name])}".strip() for name in alike if name in rows[0].labels]
    if len(lines) == 1:
        (line,) = lines.values()
        table = markdown(("figure", "measured"), [(head, line[each]) for each, head in heads.items()])
    else:
        values = {each: {line.get(each) for line in lines.values()} for each in heads}
        told += [f"{heads[each]} {found.pop()}" for each, found in values.items() if len(found) == 1]
        shown = {each: head for each, head in heads.items() if values[each]}
        cells = [[*map(_text, key), *(line.get(each, "") for each in shown)] for key, line in lines.items()]
        table = markdown([*varying, *shown.values()], cells)
    return "\n\n".join(filter(None, ["; ".join(told), table]))


def _text(label: Label) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    return number(label) if isinstance(label, float) else str(label)


def every_run(runs: Iterable[MeasuredRun]) -> str:
    """Lay out all runs, one after the other, each under its command and machine."""
    return "\n\n".join(f"{headed(run)}\n\n{tables(run.figures)}" for run in runs)


def headed(run: MeasuredRun) -> str:
    """Name the command, the machine and the day."""
    machine = {name: value for name, value in run.machine.items() if value}
    gpus = machine.pop("gpus", None) or [str(machine.pop("gpu", "no GPU"))]
    gpus = gpus if isinstance(gpus, list) else [str(gpus)]
    rest = [f"{name} {value}" for name, value in machine.items()]
    return f"`{run.command}` ({'; '.join([f'{len(gpus)} x {gpus[0]}', ', '.join(rest), *filter(None, [run.date])])})"
