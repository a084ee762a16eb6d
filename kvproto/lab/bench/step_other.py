"""The same tables as machines of pytransitions, driven through the same steps.

Everything that favours it is granted: one machine of each table with many models (not a machine a model), rows that
stay are internal transitions, the callbacks are plain functions that call our own guards, changes and effects, events
are made beforehand, models of sends exist before their sends begin, nothing keeps timers or a trace, and nothing routes
effects: which machine takes which event, in which order, is read from the rehearsal.

It lives in a process of its own (`PlayerProcess`), which takes its turns when it is asked to: so neither side pays for
the other's heap and garbage. The process is forked first of all, while there is little that the two could share: a page
that is shared is copied when it is touched.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from msgspec.structs import replace

from kvproto.fsm.table import Output, Row, Table
from kvproto.fsm.vocabulary import Report
from kvproto.lab.bench.step_life import BenchRoom, Script, collect_ms, opening
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.tables.prefill_write import prefill_write
from kvproto.rank.prefill import PrefillRank

Key = tuple[int, int, int]
TABLES: dict[str, Table[Any]] = {"room": prefill_room, "send": prefill_send, "write": prefill_write}


class StepModel:
    """What the library drives: its `state`, and the value that our functions read."""

    def __init__(self, table: Table[Any], take: Callable[[Iterable[Output]], None]) -> None:
        self.value = table.value(table.initial)
        self.take = take


class TransitionsMachines:
    """The tables as machines of pytransitions, and their models."""

    def __init__(self) -> None:
        self.take = deque[Output](maxlen=1024).extend
        self.machines = {kind: _machine(table) for kind, table in TABLES.items()}
        self.models: dict[str, dict[Key, Any]] = {kind: {} for kind in TABLES}

    def add(self, kind: str, key: Key) -> Any:
        """A model in its initial state."""
        model = StepModel(TABLES[kind], self.take)
        self.machines[kind].add_model(model)
        self.models[kind][key] = model
        return model

    def open(self, rank: PrefillRank, room: BenchRoom) -> None:
        """Open a room as `fill` does."""
        model = self.add("room", (room.key, 0, 0))
        for event in opening(rank, room):
            getattr(model, type(event).__name__)(model, event, 0.0)

    def prepare(self, script: Script, first: int, last: int) -> None:
        """Add the models that these steps need and that are not there."""
        for kind, key, _ in script.fired[first:last]:
            if key not in self.models[kind]:
                self.add(kind, key)

    def play(self, script: Script, first: int, last: int, clock: Callable[[], float]) -> float:
        """Seconds for the script's steps `first` .. `last - 1`: the model found, the event's trigger called."""
        work = [(self.models[kind], key, type(event).__name__, event) for kind, key, event in script.fired[first:last]]
        begin = clock()
        for models, key, name, event in work:
            model = models[key]
            getattr(model, name)(model, event, 0.0)
        return clock() - begin


def measure(rank: PrefillRank, rooms: Iterable[BenchRoom]) -> tuple[TransitionsMachines, int, float, float]:
    """Open these rooms: the machines, how many rooms, bytes a room, milliseconds of a full collection."""
    other, count = TransitionsMachines(), 0
    gc.collect()
    gc.disable()  # a collection now and then would only make the opening slower
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    for count, room in enumerate(rooms, 1):  # noqa: B007 - the count is wanted afterwards
        other.open(rank, room)
    used = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    gc.enable()
    return other, count, used / count, collect_ms()


class ScriptPlayer:
    """The other side of one script: who plays it, and how it should end."""

    def __init__(self, other: TransitionsMachines, script: Script, rehearsal: PrefillRank) -> None:
        self.other, self.script, self.rehearsal = other, script, rehearsal

    def prepare(self, first: int, last: int) -> None:
        """Have the models that these steps need."""
        self.other.prepare(self.script, first, last)

    def play(self, first: int, last: int) -> float:
        """Seconds of this thread's time for these steps."""
        return self.other.play(self.script, first, last, time.thread_time)

    def wrong(self) -> list[str]:
        """Rooms and sends that did not end as they should."""
        found, models = [], self.other.models
        for key in {about for kind, about, _ in self.script.fired if kind == "room"}:
            right, model = self.rehearsal.value_of(key[0]), models["room"][key]
            theirs = replace(model.value, state=right.state, due=0.0)
            if model.state != right.state.name or theirs != replace(right, due=0.0):
                found.append(f"room {key[0]:x}: pytransitions has {model.state} {model.value}, not {right}")
        return found + [f"send {key}: {m.state}" for key, m in models["send"].items() if m.state != "DONE"]


class PlayerProcess:
    """A `ScriptPlayer` in a process of its own."""

    def __init__(self, make: Callable[[], tuple[Sequence[BenchRoom], Script, PrefillRank]]) -> None:
        """`make` gives the rooms, the script and its rehearsal; it is called there."""
        self._pipe, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("fork").Process(target=_serve, args=(theirs, make), daemon=True).start()

    def told(self) -> dict[str, float]:
        """What `measure` says of the rooms, once they are there."""
        told: dict[str, float] = self._pipe.recv()
        return told

    def prepare(self, first: int, last: int) -> None:
        self._ask("prepare", first, last)

    def play(self, first: int, last: int) -> float:
        return float(self._ask("play", first, last))

    def wrong(self) -> list[str]:
        return list(self._ask("wrong"))

    def _ask(self, name: str, *args: int) -> Any:
        self._pipe.send((name, args))
        return self._pipe.recv()


def _serve(pipe: Connection, make: Callable[[], tuple[Sequence[BenchRoom], Script, PrefillRank]]) -> None:
    rooms, script, rehearsal = make()
    gc.collect()
    base_ms = collect_ms()
    other, count, nbytes, collected_ms = measure(rehearsal, rooms)
    pipe.send({"rooms": count, "bytes_per_room": nbytes, "gc_ms": collected_ms - base_ms})
    gc.freeze()
    player = ScriptPlayer(other, script, rehearsal)
    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(player, name)(*args))


def _machine(table: Table[Any]) -> Any:
    from transitions import Machine

    made = Machine(
        model=None, states=[state.name for state in table.states], initial=table.initial.name,
        auto_transitions=False, send_event=False,
    )  # fmt: skip
    for row in table.rows:
        stays = row.target is row.source
        made.add_transition(
            row.event.__name__, row.source.name, None if stays else row.target.name,
            conditions=[_guard(row)] if row.when else None, before=_before(row),
        )  # fmt: skip
    return made


def _guard(row: Row) -> Callable[..., bool]:
    when = row.when
    assert when is not None

    def guard(model: StepModel, event: Any, now: float) -> bool:
        return when(model.value, event, now)

    return guard


def _before(row: Row) -> list[Any]:
    let, build = row.let, row.do

    def change(model: StepModel, event: Any, now: float) -> None:
        assert let is not None
        model.value = let(model.value, event, now)

    def act(model: StepModel, event: Any, _now: float) -> None:
        model.take([make(model.value, event) for make in build])

    def report(model: StepModel, event: Any, _now: float) -> None:
        model.take([Report(str(event), row.why)])

    if row.verb == "refuse":
        return [report]
    return [*([change] if let else []), *([act] if build else [])]
