"""CachePool: a rank's pool of named caches, with a claim on every cache tensor of its engine.

An engine gives its tensors by the names that they have there, and for each part of the layout one view a layer: the
tensor itself, or the part of a page that holds these rows (as the keys of an index before their scales).  Each tensor
is claimed by the views that lie in it.  A tensor that no view lies in has to be left out by name, with a reason, so
that no cache is forgotten: its tokens would be decoded from whatever the decode rank has there.

Each cache that travels at the end is a pool of its own within it (`CachePool.ends`).  Of state its pages are slots, of
one token each, so kernels move a room's state by one entry of a table.  All rooms share one table, of every slot.  Of a
window they are pages of the layout's size, as many as the engine has for that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kvproto.call_arguments import checked
from kvproto.io.kernels.pool import AXES, ByteGeometry, Pool, alike, grain_of, need, plain
from kvproto.layout.caches import Kind
from kvproto.layout.sharding import Layout

#: pages of a pool without memory, as many as a message can number
ANY_PAGE = 1 << 32
SlotOf = Sequence[int] | Mapping[str, Sequence[int]]
Span = tuple[int, int]  #: addresses of the first byte, and behind the last one


class CachePool(Pool):
    """The pool of a rank whose layout names its caches.

    A part's tensor of one layer is `[page, token, unit, elements]` (NHD) or `[page, unit, token, elements]` (HND), its
    last dimension dense.  Where the rank holds one unit, the unit's dimension may be missing.  A part of state is
    `[slot, unit, elements]`.

    Args:
        layout: of the group, made by `Layout.of_caches`
        rank: the rank in it
        parts: by "cache.part", one tensor for each layer of that cache that the rank holds, by layer
        tensors: every cache tensor of the engine, by name
        left_out: why a tensor, or the rest of one that has parts, is in none of the caches, by name
        slot_of: by cache that travels at the end, which of a room's slots, or tables of its window, each layer that the
            rank holds is in (not named: a room has one); a sequence where there is one such cache

    Raises:
        KernelError: parts or tensors are missing, of another form than the layout says, or claimed by nothing

    """

    @checked
    def __init__(
        self, layout: Layout, rank: int, parts: Mapping[str, Sequence[torch.Tensor]],
        tensors: Mapping[str, torch.Tensor], left_out: Mapping[str, str] | None = None, slot_of: SlotOf = (),
    ) -> None:  # fmt: skip
        # Not Pool's own: there is no K or V whose one dim, dtype or number of heads could be asked for.
        need(layout.named, "a pool of caches needs a layout that names them: Layout.of_caches")
        layouts = [layout, *(layout.ends if layout.state is not None else ())]
        names = {kind.name for each in layouts for kind in each.kinds}
        need(set(parts) == names, f"parts are {', '.join(sorted(parts))}; the layout has {', '.join(sorted(names))}")
        held = [_views(each, rank, parts) for each in layouts]
        some = [view for views in held for found in views for view in found]
        need(some, f"rank {rank} holds no layer of any cache")
        need(len({view.device for view in some}) == 1, "all parts of a pool must be on one device")
        self._hold(layout, rank, held[0], some[0])
        if layout.state is not None:
            named = _slots_by_cache(layout, slot_of)
            blocks = zip(layout.ends, layout.state.blocks, held[1:], strict=True)
            self.ends = tuple(
                _end(each, rank, views, block, named.get(each.name, ())) for each, block, views in blocks if any(views)
            )
        _need_claims(some, tensors, left_out or {})

    def _hold(self, layout: Layout, rank: int, views: Sequence[list[torch.Tensor]], near: torch.Tensor) -> None:
        """Describe these views, by kind and layer; `near`: a tensor on their device."""
        pages = sorted({view.shape[0] for found in views for view in found})
        need(len(pages) <= 1, f"parts of {pages} pages: all caches have the pages of one table")
        self.k, self.v, self.kinds, self.of = [], [], tuple(views), (layout, rank)
        self.order, self.axes = layout.order, AXES[layout.order]
        self.device, self.gpu, self.dtype, self.itemsize = near.device, near.get_device(), torch.uint8, 1
        self.page_size, self.layers, self.heads = layout.page_size, layout.layers_of(rank)[1], 0
        #: a rank that holds state alone has no memory that page numbers could be beyond
        self.pages = pages[0] if pages else ANY_PAGE
        self.units = tuple(layout.units_of(kind, rank)[1] for kind in layout.kinds)
        self.grains = tuple(
            grain_of(found[0], layout.order) if found else ByteGeometry(*(kind.row,) * 4)
            for kind, found in zip(layout.kinds, views, strict=True)
        )
        self.forget_cuts()


def _slots_by_cache(layout: Layout, slot_of: SlotOf) -> Mapping[str, Sequence[int]]:
    names = [each.name for each in layout.ends]
    if isinstance(slot_of, Mapping):
        need(set(slot_of) <= set(names), f"slot_of is of {', '.join(slot_of)}; at the end travel {', '.join(names)}")
        return slot_of
    need(len(names) == 1 or not slot_of, f"slot_of: say of which cache it is, of {', '.join(names)}")
    return {names[0]: slot_of}


def _end(
    layout: Layout, rank: int, views: Sequence[list[torch.Tensor]], block: tuple[int, int], slot_of: Sequence[int]
) -> CachePool:  # fmt: skip
    pool = CachePool.__new__(CachePool)
    pool._hold(layout, rank, views, next(view for found in views for view in found))  # noqa: SLF001  # its own class
    pool.slots, pool.block = torch.arange(pool.pages, device=pool.device), block
    mine = len(views[0])
    told = f"slot_of names {len(slot_of)} layers of {layout.name}, and rank {rank} holds {mine}"
    need(len(slot_of) in (0, mine), told)
    pool.slot_of = tuple(slot_of)
    return pool


def _views(layout: Layout, rank: int, parts: Mapping[str, Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Return the rank's views of each kind as bytes with four dimensions."""
    views = [[_rows(layout, rank, kind, view) for view in parts[kind.name]] for kind in layout.kinds]
    for kind, found in zip(layout.kinds, views, strict=True):
        held = layout.rows_of(kind, rank)[1]
        need(len(found) == held, f"{len(found)} tensors of {kind.name}; rank {rank} holds {held} layers of it")
        if found:
            alike(kind.name, found)
    return views


