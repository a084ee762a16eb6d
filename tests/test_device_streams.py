"""A rank's streams as CUDA has them: the stream that copies a table, and the waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from kvproto.data import device_streams
from kvproto.data.device_streams import CurrentStream, DeviceStreams
from kvproto.data.peer_tables import MOST
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.io.kernels import current_device

GPU = 1


class Stream:
    def __init__(self, cuda: Cuda, name: str, index: int = GPU) -> None:
        self.cuda, self.name, self.index = cuda, name, index
        self.waited: list[Any] = []
        self.idle = False

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)

    def wait_stream(self, other: Any) -> None:
        self.waited.append(other)

    def query(self) -> bool:
        return self.idle


class Event:
    def __init__(self) -> None:
        self.on: Stream | None = None
        self.passed = False

    def record(self, stream: Stream) -> None:
        self.on = stream

    def query(self) -> bool:
        return self.passed


class Cuda:
    """The part of torch's state that this thread has: its device, and each device's current stream."""

    def __init__(self) -> None:
        self.device = 0
        self.current = [Stream(self, f"default {index}", index) for index in range(2)]
        self.made: list[tuple[Stream, Any]] = []
        self.used: list[tuple[Any, Stream]] = []

    def new_stream(self, device: Any, priority: int = 0) -> Stream:
        assert device.type == "cuda"
        stream = Stream(self, f"{len(self.made)}")
        self.made.append((stream, priority))
        return stream

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        before, self.device = self.device, index
        yield
        self.device = before

    def set_stream(self, stream: Stream) -> None:
        assert self.device == stream.index
        self.current[stream.index] = stream


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    monkeypatch.setattr(device_streams, "new_stream", made.new_stream)
    # A driver may be installed where its devices are hidden.
    monkeypatch.setattr(device_streams, "cuda_driver", lambda: None)
    monkeypatch.setattr(current_device, "current_device", lambda: made.device)
    monkeypatch.setattr(torch.cuda, "device", made.on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: made.current[index])
    monkeypatch.setattr(torch.cuda, "set_stream", made.set_stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: made.used.append((tensor, stream)))
    return made


@pytest.fixture
def streams(cuda: Cuda) -> DeviceStreams:
    """A GPU's streams, over memory of the host."""
    made = DeviceStreams(cast("Any", SimpleNamespace(type="cuda", index=GPU)))
    assert made.index == GPU and len(cuda.made) == 6
    made.device = torch.device("cpu")
    return made


def entry(*pages: int, given: int | None = None) -> RoomEntry:
    return RoomEntry(8, NO_TABLE, np.array(pages, np.int64), len(pages) if given is None else given)


def test_data_and_stores_go_before_what_an_engine_computes_and_tables_do_not(
    streams: DeviceStreams, cuda: Cuda
) -> None:
    data = streams.stream, *streams.stores, *streams.copies
    assert cuda.made == [*((stream, -1) for stream in data), (streams._tables, 0)]
    assert DeviceStreams(cast("Any", SimpleNamespace(type="cuda", index=None))).index == 0


