"""A rank's paged KV as kernels see it, and the cut of it that a send moves.

A *pool* is one rank's KV cache as its engine made it: one K tensor a layer and, unless the model keeps none, one V
tensor a layer, each `[page, token, head, dim]` (NHD) or `[page, head, token, dim]` (HND). Only the innermost
dimension must be dense. The other strides are taken from the tensors, so an engine that interleaves K and V, or that
hands out a window of something larger, can pass its views as they are. All layers must look alike, because one
launch serves all of them with one set of strides.

A pool of named caches (`kvproto.io.kernels.cache_pool`) has tensors by kind instead of K and V: one for each layer of
the kind that the rank holds, each kind with units, rows and strides of its own.

A *cut* is what one or several shares select from a pool, resolved once and kept with the pool: byte offsets, byte
widths, and the checks that need no page table. Nothing here knows a dtype: copies are bit copies, and an element is
so many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final, Literal

import torch

from kvproto.call_arguments import checked
from kvproto.errors import KvprotoError
from kvproto.layout.caches import WIDEST
from kvproto.layout.plan import Share
from kvproto.layout.sharding import Layout

Side = Literal["gather", "scatter"]
#: tokens: pages of such as divide this have digests of windows that both sides can compare
ORIGIN: Final = 4096


class KernelError(KvprotoError, ValueError):
    """A pool, share, table or buffer that a gather or scatter cannot work with; the message says why."""


def need(condition: object, message: str) -> None:
    """Raise `KernelError(message)` unless the condition holds."""
    if not condition:
        raise KernelError(message)


@dataclass(frozen=True, slots=True)
class ByteGeometry:
    """The byte geometry of a pool's tensors of one kind: of K, or of V."""

    row: int
    """Bytes of one head of one token."""
    page: int
    """Bytes from a page to the next; likewise `token` and `head`."""
    token: int
    head: int
    align: int = field(init=False)
    """The largest power of two, up to 16, that divides every step and the row."""

    def __post_init__(self) -> None:
        align = gcd(WIDEST, self.row, self.page, self.token, self.head)
        object.__setattr__(self, "align", align)  # once: every launch asks for it


