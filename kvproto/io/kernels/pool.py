"""A rank's paged KV as kernels see it, and the cut of it that a send moves.

A *pool* is one rank's KV cache as its engine made it: one K tensor a layer and, unless the model keeps none, one V
tensor a layer, each `[page, token, head, dim]` (NHD) or `[page, head, token, dim]` (HND). Only the innermost
dimension must be dense. The other strides are taken from the tensors, so an engine that interleaves K and V, or that
hands out a window of something larger, can pass its views as they are. All layers must look alike, because one
launch serves all of them with one set of strides.

A *cut* is what one or several shares select from a pool, resolved once and kept with the pool: byte offsets, byte
widths, and the checks that need no page table. Nothing here knows a dtype: copies are bit copies, and an element is
so many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal

import torch

from kvproto.call_arguments import checked
from kvproto.errors import KvprotoError
from kvproto.layout.plan import Share

Side = Literal["gather", "scatter"]


class KernelError(KvprotoError, ValueError):
    """A pool, share, table or buffer that a gather or scatter cannot work with; the message says why."""


def need(condition: object, message: str) -> None:
    """Raise `KernelError(message)` unless the condition holds."""
    if not condition:
        raise KernelError(message)


@dataclass(frozen=True, slots=True)
class ByteGeometry:
    """The byte geometry of the K tensors, or of the V tensors, of a pool."""

    row: int
    """Bytes of one head of one token."""
    page: int
    """Bytes from a page to the next; likewise `token` and `head`."""
    token: int
    head: int

    @property
    def align(self) -> int:
        """The largest power of two, up to 16, that divides every step and the row."""
        return gcd(16, self.row, self.page, self.token, self.head)


class Pool:
    """A rank's paged KV.

    `k` and `v` hold one tensor a local layer, shaped as `order` says; `v` is empty where the model keeps no V. K and
    V may differ in dim. The stride of a dimension of one element does not matter, whatever it is. Raises KernelError if
    the tensors disagree with each other or with `page_size`.
    """

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
        self.k, self.v, self.order = [_plain(each) for each in k], [_plain(each) for each in v], order
        self.kinds: tuple[list[torch.Tensor], ...] = (self.k, self.v) if self.v else (self.k,)
        for name, tensors in zip("KV", self.kinds, strict=False):
            _alike(name, tensors)
        token_axis, head_axis = (1, 2) if order == "NHD" else (2, 1)
        self.axes = (0, token_axis, head_axis, 3)
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
            same = all(other.shape[axis] == first.shape[axis] for axis in (0, 1, 2))
            need(same, f"K {tuple(first.shape)} and V {tuple(other.shape)} may differ in the last dimension only")
            need(other.element_size() == self.itemsize, "K and V elements must have the same size")
            need(
                other.dtype == first.dtype,
                f"K is {first.dtype} and V {other.dtype}: a layout has one dtype; if they do differ, give both as "
                "torch.uint8 and name both in Layout.dtype",
            )
            need(other.device == self.device, f"K is on {self.device} but V on {other.device}")
        self.grains = tuple(self._grain(tensors[0]) for tensors in self.kinds)
        self._cuts: dict[tuple[Side, tuple[Share, ...]], SliceCopy] = {}

    def _grain(self, tensor: torch.Tensor) -> ByteGeometry:
        row = tensor.shape[3] * self.itemsize
        # The stride of a dimension of one element says nothing; the row's size then keeps the alignment.
        steps = [tensor.stride(axis) * self.itemsize if tensor.shape[axis] > 1 else row for axis in self.axes[:3]]
        return ByteGeometry(row, *steps)

    def cut(self, side: Side, shares: tuple[Share, ...]) -> SliceCopy:
        """Return the checked cut of these shares, cached; of two threads' results the first stays."""
        found = self._cuts.get((side, shares))
        if found is None:
            found = self._cuts.setdefault((side, shares), SliceCopy(self, side, shares))
        return found

    def part_bytes(self, share: Share, tokens: int) -> int:
        """Bytes of the staged part of a share."""
        return share.layers * share.heads * tokens * sum(grain.row for grain in self.grains)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes, with a usual stride for each dimension of one element.

    Such a stride is never taken, yet torch refuses to view a tensor as wider elements if it is odd.
    """
    row = tensor.shape[-1] if tensor.dim() else 0
    usual = [row] * (tensor.dim() - 1) + [1]
    dimensions = zip(tensor.shape, tensor.stride(), usual, strict=False)
    strides = [want if size == 1 else has for size, has, want in dimensions]
    return tensor if strides == list(tensor.stride()) else tensor.as_strided(tensor.shape, strides)


def _alike(name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Check that the tensors of all layers can be served by one set of strides."""
    first = tensors[0]
    need(first.dim() == 4, f"{name} tensors have four dimensions, pages first; got {tuple(first.shape)}")
    need(all(size > 0 for size in first.shape), f"{name} tensors must not be empty; got {tuple(first.shape)}")
    dense = first.stride(3) == 1 or first.shape[3] == 1
    need(dense, f"{name}'s last dimension must be dense; its stride is {first.stride(3)}")
    below = first.shape[3]
    for stride, size in sorted((first.stride(axis), first.shape[axis]) for axis in range(3) if first.shape[axis] > 1):
        need(stride >= below, f"{name}'s strides {first.stride()} of {tuple(first.shape)} let rows share memory")
        below = stride * (size - 1) + below
    for layer, tensor in enumerate(tensors):
        same = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device) == (
            first.shape, first.stride(), first.dtype, first.device)  # fmt: skip
        need(same, f"{name} of layer {layer} differs from layer 0 in shape, strides, dtype or device")


