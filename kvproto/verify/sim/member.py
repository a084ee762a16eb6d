"""A member of a simulated world: a rank, what it asks for, and what its engine was told.

What a rank asks of the outside becomes an entry in one of the world's lists: a message under way
(`MessageUnderWay`), or a gather, a write, a scatter or a wire-up (`PendingWork`).  Whether it goes wrong is drawn when
it begins (`FaultChances`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from kvproto.fsm.vocabulary import Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write

if TYPE_CHECKING:
    from kvproto.verify.sim.environment import Environment

Side = Literal["P", "D"]


class FaultChances(msgspec.Struct, frozen=True):
    """How likely each trouble is: 0 never, 1 always."""

    lose: float = 0.0
    repeat: float = 0.0
    #: a message overtakes others
    reorder: float = 0.0
    gather_fails: float = 0.0
    write_fails: float = 0.0
    #: a failed write is in doubt first
    doubt: float = 0.0
    #: a failed write has landed and, where writes tell, told of it
    told: float = 0.0
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


class MessageUnderWay(msgspec.Struct, frozen=True):
    """A message under way: to a rank, from a place."""

    side: Side
    to: int
    place: bytes
    epoch: int
    room: int
    body: msg.Message


class SimulatedRank(Surroundings):
    """A rank in the world, and what its engine was told."""

    def __init__(self, outside: Environment, side: Side, rank: PrefillRank | DecodeRank, life: int) -> None:
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
        return f"P{self.rank.index}".encode() if self.side == "P" else self.name.encode()

    def deliver(self, place: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """A message is on its way, unless it is lost or nobody is there."""
        self.outside.mail_to(place, self.place, epoch, room, body)

    def aux_row(self, room: int) -> bytes:
        return b"aux"

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        return b"page"

    def connect(self, asked: do.Connect) -> None:
        """The wire's name is its link's."""
        link, session = asked.link, asked.session
        fails = self.outside.chance(self.outside.chances.wire_fails)
        wire = f"{self.name} {link}"
        self._begin(ev.WireFailed(link, session, "no wire") if fails else ev.WiredUp(link, session, wire))

    def gather(self, asked: do.LaunchGather) -> None:
        key, odds, chance = (asked.room, asked.chunk, asked.peer), self.outside.chances, self.outside.chance
        event = ev.GatherFailed(*key) if chance(odds.gather_fails) else ev.Gathered(*key)
        self._begin(event, hangs=chance(odds.gather_hangs))

    def scatter(self, asked: do.LaunchScatter) -> None:
        fails = self.outside.chance(self.outside.chances.scatter_fails)
        self._begin(ev.ScatterFailed(asked.room, asked.chunk) if fails else ev.Scattered(asked.room, asked.chunk))

    def prepare(self, write: do.PreparePages) -> int:
        """Make a write over pages ready at once, in a few batches; or not at all."""
        outside = self.outside
        return 0 if outside.chance(outside.chances.write_unmade) else outside.random.randint(1, outside.chances.batches)

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
            landed = isinstance(write, do.PostWrite) and chance(odds.told)
            self._begin(ev.BatchFailed(*key, settled=not chance(odds.doubt)), write=write if landed else None)
        else:
            self._begin(ev.BatchCompleted(*key), hangs=chance(odds.write_hangs), write=write)
        return None

    def _begin(self, event: Event, *, hangs: bool = False, write: Write | None = None) -> None:
        self.outside.jobs.append(PendingWork(self, event, hangs, write))

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
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
        return room in self.opened and getattr(value.work, "owned", True)

    def hear_report(self, report: Report) -> None:
        self.outside.reports.append(report)


class PendingWork(msgspec.Struct):
    """Something under way outside the rank; `event` is raised when it ends."""

    node: SimulatedRank
    event: Event
    hangs: bool = False
    #: what lands when it ends
    write: Write | None = None
