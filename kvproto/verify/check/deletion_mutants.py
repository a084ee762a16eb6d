"""The gate: of every row, every effect and every guard, is it missed when it is gone?

Each row in turn is dropped, each effect of a row left out, each guard taken for true.  The suite below is searched, one
small configuration after the other, until one notices; those in which the row never fires (for a guard: in which its
state never sees its event) cannot notice, and are passed over.  Larger ones are searched in haste (`delay_bounded`),
and in full only for what nobody has noticed or explained by then.  What none notices is a *survivor*: it must be
harmless, and `HARMLESS` says why, or the checker does not look where it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.table import Row, Table
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.equivalent_mutants import HARMLESS
from kvproto.verify.check.search import Result, check, label
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.lint import lint
from kvproto.verify.framework.table_patching import TablePatch

#: searched in this order; and these for what is left
SUITE, HEAVY = SUITES["gate"], SUITES["gate-heavy"]
#: a world that has become so many times as large has no end: something is said, or counted, for ever
MORE = 10


class DeletionMutant(msgspec.Struct, frozen=True):
    """What is taken away: a row, one of its effects by place (`effect`), or its guard."""

    table: int
    row: int
    what: str
    effect: int = -1


class MutantVerdict(msgspec.Struct):
    """Who noticed; `property` is empty if nobody did."""

    name: str
    caught: bool
    property: str
    config: str
    where: str


def questions(names: Sequence[str]) -> list[DeletionMutant]:
    """All questions about these tables, or about all.  Raises ArgumentError with all names."""
    known = [table.name for table in TABLES]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ArgumentError(f"no table {unknown[0]!r}: one of {', '.join(known)}")
    found = []
    for t, table in enumerate(TABLES):
        for r, row in enumerate(table.rows):
            if names and table.name not in names:
                continue
            found.append(DeletionMutant(t, r, "row"))
            found += [DeletionMutant(t, r, "effect", i) for i in range(len(row.do))]
            found += [DeletionMutant(t, r, "guard")] if row.when else []
    return found


def name_of(question: DeletionMutant) -> str:
    """A name that does not depend on where the row stands."""
    table = TABLES[question.table]
    row = table.rows[question.row]
    guard = f" [{row.when.__name__}]" if row.when else ""
    pair = f"{table.name}: {row.source.name} {row.event.__name__}{guard}"
    what = row.do[question.effect].__name__ if question.what == "effect" else question.what
    return f"{pair} - {what}"


def ask(question: DeletionMutant) -> MutantVerdict:
    """Take it away, and see who notices."""
    table = TABLES[question.table]
    row = table.rows[question.row]
    name, where = name_of(question), row.where
    _baseline()  # before anything is taken away
    with TablePatch() as bench:
        _take_away(bench, table, row, question)
        complaints = lint(table, Timing(), SOURCES)
        if complaints:
            return MutantVerdict(name, caught=True, property=f"lint {complaints[0].kind}", config="", where=where)
        for config in _concerned(SUITE, question, row):
            if (found := broken(config, _baseline()[config].states)) is not None:
                return MutantVerdict(name, caught=True, property=found, config=config, where=where)
        for config in () if reason(name) else _concerned(HEAVY, question, row):
            if (found := broken(config, _baseline()[config].states)) is not None:
                return MutantVerdict(name, caught=True, property=found, config=config, where=where)
    return MutantVerdict(name, caught=False, property="", config="", where=where)


def broken(config: str, states: int | None) -> str | None:
    """The property that fails there, if any; that a world has no end is noticed, too.

    `states`: so many it has with the tables as they are; None: not known, so the configuration's own limit holds.
    """
    limit = MORE * states + 10_000 if states is not None else CONFIGS[config].limit
    result = check(config, replace(CONFIGS[config], limit=limit))
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    if result.ended == "limit":
        return "no end"
    return result.violations[0].property if result.violations else None


@cache
def _baseline() -> dict[str, Result]:
    """How large each configuration is, and which rows fire in it."""
    return {name: check(name, replace(CONFIGS[name], live=False)) for name in (*SUITE, *HEAVY)}


def _concerned(suite: Sequence[str], question: DeletionMutant, row: Row) -> list[str]:
    """The configurations that can notice."""
    mine, known = label(row), _baseline()
    if question.what != "guard":
        return [name for name in suite if mine in known[name].rows]
    pair = mine.rpartition(" ")[0] + " "
    return [name for name in suite if any(each.startswith(pair) for each in known[name].rows)]


def _take_away(bench: TablePatch, table: Table[Any], row: Row, question: DeletionMutant) -> None:
    if question.what == "row":
        bench.drop(table, [row])
    elif question.what == "guard":
        bench.change(table, [row], when=None)
    else:
        left = row.do[: question.effect] + row.do[question.effect + 1 :]
        bench.change(table, [row], do=left)


def unexplained(outcome: MutantVerdict) -> bool:
    """Nobody noticed, and nobody said why."""
    return not outcome.caught and reason(outcome.name) is None


def reason(name: str) -> str | None:
    """Why it is harmless that this is gone, if somebody said so."""
    return next((why for part, why in HARMLESS.items() if part in name), None)


def line(outcome: MutantVerdict) -> str:
    """For people."""
    why = reason(outcome.name)
    return f"{'harmless' if why else 'SURVIVES'}  {outcome.name}" + (f": {why}" if why else f"  ({outcome.where})")


def summary(found: Sequence[MutantVerdict]) -> str:
    """How many, by fate."""
    by_lint = sum(o.property.startswith("lint") for o in found)
    caught = sum(o.caught for o in found) - by_lint
    bad = sum(unexplained(o) for o in found)
    explained = len(found) - by_lint - caught - bad
    seen = f"{by_lint} seen by lint, {caught} by the checker"
    return f"{len(found)} taken away: {seen}, {explained} harmless, {bad} unexplained"