@dataclass(frozen=True, slots=True)
class Slice:
    """One share of a cut: its heads and layers in the pool, and the width of a token of one layer."""

    head: int
    heads: int
    layer: int
    layers: int
    widths: tuple[int, ...]
    """Staged bytes of one token of one layer: of K and, where there is any, of V."""


class SliceCopy:
    """The slices of shares in a pool; `side` chooses the source's or the reader's offsets."""

    def __init__(self, pool: Pool, side: Side, shares: tuple[Share, ...]) -> None:
        need(len(shares) > 0, f"a {side} needs at least one part")
        self.slices = tuple(self._slice(pool, side, share) for share in shares)
        self.token_bytes = tuple(part.layers * sum(part.widths) for part in self.slices)
        self.entries = sum(part.layers * part.heads for part in self.slices)
        """Digests that a call makes."""
        self.plans: dict[Any, Any] = {}
        """What kernels keep for this cut, each under a key of its own."""
        if side == "scatter":
            self._disjoint()

    @staticmethod
    def _slice(pool: Pool, side: Side, share: Share) -> Slice:
        gather = side == "gather"
        head = share.src_head if gather else share.dst_head
        layer = share.src_layer if gather else share.dst_layer
        fits = head >= 0 and share.heads > 0 and head + share.heads <= pool.heads
        need(fits, f"share takes heads {head}..{head + share.heads - 1} of a pool of {pool.heads}")
        fits = layer >= 0 and share.layers > 0 and layer + share.layers <= pool.layers
        need(fits, f"share takes layers {layer}..{layer + share.layers - 1} of a pool of {pool.layers}")
        widths = tuple(share.heads * grain.row for grain in pool.grains)
        return Slice(head, share.heads, layer, share.layers, widths)

    def _disjoint(self) -> None:
        for i, a in enumerate(self.slices):
            for b in self.slices[:i]:
                heads = a.head < b.head + b.heads and b.head < a.head + a.heads
                layers = a.layer < b.layer + b.layers and b.layer < a.layer + a.layers
                need(not (heads and layers), "two parts of one scatter write the same head of the same layer")
