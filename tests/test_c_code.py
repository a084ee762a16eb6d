"""The printed C beside the rows and the generated Python: random triples, worlds, planted faults."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from support.comparison import NO_RESULT, Comparison
from support.night import by_night
from support.triples import Triples

from examples.two_phase_commit import protocol as commit
from kvproto.adapters import request_events, request_tables, room_tables
from kvproto.endpoint.group_table import decode_group
from kvproto.fsm.driver import steps
from kvproto.fsm.machine import machine_for
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import State
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.decode_grant import decode_grant
from kvproto.protocol.tables.prefill_write import prefill_write
from kvproto.protocol.timing import Timing
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.node import Watched
from kvproto.verify.check.search import check
from kvproto.verify.framework.lint_printable import lint_printable
from kvproto.verify.framework.native import operators
from kvproto.verify.framework.native.c_code import CCode, TablePrinter, c_code, unprintable
from kvproto.verify.framework.native.c_types import CType, Term, Whole
from kvproto.verify.framework.native.functions import Functions
from kvproto.verify.framework.native.library import Library, compiled, compiler
from kvproto.verify.framework.native.operators import Operators

KV, OTHERS = Timing(), request_events.Timing()
REQUESTS = (
    request_tables.prefill_request, request_tables.decode_request, room_tables.prefill_room, room_tables.decode_room,
)  # fmt: skip
ALL: tuple[tuple[Table[Any], NamedTimers], ...] = (
    *((table, KV) for table in (*TABLES, decode_group)), *((table, OTHERS) for table in REQUESTS),
    *((table, commit.Timing()) for table in commit.TABLES),
)  # fmt: skip
#: triples of each pair of state and event
EACH = 4
#: small worlds whose steps are compared by day
WORLDS = (
    "eager-engine", "abort-link-tells", "replica", "groups-cross", "deep-two-crash-write", "timed-drop",
)  # fmt: skip


pytestmark = pytest.mark.skipif(compiler() is None and not os.environ.get("CI"), reason="there is no C compiler")


def library(code: CCode, folder: Path) -> Library:
    return Library(code, compiled(code, folder, optimise=0))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return Comparison(library(c_code(table for table, _ in ALL), tmp_path_factory.mktemp("c")))


def triples(table: Table[Any], seed: int, each: int = EACH) -> Iterator[tuple[Any, Any, float]]:
    drawn = Triples(seed)
    for state, event in table.pairs():
        yield from islice(drawn.of(table, state, event), each)


@pytest.mark.parametrize(("table", "timing"), ALL, ids=lambda each: getattr(each, "name", ""))
def test_random_steps_are_the_same_three_times(comparison: Comparison, table: Table[Any], timing: NamedTimers) -> None:
    found = [comparison.difference(table, timing, *triple) for triple in triples(table, seed=7)]
    assert [each for each in found if each] == []


def test_every_step_of_worlds_is_the_same_three_times_and_every_row_fires(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search asks the rows one by one and the printed C, too, what it asks its ranks."""
    table_of, met, found = {table.value: table for table in TABLES}, set[tuple[Any, ...]](), set[str]()
    asked = Watched.ask

    def ask(rank: Watched, *about: Any) -> list[Any]:
        effects = asked(rank, *about)
        for now, _, event, value, _ in steps(rank.rank.trace):
            if (now, event, value) not in met:
                met.add((now, event, value))
                found.add(comparison.difference(table_of[type(value)], rank.rank.timing, value, event, now))
        return effects

    monkeypatch.setattr(Watched, "ask", ask)
    before = comparison.compared
    for name in by_night(SUITES["small"], by_day=WORLDS):
        assert check(name, CONFIGS[name]).violations == []
    assert found <= {""} and comparison.compared - before > 1000
    # A few rows ask for masks that fit each other, which only worlds draw; all others fire on random triples.
    for table, timing in ALL:
        found |= {comparison.difference(table, timing, *triple) for triple in firing(comparison, table, timing)}
    assert found <= {""} and comparison.unfired() == []


def firing(comparison: Comparison, table: Table[Any], timing: NamedTimers) -> Iterator[tuple[Any, Any, float]]:
    """Draw triples whose row has not fired yet."""
    machine, drawn = machine_for(table, timing), Triples(seed=11)
    for (state, event), rows in table.pairs().items():
        for triple in islice(drawn.of(table, state, event), 3000):
            if all(comparison.fired(table, row) for row in rows):
                break
            try:
                row = machine.fire(*triple)[0]
            except NO_RESULT:
                continue
            if row is not None and not comparison.fired(table, row):
                yield triple


def test_every_table_is_printable() -> None:
    assert [(table.name, where, why) for table, _ in ALL for _, where, why in unprintable(table)] == []


