"""A story for Perfetto (ui.perfetto.dev) and chrome://tracing: a process per rank, a track per room, chunk and link.

Each stay in a state is a slice, each message an arrow from the step that sent it to the step that it led to.  Times are
those of the ranks' own clocks: where they differ, arrows lean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvproto.protocol.events import room_of
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.trace.merge import Moment
from kvproto.trace.records import HeardEntry, SentEntry, StepEntry
from kvproto.trace.tell import fact, said

Json = dict[str, object]
MICRO = 1e6


def perfetto(story: Sequence[Moment]) -> str:
    """The story in the trace-event format (JSON)."""
    return json.dumps({"traceEvents": _Tracks(story).events(), "displayTimeUnit": "ms"})


class _Tracks:
    def __init__(self, story: Sequence[Moment]) -> None:
        self.story = story
        self.pids = {rank: i for i, rank in enumerate(sorted({m.rank for m in story}), 1)}
        self.tids: dict[tuple[str, str], int] = {}
        self.last: dict[tuple[str, str], tuple[float, StepEntry]] = {}
        self.out: list[Json] = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": rank}} for rank, pid in self.pids.items()
        ]

    def events(self) -> list[Json]:
        for moment in self.story:
            if isinstance(moment.entry, StepEntry):
                self._step(moment, moment.entry)
            elif isinstance(moment.entry, HeardEntry) and moment.cause is not None:
                self._arrow(self.story[moment.cause], moment)
        end = max((moment.time for moment in self.story), default=0.0)
        for (rank, track), (since, step) in self.last.items():
            self._slice(rank, track, step, since, end)
        return self.out

    def _tid(self, rank: str, track: str) -> int:
        if (rank, track) not in self.tids:
            tid = self.tids[rank, track] = len(self.tids) + 1
            self.out.append({"ph": "M", "name": "thread_name", "pid": self.pids[rank], "tid": tid,
                             "args": {"name": track}})  # fmt: skip
        return self.tids[rank, track]

    def _step(self, moment: Moment, step: StepEntry) -> None:
        track = _track(step)
        before = self.last.get((moment.rank, track))
        if before is None or step.source != step.target:
            if before is not None:
                self._slice(moment.rank, track, before[1], before[0], moment.time)
            self.last[moment.rank, track] = moment.time, step
        self.out.append({"ph": "i", "s": "t", "name": type(step.event).__name__, "ts": moment.time * MICRO,
                         **self._at(moment.rank, track),
                         "args": {"event": fact(step.event), "row": step.row,
                                  "effects": [fact(effect) for effect in step.effects]}})  # fmt: skip

    def _slice(self, rank: str, track: str, step: StepEntry, since: float, until: float) -> None:
        self.out.append({"ph": "X", "name": step.target, "ts": since * MICRO, "dur": max(until - since, 0.0) * MICRO,
                         **self._at(rank, track), "args": {"entered by": fact(step.event)}})  # fmt: skip

    def _at(self, rank: str, track: str) -> Json:
        return {"pid": self.pids[rank], "tid": self._tid(rank, track)}

    def _arrow(self, sender: Moment, receiver: Moment) -> None:
        if receiver.message is None:
            return
        sent_by = sender.cause if isinstance(sender.entry, SentEntry) and sender.cause is not None else sender.index
        entry = self.story[sent_by].entry
        track = _track(entry) if isinstance(entry, StepEntry) else "messages"
        common = {"name": said(receiver.message), "cat": "message", "id": receiver.index}
        self.out.append({"ph": "s", "ts": sender.time * MICRO, **common, **self._at(sender.rank, track)})
        following = self.story[receiver.index + 1 : receiver.index + 40]
        step = next((m.entry for m in following if m.rank == receiver.rank and isinstance(m.entry, StepEntry)), None)
        landed = _track(step) if step is not None else "messages"
        self.out.append({"ph": "f", "bp": "e", "ts": receiver.time * MICRO, **common,
                         **self._at(receiver.rank, landed)})  # fmt: skip


def _track(step: StepEntry) -> str:
    kind = step.machine.partition("_")[2]
    if kind == "link":
        return f"link {getattr(step.event, 'peer', 0)}"
    room, gen = room_of(getattr(step.event, "room", 0))
    name = f"room {room}" + (f".{gen}" if gen else "")
    if kind == "room":
        return name
    chunk = getattr(step.event, "chunk", 0)
    name += " aux" if chunk == AUX_CHUNK else f" chunk {chunk}"
    if kind in {"send", "write"}:
        name += f" to D{getattr(step.event, 'peer', 0)}"
    return name + (" (write)" if kind == "write" else "")
