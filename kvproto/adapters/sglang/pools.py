"""Pools: SGLang's KV cache as a pool and a layout, from the addresses that it gives to a transfer.

A backend of SGLang is given `KVArgs`: for every tensor of a rank an address, a length and a page's bytes; the K
tensors of all layers, then the V tensors.  A page of a tensor is its tokens
in order, a token its heads in order.  That is a dense NHD pool, whatever the elements are: an element here is a byte,
and the dtype is the name that SGLang has for it, which both sides have to share.  So nothing of the engine's objects is
needed, nor torch's dtypes, nor a patch that hands tensors over.

A pipeline stage has tensors of its own layers alone.  Latents, indices, drafts, recurrent state and windows are named
caches (`planes`), which the stages join to those of the whole model (`adapters.stage_caches`).  Whatever else an
instance does is refused by name (`rules`), and so are layers that are not alike and a page that is not whole heads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import msgspec

from kvproto.adapters.recurrence import Recurrence
from kvproto.adapters.rules import FORMS, need_carried, present, refusals
from kvproto.adapters.sglang.memory import view
from kvproto.adapters.sglang.planes import drafts_of, layout_of_caches, named, pool_of_caches
from kvproto.adapters.sglang.rules import RULES
from kvproto.adapters.sglang.windows import Window
from kvproto.adapters.stage_caches import Join
from kvproto.errors import ArgumentError
from kvproto.io.kernels.pool import Pool
from kvproto.layout.sharding import Layout


class Instance(msgspec.Struct, frozen=True):
    """Facts about this rank's SGLang; `heads`: KV heads of the whole model (1: MLA).

    `rank`: its place in its group, the ranks of the first pipeline stage first.
    """

    name: str
    tp: int
    rank: int
    heads: int
    #: groups of ranks of data-parallel attention, this one's number, and whether a room is at room % data_parallel
    data_parallel: int = 1
    dp_rank: int = 0
    by_room: bool = True
    host: str = "127.0.0.1"
    bootstrap_server: str = ""
    #: where its pools are
    device: str = "cpu"
    #: tokens that a forward computes of a prompt at most; 0: all of it
    chunk: int = 0
    #: seconds that it waits for the other side, as prefill and as decode
    bootstrap: float = 300.0
    waiting: float = 300.0
    #: how its recurrent state is cut; None: the model has none, or one that is not known
    recurrence: Recurrence | None = None
    #: its sliding windows; None: the model has none in a pool of their own, or such as are not known
    window: Window | None = None
    #: layers of each pipeline stage; empty: there is one
    stages: tuple[int, ...] = ()
    #: what it does that cannot be carried yet: a sentence a fact
    foreign: tuple[str, ...] = ()

    @property
    def stage(self) -> int:
        return self.rank // self.tp

    @property
    def cut(self) -> dict[str, Any]:
        """How a layout says it."""
        return {"tp": self.tp, "pp": len(self.stages) or 1, "stages": self.stages}

    @property
    def ranks(self) -> int:
        return self.tp * (len(self.stages) or 1)

    @property
    def first(self) -> int:
        """The number of this stage's first layer."""
        return sum(self.stages[: self.stage])

    def here(self, layers: Sequence[int]) -> list[int]:
        """Return those of the model's layers that are on this stage."""
        if not self.stages:
            return [*layers]
        return [each for each in layers if self.first <= each < self.first + self.stages[self.stage]]


