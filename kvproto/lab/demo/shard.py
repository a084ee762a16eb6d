"""Shard: an engine rank that remembers the KV of its own heads of its own layers, in pages alone.

The forward is the transformers model's own layers. Two things are replaced: the cache, by `_Pages`, which keeps this
rank's heads in this rank's pages; and where attention output goes, by `_Heads`, which attends for this rank's query
heads and gathers the rest from its peers. Weights are replicated and projections computed in full: what is sharded is
the memory of the past. With fewer KV heads than ranks, consecutive ranks hold replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvproto.lab.demo.comm import Comm
from kvproto.lab.demo.job import DemoJob, Side
from kvproto.lab.demo.model import AUX, UnshardedRoom, aux_row, build, pieces_of, read_aux, rounded, torch_dtype
from kvproto.lab.demo.pages import PagedKV


@dataclass(frozen=True)
class _Heads:
    """This rank's query heads, the local KV head of each, and the join of all outputs."""

    pairs: tuple[tuple[int, int], ...]  # (query head, local KV head)
    comm: Comm

    def join(self, own: Tensor) -> Tensor:
        return self.comm.gather(own)


class _Pages:
    """The layers' cache: `update` stores this rank's heads at `first` and reads back all tokens."""

    def __init__(self, shard: Shard, table: Sequence[int], first: int, tokens: int) -> None:
        """`tokens` new ones from `first` on."""
        self._shard, (page, slot) = shard, shard.pool.where(table, 0, first + tokens)
        self._new, self._all = (page[first:], slot[first:]), (page, slot)

    def update(self, k: Tensor, v: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store `k`, `v` [1, all heads, t, dim] of new tokens; return [1, own heads, first + t, dim]."""
        shard, local = self._shard, layer - self._shard.first_layer
        own = slice(shard.first_head, shard.first_head + shard.heads)
        out = []
        for kind, x in (("k", k), ("v", v)):
            stored = rounded(x[0, own], shard.pool.k[0].dtype).transpose(0, 1)
            shard.pool.store(kind, local, self._new, stored)  # type: ignore[arg-type]
            held = shard.pool.load(kind, local, self._all)  # type: ignore[arg-type]
            out.append(held.transpose(0, 1)[None].to(x.dtype))
        return out[0], out[1]


class Shard:
    """Rank `rank` of `side`'s group, model and pages on `device`. LayoutError: an unsupported sharding."""

    def __init__(self, job: DemoJob, side: Side, rank: int, comm: Comm, device: str = "cpu") -> None:
        shape, self.layout = job.shape(side), job.layout(side)
        self.job, self.side, self.rank, self.comm = job, side, rank, comm
        self.first_head, self.heads = self.layout.heads_of(rank)
        self.first_layer, self.layers = self.layout.layers_of(rank)
        self.model, self.device = build(job, device=device), device
        per_rank, group = job.query_heads // shape.tp, job.query_heads // job.heads
        mine = range(comm.tp_rank * per_rank, (comm.tp_rank + 1) * per_rank)
        self._heads = _Heads(tuple((q, q // group - self.first_head) for q in mine), comm)
        self.pool = PagedKV(
            layers=self.layers, heads=self.heads, dim=job.dim, pages=job.pool_pages(side),
            page_size=shape.page_size, dtype=torch_dtype(job.dtype), order=shape.order,
            seed=hash((job.seed, side == "decode", rank)) & 0x7FFF_FFFF, device=device,
        )  # fmt: skip

    @property
    def last_stage(self) -> bool:
        return self.comm.stage == self.comm.pp - 1

    def prefill(self, ids: Tensor, table: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
        """Forward `ids` chunk by chunk into the pages; after each: (tokens now in the pages, aux row).

        The aux row is None until the last chunk, and then the same on every rank of the group.
        """
        first = 0
        for piece in pieces_of(ids.to(self.device), self.job.chunk):
            logits = self._forward(piece, table, first)
            first += len(piece)
            yield first, self._chosen(logits) if first == len(ids) else None

    def resume(self, token: int, table: Sequence[int], first: int, count: int) -> Iterator[bytes]:
        """Greedy continuation from the pages: `token` stands at position `first`, whose past they hold.

        Gives `count` aux rows, of the next token each, the same on every rank of the group.
        """
        for position in range(first, first + count):
            logits = self._forward(torch.tensor([token], device=self.device), table, position)
            row = self._chosen(logits)
            token, _ = read_aux(row)
            yield row

    def place(self, truth: UnshardedRoom, table: Sequence[int], tokens: int) -> None:
        """Put this rank's part of the first `tokens` tokens of `truth` into the pages: an earlier prefix."""
        for local in range(self.layers):
            own = (self.first_layer + local, slice(self.first_head, self.first_head + self.heads), slice(tokens))
            self.pool.write("k", local, table, 0, truth.keys[own].transpose(0, 1))
            self.pool.write("v", local, table, 0, truth.values[own].transpose(0, 1))

    def _chosen(self, logits: Tensor | None) -> bytes:
        return self.comm.share(bytes(AUX.size) if logits is None else aux_row(int(logits.argmax()), logits))

    @torch.inference_mode()
    def _forward(self, ids: Tensor, table: Sequence[int], first: int) -> Tensor | None:
        """Run `ids` [t] at positions [first, first + t) through this rank's layers; the last stage has logits."""
        body = self.model.model
        hidden = body.embed_tokens(ids[None])
        if self.comm.stage > 0:
            hidden = self.comm.receive_hidden(hidden)
        where = torch.arange(first, first + len(ids), device=self.device)[None]
        rotary = body.rotary_emb(hidden, position_ids=where)
        cache = _Pages(self, table, first, len(ids))
        for layer in body.layers[self.first_layer : self.first_layer + self.layers]:
            hidden = layer(
                hidden, attention_mask=None, position_ids=where, past_key_values=cache, use_cache=True,
                position_embeddings=rotary, heads=self._heads,
            )  # fmt: skip
        if not self.last_stage:
            self.comm.send_hidden(hidden)
            return None
        logits: Tensor = self.model.lm_head(body.norm(hidden)[:, -1:])[0, -1]
        return logits
