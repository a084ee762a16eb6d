"""What is outside a rank, as lists: mail under way, and gathers, writes, scatters and wire-ups under way.

What a rank asks of the outside becomes an entry; an entry that is taken becomes an event or a message.  What is judged
here is judged at these two moments: a part is posted once at most and never after its room's release, it lands in a
region that its own (room, chunk) still holds, and an outcome and a release come once.

A place is a rank's name.  A decode rank that has started anew calls from another place than before; a prefill rank
listens where it did.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

import msgspec

from kvproto.fsm.driver import steps
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.settings import PREFILL_GROUP
from kvproto.sim.interpreter import Interpreter, Surroundings, Untaken, Write

Side = Literal["P", "D"]


class Chances(msgspec.Struct, frozen=True):
    """How likely each trouble is: 0 never, 1 always."""

    lose: float = 0.0
    repeat: float = 0.0
    #: a message overtakes others
    reorder: float = 0.0
    gather_fails: float = 0.0
    write_fails: float = 0.0
    #: a failed write is in doubt first
    doubt: float = 0.0
    #: a write never ends by itself
    write_hangs: float = 0.0
    #: a write cannot be made ready; or the transport has no room for it, and later it has; or does not take it
    write_unmade: float = 0.0
    write_waits: float = 0.0
    write_refused: float = 0.0
    #: batches of a write over pages, at most
    batches: int = 1
    gather_hangs: float = 0.0
    scatter_fails: float = 0.0
    wire_fails: float = 0.0
    #: two things that have ended are seen in one pass
    together: float = 0.0
    #: time passes although something could move
    wait: float = 0.05


class Parcel(msgspec.Struct, frozen=True):
    """A message under way: to a rank, from a place."""

    side: Side
    to: int
    place: bytes
    epoch: int
    room: int
    body: msg.Message


class Member(Surroundings):
    """A rank in the world, and what its engine was told."""

    def __init__(self, outside: Outside, side: Side, rank: PrefillRank | DecodeRank, life: int) -> None:
        self.outside, self.side, self.rank, self.life = outside, side, rank, life
        self.interpreter = Interpreter(rank, self)
        self.outcomes: dict[int, Cause] = {}
        self.released: set[int] = set()
        self.opened: set[int] = set()
        self.alive = True

    @property
    def name(self) -> str:
        """As in `P0`, with the life if it is not the first."""
        return f"{self.side}{self.rank.index}" + "'" * self.life

    @property
    def place(self) -> bytes:
        """Where its messages come from."""
        return f"P{self.rank.index}".encode() if self.side == "P" else self.name.encode()

    def deliver(self, place: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """A message is on its way, unless it is lost or nobody is there."""
        self.outside.mail_to(place, self.place, epoch, room, body)

    def aux_row(self, room: int) -> bytes:
        """All rows are alike."""
        return b"aux"

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        """And so are all pages."""
        return b"page"

    def connect(self, asked: do.Connect) -> None:
        """The wire's name is its link's."""
        link, session = asked.link, asked.session
        fails = self.outside.chance(self.outside.chances.wire_fails)
        wire = f"{self.name} {link}"
        self._begin(ev.WireFailed(link, session, "no wire") if fails else ev.WiredUp(link, session, wire))

    def gather(self, asked: do.LaunchGather) -> None:
        """It ends, fails, or never ends."""
        key, odds, chance = (asked.room, asked.chunk, asked.peer), self.outside.chances, self.outside.chance
        event = ev.GatherFailed(*key) if chance(odds.gather_fails) else ev.Gathered(*key)
        self._begin(event, hangs=chance(odds.gather_hangs))

    def scatter(self, asked: do.LaunchScatter) -> None:
        """It ends, or fails."""
        fails = self.outside.chance(self.outside.chances.scatter_fails)
        self._begin(ev.ScatterFailed(asked.room, asked.chunk) if fails else ev.Scattered(asked.room, asked.chunk))

    def prepare(self, write: Write) -> int:
        """At once, over pages in a few batches; or not at all."""
        outside = self.outside
        if outside.chance(outside.chances.write_unmade):
            return 0
        return 1 if isinstance(write, do.PrepareWrite) else outside.random.randint(1, outside.chances.batches)

    def post(self, write: Write) -> type[Untaken] | None:
        """It is posted, once; or the transport has no room, or does not take it."""
        key, odds, chance = (write.room, write.chunk, write.peer), self.outside.chances, self.outside.chance
        if chance(odds.write_waits):
            self._begin(self.interpreter.offer(key))
            return ev.BatchDeferred
        if chance(odds.write_refused):
            return ev.BatchRefused
        self.outside.note_posted(self, write, self.interpreter.unposted[key][1])
        if chance(odds.write_fails):
            self._begin(ev.BatchFailed(*key, settled=not chance(odds.doubt)))
        else:
            self._begin(ev.BatchCompleted(*key), hangs=chance(odds.write_hangs), write=write)
        return None

    def _begin(self, event: Event, *, hangs: bool = False, write: Write | None = None) -> None:
        self.outside.jobs.append(Job(self, event, hangs, write))

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        """Once a room."""
        assert news.room not in self.outcomes, f"seed {self.outside.seed}: a second outcome: {news} on {self.name}"
        self.outcomes[news.room] = news.cause

    def hear_released(self, room: int) -> None:
        """Once a room; one that the engine has not opened is waited for by nobody."""
        if self._owned(room):
            assert room not in self.released, f"seed {self.outside.seed}: a second release of {room} on {self.name}"
            self.released.add(room)

    def _owned(self, room: int) -> bool:
        value = self.rank.value_of(room)
        if value is None:  # its tombstone has gone already
            return room in self.opened and room not in self.released
        return room in self.opened and (value.work is None or getattr(value.work, "owned", True))

    def hear_report(self, report: Report) -> None:
        """Kept, for whoever looks."""
        self.outside.reports.append(report)


class Job(msgspec.Struct):
    """Something under way outside the rank; `event` is raised when it ends."""

    node: Member
    event: Event
    hangs: bool = False
    #: what lands when it ends
    write: Write | None = None


class Outside:
    """Everything but the ranks; `World` adds who there is, what engines do and what time it is."""

    def __init__(self, seed: int, chances: Chances) -> None:
        self.random, self.seed, self.chances = Random(seed), seed, chances
        self.now = 0.0
        self.nodes: dict[tuple[Side, int], Member] = {}
        self.mail: list[Parcel] = []
        self.jobs: list[Job] = []
        self.posted: set[tuple[str, int, int, int, int]] = set()
        self.flying: Counter[tuple[str, int]] = Counter()
        self.reports: list[Report] = []
        self.fired: Counter[Row] = Counter()

    def prefill(self, index: int) -> PrefillRank:
        """This prefill rank."""
        rank = self.nodes["P", index].rank
        assert isinstance(rank, PrefillRank)
        return rank

    def decode(self, index: int) -> DecodeRank:
        """This decode rank."""
        rank = self.nodes["D", index].rank
        assert isinstance(rank, DecodeRank)
        return rank

    def chance(self, odds: float) -> bool:
        """Whether it happens."""
        return odds > 0 and self.random.random() < odds

    # ---------------------------------------------------------------------------------------- the lists
    def mail_to(self, place: bytes, sender: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """A message leaves for this place; it may be lost, or come twice."""
        node = next((node for node in self.nodes.values() if node.place == place), None)
        if node is None or self.chance(self.chances.lose):
            return
        parcel = Parcel(node.side, node.rank.index, sender, epoch, room, body)
        self.mail += [parcel, parcel] if self.chance(self.chances.repeat) else [parcel]

    def deliver(self, at: int) -> None:
        """This message arrives."""
        parcel = self.mail.pop(at)
        node = self.nodes[parcel.side, parcel.to]
        node.interpreter.hear(parcel.place, parcel.epoch, parcel.room, parcel.body, self.now)
        self._harvest(node)

    def finish(self, job: Job) -> None:
        """This job ends; perhaps another one of its rank ends in the same pass."""
        events = self._end(job)
        other = next((each for each in self.jobs if each.node is job.node and not each.hangs), None)
        if other is not None and self.chance(self.chances.together):
            events += self._end(other)
        if events and job.node.alive:
            job.node.interpreter.handle(events[0], self.now, *events[1:])
            self._harvest(job.node)

    def _end(self, job: Job) -> list[Event]:
        """What the rank hears of it."""
        self.jobs.remove(job)
        node, event = job.node, job.event
        if job.write is not None:
            self._landing(node, job.write)
            if isinstance(job.write, do.PrepareWrite) and getattr(node.rank, "tells", False):
                self.jobs.append(Job(node, event))  # the target hears of it before the writer, or after
                self._tell(node, job.write)
                return []
        if isinstance(event, ev.BatchCompleted | ev.BatchFailed | ev.BatchSettled):
            doubtful = isinstance(event, ev.BatchFailed) and not event.settled
            self.flying[node.name, event.room] -= not doubtful
            if doubtful:
                self.jobs.append(Job(node, ev.BatchSettled(event.room, event.chunk, event.peer)))
        return [event]

    def note_posted(self, node: Member, write: Write, batch: int) -> None:
        """A batch of a write is posted: once at most, and not after the release."""
        key = node.name, write.room, write.chunk, write.peer, batch
        assert key not in self.posted, f"seed {self.seed}: {key} is posted twice"
        assert write.room not in node.released, f"seed {self.seed}: {write} after the release"
        self.posted.add(key)
        self.flying[node.name, write.room] += 1

    def _tell(self, node: Member, write: do.PrepareWrite) -> None:
        """The notification that the write carries is on its way; with its bytes, so it is not lost."""
        body = msg.StgNotify(write.chunk, write.grant)
        self.mail.append(Parcel("D", write.peer, node.place, write.epoch, write.room, body))

    def _landing(self, node: Member, write: Write) -> None:
        """The region that a staged part lands in is still its own."""
        if not isinstance(write, do.PrepareWrite):
            return
        target = self.decode(write.peer)
        here = target.links.get(target.link_of.get((PREFILL_GROUP, node.rank.index), 0))
        if here is None or write.epoch != here.epoch or here.state.name != "UP":
            return  # the decode rank has quarantined, or is another life; the lease decides, which needs real time
        held = target.chunk_of.get(write.grant)
        assert held == (write.room, write.chunk), f"seed {self.seed}: {write} into a region of {held}"

    def _harvest(self, node: Member) -> None:
        """What has fired is counted before the trace forgets it."""
        if len(node.rank.trace) > (node.rank.trace.maxlen or 0) // 2:
            self._count(node)

    def _count(self, node: Member) -> None:
        for _, row, *_ in steps(node.rank.trace):
            if row is not None:
                self.fired[row] += 1
        node.rank.trace.clear()
