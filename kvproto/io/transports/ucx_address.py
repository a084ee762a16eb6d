"""UCX address: worker addresses and remote keys, parsed completely before UCX parses them.

UCX reads a peer's worker address and memory keys without their length: a wrong count or length makes it read beyond the
buffer, an unknown version ends the process by an assertion, and a wrong segment of shared memory is attached and read.
So both are parsed here first, in the one form that this UCX writes (version 1), to the last byte:

    address   a byte of version and flags, the worker's id, then devices; the last device is empty and has the release
    device    memory domain, length of the device address, [paths], [system device], device address, then transports
    transport checksum of its name, 16 bytes of attributes, length of the interface address, interface address
    key       memory domains (a bit each), memory type, a length and so many bytes a domain, system device, distances

What the bytes mean depends on the transport, and UCX's transports trust them as well.  So an entry of a transport that
this process has too must have addresses of our sizes, and a key must have our size for each domain.  A transport that
this process does not have is skipped by UCX.  Shared memory of this host that an address names must be as large as
our own segment: UCX maps our size, and reads it.

An honest form does not make an honest peer: a process that speaks UCX's own protocol can still harm this one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kvproto.errors import KvprotoError

#: version 1, and the flag that the worker's id follows
HEADER = b"\x20"
ID_BYTES = 8
#: UCX's own limits
MAX_ENTRIES, MAX_DOMAINS, MAX_MEMORY_TYPE = 128, 64, 8
EMPTY, LAST, PATHS, SYSTEM, ENDPOINT = 0x80, 0x80, 0x40, 0x20, 0x40
DOMAIN_MASK, DEVICE_MASK, INTERFACE_MASK = 0x7F, 0x1F, 0x3F
#: overhead in seconds, bandwidth in bytes a second, latency in seconds; then priority and capabilities
ATTRIBUTES = struct.Struct("<fffI")
#: no transport is slower, or faster, than this
MAX_SECONDS, MAX_BANDWIDTH = 1e3, 1e15
#: bytes of an address of TCP by its family, after flags and family
FAMILIES = {b"\x02": 4, b"\x0a": 16}
TCP_FLAGS, TCP_LOOPBACK_BYTES = (b"\x00", b"\x01"), 14
#: bytes of the identity of a host, alone and with a namespace
HOST_BYTES = (8, 12)
#: a key's distance to a device: device, latency, bandwidth; a device of 255 ends the list
DISTANCE_BYTES, NO_DEVICE = 3, 0xFF
#: how a segment of POSIX shared memory is named: flags, then process and descriptor of 30 bits each
PROCFS, FLAGS, THIRTY = 1 << 63, 0xF << 60, (1 << 30) - 1


class FormError(KvprotoError, ValueError):
    """Bytes that are not metadata as NIXL and UCX write it, and what is wrong with them."""


class TransportEntry(NamedTuple):
    """One transport of a worker address."""

    #: the checksum of its name
    name: int
    #: the memory domain whose keys it uses
    domain: int
    device: bytes
    interface: bytes


class WorkerAddress(NamedTuple):
    """A parsed worker address."""

    worker: bytes
    entries: tuple[TransportEntry, ...]


def checksum(name: bytes) -> int:
    """UCX's checksum of a transport's name: CRC-16-CCITT, reflected and inverted."""
    crc = 0xFFFF
    for byte in name:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x8408 if crc & 1 else 0)
    return crc ^ 0xFFFF


SELF, TCP, SYSV, POSIX = (checksum(name) for name in (b"self", b"tcp", b"sysv", b"posix"))
#: transports whose device address is the identity of the host
ON_HOST = {SYSV, POSIX, *(checksum(name) for name in (b"cma", b"knem", b"xpmem"))}


class _Reader:
    """Takes bytes from the front; FormError where there are not so many."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.what, self.at = data, what, 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise FormError(f"{self.what} ends at byte {len(self.data)}, in the middle of a field")
        self.at = end
        return self.data[end - count : end]

    def byte(self) -> int:
        return self.take(1)[0]

    def end(self) -> None:
        if self.at != len(self.data):
            raise FormError(f"{len(self.data) - self.at} bytes follow the end of {self.what}")


def read_address(data: bytes) -> WorkerAddress:
    """Parse a worker address.  Raises FormError."""
    reader = _Reader(data, "its worker address")
    if (header := reader.take(len(HEADER))) != HEADER:
        raise FormError(f"its worker address begins with {header.hex()}, not with {HEADER.hex()}")
    worker, entries = reader.take(ID_BYTES), list[TransportEntry]()
    while _read_device(reader, entries):
        pass
    reader.end()
    return WorkerAddress(worker, tuple(entries))


