"""Page-locked host memory and copies to it, as a script in the driver's place is asked for them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from kvproto.io.kernels import host_buffer, host_copies
from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.transports.base import MemoryRegion
from kvproto.io.transports.host_memory import Twin, share, twin

NBYTES, PLACE = 4096, 3


class Driver:
    """Records what it is asked for; every answer is a code of its own."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def cudaHostRegister(self, *about: int) -> int:  # noqa: N802  # CUDA's name
        self.told.append(("lock", *about))
        return 7

    def cudaHostUnregister(self, *about: int) -> int:  # noqa: N802  # CUDA's name
        self.told.append(("unlock", *about))
        return 0

    @contextmanager
    def on(self, place: int) -> Iterator[None]:
        self.told.append(("on", place))
        yield
        self.told.append(("off", place))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: made.told.append(("checked", code)))
    monkeypatch.setattr(host_buffer, "current_device", lambda: PLACE)
    monkeypatch.setattr(host_buffer, "use_device", made.on)
    return made


def region_of(buffer: HostBuffer) -> MemoryRegion:
    return MemoryRegion(0, buffer.bytes.data_ptr(), NBYTES, "DRAM", 0)


def test_a_buffer_is_locked_for_the_device_of_its_maker_and_unlocked_there(driver: Driver) -> None:
    buffer = HostBuffer(NBYTES, page_locked=True)
    where = buffer.bytes.data_ptr()
    assert driver.told == [("lock", where, NBYTES, 0), ("checked", 7)]
    del driver.told[:], buffer
    assert driver.told == [("on", PLACE), ("unlock", where), ("off", PLACE)]


def test_a_buffer_that_is_not_locked_is_shared_memory_and_the_driver_is_not_asked(driver: Driver) -> None:
    buffer = HostBuffer(NBYTES, page_locked=False)
    assert buffer.bytes.dtype == torch.uint8 and buffer.bytes.shape == (NBYTES,) and not buffer.bytes.any()
    assert share(region_of(buffer)) and twin(region_of(buffer)) is None
    assert not buffer._locked
    del buffer
    assert not driver.told


def test_a_buffer_knows_its_bytes_on_the_device(driver: Driver) -> None:
    device = cast("Any", SimpleNamespace(get_device=lambda: PLACE, data_ptr=lambda: 1 << 40))
    buffer = HostBuffer(NBYTES, page_locked=False, twin=device)
    assert twin(region_of(buffer)) == Twin(PLACE, 1 << 40)
    assert not driver.told


class Bytes:
    """A tensor on a device of this number, or on the host (-1)."""

    def __init__(self, place: int, addr: int, copied: list[object]) -> None:
        self.place, self.addr, self.copied = place, addr, copied

    def get_device(self) -> int:
        return self.place

    def data_ptr(self) -> int:
        return self.addr

    def __getitem__(self, at: slice) -> Bytes:
        return Bytes(self.place, self.addr + at.start, [*self.copied, at.stop])

    def copy_(self, source: Bytes, *, non_blocking: bool) -> None:
        Bytes.torch_copies.append((self.addr, source.addr, self.copied, source.copied, non_blocking))

    torch_copies: list[object]


@pytest.mark.parametrize(("to", "source"), [(PLACE, -1), (-1, PLACE)])
@pytest.mark.parametrize(
    ("current", "code", "quick"),
    [(PLACE, 0, True), (PLACE, 1, False), (PLACE - 1, 0, False), (PLACE, None, False)],
    ids=["the driver's", "refused", "another device is current", "no driver"],
)
def test_a_copy_is_the_driver_s_own_where_its_device_is_current(
    monkeypatch: pytest.MonkeyPatch, to: int, source: int, current: int, code: int | None, quick: bool
) -> None:
    asked, streams, stream = list[tuple[int, ...]](), list[object](), SimpleNamespace(cuda_stream=99)

    def call(*about: int) -> int:
        asked.append(about)
        assert code is not None
        return code

    @contextmanager
    def current_stream(made: object) -> Iterator[None]:
        streams.append(made)
        yield

    Bytes.torch_copies = []
    monkeypatch.setattr(host_copies, "_driver", lambda: None if code is None else call)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "stream", current_stream)
    host_copies.copy_bytes(cast("Any", Bytes(to, 1000, [])), cast("Any", Bytes(source, 5000, [])), 16, 80, stream)
    assert asked == [(1016, 5016, 64, 99)] * (code is not None and current == PLACE)
    assert (Bytes.torch_copies, streams) == (([], []) if quick else ([(1016, 5016, [80], [80], True)], [stream]))


def test_the_driver_s_copy_takes_addresses_of_64_bits_or_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = SimpleNamespace()
    libraries = [lambda name: SimpleNamespace(cuMemcpyAsync=symbol, name=name), lambda _: SimpleNamespace(), open]
    found = list[object]()
    for library in libraries:  # the last one is not there: `open` of that name raises OSError
        monkeypatch.setattr(ctypes, "CDLL", library)
        host_copies._driver.cache_clear()
        found.append(host_copies._driver())
    host_copies._driver.cache_clear()
    assert found == [symbol, None, None]
    assert [np.dtype(each).itemsize for each in symbol.argtypes[:3]] == [8, 8, 8]
    assert symbol.argtypes[3] is ctypes.c_void_p and symbol.restype is ctypes.c_int
