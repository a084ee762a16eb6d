"""What peers say of themselves to a transport: damaged, foreign or made up, it never gets as far as the library."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.io.transports.base import BackendUnavailable, BadEndpoint
from kvproto.io.transports.endpoint import InstanceDescription, decode, encode
from kvproto.io.transports.mooncake import _address
from kvproto.io.transports.nixl_metadata import FormError, check, read, readable

#: a NIXL agent of 1.5.1 with one region, its worker address shortened
CONNECTION = bytes(range(40))


def field(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<Q", len(data)) + data + b"|"


def metadata(agent: bytes = b"me", rows: tuple[tuple[int, int, int], ...] = ((4096, 64, 0),)) -> bytes:
    """In NIXL's form."""
    number = struct.Struct("<Q").pack
    said = b"nixlSerDes|" + field(b"Agent", agent) + field(b"Conns", number(1)) + field(b"t", b"UCX")
    said += field(b"c", CONNECTION) + field(b"", b"MemSection") + field(b"nixlSecElms", number(1))
    said += field(b"bknd", b"UCX") + field(b"nixlDList", b"nixlSDList") + field(b"t", bytes(4))
    said += field(b"n", number(len(rows)))
    return said + b"".join(field(b"", struct.pack("<QQQ", *row) + bytes(11)) for row in rows)


@pytest.fixture(scope="module")
def transport() -> Iterator[Any]:
    from kvproto.io.transports.nixl import NixlTransport

    try:
        made = NixlTransport()
    except BackendUnavailable:
        pytest.skip("nixl is not installed here")
    yield made
    made.close()


def test_this_release_of_nixl_writes_what_is_read_here(transport: Any) -> None:
    memory = torch.zeros(8192, dtype=torch.uint8)
    regions = [transport.register(memory.data_ptr() + at, size) for at, size in ((0, 4096), (5000, 3))]
    told = decode(transport.endpoint(), "nixl")
    agent, rows = read(told.blob, 4)
    assert transport._form and agent == transport.instance
    assert sorted(rows) == [(memory.data_ptr(), 4096, 0), (memory.data_ptr() + 5000, 3, 0)]
    check(told.blob, told.instance, told.regions)
    for region in regions:
        transport.deregister(region)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"blob": b"nixlSerDes|"}, "no field"), ({"blob": b"something else"}, "begin"),
        ({"blob": metadata(b"somebody")}, "agent 'somebody'"), ({"blob": metadata(b"\xff")}, "no text"),
        ({"blob": metadata() + b"|"}, "follow its end"), ({"blob": metadata()[:-1]}, "does not end there"),
        ({"blob": metadata(rows=((8192, 64, 0),))}, "not those"), ({"blob": metadata(rows=())}, "not those"),
        ({"blob": metadata(rows=((4096, 64, 0),) * 2)}, "no number up to 1"),
    ],
)  # fmt: skip
def test_what_is_not_nixl_s_form_never_reaches_nixl(
    transport: Any, monkeypatch: pytest.MonkeyPatch, changed: dict[str, bytes], why: str
) -> None:  # fmt: skip
    def loaded(*_: object) -> None:
        raise AssertionError("the library has seen it")

    monkeypatch.setattr(transport._agent, "add_remote_agent", loaded)
    region = {"index": 0, "addr": 4096, "nbytes": 64, "kind": "DRAM", "dev": 0}
    whole = {"backend": "nixl", "version": 2, "instance": "me", "serial": 1, "blob": metadata()}
    told = msgspec.convert({**whole, "regions": [tuple(region.values())], **changed}, InstanceDescription)
    with pytest.raises(BadEndpoint, match=why):
        transport.connect(encode(told))


@given(data=st.data())
@settings(max_examples=1000, deadline=None)
def test_no_metadata_is_more_than_no_metadata(data: st.DataObject) -> None:
    whole = bytearray(metadata(rows=((4096, 64, 0), (1 << 40, 1, 7))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    try:
        agent, rows = read(bytes(whole), 4)
    except FormError:
        return
    assert len(agent) <= 128 and len(rows) <= 4 and readable(bytes(whole))


@given(at=st.integers(0, 2000), bit=st.integers(0, 7))
def test_a_flipped_bit_of_an_endpoint_is_seen(at: int, bit: int) -> None:
    whole = bytearray(encode(InstanceDescription("nixl", 2, "me", 1, (), metadata())))
    whole[at % len(whole)] ^= 1 << bit
    with pytest.raises(BadEndpoint):
        decode(bytes(whole), "nixl")


@given(junk=st.binary(max_size=600))
def test_bytes_are_an_endpoint_or_refused(junk: bytes) -> None:
    with pytest.raises(BadEndpoint):
        decode(junk, "nixl")


@pytest.mark.parametrize("blob", [b"", b"host", b"host:", b"a b:1", b"host:99x", b"\xff:1", b"h/x:1", b"x" * 300])
def test_what_is_no_host_and_port_never_reaches_mooncake(blob: bytes) -> None:
    with pytest.raises(BadEndpoint, match="no address"):
        _address(InstanceDescription("mooncake", 2, "me", 1, (), blob))
    assert _address(InstanceDescription("mooncake", 2, "me", 1, (), b"[::1]:15002")) == "[::1]:15002"
