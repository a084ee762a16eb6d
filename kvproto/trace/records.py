"""Traces: what a rank did, step by step, as data.

A rank keeps its latest steps in memory at all times (`Rank.trace`), as references to values that exist anyway.  Here
they become a `Log`, and a log becomes JSON lines: one line names the rank, every other one is a step of a machine, a
message that was heard, or a message that left.  A file may hold the logs of several ranks, one after the other.

A step's value before is written only where a reader could not know it: at a machine's first step in the log, if it had
begun before, and where a tombstone was forgotten in between.  From there on the rows give it, which is what makes a
trace replayable, and a doctored one detectable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvproto.errors import KvprotoError
from kvproto.fsm.driver import STEP
from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.messages import Body
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.rank.base import Rank
from kvproto.rank.prefill import PrefillRank
from kvproto.trace.plain_json import Plain, PlainError, plain, struct

FORMAT = 1
BY_NAME: dict[str, Table[Any]] = {table.name: table for table in TABLES}
BY_VALUE: dict[type[Value], Table[Any]] = {table.value: table for table in TABLES}
#: the events that the tables see
EVENTS = {event.__name__ for table in TABLES for event in table.events}
#: which fields of an event name the machine
KEYS = {"room": ("room",), "send": ("room", "chunk", "peer"), "write": ("room", "chunk", "peer"),
        "grant": ("room", "chunk"), "link": ("peer",)}


class TraceError(KvprotoError, ValueError):
    """A trace that cannot be read; the sentence names file, line and remedy."""


class Head(msgspec.Struct, frozen=True):
    """Whose log it is.

    `links` gives the (group, rank) at the other end of each link; `tells`: its staged writes carry their notification.
    """

    side: str
    group: int
    index: int
    digest: str
    timing: Timing
    whole: bool
    links: dict[int, tuple[int, int]]
    tells: bool = False

    @property
    def name(self) -> str:
        """`P0`, `D1`: side and index (groups are told apart by whoever shows several)."""
        return f"{self.side[0].upper()}{self.index}"


class StepEntry(msgspec.Struct, frozen=True):
    """One machine's step; `value` only where it cannot be known from the steps before."""

    line: int
    time: float
    machine: str
    key: tuple[int, ...]
    event: Event
    source: str
    target: str
    row: int | None
    effects: tuple[Output, ...]
    value: Value | None = None


class HeardEntry(msgspec.Struct, frozen=True):
    """A message that came, and the route of its side that took it."""

    line: int
    time: float
    link: int
    epoch: int
    room: int
    body: Body
    route: int | None = None


class SentEntry(msgspec.Struct, frozen=True):
    """A message that left: a `Transmit...` effect."""

    line: int
    effect: Effect


TraceEntry = StepEntry | HeardEntry | SentEntry


class Log(msgspec.Struct, frozen=True):
    """The trace of one rank."""

    head: Head
    entries: list[TraceEntry]


def machines_of(timing: Timing) -> dict[str, Machine[Any]]:
    """Every table compiled, by name: a step is pure, and fires again as it did."""
    return {name: Machine(table, timing) for name, table in BY_NAME.items()}


def key_of(table: Table[Any], event: Event) -> tuple[int, ...]:
    """Which of the table's machines the event concerns."""
    kind = table.name.partition("_")[2]
    return tuple(getattr(event, name) for name in KEYS[kind])


def log_of(rank: Rank, kept: list[Any] | None = None) -> Log:
    """The log of what the rank's trace holds now, or of a copy of it that was taken before."""
    kept = list(rank.trace) if kept is None else kept
    links = {link: (peer.group, peer.rank) for link, peer in list(rank.peers.items())}
    side = "prefill" if isinstance(rank, PrefillRank) else "decode"
    whole = len(kept) < (rank.trace.maxlen or 0)
    tells = isinstance(rank, PrefillRank) and rank.tells
    head = Head(side, rank.group, rank.index, tables_digest(), rank.settings.timing, whole, links, tells)
    log = Log(head, [])
    last: dict[tuple[str, tuple[int, ...]], Value] = {}
    machines = machines_of(rank.settings.timing)
    for line, kept_entry in enumerate(kept, 2):
        if isinstance(kept_entry, Effect):
            log.entries.append(SentEntry(line, kept_entry))
        elif len(kept_entry) != STEP:
            when, (link, epoch, room, body), route = kept_entry
            log.entries.append(HeardEntry(line, when, link, epoch, room, body, route.index))
        else:
            now, row, event, old, new = kept_entry
            table = BY_VALUE[type(old)]
            _, effects = machines[table.name].step(old, event, now)
            key = key_of(table, event)
            before = last.get((table.name, key), table.value(table.initial))
            last[table.name, key] = new
            log.entries.append(
                StepEntry(line, now, table.name, key, event, old.state.name, new.state.name, row.index if row else None,
                     effects, None if old == before else old)
            )  # fmt: skip
    return log


