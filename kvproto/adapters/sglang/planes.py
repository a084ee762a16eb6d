"""Plane: makes named caches of SGLang's latents, indices, drafts, state and windows.

`KVArgs` lists a tensor a layer: latents or all K and then all V of the model, then the same of its draft, whose pages
have the target's numbers.  Sparse attention (DSA) adds a tensor for each layer that has an index of its own; in a page
all keys of 128 bytes come first, then all scales of four.  SGLang sends an index with the last chunk; here it leaves
with the tokens that it is of.

Recurrent state has a tensor for each layer of a convolution and of a matrix, a row a slot (`recurrence`).  A hybrid
model's layers have SGLang's own numbers.  Layers with a window have a tensor or two each in a pool of their own
(`windows`).

A draft's tensors say nothing of their heads, so a draft must have rows of the target's form.  A tensor of another form
is refused by name, and so is one that lies in no cache (`kvproto.io.kernels.cache_pool`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from msgspec.structs import replace

from kvproto.adapters.geometry import INDEX
from kvproto.adapters.rules import FORMS, need_carried
from kvproto.adapters.sglang.memory import view
from kvproto.adapters.stage_caches import Join, with_missing
from kvproto.errors import ArgumentError
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.caches import ALL, END, WINDOW, Cache, CachePart
from kvproto.layout.sharding import Layout

if TYPE_CHECKING:
    from kvproto.adapters.sglang.pools import Instance
    from kvproto.adapters.sglang.windows import Window


#: name, address, bytes, and those of a page
Tensor = tuple[str, int, int, int]


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


#: the caches of recurrent state and of windows
STATE, LOCAL = "state", "window"


def named(args: Any, *, mla: bool) -> bool:
    """Whether the instance has more than K and V of equal layers."""
    return mla or bool(args.state_types) or drafts_of(args) > 0


def drafts_of(args: Any) -> int:
    """Return how many tensors a draft has; a release before drafts says nothing of them."""
    return getattr(args, "num_draft_entries", 0)


def layout_of_caches(args: Any, instance: Instance, *, mla: bool, join: Join = list) -> Layout:
    """Return the layout of the instance's caches; ArgumentError names a tensor that no part describes.

    `join`: as `adapters.stage_caches` has it.
    """
    planes, tp = list(planes_of(args, instance, mla=mla)), instance.tp
    layers, caches = sum(instance.stages) or 1 + max(plane.layer for plane in planes), []
    for name, some in groupby(sorted(planes), key=lambda plane: plane.cache):
        parts, held = list[CachePart](), set[tuple[int, ...]]()
        for part, rows in groupby(some, key=lambda plane: plane.part):
            found = list(rows)
            widths, local = {(plane.row, plane.page) for plane in found}, max(1, found[0].units // tp)
            if len(widths) > 1 or found[0].row % local:
                _refuse(f"layers of {name}.{part} that are not alike or not whole heads ({sorted(widths)} bytes)")
            parts.append(CachePart(part, found[0].units, found[0].row // local))
            held.add(tuple(plane.layer for plane in found))
        if len(held) > 1:
            _refuse(f"parts of {name} on different layers ({sorted(held)})")
        (on,) = held
        dtypes = {"index": "", STATE: instance.recurrence.dtype if instance.recurrence is not None else ""}
        travels, dtype = {STATE: END, LOCAL: WINDOW}.get(name, ALL), dtypes.get(name, args.kv_cache_dtype_str)
        span = instance.window.span(args.page_size) if instance.window is not None and name == LOCAL else 0
        caches.append(Cache(name, tuple(parts), on, dtype, travels, window=span))
    every = tuple(range(layers))
    whole = [replace(cache, layers=() if cache.layers == every else cache.layers) for cache in join(caches)]
    return Layout.of_caches(whole, layers=layers, page_size=args.page_size, **instance.cut)


def pool_of_caches(args: Any, layout: Layout, instance: Instance, *, mla: bool) -> CachePool:
    """Return this rank's pool: views of SGLang's own memory, [page, token, unit, byte].

    A slot of state is a page of one token.
    """
    planes, parts = sorted(planes_of(args, instance, mla=mla)), dict[str, list[torch.Tensor]]()
    whole = {plane.name: view(plane.address, (plane.nbytes,), instance.device) for plane in planes}
    for each in (layout, *layout.ends):
        named = {kind.name: each.units_of(kind, instance.rank)[1] for kind in each.kinds}
        held = [plane for plane in planes if f"{plane.cache}.{plane.part}" in named]
        pages = min((plane.nbytes // plane.page for plane in held), default=0)  # other stages have it
        for plane in held:
            units = named[name := f"{plane.cache}.{plane.part}"]
            row = plane.row // units
            shape, steps = (pages, each.page_size, units, row), (plane.page, plane.row, row, 1)
            parts.setdefault(name, []).append(whole[plane.name].as_strided(shape, steps, plane.offset))
    # every tensor that SGLang names, so that one without a plane is refused
    tensors = {name: whole.get(name, torch.empty(0, dtype=torch.uint8)) for name, *_ in _tensors(args)}
    left_out = {name: "its layer has no rows of its own" for name, _, nbytes, _ in _tensors(args) if not nbytes}
    return CachePool(layout, instance.rank, with_missing(parts, layout.named), tensors, left_out)


def planes_of(args: Any, instance: Instance, *, mla: bool) -> Iterator[Plane]:
    """Yield the planes of all tensors that SGLang hands over; ArgumentError: one has another form."""
    cache, parts, units = ("mla", ("latent",), 1) if mla else ("kv", ("k", "v"), instance.heads)
    entries, page = list(_tensors(args, "kv")), args.page_size
    drafts = drafts_of(args)
    target, draft = entries[: len(entries) - drafts], entries[len(entries) - drafts :]
    if not target and instance.stages:
        raise ArgumentError(
            f"stage {instance.stage} has no layer that attends fully, so nothing says how many tokens its pages have: "
            "give each stage one of them (SGLANG_PP_LAYER_PARTITION), or serve with fewer stages"
        )
    if not target or len(target) % len(parts) or len(draft) % len(parts):
        _refuse(f"{len(target)} tensors of a model and {drafts} of its draft, of which a layer has {len(parts)}")
    layers, more = len(target) // len(parts), len(draft) // len(parts)
    forms = [target[at * layers][3] for at in range(len(parts))]
    # of a hybrid model SGLang says which layers have KV; a draft's come behind them
    named, attends = getattr(args, "kv_layer_ids", None), instance.here(range(sum(instance.stages) or layers))
    if "swa" in (kind.value for kind in args.state_types) and (known := instance.window) is not None:
        yield from _windows(args, known, instance.here(known.layers), parts)
        attends = instance.here(known.full)
    if not named and layers != len(attends):
        _refuse(f"{layers} layers that attend fully, where the model has {len(attends)}")
    numbers = named or attends * len(parts) + [*range(layers, layers + more)]
    for name, some, first, count in ((cache, target, 0, layers), ("draft", draft, len(target), more)):
        for at, (tensor, address, nbytes, item) in enumerate(some):
            kind, layer = at // count, numbers[first + at % count]
            if item != forms[kind] or item % page:
                _refuse(f"rows of {name} that are unlike the model's first ({tensor}: {item} bytes a page)")
            yield Plane(name, parts[kind], units, layer, tensor, address, nbytes, item, 0, item // page)
    yield from _indices(args, instance)
    yield from _recurrent(args, instance)


def _windows(args: Any, known: Window, layers: list[int], parts: tuple[str, ...]) -> Iterator[Plane]:
    tensors, page = list(_tensors(args, "swa")), args.page_size
    if len(tensors) != len(parts) * len(layers):
        _refuse(f"{len(tensors)} tensors of a window, which {len(layers)} layers have")
    numbered = product(parts, layers)
    for (part, layer), (tensor, address, nbytes, item) in zip(numbered, tensors, strict=True):
        if item % page:
            _refuse(f"a window of {item} bytes in a page of {page} tokens ({tensor})")
        yield Plane(LOCAL, part, known.heads, layer, tensor, address, nbytes, item, 0, item // page)


def _indices(args: Any, instance: Instance) -> Iterator[Plane]:
    page = args.page_size
    for layer, (tensor, address, nbytes, item) in enumerate(_tensors(args, "dsa"), instance.first):
        if not nbytes:
            continue  # its layer attends by another layer's index
        offset = 0
        if item != page * sum(INDEX.values()):
            _refuse(f"an index of {item} bytes in a page of {page} tokens ({tensor})")
        for part, width in INDEX.items():
            yield Plane("index", part, 1, layer, tensor, address, nbytes, item, offset, width)
            offset += page * width


def _recurrent(args: Any, instance: Instance) -> Iterator[Plane]:
    """Yield the segments and matrices of each layer's state; a slot takes the place of a page."""
    kinds, known = [kind.value for kind in args.state_types], instance.recurrence
    if "mamba" not in kinds:
        return
    at = kinds.index("mamba")
    about = zip(_tensors(args, "mamba"), args.state_dim_per_tensor[at], args.state_layer_ids[at], strict=True)
    for (tensor, address, nbytes, item), dim, layer in about:
        if known is None or not (pieces := known.pieces(item, dim, instance.tp)):
            _refuse(f"a state of {item} bytes a slot, {dim} of its channels or heads here ({tensor})")
        for part, units, offset, row in pieces:
            yield Plane(STATE, part, units, layer, tensor, address, nbytes, item, offset, row)


def _tensors(args: Any, only: str = "") -> Iterator[Tensor]:
    """Yield name, address, bytes and bytes of a page of every tensor, the states' last; or of one kind."""
    kinds = {"kv": (args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens)}
    if args.state_types:
        states = zip(args.state_data_ptrs, args.state_data_lens, args.state_item_lens, strict=True)
        kinds |= {kind.value: lists for kind, lists in zip(args.state_types, states, strict=True)}
    for kind, lists in kinds.items():
        for at, each in enumerate(zip(*lists, strict=True)):
            if only in ("", kind):
                yield f"{kind} {at}", *each


def _refuse(form: str) -> NoReturn:
    need_carried([f"{form}: {FORMS.remedy}"])
    raise AssertionError("it is refused")
