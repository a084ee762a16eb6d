"""Constructors that fail leave nothing behind, and a transport serves one endpoint."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from support.nixl_library import Library
from support.stories import layout
from support.stubborn_transport import StubbornTransport

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Pool
from kvproto.io.transports import host_memory, nixl
from kvproto.io.transports.base import MemoryRegion, TransportError, UsageError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.states import Cause
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

CHUNK_TOKENS, PAGES = 8, 64
SMALL = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)
SIDES = (DecodeEndpoint, PrefillEndpoint)


def sharing(good: Pool) -> Pool:
    """A pool with two planes that share bytes: no endpoint takes it, which shows once the ring is made."""
    return Pool(good.k, [good.k[0], *good.v[1:]], good.order)


class FailsOnceThenServes(Pair):
    """A pair whose decode endpoint is made on a transport that has seen a constructor fail."""

    def make_decode(self, index: int) -> DecodeEndpoint:
        transport, good = self.transport(), noise(self.plan.decode, index, self.pages, 2)
        assert isinstance(transport, MemoryTransport)
        with pytest.raises(ArgumentError, match="share bytes"):
            DecodeEndpoint(self.plan.decode, index, sharing(good), transport, chunk_tokens=self.plan.chunk_tokens)
        assert transport._table.regions() == ()
        self.elsewhere = torch.zeros(self.settings.ring_bytes, dtype=torch.uint8)
        return DecodeEndpoint(
            self.plan.decode, index, good, transport, chunk_tokens=self.plan.chunk_tokens, settings=self.settings
        )


def test_after_a_constructor_that_failed_the_next_endpoint_on_that_transport_gets_the_right_bytes() -> None:
    with FailsOnceThenServes(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=SMALL) as pair:
        assert [each.index for each in inside(pair.decodes[0]).data.memory.regions][:2] == [0, 1]
        room = pair.open(40)
        pair.finish(room)
        assert pair.causes(room) == {Cause.NONE}
        pair.check(room)
        assert not pair.elsewhere.any()


@pytest.mark.parametrize("side", SIDES)
def test_a_second_endpoint_on_a_transport_is_refused_and_the_first_keeps_its_memory(side: Any) -> None:
    transport = MemoryTransport(Fabric(auto=True))
    first = side(layout(1), 0, noise(layout(1), 0, PAGES, 1), transport, chunk_tokens=CHUNK_TOKENS, settings=SMALL)
    before = transport._table.regions()
    with pytest.raises(ArgumentError, match="make a transport for each endpoint"):
        side(layout(1), 0, noise(layout(1), 0, PAGES, 2), transport, chunk_tokens=CHUNK_TOKENS, settings=SMALL)
    assert transport._table.regions() == before
    first.close()


@pytest.mark.parametrize("side", SIDES)
def test_whatever_call_of_the_transport_fails_a_constructor_takes_all_memory_back(side: Any) -> None:
    pool, refused = noise(layout(1), 0, PAGES, 1), 0
    for number in range(1, 20):
        transport = StubbornTransport(Fabric(auto=True))
        transport.refuses = number
        try:
            made = side(layout(1), 0, pool, transport, chunk_tokens=CHUNK_TOKENS, settings=SMALL)
        except UsageError:
            refused += 1
            assert transport._table.regions() == () and not transport.fabric._memory[transport.instance]
            continue
        made.close()
        break
    assert refused == 1 + len(pool.k) + len(pool.v) + 1


def test_what_cannot_be_undone_is_said_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TransportError("it stays")

    transport = MemoryTransport(Fabric(auto=True))
    monkeypatch.setattr(transport, "deregister", refuse)
    with pytest.raises(ArgumentError, match="make a transport for each endpoint") as found:
        PrefillEndpoint(
            layout(1), 0, noise(layout(1), 0, PAGES, 1), Offset(transport), chunk_tokens=CHUNK_TOKENS, settings=SMALL
        )
    assert "region 7: TransportError: it stays" in found.value.__notes__[0]


class Offset:
    """A transport whose regions have other numbers than peers would count on."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def register(self, *args: Any) -> MemoryRegion:
        made = self._transport.register(*args)
        return MemoryRegion(7, made.addr, made.nbytes, made.kind, made.dev)


def test_an_index_that_no_peer_was_told_of_is_free_again_and_one_that_was_told_is_not() -> None:
    transport, bytes_ = MemoryTransport(Fabric()), ctypes.create_string_buffer(64)
    address = ctypes.addressof(bytes_)
    transport.deregister(transport.register(address, 64))
    region = transport.register(address, 64)
    assert region.index == 0
    transport.endpoint()
    transport.deregister(region)
    assert transport.register(address, 64).index == 1


@pytest.mark.parametrize("call", ["register_memory", "share"])
def test_a_registration_with_nixl_that_fails_half_way_is_undone(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(nixl, "load", lambda: (library.api, library.bindings))
    transport, bytes_ = nixl.NixlTransport("c", maps=True), ctypes.create_string_buffer(4096)

    def refuse(*_: object) -> None:
        raise library.errors["nixlBackendError"]("no more handles")

    if call == "share":
        monkeypatch.setattr(host_memory, "share", refuse)
    else:
        monkeypatch.setattr(library.agents["c"], call, refuse)
    with pytest.raises(UsageError, match="no more handles"):
        transport.register(ctypes.addressof(bytes_), 4096)
    assert [len(agent.regions) for agent in library.agents.values()] == [0]
    assert transport._table.regions() == () and not transport._regs
    monkeypatch.undo()
    transport.deregister(transport.register(ctypes.addressof(bytes_), 4096))
    assert [len(agent.regions) for agent in library.agents.values()] == [0]


def test_a_nixl_transport_lets_go_of_all_memory_whatever_its_end_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(nixl, "load", lambda: (library.api, library.bindings))
    one, other = nixl.NixlTransport("a", maps=False), nixl.NixlTransport("b", maps=False)
    buffers = [ctypes.create_string_buffer(4096) for _ in range(2)]
    for transport, bytes_ in zip((one, other), buffers, strict=True):
        transport.register(ctypes.addressof(bytes_), 4096)
    one.connect(other.endpoint())
    library.refuses["remove_remote_agent"] = "nixlNotFoundError"
    with pytest.raises(TransportError, match="forgetting b: nixlNotFoundError: planted"):
        one.close(0.0)
    assert one.closed and library.agents["a"].regions == []
    one.close()
