"""Environment: mail, gathers, writes, scatters and wire-ups under way outside a rank, as lists.

An entry that is taken becomes an event or a message.  What is judged here is judged when entries come and go: a part is
posted once at most and never after its room's release, it lands in a region that its own (room, chunk) still holds.

A place is a rank's name.  A decode rank that has started anew calls from another place than before; a prefill rank
listens where it did.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from kvproto.fsm.driver import steps
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import Event, Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.sim.interpreter import Write
from kvproto.verify.sim.member import FaultChances, MessageUnderWay, PendingWork, Side, SimulatedRank


class Environment:
    """Everything but the ranks; `World` adds who there is, what engines do and what time it is."""

    def __init__(self, seed: int, chances: FaultChances) -> None:
        self.random, self.seed, self.chances = Random(seed), seed, chances
        self.now = 0.0
        self.nodes: dict[tuple[Side, int], SimulatedRank] = {}
        self.mail: list[MessageUnderWay] = []
        self.jobs: list[PendingWork] = []
        self.posted: set[tuple[str, int, int, int, type, int]] = set()
        self.flying: Counter[tuple[str, int]] = Counter()
        self.reports: list[Report] = []
        self.fired: Counter[Row] = Counter()

    def prefill(self, index: int) -> PrefillRank:
        rank = self.nodes["P", index].rank
        assert isinstance(rank, PrefillRank)
        return rank

    def decode(self, index: int) -> DecodeRank:
        rank = self.nodes["D", index].rank
        assert isinstance(rank, DecodeRank)
        return rank

    def chance(self, odds: float) -> bool:
        return odds > 0 and self.random.random() < odds

    # ---------------------------------------------------------------------------------------- the lists
    def mail_to(self, place: bytes, sender: bytes, epoch: int, room: int, body: msg.Message) -> None:
        """A message leaves for this place; it may be lost, or come twice."""
        node = next((node for node in self.nodes.values() if node.place == place), None)
        if node is None or self.chance(self.chances.lose):
            return
        parcel = MessageUnderWay(node.side, node.rank.index, sender, epoch, room, body)
        self.mail += [parcel, parcel] if self.chance(self.chances.repeat) else [parcel]

    def deliver(self, at: int) -> None:
        parcel = self.mail.pop(at)
        node = self.nodes[parcel.side, parcel.to]
        node.interpreter.hear(parcel.place, parcel.epoch, parcel.room, parcel.body, self.now)
        self._harvest(node)

    def finish(self, job: PendingWork) -> None:
        """This job ends; perhaps another one of its rank ends in the same pass."""
        events = self._end(job)
        other = next((each for each in self.jobs if each.node is job.node and not each.hangs), None)
        if other is not None and self.chance(self.chances.together):
            events += self._end(other)
        if events and job.node.alive:
            job.node.interpreter.handle(events[0], self.now, *events[1:])
            self._harvest(job.node)

    def _end(self, job: PendingWork) -> list[Event]:
        self.jobs.remove(job)
        node, event = job.node, job.event
        if job.write is not None:
            self._landing(node, job.write)
            if isinstance(job.write, do.PostWrite) and self.prefill(node.rank.index).native_notify:
                self.jobs.append(PendingWork(node, event))  # the target hears of it before the writer, or after
                self._notify_reader(node, job.write)
                return []
        if isinstance(event, ev.BatchCompleted | ev.BatchFailed | ev.BatchSettled):
            doubtful = isinstance(event, ev.BatchFailed) and not event.settled
            self.flying[node.name, event.room] -= not doubtful
            if doubtful:
                self.jobs.append(PendingWork(node, ev.BatchSettled(event.room, event.chunk, event.peer)))
        return [event]

    def note_posted(self, node: SimulatedRank, write: Write, batch: int) -> None:
        """Record a posted batch: once at most (a retry over pages is another), and not after the release."""
        key = node.name, write.room, write.chunk, write.peer, type(write), batch
        assert key not in self.posted, f"seed {self.seed}: {key} is posted twice"
        assert write.room not in node.released, f"seed {self.seed}: {write} after the release"
        self.posted.add(key)
        self.flying[node.name, write.room] += 1

    def _notify_reader(self, node: SimulatedRank, write: do.PostWrite) -> None:
        """The notification that the write carries is on its way; with its bytes, so it is not lost."""
        body = msg.StgNotify(write.chunk, write.grant)
        self.mail.append(MessageUnderWay("D", write.peer, node.place, write.to.epoch, write.room, body))

    def reader_of(self, node: SimulatedRank, write: Write) -> DecodeRank:
        return self.decode(write.peer)

    def _landing(self, node: SimulatedRank, write: Write) -> None:
        """The region that a staged part lands in is still its own."""
        if not isinstance(write, do.PostWrite):
            return
        target = self.reader_of(node, write)
        here = target.links.get(target.link_of.get((node.rank.group, node.rank.index), 0))
        if here is None or write.to.epoch != here.epoch or here.state.name != "UP":
            return  # the decode rank has quarantined, or is another life; the lease decides, which needs real time
        held = target.chunk_of.get(write.grant)
        assert held == (write.room, write.chunk), f"seed {self.seed}: {write} into a region of {held}"

    def idle(self) -> list[str]:
        """Return what is left; empty when every room is over and drained."""
        found: list[str] = []
        for node in self.nodes.values():
            rank = node.rank
            left: dict[str, object] = {"rooms": rank.rooms}
            if isinstance(rank, PrefillRank):
                slots = rank.settings.slots - len(rank.free_slots)
                left |= {"sends": rank.sends, "slots": slots, "slot_of": rank.slot_of, "queue": rank.slot_queue}
                left |= {"permits": rank.permits, "writers": rank.permit_queue}
                left |= {"credits": rank.credits, "askers": rank.credit_queues}
                left |= {"writes": rank.writes, "unposted": node.interpreter.unposted}
            else:
                left |= {"grants": rank.grants, "ring": rank.ring.live, "queue": rank.space_queue}
                left |= {"regions": rank.chunk_of, "blocked": rank.ring.blocked, "freed": rank.ring.freed}
            found += [f"{node.name}: {what}: {it}" for what, it in left.items() if it]
        return found

    def _harvest(self, node: SimulatedRank) -> None:
        """Count the fired rows before the trace forgets them."""
        if len(node.rank.trace) > (node.rank.trace.maxlen or 0) // 2:
            self._count(node)

    def _count(self, node: SimulatedRank) -> None:
        for _, row, *_ in steps(node.rank.trace):
            if row is not None:
                self.fired[row] += 1
        node.rank.trace.clear()