# --------------------------------------------------------------------------------------- faults of the printer
class Fault(NamedTuple):
    """A printer with a fault, the tables that show it, and how it is named."""

    printer: type[TablePrinter]
    tables: tuple[Table[Any], ...]
    timing: NamedTimers
    named: str


class NoSign(TablePrinter):
    class functions_of(Functions):  # noqa: N801
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.operators = _Unsigned(self.records)


class _Unsigned(Operators):
    def load(self, code: str, of: CType, *, place: bool) -> Term:
        term = super().load(code, of, place=place)
        return term._replace(code=f"((I)(W){code})") if isinstance(of, Whole) and of.kind.signed else term


def changed(before: str, after: str) -> type[TablePrinter]:
    """A printer with another runtime."""
    assert before in TablePrinter.runtime
    return type("Changed", (TablePrinter,), {"runtime": TablePrinter.runtime.replace(before, after)})


class EarlierComparison(TablePrinter):
    def guard(self, table: Table[Any], row: Row) -> str:
        kept = dict(operators.ORDERS)
        operators.ORDERS[ast.Lt] = ">"
        try:
            return super().guard(table, row)
        finally:
            operators.ORDERS.update(kept)


class OneEffectLess(TablePrinter):
    def block(self, table: Table[Any], row: Row) -> list[str]:
        return [line.replace(f"made = {len(row.do)};", f"made = {max(0, len(row.do) - 1)};")
                for line in super().block(table, row)]  # fmt: skip


class OtherTimer(TablePrinter):
    def timer(self, state: State) -> int:
        return super().timer(state) - 1


class SameState(TablePrinter):
    def target(self, row: Row) -> int:
        return int(row.source)


class OldValue(TablePrinter):
    def changed(self, table: Table[Any], row: Row) -> str:
        return "*v"


class NoGuard(TablePrinter):
    def guard(self, table: Table[Any], row: Row) -> str:
        return "1"


WRITE, GRANT = (prefill_write,), (decode_grant,)
FAULTS = {
    "sign": Fault(NoSign, WRITE, KV, "no result in C"),
    "width": Fault(changed("return (W)a; }", "return (uint32_t)a; }"), WRITE, KV, "PostWrite.offset is"),
    "shift": Fault(changed("(W)1 << ((int)n & 63)", "(W)2 << ((int)n & 63)"), GRANT, KV, "new.arrived is"),
    "direction": Fault(EarlierComparison, WRITE, KV, "row POSTING --BatchReady"),
    "missing effect": Fault(OneEffectLess, WRITE, KV, "0 effects in C, not 1"),
    "wrong timer": Fault(OtherTimer, commit.TABLES, commit.Timing(), "new.due is"),
    "wrong state": Fault(SameState, WRITE, KV, "new.state is"),
    "truncated mask": Fault(changed("EACH a.w[i] |= b.w[i]", "a.w[0] |= b.w[0]"), GRANT, KV, "new.asked is"),
    "old value": Fault(OldValue, WRITE, KV, "new.flying is"),
    "no guard": Fault(NoGuard, WRITE, KV, "row "),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_printer_is_noticed_by_name(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    compared = Comparison(library(c_code(fault.tables, fault.printer), tmp_path))
    drawn = [(table, each) for table in fault.tables for each in triples(table, 9, 40)]
    found = [compared.difference(table, fault.timing, *each) for table, each in drawn]
    assert any(fault.named in each for each in found), [each for each in found if each][:5]


# ------------------------------------------------------------------------------------------------------ the lint
class Counted(Value, frozen=True):
    """Peers that should be a mask, and are not annotated as one."""

    peers: int = 0


def joined(v: Counted, e: commit.Inquired, now: float) -> Counted:
    return replace(v, peers=v.peers | 1 << e.peer)


def all_of(v: Counted, e: commit.Inquired, now: float) -> bool:
    return all(v.peers >> at & 1 for at in range(e.peer))


def test_the_lint_names_file_and_line_of_what_c_cannot_say() -> None:
    table = Table("small", Counted, commit.P, initial=commit.P.UNKNOWN, events=(commit.Inquired,), timers={})
    table.row(commit.P.UNKNOWN, commit.Inquired, when=all_of)
    table.row(commit.P.UNKNOWN, commit.Inquired, let=joined)
    found = [(each.where, each.text.partition(" (")[0]) for each in lint_printable(table)]
    file, first = all_of.__code__.co_filename, all_of.__code__.co_firstlineno
    assert found == [
        (f"{file}:{first + 2}", "all is no function that could be printed"),
        (f"{file}:{joined.__code__.co_firstlineno + 2}", "a number and a mask are no two masks: annotate their kinds"),
    ]
