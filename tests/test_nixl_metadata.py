"""Peers' descriptions for a transport: damaged, foreign or made up ones never reach the library."""

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
from kvproto.io.transports.endpoint import InstanceDescription, RegionEntry, decode, encode
from kvproto.io.transports.mooncake import _address
from kvproto.io.transports.nixl_metadata import MAX_ADDRESS, MAX_SECTIONS, check, read, readable
from kvproto.io.transports.ucx_address import FormError, checksum
from kvproto.lab.torture.nixl_samples import KEY, connection, field, metadata
from kvproto.lab.torture.nixl_samples import transport as sample

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
    said = read(told.blob, 4)
    assert transport.checks_metadata and said.agent == transport.instance
    assert sorted(said.regions) == [("DRAM", memory.data_ptr(), 4096, 0), ("DRAM", memory.data_ptr() + 5000, 3, 0)]
    assert {checksum(b"self"), checksum(b"tcp")} < {entry.name for entry in said.addresses[0].entries}
    with pytest.raises(FormError, match="own worker"):  # all else of it is as it has to be
        check(told.blob, told.instance, told.regions, told.blob)
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
        said = read(bytes(whole), 4)
    except FormError:
        return
    assert len(said.agent) <= 128 and len(said.regions) == len(said.keys) <= 4 and readable(bytes(whole))


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
    assert read(whole, 1)[::2] == ("me", (("DRAM", 4096, 64, 0),))
    for end in range(len(whole)):
        with pytest.raises(FormError):
            read(whole[:end], 1)


@pytest.mark.parametrize(
    "before",
    [
        field(b"Agent", b"me"), field(b"Conns", NUMBER(1)), field(b"t", b"UCX"), field(b"c", connection()),
        field(b"", b"MemSection"), field(b"nixlSecElms", NUMBER(1)), field(b"bknd", b"UCX"),
        field(b"nixlDList", b"nixlSDList"), field(b"t", bytes(4)), field(b"n", NUMBER(1)),
    ],
    ids=["Agent", "Conns", "t", "c", "", "nixlSecElms", "bknd", "nixlDList", "t of a section", "n"],
)  # fmt: skip
def test_a_field_of_another_name_is_none(before: bytes) -> None:
    whole = metadata()
    assert whole.count(before) == 1
    for after in (before.replace(b"|", b"/"), bytes([before[0] ^ 1]) + before[1:], b"x" + before):
        with pytest.raises(FormError):
            read(whole.replace(before, after), 1)


@pytest.mark.parametrize("word", [b"MemSection", b"nixlSDList"])
def test_a_section_is_of_memory_and_a_list(word: bytes) -> None:
    with pytest.raises(FormError, match=f"in the place of {word.decode()}"):
        read(metadata().replace(word, word[:-1] + b"?"), 1)


def test_lengths_and_numbers_are_bounded() -> None:
    with pytest.raises(FormError, match="begins with 00"):
        read(metadata(address=bytes(MAX_ADDRESS)), 1)
    with pytest.raises(FormError, match=f"{MAX_ADDRESS + 1} bytes"):
        read(metadata(address=bytes(MAX_ADDRESS + 1)), 1)
    assert readable(metadata(b"a" * 128)) and not readable(metadata(b"a" * 129))
    begin, distance = struct.pack("<QQQ", 4096, 64, 0), bytes(3)
    row = field(b"", begin + KEY)
    most = 4096 - len(begin + KEY)
    long = KEY[:-1] + b"\x01" + distance * (most // 3)
    assert len(begin + long + distance) == 4097, "a byte more than a region may have"
    for key, fits in ((b"", False), (long, True), (long + distance, False), (KEY + bytes(4096), False)):
        assert readable(metadata().replace(row, field(b"", begin + key))) is fits
    assert not readable(metadata().replace(row, field(b"", begin[:-1])))
    kind = field(b"t", bytes(4))
    assert not any(readable(metadata().replace(kind, field(b"t", bytes(count)))) for count in (3, 5))
    for name in (b"Conns", b"nixlSecElms", b"n"):
        one = field(name, NUMBER(1))
        for other in (NUMBER(1)[:7], NUMBER(1) + b"\\0", NUMBER(2), NUMBER(0)):
            assert not readable(metadata().replace(one, field(name, other)))


def test_keys_and_addresses_of_a_transport_that_both_have_are_of_the_same_sizes() -> None:
    regions, own = [RegionEntry(0, 4096, 64, "DRAM", 0)], metadata(b"own")
    begin, short = struct.pack("<QQQ", 4096, 64, 0), b"\x8e"
    check(metadata(), "me", regions, own)
    longer = struct.pack("<QBB", 1, 0, 1) + b"?" + KEY[-1:]
    with pytest.raises(FormError, match="its regions have keys that ours have not"):
        check(metadata().replace(field(b"", begin + KEY), field(b"", begin + longer)), "me", regions, own)
    tcp = sample(b"tcp", b"\x8e\x79")
    both = connection().replace(tcp, sample(b"tcp", b"\x8e\x79", 0) + sample(b"tcp", short))
    with pytest.raises(FormError, match="has addresses of 6\\+1 bytes"):
        check(metadata(address=both), "me", regions, own)


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
    two = metadata(rows=((4096, 64, 0),), devices=((8192, 1, 3),))
    assert read(two, 1).regions == (("DRAM", 4096, 64, 0), ("VRAM", 8192, 1, 3))
    assert not readable(two.replace(field(b"t", NUMBER(1)[:4]), field(b"t", NUMBER(2)[:4])))
    with pytest.raises(FormError, match="up to 1"):
        read(metadata(rows=((4096, 64, 0), (8192, 1, 3))), 1)