class Pool:
    """A rank's paged KV.

    `k` and `v` hold one tensor a local layer, shaped as `order` says; `v` is empty where the model keeps no V. K and
    V may differ in dim. The stride of a dimension of one element does not matter, whatever it is. Raises KernelError if
    the tensors disagree with each other or with `page_size`.
    """

    #: a pool for each cache that travels at the end and that the rank holds, by name: of state, whose pages are slots,
    #: or of a window
    ends: tuple[Pool, ...] = ()
    #: of a pool in `ends`: the first of its kinds among those of all that travels at the end, and the one behind them
    block: tuple[int, int]
    #: of a pool in `ends`: its digests are wanted, which are kept by a room's table
    digested: bool = False
    #: of a pool of state: every slot, int64 on the pool's device
    slots: torch.Tensor
    #: of a pool in `ends` whose rooms have several slots, or tables of their windows: by layer, which of them holds it
    slot_of: tuple[int, ...] = ()

    @checked
    def __init__(
        self,
        k: Sequence[torch.Tensor],
        v: Sequence[torch.Tensor],
        order: Literal["NHD", "HND"] = "NHD",
        page_size: int | None = None,
    ) -> None:
        need(len(k) > 0, "a pool needs the K tensor of at least one layer")
        need(len(v) in (0, len(k)), f"{len(k)} K tensors but {len(v)} V tensors: give one V a layer, or none")
        need(order in ("NHD", "HND"), f"order is 'NHD' or 'HND', not {order!r}")
        self.k, self.v, self.order = [plain(each) for each in k], [plain(each) for each in v], order
        self.kinds: tuple[list[torch.Tensor], ...] = (self.k, self.v) if self.v else (self.k,)
        for name, tensors in zip("KV", self.kinds, strict=False):
            alike(name, tensors)
        self.axes = AXES[order]
        first = self.k[0]
        self.device, self.itemsize, self.layers = first.device, first.element_size(), len(k)
        self.dtype = first.dtype
        self.gpu = first.get_device()
        """The device's index, -1 for the CPU: quick to compare."""
        self.pages, self.page_size, self.heads = (first.shape[axis] for axis in self.axes[:3])
        if page_size is not None:
            need(page_size == self.page_size, f"pages of {page_size} tokens, but {order} tensors {tuple(first.shape)}")
        for tensors in self.kinds[1:]:
            other = tensors[0]
            same = other.shape[:3] == first.shape[:3]
            need(same, f"K {tuple(first.shape)} and V {tuple(other.shape)} may differ in the last dimension only")
            need(other.element_size() == self.itemsize, "K and V elements must have the same size")
            need(
                other.dtype == first.dtype,
                f"K is {first.dtype} and V {other.dtype}: a layout has one dtype; if they do differ, give both as "
                "torch.uint8 and name both in Layout.dtype",
            )
            need(other.device == self.device, f"K is on {self.device} but V on {other.device}")
        self.grains = tuple(grain_of(tensors[0], order) for tensors in self.kinds)
        #: of each kind: units of the rank
        self.units = (self.heads,) * len(self.kinds)
        #: named caches whose pool this is, and of which rank; None: it is of K and V
        self.of: tuple[Layout, int] | None = None
        self.forget_cuts()

    @property
    def end(self) -> Layout:
        """The layout of its cache, where it is a pool in `ends`."""
        assert self.of is not None
        return self.of[0]

    @property
    def own_tables(self) -> bool:
        """Whether each room has a table of its own in this pool of `ends`: not of one slot."""
        return self.digested or self.room_slots > 1 or self.end.window > 0

    @property
    def room_slots(self) -> int:
        """Return how many slots, or tables of its window, a room has in this pool of `ends`."""
        return max(self.slot_of) + 1 if self.slot_of else 1

    @property
    def origin(self) -> int:
        """Tokens at whose multiples a room's table of its window may begin in this pool of `ends`.

        With digests it is alike on both sides, whose pages differ: digests number the tokens from a table's first page.
        """
        return ORIGIN if self.digested and ORIGIN % self.page_size == 0 else self.page_size

    @property
    def stride(self) -> int:
        """Entries of one of a room's several tables in this pool of `ends`, whatever the room's length."""
        window = self.end.window
        return -((window + self.origin - 1) // -self.page_size) if window else 1

    def first_row(self, tokens: int) -> int:
        """Return the row, in its table of this pool of `ends`, with which a room of so many tokens begins."""
        return max(0, tokens - self.end.window) % self.origin if self.end.window else 0

    @property
    def every(self) -> tuple[list[torch.Tensor], ...]:
        """The tensors of each kind, those of what travels at the end behind the others."""
        return (*self.kinds, *(tensors for end in self.ends for tensors in end.kinds))

    @property
    def first(self) -> torch.Tensor:
        """The first tensor of the pool, or of what travels at the end; all are on one device."""
        return next(tensor for tensors in self.every for tensor in tensors)

    def husk(self) -> Pool:
        """Return this pool without its memory: of the same shape, and no byte of it is there."""
        made = copy(self)
        made.kinds = tuple([_without_memory(each) for each in tensors] for tensors in self.kinds)
        made.k, made.v = ([_without_memory(each) for each in tensors] for tensors in (self.k, self.v))
        made.ends = tuple(end.husk() for end in self.ends)
        made.forget_cuts()
        return made

    @property
    def is_husk(self) -> bool:
        return self.first.is_meta

    def forget_cuts(self) -> None:
        self._cuts: dict[tuple[Side, tuple[Share, ...]], SliceCopy] = {}

    def cut(self, side: Side, shares: tuple[Share, ...]) -> SliceCopy:
        """Return the checked cut of these shares, cached; of two threads' results the first stays."""
        found = self._cuts.get((side, shares))
        if found is None:
            found = self._cuts.setdefault((side, shares), SliceCopy(self, side, shares))
        return found

    def part_bytes(self, share: Share, tokens: int) -> int:
        pieces = ((share.piece(kind), grain.row) for kind, grain in enumerate(self.grains))
        return tokens * sum(piece.layers * piece.units * row for piece, row in pieces)


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


#: by order: the axes of page, token, head and row
AXES: dict[str, tuple[int, int, int, int]] = {"NHD": (0, 1, 2, 3), "HND": (0, 2, 1, 3)}


def grain_of(tensor: torch.Tensor, order: str) -> ByteGeometry:
    """Return the byte geometry of a `plain` tensor whose axes are in this order."""
    size = tensor.element_size()
    return ByteGeometry(tensor.shape[3] * size, *(tensor.stride(axis) * size for axis in AXES[order][:3]))


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes, with a usual stride for each dimension of one element.

    Such a stride is never taken, yet torch refuses to view a tensor as wider elements if it is odd.
    """
    row = tensor.shape[-1] if tensor.dim() else 0
    strides = [has if size > 1 else row for size, has in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(tensor.shape, strides)


def alike(name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Check that the tensors of all layers can be served by one set of strides."""
    first = tensors[0]
    need(first.dim() == 4, f"{name} tensors have four dimensions, pages first; got {tuple(first.shape)}")
    need(all(size > 0 for size in first.shape), f"{name} tensors must not be empty; got {tuple(first.shape)}")
    need(first.stride(3) == 1, f"{name}'s last dimension must be dense; its stride is {first.stride(3)}")
    below = first.shape[3]
    for stride, size in sorted((first.stride(axis), first.shape[axis]) for axis in range(3) if first.shape[axis] > 1):
        need(stride >= below, f"{name}'s strides {first.stride()} of {tuple(first.shape)} let rows share memory")
        below = stride * (size - 1) + below
    for layer, tensor in enumerate(tensors):
        same = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device) == (
            first.shape, first.stride(), first.dtype, first.device)  # fmt: skip
        need(same, f"{name} of layer {layer} differs from layer 0 in shape, strides, dtype or device")


