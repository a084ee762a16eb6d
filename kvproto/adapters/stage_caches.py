"""Stage caches: joins what the pipeline stages of an instance know of its model's caches.

A worker of an engine has the tensors of its own stage's layers alone, and a layout names the caches of the whole model.
So each worker describes the caches of its layers.  The stages exchange the descriptions once, when the KV cache is
there, and each of them joins all to the same caches.  A stage that fails before it has described its own tells the
others why: an engine waits for its workers in their order, and would wait for ever for one that waits for the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import torch
from msgspec.structs import replace

from kvproto.adapters.geometry import GeometryError
from kvproto.layout.caches import Cache

#: from the caches of a stage's own layers, those of the whole model
Join = Callable[[Sequence[Cache]], list[Cache]]
Views = dict[str, list[torch.Tensor]]
#: a stage's word: the caches of its layers, or why it cannot describe them
Word = list[Cache] | str
#: gives a stage's word to all stages, and returns the words of all in the stages' order
Exchange = Callable[[Word], list[Word]]
Made = TypeVar("Made")


def with_missing(views: Views, caches: Sequence[Cache]) -> Views:
    """Return a worker's views by part, with none of those parts that other stages have alone."""
    names = [f"{cache.name}.{part.name}" for cache in caches for part in cache.parts]
    return {name: views.get(name, []) for name in names}


def on_all_stages(make: Callable[[Join], Made], exchange: Exchange) -> Made:
    """Make what a worker has of its tensors, from the caches of all stages where it names any.

    GeometryError: it cannot be made on this stage, or on another one, whose sentence is in it.
    """
    told = False

    def join(mine: Sequence[Cache]) -> list[Cache]:
        nonlocal told
        told = True
        return joined(exchange(list(mine)))

    try:
        made = make(join)
    except Exception as error:  # whatever it is, the other stages wait for a word
        if not told:
            exchange(str(error))
        raise
    if not told:
        joined(exchange([]))
    return made


def encoded(word: Word) -> bytes:
    """Return a stage's word as bytes, for an engine's own collective."""
    return msgspec.msgpack.encode(word)


def decoded(said: Sequence[bytes]) -> list[Word]:
    return [msgspec.msgpack.decode(each, type=list[Cache] | str) for each in said]


def joined(told: Sequence[Sequence[Cache] | str]) -> list[Cache]:
    """Join the caches of all stages; GeometryError: they differ in more than their layers."""
    found: dict[str, Cache] = {}
    for stage, caches in enumerate(told):
        if isinstance(caches, str):
            raise GeometryError("no-pool", f"stage {stage} of this instance has no pool: {caches}")
        for cache in caches:
            known = found.get(cache.name, cache)
            if replace(known, layers=()) != replace(cache, layers=()):
                raise GeometryError(
                    "layers-not-alike", f"cache {cache.name!r} of stage {stage} is {cache}, of one before it {known}"
                )
            found[cache.name] = replace(cache, layers=tuple(sorted({*known.layers, *cache.layers})))
    return list(found.values())
