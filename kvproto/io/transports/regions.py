"""Regions: tables and descriptors; addresses are validated here, before a backend sees one.

Backends trust what they are given. Some write through stale descriptions into memory that was given back, some end
the *target* process. So a write is checked against both tables, ours and the one in the peer's endpoint, and only
offsets inside a named region become addresses. A retired index is never given out again: a description that
outlived its region names nothing, instead of naming what came after it.  An index that was in no endpoint is free
again: so a constructor that fails leaves nothing behind, not even a number.

Adjacent pieces (the next one continues source and target of the one before) are joined: a piece costs a backend
microseconds whatever its size, the join nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from .base import Descs, Kind, MemoryRegion, PeerId, RemoteRegion, StaleEndpoint, TransportCaps, UsageError, WritePart
from .endpoint import RegionEntry

Column: TypeAlias = npt.NDArray[np.uint64]
_TOP = 1 << 63
_COLUMNS = 3
_FEW = 16


class Request(msgspec.Struct, frozen=True):
    """A validated write; `local`, `remote`: (n, 3) uint64 rows of address, length, device."""

    local: Descs
    remote: Descs
    local_kind: Kind
    remote_kind: Kind
    sources: tuple[int, ...]  # indices of the local regions that are read

    @property
    def count(self) -> int:
        return len(self.local)


class RegionTable:
    """This side's regions."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self._kinds = kinds
        self._regions: dict[int, MemoryRegion] = {}
        #: the index of the next region, and the first one that no peer can have been told of
        self._next = self._untold = 0
        self.serial = 0

    def plan(self, addr: int, nbytes: int, kind: Kind, dev: int) -> MemoryRegion:
        """The region these numbers would become. Raises UsageError if they cannot."""
        if kind not in self._kinds:
            raise UsageError(f"memory kind {kind!r} is not supported here; supported: {', '.join(self._kinds)}")
        # 63 bits: an address plus an offset inside a region then never wraps around in the rows of 64 bits.
        if addr <= 0 or nbytes <= 0 or addr + nbytes > _TOP or not 0 <= dev < 1 << 16:
            raise UsageError(f"no memory region: addr={addr:#x} nbytes={nbytes} dev={dev}")
        for other in self._regions.values():
            apart = other.addr + other.nbytes <= addr or addr + nbytes <= other.addr
            if (other.kind, other.dev) == (kind, dev) and not apart:
                raise UsageError(f"{addr:#x}+{nbytes} overlaps region {other.index} ({other.addr:#x}+{other.nbytes})")
        return MemoryRegion(self._next, addr, nbytes, kind, dev)

    def add(self, region: MemoryRegion) -> None:
        self._regions[region.index] = region
        self._next = region.index + 1
        self.serial += 1

    def remove(self, region: MemoryRegion) -> None:
        self.check(region)
        del self._regions[region.index]
        # nobody knows a region that was never described: its index names nothing yet
        self._next = max(self._untold, *(index + 1 for index in self._regions), 0)
        self.serial += 1

    def check(self, region: MemoryRegion) -> None:
        if self._regions.get(region.index) != region:
            raise UsageError(f"region {region.index} is not registered with this transport (or not any more)")

    def regions(self) -> tuple[MemoryRegion, ...]:
        return tuple(self._regions.values())

    def entries(self, shares: Mapping[int, tuple[bytes, bytes]]) -> tuple[RegionEntry, ...]:
        """As peers are told of them; `shares`: by index, what they map them with, and the UUID of the device."""
        # From here on peers may know these indices, so none of them is used for another region.
        regions, self._untold = tuple(self._regions.values()), self._next
        return tuple(RegionEntry(r.index, r.addr, r.nbytes, r.kind, r.dev, *shares.get(r.index, ())) for r in regions)


def remote_table(peer: PeerId, entries: Sequence[RegionEntry]) -> dict[int, RemoteRegion]:
    return {e.index: RemoteRegion(peer, e.index, e.addr, e.nbytes, e.kind, e.dev) for e in entries}


def bulk(src_off: int, dst_off: int, nbytes: int) -> Descs:
    """The descriptor of one contiguous piece."""
    return np.array([[src_off, dst_off, nbytes]], dtype=np.uint64)


def as_descs(descs: npt.ArrayLike) -> Descs:
    """Any (n, 3) integers, n >= 1, none negative, as uint64. Raises UsageError."""
    try:
        array = np.asarray(descs)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"descriptors must be (n, 3) integers: {error}") from error
    if array.dtype.kind not in "iu" or array.shape[1:] != (_COLUMNS,) or not len(array):
        raise UsageError(f"descriptors must be (n, 3) integers with n >= 1, not {array.dtype} {array.shape}")
    if array.dtype.kind == "i" and bool((array < 0).any()):
        raise UsageError("a descriptor has a negative offset or length")
    return array.astype(np.uint64, copy=False)


