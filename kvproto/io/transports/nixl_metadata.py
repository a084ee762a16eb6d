"""The form of NIXL's metadata, as far as it can be looked at: what another process says goes to UCX unread.

NIXL and UCX parse a peer's metadata as if it came from themselves; a few wrong bytes end the process that loads it.  So
it is read here first.  NIXL's part is a list of fields, each a name, a length of eight bytes, so many bytes and a bar.
Names, lengths, counts and the end have to be as they are in our own metadata; the agent has to be the instance that the
endpoint names; and the regions have to be those of the endpoint's table, address by address, so that what is checked
against that table is what NIXL believes.

What is left is the connection's field, UCX's worker address.  It has no form that is told, and nothing here vouches for
it: who can connect without keys, and wants to, can end this process by it.  That it came whole is the endpoint's sum.

A release of NIXL may write its fields in another way.  Whoever reads its own metadata by this form knows (`readable`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kvproto.errors import KvprotoError

from .endpoint import RegionEntry

MAGIC = b"nixlSerDes|"
LENGTH = struct.Struct("<Q")
#: address, bytes and device of a region; what follows in its field is NIXL's
ROW = struct.Struct("<QQQ")
#: bytes of a worker address; those of a host with eight network devices have some 2,000
MAX_ADDRESS = 16 * 1024
MAX_SECTIONS = 8
Row = tuple[int, int, int]


class FormError(KvprotoError, ValueError):
    """Bytes that are not NIXL's metadata, and what is wrong with them."""


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
        """A number."""
        field = self.take(name)
        if len(field) != LENGTH.size or (number := int.from_bytes(field, "little")) > most:
            raise FormError(f"field {name.decode()!r} is no number up to {most}")
        return number


def read(metadata: bytes, most: int) -> tuple[str, list[Row]]:
    """The agent's name and its regions (address, bytes, device), at most so many.  FormError."""
    fields = _Fields(metadata)
    agent, rows = fields.take(b"Agent"), list[Row]()
    for _ in range(fields.count(b"Conns", MAX_SECTIONS)):
        fields.take(b"t")
        fields.take(b"c", MAX_ADDRESS)
    if fields.take(b"") != b"MemSection":
        raise FormError("it has no memory section")
    for _ in range(fields.count(b"nixlSecElms", MAX_SECTIONS)):
        fields.take(b"bknd")
        if fields.take(b"nixlDList") != b"nixlSDList":
            raise FormError("its regions are no list")
        fields.take(b"t", 4)
        for _ in range(fields.count(b"n", most)):
            row = fields.take(b"", 4096)
            if len(row) < ROW.size:
                raise FormError(f"a region of {len(row)} bytes")
            rows.append(ROW.unpack_from(row))
    if fields.at != len(metadata):
        raise FormError(f"{len(metadata) - fields.at} bytes follow its end")
    try:
        return agent.decode("ascii"), rows
    except UnicodeDecodeError as error:
        raise FormError("its agent's name is no text") from error


def readable(metadata: bytes) -> bool:
    """Whether this release of NIXL writes metadata in the form that is known here."""
    try:
        read(metadata, 1 << 20)
    except FormError:
        return False
    return True


def check(metadata: bytes, instance: str, regions: Iterable[RegionEntry]) -> None:
    """FormError unless it is that of this instance with these regions."""
    table = sorted((entry.addr, entry.nbytes, entry.dev) for entry in regions)
    agent, rows = read(metadata, len(table))
    if agent != instance:
        raise FormError(f"it is of agent {agent!r}")
    if sorted(rows) != table:
        raise FormError("its regions are not those of the endpoint's table")
