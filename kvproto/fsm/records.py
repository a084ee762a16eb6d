"""Records: the steps of a party as data, and the files that hold them.

A party always keeps its latest steps in memory (`Driver.trace`), as references to existing values.  Here they become a
`Log`, and a log becomes JSON lines: one line names the party, every other one is a step of a machine, a received
message, or a sent message.  A file may hold the logs of several parties, one after the other.

The value before a step is written only if a reader cannot know it: at a machine's first step in the log, if it had
begun before, and after a tombstone was evicted.  From there on the rows give it, so a trace can be replayed, and a
doctored one is detected.

A message has the number of its copy (`kvproto.fsm.copies`), in the sender's log and in the receiver's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvproto.fsm.bounded_files import FileError, json_value, lines_of
from kvproto.fsm.driver import SENT, STEP, Driver
from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.plain_json import Plain, PlainError
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.telling import Key, Telling
from kvproto.fsm.vocabulary import Effect, Event

FORMAT = 2


class TraceError(KvprotoError, ValueError):
    """A trace that cannot be read; the sentence names file, line and remedy."""


class StepEntry(msgspec.Struct, frozen=True):
    """One machine's step; `value` only where it cannot be known from the steps before."""

    line: int
    time: float
    machine: str
    key: Key
    event: Event
    source: str
    target: str
    row: int | None
    effects: tuple[Output, ...]
    value: Value | None = None


class HeardEntry(msgspec.Struct, frozen=True):
    """A received message and the route that took it.

    `header`: the fields beside the message (`Telling.header`); `number`: which copy it is (0: unknown).
    """

    line: int
    time: float
    header: tuple[Any, ...]
    body: Any
    route: int | None = None
    number: int = 0


class SentEntry(msgspec.Struct, frozen=True):
    """A message that left, and the number of its copy."""

    line: int
    effect: Effect
    number: int = 0


TraceEntry = StepEntry | HeardEntry | SentEntry


class Log(msgspec.Struct, frozen=True):
    """The trace of one party; `head` says whose (`Telling.head`)."""

    head: Any
    entries: list[TraceEntry]


def log_of(party: Driver, kept: list[Any] | None = None, *, telling: Telling) -> Log:
    """The log of what the party's trace holds now, or of a copy of it that was taken before."""
    kept = list(party.trace) if kept is None else kept
    log = Log(telling.head_of(party, whole=len(kept) < (party.trace.maxlen or 0)), [])
    last: dict[tuple[str, Key], Value] = {}
    machines = telling.machines(party.timing)
    for line, entry in enumerate(kept, 2):
        if len(entry) == SENT:
            log.entries.append(SentEntry(line, *entry))
        elif len(entry) != STEP:
            when, (*header, body), route, number = entry
            log.entries.append(HeardEntry(line, when, tuple(header), body, route.index, number))
        else:
            now, row, event, old, new = entry
            table = telling.by_value[type(old)]
            _, effects = machines[table.name].step(old, event, now)
            key = telling.key_of(table, event)
            before = last.get((table.name, key), table.value(table.initial))
            last[table.name, key] = new
            log.entries.append(
                StepEntry(line, now, table.name, key, event, old.state.name, new.state.name, row.index if row else None,
                          effects, None if old == before else old)
            )  # fmt: skip
    return log


def lines(log: Log, telling: Telling) -> Iterator[str]:
    """The log as JSON lines."""
    head = telling.json.plain(log.head)
    assert isinstance(head, dict)
    yield json.dumps({"kind": telling.party, "format": FORMAT, **head})
    for entry in log.entries:
        yield json.dumps(_entry(entry, telling))


def save(parties: Driver | Iterable[Driver], path: str | Path, telling: Telling) -> None:
    """Write the traces of one or more parties to a file."""
    logs = [log_of(party, telling=telling) for party in ([parties] if isinstance(parties, Driver) else parties)]
    Path(path).write_text("".join(line + "\n" for log in logs for line in lines(log, telling)))


def load(*paths: str | Path, telling: Telling) -> list[Log]:
    """Read every log of these files.  Raises `TraceError`."""
    logs: list[Log] = []
    for path in paths:
        try:
            found = parse(lines_of(Path(path)), str(path), telling=telling)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        except FileError as error:
            raise TraceError(str(error)) from error
        if not found:
            raise TraceError(f"{path}: no trace in it; the `save` of a protocol's traces writes one")
        logs += found
    return logs


