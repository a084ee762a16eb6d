"""Pool memory: opens a pool to a transport as regions, or says why it stays closed.

A dense tensor is a region of its own.  Views interleave (K and V in one block, all layers in one block), and a
transport registers no memory twice.  So views that overlap as spans are opened as one region, from their first byte to
their last.  Bytes between the rows of a view that belong to no plane are open, too: they are of the same allocation,
and byte runs never name them.

Peers rely on the index of a region: the staging memory is region 0, then come the pool's regions in the order of their
first planes.  So memory that gets another index is refused: the transport serves another endpoint, or its earlier
regions are known to peers.  If anything fails, the opened regions are closed again.  If every plane has a region of its
own and dense rows, peers need no placement (`kvproto.layout.placement.dense`).

What travels at the end is opened with it, if a room has one slot or one table of it and no digests are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import torch
from msgspec import structs

from kvproto.data.staging_buffers import Staging
from kvproto.errors import ArgumentError, Step, failures, raise_exit, run_all
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.base import Kind, MemoryRegion, Transport, TransportCaps, TransportError
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.sharding import Layout
from kvproto.rank.base import Rank

#: what the links of a transport cost where pools are in the hosts' memory, by profile
LINKS = {"nixl": "shm", "mooncake": "tcp"}
#: (elements, stride in bytes) of each dimension, and last (1, bytes of a row)
Shape = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """The memory that a transport has: the regions, staging first, and the placement of the pool's rows."""

    regions: list[MemoryRegion]
    #: what peers must know; None: nothing that the layout does not say
    told: Placement | None
    placement: Placement

    @property
    def pool(self) -> list[MemoryRegion]:
        return self.regions[1:]


def open_memory(
    transport: Transport, staging: torch.Tensor, pool: Pool, layout: Layout, rank: int, *, closed: bool = False,
    opened: PoolMemory | None = None,
) -> PoolMemory:  # fmt: skip
    """Register staging and pool with the transport, or staging alone if the pool can only be staged.

    `opened`: the memory of the rank's decode role, which has the pool open; then staging alone is registered.
    ArgumentError: two planes of the pool share bytes.  `TransportError`: the transport does not take the memory.
    """
    if opened is not None:  # no peer knows these slots, so they may have any index
        return replace(opened, regions=[_region(transport, staging.data_ptr(), staging.numel(), staging), *opened.pool])
    why = 'Settings.route is "staged"' if closed else ""
    usual, caps = dense(layout, rank), transport.caps
    first = pool.first
    if _kind(first) not in caps.kinds:
        why = f"{caps.backend} reaches {' and '.join(caps.kinds)} here, and the pool is on {pool.device}"
    spans, placement = place(pool)  # of a closed pool, too: scatters would overwrite one another in shared bytes
    if why:
        spans, placement = [], Placement((), (), why)
    regions: list[MemoryRegion] = []
    try:
        _register(transport, regions, staging.data_ptr(), staging.numel(), staging)
        for start, size in spans:
            _register(transport, regions, start, size, first)
    except BaseException as error:
        if failed := run_all(reversed(steps_back(transport, regions))):
            error.add_note(f"and memory stays registered: {failures(failed)}")
        raise
    return PoolMemory(regions, None if placement == usual else placement, placement)


@contextmanager
def taken_memory(transport: Transport, staging: Staging, pool: Pool, rank: Rank) -> Iterator[PoolMemory]:
    """Allocate staging again, and register it and this pool; if the block raises nothing is held."""
    staging.obtain()
    regions: list[MemoryRegion] = []
    try:
        closed = rank.settings.route == "staged"
        memory = open_memory(transport, staging.wire, pool, rank.layout, rank.index, closed=closed)
        regions = memory.regions
        yield memory
    except BaseException as error:
        if failed := run_all(reversed(steps_back(transport, regions))):
            error.add_note(f"and memory stays registered: {failures(failed)}")
        staging.give_back()
        raise


def all_of(steps: list[Step]) -> None:
    """Take all of these steps, whatever one of them raises; TransportError: some failed."""
    failed = run_all(steps)
    raise_exit(failed)
    if failed:
        raise TransportError(failures(failed))


def steps_back(transport: Transport, regions: list[MemoryRegion]) -> list[Step]:
    """List what takes the regions back, for the newest step to run first."""
    return [(f"region {each.index}", partial(transport.deregister, each)) for each in regions]


def away(told: Placement | None) -> PoolMemory:
    """Return the memory of a pool that is detached: none; peers keep what they were `told`."""
    return PoolMemory([], told, Placement((), (), "the pool is detached"))


def costs_profile(caps: TransportCaps, pool: Pool) -> str:
    """Return the name of the cost profile of this transport's links for such a pool (`PROFILES`).

    A GPU's memory is taken to be reached over NVLink, until a peer's is known to be on another host.
    """
    if _kind(pool.first) == "VRAM":
        return "cuda_ipc"
    return LINKS.get(caps.backend, "free")


