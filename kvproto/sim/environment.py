"""What is outside a rank, as lists: mail under way, and gathers, writes, scatters and wire-ups under way.

An effect that leaves a rank becomes an entry; an entry that is taken becomes an event or a message.  What is judged
here is judged at these two moments: a part is posted once at most and never after its room's release, it lands in a
region that its own (room, chunk) still holds, and an outcome and a release come once.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

import msgspec

from kvproto.fsm.driver import steps
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.settings import DECODE_GROUP, PREFILL_GROUP

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
    event: Event
    hangs: bool = False


class Outside:
    """Everything but the ranks; `World` adds who there is, what engines do and what time it is."""

    def __init__(self, seed: int, chances: Chances) -> None:
        self.random, self.seed, self.chances = Random(seed), seed, chances
        self.now = 0.0
        self.nodes: dict[tuple[Side, int], Node] = {}
        self.mail: list[Parcel] = []
        self.jobs: list[Job] = []
        self.posted: set[tuple[str, int, int, int]] = set()
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

    def _harvest(self, node: Node) -> None:
        for _, row, *_ in steps(node.rank.trace):
            if row is not None:
                self.fired[row] += 1
        node.rank.trace.clear()

    # ----------------------------------------------------------------------------------------- effects
    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        rank = node.rank
        if len(rank.trace) > (rank.trace.maxlen or 0) // 2:
            self._harvest(node)
        for effect in effects:
            match effect:
                case Report():
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
        event: Event
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

    def _write(self, node: Node, effect: Effect, room: int, chunk: int, peer: int) -> tuple[Event, bool]:
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
