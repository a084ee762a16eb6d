"""NIXL samples: metadata in the form of NIXL 1.5.1 with UCX 1.23, made without either, to be damaged.

The worker address has the transports of a host without InfiniBand: one's own loopback, TCP, shared memory and
cross-memory attach.  Its loopback and its worker's id are made from the agent's name, as every agent has its own.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from kvproto.io.transports.nixl_metadata import BACKEND, LENGTH, MAGIC, ROW
from kvproto.io.transports.ucx_address import ATTRIBUTES, EMPTY, HEADER, ID_BYTES, LAST, PATHS, checksum

#: address, bytes and device of a region
Row = tuple[int, int, int]
ATTRIBUTE_BYTES = ATTRIBUTES.pack(1e-8, 1e10, 1e-7, 0xC0034F00)
#: another host's identity: no test maps shared memory that a sample names
HOST = b"elsewher"
#: the end of an address: a device without transports, and UCX's release
ADDRESS_END = bytes([EMPTY | 7, LAST])
#: memory domain 0 (one's own loopback) with a key of no bytes, host memory, no device
KEY = struct.pack("<QBBB", 1, 0, 0, 0xFF)


def field(name: bytes, data: bytes) -> bytes:
    return name + LENGTH.pack(len(data)) + data + b"|"


def transport(name: bytes, interface: bytes, last: int = LAST) -> bytes:
    """A transport of a device; `last`: 0 if another one of that device follows."""
    return struct.pack("<H", checksum(name)) + ATTRIBUTE_BYTES + bytes([len(interface) | last]) + interface


def connection(agent: bytes = b"me") -> bytes:
    own = blake2b(agent, digest_size=ID_BYTES).digest()
    said = HEADER + own + b"\x00\x00" + transport(b"self", own)
    said += bytes([1, 6]) + b"\x00\x02\xc0\x00\x02\x02" + transport(b"tcp", b"\x8e\x79")
    said += bytes([2, len(HOST) | PATHS, 1]) + HOST + transport(b"sysv", bytes(8))
    said += bytes([3, len(HOST)]) + HOST + transport(b"posix", bytes(7) + b"\xc0")
    return said + bytes([4, len(HOST)]) + HOST + transport(b"cma", bytes(4)) + ADDRESS_END


def metadata(
    agent: bytes = b"me", rows: tuple[Row, ...] = ((4096, 64, 0),), devices: tuple[Row, ...] = (),
    address: bytes | None = None,
) -> bytes:  # fmt: skip
    """Return an agent's metadata with these host and device regions; `address`: its worker address."""
    lists = [each for each in ((0, rows), (1, devices)) if each[1]] or [(0, rows)]
    said = MAGIC + field(b"Agent", agent) + field(b"Conns", LENGTH.pack(1)) + field(b"t", BACKEND)
    said += field(b"c", connection(agent) if address is None else address)
    said += field(b"", b"MemSection") + field(b"nixlSecElms", LENGTH.pack(len(lists)))
    return said + b"".join(_section(*each) for each in lists)


def _section(kind: int, rows: tuple[Row, ...]) -> bytes:
    said = field(b"bknd", BACKEND) + field(b"nixlDList", b"nixlSDList") + field(b"t", struct.pack("<I", kind))
    said += field(b"n", LENGTH.pack(len(rows)))
    return said + b"".join(field(b"", ROW.pack(*row) + KEY) for row in rows)