def lines(log: Log) -> Iterator[str]:
    """The log as JSON lines."""
    yield json.dumps({"kind": "rank", "format": FORMAT, **_head(log.head)})
    for entry in log.entries:
        yield json.dumps(_entry(entry))


def save(ranks: Rank | Iterable[Rank], path: str | Path) -> None:
    """Write the traces of one or more ranks to a file."""
    logs = [log_of(rank) for rank in ([ranks] if isinstance(ranks, Rank) else ranks)]
    Path(path).write_text("".join(line + "\n" for log in logs for line in lines(log)))


def load(*paths: str | Path) -> list[Log]:
    """Read every log of these files.  Raises `TraceError`."""
    logs: list[Log] = []
    for path in paths:
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(f"{path}: cannot be read: {error}") from error
        found = parse(text.splitlines(), str(path))
        if not found:
            raise TraceError(f"{path}: no trace in it; kvproto.trace.save(rank, path) writes one")
        logs += found
    return logs


def parse(text: Iterable[str], name: str = "trace") -> list[Log]:
    """Read logs from JSON lines.  Raises `TraceError`."""
    logs: list[Log] = []
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if data.get("kind") == "rank":
                logs.append(Log(_read_head(data), []))
            elif not logs:
                raise PlainError("the first line must name the rank (kind: rank)")
            else:
                logs[-1].entries.append(_read(data, number))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise TraceError(f"{name}:{number}: {said}") from error
    return logs


def _head(head: Head) -> dict[str, Plain]:
    said = plain(head.timing)
    links: dict[str, Plain] = {str(link): list(peer) for link, peer in head.links.items()}
    return {"side": head.side, "group": head.group, "index": head.index, "digest": head.digest,
            "whole": head.whole, "links": links, "tells": head.tells, "timing": said}  # fmt: skip


def _read_head(data: dict[str, Any]) -> Head:
    if data["format"] != FORMAT:
        raise PlainError(f"format {data['format']}; this version reads format {FORMAT}")
    links = {int(link): (int(peer[0]), int(peer[1])) for link, peer in data["links"].items()}
    timing = struct(Timing, data["timing"])
    tells = bool(data.get("tells", False))
    return Head(data["side"], data["group"], data["index"], data["digest"], timing, data["whole"], links, tells)


def _entry(entry: TraceEntry) -> dict[str, Plain]:
    if isinstance(entry, SentEntry):
        return {"kind": "sent", "effect": plain(entry.effect)}
    if isinstance(entry, HeardEntry):
        return {"kind": "heard", "time": entry.time, "link": entry.link, "epoch": entry.epoch,
                "room": plain(entry.room, "room"), "message": plain(entry.body), "route": entry.route}  # fmt: skip
    said: dict[str, Plain] = {
        "kind": "step", "time": entry.time, "machine": entry.machine, "event": plain(entry.event),
        "from": entry.source, "to": entry.target, "row": entry.row, "effects": plain(entry.effects),
    }  # fmt: skip
    return said if entry.value is None else {**said, "value": plain(entry.value)}


def _read(data: dict[str, Any], line: int) -> TraceEntry:
    if data["kind"] == "sent":
        return SentEntry(line, struct(Effect, data["effect"]))
    if data["kind"] == "heard":
        said = struct(_Room, {"room": data["room"]})
        body, route = struct(Body, data["message"]), data.get("route")
        return HeardEntry(line, data["time"], data["link"], data["epoch"], said.room, body, route)
    table = BY_NAME.get(data["machine"])
    if data["kind"] != "step" or table is None:
        raise PlainError(f"no entry of kind {data['kind']!r}, machine {data.get('machine')!r}")
    event = struct(Event, data["event"])
    effects = tuple(_read_output(each) for each in data["effects"])
    value = _read_value(table, data["value"]) if "value" in data else None
    return StepEntry(line, float(data["time"]), table.name, key_of(table, event), event, data["from"], data["to"],
                data["row"], effects, value)  # fmt: skip


def _read_output(data: Any) -> Output:
    """What a step left behind: an effect, or an event for another machine of the rank."""
    name = data.get("type") if isinstance(data, dict) else None
    output: Output = struct(Event, data) if name in EVENTS else struct(Effect, data)
    return output


class _Room(msgspec.Struct):
    room: int


def _read_value(table: Table[Any], data: dict[str, Any]) -> Value:
    state = str(data.get("state"))
    if state not in table.states.__members__:
        raise PlainError(f"{table.name} has no state {state!r}")
    value: Value = struct(table.value, {**data, "state": None}, "value", given={"state": table.states[state]})
    return value