def _read_device(reader: _Reader, entries: list[TransportEntry]) -> bool:
    """Append the transports of the next device; False: it is the last, which has none."""
    domain, flags = reader.byte(), reader.byte()
    if domain & EMPTY or flags & LAST:
        if not domain & EMPTY or flags != LAST:
            raise FormError(f"its worker address has a device {domain:02x} {flags:02x} where its end should be")
        return False
    if domain >= MAX_DOMAINS:
        raise FormError(f"its worker address names memory domain {domain} of {MAX_DOMAINS}")
    for flag in (PATHS, SYSTEM):
        if flags & flag:
            reader.byte()
    device, last = reader.take(flags & DEVICE_MASK), False
    while not last:
        if len(entries) == MAX_ENTRIES:
            raise FormError(f"its worker address has more than {MAX_ENTRIES} transports")
        name = int.from_bytes(reader.take(2), "little")
        _check_attributes(reader.take(ATTRIBUTES.size))
        length = reader.byte()
        if length & ENDPOINT:
            raise FormError("its worker address has an address of an endpoint")
        last = bool(length & LAST)
        entries.append(TransportEntry(name, domain & DOMAIN_MASK, device, reader.take(length & INTERFACE_MASK)))
    return True


def _check_attributes(data: bytes) -> None:
    """UCX compares and adds these numbers to choose its routes."""
    overhead, bandwidth, latency, _ = ATTRIBUTES.unpack(data)
    # NaN fails every comparison, so each is one that must hold
    if not (0 <= overhead < MAX_SECONDS and 0 <= latency < MAX_SECONDS and 0 < bandwidth < MAX_BANDWIDTH):
        raise FormError(f"its transport has overhead {overhead}, bandwidth {bandwidth}, latency {latency}")


def check_address(peer: WorkerAddress, own: WorkerAddress) -> None:
    """FormError unless UCX's transports of this process can read the entries that concern them."""
    if peer.worker == own.worker:
        raise FormError("its worker address has the id of this process's own worker")
    for entry in peer.entries:
        ours = [each for each in own.entries if each.name == entry.name]
        if ours:
            _check_entry(entry, ours)


def _check_entry(entry: TransportEntry, ours: Sequence[TransportEntry]) -> None:
    sizes = {(len(each.device), len(each.interface)) for each in ours}
    if entry.name == TCP:
        fits = _fits_tcp(entry.device) and len(entry.interface) in {interface for _, interface in sizes}
    elif entry.name in ON_HOST and all(entry.device != each.device for each in ours):
        fits = len(entry.device) in HOST_BYTES  # another host's: UCX reads no further
    else:
        fits = (len(entry.device), len(entry.interface)) in sizes
    if not fits:
        sizes_said = f"{len(entry.device)}+{len(entry.interface)}"
        raise FormError(f"its transport {entry.name:04x} has addresses of {sizes_said} bytes")
    if entry.name == SELF and any(entry.interface == each.interface for each in ours):
        raise FormError("its worker address has this process's own loopback")
    for each in ours:
        if entry.name in (SYSV, POSIX) and entry.device == each.device:
            _check_segment(entry, each)


def _fits_tcp(device: bytes) -> bool:
    flags, family = device[:1], device[1:2]
    if flags not in TCP_FLAGS or family not in FAMILIES:
        return False
    return len(device) == (TCP_LOOPBACK_BYTES if flags == TCP_FLAGS[1] else 2 + FAMILIES[family])


def _check_segment(peer: TransportEntry, own: TransportEntry) -> None:
    """UCX maps as many bytes of the peer's segment as its own has, and reads them."""
    theirs, ours = (int.from_bytes(each.interface[:8], "little") for each in (peer, own))
    if peer.name == POSIX and theirs & FLAGS != ours & FLAGS:
        raise FormError("its shared memory is named in another way than ours")
    size_of = _sysv_size if peer.name == SYSV else _posix_size
    theirs_has, ours_has = size_of(theirs), size_of(ours)
    # a segment that cannot be seen from here cannot be mapped by UCX either, which then takes another transport
    if theirs_has is not None and ours_has is not None and theirs_has < ours_has:
        raise FormError(f"its shared memory has {theirs_has} bytes instead of {ours_has}")


def _posix_size(segment: int) -> int | None:
    where = f"/proc/{segment & THIRTY}/fd/{segment >> 30 & THIRTY}" if segment & PROCFS else ""
    try:
        return Path(where).stat().st_size if where else None
    except OSError:
        return None


def _sysv_size(segment: int) -> int | None:
    try:
        rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    except OSError:
        return None
    sizes = {int(row[1]): int(row[3]) for row in map(str.split, rows)}
    return sizes.get(segment & 0xFFFFFFFF)  # UCX passes the lower half on


def read_key(data: bytes) -> dict[int, int]:
    """Parse a remote key: bytes by memory domain.  Raises FormError."""
    reader = _Reader(data, "a region's key")
    domains, memory = int.from_bytes(reader.take(8), "little"), reader.byte()
    if memory > MAX_MEMORY_TYPE:
        raise FormError(f"a region's key is of memory type {memory}")
    sizes = {domain: _skip(reader) for domain in range(MAX_DOMAINS) if domains >> domain & 1}
    if domains:
        reader.byte()  # the system device; its upper bit asks for a flush
    while reader.at != len(data) and reader.byte() != NO_DEVICE:
        reader.take(DISTANCE_BYTES - 1)
    reader.end()
    return sizes


def _skip(reader: _Reader) -> int:
    length = reader.byte()
    reader.take(length)
    return length


def key_sizes(address: WorkerAddress, keys: Sequence[dict[int, int]]) -> Iterator[tuple[int, int]]:
    """Each transport (its name's checksum) with the bytes that a key has for its domain."""
    for key in keys:
        for entry in address.entries:
            if entry.domain in key:
                yield entry.name, key[entry.domain]
