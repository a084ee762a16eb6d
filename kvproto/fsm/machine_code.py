"""Machine code: generates a driver's functions that find an event's machine and carry its row out.

There are two functions for each event.  The first, by event, finds the machine's value by its key.  The second, by
event and state, is the rows (`kvproto.fsm.row_code`): it writes the trace, stores or removes the value, puts an earlier
timer on the wheel, and carries the effects out in order.  All of this follows from the row, so it is decided when the
source is generated.  A step makes no list of effects, and tests neither whether the new state is final nor which
handler takes an effect.

Source is generated once for all drivers of the process; the objects of one driver are passed in as names.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Any

import msgspec

from kvproto.fsm.generated import compiled
from kvproto.fsm.machine import NO_ROW
from kvproto.fsm.row_code import Periods, RowCode, Tries, code_of, function
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import State

#: finds a machine of a flat store, or a part of a whole
FIND = """\
def make(driver, steps, initial):
    def take(event, now):
        key = {key}
        value = driver.{store}.get(key){buried}
        if value is None:
            value = initial
        steps[value.state](event, now, value, key)
    return take
"""
FIND_PART = """\
def make(driver, steps, initial):
    def take(event, now):
        whole = {whole}
        key = {key}
        parts = driver.{store}.get(whole)
        value = initial if parts is None else parts.get(key, initial)
        steps[value.state](event, now, value, key, whole, parts)
    return take
"""
STEP = "def step(event, now, value, key):"
STEP_PART = "def step(event, now, value, key, whole, parts):"


class StoreWords(msgspec.Struct, frozen=True):
    """Facts about one store that its generated code needs beside the rows."""

    store: str
    #: machines are parts of wholes
    parts: bool
    #: what becomes of one that is final, as a line (of a part: of one that may never have been kept)
    end: str
    initial: State
    final: tuple[State, ...]
    counted_states: tuple[State, ...]
    timed: tuple[bool, ...]
    tries: Tries
    periods: Periods


@lru_cache(maxsize=8192)
def rows_of(rows: tuple[Row, ...], of: StoreWords) -> tuple[tuple[RowCode, ...], dict[str, Any]]:
    """The rows of one pair, and the names that they use."""
    codes, names = code_of(rows, of.timed, of.tries, of.periods)
    return tuple(codes), names


@lru_cache(maxsize=8192)
def step_code(rows: tuple[Row, ...], of: StoreWords, inner: tuple[bool, ...], name: str) -> CodeType:
    """The step of one pair; `inner`, of each effect of each row: whether the driver carries it out itself."""
    codes, _ = rows_of(rows, of)
    carried = iter(inner)
    blocks = {code.number: _block(code, of, tuple(next(carried) for _ in code.effects)) for code in codes}
    none = f"log((now, None, event, value, value)); carry_out(report(value, event, {NO_ROW!r}))"
    source = function(STEP_PART if of.parts else STEP, list(codes), lambda code: blocks[code.number], none)
    return compiled(source, f"{name} {rows[0].source.name} {rows[0].event.__name__}")


def _block(code: RowCode, of: StoreWords, inner: tuple[bool, ...]) -> list[str]:
    """Return the lines that carry a row out."""
    i, row = code.number, code.row
    if row.verb != "row":
        told = [f"carry_out(report(value, event, {row.why!r}))"] if row.verb == "refuse" else []
        return [f"log((now, row{i}, event, value, value))", *told, "return"]
    kept = _kept(code, of) if code.moves or row.let is not None else []
    carried = [
        f"driver._out.append({text})" if made is not None and not known
        else f"act{i}_{j}({text})" if made is not None else f"carry_out({text})"
        for j, ((text, made), known) in enumerate(zip(code.effects, inner, strict=True))
    ]  # fmt: skip
    return [*code.lines, f"log((now, row{i}, event, value, new))", *kept, *carried, "return"]


def _kept(code: RowCode, of: StoreWords) -> list[str]:
    """Return the lines that store the new value; a value that never left the initial state is not stored."""
    row, lines, first = code.row, [], code.row.source is of.initial
    if row.target in of.counted_states and row.target is not row.source:
        lines.append(f"driver.entered[entry{code.number}] += 1")
    if row.target in of.final:
        ended = [of.end] if first or not of.parts else ["del parts[key]", "if not parts: end_whole(whole)"]
        return [*lines, *ended]
    left = "value is not initial" if first and row.target is of.initial else ""
    if of.parts and first and not left:
        lines += ["if parts is None:", f"    parts = driver.{of.store}[whole] = {{}}"]
    lines.append(f"{left and f'if {left}: '}" + ("parts[key] = new" if of.parts else f"driver.{of.store}[key] = new"))
    if code.moves and of.timed[row.target]:
        # the parts of a whole have one timer
        sooner = [*([left] if left else []), "new.due < value.due"]
        sooner += ["new.due < wakes.get(whole, INFINITY)"] if of.parts else []
        lines.append(f"if {' and '.join(sooner)}: arm(new.due, {'whole' if of.parts else 'key'})")
    return lines
