"""Endpoints: how one transport instance describes itself to another, as bytes of msgpack.

An endpoint comes from another process, so it is input: its size is bounded before it is parsed, its header is read
before its body (a newer version then gets the error "version", not one about some field), and every number in it is
checked before an address is computed from it. It holds the instance id (new with every life of a process, so an
endpoint of a former life can be told apart), a serial that grows with every change of the region table, the table,
and a blob that only the backend understands.  A sum of all of it follows: what was damaged on its way reaches no
backend.  It is a sum, not a signature: whoever means harm makes it anew.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated

import msgspec

from .base import BadEndpoint, Kind

VERSION = 2
SUM = 16  # bytes
MAX_BYTES = 1 << 20
MAX_REGIONS = 4096
_TOP = 1 << 63

Count = Annotated[int, msgspec.Meta(ge=0, lt=_TOP - 1)]


class RegionEntry(msgspec.Struct, frozen=True, array_like=True):
    """One row of the region table."""

    #: the region's number, once in the table; an instance never gives it to another region
    index: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    #: where the region begins, in the address space of its process
    addr: Count
    #: how many bytes it has; its end is at 2^63 at most
    nbytes: Annotated[int, msgspec.Meta(gt=0, lt=_TOP - 1)]
    #: host memory (`DRAM`), or a device's (`VRAM`)
    kind: Kind
    #: the device, as its process counts them; of host memory 0
    dev: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
    #: what another process of the same host maps it with; empty, or left out: it cannot
    share: Annotated[bytes, msgspec.Meta(max_length=128)] = b""
    #: the UUID of the device, by which another process of the host knows it; empty, or left out: unknown
    gpu: Annotated[bytes, msgspec.Meta(max_length=16)] = b""


class Header(msgspec.Struct, frozen=True):
    """The fields of every version."""

    #: what moves the bytes: `nixl`, `mooncake`, or `memory` within one process; the same on both sides
    backend: str
    #: of this form; another one than the reader's is refused
    version: int


class InstanceDescription(Header, frozen=True):
    """One life of one instance, as of `serial`."""

    #: this incarnation of the process, by a name that no other incarnation has
    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    #: counts up with every change of the regions: of two descriptions of one instance the higher one holds
    serial: Count
    #: memory that may be written to, and read from
    regions: tuple[RegionEntry, ...]
    #: what the backend's library needs beside it to reach the instance
    blob: bytes


_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(Header)
_endpoint = msgspec.msgpack.Decoder(InstanceDescription)


def encode(endpoint: InstanceDescription) -> bytes:
    """Raises BadEndpoint if it is larger than a peer would accept."""
    if len(endpoint.regions) > MAX_REGIONS:
        raise BadEndpoint(f"{len(endpoint.regions)} regions; an endpoint holds at most {MAX_REGIONS}")
    data = _encoder.encode(endpoint)
    data += _sum(data)
    _bound(data)
    return data


def decode(data: bytes, backend: str) -> InstanceDescription:
    """Parse and check a peer's endpoint. Raises BadEndpoint, naming what is wrong with it."""
    _bound(data)
    data, told = data[:-SUM], data[-SUM:]
    try:
        header = _header.decode(data)
    except (ValueError, RecursionError) as error:
        raise BadEndpoint(f"not an endpoint ({len(data)} bytes): {error}") from error
    if header.backend != backend:
        raise BadEndpoint(f"the peer speaks {header.backend!r}, this side {backend!r}: use one backend on both")
    if header.version != VERSION:
        raise BadEndpoint(f"endpoint version {header.version}, this side has {VERSION}: upgrade the older side")
    if told != _sum(data):
        raise BadEndpoint(f"damaged endpoint ({len(data)} bytes): its sum is another")
    try:
        endpoint = _endpoint.decode(data)
    except (ValueError, RecursionError) as error:
        raise BadEndpoint(f"malformed endpoint ({len(data)} bytes): {error}") from error
    _check_table(endpoint.regions)
    return endpoint


def _sum(data: bytes) -> bytes:
    return blake2b(data, digest_size=SUM).digest()


def _bound(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise BadEndpoint(f"endpoint of {len(data)} bytes; at most {MAX_BYTES}: register fewer, larger regions")


def _check_table(regions: tuple[RegionEntry, ...]) -> None:
    if len(regions) > MAX_REGIONS:
        raise BadEndpoint(f"{len(regions)} regions; at most {MAX_REGIONS}")
    if len({entry.index for entry in regions}) != len(regions):
        raise BadEndpoint("a region index occurs twice")
    for entry in regions:
        if entry.addr + entry.nbytes > _TOP:
            raise BadEndpoint(f"region {entry.index} ends beyond the address space")
