"""Replay: a trace against the tables.

Every step of the log is fired again, from the value that the steps before have left, and row, new state and effects
are compared with what was recorded; then it is asked whether the step keeps what is claimed of its table
(`conformance`).  The first difference ends the replay: after it nothing can be trusted.  A log that was made with other
tables is refused, since it would differ for that reason alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from kvproto.fsm.digest import differing
from kvproto.fsm.machine import Machine
from kvproto.fsm.records import Log, StepEntry
from kvproto.fsm.table import Row, Value
from kvproto.fsm.telling import Key, Telling
from kvproto.verify.framework.trace.conformance import Witnesses, witnesses


class Difference(msgspec.Struct, frozen=True):
    """The place where a log leaves the tables: the compared part, the rows' word, and the record."""

    party: str
    line: int
    what: str
    expected: str
    recorded: str
    note: str = ""

    def __str__(self) -> str:
        text = f"line {self.line}: {self.party}: {self.what}"
        text += f"\n  the tables say  {self.expected}\n  the trace says  {self.recorded}"
        return f"{text}\n  {self.note}" if self.note else text


def replay(log: Log, telling: Telling, *, any_tables: bool = False) -> Difference | None:
    """Return the log's first difference from the tables, or None. `any_tables`: ignore the digest."""
    party, digest = log.head.name, telling.digest()
    other = differing(log.head.digest, digest)
    if other and not any_tables:
        return Difference(party, 1, "digest", digest, log.head.digest, f"{other}: use the version that made the trace")
    machines = _machines(telling, log.head.timing)
    values: dict[tuple[str, Key], Value] = {}
    seen = witnesses(telling.claims, telling.tables)
    for step in log.entries:
        if isinstance(step, StepEntry):
            found = _again(party, telling, machines[step.machine], step, values, seen[step.machine])
            if found is not None:
                return found
    return None


@lru_cache(maxsize=16)
def _machines(telling: Telling, timing: Any) -> dict[str, Machine[Any]]:
    return telling.machines(timing)


def _again(
    party: str, telling: Telling, machine: Machine[Any], step: StepEntry, values: dict[tuple[str, Key], Value],
    seen: Witnesses,
) -> Difference | None:  # fmt: skip
    value = values.get((step.machine, step.key), machine.initial) if step.value is None else step.value
    where = f"{step.machine} of {telling.track(step)}: {type(step.event).__name__}"
    if value.state.name != step.source:
        return Difference(party, step.line, f"{where}: state before", value.state.name, step.source,
                          "" if values else "the trace begins in the middle and does not give the value")  # fmt: skip
    try:
        row, new, effects = machine.fire(value, step.event, step.time)
    except Exception as error:  # noqa: BLE001 - a doctored event may break a guard in any way
        return Difference(party, step.line, where, f"no step: {type(error).__name__}: {error}", f"row {step.row}")
    recorded = machine.table.rows[step.row] if step.row is not None and step.row < len(machine.table.rows) else None
    if row is not recorded:
        said = _row(recorded) if recorded else f"row {step.row}"
        return Difference(party, step.line, f"{where}: row", _row(row), said)
    if new.state.name != step.target:
        return Difference(party, step.line, f"{where}: state after", new.state.name, step.target, _row(row))
    if effects != step.effects:
        return Difference(party, step.line, f"{where}: effects", _list(effects), _list(step.effects), _row(row))
    values[step.machine, step.key] = new
    broken = seen.take(step.key, row, value, step.event, new, effects, step.time) if row is not None else None
    if broken is None:
        return None
    return Difference(party, step.line, f"{where}: {broken.what}", broken.text, str(step.event), _row(row))


def _row(row: Row | None) -> str:
    return f"row {row.index}: {row}" if row is not None else "no row"


def _list(effects: tuple[object, ...]) -> str:
    return ", ".join(map(str, effects)) or "none"
