"""A world: whole groups of ranks whose network, kernels, transports and clock are lists and a seed.

The ranks are the very objects that run in production.  What they ask of the outside becomes an entry in one of two
lists: `mail` (messages under way) and `jobs` (gathers, writes, scatters, wire-ups under way).  `step` takes one of
them, chosen by the seed; time passes when the lists are empty, and now and then before.  So one seed is one schedule,
and it can be run again.

What is judged while it runs, whoever drives it (a breach is an AssertionError with the seed):

* a part is posted once at most, and lands in a region that its own (room, chunk) still holds;
* each room's outcome and its release come once on each rank, and nothing is in flight on pages that were released;
* the watermark that a prefill rank has seen never exceeds the decode rank's own;
* `idle` tells whether anything is left: rooms, sends, grants, regions, slots, timers of rooms.

What a world leaves out: bytes (see `pair`), sockets and threads (likewise).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec

from kvproto import effects as do
from kvproto import events as ev
from kvproto import messages as msg
from kvproto.effects import Effect
from kvproto.layout import Layout, Plan
from kvproto.rank import Settings
from kvproto.rank_decode import DecodeRank
from kvproto.rank_prefill import PrefillRank
from kvproto.rows import Row
from kvproto.states import Cause

Side = Literal["P", "D"]
PREFILL_GROUP, DECODE_GROUP = 1, 2
MAIL_FIRST = 0.6


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
    gather_hangs: float = 0.0
    scatter_fails: float = 0.0
    wire_fails: float = 0.0
    #: time passes although something could move
    wait: float = 0.05


class Node:
    """A rank in the world, and what its engine was told."""

    def __init__(self, side: Side, rank: PrefillRank | DecodeRank, life: int) -> None:
        self.side, self.rank, self.life = side, rank, life
        self.outcomes: dict[int, Cause] = {}
        self.released: set[int] = set()
        self.opened: set[int] = set()
        self.alive = True

    @property
    def name(self) -> str:
        """As in `P0`, with the life if it is not the first."""
        return f"{self.side}{self.rank.index}" + "'" * self.life


class Parcel(msgspec.Struct, frozen=True):
    """A message under way: from one rank's index to the other's."""

    side: Side
    to: int
    sender: int
    epoch: int
    room: int
    body: msg.Message


class Job(msgspec.Struct):
    """Something under way outside the rank; `event` is raised when it ends."""

    node: Node
    event: ev.Event
    hangs: bool = False


class World:
    """`prefill` x `decode` groups; everything is wired up and the links called when it begins."""

    def __init__(
        self, seed: int, prefill: Layout, decode: Layout, *, grid: int, settings: Settings | None = None,
        chances: Chances | None = None,
    ) -> None:  # fmt: skip
        self.random, self.seed = Random(seed), seed
        self.layouts: dict[Side, Layout] = {"P": prefill, "D": decode}
        self.grid, self.settings = grid, settings or Settings()
        self.chances = chances or Chances()
        self.plan = Plan(prefill, decode, grid)
        self.now, self.lives = 0.0, 0
        self.mail: list[Parcel] = []
        self.jobs: list[Job] = []
        self.posted: set[tuple[str, int, int, int]] = set()
        self.flying: Counter[tuple[str, int]] = Counter()
        self.reports: list[do.Report] = []
        self.fired: Counter[Row] = Counter()
        self.nodes: dict[tuple[Side, int], Node] = {}
        for side in ("P", "D"):
            for index in range(self.layouts[side].ranks):
                self.start(side, index)
        for index in range(decode.ranks):
            self.call(index)

    # ------------------------------------------------------------------------------------------ ranks
    def start(self, side: Side, index: int) -> Node:
        """A new life of this rank."""
        old = self.nodes.get((side, index))
        if old is not None:
            old.alive = False
            self._harvest(old)
            self.jobs = [job for job in self.jobs if job.node is not old or isinstance(job.event, ev.WriteCompleted)]
        self.lives += 1
        kind, group = (PrefillRank, PREFILL_GROUP) if side == "P" else (DecodeRank, DECODE_GROUP)
        rank = kind(
            self.layouts[side], index, group=group, grid=self.grid, incarnation=self.lives, settings=self.settings
        )
        node = self.nodes[side, index] = Node(side, rank, old.life + 1 if old else 0)
        return node

    def call(self, index: int) -> None:
        """The decode rank calls every prefill rank that it shares something with."""
        rank = self.decode(index)
        for peer in self.plan.linked_to(index):
            self._carry_out(self.nodes["D", index], rank.call(PREFILL_GROUP, peer, self.plan, self.now)[1])

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

    # ----------------------------------------------------------------------------------------- engines
    def raise_event(self, side: Side, index: int, event: ev.Event) -> None:
        """Whatever it is, it happens now."""
        node = self.nodes[side, index]
        self._carry_out(node, node.rank.handle(event, self.now))

    def open_prefill(self, index: int, room: int, tokens: int) -> None:
        """The engine of this prefill rank opens the room."""
        self.nodes["P", index].opened.add(room)
        self.raise_event("P", index, ev.EngineOpened(room, tokens))

    def open_decode(self, index: int, room: int, tokens: int, prefix: int = 0) -> None:
        """The engine of this decode rank opens the room."""
        self.nodes["D", index].opened.add(room)
        terms = self.decode(index).terms(PREFILL_GROUP, self.plan)
        self.raise_event("D", index, ev.RoomOpened(room, terms, tokens, prefix))

    def open_all(self, room: int, tokens: int, prefix: int = 0) -> None:
        """Every engine opens the room."""
        for index in range(self.layouts["P"].ranks):
            self.open_prefill(index, room, tokens)
        for index in range(self.layouts["D"].ranks):
            self.open_decode(index, room, tokens, prefix)

    def produce_all(self, room: int, tokens: int, *, aux: bool = True) -> None:
        """Every prefill engine has computed so much, and gives the aux row."""
        for index in range(self.layouts["P"].ranks):
            self.raise_event("P", index, ev.TokensProduced(room, tokens))
            if aux:
                self.raise_event("P", index, ev.AuxProvided(room))

    def settled(self, room: int) -> bool:
        """Every living rank whose engine opened the room has its outcome and its release."""
        return all(
            room in node.outcomes and room in node.released for node in self.nodes.values() if room in node.opened
        )

    # -------------------------------------------------------------------------------------------- time
    def step(self) -> None:
        """One thing happens: a message, the end of something under way, or time."""
        self.look()
        moving = [job for job in self.jobs if not job.hangs]
        if not (self.mail or moving):
            self.pass_time(self.random.choice((0.02, 0.1, 0.3)))
        elif self.random.random() < self.chances.wait:
            self.pass_time(self.random.choice((0.02, 0.1, 0.3, 1.0)))
        elif self.mail and (not moving or self.random.random() < MAIL_FIRST):
            self.deliver(self.random.randrange(len(self.mail)) if self._chance(self.chances.reorder) else 0)
        else:
            self.finish(self.random.choice(moving))

    def pass_time(self, seconds: float) -> None:
        """Time passes, and timers end."""
        self.now += seconds
        for node in list(self.nodes.values()):
            while node.rank.next_deadline <= self.now:
                self._carry_out(node, node.rank.tick(self.now))

    def run(self, done: Callable[[], bool], *, steps: int = 100_000) -> int:
        """Step until `done`; returns the number of steps."""
        for count in range(steps):
            if done():
                return count
            self.step()
        raise AssertionError(f"seed {self.seed}: not done after {steps} steps, at {self.now:.1f} s: {self.idle()}")

    def calm(self, seconds: float = 0.0) -> None:
        """Let everything that is under way happen, in order, and then so much time pass."""
        end = self.now + seconds
        while True:
            while self.mail or any(not job.hangs for job in self.jobs):
                if self.mail:
                    self.deliver(0)
                else:
                    self.finish(next(job for job in self.jobs if not job.hangs))
            if self.now >= end:
                break
            self.pass_time(min(0.05, max(end - self.now, 1e-3)))
        self.look()

    # ---------------------------------------------------------------------------------------- the list
    def deliver(self, at: int) -> None:
        """This message arrives."""
        parcel = self.mail.pop(at)
        node = self.nodes[parcel.side, parcel.to]
        if isinstance(parcel.body, msg.Hello):
            rank = self.prefill(parcel.to)
            self._carry_out(node, rank.hello(parcel.body, self.now)[1])
            return
        group = DECODE_GROUP if parcel.side == "P" else PREFILL_GROUP
        link = node.rank.link_of.get((group, parcel.sender))
        if link is not None:
            effects = node.rank.receive(link, parcel.epoch, parcel.room, parcel.body, self.now)
            self._carry_out(node, effects)
        elif isinstance(parcel.body, msg.Heartbeat):
            self.mail.append(
                Parcel("D" if parcel.side == "P" else "P", parcel.sender, parcel.to, parcel.epoch, 0, msg.Reset())
            )

    def finish(self, job: Job) -> None:
        """This job ends."""
        self.jobs.remove(job)
        event = job.event
        if isinstance(event, ev.WriteCompleted | ev.WriteFailed):
            settled = isinstance(event, ev.WriteCompleted) or event.settled
            self.flying[job.node.name, event.room] -= settled
            if isinstance(event, ev.WriteFailed) and not event.settled:
                self.jobs.append(Job(job.node, ev.WriteFailed(event.room, event.chunk, event.peer, settled=True)))
        if isinstance(event, ev.WriteCompleted):
            self._landing(job.node, event)
        if job.node.alive:
            self._carry_out(job.node, job.node.rank.handle(event, self.now))

    def hurry(self) -> None:
        """What hangs ends after all."""
        for job in self.jobs:
            job.hangs = False

    # --------------------------------------------------------------------------------------- judgement
    def _landing(self, node: Node, event: ev.WriteCompleted) -> None:
        """The region that a staged part lands in is still its own."""
        assert isinstance(node.rank, PrefillRank)
        send = node.rank.sends.get(event.room, {}).get(event.chunk << 16 | event.peer)
        target = self.nodes["D", event.peer]
        if send is None or not send.grant or not node.alive or send.pages:
            return
        assert isinstance(target.rank, DecodeRank)
        link = node.rank.link_to(event.room, event.peer)
        value = node.rank.links.get(link) if link is not None else None
        here = target.rank.links.get(target.rank.link_of.get((PREFILL_GROUP, node.rank.index), 0))
        if value is None or here is None or value.epoch != here.epoch or here.state.name != "UP":
            return  # the decode rank has quarantined, or is another life; the lease decides, which needs real time
        held = target.rank.chunk_of.get(send.grant)
        assert held == (event.room, event.chunk), f"seed {self.seed}: {event} into a region of {held}"

    def look(self) -> None:
        """What must hold at any moment."""
        for node in self.nodes.values():
            if isinstance(node.rank, PrefillRank):
                for link, value in node.rank.links.items():
                    self._look_at_mark(node.rank, link, value)
                for room in node.released:
                    assert not self.flying[node.name, room], f"seed {self.seed}: {node.name} released {room} in flight"

    def _look_at_mark(self, rank: PrefillRank, link: int, value: object) -> None:
        peer = self.nodes["D", rank.peers[link].rank]
        assert isinstance(peer.rank, DecodeRank)
        other = peer.rank.links.get(peer.rank.link_of.get((PREFILL_GROUP, rank.index), 0))
        if other is not None and other.epoch == value.epoch and other.epoch:  # type: ignore[attr-defined]
            seen = (value.mark_round, value.mark_tail)  # type: ignore[attr-defined]
            assert seen <= peer.rank.ring.mark, f"seed {self.seed}: a watermark of {seen} beyond {peer.rank.ring.mark}"

    def idle(self) -> list[str]:
        """What is left where nothing should be: empty when every room is over and drained."""
        found: list[str] = []
        for node in self.nodes.values():
            rank = node.rank
            left: dict[str, object] = {"rooms": rank.rooms}
            if isinstance(rank, PrefillRank):
                slots = self.settings.slots - len(rank.free_slots)
                left |= {"sends": rank.sends, "slots": slots, "slot_of": rank.slot_of, "queue": rank.slot_queue}
                left |= {"flying": [p for p in rank.peers.values() if p.flying]}
            else:
                left |= {"grants": rank.grants, "ring": rank.ring.live, "queue": rank.space_queue}
                left |= {"regions": rank.chunk_of, "blocked": rank.ring.blocked, "freed": rank.ring.freed}
            found += [f"{node.name}: {what}: {it}" for what, it in left.items() if it]
        return found

    def rows(self) -> set[Row]:
        """Every row that any rank, of any life, has fired."""
        for node in self.nodes.values():
            self._harvest(node)
        return set(self.fired)

    def _harvest(self, node: Node) -> None:
        for entry in node.rank.trace:
            if isinstance(entry, tuple) and isinstance(entry[1], Row):
                self.fired[entry[1]] += 1
        node.rank.trace.clear()

    # ----------------------------------------------------------------------------------------- effects
    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        rank = node.rank
        if len(rank.trace) > (rank.trace.maxlen or 0) // 2:
            self._harvest(node)
        for effect in effects:
            match effect:
                case do.Report():
                    self.reports.append(effect)
                case do.AnnounceOutcome(room, cause):
                    assert room not in node.outcomes, f"seed {self.seed}: a second outcome of {room} on {node.name}"
                    node.outcomes[room] = cause
                case do.AnnounceReleased(room) if self._owned(node, room):
                    assert room not in node.released, f"seed {self.seed}: a second release of {room} on {node.name}"
                    node.released.add(room)
                case do.AnnounceReleased():
                    pass  # the engine has not heard of the room
                case do.DeliverAux() | do.AnnounceLink() | do.Disconnect():
                    pass
                case do.Transmit() | do.TransmitAux() | do.TransmitPages() | do.SayHello() | do.SayWelcome():
                    self._post(node, effect)
                case do.SayRefusal(link, session, why):
                    self._mail(node, link, 0, 0, msg.Refusal(session, why))
                case _:
                    self._begin(node, effect)

    def _owned(self, node: Node, room: int) -> bool:
        """Whether the engine has opened the room; if not, nobody waits for its release."""
        value = node.rank.value_of(room)
        if value is None:  # its tombstone has gone already
            return room in node.opened and room not in node.released
        return room in node.opened and (value.work is None or getattr(value.work, "owned", True))

    def _post(self, node: Node, effect: Effect) -> None:
        rank = node.rank
        match effect:
            case do.Transmit(link, epoch, room, body):
                self._mail(node, link, epoch, room, body)
            case do.TransmitAux(link, epoch, room):
                self._mail(node, link, epoch, room, msg.Aux(b"aux"))
            case do.TransmitPages(link, epoch, room, chunk):
                self._mail(node, link, epoch, room, msg.PagesRsp(chunk, b"page"))
            case do.SayHello(link, session):
                assert isinstance(rank, DecodeRank)
                self._mail(node, link, 0, 0, rank.hello(session))
            case do.SayWelcome(link, session, epoch):
                assert isinstance(rank, PrefillRank)
                self._mail(node, link, epoch, 0, rank.welcome(session, epoch))

    def _mail(self, node: Node, link: int, epoch: int, room: int, body: msg.Message) -> None:
        if self._chance(self.chances.lose):
            return
        other: Side = "D" if node.side == "P" else "P"
        parcel = Parcel(other, node.rank.peers[link].rank, node.rank.index, epoch, room, body)
        self.mail += [parcel, parcel] if self._chance(self.chances.repeat) else [parcel]

    def _begin(self, node: Node, effect: Effect) -> None:
        odds, hangs = self.chances, False
        event: ev.Event
        match effect:
            case do.LaunchGather(room, chunk, peer):
                fails = self._chance(odds.gather_fails)
                event = ev.GatherFailed(room, chunk, peer) if fails else ev.Gathered(room, chunk, peer)
                hangs = self._chance(odds.gather_hangs)
            case do.PostWrite(room, chunk, peer) | do.PostPages(room, chunk, peer):
                event, hangs = self._write(node, effect, room, chunk, peer)
            case do.LaunchScatter(room, chunk):
                event = ev.ScatterFailed(room, chunk) if self._chance(odds.scatter_fails) else ev.Scattered(room, chunk)
            case do.Connect(link, session):
                fails = self._chance(odds.wire_fails)
                event = ev.WireFailed(link, session, "no wire") if fails else ev.WiredUp(link, session)
            case _:
                raise AssertionError(f"nobody carries out {effect}")
        self.jobs.append(Job(node, event, hangs))

    def _write(self, node: Node, effect: Effect, room: int, chunk: int, peer: int) -> tuple[ev.Event, bool]:
        key = node.name, room, chunk, peer
        assert key not in self.posted, f"seed {self.seed}: {key} is posted twice"
        assert room not in node.released, f"seed {self.seed}: {effect} after the release"
        self.posted.add(key)
        self.flying[node.name, room] += 1
        if self._chance(self.chances.write_fails):
            return ev.WriteFailed(room, chunk, peer, settled=not self._chance(self.chances.doubt)), False
        return ev.WriteCompleted(room, chunk, peer), self._chance(self.chances.write_hangs)

    def _chance(self, odds: float) -> bool:
        return odds > 0 and self.random.random() < odds
