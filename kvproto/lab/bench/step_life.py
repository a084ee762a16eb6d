"""Step life: lives of rooms on a prefill rank as a script of events and of the steps that they cause.

A script comes from a rehearsal: a rank of its own is driven as handlers would drive it (a request is granted, a gather
and a write end, a part is confirmed; many rooms at work in a random order, few staging slots), and what went in is
written down.  The same events in the same order then go into the rank that is timed, so that nothing but the rank, the
making of the events and the handing over of effects stands between two readings of the clock.  How many machine steps
an event causes is known from the rehearsal's trace: it is the same code and it is pure.

A room that ends is replaced by one that is opened, so the rank is as full at the end as at the beginning.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kvproto.fsm.driver import steps
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode, encode
from kvproto.rank.base import Rank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings
from kvproto.verify.sim.interpreter import Interpreter, Surroundings, Untaken, Write

CHUNK_TOKENS = 2048
PEERS = 2
#: rooms that a second opens: what 100,000 waiting rooms need to be open for less than the stall timer's 300 s
RATE = 1000.0
PREFILL = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
DECODE = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=PEERS)


def make_rank(*, tombstones: int = Settings().tombstones) -> PrefillRank:
    """A prefill rank with links to two decode ranks, up."""
    settings = Settings(tombstones=tombstones)
    rank = PrefillRank(PREFILL, 0, group=1, chunk_tokens=CHUNK_TOKENS, incarnation=7, settings=settings)
    rank.prepare()  # as an endpoint's: code is the process's, and no room's
    for index in range(PEERS):
        lease = settings.timing.lease.period
        said = msg.Hello(msg.VERSION, "", 5, 2, index, DECODE, CHUNK_TOKENS, lease, b"")
        link, _ = rank.hello(said, 0.0)
        rank.handle(ev.WiredUp(link, 5, "wire"), 0.0)
    return rank


class BenchRoom(msgspec.Struct, frozen=True, gc=False):
    """A request, as both engines name it."""

    key: int
    tokens: int
    prefix: int


def draw(rooms: int, seed: int) -> Iterator[BenchRoom]:
    """Yield requests with u64 ids and up to five chunks, every second one with a prefix of whole pages."""
    rng = random.Random(seed)
    for _ in range(rooms):
        tokens = rng.randint(CHUNK_TOKENS // 2, 5 * CHUNK_TOKENS)
        prefix = rng.randrange(0, tokens, 16) if rng.random() < 0.5 else 0
        yield BenchRoom(ev.room_key(rng.getrandbits(64), 0), tokens, prefix)


def opening(rank: PrefillRank, room: BenchRoom) -> list[Event]:
    """Return the events that open the room on both sides; it then waits for its forward."""
    terms = rank.peers[1].terms
    assert terms is not None
    heard = [ev.PeerOpened(room.key, peer, terms, room.tokens, room.prefix) for peer in range(PEERS)]
    return [ev.EngineOpened(room.key, room.tokens), *heard]


def fill(rank: PrefillRank, rooms: int, seed: int) -> float:
    """Open so many rooms, the decode ranks' word coming off the wire; returns the time at the end."""
    now = 0.0
    for number, room in enumerate(draw(rooms, seed)):
        now = number / RATE
        rank.handle(ev.EngineOpened(room.key, room.tokens), now)
        for link, value in rank.links.items():
            epoch, key, body = decode(encode(value.epoch, room.key, msg.Open(room.tokens, room.prefix)))
            rank.receive(link, epoch, key, body, now)
        if number % 100 == 0:
            pass_time(rank, now)
    return now


def pass_time(rank: PrefillRank, now: float) -> None:
    """Do the loop's other work: beats of links are heard, timers that are due fire."""
    for link, value in rank.links.items():
        rank.handle(ev.HeartbeatReceived(link, value.epoch, b""), now)
    rank.tick(now)


class Script(msgspec.Struct):
    """Events (type and arguments, made when due), their times, and the machine steps that they cause."""

    makes: list[type[Event]] = []
    args: list[tuple[Any, ...]] = []
    times: list[float] = []
    steps: list[int] = []
    #: (machine, (room, chunk, peer), event) of every step, internal ones too
    fired: list[tuple[str, tuple[int, int, int], Event]] = []