@dataclass(frozen=True, slots=True)
class KindSlice:
    """One kind of a slice: units and layers in the pool, and a layer's staged bytes of a token."""

    unit: int
    units: int
    layer: int
    layers: int
    width: int


@dataclass(frozen=True, slots=True)
class Slice:
    """One share of a cut: what it has of each kind of the pool."""

    kinds: tuple[KindSlice, ...]
    #: of each kind, the first of its digests among the slice's: V's are K's, those of named caches are apart
    entries: tuple[int, ...]
    digests: int

    @property
    def heads(self) -> int:
        """Heads of K, which are those of V."""
        return self.kinds[0].units

    @property
    def layers(self) -> int:
        """Layers of K, which are those of V."""
        return self.kinds[0].layers

    @property
    def token_bytes(self) -> int:
        return sum(kind.layers * kind.width for kind in self.kinds)


class SliceCopy:
    """The slices of shares in a pool; `side` chooses the source's or the reader's offsets."""

    def __init__(self, pool: Pool, side: Side, shares: tuple[Share, ...]) -> None:
        need(len(shares) > 0, f"a {side} needs at least one part")
        self.slices = tuple(self._slice(pool, side, share) for share in shares)
        self.token_bytes = tuple(part.token_bytes for part in self.slices)
        self.entries = sum(part.digests for part in self.slices)
        """Digests that a call makes."""
        self.plans: dict[Any, Any] = {}
        """What kernels keep for this cut, each under a key of its own."""
        if side == "scatter":
            self._disjoint()

    @staticmethod
    def _slice(pool: Pool, side: Side, share: Share) -> Slice:
        gather, found = side == "gather", list[KindSlice]()
        for number, (tensors, grain, held) in enumerate(zip(pool.kinds, pool.grains, pool.units, strict=True)):
            piece = share.piece(number)
            head, units = piece.src_unit if gather else piece.dst_unit, piece.units
            layer, layers = piece.src_layer if gather else piece.dst_layer, piece.layers
            fits = head >= 0 and (units > 0 or share.pieces) and head + units <= held
            need(fits, f"share takes heads {head}..{head + units - 1} of a pool of {held}")
            fits = layer >= 0 and (layers > 0 or share.pieces) and layer + layers <= len(tensors)
            need(fits, f"share takes layers {layer}..{layer + layers - 1} of a pool of {len(tensors)}")
            found.append(KindSlice(head, units, layer, layers, units * grain.row))
        sizes = [kind.layers * kind.units for kind in found]
        starts = [sum(sizes[:at]) for at in range(len(sizes))] if share.pieces else [0] * len(sizes)
        part = Slice(tuple(found), tuple(starts), sum(sizes) if share.pieces else sizes[0])
        need(part.token_bytes > 0, "a share has nothing of any kind")
        return part

    def _disjoint(self) -> None:
        for i, one in enumerate(self.slices):
            for a, b in (pair for other in self.slices[:i] for pair in zip(one.kinds, other.kinds, strict=True)):
                heads = a.unit < b.unit + b.units and b.unit < a.unit + a.units
                layers = a.layer < b.layer + b.layers and b.layer < a.layer + a.layers
                need(not (heads and layers), "two parts of one scatter write the same head of the same layer")
