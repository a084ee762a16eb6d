"""Plane: makes named caches of SGLang's latents, index keys and drafts, from their addresses.

`KVArgs` lists a tensor a layer: latents or all K and then all V of the model, then the same of its draft, whose pages
have the target's numbers.  Sparse attention (DSA) adds a tensor for each layer that has an index of its own; in a page
all keys of 128 bytes come first, then all scales of four.  SGLang sends an index with the last chunk; here it leaves
with the tokens that it is of.

A draft's tensors say nothing of their heads, so a draft must have rows of the target's form.  A tensor of another form
is refused by name, and so is one that lies in no cache (`kvproto.io.kernels.cache_pool`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import torch

from kvproto.adapters.geometry import INDEX
from kvproto.adapters.rules import FORMS, need_carried
from kvproto.adapters.sglang.memory import view
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.sharding import Layout


class Plane(NamedTuple):
    """A part of one layer in a tensor of SGLang: rows of a page, a token after another."""

    cache: str
    part: str
    units: int
    layer: int
    #: the tensor's name, its address and bytes, those of a page, and the first of this part in a page
    name: str
    address: int
    nbytes: int
    page: int
    offset: int
    #: of a token, in all units that the rank has
    row: int


def named(args: Any, *, mla: bool) -> bool:
    """Whether the instance has more than K and V of equal layers."""
    return mla or bool(args.state_types) or getattr(args, "num_draft_entries", 0) > 0


def layout_of_caches(args: Any, tp: int, heads: int, *, mla: bool) -> Layout:
    """Return the layout of the instance's caches; ArgumentError names a tensor that no part describes."""
    planes = list(planes_of(args, heads, mla=mla))
    local = {plane.part: max(1, plane.units // tp) for plane in planes}
    layers = 1 + max(plane.layer for plane in planes)
    caches = []
    for name, some in groupby(sorted(planes), key=lambda plane: plane.cache):
        parts, held = list[CachePart](), set[tuple[int, ...]]()
        for part, rows in groupby(some, key=lambda plane: plane.part):
            found = list(rows)
            widths = {(plane.row, plane.page) for plane in found}
            if len(widths) > 1 or found[0].row % local[part]:
                _refuse(f"layers of {name}.{part} that are not alike or not whole heads ({sorted(widths)} bytes)")
            parts.append(CachePart(part, found[0].units, found[0].row // local[part]))
            held.add(tuple(plane.layer for plane in found))
        if len(held) > 1:
            _refuse(f"parts of {name} on different layers ({sorted(held)})")
        (on,) = held
        every = on == tuple(range(layers))
        dtype = "" if name == "index" else args.kv_cache_dtype_str
        caches.append(Cache(name, tuple(parts), () if every else on, dtype))
    return Layout.of_caches(caches, layers=layers, page_size=args.page_size, tp=tp)


def pool_of_caches(args: Any, layout: Layout, rank: int, heads: int, device: str, *, mla: bool) -> CachePool:
    """This rank's pool: views of SGLang's own memory, [page, token, unit, byte]."""
    planes = list(planes_of(args, heads, mla=mla))
    pages = min(plane.nbytes // plane.page for plane in planes)
    units = {kind.name: layout.units_of(kind, rank)[1] for kind in layout.kinds}
    whole = {plane.name: view(plane.address, (plane.nbytes,), device) for plane in planes}
    parts: dict[str, list[torch.Tensor]] = {kind.name: [] for kind in layout.kinds}
    for plane in sorted(planes):
        name = f"{plane.cache}.{plane.part}"
        row = plane.row // units[name]
        shape, steps = (pages, layout.page_size, units[name], row), (plane.page, plane.row, row, 1)
        parts[name].append(whole[plane.name].as_strided(shape, steps, plane.offset))
    # every tensor that SGLang names, so that one without a plane is refused
    tensors = {name: whole.get(name, torch.empty(0, dtype=torch.uint8)) for name, *_ in _tensors(args)}
    left_out = {name: "its layer has no rows of its own" for name, _, nbytes, _ in _tensors(args) if not nbytes}
    return CachePool(layout, rank, parts, tensors, left_out)


def planes_of(args: Any, heads: int, *, mla: bool) -> Iterator[Plane]:
    """Yield the planes of all tensors that SGLang hands over; ArgumentError: one has another form."""
    cache, parts, units = ("mla", ("latent",), 1) if mla else ("kv", ("k", "v"), heads)
    entries, page = [each for each in _tensors(args) if each[0].startswith("kv")], args.page_size
    drafts = getattr(args, "num_draft_entries", 0)
    target, draft = entries[: len(entries) - drafts], entries[len(entries) - drafts :]
    if not target or len(target) % len(parts) or len(draft) % len(parts):
        _refuse(f"{len(target)} tensors of a model and {drafts} of its draft, of which a layer has {len(parts)}")
    layers, more = len(target) // len(parts), len(draft) // len(parts)
    forms = [target[at * layers][3] for at in range(len(parts))]
    for name, some, first, count in ((cache, target, 0, layers), ("draft", draft, layers, more)):
        for at, (tensor, address, nbytes, item) in enumerate(some):
            kind, layer = divmod(at, count)
            if item != forms[kind] or item % page:
                _refuse(f"rows of {name} that are unlike the model's first ({tensor}: {item} bytes a page)")
            yield Plane(name, parts[kind], units, first + layer, tensor, address, nbytes, item, 0, item // page)
    for layer, (tensor, address, nbytes, item) in enumerate(each for each in _tensors(args) if each not in entries):
        if not nbytes:
            continue  # its layer attends by another layer's index
        offset = 0
        if item != page * sum(INDEX.values()):
            _refuse(f"an index of {item} bytes in a page of {page} tokens ({tensor})")
        for part, width in INDEX.items():
            yield Plane("index", part, 1, layer, tensor, address, nbytes, item, offset, width)
            offset += page * width


def _tensors(args: Any) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, address, bytes and bytes of a page of every tensor, the states' after the KV's."""
    for at, each in enumerate(zip(args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens, strict=True)):
        yield f"kv {at}", *each
    if not args.state_types:
        return
    states = args.state_data_ptrs, args.state_data_lens, args.state_item_lens
    for kind, *lists in zip(args.state_types, *states, strict=True):
        for at, state in enumerate(zip(*lists, strict=True)):
            yield f"{kind.value} {at}", *state


def _refuse(form: str) -> None:
    need_carried([f"{form}: {FORMS.remedy}"])