def place(pool: Pool) -> tuple[list[tuple[int, int]], Placement]:
    """Return (address, bytes) of each region of the pool, from region 1 on, and its placement."""
    pools = [pool, *(end for end in pool.ends if not _closed_end(end))]
    planes = [(each, tensor) for each in pools for tensors in each.kinds for tensor in tensors]
    starts, shapes = [tensor.data_ptr() for _, tensor in planes], [_shape(tensor) for _, tensor in planes]
    spans: list[tuple[int, int, list[int]]] = []
    for plane in sorted(range(len(planes)), key=lambda at: starts[at]):
        start, end = starts[plane], starts[plane] + _extent(shapes[plane])
        if spans and start < spans[-1][1]:
            first, last, some = spans[-1]
            spans[-1] = first, max(last, end), [*some, plane]
        else:
            spans.append((start, end, [plane]))
    spans.sort(key=lambda span: min(span[2]))
    places = [(0, 0)] * len(planes)
    for region, (first, _, some) in enumerate(spans, 1):
        for each in pools:  # an engine may keep pages and slots in the same bytes, each in use as one of them
            _apart([(starts[at] - first, shapes[at]) for at in some if planes[at][0] is each])
        for at in some:
            places[at] = region, starts[at] - first
    held = {
        id(each): Placement(_strides(each), tuple(
            place for (owner, _), place in zip(planes, places, strict=True) if owner is each
        )) for each in pools
    }  # fmt: skip
    return [(first, end - first) for first, end, _ in spans], structs.replace(held[id(pool)], ends=_ends(pool, held))


def _ends(pool: Pool, held: dict[int, Placement]) -> tuple[Placement, ...]:
    """Return the placement of each cache of the layout that travels at the end; a closed one says why."""
    named = {end.end.name: end for end in pool.ends}
    if not named:
        return ()
    assert pool.of is not None, "K and V alone have nothing that travels at the end"
    layout, rank = pool.of
    made = list[Placement]()
    for each in layout.ends:
        end = named.get(each.name)  # None: this rank holds no layer of it
        made.append(dense(each, rank) if end is None else held.get(id(end)) or Placement((), (), _closed_end(end)))
    return tuple(made)


def _strides(pool: Pool) -> tuple[Strides, ...]:
    return tuple(Strides(grain.page, grain.token, grain.head) for grain in pool.grains)


def _closed_end(end: Pool) -> str:
    """Why nothing is written into the rows of this cache at the end but by scatters; empty: it may be."""
    if end.room_slots > 1:
        return f"a room has its {end.end.name} in {end.room_slots} slots or tables"
    return "digests are made of what is staged" if end.digested else ""


def _register(
    transport: Transport, regions: list[MemoryRegion], address: int, size: int, like: torch.Tensor
) -> None:  # fmt: skip
    region, wanted = _region(transport, address, size, like), len(regions)
    regions.append(region)
    if region.index != wanted:
        raise ArgumentError(
            f"memory that peers know as region {wanted} would be region {region.index} of this transport: it serves "
            "another endpoint, or has done so: make a transport for each endpoint"
        )


def _region(transport: Transport, address: int, size: int, like: torch.Tensor) -> MemoryRegion:
    return transport.register(address, size, _kind(like), max(like.get_device(), 0))


def _kind(tensor: torch.Tensor) -> Kind:
    return "DRAM" if tensor.device.type == "cpu" else "VRAM"


def _shape(tensor: torch.Tensor) -> Shape:
    """The steps that are taken, the longest first, and the row."""
    size = tensor.element_size()
    steps = [(n, stride * size) for n, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True) if n > 1]
    return [*sorted(steps, key=lambda step: -step[1]), (1, tensor.shape[3] * size)]


def _extent(shape: Shape) -> int:
    """Bytes from the first to the last."""
    return sum((n - 1) * stride for n, stride in shape) + shape[-1][1]


def _apart(planes: list[tuple[int, Shape]]) -> None:
    """ArgumentError if two of the planes of a region share a byte."""
    for (a, one), (b, other) in combinations(planes, 2):
        if _meet(b - a, one, other):
            raise ArgumentError(
                "two tensors of the pool share bytes (or lie so that it cannot be told): give each K and V once, and "
                "where V is a part of K's rows, as in latent attention, give K alone; of named caches no part may lie "
                "in another's rows"
            )


def _meet(by: int, one: Shape, other: Shape) -> bool:
    """Whether two strided ranges share a byte, the other beginning `by` bytes later; True if unknown."""
    if by >= _extent(one) or by + _extent(other) <= 0:
        return False
    if len(one) == 1 or len(other) == 1 or one[0][1] != other[0][1]:
        return True
    times, step = one[0]
    near = {by // step, -(-by // step)}
    return any(_meet(by - at * step, one[1:], other[1:]) for at in near if abs(at) < times)
