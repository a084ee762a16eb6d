"""Outward calls of an endpoint, one of which raises, asks to end, is late, or does nothing.

An endpoint calls its transport, its kernels, its control plane, doorbells, its clocks, the log and the engine's spans,
and has its rank call the ranks of a prefill group.  What can be called is read from the interfaces themselves
(`calls_of`), so a method that is added is a call that nobody has injected yet: the coverage says so, and a test fails.
`Injected` stands before a part, counts its calls by name, and has the one that a `Strike` names go wrong, once.

"Does nothing" needs an answer that is no lie: nothing has come, nothing is posted, a copy that never ends.  Calls that
cannot be answered so (`TRUSTED`: a region, a peer, a closed socket) only raise or are late.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from kvproto.io.clock import Clock, ManualClock
from kvproto.io.control.control import Control, Sent
from kvproto.io.doorbell import Doorbell
from kvproto.io.kernels.base import Kernels
from kvproto.io.transports.base import Handle, Transport

Kind = Literal["raises", "exits", "late", "nothing"]
KINDS: tuple[Kind, ...] = ("raises", "exits", "late", "nothing")
#: seconds that a late call takes: more than a beat, less than what ends a link
LATE_S = 3.0
#: a write that was never posted
UNPOSTED = Handle(1 << 40)


class Spans:
    """Spans of rooms, as an engine gives them."""

    def ended(self, *_about: object) -> None:
        """A room has ended."""


class LogHandler(logging.Handler):
    """A handler of the log, as an engine installs it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write nothing."""


class Ranks:
    """The decode rank's calls of prefill ranks, which its endpoint makes for a called group."""

    def call(self, *_about: object) -> None:
        """Call a prefill rank."""

    def leave(self, *_about: object) -> None:
        """Let go of a prefill group."""


class _Unending:
    """The ticket of a copy that was never begun."""

    def done(self) -> bool:
        return False


#: what the interface is, by the part of an endpoint
INTERFACES: dict[str, type] = {
    "transport": Transport, "kernels": Kernels, "control": Control, "clock": Clock, "spans": Spans, "log": LogHandler,
    "ranks": Ranks, "bell": Doorbell,
}  # fmt: skip
#: what a call answers that does nothing
NOTHING: dict[str, Callable[[], object]] = {
    "transport.deregister": lambda: None, "transport.warm": lambda: False,
    "transport.disconnect": lambda: None, "transport.write": lambda: UNPOSTED,
    "transport.write_many": lambda: UNPOSTED, "transport.post": lambda: UNPOSTED, "transport.run": lambda: UNPOSTED,
    "transport.write_pages": lambda: UNPOSTED, "transport.drop_lists": lambda: None,
    "transport.drop": lambda: None, "transport.maps": lambda: None, "transport.apart": lambda: None,
    "transport.elsewhere": lambda: False, "transport.unmapped": lambda: "",
    "transport.lifts": lambda: False, "transport.tell": lambda: False, "transport.poll": list,
    "transport.busy": lambda: False, "transport.abandon": lambda: None, "transport.quiescent": lambda: False,
    "kernels.prepare": lambda: None, "kernels.prepare_joint": lambda: None, "kernels.gather": _Unending,
    "kernels.gather_parts": _Unending, "kernels.scatter": _Unending, "kernels.bind": lambda: lambda *_: _Unending(),
    "kernels.join": lambda: None, "kernels.cross": lambda: None, "control.disconnect": lambda: None,
    "control.send": lambda: Sent.TAKEN, "control.flush": lambda: None, "control.receive": list,
    "control.stands": lambda: False,
    "control.wait": lambda: False, "control.descriptors": tuple, "control.wake": lambda: None,
    "bell.ring": lambda: False, "bell.tell": lambda: False, "bell.rung": list,
    "clock.allow": lambda: None, "clock.awake": float, "spans.ended": lambda: None, "log.emit": lambda: None,
}  # fmt: skip
#: calls whose answer is believed, and why there is none that would be nothing
TRUSTED = {
    "transport.adopt": "the thread that may call",
    "transport.register": "a region", "transport.endpoint": "a description", "transport.connect": "a peer",
    "transport.remote": "a region", "transport.prepare": "a prepared write", "transport.close": "all is quiescent",
    "transport.prepare_pages": "a prepared write", "transport.page_lists": "lists",
    "transport.successor": "a transport", "ranks.call": "a link",
    "ranks.leave": "links are let go of", "control.connect": "a peer", "control.close": "sockets are closed",
    "bell.close": "the name is let go of", "clock.now": "a time", "clock.again": "a time", "clock.real": "a time",
}  # fmt: skip
#: calls that no run makes, and why none of an endpoint can go wrong there
UNMADE = {
    "transport.abandon": "no endpoint calls it: a write in doubt is reported until it is settled",
    "transport.elsewhere": "no run's pool is a device's; it is asked behind `unmapped`, and fails as that does",
    "transport.write": "no endpoint calls it: parts go by `write_many`, `post` and `run`",
    "kernels.gather": "no endpoint calls it: gathers are bound, or go by `gather_parts`",
    "kernels.prepare_joint": "no run's model has state; it is called behind `prepare`, and fails as that does",
}