def _rows(layout: Layout, rank: int, kind: Kind, view: torch.Tensor) -> torch.Tensor:
    """The view as bytes with four dimensions."""
    units, (_, slot, unit, _) = layout.units_of(kind, rank)[1], AXES[layout.order]
    if view.dim() == 2 and units == 1 and kind.at_end:
        view = view.unsqueeze(1)
    if view.dim() == 3 and (kind.at_end or units == 1):
        view = view.unsqueeze(slot if kind.at_end else unit)
    form, view = f"{kind.name} is {tuple(view.shape)} of {view.dtype}", plain(view)
    need(view.dim() == 4 and view.stride(3) == 1, f"{form}: it needs four dimensions, the last one dense")
    view = view.view(torch.uint8)
    found, wanted = tuple(view.shape[axis] for axis in AXES[layout.order][1:]), (layout.page_size, units, kind.row)
    need(found == wanted, f"{form}: rank {rank} needs (tokens, units, bytes) = {wanted} in a page, it has {found}")
    return view


def _need_claims(
    views: Sequence[torch.Tensor], tensors: Mapping[str, torch.Tensor], left_out: Mapping[str, str]
) -> None:  # fmt: skip
    """Check that each view lies in a tensor, and each tensor's bytes in views, or have a reason."""
    unknown = sorted(set(left_out) - set(tensors))
    need(not unknown, f"left_out names {', '.join(unknown)}, which is none of the engine's tensors")
    spans, inside = {name: _span(tensor) for name, tensor in tensors.items()}, {name: list[Span]() for name in tensors}
    claimed = dict.fromkeys(tensors, 0)
    for view in views:
        first, end = _span(view)
        around = [name for name, (begin, stop) in spans.items() if begin <= first and end <= stop]
        need(around, "a part lies in none of the engine's tensors: name every cache tensor in `tensors`")
        for name in around:
            inside[name].append((first, end))
            claimed[name] += view.nbytes
    for name, tensor in tensors.items():
        told, remedy = left_out.get(name), "give it a part, or leave it out by name with the reason (left_out)"
        need(claimed[name] or told, f"tensor {name!r} is in no cache: {remedy}")
        rest = tensor.nbytes - claimed[name]
        ends = _ends(spans[name], inside[name]) if inside[name] else 0
        # An engine may round its tensor up to whole pages: less than a page at its ends belongs to no token.
        rounded = 0 < rest <= ends < tensor.nbytes / views[0].shape[0]
        need(rest <= 0 or rounded or told, f"{rest} of {tensor.nbytes} bytes of {name!r} are in no part: {remedy}")
        need(rest > 0 or not claimed[name] or told is None, f"tensor {name!r} is left out, and parts lie in all of it")


def _ends(whole: Span, parts: Sequence[Span]) -> int:
    """Return the bytes before the first part and behind the last one."""
    return min(first for first, _ in parts) - whole[0] + whole[1] - max(end for _, end in parts)


def _span(tensor: torch.Tensor) -> Span:
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (steps + 1) * tensor.element_size()
