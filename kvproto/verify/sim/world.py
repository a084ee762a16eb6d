"""A world: whole groups of ranks whose network, kernels, transports and clock are lists and a seed.

The ranks are those of production. What they ask of the outside becomes an entry of `mail` or `jobs` (`environment`);
`step` takes one, chosen by the seed; time passes when the lists are empty, and now and then before. So one seed is one
schedule.

What is judged while it runs, whoever drives it (a breach is an AssertionError with the seed):

* a part is posted once at most, and lands in a region that its own (room, chunk) still holds;
* each room's outcome and its release come once on each rank, and nothing is in flight on pages that were released;
* the watermark that a prefill rank has seen never exceeds the decode rank's own;
* `idle` tells whether anything is left: rooms, sends, grants, regions, slots.

What a world leaves out: bytes (see `pair`), sockets and threads (likewise).
"""

from __future__ import annotations

from collections.abc import Callable

from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import Event
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import events as ev
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.sim.environment import Environment
from kvproto.verify.sim.member import FaultChances, MessageUnderWay, Side, SimulatedRank

__all__ = ["FaultChances", "MessageUnderWay", "Side", "SimulatedRank", "SimulatedWorld"]

MAIL_FIRST = 0.6


class SimulatedWorld(Environment):
    """`prefill` x `decode` groups; everything is wired up and the links called when it begins."""

    def __init__(
        self, seed: int, prefill: Layout, decode: Layout, *, chunk_tokens: int, settings: Settings | None = None,
        chances: FaultChances | None = None, native_notify: bool = False,
    ) -> None:  # fmt: skip
        """`native_notify`: a staged write carries its own notification."""
        super().__init__(seed, chances or FaultChances())
        self.layouts: dict[Side, Layout] = {"P": prefill, "D": decode}
        self.chunk_tokens, self.settings, self.lives = chunk_tokens, settings or Settings(), 0
        self.native_notify = native_notify
        self.plan = Plan(prefill, decode, chunk_tokens)
        for side in ("P", "D"):
            for index in range(self.layouts[side].ranks):
                self.start(side, index)
        for index in range(decode.ranks):
            self.call(index)

    # ------------------------------------------------------------------------------------------ ranks
    def start(self, side: Side, index: int) -> SimulatedRank:
        """A new life of this rank."""
        old = self.nodes.get((side, index))
        if old is not None:
            old.alive = False
            self._count(old)
            self.jobs = [job for job in self.jobs if job.node is not old or job.write is not None]
        self.lives += 1
        kind, group = (PrefillRank, PREFILL_GROUP) if side == "P" else (DecodeRank, DECODE_GROUP)
        rank = kind(
            self.layouts[side], index, group=group, chunk_tokens=self.chunk_tokens, incarnation=self.lives,
            settings=self.settings
        )
        if isinstance(rank, PrefillRank):
            rank.native_notify = self.native_notify
        node = self.nodes[side, index] = SimulatedRank(self, side, rank, old.life + 1 if old else 0)
        return node

    def call(self, index: int) -> None:
        """The decode rank calls every prefill rank that it shares something with."""
        rank = self.decode(index)
        for peer in self.plan.linked_to(index):
            _, effects = rank.call(PREFILL_GROUP, peer, self.plan, self.now, f"P{peer}")
            self.nodes["D", index].interpreter.carry_out(effects, self.now)

    # ----------------------------------------------------------------------------------------- engines
    def raise_event(self, side: Side, index: int, event: Event) -> None:
        """Whatever it is, it happens now."""
        node = self.nodes[side, index]
        node.interpreter.handle(event, self.now)
        self._harvest(node)

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
            self.deliver(self.random.randrange(len(self.mail)) if self.chance(self.chances.reorder) else 0)
        else:
            self.finish(self.random.choice(moving))

    def pass_time(self, seconds: float) -> None:
        """Time passes, and timers end."""
        self.now += seconds
        for node in list(self.nodes.values()):
            while node.rank.next_deadline <= self.now:
                node.interpreter.tick(self.now)
                self._harvest(node)

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

    def hurry(self) -> None:
        """End everything that hangs."""
        for job in self.jobs:
            job.hangs = False

    # --------------------------------------------------------------------------------------- judgement
    def look(self) -> None:
        """Assert the invariants that hold at any moment."""
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

    def rows(self) -> set[Row]:
        """Every row that any rank, of any life, has fired."""
        for node in self.nodes.values():
            self._count(node)
        return set(self.fired)