def test_tables_of_peers_go_by_the_driver_on_the_stream_of_tables_for_the_two_of_stores(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[tuple[Any, ...]]()

    class Noted:
        def __init__(self, *about: Any) -> None:
            given.append(about)

        def place(self, pages: bytes) -> Any:
            return "placed", pages

    monkeypatch.setattr(device_streams, "PeerTables", Noted)
    monkeypatch.setattr(device_streams, "cuda_driver", lambda: "the driver")
    device: Any = SimpleNamespace(type="cuda", index=GPU)
    made = DeviceStreams(device)
    assert given == [("the driver", device, made._tables, made.stores)]
    assert made.place_peer(b"pages") == made._sent == ("placed", b"pages")


@pytest.mark.parametrize("device", [0, GPU], ids=["of another device", "of the stream's device"])
def test_a_stream_is_current_on_its_device_for_a_while_for_a_thread(cuda: Cuda, device: int) -> None:
    stream, before = Stream(cuda, "mine"), cuda.current[GPU]
    cuda.device = device
    with CurrentStream(stream, GPU):
        assert cuda.device == GPU and cuda.current[GPU] is stream
    assert cuda.device == device and cuda.current[GPU] is before


def test_a_table_is_copied_on_its_own_stream_and_its_memory_is_of_both_that_read_it(
    streams: DeviceStreams, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[Any] = []

    def to(tensor: torch.Tensor, device: torch.device, *, non_blocking: bool) -> torch.Tensor:
        where.append((cuda.current[GPU], device, non_blocking))
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "to", to)
    table, event = streams.place(np.array([3, 1], np.int64))
    assert where == [(streams._tables, streams.device, True)] and event.on is streams._tables
    readers = [streams.stream, *streams.stores]
    assert table.tolist() == [3, 1] and [stream for _, stream in cuda.used] == readers
    assert all(used is table for used, _ in cuda.used) and cuda.current[GPU] is not streams._tables


def test_pages_that_come_later_are_put_at_the_end(
    streams: DeviceStreams, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, where = torch.Tensor.copy_, list[Any]()

    def copy(to: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> torch.Tensor:
        where.append((cuda.current[GPU], non_blocking))
        return real(to, source)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    room = entry(3, 1, 0, 0, given=2)
    room.table = torch.tensor([3, 1, 0, 0])
    assert streams.extend(room, np.empty(0, np.int64)) is None and room.given == 2
    event = streams.extend(room, np.array([7], np.int64))
    assert event.on is streams._tables and room.given == 3
    assert room.table.tolist() == room.pages.tolist() == [3, 1, 7, 0] and where == [(streams._tables, True)]
    room.table = NO_TABLE
    assert streams.extend(room, np.array([9], np.int64)) is None and room.given == 4
    assert room.pages.tolist() == [3, 1, 7, 9], "it goes with the others"


def test_on_the_host_they_are_put_there_and_nothing_is_waited_for() -> None:
    streams, room = DeviceStreams(torch.device("cpu")), entry(3, 0, given=1)
    streams.put_off(room)
    assert not streams and streams.stream is None and streams.stores == (None, None)
    assert streams.extend(room, np.array([7], np.int64)) is None and room.given == 2
    assert room.table.tolist() == [3, 7] and streams.place(room.pages)[1] is None
    assert streams.next_store() is streams.next_store() is streams.next_copy() is None
    assert not streams.run()


def test_tables_of_one_pass_are_one_copy(streams: DeviceStreams) -> None:
    rooms = [entry(3, 1), entry(5), entry(9, 8, 7)]
    for room in rooms:
        streams.put_off(room)
    assert len(streams) == 3 and all(room.table is NO_TABLE for room in rooms)
    assert streams.run() and not streams.run() and len(streams) == 0
    assert [room.table.tolist() for room in rooms] == [[3, 1], [5], [9, 8, 7]]
    assert rooms[0].placed is rooms[1].placed is rooms[2].placed is not None
    place(streams, alone := entry(4, 2))
    assert alone.table.tolist() == [4, 2] and alone.placed is not rooms[0].placed


def test_the_first_launch_that_reads_a_table_waits_unless_it_is_there(streams: DeviceStreams) -> None:
    first, second, there = entry(3), entry(5), entry(7)
    for room in (first, second):
        streams.put_off(room)
    streams.place_all()
    event = first.placed
    for room in (first, first, second):
        streams.await_table(room)
        assert streams.stream.waited == [event] and room.placed is None
    there.placed = Event()
    there.placed.passed = True
    streams.await_table(there)
    assert streams.stream.waited == [event] and there.placed is None


def test_pages_that_cannot_be_put_at_the_end_are_not_there(
    streams: DeviceStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("planted")

    room = entry(3, 1, 0, given=2)
    room.table = torch.tensor([3, 1, 0])
    monkeypatch.setattr(torch.Tensor, "copy_", fails)
    with pytest.raises(OSError, match="planted"):
        streams.extend(room, np.array([7], np.int64))
    assert room.given == 2


def test_a_room_s_tables_at_its_end_are_one_copy_behind_all_that_was_sent(streams: DeviceStreams) -> None:
    pool: Any = SimpleNamespace(ends=[SimpleNamespace(own_tables=own) for own in (True, False, True)])
    room = entry(3)
    place(streams, room)
    first = room.placed
    streams.put_ends(pool, room, ((4, 5), (6,), (7,)))
    assert [table if table is None else table.tolist() for table in room.end_tables] == [[4, 5], None, [7]]
    assert room.placed is streams._sent is not first
    pool.ends = pool.ends[1:2]
    streams.put_ends(pool, room, ((6,),))
    assert room.end_tables == (None,) and room.placed is streams._sent, "what was sent before is still waited for"


def test_only_a_device_has_an_alarm(cuda: Cuda) -> None:
    alarm = DeviceStreams(cast("Any", SimpleNamespace(type="cuda", index=GPU))).alarm()
    assert alarm is not None and (alarm._stream, alarm._index) == (cuda.made[-1][0], GPU) and len(cuda.made) == 7
    assert DeviceStreams(torch.device("cpu")).alarm() is None


def place(streams: DeviceStreams, room: RoomEntry) -> None:
    """Send the room's table, and no other."""
    streams.put_off(room)
    streams.place_all()


def test_stores_take_turns_on_two_streams_which_wait_once_each_for_tables_on_their_way(
    streams: DeviceStreams,
) -> None:
    first, second = streams.stores
    assert [streams.next_store(), streams.next_store()] == [first, second]
    assert [streams.next_copy() for _ in range(3)] == [*streams.copies, streams.copies[0]]
    assert not first.waited and not second.waited, "none was sent"
    room = entry(3, 1, 4, given=2)
    place(streams, room)
    for stream in (first, second, first, second):
        assert streams.next_store() is stream and stream.waited == [streams._tables]
    streams.extend(room, np.array([4], np.int64))
    for stream in (first, second, first):
        assert streams.next_store() is stream and stream.waited == [streams._tables] * 2, "behind them already"
    streams._tables.idle = True
    place(streams, entry(5))
    streams.next_store(), streams.next_store()
    streams._tables.idle = False
    streams.next_store(), streams.next_store()
    assert len(first.waited) == len(second.waited) == 2 and not streams.stream.waited, "they are there"


def test_a_forward_that_is_over_is_known_to_be(streams: DeviceStreams) -> None:
    assert not streams.forward_runs(), "no forward is known"
    streams.forward = Event()
    assert streams.forward_runs()
    streams.forward.passed = True
    assert not streams.forward_runs() and streams.forward is None


def test_a_table_that_is_said_to_be_sent_late_is_waited_for_all_the_same(streams: DeviceStreams) -> None:
    """The first sender of two threads reports last."""
    events = []
    for room in (entry(3), entry(5)):
        place(streams, room)
        events.append(streams._sent)
    first, _ = streams.next_store(), streams.next_store()
    streams._sent = events[0]
    assert streams.next_store() is first and first.waited == [streams._tables] * 2


def test_a_peer_s_table_is_waited_for_by_the_next_store(
    streams: DeviceStreams, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    assert streams._peers is None, "without a driver the copy is torch's"
    assert streams.place_peer(b"\1\0\0\0").tolist() == [1, 0, 0, 0]
    given, placed = list[bytes](), torch.zeros(4)

    def place(pages: bytes) -> torch.Tensor:
        given.append(pages)
        return placed

    monkeypatch.setattr(streams, "_peers", SimpleNamespace(place=place))
    first, second = streams.next_store(), streams.next_store()
    before = len(first.waited)
    assert streams.place_peer(b"1234") is placed
    assert [streams.next_store() for _ in range(3)] == [first, second, first]
    assert first.waited[before:] == second.waited[before:] == [streams._tables]
    streams.place_peer(bytes(MOST))
    assert given == [b"1234", bytes(MOST)], "a larger one is torch's again"
    streams.place_peer(bytes(MOST + 1))
    assert len(given) == 2