class RehearsedWorld(Surroundings):
    """The world of a rehearsing rank: each request is answered by an event some time later."""

    def __init__(
        self, rank: PrefillRank, script: Script, waiting: deque[BenchRoom], coming: Iterator[BenchRoom]
    ) -> None:  # fmt: skip
        """Take `waiting`: open rooms that are not computed; `coming`: rooms that open when one ends."""
        self.rank, self.waiting, self.coming = rank, waiting, coming
        self.due: list[Event] = []
        self.interpreter = RecordingInterpreter(rank, self, script)
        for link in rank.links:
            self.interpreter.bind(link, str(rank.peers[link].rank).encode())
            self.interpreter.wires[link] = "wire"

    def begin(self) -> None:
        if self.waiting:
            self.due.extend(_engine(self.waiting.popleft()))

    def deliver(self, place: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """Answer as the decode rank at this place, by an event."""
        peer = int(place)
        match body:
            case msg.StagingReq(chunk, asked):
                self.due.append(ev.StagingGranted(room, chunk, peer, 1, 0, 0, 64, usable=True, lease=30.0, asked=asked))
            case msg.StgNotify(chunk):
                self.due.append(ev.ChunkAcked(room, chunk, peer))
            case msg.Aux():
                self.due.append(ev.ChunkAcked(room, msg.AUX_CHUNK, peer))

    def aux_row(self, room: int) -> bytes:
        return b""

    def gather(self, asked: do.LaunchGather) -> None:
        self.due.append(ev.Gathered(asked.room, asked.chunk, asked.peer))

    def post(self, write: Write) -> type[Untaken] | None:
        self.due.append(ev.BatchCompleted(write.room, write.chunk, write.peer))
        return None

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        assert not news.cause, news
        self.due.extend(opening(self.rank, next(self.coming)))
        self.begin()


class RecordingInterpreter(Interpreter):
    """An interpreter that writes the script: all that goes into the rank."""

    def __init__(self, rank: PrefillRank, around: Surroundings, script: Script) -> None:
        super().__init__(rank, around)
        self.script = script

    def ask(self, what: Callable[..., list[Effect]], *about: Any) -> list[Effect]:
        effects = super().ask(what, *about)
        _note(self.script, self.rank, *about)
        return effects


def rehearse(
    rank: PrefillRank, alive: list[BenchRoom], fresh: list[BenchRoom], start: float, at_work: int = 64
) -> Script:
    """Live the lives of `alive`, at most `at_work` at a time; open one of `fresh` for each that ends."""
    script, rng, now = Script(), random.Random(3), start
    rank.trace.clear()
    world = RehearsedWorld(rank, script, deque(alive), iter(fresh))
    for _ in range(at_work):
        world.begin()
    while world.due:
        # one of the first of many: rooms interleave, what one room's engine says keeps its order
        event = world.due.pop(rng.randrange(min(len(world.due), at_work)))
        now += 2e-5
        world.interpreter.handle(event, now)
    return script


def _engine(room: BenchRoom) -> list[Event]:
    ends = range(2 * CHUNK_TOKENS, room.tokens + 2 * CHUNK_TOKENS, 2 * CHUNK_TOKENS)
    produced = [ev.TokensProduced(room.key, min(end, room.tokens)) for end in ends]
    return [ev.ForwardScheduled(room.key), *produced, ev.AuxProvided(room.key)]


def _note(script: Script, rank: Rank, event: Event, now: float) -> None:
    fields = tuple(getattr(event, name) for name in type(event).__struct_fields__)
    script.makes.append(type(event))
    script.args.append(fields)
    script.times.append(now)
    fired_now = list(steps(rank.trace))
    script.steps.append(len(fired_now))
    for _, row, fired, _, _ in fired_now:
        assert row is not None, fired
        assert row.verb != "refuse", row
        about: Any = fired
        chunk, peer = (about.chunk, about.peer) if fired.machine in {"send", "write"} else (0, 0)
        script.fired.append((fired.machine, (about.room, chunk, peer), fired))
    rank.trace.clear()


def play(rank: PrefillRank, script: Script, first: int, last: int, clock: Callable[[], float]) -> float:
    """Return the seconds of the script's events `first` .. `last - 1`: made, handled, effects taken over."""
    makes, args, times = script.makes[first:last], script.args[first:last], script.times[first:last]
    handle, take = rank.handle, deque[Effect](maxlen=1024).extend
    begin = clock()
    for make, given, now in zip(makes, args, times, strict=True):
        take(handle(make(*given), now))
    pass_time(rank, times[-1])
    return clock() - begin


def collect_ms() -> float:
    """Milliseconds of this thread's time for a full collection, the median of five."""
    samples = []
    for _ in range(5):
        begin = time.thread_time()
        gc.collect()
        samples.append((time.thread_time() - begin) * 1e3)
    return statistics.median(samples)
