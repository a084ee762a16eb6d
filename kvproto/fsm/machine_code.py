"""A step as a driver takes it: the code that finds an event's machine, and the code that carries its row out.

Two functions for each event.  One, by event, finds the machine's value by its key.  The other, by event and state, is
the rows (`kvproto.fsm.row_code`): it writes the trace, keeps the value or puts it away, gives an earlier timer to the
wheel, and carries the effects out, one after the other.  All of that follows from the row, so it is decided here, when
the source is written, and what is left for the step to do is that alone: no list of effects is made and read, nobody is
asked whether the new state is final or who takes an effect of this class.

Source is written once for all drivers of the process, whatever their number; what belongs to one driver is given to it
as names.
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
    """What the code of one store's machines has to know beside the rows."""

    store: str
    #: machines are parts of wholes
    parts: bool
    #: what becomes of one that is final, as a line (of a part: of one that may never have been kept)
    end: str
    initial: State
    final: tuple[State, ...]
    counted: tuple[State, ...]
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
    """What is done where the row fires."""
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
    """Where the new value goes; one that has never left the initial state goes nowhere."""
    row, lines, first = code.row, [], code.row.source is of.initial
    if row.target in of.counted and row.target is not row.source:
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
