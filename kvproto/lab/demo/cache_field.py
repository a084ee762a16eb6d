"""Cache field: the rows of one part in the library's cache of a request, and that cache made anew.

A *field* is one part of one layer: which tensor of the library's layer it is in, and how that is cut into units.  Rows
are bytes, `[rows, units, bytes]`: a row a token of K, V, latents and index, the last tokens of a window, and one row of
a state.  Nothing here knows a pool, a rank or a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from kvproto.lab.demo.family import Family
from kvproto.lab.demo.pages import Rows
from kvproto.layout.caches import ALL, END, WINDOW, Cache, CachePart

FULL, INDEX, STATE, LOCAL = "full", "index", "state", "window"


@dataclass(frozen=True)
class CacheField:
    """One part of one layer in the library's cache.

    `tensor`: keys, values, indexer_keys, conv or recurrent; `first`, `channels`: of a convolution.
    """

    cache: str
    part: str
    layer: int
    units: int
    row_bytes: int
    tensor: str
    dtype: torch.dtype
    form: tuple[int, ...]  # of one unit in one row, in elements
    first: int = 0
    channels: int = 0

    @property
    def kind(self) -> str:
        return f"{self.cache}.{self.part}"


def fields_of(family: Family, cache: DynamicCache) -> list[CacheField]:
    return [each for number, layer in enumerate(cache.layers) for each in _fields(family, number, layer)]


def _fields(family: Family, number: int, layer: Any) -> Iterator[CacheField]:
    name = LOCAL if getattr(layer, "is_sliding", False) else FULL
    for tensor, part in zip(("keys", "values"), family.parts, strict=True):
        held = getattr(layer, tensor, None)
        if held is not None:
            yield _field(name, part, number, held.shape[1], tensor, held.dtype, (held.shape[3],))
    index = getattr(layer, "indexer_keys", None)
    if index is not None:
        yield _field(INDEX, "key", number, 1, "indexer_keys", index.dtype, (index.shape[2],))
    if hasattr(layer, "recurrent_states"):
        conv, ssm, first = layer.conv_states[0], layer.recurrent_states[0], 0
        for each in family.segments:
            channels, form = each.units * each.channels, (each.channels, conv.shape[2])
            yield _field(STATE, each.name, number, each.units, "conv", conv.dtype, form, first, channels)
            first += channels
        yield _field(STATE, "ssm", number, ssm.shape[1], "recurrent", ssm.dtype, tuple(ssm.shape[2:]))


def _field(
    cache: str, part: str, layer: int, units: int, tensor: str, dtype: torch.dtype, form: tuple[int, ...],
    first: int = 0, channels: int = 0,
) -> CacheField:  # fmt: skip
    row = torch.Size(form).numel() * dtype.itemsize
    return CacheField(cache, part, layer, units, row, tensor, dtype, form, first, channels)


def caches_of(fields: Sequence[CacheField], window: int) -> list[Cache]:
    """Return the caches of a layout; `window`: tokens that the library keeps of a layer with a window."""
    travels, found = {FULL: ALL, INDEX: ALL, STATE: END, LOCAL: WINDOW}, list[Cache]()
    for name, some in groupby(sorted(fields, key=lambda each: each.cache), key=lambda each: each.cache):
        held = list(some)
        parts = {each.part: CachePart(each.part, each.units, each.row_bytes) for each in held}
        dtypes = ", ".join(dict.fromkeys(str(each.dtype).removeprefix("torch.") for each in held))
        layers = tuple(sorted({each.layer for each in held}))
        found.append(
            Cache(name, tuple(parts.values()), layers, dtypes, travels[name], window=window if name == LOCAL else 0)
        )
    return found


def window_of(cache: DynamicCache) -> int:
    """Return the tokens that layers with a window keep, all alike; 0: there are none."""
    kept = {layer.sliding_window - 1 for layer in cache.layers if getattr(layer, "is_sliding", False)}
    return max(kept, default=0)


# ---- rows -------------------------------------------------------------------------------------------------------


def rows_of(fields: Sequence[CacheField], cache: DynamicCache) -> Rows:
    return {(each.kind, each.layer): _read(each, cache.layers[each.layer]) for each in fields}


def _read(field: CacheField, layer: Any) -> Tensor:
    match field.tensor:
        case "indexer_keys":
            rows = layer.indexer_keys[0].unsqueeze(1)
        case "conv":
            rows = layer.conv_states[0][:, field.first : field.first + field.channels]
        case "recurrent":
            rows = layer.recurrent_states[0]
        case tensor:
            rows = getattr(layer, tensor)[0].transpose(0, 1)
    # A copy: the library goes on writing into some of its tensors.
    found: Tensor = rows.reshape(-1, field.units, torch.Size(field.form).numel()).clone().view(torch.uint8)
    return found


def rebuilt(config: Any, fields: Sequence[CacheField], rows: Mapping[tuple[str, int], Tensor], tokens: int) -> Any:
    """Return a cache that holds these rows of a request of so many tokens, and nothing else."""
    cache = DynamicCache(config=config)
    for number, some in groupby(fields, key=lambda each: each.layer):
        whole = [(each.tensor, _whole(each, rows[each.kind, number])) for each in some]
        conv = [tensor for name, tensor in whole if name == "conv"]
        _fill(cache.layers[number], dict(whole), conv, tokens)
    return cache


def _whole(field: CacheField, rows: Tensor) -> Tensor:
    """The rows as elements, [rows, units, ...]."""
    return rows.contiguous().view(field.dtype).view(len(rows), field.units, *field.form)


def _fill(layer: Any, held: Mapping[str, Tensor], conv: Sequence[Tensor], tokens: int) -> None:
    if "keys" in held:
        keys, values = (held[name].transpose(0, 1)[None].contiguous() for name in ("keys", "values"))
        layer.update(keys, values)
        if layer.is_sliding:
            layer.cumulative_length = tokens
    if "indexer_keys" in held:
        layer.update_indexer(held["indexer_keys"].transpose(0, 1).contiguous())
    if "recurrent" in held:
        layer.update_conv_state(torch.cat([each.flatten(1, 2) for each in conv], dim=1))
        layer.update_recurrent_state(held["recurrent"])
