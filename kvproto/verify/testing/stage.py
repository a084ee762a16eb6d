"""Stage: a pair of groups whose every move is the driver's choice, with engines that behave well.

Endpoints, loops, tables, kernels and bytes are the real ones. Frames (`simulated_control`), writes (`fabric`), copies
(`deferred_kernels`) and time (`clock`) stand still until the driver says otherwise; `poll` is one pass of one endpoint.
A rank can crash, a write, copy or frame come to harm. The driver calls `judge` whenever it likes; `drain` lets
everything come to its end and asserts that nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.clock import ManualClock
from kvproto.io.control.control import Control, Peer
from kvproto.io.transports.base import Handle, PeerId
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.deferred_kernels import DeferredKernels
from kvproto.verify.testing.engines import Engines
from kvproto.verify.testing.judge import Judge, WatchedFabric
from kvproto.verify.testing.pools import pages_at_end
from kvproto.verify.testing.simulated_control import (
    HandedNumbers,
    NumberedFrame,
    SimulatedControl,
    SimulatedNetwork,
    Way,
)
from kvproto.verify.testing.task import Side

#: patient where a healthy room only waits for its turn, quick where something has to be given up
TIMING = Timing(
    resend=Timer(0.25, 40), grant_retry=Timer(0.25, 4), call=Timer(0.5, 40), engine=Timer(20.0), bootstrap=Timer(20.0),
    stall=Timer(60.0), lease=Timer(10.0), write=Timer(10.0), kernel=Timer(10.0), connect_timeout=Timer(10.0),
    heartbeat=Timer(1.0, 8), silence=Timer(20.0), forget=Timer(100.0),
)  # fmt: skip
LEAP_S, LEAPS = 2.0, 100
#: what a healthy room lives through: less than any timer that ends a room or a link
PATIENCE_S = 4.0


class Inline(Executor):
    """Does at once what it is given: the in-memory transport connects without blocking."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class EngineStage(Engines):
    """Two groups whose moves are taken over once they are connected."""

    def __init__(
        self, prefill: Layout, decode: Layout, *, chunk_tokens: int, pages: int = 24, settings: Settings | None = None,
        piece: int = 0, sockets: bool = True, late: bool = True, tags: bool = True,
    ) -> None:  # fmt: skip
        """Make the stage.

        `piece`: bytes that a write moves at once (0: a descriptor); `late`: copies take time; `tags`: the transport
        tells the target of a write.
        """
        self.clock, self.post, self.sockets = ManualClock(), SimulatedNetwork(), sockets
        self.late, self.lives = DeferredKernels(late=late), 0
        self.watched = WatchedFabric(piece=piece, shuffle=True, native_notify=tags)
        self.tasks = {}
        self.pages_of = {"P": list(range(pages))[::-1], "D": list(range(pages))[::-1]}
        last = {end.name: range(pages_at_end(end, pages)) for end in prefill.ends}
        self.last_of = {"P": {name: [*free] for name, free in last.items()},
                        "D": {name: [*free][::-1] for name, free in last.items()}}  # fmt: skip
        self.stalled: set[PeerId] = set()
        #: since all were polled, with no socket held: who was, and how long it is; whether links may be lost by now
        self.polled: set[int] = set()
        self.silence, self.shaken = 0.0, False
        #: what `turn` is drawn from, once somebody has put it here
        self.random: Random | None = None
        super().__init__(
            prefill, decode, chunk_tokens=chunk_tokens, pages=pages, settings=settings or Settings(timing=TIMING),
            fabric=self.watched,
            clock=lambda: self.clock, ready=False,
        )  # fmt: skip
        self.pump(lambda: all(endpoint.ready() for endpoint in self.decodes))
        for _ in range(2):
            self.turn()
        self.judges = Judge(self)
        self.watched.landing = self.judges.landing
        if sockets:
            for endpoint in self.endpoints:
                self._tap(endpoint)

    # ------------------------------------------------------------------------------------------- ranks
    def make_prefill(self, index: int) -> PrefillEndpoint:
        """A new life of this prefill rank."""
        endpoint = super().make_prefill(index)
        endpoint._wire_up._pool.shutdown()  # noqa: SLF001
        endpoint._wire_up._pool = Inline()  # type: ignore[assignment]  # noqa: SLF001
        self._dress(endpoint, bound="")
        inside(endpoint).data.gathers.kernels = self.late
        inside(endpoint).rank.next_epoch = inside(endpoint).rank.incarnation << 16
        return endpoint

    def make_decode(self, index: int) -> DecodeEndpoint:
        """A new life of this decode rank."""
        endpoint = super().make_decode(index)
        self._dress(endpoint, bound=None)
        return endpoint

    def _dress(self, endpoint: PrefillEndpoint | DecodeEndpoint, bound: str | None) -> None:
        self.lives += 1
        inside(endpoint).rank.incarnation = self.lives
        inside(endpoint).data.kernels = self.late
        if not self.sockets:
            inside(endpoint).loop.control.close()
            inside(endpoint).loop.control = SimulatedControl(self.post, bound)
            self._number(endpoint)

    @staticmethod
    def _number(endpoint: Endpoint) -> None:
        """Have the rank's trace know the number of each frame that it is handed."""
        loop, numbers = inside(endpoint).loop, HandedNumbers()
        hear, inside(endpoint).rank.came = loop.hear, numbers

        def numbered(peer: Peer, frame: bytes) -> None:
            numbers.handed = frame.number if isinstance(frame, NumberedFrame) else 0
            hear(peer, frame)

        loop.hear = numbered  # type: ignore[method-assign]

    def connect(self, index: int) -> None:
        """Call the prefill group from the decode rank, and wait for its answer. The next one calls after that
        (when nothing else is under way yet), so that links are numbered by ranks.
        """
        super().connect(index)
        if self.judges is None:
            self.pump(self.decodes[index].ready)

    def _tap(self, endpoint: Endpoint) -> None:
        loop = inside(endpoint).loop
        links = sorted(
            loop.connections.peer_of, key=lambda link: (loop.rank.peers[link].group, loop.rank.peers[link].rank)
        )
        self.post.tap(loop.control, [loop.connections.peer_of[link] for link in links])

    def stranger(self, control: Control) -> None:
        """One more control plane on the post, of nobody's rank."""
        self.post.tap(control, [])

    def crash(self, side: Side, index: int) -> None:
        """A rank dies and lives again: nothing is closed in order.  Without sockets only."""
        group: list[Any] = self.prefills if side == "P" else self.decodes
        old = group[index]
        instance, control = inside(old).data.transport.instance, inside(old).loop.control
        self.fabric.kill(instance)
        self.stalled.discard(instance)
        assert isinstance(control, SimulatedControl), "sockets cannot be cut without closing them"
        self.post.leave(control)
        control.close()
        self.late.forget(old.pool)
        group[index] = self.make_prefill(index) if side == "P" else self.make_decode(index)
        assert self.judges is not None
        self.judges.reborn(side, index)
        self._hurt(None)
        self.shaken = True
        for task in self.tasks.values():
            if (side, index) in task.opened:
                task.waits.discard((side, index))
                task.crashed.add((side, index))
                self._maybe_free(task)
        for decode in range(len(self.decodes)) if side == "P" else [index]:
            self.connect(decode)

    # ------------------------------------------------------------------------------------------- moves
    def turn(self) -> bool:
        """Everything that can move does, some of it only in part; in order, or as `random` has it."""
        random, order = self.random, list(range(len(self.endpoints)))
        moved = bool(self.late.pending or self.fabric.options())
        if random is None:
            self.fabric.run()
        else:
            random.shuffle(order)
            for _ in range(random.randint(1, 1 + 2 * len(self.fabric.options()))):
                self.fabric.step(random)
        for _ in range(len(self.late.pending)):
            if random is None or random.randrange(3):
                self.late.finish(random.randrange(64) if random is not None else 0)
        for index in order:
            moved |= self.poll(index)
        return moved

    def poll(self, index: int) -> bool:
        """One pass of this endpoint, and what its engine is told."""
        self.post.settle()
        moved = self.endpoints[index].poll()
        self._note_outcomes(*self.named()[index])
        self.polled.add(index)
        if self.shaken:
            self._hurt(None)
        if len(self.polled) == len(self.endpoints) and not self.post.held:
            self.polled.clear()
            self.silence = 0.0
            self.shaken &= not self.linked()
        return moved

    def linked(self) -> bool:
        """Whether both ends of every link take it for up, and mean the same one."""
        for decode in self.decodes:
            for index in self.plan.linked_to(inside(decode).rank.index):
                ours, theirs = inside(decode).rank, inside(self.prefills[index]).rank
                a = ours.links.get(ours.link_of.get((theirs.group, theirs.index), 0))
                b = theirs.links.get(theirs.link_of.get((ours.group, ours.index), 0))
                if a is None or b is None or a.session != b.session or (a.state, b.state) != (DLink.UP, PLink.UP):
                    return False
        return True

    def stall(self, index: int) -> None:
        """This rank's transport stops, as a stopped process's does, or goes on."""
        name: PeerId = inside(self.endpoints[index]).data.transport.instance
        self.stalled ^= {name}
        (self.fabric.stall if name in self.stalled else self.fabric.resume)(name)

    def wait(self, seconds: float) -> None:
        """Time passes.  A room is no longer healthy that has lived through as much as ends one, by any timer."""
        self.clock.advance(seconds)
        self.silence += seconds
        self.shaken |= self.silence > PATIENCE_S
        for task in self.tasks.values():
            task.age += seconds
            task.hurt |= task.age > PATIENCE_S

    def flying(self) -> list[tuple[PeerId, Handle]]:
        """Every write whose end its writer has not been told, oldest first."""
        every = [inside(prefill).data for prefill in self.prefills]
        known = {(data.transport.instance, handle) for data in every for handle in data.writes.flying}
        flying = dict.fromkeys((step.writer, step.handle) for step in self.fabric.options() if step.kind != "arrive")
        return [write for write in flying if write in known]

    def hurt_write(self, writer: PeerId, handle: Handle, kind: str) -> None:
        """Fail a write, put it in doubt while it goes on, or lose its tag, which healthy rooms survive."""
        source = next(p for p in self.prefills if inside(p).data.transport.instance == writer)
        if kind != "mute":
            for room, _, _ in inside(source).data.writes.flying[handle]:
                self._hurt(room)
        {"fail": self.fabric.fail, "doubt": self.fabric.doubt, "mute": self.fabric.mute}[kind](writer, handle)

    def hurt_copy(self, at: int) -> None:
        """A gather or a scatter fails; whose it was, the schedule does not know."""
        self._hurt(None)
        self.late.finish(at, fails=True)

    def hurt_frame(self, way: Way, at: int, kind: str) -> None:
        """A frame is lost, repeated, or overtakes; or its way is held, or let go.  Healthy rooms do not mind."""
        act = {"lose": self.post.lose, "repeat": self.post.repeat, "hurry": self.post.hurry}
        if kind == "hold":
            self.post.hold(way)
        else:
            act[kind](way, at)

    def settled(self, turns: int = 400) -> None:
        """Turn, without time, until nothing moves."""
        quiet = 0
        for _ in range(turns):
            quiet = 0 if self.turn() or self.post.busy() else quiet + 1
            if quiet > 1:
                return

    # --------------------------------------------------------------------------------------------- ends
    def judge(self) -> None:
        """Every invariant, now (AssertionError)."""
        assert self.judges is not None
        self.judges.all()

    def complete(self) -> None:
        """The engines do what is still asked of them: open, schedule, produce."""
        for room, task in self.tasks.items():
            self.open_prefill(room)
            self.open_decode(room)
            self.prefetch(room)
            if any(side == "P" for side, _ in task.waits):
                self.produce(room)

    def drain(self) -> None:
        """Let everything come to its end: healthy rooms must succeed, all must be over, nothing may be left."""
        for name in list(self.stalled):
            self.fabric.resume(name)
        self.stalled.clear()
        self.post.held.clear()
        self._healthy()
        for _ in range(LEAPS):
            if not any(task.waits for task in self.tasks.values()) and not self.leaks():
                break
            self.clock.advance(LEAP_S)
            self.settled()
            self.judge()
        waiting = {str(task.room): sorted(task.waits) for task in self.tasks.values() if task.waits}
        assert not waiting, "\n".join([f"not over after {LEAPS * LEAP_S:.0f} s: {waiting}", *self.explain()])
        assert not self.leaks(), "\n".join(["left over:", *self.leaks()])
        self.judge()

    def _healthy(self) -> None:
        """Require that rooms without trouble succeed before any timer gives them up."""
        healthy = [task for task in self.tasks.values() if task.whole(self.plan)]
        for _ in range(60):
            self.settled()
            self.judge()
            if not any(task.waits for task in healthy):
                break
            self.clock.advance(0.2)
        for task in healthy:
            told = {name: self.outcomes[(*name, task.room)].cause for name in task.opened
                    if (*name, task.room) in self.outcomes}  # fmt: skip
            asked = [f"{side}{i}: {endpoint.explain(task.room)}" for side, i, endpoint in self.named()
                     if (side, i) in task.waits]  # fmt: skip
            assert not task.waits, f"{task.room} is healthy and not over: {asked}"
            assert set(told.values()) == {Cause.NONE}, f"{task.room} is healthy and ended as {told}"

    def close(self) -> None:
        """End every endpoint; writes that are under way land first, so that nobody waits for them."""
        self.watched.landing = None
        for name in self.stalled:
            self.fabric.resume(name)
        self.fabric.run()
        super().close()
