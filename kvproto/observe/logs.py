"""Logs: the log lines of one rank, and its newest reports (`reports`, 256 of them).

There are six loggers of the standard library, each with one subject.  No handler is installed on them (on `kvproto`
above them only a null handler), and a disabled logger costs a look-up.

    kvproto.rooms       the end of a room: INFO; if no engine asked for it: WARNING
    kvproto.links       a link is up, or disconnected; the pool comes or goes: INFO; lost, refused, forgotten: WARNING
    kvproto.transport   a write, a gather, a scatter or a connection has failed: WARNING
    kvproto.frames      a message that violates the protocol: WARNING; dropped messages, counted: INFO
    kvproto.security    refused connections, counted once a second, and insecure=True: WARNING
    kvproto.loop        a handler, a library or an engine's call has raised: ERROR, the first of a kind with traceback

A peer must not forge a line: words of a line are without line ends and control characters (`one_line`).
A peer must not control the rate of log lines.  So all but the rooms' lines (one for each room that the engine opened)
are *limited*: `BURST` lines, then one a second with the number of suppressed ones, until a second suppresses none.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable

from kvproto.errors import one_line
from kvproto.protocol.effects import CLOSED, SILENT
from kvproto.protocol.events import room_name
from kvproto.protocol.messages import MAX_REASON
from kvproto.protocol.states import Cause

logging.getLogger("kvproto").addHandler(logging.NullHandler())
ROOMS = logging.getLogger("kvproto.rooms")
SECURITY = logging.getLogger("kvproto.security")
#: lines of one subject that are written at once
BURST = 10
#: reports that are kept; kinds of faults whose traceback is written
KEPT, KINDS = 256, 64
#: characters of a reason
LONGEST = MAX_REASON


def short(text: str) -> str:
    """The text as one line, or as much of it as a reason may have."""
    text = one_line(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _nobody(room: int, cause: Cause, why: str) -> None:
    """Ignore it."""


class Writer:
    """Writes lines; a log handler that raises loses its line, and stops nothing."""

    def __init__(self) -> None:
        #: called with what a log handler has raised
        self.lost: Callable[[BaseException], None] = lambda _error: None

    def __call__(
        self, log: logging.Logger, level: int, text: str, *args: object, fault: BaseException | None = None
    ) -> None:  # fmt: skip
        """Write this line; `fault`: an error whose traceback is appended."""
        words = (one_line(word) if isinstance(word, str) else word for word in args)
        try:
            log.log(level, text, *words, exc_info=fault)
        except BaseException as error:  # noqa: BLE001  # a full disk is no reason to stop a rank
            self.lost(error)


class LimitedLogger:
    """A logger with a rate limit, so that no peer can flood it."""

    def __init__(self, subject: str, write: Writer | None = None) -> None:
        self.write = write or Writer()
        self.log, self.left, self.more = logging.getLogger(f"kvproto.{subject}"), BURST, 0

    def say(self, level: int, text: str, *args: object, fault: BaseException | None = None) -> None:
        """Write the line, or count it; `fault`: an error whose traceback is appended."""
        if not self.log.isEnabledFor(level):
            return
        if self.left:
            self.left -= 1
            self.write(self.log, level, text, *args, fault=fault)
        else:
            self.more += 1

    def sum_up(self, name: str) -> None:
        """Write how many lines the last second has suppressed."""
        if self.more:
            self.write(self.log, logging.WARNING, "%s: and %d more", name, self.more)
            self.more = 0
        else:
            self.left = BURST


class Logs:
    """The log of one rank and its loop."""

    def __init__(self, name: str, unheard: Counter[str]) -> None:
        """`name` of the rank; `unheard`: counts of the messages that it dropped, by reason."""
        self.name, self._unheard, self._summed = name, unheard, Counter[str]()
        self._away = Counter[str]()
        self.reports: deque[str] = deque(maxlen=KEPT)
        self.write = Writer()
        self.links, self.frames, self.transport, self.loop = (
            LimitedLogger(subject, self.write) for subject in ("links", "frames", "transport", "loop")
        )
        self._kinds: set[str] = set()
        #: called with each report
        self.reported: Callable[[str], None] = lambda _text: None
        #: called with a fault that may end a room: its key, the cause, the sentence
        self.blame: Callable[[int, Cause, str], None] = _nobody

    def _report(self, text: str) -> None:
        self.reports.append(text)
        self.reported(text)

    def sum_up(self, _now: float) -> None:
        """Write the counts of the last second; called once a second."""
        for limited in (self.links, self.frames, self.transport, self.loop):
            limited.sum_up(self.name)
        fresh = self._unheard - self._summed
        if fresh:
            self._summed = self._unheard.copy()
            counts = ", ".join(f"{count} {why}" for why, count in fresh.items())
            self.write(self.frames.log, logging.INFO, "%s: messages dropped: %s", self.name, counts)

    def away(self, counted: Counter[str], last: str) -> None:
        """Log the connections refused since the last call, by reason; `last`: the last unlisted key."""
        fresh = counted - self._away
        if fresh:
            self._away = counted.copy()
            counts = ", ".join(f"{count} {why}" for why, count in fresh.items())
            more = f"; last key: {last}" if last else ""
            self.write(SECURITY, logging.WARNING, "%s: refused: %s%s", self.name, counts, more)

    def frame(self, sender: str, why: str) -> None:
        """Log a frame or notification that cannot be decoded, or that violates the protocol."""
        text = f"{short(sender)}: {short(why)}"
        self._report(text)
        self.frames.say(logging.WARNING, "%s: %s", self.name, text)

    def stranger(self, place: str) -> None:
        """Log a dropped message from an address to which no link is bound."""
        self.frames.say(logging.WARNING, "%s: a message from %s, to which no link is bound", self.name, place)

    def link(self, what: str, why: str, build: str = "") -> None:
        """Log the state of a link: up (`why` is empty; `build` says with whom), closed, silent, or over."""
        level = logging.INFO if why in ("", CLOSED, SILENT) else logging.WARNING
        if level == logging.WARNING:
            self._report(f"{what} is {short(why)}")
        self.links.say(level, "%s: %s is %s%s", self.name, what, why or "up", build)

    def untaken(self, what: str, address: str, why: str) -> None:
        """Log that a second address of a link that is up did not connect; the link stays as it is."""
        self._report(f"{what} stays as it is: {short(address)} was tried: {short(why)}")
        said = "%s: %s stays as it is: %s was tried beside it: %s"
        self.links.say(logging.WARNING, said, self.name, what, short(address), short(why))

    def staged(self, what: str, why: str) -> None:
        """Log why parts for this peer take the staged route."""
        self.links.say(logging.INFO, "%s: %s: staged route: %s", self.name, what, short(why))

    def small_ring(self, what: str, chunk: int, ring: int, closed: str) -> None:
        """Log that a whole chunk of this group does not fit in the ring, so none is staged."""
        fate = f"fails, since {short(closed)}" if closed else "is written page to page"
        said = "%s: a whole chunk of %s takes %d bytes, the ring has %d (Settings.ring_bytes): it %s"
        self.links.say(logging.WARNING, said, self.name, what, chunk, ring, fate)

    def unmapped(self, what: str, why: str) -> None:
        """Log why no kernel of this rank can store into this peer's pages."""
        self.links.say(logging.INFO, "%s: the memory of %s is not mapped here: %s", self.name, what, short(why))

    def left(self, what: str) -> None:
        """Log that a link is forgotten, because the engine has disconnected its group."""
        self.links.say(logging.INFO, "%s: %s is forgotten: the engine has disconnected it", self.name, what)

    def pool(self, fate: str) -> None:
        """Log that the engine has its pool again, or has given one."""
        self.links.say(logging.INFO, "%s: the pool is %s", self.name, fate)

    def wire(self, what: str, why: str) -> None:
        self.transport.say(logging.WARNING, "%s: the transport does not connect to %s: %s", self.name, what, why)

    def part(self, what: str, key: tuple[int, ...], cause: Cause, why: str) -> None:
        """Log a failed write, gather or scatter; `key`: room, chunk (and decode rank)."""
        room, chunk, *peer = key
        whom = f" for decode rank {peer[0]}" if peer else ""
        text = short(f"{what} of {room_name(room)}, chunk {chunk}{whom}: {why}")
        self._report(text)
        self.blame(room, cause, text)
        self.transport.say(logging.WARNING, "%s: %s", self.name, text)

    def fault(self, what: str, error: BaseException) -> None:
        """Log an error that a handler, a library or a call has raised."""
        text = f"{short(what)}: {short(named(error))}"
        self._report(text)
        kind = f"{what.partition('(')[0]} {type(error).__name__}"
        first = kind not in self._kinds and len(self._kinds) < KINDS
        if first:
            self._kinds.add(kind)
        self.loop.say(logging.ERROR, "%s: %s", self.name, text, fault=error if first else None)

    def room(self, room: int, cause: Cause, reason: str) -> None:
        """Log the end of a room; `reason` is empty if it succeeded."""
        level = logging.WARNING if reason and not cause.aborted else logging.INFO
        if level == logging.WARNING:
            self._report(one_line(f"{room_name(room)} failed: {reason}"))
        if ROOMS.isEnabledFor(level):
            end = f"failed: {reason}" if reason else "is done"
            self.write(ROOMS, level, "%s: %s %s", self.name, room_name(room), end)
