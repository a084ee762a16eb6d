"""UCX's addresses and keys: each part that UCX reads is parsed first, and refused if UCX would crash."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproto.cli import main
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.nixl_metadata import check
from kvproto.io.transports.ucx_address import (
    ATTRIBUTES,
    HEADER,
    MAX_ENTRIES,
    FormError,
    WorkerAddress,
    check_address,
    checksum,
    read_address,
    read_key,
)
from kvproto.lab.torture import fuzz_nixl as in_children
from kvproto.lab.torture.fuzz_nixl import NAME, fuzz_nixl, ucx_parts
from kvproto.lab.torture.nixl_samples import ADDRESS_END, HOST, KEY, connection, metadata, transport

NEEDS_NIXL = pytest.mark.skipif(importlib.util.find_spec("nixl") is None, reason="nixl is not installed")
#: where the first transport's attributes and the length of its address are in a sample
ATTRIBUTES_AT = len(HEADER) + 8 + 2 + 2
LENGTH_AT = ATTRIBUTES_AT + ATTRIBUTES.size


def test_names_have_ucx_s_checksums() -> None:
    # as a worker address of UCX 1.23 has them
    assert checksum(b"self") == 0x7563 and checksum(b"tcp") == 0x19CF and checksum(b"cma") == 0x8B47
    assert checksum(b"sysv") == 0x538D and checksum(b"posix") == 0xD3A7


def test_an_address_is_read_to_its_last_byte() -> None:
    said = read_address(connection())
    assert [entry.domain for entry in said.entries] == [0, 1, 2, 3, 4]
    assert [len(entry.interface) for entry in said.entries] == [8, 2, 8, 8, 4]
    for end in range(len(connection())):
        with pytest.raises(FormError, match="in the middle"):
            read_address(connection()[:end])
    with pytest.raises(FormError, match="1 bytes follow"):
        read_address(connection() + b"\0")


@pytest.mark.parametrize("header", [0x2F, 0x21, 0x00, 0x22, 0xA0])
def test_an_address_of_another_version_or_with_other_flags_is_refused(header: int) -> None:
    with pytest.raises(FormError, match=f"begins with {header:02x}"):
        read_address(bytes([header]) + connection()[1:])


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e20])
def test_attributes_are_finite_numbers(place: int, number: float) -> None:
    data = bytearray(connection())
    struct.pack_into("<f", data, ATTRIBUTES_AT + place, number)
    with pytest.raises(FormError, match="bandwidth"):
        read_address(bytes(data))


def test_counts_and_lengths_are_bounded() -> None:
    head, one, last = connection()[:9], transport(b"x", b"", last=0), transport(b"x", b"")
    for count, fits in ((MAX_ENTRIES, True), (MAX_ENTRIES + 1, False)):
        data = head + b"\0\0" + one * (count - 1) + last + ADDRESS_END
        if fits:
            assert len(read_address(data).entries) == count
        else:
            with pytest.raises(FormError, match=f"more than {MAX_ENTRIES}"):
                read_address(data)
    for domain, fits in ((63, True), (64, False)):
        data = head + bytes([domain, 0]) + last + ADDRESS_END
        if fits:
            assert read_address(data).entries[0].domain == domain
        else:
            with pytest.raises(FormError, match="memory domain 64"):
                read_address(data)
    endpoint = bytearray(connection())
    endpoint[LENGTH_AT] |= 0x40
    with pytest.raises(FormError, match="address of an endpoint"):
        read_address(bytes(endpoint))
    for end in (b"\x87\x00", b"\x07\x80", b"\x87\x81"):
        with pytest.raises(FormError, match="where its end should be"):
            read_address(connection()[:-2] + end)


@given(data=st.binary(max_size=300))
def test_bytes_are_an_address_or_refused(data: bytes) -> None:
    for whole in (data, connection()[:9] + data):
        try:
            assert len(read_address(whole).entries) <= MAX_ENTRIES
        except FormError:
            continue


def swapped(before: bytes, after: bytes) -> bytes:
    whole = connection(b"peer")
    assert whole.count(before) == 1
    return whole.replace(before, after)


def test_what_concerns_our_transports_has_our_sizes() -> None:
    own = read_address(connection(b"own"))
    check_address(read_address(connection(b"peer")), own)
    tcp, v6 = b"\x06\x00\x02\xc0\x00\x02\x02", b"\x12\x00\x0a" + bytes(16)
    loopback, unknown = b"\x0e\x01\x02" + bytes(12), transport(b"another", bytes(40))
    for device in (tcp, v6, loopback):
        check_address(read_address(swapped(tcp, device)), own)
    check_address(read_address(swapped(transport(b"cma", bytes(4)), unknown)), own)
    port = transport(b"tcp", b"\x8e\x79")
    for before, after in [
        (tcp, b"\x05" + tcp[1:-1]), (tcp, b"\x06\x02" + tcp[2:]), (tcp, b"\x06\x00\x03" + tcp[3:]),
        (tcp, b"\x01\x00"), (port, transport(b"tcp", b"\x8e")),
    ]:  # fmt: skip
        with pytest.raises(FormError, match=r"transport 19cf has addresses of \d+\+\d bytes"):
            check_address(read_address(swapped(before, after)), own)
    short = read_address(swapped(transport(b"self", own_id(b"peer")), transport(b"self", bytes(7))))
    with pytest.raises(FormError, match="transport 7563 has addresses of 0"):
        check_address(short, own)


def own_id(agent: bytes) -> bytes:
    return connection(agent)[1:9]


def test_an_address_that_is_our_own_is_refused() -> None:
    own = read_address(connection(b"own"))
    with pytest.raises(FormError, match="own worker"):
        check_address(own, own)
    mine = transport(b"self", own_id(b"own"))
    with pytest.raises(FormError, match="own loopback"):
        check_address(read_address(swapped(transport(b"self", own_id(b"peer")), mine)), own)


def test_shared_memory_of_this_host_is_as_large_as_ours(tmp_path: Path) -> None:
    """UCX maps the size of its own segment, and reads it: a smaller one ends the process."""

    def named(size: int) -> bytes:
        where = tmp_path / str(size)
        where.write_bytes(bytes(size))
        file = os.open(where, os.O_RDONLY)
        opened.append(file)
        return struct.pack("<Q", os.getpid() | file << 30 | 0b1100 << 60)

    def address(agent: bytes, segment: bytes) -> WorkerAddress:
        before = transport(b"posix", bytes(7) + b"\xc0")
        return read_address(connection(agent).replace(before, transport(b"posix", segment)))

    opened = list[int]()
    try:
        own = address(b"own", named(4096))
        check_address(address(b"peer", named(4097)), own)
        with pytest.raises(FormError, match="4095 bytes instead of 4096"):
            check_address(address(b"peer", named(4095)), own)
        with pytest.raises(FormError, match="named in another way"):
            check_address(address(b"peer", bytes(8)), own)
        elsewhere = connection(b"peer").replace(HOST, b"farther!")
        check_address(read_address(elsewhere), own)
    finally:
        for file in opened:
            os.close(file)


def test_keys_are_read_to_their_last_byte() -> None:
    two = struct.pack("<QB", 0b101, 1) + b"\x02ab" + b"\x00" + b"\x03"
    assert read_key(KEY) == {0: 0} and read_key(two) == {0: 2, 2: 0}
    assert read_key(two + b"\x01\x02\x03" * 2 + b"\xff") == {0: 2, 2: 0}
    for data in (two, KEY):
        for end in range(len(data)):
            with pytest.raises(FormError, match="in the middle"):
                read_key(data[:end])
    with pytest.raises(FormError, match="1 bytes follow"):
        read_key(KEY + b"\xff\x00")
    with pytest.raises(FormError, match="memory type 240"):
        read_key(KEY[:8] + b"\xf0" + KEY[9:])


@pytest.mark.parametrize(
    ("domain", "key"), [(0, b"\x01k"), (3, b"\x00"), (3, b"\x18" + bytes(24)), (2, b"\x0c" + bytes(12))]
)
def test_a_key_that_ours_have_not_is_refused(domain: int, key: bytes) -> None:
    """A key of shared memory makes UCX map what it names."""
    made = struct.pack("<QB", 1 << domain, 0) + key + b"\xff"
    assert read_key(made) == {domain: key[0]}
    said, own, table = metadata(b"peer"), metadata(b"own"), [RegionEntry(0, 4096, 64, "DRAM", 0)]
    check(said, "peer", table, own)
    with pytest.raises(FormError, match="keys that ours have not"):
        check(ucx_parts(said)["key"].replaced(said, made), "peer", table, own)


CORPUS = json.loads((Path(__file__).parent / "support" / "nixl_crashes.json").read_text())


@NEEDS_NIXL
def test_what_has_ended_a_process_is_refused_by_a_live_transport() -> None:
    """Each of these ended the process that connected; here one process meets all of them."""
    told = _child("True", *CORPUS)
    assert told.returncode == 0, told.stderr[-2000:]
    assert told.stdout.split() == ["refused"] * len(CORPUS)


@NEEDS_NIXL
def test_without_the_check_it_does_end_the_process() -> None:
    assert _child("False", "version of an address").returncode < 0


def _child(*args: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).parent / "support" / "nixl_crashes.py"
    command = [sys.executable, str(program), *args]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


@NEEDS_NIXL
def test_the_command_gives_damaged_metadata_to_a_live_transport(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--nixl", "--inputs", "60"]) == 0
    out = capsys.readouterr().out
    assert NAME in out and "60 inputs: no undocumented errors" in out


@NEEDS_NIXL
def test_a_process_that_dies_is_found_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    last = ["4", "FOUND input 4: ValueError", "5", "taken"]
    ends = iter([(-11, ["0", "refused", "1"]), (1, ["2", "taken", "3"]), (0, last)])
    monkeypatch.setattr(in_children, "_child", lambda *_: next(ends))
    result = fuzz_nixl(3, 6)
    assert (result.inputs, result.taken, result.documented, result.undocumented) == (6, 2, 1, 3)
    assert result.found == [
        "input 1 of seed 3: the process was ended by signal 11",
        "input 3 of seed 3: the process ended with status 1",
        "input 4: ValueError",
    ]
