"""Control side: a process with one endpoint that opens, produces, and records the times of its events."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.nixl import NixlTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import noise, tokens_of

TOKENS = 32
LIVE = (1, 64, 1024)
AT_WORK = 64
#: on a machine that is busy a thousand rooms take their time to be opened: meanwhile no lease ends, no link is lost,
#: and no part leaves the way that is measured
LONG = Timer(1e4)
UNHURRIED = Timing(
    grant_retry=Timer(0.25, 100_000), lease=LONG, stall=LONG, engine=LONG, bootstrap=LONG, heartbeat=Timer(1.0, 300)
)
#: seconds after which a step of the benchmark that does not end is given up
LONGEST_S = 600.0
#: seconds that an engine waits for news at most, where its endpoint has a thread
LONGEST_WAIT_S = 0.05
Log = dict[str, dict[int, float]]


def layout(page: int) -> Layout:
    return Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=page, tp=1)


class ControlRank:
    """One endpoint, and when what happened to which room."""

    def __init__(self, side: str, spin: bool, cuda: bool) -> None:
        self.prefill, self.spin, self.served = side == "P", spin, False
        names = "produced", "gathering", "gathered", "posting", "posted", "written", "noted", "launched", "finished"
        self.log: Log = {name: {} for name in names}
        self.page = 16 if self.prefill else TOKENS
        pages = max(LIVE) * TOKENS // self.page
        pool = noise(layout(self.page), 0, pages, 1 if self.prefill else 2)
        self.device = "cpu"
        if cuda:
            self.device = f"cuda:{0 if self.prefill else torch.cuda.device_count() - 1}"
            torch.cuda.set_device(self.device)
        self.pool = Pool([t.to(self.device) for t in pool.k], [t.to(self.device) for t in pool.v], pool.order)
        settings = Settings(ring_bytes=8 << 20, slots=16, timing=UNHURRIED, costs="free")
        make: Callable[..., Any] = PrefillEndpoint if self.prefill else DecodeEndpoint
        self.endpoint = make(
            layout(self.page), 0, self.pool, NixlTransport(maps=False), chunk_tokens=TOKENS, settings=settings
        )
        self._watch()
        gc.collect()
        gc.freeze()

    def idle(self) -> None:
        """Poll, unless a thread of the endpoint's does."""
        if self.served:
            time.sleep(1e-3)
        elif not self.endpoint.poll():
            self.endpoint.wait(0.0002)

    def serve(self) -> None:
        """Hand the endpoint to a thread of its own: nobody else polls it any more."""
        self._unwatch()
        self.endpoint.start()
        self.served = True

    def spend(self, rooms: int, gen: int, rate: float, begin: float) -> float:
        """Processor seconds a room, of all threads: so many rooms, `rate` a second, AT_WORK at a time at most.

        `rate` 0: as fast as they go; `begin`: when, by `time.perf_counter`.
        """
        time.sleep(max(0.0, begin - time.perf_counter()))
        spent = time.process_time()
        self.carry(rooms, gen, lambda left: self.endpoint.wait_news(min(LONGEST_WAIT_S, max(1e-4, left))), rate)
        return (time.process_time() - spent) / rooms

    def end(self) -> None:
        self.endpoint.close()

    def address(self) -> str:
        return str(self.endpoint.address)

    def _watch(self) -> None:
        loop: Any = inside(self.endpoint).loop
        self._watched: list[tuple[Any, str, Any]] = []
        self._handlers = dict(loop.handlers)
        now, log = time.perf_counter, self.log
        if self.prefill:
            self._watch_posts()
        else:
            launch = loop.handlers[do.LaunchScatter]

            def launched(each: Any) -> None:
                launch(each)
                log["launched"][each.room] = now()

            loop.handlers[do.LaunchScatter] = launched
        raised, begun = loop.raise_event, loop.handlers.get(do.LaunchGather)

        def raise_event(event: Any) -> None:
            if type(event) in (ev.BatchCompleted, ev.Gathered):
                log["written" if type(event) is ev.BatchCompleted else "gathered"][event.room] = now()
            raised(event)

        def gather(effect: Any) -> None:
            log["gathering"][effect.room] = now()
            begun(effect)

        if begun is not None:
            loop.handlers[do.LaunchGather] = gather

        receive = loop.rank.receive

        def received(link: int, epoch: int, room: int, body: Any, at: float, *more: Any) -> Any:
            if type(body).__name__ == "StgNotify":
                log["noted"].setdefault(room, now())
            return receive(link, epoch, room, body, at, *more)

        self._put(loop, raise_event=raise_event)
        self._put(loop.rank, receive=received)

    def _watch_posts(self) -> None:
        now, log = time.perf_counter, self.log
        writes = inside(self.endpoint).data.writes
        told, asked = writes._posted, [0.0]  # noqa: SLF001

        def timed(act: Callable[..., Any]) -> Callable[..., Any]:
            def timed_act(*args: Any) -> Any:
                asked[0] = now()
                return act(*args)

            return timed_act

        self._put(writes.transport, post=timed(writes.transport.post))
        self._put(writes.transport, write_many=timed(writes.transport.write_many))

        def posted(handle: Any, keys: Any, *more: Any) -> None:
            at = now()
            told(handle, keys, *more)
            for room, _, _ in keys:
                log["posting"][room], log["posted"][room] = asked[0], at

        self._put(writes, _posted=posted)

    def _put(self, owner: Any, **watching: Any) -> None:
        for name, value in watching.items():
            self._watched.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    def _unwatch(self) -> None:
        """To watch costs a room some microseconds: where rooms are counted, nobody does."""
        while self._watched:
            setattr(*self._watched.pop())
        inside(self.endpoint).loop.handlers.update(self._handlers)

    def connect(self, address: str) -> None:
        self.endpoint.connect(layout(16), [address])
        self.drive(self.endpoint.ready)

    def drive(self, over: Callable[[], bool], longest: float = LONGEST_S) -> None:
        limit = time.perf_counter() + longest
        while not over():
            if not self.endpoint.poll() and not self.spin:
                self.endpoint.wait(0.001)
            if time.perf_counter() > limit:
                where = {state: len(rooms) for state, rooms in self.endpoint.rooms().items()}
                raise TimeoutError(f"after {longest:g} s: rooms {where}, reports {self.endpoint.reports()}")

    def pages(self, room: int) -> list[int]:
        per = TOKENS // self.page
        at = room % max(LIVE) * per
        return list(range(at, at + per))

    def open(self, room: Room) -> None:
        self.endpoint.open(room, TOKENS, self.pages(room.id))
        if self.prefill:
            self.endpoint.prefetch(room)

    def produce(self, room: Room) -> None:
        self.log["produced"][room.key] = time.perf_counter()
        self.endpoint.produced(room, TOKENS)
        self.endpoint.aux(room, b"token")

    def prepare(self, live: int, gen: int) -> None:
        """Open so many rooms; a prefill rank waits until both sides have, and each send awaits its KV."""
        for times in self.log.values():
            times.clear()
        rooms = [Room(index, gen) for index in range(live)]
        for room in rooms:
            self.open(room)
        if self.prefill:
            sends = inside(self.endpoint).rank.sends
            self.drive(lambda: sum(
                send.state is PSend.AWAIT_KV for room in rooms for send in sends.get(room.key, {}).values()
            ) == live)  # fmt: skip

    def paced(self, live: int, gen: int, pace: float) -> Log:
        """Produce one room after the other, `pace` seconds apart, and wait until all are over."""
        left, due, start = live, 0, time.perf_counter() + 0.01
        gone = 0
        while left or gone < live:
            if self.prefill and due < live and time.perf_counter() >= start + due * pace:
                self.produce(Room(due, gen))
                due += 1
            moved = self.endpoint.poll()
            left -= self._finished()
            gone += len(self.endpoint.released())
            if not moved and not self.spin:
                soon = start + due * pace - time.perf_counter() if due < live else 0.001
                self.endpoint.wait(min(0.001, max(0.0, soon)))
        return {name: dict(times) for name, times in self.log.items()}

    def _finished(self) -> int:
        outcomes, now = self.endpoint.finished(), time.perf_counter()
        for outcome in outcomes:
            assert outcome.ok, outcome
            self.log["finished"][outcome.room.key] = now
        return len(outcomes)

    def flood(self, rooms: int, gen: int) -> tuple[float, float]:
        """So many rooms, AT_WORK at a time: (begin, end)."""
        self._unwatch()
        begin = time.perf_counter()
        self.carry(rooms, gen, self._pass)
        return begin, time.perf_counter()

    def carry(self, rooms: int, gen: int, wait: Callable[[float], object], rate: float = 0.0) -> None:
        """Open so many rooms, AT_WORK at a time, until all are over and released.

        `rate`: rooms a second at most; 0: as fast as they go. `wait`: called with the seconds to the next one.
        """
        opened = over = gone = 0
        begin = time.perf_counter()
        while gone < rooms:
            due = rate * (time.perf_counter() - begin) if rate else rooms
            while opened < min(rooms, due) and opened - over < AT_WORK:
                room = Room(opened, gen)
                self.open(room)
                if self.prefill:
                    self.produce(room)
                opened += 1
            paced = rate and opened < rooms
            wait((opened + 1) / rate - (time.perf_counter() - begin) if paced else LONGEST_S)
            over += self._finished()
            gone += len(self.endpoint.released())

    def _pass(self, _seconds: float) -> None:
        if not self.endpoint.poll() and not self.spin:
            self.endpoint.wait(0.001)

    def rest(self, seconds: float) -> float:
        """Processor seconds a second while nothing happens."""
        self.spin, spin = False, self.spin
        until, begin = time.perf_counter() + seconds, time.process_time()
        while time.perf_counter() < until:
            if not self.endpoint.poll():
                self.endpoint.wait(until - time.perf_counter())
        self.spin = spin
        return (time.process_time() - begin) / seconds

    def right(self) -> bool:
        """Whether all pages are what the prefill rank's are."""
        theirs = noise(layout(16), 0, max(LIVE) * TOKENS // 16, 1)
        mine = Pool([t.cpu() for t in self.pool.k], [t.cpu() for t in self.pool.v], self.pool.order)
        ours, wanted = (tokens_of(pool, list(range(pool.pages))) for pool in (mine, theirs))
        return all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
