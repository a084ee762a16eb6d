"""Fake device: its streams run when somebody says so.

On a CPU no event is ever waited for in earnest. Here a stream is a queue: launches, tables' copies and forwards are put
into it, an event is a mark in it, and a wait holds the stream up until the mark has been passed. Which stream runs its
next piece of work is the driver's choice (`ready`, `run`), so what does not wait shows. A page table that is read
before its copy has run is a fault (AssertionError); whoever knows of the KV is asked (`watch`). `quick`: work runs as
soon as it can.

The waits are the handlers' own: `SlowStreams` is the rank's `DeviceStreams` with other streams, and tickets are the
ones that CUDA launches return.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.room_entry import NO_TABLE, HostPages, RoomEntry
from kvproto.io.kernels.base import EventTicket, Kernels, Launch, Pool, Side, StagedPart, Ticket
from kvproto.io.kernels.crossing import Crossing, Most, PagesCopy, all_of_them
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.plan import Share


class FakeEvent:
    """A mark in a stream; as in CUDA, one that was never recorded has passed."""

    def __init__(self) -> None:
        self.mark: Mark | None = None

    def record(self, stream: FakeStream) -> None:
        self.mark = Mark()
        stream.queue.append(self.mark)
        stream.device.roll()

    def query(self) -> bool:
        """Whether the mark has been passed; RuntimeError if the work before it has failed."""
        if self.mark is not None and self.mark.failed:
            raise RuntimeError("the kernel failed, as the schedule wanted")
        return self.mark is None or self.mark.passed


class Mark:
    """A place in a stream."""

    passed = failed = False


class Wait:
    """A stream goes on when this mark has been passed."""

    def __init__(self, mark: Mark) -> None:
        self.mark = mark


class Work:
    """One piece of work: what it is called, and what it does."""

    def __init__(self, name: tuple[object, ...], act: Callable[[], object]) -> None:
        self.name, self.act = name, act


class FakeStream:
    """Work, marks and waits, in their order."""

    def __init__(self, device: FakeDevice, name: str) -> None:
        self.device, self.name = device, name
        self.queue: deque[Work | Mark | Wait] = deque()
        self.failed = False

    def wait_event(self, event: FakeEvent) -> None:
        """Hold work that is queued from now on until the event's mark has been passed."""
        if event.mark is not None and not event.mark.passed:
            self.queue.append(Wait(event.mark))

    def wait_stream(self, other: FakeStream) -> None:
        """Hold work that is queued from now on until the other stream's queued work is done."""
        event = FakeEvent()
        event.record(other)
        self.wait_event(event)

    def query(self) -> bool:
        return not self.queue

    def put(self, name: tuple[object, ...], act: Callable[[], object]) -> FakeEvent:
        """Queue this; the event after which it is over."""
        self.queue.append(Work(name, act))
        event = FakeEvent()
        event.record(self)
        return event

    def roll(self) -> bool:
        """Pass what is no work; whether anything was."""
        moved = False
        while self.queue and not isinstance(head := self.queue[0], Work):
            if isinstance(head, Wait):
                if not head.mark.passed:
                    break
            else:
                head.passed, head.failed, self.failed = True, self.failed, False
            self.queue.popleft()
            moved = True
        return moved


class FakeDevice:
    """The streams of all ranks; `tables` still to be copied, by tensor."""

    def __init__(self) -> None:
        self.streams: dict[str, FakeStream] = {}
        self.quick = False
        self.coming: dict[int, list[range]] = {}

    def stream(self, name: str) -> FakeStream:
        return self.streams.setdefault(name, FakeStream(self, name))

    def ready(self) -> list[str]:
        return [name for name, stream in self.streams.items() if stream.queue and isinstance(stream.queue[0], Work)]

    def run(self, name: str, *, fails: bool = False) -> None:
        """Run the next piece of this stream's work, or have it fail."""
        stream = self.streams[name]
        work = stream.queue.popleft()
        assert isinstance(work, Work), f"{name} has nothing to run"
        if fails:
            stream.failed = True
        else:
            work.act()
        self.roll()

    def roll(self) -> None:
        """Pass what can be passed; and run what can run, if the device is quick."""
        while any(stream.roll() for stream in self.streams.values()):
            pass
        if self.quick and (ready := self.ready()):
            self.run(ready[0])

    def idle(self) -> bool:
        """Run all that can; whether there was nothing."""
        before = self.ready()
        while ready := self.ready():
            self.run(ready[0])
        return not before

    def waiting(self) -> list[tuple[str, list[object]]]:
        """Return the queued work by stream: its names, and whether it stands before a wait."""
        return [
            (name, [item.name if isinstance(item, Work) else type(item).__name__ for item in stream.queue])
            for name, stream in self.streams.items() if stream.queue
        ]  # fmt: skip


