"""A stage: real ranks, a clock that is turned by hand, and a network that does what the scene says.

The ranks are the ones that run in engines, and what their effects come to is the interpreter's.  The stage only says
how long things take: messages, kernels and writes take a while, and all of it happens in the order of one clock, so
that a scene is the same every time.  What is drawn from it (sequence charts, sample traces) is therefore what the
tables do, not what somebody thinks they do.  It numbers the copies of messages that it carries, and keeps what became
of each (`SceneStage.carried`): by that the drawings are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.vocabulary import Event, Report
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings
from kvproto.verify.framework.trace.tell import Mark
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write

#: seconds that things take on the stage
MESSAGE, KERNEL, WRITE, CONNECT = 50e-6, 100e-6, 400e-6, 200e-6
#: how much later than the data's arrival a writer sees the end of its write
REPORT = 150e-6
CHUNK_TOKENS, PAGE = 64, 16


class SceneRanks(msgspec.Struct, frozen=True):
    """The ranks of each side on stage, and their settings."""

    prefill: int = 1
    decode: int = 1
    heads: int = 4
    settings: Settings = Settings()
    #: a staged write carries its own notification
    native_notify: bool = False

    def layout(self, side: str) -> Layout:
        """Return the layout of one side; the two order pages differently, so that a single pair stages, too."""
        return Layout(
            layers=2, heads=self.heads, k_dim=16, v_dim=16, itemsize=2, dtype="bfloat16", page_size=PAGE,
            tp=self.prefill if side == "P" else self.decode, order="NHD" if side == "P" else "HND",
        )  # fmt: skip


class CarriedMessage(msgspec.Struct):
    """A copy that the stage carries: sender, receiver, number on the way, and the time it was heard."""

    sender: str
    receiver: str
    epoch: int
    room: int
    body: msg.Message
    number: int
    sent: float
    #: how often it arrived where nobody was
    nobody: int = 0
    heard: list[float] = msgspec.field(default_factory=list)


#: what the network does with a message (sender, receiver, what it says): the seconds after which each copy arrives
Arrivals = Callable[[str, str, msg.Message], tuple[float, ...]]


def in_time(sender: str, receiver: str, body: msg.Message) -> tuple[float, ...]:
    """Nothing is lost, doubled or late."""
    del sender, receiver, body
    return (MESSAGE,)


class Actor(Surroundings):
    """A rank on stage; its place is its name."""

    def __init__(self, stage: SceneStage, name: str, rank: Rank) -> None:
        self.stage, self.name, self.rank = stage, name, rank
        self.interpreter = Interpreter(rank, self)

    def deliver(self, place: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """A message takes a while, or whatever the scene has happen to it."""
        stage, other = self.stage, place.decode()
        number = stage.numbers.count((self.name, other, epoch, bool(room)))
        copy = CarriedMessage(self.name, other, epoch, room, body, number, stage.now)
        stage.carried.append(copy)
        for delay in stage.arrivals(self.name, other, body):
            stage.at(delay, lambda: stage.hear(copy))

    def aux_row(self, room: int) -> bytes:
        return b"aux row"

    def page_ids(self, asked: do.TransmitPages) -> bytes:
        pages = range(asked.cut.first // PAGE, -(-asked.cut.end // PAGE))
        return b"".join(page.to_bytes(4, "little") for page in pages)

    def connect(self, asked: do.Connect) -> None:
        wire = f"{self.name}-{self.rank.peers[asked.link].rank}"
        self.stage.tell(self.name, ev.WiredUp(asked.link, asked.session, wire), CONNECT)

    def gather(self, asked: do.LaunchGather) -> None:
        self.stage.tell(self.name, ev.Gathered(asked.room, asked.chunk, asked.peer), KERNEL)

    def post(self, write: Write) -> type[Untaken] | None:
        """It succeeds; if it carries its notification, the writer is the last to know."""
        done = ev.BatchCompleted(write.room, write.chunk, write.peer)
        if isinstance(write, do.PostWrite) and self.stage.cast.native_notify:
            body = msg.StgNotify(write.chunk, write.grant)
            note = CarriedMessage(self.name, f"D{write.peer}", write.to.epoch, write.room, body, 0, self.stage.now)
            self.stage.at(WRITE, lambda: self.stage.hear(note))
            self.stage.tell(self.name, done, WRITE + REPORT)
        else:
            self.stage.tell(self.name, done, WRITE)
        return None

    def scatter(self, asked: do.LaunchScatter) -> None:
        self.stage.tell(self.name, ev.Scattered(asked.room, asked.chunk), KERNEL)

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        self.stage.outcomes[self.name, news.room] = news.cause

    def hear_report(self, report: Report) -> None:
        self.stage.reports.append(report)


class SceneStage:
    """Ranks, links and the clock; `arrivals` says what the network does with each message."""

    def __init__(self, cast: SceneRanks, *, arrivals: Arrivals = in_time) -> None:
        """The decode ranks call at once; `run` lets things happen."""
        self.now = 0.0
        self.cast = cast
        self.arrivals = arrivals
        #: every message that was sent, in its order; and what no rank can tell
        self.numbers, self.carried = CopyNumbers(), list[CarriedMessage]()
        self.marks: list[Mark] = []
        self.plan = Plan(cast.layout("P"), cast.layout("D"), CHUNK_TOKENS)
        self.actors: dict[str, Actor] = {}
        self.past: list[Rank] = []
        self.dead: set[str] = set()
        self.outcomes: dict[tuple[str, int], object] = {}
        self.reports: list[Report] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for i in range(cast.prefill):
            self.start_prefill(i, incarnation=1)
        for i in range(cast.decode):
            rank = DecodeRank(
                cast.layout("D"), i, group=2, chunk_tokens=CHUNK_TOKENS, incarnation=1, settings=cast.settings
            )
            actor = self.actors[f"D{i}"] = Actor(self, f"D{i}", rank)
            for peer in self.plan.linked_to(i):
                _, effects = rank.call(1, peer, self.plan, self.now, f"P{peer}")
                actor.interpreter.carry_out(effects, self.now)

    @property
    def ranks(self) -> dict[str, Rank]:
        return {name: actor.rank for name, actor in self.actors.items()}

    def start_prefill(self, index: int, *, incarnation: int) -> None:
        """A prefill rank (re)starts: all that it knew is gone."""
        name, layout = f"P{index}", self.cast.layout("P")
        if name in self.actors:
            self.past.append(self.actors[name].rank)
            self.marks.append(Mark(self.now, name, "starts again, and knows nothing"))
        rank = PrefillRank(
            layout, index, group=1, chunk_tokens=CHUNK_TOKENS, incarnation=incarnation, settings=self.cast.settings
        )
        rank.native_notify = self.cast.native_notify
        self.actors[name] = Actor(self, name, rank)
        self.dead.discard(name)

    def kill(self, name: str) -> None:
        self.dead.add(name)
        self.marks.append(Mark(self.now, name, "dies, and hears nothing more"))

    def terms(self, name: str) -> ev.Terms:
        rank = self.actors[name].rank
        assert isinstance(rank, DecodeRank)
        return rank.terms(1, self.plan)

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Have something happen `delay` seconds from now."""
        self._count += 1
        heappush(self._agenda, (self.now + delay, self._count, action))

    def tell(self, name: str, event: Event, delay: float = 0.0) -> None:
        self.at(delay, lambda: self._handle(name, event))

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + seconds
        while True:
            living = [(name, actor) for name, actor in self.actors.items() if name not in self.dead]
            timers = [(actor.rank.next_deadline, name) for name, actor in living]
            due, name = min(timers, default=(end, ""))
            after = self._agenda[0][0] if self._agenda else end
            if min(due, after) >= end:
                break
            self.now = max(self.now, min(due, after))
            if due < after:
                self.actors[name].interpreter.tick(self.now)
            else:
                heappop(self._agenda)[2]()
        self.now = end

    # ------------------------------------------------------------------------------------ what ranks hear
    def _handle(self, name: str, event: Event) -> None:
        if name not in self.dead:
            self.actors[name].interpreter.handle(event, self.now)

    def hear(self, copy: CarriedMessage) -> None:
        if copy.receiver in self.dead:
            copy.nobody += 1
            return
        copy.heard.append(self.now)
        hears, place = self.actors[copy.receiver].interpreter.hear, copy.sender.encode()
        hears(place, copy.epoch, copy.room, copy.body, self.now, copy.number)