def layout_of(args: Any, instance: Instance, *, mla: bool, join: Join = list) -> Layout:
    """Return the layout of the instance's cache.

    `args`: SGLang's KVArgs; `join`: as `adapters.stage_caches` has it.  ArgumentError: unsupported.
    """
    kinds = [state.value for state in args.state_types]
    states = [*present(RULES, "state", kinds), *present(RULES, "model", unknown(args, instance, kinds))]
    foreign = [*instance.foreign, *refusals(RULES, "args", args), *states]
    if named(args, mla=mla):
        need_carried(foreign)
        return layout_of_caches(args, instance, mla=mla, join=join)
    items = list(args.kv_item_lens)
    layers, rest = divmod(len(items), 2)
    if not layers or rest or any(len(set(some)) > 1 for some in (items[:layers], items[layers:])):
        foreign.append(f"layers that are not alike ({sorted(set(items))} bytes a page): {FORMS.remedy}")
    need_carried(foreign)
    if instance.stages and layers != instance.stages[instance.stage]:
        raise ArgumentError(f"tensors of {layers} layers on stage {instance.stage} of {instance.stages} layers")
    heads = instance.heads
    local, k, v = max(1, heads // instance.tp), items[0], items[layers]
    for nbytes in (k, v):
        if nbytes % (args.page_size * local):
            raise ArgumentError(
                f"a page of {nbytes} bytes is not {args.page_size} tokens of {local} heads: the pool is of another form"
            )
    return Layout(
        layers=sum(instance.stages) or layers, heads=heads, k_dim=k // args.page_size // local,
        v_dim=v // args.page_size // local, itemsize=1, dtype=args.kv_cache_dtype_str, page_size=args.page_size,
        **instance.cut,
    )  # fmt: skip


def unknown(args: Any, instance: Instance, kinds: list[str]) -> list[str]:
    """Return what the states of this model are that kvproto does not know, or cannot carry side by side."""
    windows = kinds.count("swa")
    found = {
        "unknown_recurrence": "mamba" in kinds and instance.recurrence is None,
        "unknown_window": windows > 0 and instance.window is None,
        "state_and_window": windows > 0 and "mamba" in kinds,
        "window_and_draft": windows > 1 or (windows > 0 and drafts_of(args) > 0),
        "stages_and_draft": bool(instance.stages) and drafts_of(args) > 0,
    }
    return [name for name, is_so in found.items() if is_so]


def pool_of(args: Any, layout: Layout, instance: Instance, *, mla: bool) -> Pool:
    """This rank's pool: views of SGLang's own memory, [page, token, head, byte]."""
    if layout.named:
        return pool_of_caches(args, layout, instance, mla=mla)
    _, heads = layout.heads_of(instance.rank)
    views, layers = [], len(args.kv_data_ptrs) // 2
    for index, (address, nbytes) in enumerate(zip(args.kv_data_ptrs, args.kv_data_lens, strict=True)):
        dim = layout.k_dim if index < layers else layout.v_dim
        shape = (nbytes // (layout.page_size * heads * dim), layout.page_size, heads, dim)
        views.append(view(address, shape, instance.device))
    return Pool(views[:layers], views[layers:], "NHD", layout.page_size)


class AuxRows:
    """SGLang's metadata of requests: one row a request in each of its buffers, which travel as one."""

    def __init__(self, args: Any, most: int) -> None:
        """ArgumentError: a row is larger than `most` bytes."""
        self._rows = list(zip(args.aux_data_ptrs, args.aux_item_lens, strict=True))
        self.nbytes = sum(size for _, size in self._rows)
        if self.nbytes > most:
            raise ArgumentError(
                f"SGLang's metadata of a request has {self.nbytes} bytes, more than the {most} of an aux row: lower "
                "--sampling-mask-max-tokens"
            )

    def read(self, index: int) -> bytes:
        return b"".join(ctypes.string_at(address + index * size, size) for address, size in self._rows)

    def write(self, index: int, row: bytes) -> None:
        """Put the row there; ArgumentError: it is one of other buffers."""
        if len(row) != self.nbytes:
            raise ArgumentError(
                f"the prefill instance's metadata has {len(row)} bytes a request, this one's {self.nbytes}: start both "
                "with the same model and options"
            )
        at = 0
        for address, size in self._rows:
            ctypes.memmove(address + index * size, row[at : at + size], size)
            at += size