class SlowStreams(DeviceStreams):
    """A rank's streams on the fake device; tables come when their stream runs."""

    def __init__(self, device: FakeDevice, rank: str) -> None:
        super().__init__(torch.device("cpu"))
        self.fake, self.stream, self.tables = device, device.stream(f"{rank} data"), device.stream(f"{rank} tables")
        self.stores = device.stream(f"{rank} stores"), device.stream(f"{rank} other stores")
        self._tables = self.tables

    def begin_anew(self) -> None:
        """Have the first of the two streams take the next store."""
        self.turn = 1

    def place(self, pages: HostPages) -> tuple[torch.Tensor, Any]:
        """A table that is not there yet, and the event after which it is."""
        placed = torch.zeros_like(torch.from_numpy(pages))
        return placed, self._copy(placed, pages, 0, len(pages))

    def extend(self, entry: RoomEntry, more: HostPages) -> Any:
        at, entry.given = entry.given, entry.given + len(more)
        entry.pages[at : entry.given] = more
        if not len(more) or entry.table is NO_TABLE:
            return None
        return self._copy(entry.table, more, at, entry.given)

    def _copy(self, table: torch.Tensor, pages: HostPages, first: int, end: int) -> FakeEvent:
        coming, begin = self.fake.coming.setdefault(table.untyped_storage().data_ptr(), []), table.storage_offset()
        where = range(begin + first, begin + end)
        coming.append(where)

        def copy() -> None:
            table[first:end] = torch.from_numpy(pages)
            coming.remove(where)

        self._sent = sent = self.tables.put(("table", first, end), copy)
        return sent


class SlowKernels(Kernels):
    """The CPU's kernels in a stream."""

    def __init__(
        self, device: FakeDevice, whose: Callable[[torch.Tensor], object],
        watch: Callable[[Side, torch.Tensor, int, int], None],
    ) -> None:  # fmt: skip
        """Take `whose` a table is, for the work's name; `watch` is told of reads (side, table, first, tokens)."""
        self.device, self.whose, self.watch, self._inner = device, whose, watch, TorchKernels()

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        self._inner.prepare(pool, side, shares, digests=digests)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        run = self._inner.gather_parts
        return self.queue("gather", pool, table, first, tokens, stream, after, lambda: run(
            pool, table, first, tokens, parts, digest=digest
        ))  # fmt: skip

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        run = self._inner.scatter
        return self.queue("scatter", pool, table, first, tokens, stream, after, lambda: run(
            pool, table, first, tokens, parts, digest=digest
        ))  # fmt: skip

    def bind(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart]
    ) -> Launch:  # fmt: skip
        return SlowLaunch(self, side, (pool, table, first, tokens, parts))

    def join(self, launches: Sequence[Launch]) -> Launch | None:
        """As the contract of kernels has it: one piece of work, and one mark behind it."""
        joined = [each for each in launches if isinstance(each, SlowLaunch)]
        return SlowJoint(joined) if len(joined) == len(launches) else None

    def cross(self, pool: Pool, crossings: Sequence[Crossing], most: Most = all_of_them) -> PagesCopy | None:
        copy = self._inner.cross(pool, crossings, most)
        return None if copy is None else SlowCopy(self, pool, copy)

    def queue(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, stream: FakeStream, after: Any,
        act: Callable[[], object],
    ) -> Ticket:  # fmt: skip
        if after is not None:
            stream.wait_event(after)
        name = side, self.whose(table), first
        return EventTicket(stream.put(name, lambda: self.watched(side, pool, table, first, tokens, act)), [])

    def watched(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, act: Callable[[], object]
    ) -> None:  # fmt: skip
        begin = table.storage_offset()  # tables may be parts of one
        pages = range(begin + first // pool.page_size, begin - (-(first + tokens) // pool.page_size))
        for coming in self.device.coming.get(table.untyped_storage().data_ptr(), ()):
            if max(coming.start, pages.start) < min(coming.stop, pages.stop):
                raise AssertionError(f"a {side} of tokens {first}..{first + tokens - 1} reads a page table "
                                     "that is not on the device yet")  # fmt: skip
        self.watch(side, table, first, tokens)
        act()

    def moves(self, side: Side) -> Callable[..., object]:
        return self._inner.gather_parts if side == "gather" else self._inner.scatter


class SlowLaunch:
    """A cell that is bound."""

    def __init__(self, kernels: SlowKernels, side: Side, cell: tuple[Any, ...]) -> None:
        self.kernels, self.side, self.cell = kernels, side, cell

    def __call__(self, stream: Any, after: Any) -> Ticket:
        return SlowJoint([self])(stream, after)

    def run(self) -> None:
        pool, table, first, tokens, parts = self.cell
        move = self.kernels.moves(self.side)
        self.kernels.watched(self.side, pool, table, first, tokens, lambda: move(pool, table, first, tokens, parts))

    @property
    def name(self) -> tuple[object, ...]:
        _, table, first, _, _ = self.cell
        return self.side, self.kernels.whose(table), first


class SlowJoint:
    """Several in one."""

    def __init__(self, launches: Sequence[SlowLaunch]) -> None:
        self.launches = launches

    def __call__(self, stream: FakeStream, after: Any) -> Ticket:
        if after is not None:
            stream.wait_event(after)
        first, *others = [each.name for each in self.launches]
        return EventTicket(stream.put((*first, *others), self.run), [])

    def run(self) -> None:
        for each in self.launches:
            each.run()


class SlowCopy:
    """The CPU's copy into a peer's pages, in a stream; its reads of the pool are watched as a gather's."""

    def __init__(self, kernels: SlowKernels, pool: Pool, copy: PagesCopy) -> None:
        self._kernels, self._pool, self._copy = kernels, pool, copy

    def bind(self, table: torch.Tensor, theirs: Any, first: int, tokens: int) -> Launch:
        return lambda stream, after: self._kernels.queue(
            "gather", self._pool, table, first, tokens, stream, after,
            lambda: self._copy.bind(table, theirs, first, tokens)(None, None),
        )  # fmt: skip