def joined(src: Column, dst: Column, length: Column) -> tuple[Column, Column, Column]:
    """The same bytes in as few pieces as their order allows."""
    if len(length) > 1:
        goes_on = (src[:-1] + length[:-1] == src[1:]) & (dst[:-1] + length[:-1] == dst[1:])
        if goes_on.any():
            starts = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
            return src[starts], dst[starts], np.add.reduceat(length, starts)
    return src, dst, length


def request(
    parts: Sequence[WritePart], tag: bytes, table: RegionTable, remotes: Mapping[int, RemoteRegion], caps: TransportCaps
) -> Request:
    """Validate a write and turn it into addresses.

    Raises UsageError, or StaleEndpoint if a target region is not in the peer's current endpoint.
    """
    if len(tag) > caps.max_tag:
        raise UsageError(f"tag of {len(tag)} bytes; {caps.backend} carries at most {caps.max_tag}")
    if not parts:
        raise UsageError("a write needs at least one part")
    first, *others = parts
    local, remote = _rows(first, table, remotes)
    sources: tuple[int, ...] = (first.src.index,)
    if others:  # most writes have one part, and then nothing is put together
        if any((p.src.kind, p.dst.kind) != (first.src.kind, first.dst.kind) for p in others):
            raise UsageError("one write cannot mix memory kinds: split it by the kinds of source and target")
        rows = [(local, remote), *(_rows(part, table, remotes) for part in others)]
        local, remote = (np.concatenate(side) for side in zip(*rows, strict=True))
        sources = tuple({part.src.index: None for part in parts})
    if len(local) > caps.max_descs:
        raise UsageError(f"{len(local)} descriptors; {caps.backend} takes at most {caps.max_descs} a write: split it")
    return Request(local, remote, first.src.kind, first.dst.kind, sources)


def _rows(part: WritePart, table: RegionTable, remotes: Mapping[int, RemoteRegion]) -> tuple[Descs, Descs]:
    src, dst = part.src, part.dst
    table.check(src)
    # Compared as a whole: a region of the same index in a later endpoint may be other memory.
    if remotes.get(dst.index) != dst:
        raise StaleEndpoint(f"region {dst.index} of peer {dst.peer} is not in its current endpoint")
    descs = as_descs(part.descs)
    if len(descs) <= _FEW:
        rows = _few(descs.tolist(), src, dst)
        if rows is not None:
            return rows
    columns = np.ascontiguousarray(descs.T)
    _inside(columns[0], columns[2], src.nbytes, "source", src.index)
    _inside(columns[1], columns[2], dst.nbytes, "target", dst.index)
    src_offs, dst_offs, lengths = joined(*columns)
    return _addresses(src_offs, lengths, src.addr, src.dev), _addresses(dst_offs, lengths, dst.addr, dst.dev)


def _few(pieces: list[list[int]], src: MemoryRegion, dst: RemoteRegion) -> tuple[Descs, Descs] | None:
    """Do the same for a few pieces, as numbers, in a tenth of the time; None: one is empty or outside."""
    near, far = list[list[int]](), list[list[int]]()
    src_end = dst_end = -1
    for src_off, dst_off, length in pieces:
        if not length or src_off + length > src.nbytes or dst_off + length > dst.nbytes:
            return None
        if src_off == src_end and dst_off == dst_end:  # it goes on where the one before ends
            near[-1][1] += length
            far[-1][1] += length
        else:
            near.append([src.addr + src_off, length, src.dev])
            far.append([dst.addr + dst_off, length, dst.dev])
        src_end, dst_end = src_off + length, dst_off + length
    return np.array(near, np.uint64), np.array(far, np.uint64)


def _inside(offset: Column, length: Column, nbytes: int, side: str, index: int) -> None:
    """Lengths and offsets are checked one by one first, so that no sum can wrap around."""
    size = np.uint64(nbytes)
    if length.min() > 0 and length.max() <= size and offset.max() <= size and (offset + length).max() <= size:
        return
    bad = (length == 0) | (length > size) | (offset > size - np.minimum(length, size))
    row = int(np.argmax(bad))
    raise UsageError(
        f"descriptor {row}: {side} {int(offset[row])}+{int(length[row])} is empty or not inside "
        f"region {index} of {nbytes} bytes"
    )


def _addresses(offset: Column, length: Column, base: int, dev: int) -> Descs:
    out = np.empty((len(offset), _COLUMNS), dtype=np.uint64)
    np.add(offset, np.uint64(base), out=out[:, 0])
    out[:, 1] = length
    out[:, 2] = dev
    return out
