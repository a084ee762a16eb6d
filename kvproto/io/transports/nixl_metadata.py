"""NIXL metadata of a peer, validated: a few wrong bytes would end the process that loads it.

NIXL and UCX parse a peer's metadata as if it came from themselves.  NIXL's part is a list of fields, each a name, a
length of eight bytes, so many bytes and a bar.  Names, lengths, counts and the end have to be as they are in our own
metadata; the agent has to be the instance that the endpoint names; and the regions have to be those of the endpoint's
table, address by address, so that what is checked against that table is what NIXL believes.

UCX's parts are the connection, which is a worker address, and the key at the end of each region (`ucx_address`).  Both
are compared with our own: a transport that both processes have must have addresses and keys of the same sizes.

A release of NIXL may write its fields in another way.  A transport whose own metadata is not `readable` knows that, and
says in the log that it cannot check its peers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from .base import Kind
from .endpoint import RegionEntry
from .ucx_address import FormError, WorkerAddress, check_address, key_sizes, read_address, read_key

MAGIC = b"nixlSerDes|"
LENGTH = struct.Struct("<Q")
#: address, bytes and device of a region; what follows in its field is NIXL's
ROW = struct.Struct("<QQQ")
#: bytes of a worker address; those of a host with eight network devices have some 2,000
MAX_ADDRESS = 16 * 1024
MAX_SECTIONS = 8
BACKEND = b"UCX"
#: NIXL's numbers of kinds of memory
KIND_BYTES = 4
KINDS: dict[int, Kind] = {0: "DRAM", 1: "VRAM"}
Row = tuple[Kind, int, int, int]


class Metadata(NamedTuple):
    """A peer's metadata.  `regions`: kind, address, bytes and device; `keys`: in the same order."""

    agent: str
    addresses: tuple[WorkerAddress, ...]
    regions: tuple[Row, ...]
    keys: tuple[dict[int, int], ...]

    def sizes(self, kind: Kind) -> set[tuple[int, int]]:
        """Each transport's checksum with the bytes of a key of this kind of memory."""
        keys = [key for row, key in zip(self.regions, self.keys, strict=True) if row[0] == kind]
        return {each for address in self.addresses for each in key_sizes(address, keys)}


class _Fields:
    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise FormError("it does not begin as NIXL's metadata does")
        self.data, self.at = data, len(MAGIC)

    def take(self, name: bytes, most: int = 128) -> bytes:
        """The next field, which has this name and up to so many bytes."""
        start = self.at + len(name) + LENGTH.size
        if self.data[self.at : self.at + len(name)] != name or start > len(self.data):
            raise FormError(f"no field {name.decode()!r} at byte {self.at}")
        (length,) = LENGTH.unpack_from(self.data, start - LENGTH.size)
        end = start + length
        if length > most or self.data[end : end + 1] != b"|":
            raise FormError(f"field {name.decode()!r} at byte {self.at} has {length} bytes, and does not end there")
        self.at = end + 1
        return self.data[start:end]

    def count(self, name: bytes, most: int) -> int:
        field = self.take(name)
        if len(field) != LENGTH.size or (number := int.from_bytes(field, "little")) > most:
            raise FormError(f"field {name.decode()!r} is no number up to {most}")
        return number


def read(metadata: bytes, most: int) -> Metadata:
    """Parse metadata with so many regions at most.  Raises FormError."""
    fields = _Fields(metadata)
    agent, addresses, rows, keys = fields.take(b"Agent"), list[WorkerAddress](), list[Row](), list[dict[int, int]]()
    for _ in range(fields.count(b"Conns", MAX_SECTIONS)):
        _expect(fields.take(b"t"), BACKEND)
        addresses.append(read_address(fields.take(b"c", MAX_ADDRESS)))
    _expect(fields.take(b""), b"MemSection")
    for _ in range(fields.count(b"nixlSecElms", MAX_SECTIONS)):
        _expect(fields.take(b"bknd"), BACKEND)
        _expect(fields.take(b"nixlDList"), b"nixlSDList")
        number = fields.take(b"t", KIND_BYTES)
        kind = KINDS.get(int.from_bytes(number, "little"))
        if kind is None or len(number) != KIND_BYTES:
            raise FormError(f"its memory is of kind {number.hex()}")
        for _ in range(fields.count(b"n", most)):
            row = fields.take(b"", 4096)
            if len(row) < ROW.size:
                raise FormError(f"a region of {len(row)} bytes")
            rows.append((kind, *ROW.unpack_from(row)))
            keys.append(read_key(row[ROW.size :]))
    if fields.at != len(metadata):
        raise FormError(f"{len(metadata) - fields.at} bytes follow its end")
    try:
        return Metadata(agent.decode("ascii"), tuple(addresses), tuple(rows), tuple(keys))
    except UnicodeDecodeError as error:
        raise FormError("its agent's name is no text") from error


def _expect(said: bytes, word: bytes) -> None:
    if said != word:
        raise FormError(f"it has {said[:16]!r} in the place of {word.decode()}")


def readable(metadata: bytes) -> bool:
    """Whether this release of NIXL writes metadata in the form that is known here."""
    try:
        read(metadata, 1 << 20)
    except FormError:
        return False
    return True


def check(metadata: bytes, instance: str, regions: Iterable[RegionEntry], own: bytes) -> None:
    """Check a peer's metadata against its endpoint, and against our own.

    Args:
        metadata: the peer's, as it came.
        instance: the endpoint's instance.
        regions: the endpoint's table.
        own: this process's metadata, by which the transports that both have are compared.

    Raises:
        FormError: NIXL or UCX must not see it.

    """
    table = sorted((entry.kind, entry.addr, entry.nbytes, entry.dev) for entry in regions)
    peer, ours = read(metadata, len(table)), read(own, 1 << 20)
    if peer.agent != instance:
        raise FormError(f"it is of agent {peer.agent!r}")
    if sorted(peer.regions) != table:
        raise FormError("its regions are not those of the endpoint's table")
    for address in peer.addresses:
        for each in ours.addresses:
            check_address(address, each)
    here = {entry.name for address in ours.addresses for entry in address.entries}
    for kind in {row[0] for row in ours.regions}:
        strange = {(name, size) for name, size in peer.sizes(kind) - ours.sizes(kind) if name in here}
        if strange:
            raise FormError(f"its regions have keys that ours have not: {sorted(strange)}")