def calls_of(part: str) -> list[str]:
    """The public methods of a part's interface, as `part.method`."""
    own = INTERFACES[part]
    names = [name for name, each in vars(own).items() if callable(each) and not name.startswith("_")]
    return sorted(f"{part}.{name}" for name in names)


def every_call() -> list[str]:
    return [call for part in INTERFACES for call in calls_of(part)]


def unknown_calls() -> set[str]:
    """Return interface calls that the injector lacks, and its calls that no interface has."""
    return {*every_call()} ^ ({*NOTHING} | {*TRUSTED})


class Strike(msgspec.Struct, frozen=True):
    """The call of this side that goes wrong, which of them (from 1), and how."""

    side: str
    call: str
    nth: int
    kind: Kind


class Injector:
    """Counts outward calls by (side, call), and has one go wrong."""

    def __init__(self, strike: Strike | None = None) -> None:
        """`strike`: None counts alone."""
        self.strike, self.struck = strike, False
        self.counts: Counter[tuple[str, str]] = Counter()
        self.time = ManualClock(1000.0)
        self._lock = threading.Lock()

    def make(self, side: str, call: str, real: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Make the call, or what is to become of it.  Any thread."""
        strike = self.strike
        with self._lock:
            self.counts[side, call] += 1
            now = side, call, self.counts[side, call]
            if strike is None or self.struck or now != (strike.side, strike.call, strike.nth):
                strike = None
            else:
                self.struck = True
        if strike is None:
            return real(*args, **named)
        if strike.kind == "raises":
            raise RuntimeError(f"injected into {call}")
        if strike.kind == "exits":
            raise KeyboardInterrupt(f"injected into {call}")
        if strike.kind == "nothing":
            return NOTHING[call]()
        found = real(*args, **named)
        self.time.advance(LATE_S)
        return found


class Injected:
    """Stands before a part: its calls go by the injector, all else is the part's."""

    def __init__(self, injector: Injector, side: str, part: str, real: Any) -> None:
        vars(self).update(_by=injector, _side=side, _part=part, _real=real, _calls={*calls_of(part)})

    def __getattr__(self, name: str) -> Any:
        real, call = getattr(self._real, name), f"{self._part}.{name}"
        if call not in self._calls:
            return real

        def through(*args: Any, **named: Any) -> Any:
            if call in {"transport.quiescent", "transport.abandon"} and args[0] == UNPOSTED:
                return True
            made = self._by.make(self._side, call, real, *args, **named)
            return Injected(self._by, self._side, self._part, made) if call == "transport.successor" else made

        return through

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)