def parse(text: Iterable[str | bytes], name: str = "trace", *, telling: Telling) -> list[Log]:
    """Read logs from JSON lines.  Raises `TraceError`."""
    logs: list[Log] = []
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            _take(json_value(line, "JSON"), number, logs, telling)
        except (FileError, PlainError) as error:
            raise TraceError(f"{name}:{number}: {error}") from error
        except KeyError as error:
            raise TraceError(f"{name}:{number}: {error} is missing") from error
    return logs


def _take(data: Any, number: int, logs: list[Log], telling: Telling) -> None:
    if not isinstance(data, dict):
        raise PlainError("an object is expected")
    if data.get("kind") == telling.party:
        logs.append(Log(_read_head(data, telling), []))
    elif not logs:
        kind = str(data.get("kind"))[:40]
        remedy = "a trace of another protocol's needs --tables MODULE:NAME"
        raise PlainError(f"the first line must name the {telling.party} (kind: {telling.party}, not {kind}); {remedy}")
    else:
        logs[-1].entries.append(_read(data, number, telling))


def _read_head(data: dict[str, Any], telling: Telling) -> Any:
    if data["format"] != FORMAT:
        raise PlainError(f"format {str(data['format'])[:40]}; this version reads format {FORMAT}")
    about = {key: value for key, value in data.items() if key not in {"kind", "format"}}
    timing = telling.json.struct(telling.timing, data["timing"])
    return telling.json.struct(telling.head, about, given={"timing": timing})


def _entry(entry: TraceEntry, telling: Telling) -> dict[str, Plain]:
    plain = telling.json.plain
    if isinstance(entry, SentEntry):
        return {"kind": "sent", "number": entry.number, "effect": plain(entry.effect)}
    if isinstance(entry, HeardEntry):
        header = {name: plain(value, name) for name, value in zip(telling.header, entry.header, strict=True)}
        return {"kind": "heard", "time": entry.time, **header, "number": entry.number, "message": plain(entry.body),
                "route": entry.route}  # fmt: skip
    said: dict[str, Plain] = {
        "kind": "step", "time": entry.time, "machine": entry.machine, "event": plain(entry.event),
        "from": entry.source, "to": entry.target, "row": entry.row, "effects": plain(entry.effects),
    }  # fmt: skip
    return said if entry.value is None else {**said, "value": plain(entry.value)}


def _read(data: dict[str, Any], line: int, telling: Telling) -> TraceEntry:
    struct = telling.json.struct

    def field(name: str, hint: Any) -> Any:
        return telling.json.value(hint, data[name], name, name)

    if data["kind"] == "sent":
        effect = struct(Effect, data["effect"])
        if telling.left(effect) is None:
            raise PlainError(f"effect: no message leaves by {type(effect).__name__}")
        return SentEntry(line, effect, field("number", int))
    if data["kind"] == "heard":
        header = tuple(field(name, int) for name in telling.header)
        route = field("route", int | None) if "route" in data else None
        number, body = field("number", int), struct(telling.body, data["message"])
        return HeardEntry(line, _time(data, telling), header, body, route, number)
    table = telling.tables.get(field("machine", str)) if data["kind"] == "step" else None
    if table is None:
        raise PlainError(f"no entry of kind {str(data['kind'])[:40]!r}, machine {str(data.get('machine'))[:40]!r}")
    event = struct(Event, data["event"])
    if type(event) not in table.events:
        raise PlainError(f"event: {table.name} takes no {type(event).__name__}")
    if not isinstance(data["effects"], list):
        raise PlainError("effects: a list is expected")
    effects = tuple(_read_output(each, telling) for each in data["effects"])
    value = _read_value(table, data["value"], telling) if "value" in data else None
    return StepEntry(line, _time(data, telling), table.name, telling.key_of(table, event), event, field("from", str),
                     field("to", str), field("row", int | None), effects, value)  # fmt: skip


def _time(data: dict[str, Any], telling: Telling) -> float:
    if data["time"] is None:  # which is infinity where a timer ends
        raise PlainError("time: null is no time")
    return float(telling.json.value(float, data["time"], "time", "time"))  # type: ignore[arg-type]


def _read_output(data: Any, telling: Telling) -> Output:
    """Read an output of a step: an effect, or an event for another machine of the party."""
    name = data.get("type") if isinstance(data, dict) else None
    event = isinstance(name, str) and name in telling.events
    return telling.json.struct(Event, data) if event else telling.json.struct(Effect, data)


def _read_value(table: Table[Any], data: Any, telling: Telling) -> Value:
    if not isinstance(data, dict) or str(data.get("state")) not in table.states.__members__:
        raise PlainError(f"value: an object with a state of {table.name} is expected")
    state = str(data["state"])
    given: dict[str, object] = {"state": table.states[state]}
    value: Value = telling.json.struct(table.value, {**data, "state": None}, "value", given=given)
    return value
