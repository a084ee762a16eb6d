"""UCX limits: its bounds by their numbers, hosts, shared memory and distances as UCX reads them."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvproto.io.transports import ucx_address
from kvproto.io.transports.ucx_address import (
    ATTRIBUTES,
    FormError,
    TransportEntry,
    WorkerAddress,
    check_address,
    checksum,
    read_address,
    read_key,
)
from kvproto.lab.torture.nixl_samples import ADDRESS_END, connection, transport

HEAD = connection()[:9]


def address(name: bytes, device: bytes, interface: bytes, worker: bytes = b"peer") -> WorkerAddress:
    return WorkerAddress(worker, (TransportEntry(checksum(name), 0, device, interface),))


def refused(peer: WorkerAddress, own: WorkerAddress) -> bool:
    try:
        check_address(peer, own)
    except FormError:
        return True
    return False


def test_as_many_entries_domains_and_kinds_of_memory_as_ucx_knows() -> None:
    def entries(count: int) -> bytes:
        return HEAD + b"\0\0" + transport(b"x", b"", last=0) * (count - 1) + transport(b"x", b"") + ADDRESS_END

    assert len(read_address(entries(128)).entries) == 128
    with pytest.raises(FormError, match="more than 128 transports"):
        read_address(entries(129))
    with pytest.raises(FormError, match="domain 64 of 64"):
        read_address(HEAD + b"\x40\0" + transport(b"x", b"") + ADDRESS_END)
    assert read_key(struct.pack("<QBB", 0, 8, 0xFF)) == {}
    with pytest.raises(FormError, match="memory type 9"):
        read_key(struct.pack("<QBB", 0, 9, 0xFF))


@pytest.mark.parametrize(
    ("numbers", "fits"),
    [
        ((0.0, 1e10, 0.0), True), ((999.0, 9e14, 999.0), True), ((0.0, 1e-3, 0.0), True), ((1001.0, 1e10, 0.0), False),
        ((0.0, 1e10, 1001.0), False), ((0.0, 1.1e15, 0.0), False), ((0.0, 0.0, 0.0), False),
        ((1000.0, 1e10, 0.0), False), ((0.0, 1e10, 1000.0), False),
    ],
)  # fmt: skip
def test_overhead_bandwidth_and_latency_are_those_of_a_transport(
    numbers: tuple[float, float, float], fits: bool
) -> None:
    whole = bytearray(HEAD + b"\0\0" + transport(b"x", b"") + ADDRESS_END)
    ATTRIBUTES.pack_into(whole, len(HEAD) + 4, *numbers, 0)
    if fits:
        assert len(read_address(bytes(whole)).entries) == 1
    else:
        with pytest.raises(FormError, match="has overhead"):
            read_address(bytes(whole))


@pytest.mark.parametrize(("flags", "more"), [(0, b""), (0x40, b"\x01"), (0x20, b"\x05"), (0x60, b"\x01\x05")])
def test_a_device_may_have_a_number_of_paths_and_a_system_device(flags: int, more: bytes) -> None:
    one = struct.pack("<H", 7) + ATTRIBUTES.pack(0, 1, 0, 0)
    data = HEAD + bytes([3, flags | 2]) + more + b"dv" + one + b"\x01x" + one + b"\x82yz" + b"\x87\x80"
    assert read_address(data).entries == (TransportEntry(7, 3, b"dv", b"x"), TransportEntry(7, 3, b"dv", b"yz"))


@pytest.mark.parametrize("name", [b"sysv", b"posix", b"cma", b"knem", b"xpmem"])
def test_another_host_has_its_identity_alone_or_with_a_namespace(name: bytes) -> None:
    own = address(name, b"our host", bytes(8), b"own")
    for count in range(20):
        assert refused(address(name, bytes(count), bytes(8)), own) == (count not in (8, 12))
        if count in (8, 12):
            assert not refused(address(name, bytes(count), bytes(3)), own), "UCX reads no further"


def test_an_entry_is_compared_with_all_of_ours_of_its_transport() -> None:
    devices = b"our host", b"its twin"
    own = WorkerAddress(b"own", tuple(TransportEntry(checksum(b"cma"), 0, device, bytes(4)) for device in devices))
    for device in devices:
        assert not refused(address(b"cma", device, b"1234"), own) and refused(address(b"cma", device, b"123"), own)
    assert not refused(address(b"cma", b"farther!", b"123"), own)
    loops = b"one", b"two"
    own = WorkerAddress(b"own", tuple(TransportEntry(checksum(b"self"), 0, b"", name) for name in loops))
    assert refused(address(b"self", b"", b"one"), own) and refused(address(b"self", b"", b"two"), own)
    assert not refused(address(b"self", b"", b"six"), own)


def test_an_address_of_no_host_has_our_sizes_whatever_it_names() -> None:
    own = address(b"self", b"", bytes(8), b"own")
    assert not refused(address(b"self", b"", b"8 others"), own)
    assert refused(address(b"self", bytes(8), b"8 others"), own) and refused(address(b"self", b"", b"others"), own)


def test_an_interface_that_is_no_segment_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    own, peer = (struct.pack("<Q", 1 << 63 | number) for number in (2, 1))
    sizes = {1 << 63 | 1: 1, 1 << 63 | 2: 2}
    monkeypatch.setattr(ucx_address, "_posix_size", sizes.get)
    assert refused(address(b"posix", b"our host", peer), address(b"posix", b"our host", own, b"own"))
    assert not refused(address(b"posix", b"farther!", peer), address(b"posix", b"our host", own, b"own"))
    for name in (b"cma", b"knem", b"xpmem"):
        assert not refused(address(name, b"our host", peer), address(name, b"our host", own, b"own"))


SHM = """       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid
         0          7  1660                  4096  1056  1056      1     0     0     0     0
        11          8  1660                  4095  1056  1056      1     0     0     0     0
