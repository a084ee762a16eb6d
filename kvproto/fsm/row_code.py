"""Row code: generates the source of the rows of one pair of state and event.

Two printers make functions of it.  `kvproto.fsm.machine` makes one that returns the result of a step;
`kvproto.fsm.machine_code` makes one that carries it out, for drivers.  Both agree, because the meaning of a row is
generated here, once.

A row's small functions are inlined (`kvproto.fsm.inline`).  If an effect is plainly made by its class, the class is
known when the source is generated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.inline import expression
from kvproto.fsm.table import Row
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Effect, Event, TimerFired

#: of a value: how often its timer has ended
Tries = Callable[[Any], int] | None
#: of a value, by state: the period of its own that its timer has
Periods = tuple[Callable[[Any], float] | None, ...]
#: what a guard or a change is called with, what an effect is built from, and the names that a step gives itself
ASKED, BUILT = ("value", "event", "now"), ("new", "event")
LOCAL = (
    *ASKED, "new", "fire", "report", "slot", "take", "step", "key", "whole", "parts", "driver", "log", "initial",
    "bury", "end", "end_whole", "arm", "carry_out", "wakes",
)  # fmt: skip


class RowCode(msgspec.Struct, frozen=True):
    """One row; its own names end with its number among the pair's rows."""

    row: Row
    number: int
    #: "": it has none
    guard: str
    #: that make `new`
    lines: tuple[str, ...]
    #: state and timer are set
    moves: bool
    #: an expression of each, and its class (None: only the step can tell)
    effects: tuple[tuple[str, type | None], ...]


def code_of(
    rows: tuple[Row, ...], timed: tuple[bool, ...], tries: Tries, periods: Periods
) -> tuple[list[RowCode], dict[str, Any]]:  # fmt: skip
    """Return the code of a pair's rows and the names it uses; the printer defines `due0` and so on."""
    names: dict[str, Any] = {"replace": replace, "INFINITY": INFINITY} | dict.fromkeys(LOCAL, LOCAL)
    found = []
    for i, row in enumerate(rows):
        names |= {f"row{i}": row, f"target{i}": row.target}
        guard = ast.unparse(expression(row.when, ASKED, names)) if row.when is not None else ""
        own = periods[row.target] if timed[row.target] else None
        moves = row.verb == "row" and (row.target is not row.source or row.again)
        lines = _lines(i, row, names, tries, own, moves=moves, timed=timed[row.target]) if row.verb == "row" else []
        effects = [expression(build, BUILT, names) for build in row.do]
        known = tuple((ast.unparse(effect), _class_of(effect, names)) for effect in effects)
        found.append(RowCode(row, i, guard, tuple(lines), moves, known))
    return found, names


def function(head: str, codes: list[RowCode], block: Callable[[RowCode], list[str]], last: str) -> str:
    """Return the source of a function: the block of the first row whose guard holds; `last`: of none."""
    lines = [head]
    for code in codes:
        if code.guard:
            lines.append(f"    if {code.guard}:")
        lines += [("        " if code.guard else "    ") + line for line in block(code)]
    return "\n".join(lines if not codes[-1].guard else [*lines, "    " + last])


def _lines(
    i: int, row: Row, names: dict[str, Any], tries: Tries, own: Callable[[Any], float] | None, *,
    moves: bool, timed: bool,
) -> list[str]:  # fmt: skip
    new = expression(row.let, ASKED, names) if row.let else ast.Name("value")
    lines = []
    if moves:
        due = f"due{i}({_since(row, names, tries)})" if timed else "INFINITY"
        if own is not None:
            lines.append(f"new = {ast.unparse(new)}")
            new, period = ast.Name("new"), ast.unparse(expression(own, BUILT[:1], names))
            due = f"slot(now + {period}) if {period} else {due}"
        new = _moved(new, f"target{i}", due)
    return [*lines, f"new = {ast.unparse(new)}"]


def _since(row: Row, names: dict[str, Any], tries: Tries) -> str:
    """Return the arguments of a timer's end: the time, and the repetitions if the state stays."""
    if tries is None or row.target is not row.source or not issubclass(row.event, TimerFired):
        return "now"
    return f"now, {ast.unparse(expression(tries, ASKED[:1], names))} + 1"


def _moved(new: ast.expr, state: str, due: str) -> ast.expr:
    """The new value, in its new state, with its timer; if it is made by `replace` anyway, in one go."""
    more = [ast.keyword("state", ast.Name(state)), ast.keyword("due", ast.parse(due, mode="eval").body)]
    match new:
        case ast.Call(func=ast.Name("replace"), args=[ast.Name("value")]):
            return ast.Call(new.func, new.args, [*new.keywords, *more])
    return ast.Call(ast.Name("replace"), [new], more)


def _class_of(effect: ast.expr, names: dict[str, Any]) -> type | None:
    """The class of what this makes, if it is a plain call of one."""
    made = names.get(effect.func.id) if isinstance(effect, ast.Call) and isinstance(effect.func, ast.Name) else None
    return made if isinstance(made, type) and issubclass(made, Effect | Event) else None
