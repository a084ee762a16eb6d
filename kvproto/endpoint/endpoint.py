"""The endpoint: the object that an engine holds for each rank.

`PrefillEndpoint` and `DecodeEndpoint` combine a rank, a loop and its handlers.  All of their calls are non-blocking:

* open a room, give tokens and the aux row, abort;
* `status(room)`: cheap, sticky, and only rising, except to FAILED;
* `finished()`: each room's outcome, handed out once;  `released()`: rooms whose pages may be reused, handed out once.
  They differ: a failed room is finished at once, and released when no write of it can land any more;
* `events()`: both, and everything else that happens, as one stream (`kvproto.endpoint.endpoint_events`);
* `explain(room)`: what the room waits for, from whom, since when;  `links()`: the state of each link;
  `reports()`: errors, newest last.

Either the engine calls `poll()` in its own loop (one bounded pass; `wait()` sleeps until there is something to do),
or `start()` runs the loop on a thread of its own, and the engine's calls are handed over to it.

The loop's work is in `kvproto.loop.rank_loop`, the protocol in the tables.  This file is only the engine's side: it
checks arguments, and keeps entries until the engine has got outcome and release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvproto.call_arguments import checked, explained
from kvproto.data.room_entry import RoomEntry, as_table, need_pages
from kvproto.endpoint import takers
from kvproto.endpoint.endpoint_events import (
    EndpointEvent,
    PoolAttached,
    PoolDetached,
    Reported,
    RoomOpened,
    peer_event,
)
from kvproto.endpoint.engine_news import EngineNews, taken
from kvproto.endpoint.explain import explain, explain_link, spoken
from kvproto.endpoint.pool_attachment import PoolAttachment, Rooms
from kvproto.endpoint.reasons import reason
from kvproto.endpoint.resume_point import PageDigests, ResumePoint
from kvproto.endpoint.validation import check_pool, pick_kernels
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.vocabulary import Event
from kvproto.io.clock import Clock
from kvproto.io.control.control import Control
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.digesting import Cell, DigestingKernels, Place
from kvproto.io.kernels.page_digests import page_digests
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.own_thread import SWITCH_S, OwnThread
from kvproto.loop.rank_loop import Loop
from kvproto.observe.durations import ROOM_BOUNDS, Durations
from kvproto.observe.failure_traces import FailureTraces
from kvproto.observe.rank_traces import save
from kvproto.observe.trace_files import TraceSnapshots
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import room_name, room_of
from kvproto.protocol.messages import Goodbye
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank
from kvproto.room import Outcome, Room, Status

if TYPE_CHECKING:
    from kvproto.endpoint.spans import RoomSpans


#: counts peers that missed beats for as long as would have ended their links, had their connections not stood
SILENCES = "silences of peers that live"
#: seconds for which `close` waits until peers know of the rooms that it gives up, and their writes have ended; and then
#: until they have answered a goodbye
LINGER_S = 0.1
#: why a room ends whose engine takes the pool away
DETACHES = "its engine detaches the pool"


class Endpoint:
    """The common part of both sides."""

    #: what carries out the effects of the side
    _data: Any

    def __init__(self, rank: Rank, pool: Pool, control: Control, clock: Clock) -> None:
        self._rank, self.pool = rank, pool
        rank.prepare()  # no pass waits for code to be written
        self._loop = Loop(rank, control, clock)
        self._entries: dict[int, RoomEntry] = {}
        self._loop.logs.blame = self._blame
        self._digesting: DigestingKernels | None = None
        self._news = EngineNews(self._entries, rank.settings.tombstones)
        self._attachment = PoolAttachment(self._loop, self._detached)
        self._loop.ended = self._news.alarm.set
        self._loop.logs.reported = lambda text: self._news.add(Reported(text))
        # Rooms first: a goodbye ends the links by which peers have to learn that the rooms are given up.
        self._loop.farewells += [("its rooms", self._give_up), ("its links", self._take_leave)]
        #: where the trace is written when a room fails (None: nowhere), for the first 64 failures
        self.trace_dir: Path | None = None
        self._traces = FailureTraces(rank, self._loop.logs.fault)
        #: makes a span of each room that ends (None: no spans)
        self.spans: RoomSpans | None = None
        #: how rooms ended, and what they took
        self._ends: Counter[Cause] = Counter()
        self._phases = {phase: Durations(ROOM_BOUNDS) for phase in ("open", "transfer", "release")}

    # -------------------------------------------------------------------------------------- driving it
    def poll(self) -> bool:
        """One bounded pass; whether anything happened."""
        if self.pool.gpu < 0:  # on a CPU no call more
            return self._loop.whole.poll()
        with use_device(self.pool.gpu):
            return self._loop.whole.poll()

    @checked
    def wait(self, timeout: float = 1.0) -> None:
        """Sleep until there may be something to do, `timeout` seconds at most."""
        self._loop.whole.wait(max(0.0, timeout))  # in this order NaN is 0; it would sleep for ever

    @checked
    def start(
        self, switch_interval: float = SWITCH_S, *, freeze: bool = False, cores: Iterable[int] | None = None
    ) -> None:  # fmt: skip
        """Run the loop on a thread of its own.

        Beside a thread that computes it waits for the interpreter's lock at every turn, 5 ms at a time by default; so
        the interpreter's switch interval, which is the process's, is lowered to `switch_interval` seconds while such
        loops run.  Where it is that short already it stays as it is; infinity leaves it alone.  `freeze`: what is there
        now is kept from the collector's later passes (`gc.freeze`), unless the process has frozen something itself: a
        full pass over an engine's objects is the loop's longest pause.  `cores`: where the thread may run (Linux).
        Interval and collector are put back when the last such loop has stopped.  ArgumentError: no such cores here, no
        such interval.
        """
        asks = OwnThread(switch_interval, freeze=freeze, cores=cores, gpu=self.pool.gpu)
        self._loop.whole.run(f"kvproto-{type(self).__name__}-{self._rank.index}", asks)

    def adopt(self) -> None:
        """Poll from the calling thread from now on; the one that did so before must have stopped."""
        self._loop.whole.adopt()

    @property
    def next_deadline(self) -> float:
        """Seconds from the last `poll` until the next one is due, if nothing arrives before; infinity: never."""
        return self._loop.whole.due

    def metrics(self) -> dict[str, int]:
        """Return all counters since the start, and current numbers of rooms, links and entries; any thread."""
        held = {
            "rooms": len(self._rank.rooms), "links": len(self._rank.links), "entries": len(self._entries),
            "pool attached": int(not self._attachment.why),
        }  # fmt: skip
        counted = {**self._rank.counts, **self._loop.counts, **self._loop.control.counts.away}
        return {**self._data.stats, **counted, **held}

    def reports(self) -> list[str]:
        """Return the newest 256 errors in words, newest last; any thread.

        They are refused events, malformed frames, faults, rooms that failed without an abort, lost and refused links.
        """
        return list(self._loop.reports)

    def rooms(self) -> dict[str, list[Room]]:
        """By state: the rooms that are not over here; any thread."""
        found: dict[str, list[Room]] = {}
        # Copied in one call, so under the interpreter's lock: the loop may change the dictionary meanwhile.
        for key, value in list(self._rank.rooms.items()):
            found.setdefault(value.state.name, []).append(Room(*room_of(key)))
        return found

    def links(self) -> list[str]:
        """Return a sentence about each link: its peer, its state, and what a disconnect waits for; any thread.

        After `disconnect` this shows what still holds a group: a forgotten link is not listed any more.
        """
        said = [explain_link(self._rank, link) for link in list(self._rank.links)]
        return [text for text in said if text]

    @checked
    def save_trace(self, path: Path) -> None:
        """Write what the trace holds now (its newest `Settings.trace` entries), as `kvproto trace` reads it."""
        save(self._rank, path)

    @checked
    def follow_trace(self, path: Path, every: float = 5.0) -> None:
        """Write the trace now and every so many seconds, for `kvproto inspect --follow`.

        The file is replaced each time, and holds `Settings.trace` entries at most.  ArgumentError: `every` is not
        between 1 and 3600, or there is no such directory.
        """
        if not 1.0 <= every <= 3600.0:  # noqa: PLR2004 - as the docstring says
            raise ArgumentError(f"a trace is written every 1 to 3600 seconds, not every {every!r}")
        if not Path(path).parent.is_dir():  # a later failure could only be logged
            raise ArgumentError(f"a trace is written to {path}: there is no directory {Path(path).parent}")
        self._loop.every_second.append(TraceSnapshots(self._rank, Path(path), every, self._loop.logs.fault).look)

    @property
    def closed(self) -> bool:
        """Whether `close` was called.  Any thread."""
        return self._loop.closed

    def close(self) -> None:
        """Give up the rooms that are not over, stop, and release everything.  No other thread may be polling.

        Peers are notified that this engine gave the rooms up, and have a tenth of a second to confirm.  A room that is
        not released then may still get bytes from a peer that has the pool mapped: `detach` waits for that.
        """
        with use_device(self.pool.gpu):
            self._loop.whole.close()

    def _give_up(self) -> None:
        """Notify the peers of every open room; else they would wait for missed heartbeats.

        A peer that has not read a message when its connection ends never reads it, so this waits for confirmations.
        """
        if self._loop.broken is not None:
            return
        self._loop.now = self._loop.clock.again()
        # A copy: a room that ends leaves the dictionary.
        for key in list(self._rank.rooms):
            self._happen(self._gives_up(key, self._abort_cause))
        self._loop.linger(lambda: bool(self._rank.rooms), LINGER_S)

    def _take_leave(self) -> None:
        """Say goodbye on every link, and wait for answers; else peers would treat the close as a crash."""
        loop = self._loop
        if loop.broken is not None:
            return
        loop.whole.poll()  # a peer that has said goodbye first would answer none
        heard, said = loop.heard, loop.connections.said
        known = heard[Goodbye]
        loop.now = loop.clock.again()
        loop.submit(self._rank.take_leave(loop.now))
        if self._answered:
            loop.linger(lambda: heard[Goodbye] - known < said[Goodbye], LINGER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------- memory that comes and goes
    @checked
    def detach(self, rooms: Rooms = "finish") -> None:
        """Begin to take the pool away, as an engine that sleeps or loads weights needs it; never blocks.

        From now on no room is opened.  When the pool is the engine's again, `detached` says so, and `PoolDetached`
        comes: nothing reads it, nothing can land in it, and neither it nor the staging memory is registered with a
        transport.  Staging is freed, too (on a GPU: to torch's cache).  The endpoint holds none of the pool's tensors
        then.  Links stay; those of a decode rank are called anew, once now and once by `attach`.  `pool_words` says
        what a detach waits for.

        Args:
            rooms: of those that are not over: "finish" waits for them, "end" gives them up as `abort` does

        Raises:
            ArgumentError: the pool is detached, or is being detached, or another thread attaches one
            TransportError: a decode rank's next instance of the transport cannot be made

        """
        self._attachment.begin(rooms, self._prepare_leave, self._leave)

    @checked
    def attach(self, pool: Pool) -> None:
        """Go on with this pool after a detach: register it and staging memory, and let rooms be opened.

        It blocks as the constructor does, and the loop waits meanwhile.

        Raises:
            ArgumentError: the endpoint has a pool, or another thread attaches one
            ArgumentError: this one is not this rank's share, or on another device
            TransportError: the transport does not take the memory; the pool stays detached

        """
        check_pool(self._rank.layout, self._rank.index, pool, None)
        if pool.device != self.pool.device:
            raise ArgumentError(f"the pool is on {pool.device}, and this endpoint works on {self.pool.device}")
        self._attachment.end(lambda: self._take(pool), self._attached)

    @property
    def detached(self) -> bool:
        """Whether `detach` is over, and the pool the engine's; any thread."""
        return self._attachment.detached

    def pool_words(self) -> str:
        """Say what a detach waits for, or that the pool is detached; empty: it is attached.  Any thread."""
        return self._attachment.why

    def _prepare_leave(self) -> None:
        """On the caller's thread: do what may take time, or fail, before the pool goes."""

    def _leave(self, end: bool) -> Iterator[str]:  # noqa: FBT001
        ended = set[int]()
        while left := [each.main.room for each in list(self._entries.values()) if each.main.room and not each.released]:
            for room in left if end else ():
                if room.key not in ended:
                    ended.add(room.key)
                    self._loop.blames.fail(room.key, self._abort_cause, DETACHES)
                    self._happen(ev.EngineAborted(room.key, self._abort_cause))
            yield f"{len(left)} rooms, {room_name(left[0].key)} among them"
        while self._data.at_work:
            yield "a copy or a write that is in flight"
        yield from self._leave_memory()
        self.pool = self.pool.husk()

    def _leave_memory(self) -> Iterator[str]:
        """Close the memory to the transport, of which nothing is in use; yield what that waits for."""
        raise NotImplementedError

    def _detached(self) -> None:
        self._loop.counts["pools detached"] += 1
        self._loop.logs.pool("detached")
        self._news.add(PoolDetached())

    def _take(self, pool: Pool) -> None:
        for each in (pool, *pool.ends):
            each.forget_cuts()  # they have addresses, and the engine may have moved the memory of its tensors
        for end in pool.ends:
            end.digested = self._digesting is not None
        self._prepare(pool)  # first: after a failure here nothing is held
        self._data.take_memory(pool)
        self.pool = pool
        self._tell_peers()

    def _attached(self) -> None:
        self._loop.counts["pools attached"] += 1
        self._loop.logs.pool("attached")
        self._news.add(PoolAttached())

    def _prepare(self, pool: Pool) -> None:
        """Compile the kernels of all links for this pool."""
        raise NotImplementedError

    def _tell_peers(self) -> None:
        """Have links work with the memory of now."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- rooms
    def _enter(self, room: Room, entry: RoomEntry, begin: Event | Callable[[], None]) -> None:
        key = room.key
        if key in self._entries or (self._rank.value_of(key) is not None and self._knows_room(key)):
            raise ArgumentError(f"{room} is open, or was a short while ago: a new attempt needs a new gen")
        entry.room, entry.opened = room, self._loop.clock.real()
        self._loop.check()
        self._attachment.need()
        # Whole or not at all: an interrupt in between would leave a room that is open here, and unknown to the loop.
        with HeldSignals():
            # After the check, since a loop that has broken would never hand the room out again.
            self._entries[key] = entry
            self._news.add(RoomOpened(room, entry.tokens))
            self._loop.call(begin)

    def _knows_room(self, key: int) -> bool:
        raise NotImplementedError

    def _happen(self, event: Event) -> None:
        """On the loop's thread: have the rank handle it."""
        self._loop.submit(self._rank.handle(event, self._loop.now))

    def _entry(self, room: Room) -> RoomEntry | None:
        """Return the room's entry; None: it is over and handed out.  NotFoundError: never opened here."""
        key = room.key
        entry = self._entries.get(key)
        if entry is None and (self._rank.value_of(key) is None or not self._knows_room(key)):
            raise NotFoundError(f"{room} is not open here: open it first (or it has been over for long)")
        return entry

    def _key(self, room: Room) -> int:
        entry = self._entries.get(room.key)
        named = None if entry is None else entry.main.room
        return room.key if named is None else named.key

    @explained
    def status(self, room: Room) -> Status:
        """Return the status of a room.  NotFoundError: it is unknown, or long over."""
        entry = self._entries.get(room.key)
        if entry is not None and entry.cause is not None:
            return Status.FAILED if entry.cause else Status.SUCCESS
        value = self._rank.value_of(self._key(room))
        if value is None:
            if entry is None:
                raise NotFoundError(f"{room} is unknown, or long over")
            return Status.BOOTSTRAPPING
        if value.state.name == "DONE" and entry is None:
            return Status.SUCCESS
        if entry is None and value.work is not None and value.work.cause:
            return Status.FAILED
        at = self._stage(value)
        if entry is not None:
            # Never backwards: the rank may leave a state and return to it, which an engine must not see.
            entry.told = at = max(at, entry.told)
        return Status(at)

    def _stage(self, value: Any) -> int:
        stages = dict.fromkeys(("OPEN", "AWAIT_AUX", "DONE"), Status.TRANSFERRING) | {"AWAIT_FORWARD": Status.WAITING}
        return stages.get(value.state.name, Status.BOOTSTRAPPING)

    def finished(self) -> list[Outcome]:
        """Return the outcomes since the last call, each room once.  EndpointError: the loop has broken."""
        self._news.asks_outcomes = True
        if not self._news.outcomes:
            self._check_broken()
            return []
        return taken(self._news.take_outcomes)

    def released(self) -> list[Room]:
        """Return the rooms released since the last call: the transfer does not touch their pages any more.

        Each room is returned once.  For an engine that calls `finished`, a room is never returned before its outcome.
        The engine's own use of the pages does not count: a prefill rank without duties is released before its forward
        has run.  EndpointError: the loop has broken.
        """
        if not self._news.releases:
            self._check_broken()
            return []
        return taken(self._news.take_releases)

    def events(self) -> list[EndpointEvent]:
        """Return what happened since the last call, in order: the types of `kvproto.endpoint.endpoint_events`.

        From the first call on outcomes and releases come as `RoomFinished` and `RoomReleased`, and `finished` and
        `released` return nothing.  Other events are recorded from the first call on.  `digests(room)` and `aux(room)`
        answer until the call after the one that returns the release.  EndpointError: the loop has broken.
        """
        if not self._news:
            self._check_broken()
        return taken(self._news.take_events)

    def _check_broken(self) -> None:
        """EndpointError if the loop's own thread has ended: nothing will come any more."""
        if self._loop.broken is not None:
            self._loop.check()

    @checked
    def wait_news(self, timeout: float | None = None) -> bool:
        """Block until an outcome, a release or an event can be taken, if the loop has its own thread.

        `timeout` in seconds; false if it passed, or the endpoint was closed.  A release counts even while its outcome
        has not been taken.
        """
        return self._news.alarm.wait(self._loop, lambda: bool(self._news), timeout)

    def fileno(self) -> int:
        """Return a descriptor that is readable while `wait_news` would not block, for `select` or asyncio.

        A reader's callback calls `wait_news(0)` first, which makes the descriptor unreadable, then `events`, or
        `finished` and `released`.  For a loop with its own thread; the descriptor stays open as long as the endpoint
        object lives.
        """
        return self._news.alarm.fileno()

    @explained
    def abort(self, room: Room) -> None:
        """Give the room up; nothing happens if it is over."""
        cause = self._abort_cause
        if self._entry(room) is not None:
            self._loop.call(ev.EngineAborted(room.key, cause))

    _abort_cause: Cause
    #: the event by which this side gives a room up, whether or not its engine has opened it
    _gives_up: type[ev.EngineAborted | ev.EngineRefused]
    #: whether peers answer a goodbye
    _answered: bool

    @explained
    def explain(self, room: Room) -> str:
        """Say what the room waits for, from whom, since when."""
        key = self._key(room)
        told = explain(self._rank, key, self._loop.now)
        if self._attachment.why and key in self._rank.rooms:
            told += f" And {self._attachment.why}."
        return f"{self._loop.fate}; before: {told}" if self._loop.broken is not None else told

    @explained
    def digests(self, room: Room) -> dict[Place, int]:
        """Return {(first token of a chunk, layer, head): 64-bit digest} of a room's KV; waits for the device.

        Of named caches it is {(first token of a chunk, layer, unit, "cache.part"): digest}; of what travels at the end
        the first is the number of the room's tokens. Digests are of gathered or
        scattered parts, and of the pages of parts that went page to page, except pages that were withdrawn later. Call
        it after the outcome and before `released` hands the room out: NotFoundError after that.

        ArgumentError: the endpoint was made without `digests=True`. `io.kernels.digesting.differing` compares ranks.
        """
        if self._digesting is None:
            raise ArgumentError("this endpoint makes no digests: give it digests=True")
        if self.pool.is_husk:
            raise ArgumentError(f"{self._attachment.why}: ask for digests before")
        entry = self._entries.get(room.key)
        if entry is None:
            raise NotFoundError(f"{room} is unknown, or was handed out by released: ask for its digests before")
        entry = entry.main
        with use_device(self.pool.gpu):
            found = self._digesting.read(entry.table)
            for end, table in zip(self.pool.ends, entry.end_tables, strict=False):
                if table is not None:
                    found |= self._digesting.read(table, end=end.end, tokens=entry.tokens)
            # A part that was gathered and withdrawn may have gone page to page later: what was sent last counts.
            return found | self._digesting.of_pages(self.pool, entry.pages, self._by_pages(entry, found))

    @explained
    def digest_pages(self, point: ResumePoint, pages: Any) -> PageDigests:
        """Digest what these pages hold of the point's tokens, for `resume_prefix`; waits for the device.

        Args:
            point: what has arrived of a room
            pages: page ids of the prompt in token order, on either side; nobody writes them meanwhile

        Raises:
            ArgumentError: pages are missing or not of the pool, or the pool is detached

        """
        self._attachment.need()
        layout, table = self._rank.layout, as_table(pages)
        need_pages(layout, point.upto, table, self.pool.pages)
        with use_device(self.pool.gpu):
            kernels, rank = pick_kernels(self.pool), self._rank.index
            digests = page_digests(kernels, layout, rank, self.pool, table, point.prefix, point.upto)
        return PageDigests(point, layout, rank, digests)

    def _need_released(self, dead: Room) -> None:
        """ArgumentError while something of the room that is resumed may be in flight here."""
        entry = self._entries.get(self._key(dead))
        if entry is not None and not entry.released:
            raise ArgumentError(f"{dead} is not released here: wait for that, what is in flight may still land")

    def _by_pages(self, entry: RoomEntry, known: Container[Place]) -> Iterable[Cell]:
        """Return the parts of the room that went page to page; places that are `known` did not."""
        raise NotImplementedError

    def _kernels(self, kernels: Kernels | None, *, digests: bool) -> Kernels:
        """Those that were given, or the pool's own; with digests if they are wanted."""
        kernels = kernels or pick_kernels(self.pool)
        if digests:
            kernels = self._digesting = DigestingKernels(kernels, self._rank.layout, self._rank.index)
            for end in self.pool.ends:
                end.digested = True
        return kernels

    # ----------------------------------------------------------------------------------------- effects
    def _outcome(self, effect: do.AnnounceOutcome) -> None:
        entry = self._entries.get(effect.room)
        # The first outcome stays: a room that fails while it is closed would otherwise be reported twice.
        if entry is not None and entry.room is not None and entry.end is None:
            blames = self._loop.blames
            blame = blames.find(effect.room, effect.cause)
            why = reason(self._rank, effect, entry.fault, blame, entry.tokens)
            if effect.cause:
                blames.fail(effect.room, effect.cause, why)
            value = self._rank.value_of(effect.room)
            trace = value.traceparent.decode("ascii", "replace") if value is not None else ""
            outcome = Outcome(entry.room, effect.cause, entry.aux or b"", why, trace)
            takers.end(entry, outcome, self._news)
            # the room is over and handed out: measuring and logging may fail, and change nothing
            self._loop.attempt("the times of a room", partial(self._time_outcome, entry, effect.cause))
            self._end_span(outcome, entry)
            self._loop.logs.room(effect.room, effect.cause, why)
            if effect.cause and self.trace_dir is not None:
                self._loop.attempt("a trace of a failed room", partial(self._traces.save, self.trace_dir, effect.room))

    def _end_span(self, outcome: Outcome, entry: RoomEntry) -> None:
        """Make the room's span; log an exporter's error, which does not change the room's outcome."""
        if self.spans is None:
            return
        try:
            self.spans.ended(self._rank, outcome, entry)
        except BaseException as error:  # noqa: BLE001 - a library's own: the room is over, and was handed out
            self._loop.hold(error)
            self._loop.logs.fault(f"the span of {outcome.room} (endpoint.spans)", error)

    def _time_outcome(self, entry: RoomEntry, cause: Cause) -> None:
        entry.ended = self._loop.clock.real()
        self._ends[cause] += 1
        self._phases["open"].note(entry.ended - entry.opened)
        if (transfer := entry.transfer) is not None:
            self._phases["transfer"].note(transfer[1] - transfer[0])

    def _release(self, effect: do.AnnounceReleased) -> None:
        if self._data.prepared.kept:
            self._data.prepared.forget(effect.room)
        entry = self._entries.get(effect.room)
        if entry is not None and entry.room is not None:
            takers.release(entry, self._news)
            self._phases["release"].note(self._loop.clock.real() - entry.ended)

    def _link(self, effect: do.AnnounceLink) -> None:
        if effect.why == do.LOST:  # what waits for its peer is of an epoch that is over; of one closed, the answer
            self._loop.connections.clear(effect.link)
        if effect.why == do.SILENT:
            self._loop.counts[SILENCES] += 1
        value = self._rank.links.get(effect.link)
        build = spoken(self._rank, value) if not effect.why and value is not None else ""
        self._loop.logs.link(self._peer_name(effect.link), effect.why, build)
        if (peer := self._rank.peers.get(effect.link)) is not None:
            self._news.add(peer_event(peer.group, peer.rank, effect.why))

    def _peer_name(self, link: int) -> str:
        """The other end of a link, for a reader."""
        peer = self._rank.peers.get(link)
        return f"link {link} to rank {peer.rank} of group {peer.group}" if peer is not None else f"link {link}"

    def _blame(self, room: int, cause: Cause, why: str) -> None:
        entry = self._entries.get(room)
        if entry is not None and entry.fault is None:
            entry.fault = cause, why
