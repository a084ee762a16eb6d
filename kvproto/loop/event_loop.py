"""The event loop of any protocol: one thread that never blocks.

A pass (`poll`) drains the inputs, each up to a bound: calls, finished work, frames of the control plane, timers.  It
hands every event to the party, and carries out the returned effects, in order.  An event that an effect raises is
handled in the same pass.  A pass with many calls or frames polls the other sources in between: after `EVERY` of them,
if these have taken `LOOK_S`.  So finished work waits for a few calls, not for all, and cheap calls are not interrupted
by a more expensive poll.  Such a pass takes time, and a lease may end in it; so each call, frame and queued event has
its own time.

Calls and frames are bounded by a count and by time: a pass that has taken `PASS_S` takes at most `EVERY` more of each,
and the next pass begins with the rest.  So timers fire and answers leave during a burst, however expensive it is.  The
last step of a pass is a part of the expensive work (`background`); while some is left the loop does not sleep.

Messages of a pass leave at its end, in one message for each peer, and at most `HELD_S` after the clock was read.
Messages of its calls leave directly after the calls, if these have taken `LOOK_S`.

Every call that leaves the loop can fail, and a failure stays with its cause: it is a `fault`, logged and counted.
KeyboardInterrupt and SystemExit are kept and raised when the pass is over, so nothing that was taken out of a queue is
lost; signals are deferred as long (`held_signals`).

The loop knows no protocol: it looks an effect up by its type and carries it out, whatever the state.  A subclass knows
the meaning of frames, and the consequences of a handler's fault.

Between passes the loop sleeps.  Frames and calls wake it at once.  Other sources can only be polled, so the sleep is
short while something is in flight, growing from `FAST` to `SLOW` while nothing happens.  With nothing in flight there
is no tick at all.  After `STILL_S` without progress the sources are asked for what else would wake the loop, such as a
forward that ends (`Source.alarms`): if each has an answer, the loop sleeps until then, `REST_S` at most.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from threading import get_ident
from typing import Any, Protocol

from kvproto.fsm.driver import Driver
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.io.clock import Clock, MonotonicClock
from kvproto.io.control.control import Control, Peer
from kvproto.loop.answer import Answer
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.loop_thread import LONGEST_WAIT, LoopThread
from kvproto.observe.durations import PASS_BOUNDS, Durations

FAST, SLOW = 50e-6, 250e-6
#: seconds without progress after which sources are asked for alarms, and the longest sleep where all have some
STILL_S, REST_S = 2e-3, 10e-3
LIMIT = 256
EVERY = 4
#: least seconds between two polls of the sources within a pass
LOOK_S = 1e-4
#: seconds of a pass after which it takes only `EVERY` more calls and frames
PASS_S = 0.01
#: seconds that messages are held, to be bundled, in a long pass
HELD_S = 3e-4
#: passes in a row in which nothing can be received before the loop ends by that, and the longest sleep between two
DEAF, DEAF_S = 64, 1 / 32
#: seconds from one `passed` to the next
PERIOD = 1.0

#: by kind of effect: the call that carries it out, on the loop's thread
Handlers = Mapping[type[Effect], Callable[[Any], None]]


class Bulk(Protocol):
    """Expensive work, done in parts, one in each pass; true while some is left."""

    def run(self) -> bool:
        """Do a little; whether there was anything."""

    def __len__(self) -> int:
        """How much is left."""


class EventLoop(LoopThread):
    """A party, its control plane and its handlers."""

    def __init__(self, party: Driver, control: Control, clock: Clock) -> None:
        super().__init__(control)
        self.party, self.clock = party, clock
        self.handlers: dict[type[Effect], Callable[[Any], None]] = {}
        self.counts: Counter[str] = Counter()
        #: the time that the party gets, and the number of passes
        self.now, self.turns = clock.now(), 0
        #: descriptors that end every sleep, beside those of the control plane
        self.bells: list[int] = []
        #: expensive work, the last step of a pass
        self.background: list[Bulk] = []
        self._inbox: deque[Callable[[], None] | Event] = deque()
        #: frames that a pass had no time for; times of this pass: its begin, last flush and last poll of sources
        self._arrived: deque[tuple[Peer, bytes]] = deque()
        self._began = self._let_go = self._looked = 0.0
        #: when `passed` is due
        self.second = 0.0
        self._events: deque[Event] = deque()
        #: an error that ends the process, kept until the pass is over
        self._kept: BaseException | None = None
        self._pace, self._progress = FAST, 0.0
        self._deaf = 0
        #: work of several effects that is cheaper together, done once when no event is left
        self.at_end: list[Callable[[], None]] = []
        #: durations of the passes in which something happened
        self.passes = Durations(PASS_BOUNDS)

    def install(self, handlers: Handlers, effects: Collection[type[Effect]]) -> None:
        """Have each of these effects carried out by its handler.

        Raises: TypeError: an effect has no handler, or a handler none of these effects.
        Thread: the caller's, before the first pass.
        """
        wrong = handlers.keys() ^ set(effects)
        if wrong:
            raise TypeError(f"handlers and effects differ by {', '.join(sorted(kind.__name__ for kind in wrong))}")
        self.handlers |= handlers

    # ------------------------------------------------------------------------------- what a subclass knows
    def hear(self, peer: Peer, frame: bytes) -> None:
        """Take a frame that came from there: `submit` what the party makes of it."""
        raise NotImplementedError

    def fault(self, what: str, error: BaseException) -> None:
        """Something raised that should not have; the loop goes on."""
        raise NotImplementedError

    def failed(self, effect: Effect, error: BaseException) -> None:
        """Handle the consequences of a handler's fault, beside `fault`."""

    def passed(self) -> None:
        """A pass is over, but for the sleep; told once in `PERIOD` seconds."""

    # ----------------------------------------------------------------------------------- the owner's side
    def call(self, action: Callable[[], None] | Event) -> None:
        """Queue `action`, or an event, for the loop's next pass; never blocks; any thread.

        EndpointError: the loop is closed or broken.
        """
        if self.closed or self.broken is not None:
            self.check()
        self._inbox.append(action)
        if self._owner is not None and self._owner != get_ident():
            self.control.wake()

    def ask(self, action: Callable[[], Any]) -> Any:
        """Have the loop's thread call `action`, and return or raise what it does; blocks; any thread.

        An action that has not begun when the caller is interrupted never does.  EndpointError: the loop is closed or
        broken.
        """
        if self._owner in (None, get_ident()):
            self.whole.claim()
            with HeldSignals():
                return action()
        answer = Answer(action)
        try:
            self.call(answer.act)
            self._await(answer)
        except BaseException:  # an interrupt: the caller repeats the call, or takes its pool elsewhere
            if not answer.give_up():  # it has begun: whole, so that the next call sees its effect
                self._await(answer)
            raise
        return answer.result()

    def _await(self, answer: Answer) -> None:
        while not answer.wait(LONGEST_WAIT):
            self.check()

    def raise_event(self, event: Event) -> None:
        """Have the party handle `event` in this pass (on the loop's thread)."""
        self._events.append(event)

    def submit(self, effects: list[Effect]) -> None:
        """Carry these effects out, and all that follows at once."""
        handlers, events = self.handlers, self._events
        while True:
            for effect in effects:
                handler = handlers.get(type(effect))
                if handler is None:
                    self._fault(str(effect), LookupError("no handler carries it out"))
                    continue
                try:
                    handler(effect)
                except BaseException as error:  # noqa: BLE001  # a handler's fault never ends the loop
                    self._fault(str(effect), error)
                    self.failed(effect, error)
            if not events:
                if not self.at_end:
                    return
                effects, actions, self.at_end = [], self.at_end, []
                for action in actions:
                    try:
                        action()
                    except BaseException as error:  # noqa: BLE001  # what it concerned ends by its timers
                        self._fault("what was put off", error)
                continue
            self.now = self.clock.again()
            effects = self.party.handle(events.popleft(), self.now)

    def attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """Call it, and return what it does; None if it raises, which is a fault and ends nothing else."""
        try:
            return action()
        except BaseException as error:  # noqa: BLE001  # it is logged, and kept if it ends the process
            self._fault(what, error)
            return None

    def hold(self, error: BaseException) -> None:
        """Raise this when the pass is over, if it asks the process to end."""
        if not isinstance(error, Exception) and self._kept is None:
            self._kept = error

    def settle(self) -> None:
        """Carry out what was raised since, if anything was."""
        if self._events:
            self.submit([])

    # ---------------------------------------------------------------------------------------- one pass
    def poll(self) -> bool:
        """One bounded pass; whether anything happened."""
        if self._owner != get_ident() or self.broken is not None or self.within:
            self.claim()
        with HeldSignals():
            self.within = True
            try:
                moved = self.turn()
            finally:
                self.within = False
        if self._kept is not None:  # else no call more
            self.raise_held()
        return moved

    def raise_held(self) -> None:
        """Raise what asked the process to end while a pass ran."""
        if self._kept is not None:
            error, self._kept = self._kept, None
            raise error

    def turn(self) -> bool:
        """Do the pass of a `poll`, on the thread of the loop, with signals held back."""
        self.turns += 1
        self.now, self._began = self.clock.now(), self.clock.real()
        self._let_go = self._looked = self._began
        moved = bool(self._inbox) and self._take_calls()
        # Sources before frames: a write that has ended frees its slot before the next grant asks for one.
        moved |= self._take_sources()
        moved |= self._take_frames()
        if self.party.next_deadline <= self.now and not self.clock.awake():
            self.submit(self.party.tick(self.now, LIMIT))
            moved = True
        control = self.control
        if control.outboxes.held:  # before the bulk: peers need not wait for launches
            self._flush()
        took = False
        for each in self.background:
            try:
                took |= each.run()
            except BaseException as error:  # noqa: BLE001  # as of a source
                self._fault(type(each).__name__, error)
        if took:
            moved = True
            if control.outboxes.held:
                self._flush()
        if self._events:
            self.submit([])
        if self.second <= self.now:
            self.second = self.now + PERIOD
            self.attempt("what is done once a second", self.passed)
        # Poll fast after progress, then back off: a transport that can only be polled would else spin a core.
        self._pace = FAST if moved else min(self._pace * 1.5, SLOW)
        if moved:
            self._progress = self.clock.real()
            self.passes.note(self._progress - self._began)
        return moved

    def wait(self, timeout: float = LONGEST_WAIT) -> None:
        """Sleep until there may be something to do, `timeout` seconds at most."""
        self.claim()
        left, alarms = self.rest(timeout)
        if not left:
            return
        self.clock.allow(left)
        with HeldSignals.waking(self.control.wake):
            more = [*self.bells, *(alarms or ())]
            woken = self.attempt("the control plane's wait", lambda: self.control.wait(left, more))
        if alarms is not None and woken:
            self.rouse()
        self.raise_held()

    def watches(self) -> bool:
        """Whether something is in flight that only a pass can see to move."""
        return any(source.busy() for source in self.sources)

    def rest(self, timeout: float) -> tuple[float, list[int] | None]:
        """Return how long the loop may sleep, and what wakes it; None: its sources have to be polled."""
        alarms = self._alarms() if self._pace == SLOW and self._began - self._progress > STILL_S else None
        return min(self._due(self._pace if alarms is None else REST_S), timeout), alarms

    def rouse(self) -> None:
        """Poll fast after a rest: what was waited for is here or near, as a gather behind its forward."""
        self._pace, self._progress = FAST, self.clock.real()

    def _alarms(self) -> list[int] | None:
        """Return what wakes the loop when any source moves; None: one of them has to be polled."""
        found = list[int]()
        for source in self.sources:
            if source.busy():
                alarms = self.attempt(type(source).__name__, source.alarms)
                if alarms is None:
                    return None
                found += alarms
        return found

    def linger(self, goes_on: Callable[[], bool], seconds: float) -> None:
        """Poll while this goes on, for so many real seconds at most: the last passes before `close`."""
        real = MonotonicClock().real  # the loop's own clock may stand still
        end = real() + seconds
        while goes_on() and real() < end:
            if not self.whole.poll():
                self.control.wait(SLOW)

    @property
    def backlog(self) -> tuple[int, int]:
        """Calls and frames that wait for the next pass."""
        return len(self._inbox), len(self._arrived)

    @property
    def due(self) -> float:
        """Seconds from the last pass until the next one is due, if nothing arrives before; infinity: never."""
        return self._due(self._pace)

    def _due(self, pace: float) -> float:
        if self._inbox or self._arrived or any(self.background):
            return 0.0
        due = self.party.next_deadline - self.now
        left = min(due if due > 0 else self.clock.awake(), self.control.outboxes.due_in)
        if self.watches():
            left = min(left, pace)
        if self._deaf:  # an idle loop would sleep between any two of the passes that end it
            left = min(left, DEAF_S)
        return max(0.0, left)

    def _take_calls(self) -> bool:
        count = min(len(self._inbox), LIMIT)
        for turn in range(count):
            if turn % EVERY == EVERY - 1 and self._interlude():
                break
            self.now = self.clock.again()
            action = self._inbox.popleft()
            try:
                if callable(action):
                    action()
                else:
                    self.submit(self.party.handle(action, self.now))
            except BaseException as error:  # noqa: BLE001  # an engine's mistake is logged, and ends nothing
                self._fault("a call of the engine", error)
            if self._events:
                self.submit([])
        if self.control.outboxes.held and self.clock.real() - self._began > LOOK_S:
            self._flush()  # a peer need not wait for what the sources have
        return count > 0

    def _take_sources(self) -> bool:
        moved = False
        for source in self.sources:
            try:
                moved |= source.poll()
            except BaseException as error:  # noqa: BLE001  # a library's fault; what it concerned ends by its timers
                self._fault(type(source).__name__, error)
            if self._events:
                self.submit([])
        return moved

    def _take_frames(self) -> bool:
        try:
            self._arrived += self.control.receive(LIMIT - len(self._arrived))
            self._deaf = 0
        except BaseException as error:
            self._deaf += 1
            if self._deaf > DEAF:  # no peer can be received any more: a loop that has ended is noticed, a deaf one not
                raise
            self._fault("receiving", error)
        count = min(len(self._arrived), LIMIT)
        for turn in range(count):
            if turn % EVERY == EVERY - 1 and self._interlude():
                break
            peer, frame = self._arrived.popleft()
            try:
                self.hear(peer, frame)
            except BaseException as error:  # noqa: BLE001  # one frame is lost, as on any network
                self._fault(f"a frame from {peer}", error)
        return count > 0

    def _flush(self) -> None:
        self.attempt("sending", self.control.flush)

    def _interlude(self) -> bool:
        """Look at the other sources, and let go what was said; whether the pass has taken its time."""
        now = self.clock.real()
        if now - self._looked > LOOK_S:
            self._take_sources()
            self._looked = now
        if now - self._let_go > HELD_S:
            self._flush()
            self._let_go = now
        return now - self._began > PASS_S

    def _fault(self, what: str, error: BaseException) -> None:
        self.hold(error)
        self.counts["faults"] += 1
        self.fault(what, error)
