"""The loop: the one place where things happen.

One thread, and nothing in it blocks.  A pass (`poll`) drains the sources (engine calls, finished kernels, transport
events, control frames, results of work done elsewhere, timers), each up to a bound, hands every event to the
rank, and carries out the effects that come back, in order.  What an effect raises at once (a copy on the CPU is
over when it returns) is queued as an event and handled in the same pass.  A pass with many calls or frames looks at
kernels and transports in between, `EVERY` so many: a device that has finished waits for few of them, not for all.  Such
a pass takes its time, and a lease may end in it: each call, frame and queued event has a time of its own.

Nothing of the protocol is here: an effect is looked up by its type and carried out, whatever the state.  Side
effects are in the handlers that a side installs (`prefill_effects`, `decode_effects`); the control plane is
the same for both and is below.

Between passes the loop sleeps.  It wakes at once for control frames and engine calls.  Transports can only be
polled, so while something is in flight the sleep is short, growing from `FAST` to `SLOW` while nothing happens;
with nothing in flight there is no tick at all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from kvproto.engine.connections import Lines
from kvproto.engine.logs import Logs, named
from kvproto.engine.loop_thread import Owned, Source
from kvproto.fsm.codec import WireError
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.io.clock import Clock
from kvproto.io.control.control import STALL_S, Control, Peer
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.codec import Call, ForeignCallError, decode, encode
from kvproto.protocol.messages import Message, Refusal, Reset
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank

FAST, SLOW = 50e-6, 250e-6
LIMIT = 256
EVERY = 4
LONGEST_WAIT = 1.0


class Loop(Owned):
    """A rank, its control plane and its handlers."""

    def __init__(self, rank: Rank, control: Control, clock: Clock) -> None:
        super().__init__(control)
        self.rank, self.clock = rank, clock
        self.handlers: dict[type[Effect], Callable[[Any], None]] = {
            do.Transmit: self._transmit, Report: self._report, do.BindLink: self._bind,
            do.SayReset: self._say_reset,
        }  # fmt: skip
        self.counts: Counter[str] = Counter()
        self.logs = Logs(f"{rank.side} rank {rank.index}", rank.counts)
        self.reports = self.logs.reports
        #: the time that the rank is told, and how many passes there were
        self.now, self.turns = clock.now(), 0
        self.lines = Lines(lambda: self.control, self.counts, lambda link: self.raise_event(ev.QueueOverflowed(link)))
        self._inbox: deque[Callable[[], None]] = deque()
        self._events: deque[Event] = deque()
        self._pace = FAST

    # ------------------------------------------------------------------------------------ engine's side
    def call(self, action: Callable[[], None]) -> None:
        """Have `action` done in the loop's next pass.  Any thread; never waits.  EndpointError: there is none."""
        self.check()
        self._inbox.append(action)
        self.rouse()

    def raise_event(self, event: Event) -> None:
        """Have the rank handle `event` in this pass (on the loop's thread)."""
        self._events.append(event)

    def submit(self, effects: list[Effect]) -> None:
        """Carry these effects out, and all that follows at once."""
        self._carry_out(effects)
        while self._events:
            self.now = self.clock.again()
            self._carry_out(self.rank.handle(self._events.popleft(), self.now))

    # ---------------------------------------------------------------------------------------- one pass
    def poll(self) -> bool:
        """One bounded pass; whether anything happened."""
        self.claim()
        self.turns += 1
        self.now = self.clock.now()
        moved = self._take_calls()
        moved |= self._take_sources()
        moved |= self._take_frames()
        if self.rank.next_deadline <= self.now:
            self.submit(self.rank.tick(self.now, LIMIT))
            moved = True
        if self.logs.second <= self.now:
            self.logs.sum_up(self.now)
        self._pace = FAST if moved else min(self._pace * 1.5, SLOW)
        return moved

    def wait(self, timeout: float = LONGEST_WAIT) -> None:
        """Sleep until there may be something to do, `timeout` seconds at most."""
        self.claim()
        left = min(self.due, timeout)
        if not left:
            return
        self.clock.allow(left)
        self.control.wait(left)

    @property
    def due(self) -> float:
        """Seconds from the last pass until the next one should come, if nothing arrives before; infinity: never."""
        if self._inbox:
            return 0.0
        left = self.rank.next_deadline - self.now
        if self.control.outboxes:
            left = min(left, STALL_S)
        if any(source.busy() for source in self.sources):
            left = min(left, self._pace)
        return max(0.0, left)

    def _take_calls(self) -> bool:
        count = min(len(self._inbox), LIMIT)
        for turn in range(count):
            if turn % EVERY == EVERY - 1:
                self._take_sources()
            action = self._inbox.popleft()
            self.now = self.clock.again()
            try:
                action()
            except Exception as error:  # noqa: BLE001  # an engine's mistake is told, and ends nothing
                self._fault("a call of the engine", error)
            self.submit([])
        return count > 0

    def _take_sources(self) -> bool:
        moved = False
        for source in self.sources:
            moved |= self._take_source(source)
        return moved

    def _take_source(self, source: Source) -> bool:
        try:
            moved = source.poll()
        except Exception as error:  # noqa: BLE001  # a library's fault; what it concerned ends by its timers
            self._fault(type(source).__name__, error)
            moved = False
        self.submit([])
        return moved

    def _take_frames(self) -> bool:
        frames = self.control.receive(LIMIT)
        for turn, (peer, data) in enumerate(frames):
            if turn % EVERY == EVERY - 1:
                self._take_sources()
            try:
                epoch, room, body = decode(data)
            except WireError as error:
                self.counts["malformed frames"] += 1
                self.logs.frame(f"frame from {peer}", str(error))
                if isinstance(error, ForeignCallError) and self.rank.side == "prefill":
                    self._refuse(peer, error.call)
                continue
            self._take(peer, epoch, room, body)
        return bool(frames)

    def _refuse(self, peer: Peer, call: Call) -> None:
        """Answer a call of another build, which is no message of this one: no table sees it."""
        why = self.rank.other_build(call.version, call.digest)
        if why:
            self.counts["calls of other builds"] += 1
            self.logs.frame(f"call from {peer} refused", why)
            self.control.send(peer, encode(0, 0, Refusal(call.session, why[:1024])))

    def _take(self, peer: Peer, epoch: int, room: int, body: Message) -> None:
        link = self.lines.link_at.get(peer, 0)
        self.now = self.clock.again()
        unheard = 0 if link else self.rank.counts.total()
        self.submit(self.rank.receive(link, epoch, room, body, self.now, peer.place))
        if not link and self.rank.counts.total() > unheard:
            self.logs.stranger(str(peer))

    # ---------------------------------------------------------------------------------------- effects
    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            handler = self.handlers.get(type(effect))
            if handler is None:
                self._fault(str(effect), LookupError("no handler carries it out"))
                continue
            try:
                handler(effect)
            except Exception as error:  # noqa: BLE001  # a handler's fault ends its room, never the loop
                self._fault(str(effect), error)
                room = getattr(effect, "room", None)
                if room is not None and not isinstance(effect, do.Transmit):
                    self.logs.blame(room, Cause.KERNEL_FAILED, f"{type(effect).__name__}: {named(error)}")
                    self._events.append(ev.RoomFailed(room, Cause.KERNEL_FAILED))

    def _transmit(self, effect: do.Transmit) -> None:
        self.lines.send(effect.link, effect.epoch, effect.room, effect.body)

    def _bind(self, effect: do.BindLink) -> None:
        self.lines.bind(effect.link, Peer.at(effect.place))

    def _say_reset(self, effect: do.SayReset) -> None:
        self.control.send(Peer.at(effect.place), encode(effect.epoch, 0, Reset()))

    def _report(self, effect: Report) -> None:
        self.counts["refused events"] += 1
        self.logs.frame(effect.what, effect.why)

    def _fault(self, what: str, error: Exception) -> None:
        self.counts["faults"] += 1
        self.logs.fault(what, error)
