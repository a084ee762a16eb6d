"""Coverage in words: sources side by side, and where the rows and routes stand that one of them lacks.

A *source* is whoever counted: the checker, tests that behave, tests that do not, real runs.  Rows that are written as
one line of a table file are listed as one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvproto.fsm.routing import Route, Routes
from kvproto.fsm.table import Row, Table
from kvproto.verify.framework.trace.coverage import Collector, percent

Sources = Mapping[str, Collector]
#: by (file and line, what stands there before the events, and after them): the events, or messages
Connections = dict[tuple[str, str, str], list[str]]


def side_by_side(sources: Sources) -> str:
    """A block of three columns for each source."""
    lines = [f"{'':<14}" + "".join(f"  {name[:24]:>26}" for name in sources)]
    lines.append(f"{'machine':<14}" + f"  {'rows':>8} {'guards':>7} {'pairs':>9}" * len(sources))
    of = next(iter(sources.values())).of
    for each in of.tables:
        blocks = [(c.covered(each), c.outcomes(each), c.joined(each)) for c in sources.values()]
        lines.append(f"{each.name:<14}" + "".join(f"  {r!s:>8} {g!s:>7} {p!s:>9}" for r, g, p in blocks))
    for routes in of.routes:
        taken = "".join(f"  {c.taken(routes)!s:>8} {'':>17}" for c in sources.values())
        lines.append(f"{f'to {routes.name}':<14}{taken}".rstrip())
    shares = [percent(counts) for counts in sources.values()]
    lines.append(f"{'rows in all':<14}" + "".join(f"  {rows:>25.1f}%" for rows, _ in shares))
    lines.append(f"{'routes in all':<14}" + "".join(f"  {routes:>25.1f}%" for _, routes in shares))
    return "\n".join(lines)


def lacking(counts: Collector, others: Sources) -> tuple[int, list[str]]:
    """What `counts` has not seen and some of `others` have (no others: nobody needs to): how many, and line by line."""
    lines: Connections = {}
    found = 0
    for table in counts.of.tables:
        for row in counts.missing(table):
            seen = [name for name, each in others.items() if each.rows[table.name, row.index]]
            if seen or not others:
                found += 1
                lines.setdefault(_row_line(table, row, seen), []).append(f"{row.event.__name__} in {row.source.name}")
    for routes in counts.of.routes:
        for route in counts.untaken(routes):
            seen = [name for name, each in others.items() if each.routes[routes.name, route.index]]
            if seen or not others:
                found += 1
                lines[_route_line(routes, route, seen)] = [message.__name__ for message in route.messages]
    return found, [f"{where}: {before} {_few(words)}{after}" for (where, before, after), words in lines.items()]


def _row_line(table: Table[Any], row: Row, seen: list[str]) -> tuple[str, str, str]:
    guard = f" [{row.when.__name__}]" if row.when else ""
    why = f": {row.why}" if row.why else ""
    return row.where, f"{table.name}: {row.verb}", f"{guard}{why}{_seen_by(seen)}"


def _route_line(routes: Routes, route: Route, seen: list[str]) -> tuple[str, str, str]:
    asked = "".join(f" {fact.name}" for facts in route.asks for fact in facts)
    why = f": {route.why}" if route.why else ""
    return route.where, f"to {routes.name}: {route.end}", f"{asked}{why}{_seen_by(seen)}"


def _seen_by(seen: list[str]) -> str:
    return f"  (seen by {', '.join(seen)})" if seen else ""


def _few(words: list[str], most: int = 6) -> str:
    words = list(dict.fromkeys(words))
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
