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
from support.nixl_library import CONNECTION, field, metadata

from kvproto.io.transports.base import BackendUnavailable, BadEndpoint
from kvproto.io.transports.endpoint import InstanceDescription, decode, encode
from kvproto.io.transports.mooncake import _address
from kvproto.io.transports.nixl_metadata import MAX_ADDRESS, MAX_SECTIONS, FormError, check, read, readable

NUMBER = struct.Struct("<Q").pack


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


def test_a_part_of_it_is_none() -> None:
    whole = metadata()
    assert read(whole, 1) == ("me", [(4096, 64, 0)])
    for end in range(len(whole)):
        with pytest.raises(FormError):
            read(whole[:end], 1)


@pytest.mark.parametrize(
    "before",
    [
        field(b"Agent", b"me"), field(b"Conns", NUMBER(1)), field(b"t", b"UCX"), field(b"c", CONNECTION),
        field(b"", b"MemSection"), field(b"nixlSecElms", NUMBER(1)), field(b"bknd", b"UCX"),
        field(b"nixlDList", b"nixlSDList"), field(b"t", bytes(4)), field(b"n", NUMBER(1)),
    ],
    ids=repr,
)  # fmt: skip
def test_a_field_of_another_name_is_none(before: bytes) -> None:
    whole = metadata()
    assert whole.count(before) == 1
    for after in (before.replace(b"|", b"/"), bytes([before[0] ^ 1]) + before[1:], b"x" + before):
        with pytest.raises(FormError):
            read(whole.replace(before, after), 1)


@pytest.mark.parametrize("word", [b"MemSection", b"nixlSDList"])
def test_a_section_is_of_memory_and_a_list(word: bytes) -> None:
    with pytest.raises(FormError, match=r"no memory section|no list"):
        read(metadata().replace(word, word[:-1] + b"?"), 1)


def test_lengths_and_numbers_are_bounded() -> None:
    long = field(b"c", bytes(MAX_ADDRESS))
    assert readable(metadata().replace(field(b"c", CONNECTION), long))
    assert not readable(metadata().replace(field(b"c", CONNECTION), field(b"c", bytes(MAX_ADDRESS + 1))))
    assert readable(metadata(b"a" * 128)) and not readable(metadata(b"a" * 129))
    row = field(b"", struct.pack("<QQQ", 4096, 64, 0) + bytes(11))
    for size, fits in ((23, False), (24, True), (4096, True), (4097, False)):
        assert readable(metadata().replace(row, field(b"", bytes(size)))) is fits
    kind = field(b"t", bytes(4))
    assert not readable(metadata().replace(kind, field(b"t", bytes(5))))
    for name in (b"Conns", b"nixlSecElms", b"n"):
        one = field(name, NUMBER(1))
        for other in (NUMBER(1)[:7], NUMBER(1) + b"\\0", NUMBER(2), NUMBER(0)):
            assert not readable(metadata().replace(one, field(name, other)))


def test_there_may_be_as_many_sections_as_are_counted_up_to_a_bound() -> None:
    whole = metadata()
    for name, first, last in (
        (b"Conns", field(b"t", b"UCX"), field(b"", b"MemSection")), (b"nixlSecElms", field(b"bknd", b"UCX"), b""),
    ):  # fmt: skip
        begin = whole.index(first)
        end = whole.index(last, begin) if last else len(whole)
        section = whole[begin:end]
        for count in (0, 2, MAX_SECTIONS, MAX_SECTIONS + 1):
            counted = whole[:begin].replace(field(name, NUMBER(1)), field(name, NUMBER(count)))
            made = counted + section * count + whole[end:]
            assert readable(made) is (count <= MAX_SECTIONS), (name, count)
            assert not readable(counted + section * (count + 1) + whole[end:])
    assert len(read(metadata(rows=((4096, 64, 0), (8192, 1, 3))), 2)[1]) == 2
    with pytest.raises(FormError, match="up to 1"):
        read(metadata(rows=((4096, 64, 0), (8192, 1, 3))), 1)
