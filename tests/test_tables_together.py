"""Page tables of rooms that are opened together: one copy, and no launch reads one before it is there."""

from __future__ import annotations

import numpy as np
import torch

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.verify.testing.fake_device import FakeDevice, SlowStreams


def opened(streams: DeviceStreams, *pages: int) -> RoomEntry:
    """A room with these pages, whose table is put off."""
    entry = RoomEntry(len(pages), NO_TABLE, np.array(pages, np.int64), len(pages))
    streams.put_off(entry)
    return entry


def test_tables_that_were_put_off_are_one_copy_that_the_stream_waits_for_once() -> None:
    device = FakeDevice()
    streams = SlowStreams(device, "D0")
    rooms = [opened(streams, 4, 5, 6), opened(streams, 9), opened(streams, 1, 0)]
    streams.place_all()
    assert [(name, len(queued)) for name, queued in device.waiting()] == [("D0 tables", 2)], "the copy and its mark"
    for room in rooms:
        streams.await_table(room)
    assert device.waiting()[0] == ("D0 data", ["Wait"]) and all(room.placed is None for room in rooms)
    device.idle()
    assert [room.table.tolist() for room in rooms] == [[4, 5, 6], [9], [1, 0]]
    streams.place_all()
    assert not device.waiting(), "nothing is left"


def test_pages_that_come_before_the_table_has_left_go_with_it() -> None:
    device = FakeDevice()
    streams = SlowStreams(device, "P0")
    first, second = opened(streams, 4, 5, 6), opened(streams, 7, 8)
    second.given = 1  # the engine has taken the last one back
    assert streams.extend(second, np.array([2], np.int64)) is None
    streams.place_all()
    device.idle()
    assert (first.table.tolist(), second.table.tolist()) == ([4, 5, 6], [7, 2])
    second.given = 1
    assert streams.extend(second, np.array([3], np.int64)) is not None
    device.idle()
    assert (first.table.tolist(), second.table.tolist()) == ([4, 5, 6], [7, 3])


def test_on_the_host_a_table_is_the_pages() -> None:
    room = opened(DeviceStreams(torch.device("cpu")), 3, 1)
    room.pages[0] = 2
    assert room.table.tolist() == [2, 1] and room.placed is None
