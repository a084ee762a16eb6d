"""Geometry: makes a pool and a layout from an engine's cache tensors and their dimensions' names.

Engines keep the same rows in many forms: K and V in two tensors or in one, all layers in one block, heads before or
after tokens or outside of blocks, slots without blocks.  A form names each dimension by a letter, in the order of the
*tensor*; the order in memory is read from its strides, so a permuted view works, too:

    L layers   B blocks   N tokens of a block   S slots (blocks and tokens in one)   H heads   C content   2 K and V

    "BHNC"   a layer as logical [blocks, heads, tokens, content], however it lies     (a tensor a layer)
    "2BNHC"  K and V of all blocks one after the other                                "B2NHC"  side by side
    "LBNHC"  all layers in one tensor; also "BLNHC", "BHLNC", "LHBNC", ...            (one tensor)
    "SHC"    flat: a slot a token; `page_size` says how many are a page               "BNC"  a latent cache, no heads

`C` is one row.  Where K and V share it, either it stays one (the pool then has no V, which serves as long as both sides
do it), or `k_dim` says how much of it is K.

*Opaque* blocks are for engines that rearrange rows inside a block (K transposed for a CPU's kernels): no row is dense,
so a whole block of a head moves as one.  One token of the transfer is then one block, and all counts of tokens are
counts of blocks: `Geometry.units` converts them.  Both sides must have the same blocks, inside and out, so `opaque`
names the arrangement, and the name becomes part of the dtype that the two compare.

A form that no pool can express is refused by name, with a remedy.  This is plain torch; it knows no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kvproto.errors import ArgumentError
from kvproto.io.kernels.cache_pool import CachePool, SlotOf
from kvproto.io.kernels.pool import KernelError, Pool
from kvproto.layout.sharding import Layout

#: parts of a sparse attention's index (DSA), in the order of a page or block: their bytes a token
INDEX = {"key": 128, "scale": 4}
Reason = Literal[
    "no-tensor", "unknown-dimension", "wrong-dimensions", "layers-not-alike", "k-and-v", "rows-not-dense",
    "blocks-not-dense", "slots-not-pages", "not-this-rank", "no-pool",
]  # fmt: skip


class GeometryError(ArgumentError):
    """Tensors that no pool can express: ``reason`` is its name, ``sentence`` cause and remedy."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(f"{reason}: {sentence}")
        self.reason: Reason = reason
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Geometry:
    """A rank's pool, its group's layout, and how many of the engine's tokens one token of the transfer is."""

    pool: Pool
    layout: Layout
    unit: int = 1
    #: of each of the engine's block tables for windows: the cache whose rows they are; empty: no layer here is in it
    windows: tuple[str, ...] = ()
    #: which of the engine's slots for state hold layers of this rank, ascending; None: all of them
    slots: tuple[int, ...] | None = None

    def window(self, tables: Sequence[Sequence[int]], tokens: int, have: int = 0) -> dict[str, Any] | None:
        """Return a room's pages of its windows, as an endpoint takes them; None: no layer here has one.

        `tables`: the engine's, from the prompt's first page on; `tokens` of the room, of which the engine has the
        first `have`: what it has is others', too, and is written to page 0, which engines keep for what nobody reads.
        """
        if not tables:
            return None
        found: dict[str, list[list[int]]] = {}
        spans, size = {end.end.name: end.end.window for end in self.pool.ends}, self.pool.page_size
        for name, table in zip(self.windows, tables, strict=True):
            if not name:
                continue
            first, end = max(0, tokens - spans[name]) // size, -(-tokens // size)
            pages = [page if at >= have // size else 0 for at, page in enumerate(table[first:end], first)]
            found.setdefault(name, []).append(pages)
        return {name: mine if len(mine) > 1 else mine[0] for name, mine in found.items()} or None

    def slot(self, slots: Sequence[int]) -> tuple[int, ...] | None:
        """Return a room's slots of state, as an endpoint takes them; None: no layer here has one."""
        return tuple(slots if self.slots is None else (slots[at] for at in self.slots)) or None

    def units(self, tokens: int, *, whole: bool = False) -> int:
        """`tokens` of the engine as tokens of the transfer; a block that is not full counts if these are all
        (`whole`), and else not yet."""
        return -(-tokens // self.unit) if whole else tokens // self.unit


@dataclass(frozen=True, slots=True)
class Shards:
    """Facts that tensors lack: the model's KV heads and layers, its sharding, and this rank's place."""

    heads: int
    layers: int
    tp: int = 1
    pp: int = 1
    #: layers of each stage, where the engine does not cut them near-equal with the larger stages last
    stages: tuple[int, ...] = ()
    rank: int = 0


def geometry(
    tensors: Sequence[torch.Tensor], form: str, shards: Shards, *, v: Sequence[torch.Tensor] = (), k_dim: int = 0,
    page_size: int = 0, opaque: str = "", dtype: str = "",
) -> Geometry:  # fmt: skip
    """The pool of these tensors, and the layout.

    `tensors`: one a local layer in the model's order, or a single one whose form has an L; `v`: V's, if they are apart.
    `k_dim`: elements of a row that are K, where K and V share it; `page_size`: of a flat form, in tokens; `opaque`: a
    name of how blocks are arranged inside (empty: rows are rows); `dtype`: the name both sides compare (empty: the
    tensors'), such as that of an encoding inside raw bytes.  Raises GeometryError, or LayoutError for the shards.
    """
    both = "2" in form
    _need(not (both and v), "k-and-v", f"form {form!r} has K and V in one tensor, and `v` is given, too: give one")
    keys = [_canonical(tensor, form, page_size) for tensor in _layers(tensors, form)]
    values = [_canonical(tensor, form, page_size) for tensor in _layers(v, form)] if v else []
    if both:
        keys, values = [pair[0] for pair in keys], [pair[1] for pair in keys]
    if k_dim:
        _need(not values, "k-and-v", "`k_dim` cuts rows that K and V share, and V is given apart: give one of the two")
        width = keys[0].shape[3]
        _need(0 < k_dim < width, "k-and-v", f"k_dim is {k_dim} of rows of {width}: it must leave something for V")
        keys, values = [row[..., :k_dim] for row in keys], [row[..., k_dim:] for row in keys]
    unit = keys[0].shape[1] if opaque else 1
    name = opaque_dtype(dtype or str(keys[0].dtype).removeprefix("torch."), opaque, unit)
    if opaque:
        keys, values = [opaque_blocks(block) for block in keys], [opaque_blocks(block) for block in values]
    pool = _pool(keys, values)
    layout = Layout(
        layers=shards.layers, heads=shards.heads, k_dim=keys[0].shape[3], v_dim=values[0].shape[3] if values else 0,
        itemsize=pool.itemsize, dtype=name, page_size=pool.page_size, tp=shards.tp, pp=shards.pp, order=pool.order,
        stages=shards.stages,
    )  # fmt: skip
    held = layout.layers_of(shards.rank)[1], layout.heads_of(shards.rank)[1]
    found = pool.layers, pool.heads
    _need(
        found == held, "not-this-rank",
        f"rank {shards.rank} has (layers, heads) = {held} by the shards, and the tensors have {found}: name the "
        "model's heads and layers, not the rank's, and the layers of each stage if they are cut by another rule",
    )  # fmt: skip
    return Geometry(pool, layout, unit)


def _layers(tensors: Sequence[torch.Tensor], form: str) -> list[torch.Tensor]:
    _need(len(tensors) > 0, "no-tensor", "no tensors: give one a layer, or one of all layers with an L in its form")
    letters = sorted(form)
    known = {"".join(sorted(base + more)) for base in ("BNHC", "BNC", "SHC", "SC") for more in ("", "L", "2", "2L")}
    _need(
        "".join(letters) in known, "unknown-dimension",
        f"form {form!r}: it has each of B N H C once (or S H C; no H: one head), at most with an L and a 2",
    )  # fmt: skip
    for tensor in tensors:
        fits = tensor.dim() == len(form) and ("2" not in form or tensor.shape[form.index("2")] == len("KV"))
        _need(
            fits, "wrong-dimensions",
            f"a tensor of {tuple(tensor.shape)} is not {form!r}: name its dimensions in its own order",
        )  # fmt: skip
    if "L" not in form:
        return list(tensors)
    _need(
        len(tensors) == 1, "wrong-dimensions", f"{len(tensors)} tensors with an L in {form!r}: give one of all layers"
    )
    return list(tensors[0].unbind(form.index("L")))


def _canonical(tensor: torch.Tensor, form: str, page_size: int) -> torch.Tensor:
    """A view of it as [blocks, tokens, heads, content], K and V before them if they are in one."""
    letters = form.replace("L", "")
    if "H" not in letters:
        tensor, letters = tensor.unsqueeze(-2), letters[:-1] + "H" + letters[-1]
    if "S" in letters:
        at = letters.index("S")
        slots = tensor.shape[at]
        _need(
            page_size > 0 and slots % page_size == 0, "slots-not-pages",
            f"{slots} slots in pages of {page_size} tokens: pass the engine's page_size, and slots that are whole "
            "pages (a narrowed view, if the engine keeps some more)",
        )  # fmt: skip
        shape = *tensor.shape[:at], slots // page_size, page_size, *tensor.shape[at + 1 :]
        tensor, letters = tensor.view(shape), letters.replace("S", "BN")
    wanted = "2BNHC" if "2" in letters else "BNHC"
    return tensor.permute([letters.index(letter) for letter in wanted])


def opaque_dtype(dtype: str, opaque: str, tokens: int) -> str:
    """Return the type's name, by which both sides see that blocks of so many tokens are alike inside."""
    return f"{dtype}/{opaque}{tokens}" if opaque else dtype


def opaque_blocks(block: torch.Tensor) -> torch.Tensor:
    """[blocks, 1, heads, all of a block of a head] of blocks that are dense inside, in whatever order."""
    blocks, tokens, heads, width = block.shape
    steps = sorted((step, size) for step, size in ((block.stride(1), tokens), (block.stride(3), width)) if size > 1)
    dense = 1
    for step, size in steps:
        _need(
            step == dense, "blocks-not-dense",
            f"a block of a head, {tokens} x {width}, has steps {block.stride(1)} and {block.stride(3)}, so other "
            "things lie in between: only blocks that are dense inside can be moved as they are",
        )  # fmt: skip
        dense *= size
    return block.as_strided((blocks, 1, heads, dense), (block.stride(0), dense, block.stride(2), 1))


def _pool(keys: list[torch.Tensor], values: list[torch.Tensor]) -> Pool:
    """A pool of views [block, token, head, content], by the order in which these lie."""
    first = keys[0]
    for name, tensors in (("K", keys), ("V", values)):
        for layer, tensor in enumerate(tensors):
            same = (tensor.shape, tensor.stride(), tensor.dtype) == (
                tensors[0].shape, tensors[0].stride(), tensors[0].dtype)  # fmt: skip
            _need(
                same, "layers-not-alike",
                f"{name} of layer {layer} is {tuple(tensor.shape)} by {tensor.stride()} of {tensor.dtype}, of layer 0 "
                f"{tuple(tensors[0].shape)} by {tensors[0].stride()} of {tensors[0].dtype}: layers of a hybrid model "
                "need a pool, and an endpoint, for each kind that is alike",
            )  # fmt: skip
            dense = tensor.stride(3) == 1 or tensor.shape[3] == 1
            _need(
                dense, "rows-not-dense",
                f"{name}'s content has a step of {tensor.stride(3)} elements: rows are rearranged inside of blocks; "
                "`opaque` moves such blocks as they are, if both sides have the same",
            )  # fmt: skip
    by_head = first.stride(1) < first.stride(2) and first.shape[1] > 1 and first.shape[2] > 1
    try:
        if by_head:
            return Pool([key.transpose(1, 2) for key in keys], [value.transpose(1, 2) for value in values], "HND")
        return Pool(keys, values, "NHD")
    except KernelError as error:
        raise GeometryError("no-pool", str(error)) from error


def named_pool(
    layout: Layout, rank: int, parts: Mapping[str, Sequence[torch.Tensor]], tensors: Mapping[str, torch.Tensor],
    slot_of: SlotOf = (),
) -> CachePool:  # fmt: skip
    """Return the pool of named caches, as `CachePool` takes them.  GeometryError: they are no pool."""
    try:
        return CachePool(layout, rank, parts, tensors, slot_of=slot_of)
    except KernelError as error:
        raise GeometryError("no-pool", str(error)) from error


def _need(condition: object, reason: Reason, sentence: str) -> None:
    if not condition:
        raise GeometryError(reason, sentence)
