"""Several ranks' logs as one story: merged by cause, not by clock.

Two things order what happened: each log's own order, and that a message is heard after it was sent.  So the logs are
read side by side; a log whose next entry is a message waits until a log that it came from has told of its sending.  A
notification that a write carries was sent when the write was posted.

Clocks (which differ between machines) only choose among what may come next.

A message that came twice, or whose sending no log has, stops nobody: when all logs wait, the earliest goes on, and is
told as `repeated` or `unseen`.  Messages that were sent and never heard are `lost`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from kvproto.fsm.vocabulary import Effect, Event
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import TimerFired
from kvproto.protocol.messages import Body, LinkBody
from kvproto.trace.records import Head, HeardEntry, Log, SentEntry, StepEntry, TraceEntry

Way = Literal["", "lost", "repeated", "unseen"]
#: messages that are about a link
LINK_NAMES = frozenset(str(body.__struct_config__.tag) for body in get_args(LinkBody))
#: events that a rank raises itself, in the pass in which they are caused
INNER = (
    ev.SendFinished, ev.SendsStopped, ev.RoomFailed, ev.PeerQuiet, ev.LinkCameUp, ev.LinkWentDown, ev.ChunkLanded,
    ev.GrantClosed, ev.SendOpened, ev.WatermarkReached, ev.KvProduced, ev.AuxReady, ev.SlotTaken, ev.SendStopped,
    ev.SpaceReserved, ev.SpaceDenied, ev.SpaceUsable, ev.RoomStopped, ev.RoomDrained, ev.WatermarkSeen,
    ev.StagingRequested, ev.PagesRequested, ev.WriteBegun, ev.PagesBegun, ev.WriteStopped, ev.WriteCompleted,
    ev.WriteFailed, ev.OpenAsked, ev.QuietAsked,
)  # fmt: skip
#: who raises the others
SOURCES: dict[str, tuple[type[Event], ...]] = {
    "engine": (ev.EngineOpened, ev.RoomOpened, ev.ForwardScheduled, ev.TokensProduced, ev.AuxProvided,
               ev.EngineAborted, ev.CallAsked),
    "kernel": (ev.Gathered, ev.GatherFailed, ev.Scattered, ev.ScatterFailed),
    "transport": (ev.BatchReady, ev.BatchUnmade, ev.BatchDeferred, ev.BatchRefused, ev.BatchCompleted, ev.BatchFailed,
                  ev.BatchSettled, ev.WiredUp, ev.WireFailed, ev.TransportLost),
    "control plane": (ev.DialFailed, ev.QueueOverflowed),
    "timer": (TimerFired,),
}  # fmt: skip


class Message(msgspec.Struct, frozen=True):
    """What was said: by whom, to whom, about which room."""

    sender: str
    receiver: str
    room: int
    name: str
    fields: tuple[tuple[str, object], ...]


class Moment(msgspec.Struct):
    """One entry of the story; `cause` is the index of the moment that led to it (None: the world did)."""

    index: int
    rank: str
    time: float
    entry: TraceEntry
    cause: int | None = None
    source: str = ""
    message: Message | None = None
    way: Way = ""
    #: link messages that left with this step: the rank that each went to
    far: tuple[str, ...] = ()


def names(heads: Iterable[Head]) -> dict[tuple[str, int, int], str]:
    """(side, group, index) -> `P0`, or `P0@1` where several groups of a side tell the story."""
    heads = list(heads)
    groups = {side: {head.group for head in heads if head.side == side} for side in ("prefill", "decode")}
    return {
        (h.side, h.group, h.index): h.name if len(groups[h.side]) == 1 else f"{h.name}@{h.group}" for h in heads
    }


def merge(logs: list[Log]) -> list[Moment]:
    """The story of these logs."""
    return _Merge(logs).tell()


class _Merge:
    def __init__(self, logs: list[Log]) -> None:
        self.names = names(log.head for log in logs)
        self.todo: dict[str, deque[TraceEntry]] = defaultdict(deque)
        self.links: dict[str, dict[int, str]] = defaultdict(dict)
        for log in sorted(logs, key=lambda log: self._first(log.entries)):  # a rank's lives follow one another
            self.todo[self._name(log.head)] += log.entries
            self.links[self._name(log.head)] |= self._peers(log.head)
        self.story: list[Moment] = []
        self.flying: dict[Message, deque[int]] = defaultdict(deque)
        self.landed: dict[Message, int] = {}
        #: ranks whose staged writes carry their notification; the grant of each write; when it was posted
        self.telling = {self._name(log.head) for log in logs if log.head.tells}
        self.grants: dict[tuple[str, tuple[int, ...]], int] = {}
        self.told: dict[tuple[str, int, object, object], int] = {}
        self.last: dict[str, int] = {}
        self.clock = {name: self._first(entries) for name, entries in self.todo.items()}

    def tell(self) -> list[Moment]:
        while any(self.todo.values()):
            ready = [name for name, entries in self.todo.items() if entries]
            free = [name for name in ready if not self._waits(name)]
            self._take(min(free or ready, key=lambda name: self.clock[name]))
        for index in (i for left in self.flying.values() for i in left):
            moment = self.story[index]
            if isinstance(moment.entry, SentEntry):
                moment.way = "lost"
        return self.story

    def _name(self, head: Head) -> str:
        return self.names[head.side, head.group, head.index]

    def _peers(self, head: Head) -> dict[int, str]:
        side = "decode" if head.side == "prefill" else "prefill"
        return {
            link: self.names.get((side, group, index), f"{side[0].upper()}{index}")
            for link, (group, index) in head.links.items()
        }

    def _other(self, name: str, link: int) -> str:
        return self.links[name].get(link, "?")

    @staticmethod
    def _first(entries: Iterable[TraceEntry]) -> float:
        return next((entry.time for entry in entries if not isinstance(entry, SentEntry)), 0.0)

    def _waits(self, name: str) -> bool:
        entry = self.todo[name][0]
        if not isinstance(entry, HeardEntry):
            return False
        message = self._heard(name, entry)
        return message.sender in self.todo and not self.flying.get(message) and self._told(message) is None

    def _take(self, name: str) -> None:
        entry = self.todo[name].popleft()
        if not isinstance(entry, SentEntry):
            self.clock[name] = entry.time
        moment = Moment(len(self.story), name, self.clock[name], entry)
        self.story.append(moment)
        if isinstance(entry, HeardEntry):
            self._hear(moment, self._heard(name, entry))
        elif isinstance(entry, SentEntry):
            moment.cause, moment.message = self.last.get(name), self._sent(name, entry.effect)
            self.flying[moment.message].append(moment.index)
        else:
            self._step(moment, entry)
        if not isinstance(entry, SentEntry):
            self.last[name] = moment.index
        following = next((e.time for e in self.todo[name] if not isinstance(e, SentEntry)), None)
        if self.todo[name] and not isinstance(self.todo[name][0], SentEntry) and following is not None:
            self.clock[name] = following

    def _hear(self, moment: Moment, message: Message) -> None:
        moment.message = message
        if self.flying.get(message):
            moment.cause = self.landed[message] = self.flying[message].popleft()
        elif message in self.landed:
            moment.cause, moment.way = self.landed[message], "repeated"
        elif (posted := self._told(message)) is not None:
            moment.cause = self.landed[message] = posted
        else:
            moment.way = "unseen"

    def _told(self, message: Message) -> int | None:
        """The moment at which the write was posted that carries this notification; None: no write does."""
        if message.name != "STG_NOTIFY":
            return None
        known = dict(message.fields)
        return self.told.get((message.sender, message.room, known["chunk"], known["grant"]))

    def _note_write(self, moment: Moment, step: StepEntry) -> None:
        key = moment.rank, step.key
        if isinstance(step.event, ev.WriteBegun):
            self.grants[key] = step.event.grant
        if key in self.grants and any(isinstance(effect, do.PostBatch) for effect in step.effects):
            room, chunk, _ = step.key
            self.told[moment.rank, room, chunk, self.grants[key]] = moment.index

    def _step(self, moment: Moment, step: StepEntry) -> None:
        if moment.rank in self.telling:
            self._note_write(moment, step)
        before = self.last.get(moment.rank)
        spoken = before is not None and isinstance(self.story[before].entry, HeardEntry)
        moment.source = next((who for who, kinds in SOURCES.items() if isinstance(step.event, kinds)), "")
        if spoken or (isinstance(step.event, INNER) and not moment.source):
            moment.cause = before
        for effect in step.effects:  # link messages leave as they are
            if isinstance(effect, do.SayHello | do.SayWelcome | do.SayRefusal | do.Transmit):
                message = self._sent(moment.rank, effect)
                moment.far += (message.receiver,)
                self.flying[message].append(moment.index)

    def _heard(self, name: str, entry: HeardEntry) -> Message:
        return _message(self._other(name, entry.link), name, entry.room, entry.body)

    def _sent(self, name: str, effect: Effect) -> Message:
        other = self._other(name, getattr(effect, "link", 0))
        if isinstance(effect, do.Transmit):
            assert isinstance(effect.body, Body)
            return _message(name, other, effect.room, effect.body)
        if isinstance(effect, do.TransmitPages):
            return Message(name, other, effect.room, "PAGES_RSP", (("chunk", effect.chunk),))
        if isinstance(effect, do.TransmitAux):
            return Message(name, other, effect.room, "AUX", ())
        kind = {do.SayHello: "HELLO", do.SayWelcome: "WELCOME", do.SayRefusal: "REFUSAL"}[type(effect)]
        return Message(name, other, 0, kind, (("session", getattr(effect, "session", 0)),))


def _message(sender: str, receiver: str, room: int, body: Body) -> Message:
    name = str(type(body).__struct_config__.tag)
    shown = ("session",) if name in {"HELLO", "WELCOME", "REFUSAL"} else type(body).__struct_fields__
    fields = tuple((f, v) for f in shown if not isinstance(v := getattr(body, f), bytes))
    return Message(sender, receiver, room, name, fields)


def select(story: Iterable[Moment], rooms: Iterable[int]) -> list[Moment]:
    """The moments about these rooms, and the watermarks that they told or waited for."""
    wanted, chosen = set(rooms), {}
    for moment in story:
        follows = moment.cause in chosen and _roomless(moment)
        if follows or _room(moment) in wanted:
            chosen[moment.index] = moment
    return list(chosen.values())


def _room(moment: Moment) -> int | None:
    if moment.message is not None:
        return moment.message.room if moment.message.room or moment.message.name not in LINK_NAMES else None
    if isinstance(moment.entry, StepEntry) and not moment.entry.machine.endswith("link"):
        return getattr(moment.entry.event, "room", None)
    return None


def _roomless(moment: Moment) -> bool:
    return _room(moment) is None and not moment.source


def rooms(story: Iterable[Moment]) -> dict[int, int]:
    """Each room of the story with the number of its moments, the most eventful first."""
    counts: dict[int, int] = defaultdict(int)
    for moment in story:
        entry = moment.entry
        if isinstance(entry, StepEntry) and not entry.machine.endswith("link"):
            counts[getattr(entry.event, "room", 0)] += 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))
