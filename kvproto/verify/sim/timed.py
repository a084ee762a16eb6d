"""Timed: a world in which everything takes time, with many instances and an agenda of events.

`SimulatedWorld` chooses the order of what happens by a seed; here durations do: messages have a latency, kernels and
writes queue for streams and ports (`hardware`), engines call ranks at times of their own. So measured latencies contain
every wait that the protocol causes, and nothing of the time that Python takes. One seed is one run. Each instance is a
group of ranks with a number of its own; a rank's name, as in `D3.1`, is also its place in the control plane. All that
is due lies in one heap, so a step costs the logarithm of what is pending. The judges are those of all simulated worlds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, ClassVar

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Event
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan, plan_between
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.sim.environment import Environment
from kvproto.verify.sim.hardware import Queues, amount
from kvproto.verify.sim.interpreter import Untaken, Write
from kvproto.verify.sim.member import FaultChances, Side, SimulatedRank

#: seconds of one message, and of a wire-up
LATENCY, WIRE_UP = 100e-6, 1e-3


class TimedRank(SimulatedRank):
    """A rank of one instance, whose gathers, writes and scatters end when their queues say so."""

    outside: TimedWorld

    def __init__(self, outside: TimedWorld, rank: PrefillRank | DecodeRank, instance: TimedInstance) -> None:
        super().__init__(outside, instance.side, rank, 0)
        self.instance = instance
        self._name = f"{instance.side}{instance.number}.{rank.index}"
        self._place = self._name.encode()
        #: when the agenda looks at the rank's timers next
        self.alarm = INFINITY

    @property
    def name(self) -> str:
        """Return its name, as in `P3.1`: rank 1 of prefill instance 3."""
        return self._name

    @property
    def place(self) -> bytes:
        return self._place

    def connect(self, asked: do.Connect) -> None:
        wired = ev.WiredUp(asked.link, asked.session, f"{self.name} {asked.link}")
        self.outside.at(self.outside.now + WIRE_UP, self.outside.tell, self, wired)

    def gather(self, asked: do.LaunchGather) -> None:
        world = self.outside
        end = world.queues.kernel(self.name, world.now, asked.to.part.nbytes)
        world.at(end, world.tell, self, ev.Gathered(asked.room, asked.chunk, asked.peer))

    def scatter(self, asked: do.LaunchScatter) -> None:
        """Queue a scatter of all staged parts of a chunk for the rank's stream."""
        world = self.outside
        parts = len(world.plan.writers(self.rank.index))
        end = world.queues.kernel(self.name, world.now, (asked.end - asked.offset) * asked.writers.bit_count() // parts)
        world.at(end, world.tell, self, ev.Scattered(asked.room, asked.chunk))

    def prepare(self, write: do.PreparePages) -> int:
        """Make a write over pages ready in one batch; there is none if they are closed to writes."""
        return 0 if self.outside.closed else 1

    def post(self, write: Write) -> type[Untaken] | None:
        """Queue a write for the ports of both ends; it may fail there, and then nothing of it lands."""
        world, key = self.outside, (write.room, write.chunk, write.peer)
        world.note_posted(self, write, self.interpreter.unposted[key][1])
        nbytes, pieces = amount(self._plan(write.to.link), write)
        seconds = world.queues.write_seconds(nbytes, pieces)
        begins = world.queues.take(f"{self.name} port", world.now, seconds) - seconds
        if world.chance(world.chances.write_fails):
            world.counts["writes that failed"] += 1
            world.at(begins, world.write_begun, seconds, self, write, ev.BatchFailed(*key, settled=True))
        else:
            world.counts["bytes"] += nbytes
            world.counts["parts over pages" if isinstance(write, do.PreparePages) else "parts staged"] += 1
            world.at(begins, world.write_begun, seconds, self, write, ev.BatchCompleted(*key))
        return None

    def _plan(self, link: int) -> Plan:
        plan = self.rank.peers[link].plan
        assert plan is not None
        return plan

    def hear_outcome(self, news: do.AnnounceOutcome) -> None:
        super().hear_outcome(news)
        self.instance.heard_outcome(self, news)

    def hear_released(self, room: int) -> None:
        """Tell the instance's engine; nothing of the room may be in flight."""
        assert not self.outside.flying[self.name, room], f"{self.name} released {room} in flight"
        super().hear_released(room)
        self.instance.heard_release(self, room)


class TimedInstance:
    """A prefill or decode instance: its ranks and its engine's events; engines override the two methods."""

    side: ClassVar[Side]

    def __init__(self, world: TimedWorld, number: int) -> None:
        """Begin as instance `number` of its side; the world adds the ranks."""
        self.world, self.number = world, number
        self.ranks: list[TimedRank] = []

    @property
    def group(self) -> int:
        """Return the number of its group: odd for prefill instances, even for decode instances."""
        return 2 * self.number + (PREFILL_GROUP if self.side == "P" else DECODE_GROUP)

    def tell(self, event: Event) -> None:
        for rank in self.ranks:
            self.world.tell(rank, event)

    def heard_outcome(self, rank: TimedRank, news: do.AnnounceOutcome) -> None:
        """Take a rank's outcome of a room."""

    def heard_release(self, rank: TimedRank, room: int) -> None:
        """Take a rank's release of a room."""


class TimedWorld(Environment):
    """Instances, their links, the agenda and the clock."""

    def __init__(
        self, seed: int, prefill: Layout, decode: Layout, *, chunk_tokens: int, settings: Settings,
        chances: FaultChances,
        closed: bool = False, latency: float = LATENCY,
    ) -> None:  # fmt: skip
        """Make the world. `settings.costs` names the costs of links, in the ranks' estimates and here;
        `closed`: pools of decode ranks cannot be written to over pages; `latency`: seconds of a message.
        """
        super().__init__(seed, chances)
        self.layouts: dict[Side, Layout] = {"P": prefill, "D": decode}
        self.chunk_tokens, self.settings, self.closed, self.latency = chunk_tokens, settings, closed, latency
        self.plan = plan_between(prefill, decode, chunk_tokens)
        self.queues = Queues(settings.costs_of("free"))
        self.instances: dict[Side, list[TimedInstance]] = {"P": [], "D": []}
        self.places: dict[bytes, TimedRank] = {}
        self.counts = Counter[str]()
        #: calls of the agenda so far
        self.steps = 0
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._keys_of = defaultdict[int, list[tuple[str, int, int, int, type, int]]](list)

    # -------------------------------------------------------------------------------------- who there is
    def add(self, instance: TimedInstance) -> None:
        """Start an instance's ranks."""
        kind = PrefillRank if instance.side == "P" else DecodeRank
        layout = self.layouts[instance.side]
        for index in range(layout.ranks):
            rank = kind(
                layout, index, group=instance.group, chunk_tokens=self.chunk_tokens, incarnation=len(self.nodes) + 1,
                settings=self.settings,
            )  # fmt: skip
            if isinstance(rank, PrefillRank):
                rank.native_notify = True
            elif self.closed:
                rank.placement = Placement((), (), "the trace is replayed with closed pools")
            node = TimedRank(self, rank, instance)
            self.nodes[instance.side, len(self.nodes)] = self.places[node.place] = node
            instance.ranks.append(node)
        self.instances[instance.side].append(instance)

    def connect(self) -> None:
        """Have every decode rank call the prefill ranks of every instance, and wait until all links are up."""
        for caller in self.instances["D"]:
            for called in self.instances["P"]:
                self._call(caller, called)
        last = self.now + self.settings.timing.call.period
        self.run(lambda: self.now > last)
        for node in self.nodes.values():
            assert node.rank.links, f"{node.name} has no link"
            assert all(link.state.name == "UP" for link in node.rank.links.values()), f"{node.name}: a link is not up"

    def _call(self, caller: TimedInstance, called: TimedInstance) -> None:
        for node in caller.ranks:
            assert isinstance(node.rank, DecodeRank)
            for peer in self.plan.linked_to(node.rank.index):
                address = called.ranks[peer].name
                _, effects = node.rank.call(called.group, peer, self.plan, self.now, address)
                node.interpreter.carry_out(effects, self.now)
                self._watch(node)

    def reader_of(self, node: SimulatedRank, write: Write) -> DecodeRank:
        rank = self.places[node.interpreter.place_of[write.to.link]].rank
        assert isinstance(rank, DecodeRank)
        return rank

    # ---------------------------------------------------------------------------------------- what happens
    def tell(self, node: TimedRank, event: Event) -> None:
        node.interpreter.handle(event, self.now)
        self._watch(node)

    def mail_to(self, place: bytes, sender: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """Send a message; it arrives after the latency, in order, unless it is lost."""
        node = self.places.get(place)
        if node is None or self.chance(self.chances.lose):
            self.counts["messages lost"] += 1
            return
        self.counts[type(body).__name__] += 1
        self.at(self.now + self.latency, self._hear, node, sender, epoch, room, body)

    def _hear(self, node: TimedRank, sender: bytes, epoch: int, room: int, body: msg.Message) -> None:
        node.interpreter.hear(sender, epoch, room, body, self.now)
        self._watch(node)

    def write_begun(
        self, seconds: float, node: TimedRank, write: Write, event: ev.BatchCompleted | ev.BatchFailed
    ) -> None:  # fmt: skip
        """Begin a write at its writer's port: from now on it queues for the port of its reader."""
        reader = self.places[node.interpreter.place_of[write.to.link]]
        end = self.queues.take(f"{reader.name} port", self.now, seconds)
        self.at(end, self._write_ended, reader, node, write, event)

    def _write_ended(
        self, reader: TimedRank, node: TimedRank, write: Write, event: ev.BatchCompleted | ev.BatchFailed
    ) -> None:  # fmt: skip
        """End a write: if it did not fail it lands, its reader is notified, and then its writer is told.

        With `FaultChances.told`, a write that fails may have landed and notified as well.
        """
        told = self.chances.told > 0 and self.chance(self.chances.told)
        if (told or isinstance(event, ev.BatchCompleted)) and isinstance(write, do.PostWrite):
            self._landing(node, write)
            self._hear(reader, node.place, write.to.epoch, write.room, msg.StgNotify(write.chunk, write.grant))
        self.flying[node.name, event.room] -= 1
        self.tell(node, event)

    def note_posted(self, node: SimulatedRank, write: Write, batch: int) -> None:
        """Judge a batch that is posted, and remember it until its room is forgotten."""
        super().note_posted(node, write, batch)
        self._keys_of[write.room].append((node.name, write.room, write.chunk, write.peer, type(write), batch))

    def forget(self, room: int, *instances: TimedInstance) -> None:
        """Drop what is kept to judge a room that is over and released everywhere."""
        self.posted.difference_update(self._keys_of.pop(room, ()))
        for node in (node for instance in instances for node in instance.ranks):
            node.outcomes.pop(room, None)
            node.opened.discard(room)
            node.released.discard(room)
            self.flying.pop((node.name, room), None)

    # ------------------------------------------------------------------------------------------------ time
    def at(self, when: float, what: Callable[..., None], *about: Any) -> None:
        """Call `what(*about)` at this time; calls of one time happen in the order in which they were made."""
        heappush(self._agenda, (when, next(self._numbers), what, about))

    def _watch(self, node: TimedRank) -> None:
        """Put the rank's earliest timer on the agenda if it is earlier than the one that is there."""
        due = node.rank.next_deadline
        if due < node.alarm:
            node.alarm = due
            self.at(due, self._tick, node, due)

    def _tick(self, node: TimedRank, due: float) -> None:
        if due == node.alarm:  # an earlier one has taken the place of any other
            node.alarm = INFINITY
            while node.rank.next_deadline <= self.now:
                node.interpreter.tick(self.now)
            self._watch(node)

    def run(self, done: Callable[[], bool]) -> None:
        """Let things happen, each at its time, until `done`, or until nothing is due any more."""
        agenda = self._agenda
        while agenda and not done():
            when, _, what, about = heappop(agenda)
            self.now = max(self.now, when)  # a timer that was set for the past is due now
            self.steps += 1
            what(*about)