"""


def test_a_segment_of_system_v_is_as_large_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    class Told:
        def __init__(self, path: str) -> None:
            asked.append(path)

        def read_text(self) -> str:
            return SHM

    def sysv(number: int, worker: bytes = b"peer") -> WorkerAddress:
        return address(b"sysv", b"our host", struct.pack("<Q", number), worker)

    monkeypatch.setattr(ucx_address, "Path", Told)
    for number in (7, 8):
        check_address(sysv(7 | 0xF5 << 56), sysv(number, b"own"))  # UCX passes the lower half on
    with pytest.raises(FormError, match="4095 bytes instead of 4096"):
        check_address(sysv(8), sysv(7, b"own"))
    for theirs, ours in ((9, 7), (7, 9)):
        check_address(sysv(theirs), sysv(ours, b"own"))  # UCX cannot map what is not there
    assert set(asked) == {"/proc/sysvipc/shm"}
    monkeypatch.setattr(Told, "read_text", lambda _: Path("/proc/none").read_text())
    check_address(sysv(8), sysv(7, b"own"))


@pytest.mark.parametrize("flag", [0, 1 << 63])
def test_a_descriptor_is_looked_at_where_a_segment_is_named_by_one(monkeypatch: pytest.MonkeyPatch, flag: int) -> None:
    sizes = {"/proc/5/fd/6": 1, "/proc/7/fd/8": 2}
    told = {path: SimpleNamespace(stat=lambda size=size: SimpleNamespace(st_size=size)) for path, size in sizes.items()}
    monkeypatch.setattr(ucx_address, "Path", told.get)
    peer, own = (
        address(b"posix", b"our host", struct.pack("<Q", flag | process | number << 30), worker)
        for process, number, worker in ((5, 6, b"peer"), (7, 8, b"own"))
    )
    assert refused(peer, own) is bool(flag) and not refused(own, peer)


@pytest.mark.parametrize("bit", range(60, 64))
def test_a_segment_of_posix_has_our_flags(bit: int) -> None:
    own, peer = (address(b"posix", b"our host", struct.pack("<Q", flag), bytes([flag & 1])) for flag in (1, 1 << bit))
    with pytest.raises(FormError, match="named in another way"):
        check_address(peer, own)


def test_a_distance_has_three_bytes_whatever_they_are() -> None:
    key = struct.pack("<QBBB", 1, 0, 0, 3)
    assert read_key(key + b"\x01\xff\x03\x02\x02\xff\xff") == {0: 0}
    with pytest.raises(FormError, match="in the middle"):
        read_key(key + b"\x01\xff")
