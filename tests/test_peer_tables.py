"""Tables of pages that peers have named: blocks on the device, and the driver's copies into them."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kvproto.data import peer_tables
from kvproto.data.peer_tables import PeerTables
from kvproto.io.kernels.pool import KernelError


class Driver:
    """Copies into host memory, at once, and notes where and on which stream."""

    def __init__(self) -> None:
        self.copies, self.answer = list[tuple[int, bytes, int]](), 0

    def copy(self, to: int, pages: bytes, nbytes: int, stream: int) -> int:
        assert len(pages) == nbytes
        self.copies.append((to, pages, stream))
        return self.answer


class Copy:
    """As ctypes has a function: with types of arguments."""

    def __init__(self, driver: Driver) -> None:
        self.argtypes: Any = None
        self.call = driver.copy

    def __call__(self, *about: Any) -> int:
        assert len(self.argtypes) == len(about)
        return self.call(*about)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    driver, kept, on = Driver(), list[Any](), list[Any]()
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: kept.append((tensor.data_ptr(), stream)))

    def current(stream: Any) -> Any:
        on.append(stream)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "stream", current)
    stream = SimpleNamespace(cuda_stream=7)
    tables = PeerTables(
        SimpleNamespace(cuMemcpyHtoDAsync_v2=Copy(driver)), torch.device("cpu"), stream, ("stores", "second")
    )
    return SimpleNamespace(driver=driver, kept=kept, on=on, stream=stream, tables=tables)


def test_tables_lie_one_behind_the_other_in_a_block_that_is_kept_for_its_readers_once(world: Any) -> None:
    placed = [world.tables.place(bytes(count)) for count in (4, 20, 16)]
    base = placed[0].data_ptr()
    assert [(each.data_ptr() - base, len(each)) for each in placed] == [(0, 4), (16, 20), (48, 16)]
    assert world.driver.copies == [(each.data_ptr(), bytes(len(each)), 7) for each in placed]
    assert world.kept == [(base, "stores"), (base, "second")] and world.on == [world.stream]


def test_a_full_block_gives_way_and_stays_as_long_as_a_table_of_it_is_held(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_tables, "BLOCK", 48)
    world.tables._used = 48
    first, second = world.tables.place(bytes(32)), world.tables.place(bytes(16))
    assert second.data_ptr() - first.data_ptr() == 32, "the block is used to its last byte"
    third = world.tables.place(bytes(1))
    assert len(world.on) == 2 and first._base is second._base is not third._base


def test_a_copy_that_the_driver_refuses_is_told_and_takes_no_place(world: Any) -> None:
    first = world.tables.place(bytes(4))
    world.driver.answer = 719
    with pytest.raises(KernelError, match="CUresult 719"):
        world.tables.place(bytes(4))
    world.driver.answer = 0
    assert world.tables.place(bytes(4)).data_ptr() == first.data_ptr() + 16


def test_a_block_that_cannot_be_had_leaves_the_old_one(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, empty = world.tables.place(bytes(4)), torch.empty

    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    world.tables._used = peer_tables.BLOCK
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(MemoryError):
        world.tables.place(bytes(4))
    monkeypatch.setattr(torch, "empty", empty)
    assert cast("Any", world.tables.place(bytes(4)))._base is not first._base


def test_a_table_is_copied_with_the_rank_s_device_current(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[int]()

    def use(place: int) -> Any:
        used.append(place)
        return nullcontext()

    monkeypatch.setattr(peer_tables, "use_device", use)
    world.tables.place(bytes(4))
    driver = SimpleNamespace(cuMemcpyHtoDAsync_v2=Copy(world.driver))
    for name, place in (("cuda:1", 1), ("cuda", 0)):
        other = PeerTables(driver, torch.device(name), world.stream, ())
        other._used = 0  # no block is asked of a device that is not there
        other.place(bytes(0))
        assert used[-1] == place
    assert used[0] == -1
