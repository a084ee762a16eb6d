"""Staging memory: one buffer, or two and the copies between them, ordered by a fake device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kvproto.data import staging_buffers
from kvproto.data.device_streams import DeviceStreams
from kvproto.data.staging_buffers import PARTS, Kind, Parts, Staging
from kvproto.errors import ArgumentError
from kvproto.io.kernels import base
from kvproto.io.kernels.base import Events, Ticket
from kvproto.verify.testing.fake_device import FakeDevice, FakeEvent, FakeStream, SlowStreams

NBYTES, FIRST, LAST = 64, 8, 24
ON_HOST = DeviceStreams(torch.device("cpu"))


class Device(FakeDevice):
    """A fake device with a copy engine; it records host buffers, and how often its copies were awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.own = SlowStreams(self, "P0")
        self.on_host: list[tuple[torch.Tensor, bool]] = []
        #: what is said to lie on the device too
        self.twin: torch.Tensor | None = None
        self.waited = 0

    def copies(self, _device: torch.device) -> FakeStream:
        stream = self.stream("copies")
        cast("Any", stream).synchronize = self.synchronize
        return stream

    def synchronize(self) -> None:
        self.waited += 1

    def empty(self, nbytes: int, *, dtype: torch.dtype, device: torch.device = ON_HOST.device) -> torch.Tensor:
        assert device in (self.own.device, ON_HOST.device)
        return torch.zeros(nbytes, dtype=dtype)

    def host_buffer(self, nbytes: int, *, page_locked: bool, twin: torch.Tensor | None) -> Any:
        self.on_host.append((torch.zeros(nbytes, dtype=torch.uint8), page_locked))
        self.twin = twin
        return SimpleNamespace(bytes=self.on_host[-1][0])

    def copy(self, to: torch.Tensor, source: torch.Tensor, first: int, last: int, stream: FakeStream) -> None:
        stream.put(("copy",), lambda: to[first:last].copy_(source[first:last]))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(staging_buffers, "new_stream", made.copies)
    monkeypatch.setattr(staging_buffers, "copy_bytes", made.copy)
    monkeypatch.setattr(staging_buffers, "torch", SimpleNamespace(empty=made.empty, uint8=torch.uint8))
    monkeypatch.setattr(staging_buffers, "HostBuffer", made.host_buffer)
    monkeypatch.setattr(base, "_new_event", FakeEvent)
    return made


def filled(staging: Staging, device: Device) -> Ticket:
    """A gather that is queued; its ticket."""
    device.own.stream.put(("gather",), lambda: staging.near[FIRST:LAST].fill_(7))
    return Events().ticket(device.own.stream)


@pytest.mark.parametrize("own", [True, False], ids=["with a ticket of the device", "with another ticket"])
def test_a_gather_is_over_when_its_copy_is_and_the_copy_waits_for_it(device: Device, own: bool) -> None:
    staging = Staging(NBYTES, device.own, "pinned")
    ((on_host, page_locked),) = device.on_host
    assert staging.twins and staging.wire is on_host and page_locked and staging.near is not staging.wire
    assert device.twin is staging.near
    ticket = filled(staging, device)
    sent = staging.sent_off(FIRST, LAST, ticket if own else SimpleNamespace(done=lambda: True))
    assert device.ready() == ["P0 data"] and not sent.done()
    device.run("P0 data")
    assert device.ready() == ["copies"] and not sent.done()
    device.run("copies")
    assert sent.done() and staging.wire.tolist() == [0] * FIRST + [7] * (LAST - FIRST) + [0] * (NBYTES - LAST)


def test_what_the_transport_takes_from_the_device_is_not_copied(device: Device) -> None:
    staging = Staging(NBYTES, device.own, "pinned")
    staging.lifted = True
    ticket = filled(staging, device)
    assert staging.sent_off(FIRST, LAST, ticket) is ticket
    device.run("P0 data")
    assert device.ready() == [] and not staging.wire.any()


def test_a_scatter_waits_for_the_copy_of_what_it_reads(device: Device) -> None:
    staging = Staging(NBYTES, device.own, "pinned")
    staging.wire.fill_(5)
    staging.bring(FIRST, LAST)
    device.own.stream.put(("scatter",), lambda: None)
    assert device.ready() == ["copies"]
    device.run("copies")
    assert device.ready() == ["P0 data"]
    assert staging.near.tolist() == [0] * FIRST + [5] * (LAST - FIRST) + [0] * (NBYTES - LAST)


def test_no_copy_outlives_its_memory(device: Device) -> None:
    staging = Staging(NBYTES, device.own, "pinned")
    staging.give_back()
    assert device.waited == 1
    del staging
    assert device.waited == 2


@pytest.mark.parametrize(("memory", "kind"), [("device", "device"), ("host", "device"), ("host", "pinned")])
def test_one_buffer_is_the_transport_s_and_the_kernels(device: Device, memory: str, kind: Kind) -> None:
    ticket = filled(Staging(1, device.own, "device"), device)
    staging = Staging(NBYTES, device.own if memory == "device" else ON_HOST, kind)
    assert staging.wire is staging.near and not staging.twins
    on_host = [(each is staging.wire, page_locked) for each, page_locked in device.on_host]
    assert on_host == [(True, False)] * (kind == "pinned") and device.twin is None
    assert staging.sent_off(FIRST, LAST, ticket) is ticket
    staging.bring(FIRST, LAST)
    assert device.ready() == ["P0 data"], "nothing is copied"


def test_there_are_two_kinds() -> None:
    with pytest.raises(ArgumentError, match="'device' or 'pinned', not 'host'"):
        Staging(NBYTES, ON_HOST, cast("Kind", "host"))


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 64])
@pytest.mark.parametrize(("kind", "place"), [("device", "cpu"), ("pinned", "this host")])
def test_memory_that_cannot_be_had_is_refused_with_the_remedy(nbytes: int, kind: Kind, place: str) -> None:
    with pytest.raises(ArgumentError, match=f"{nbytes} bytes of staging on {place} cannot be had: lower Settings.ring"):
        Staging(nbytes, ON_HOST, kind)


def test_parts_are_found_again_and_only_so_many_are_kept() -> None:
    whole = torch.arange(PARTS + 3)
    parts = Parts(whole)
    found = parts[2, 3]
    assert found.tolist() == [2, 3, 4] and parts[2, 3] is found
    for first in range(PARTS - 1):
        assert parts[first, 1].tolist() == [first]
    assert len(parts) == PARTS and parts[2, 3] is found
    assert parts[PARTS, 2].tolist() == [PARTS, PARTS + 1] and len(parts) == 1
