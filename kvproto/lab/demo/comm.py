"""Comm: the collectives inside one group, gloo between OS processes, found through a file.

Three things cross ranks of a group: attention outputs (between the tensor-parallel ranks of a stage), hidden states
(from a stage to the next), and the row of the token that the last stage chose (to everybody). All travel as bytes of
the host: gloo then cannot reduce, convert or refuse a dtype, and what arrives is what was sent. From a GPU to another
that is a detour, a few milliseconds a layer, which an engine would not make; it is in both routes alike.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Comm:
    """One rank's ends. Rank index `pp_rank * tp + tp_rank`; all ranks of the group construct one at once."""

    def __init__(self, store: Path, rank: int, tp: int, pp: int, timeout_s: float = 60.0) -> None:
        self.rank, self.tp, self.pp = rank, tp, pp
        self.stage, self.tp_rank = divmod(rank, tp)
        self.alone = tp * pp == 1
        if self.alone:
            return
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=tp * pp, timeout=timedelta(seconds=timeout_s)
        )
        stages = [dist.new_group([s * tp + r for r in range(tp)]) for s in range(pp)]
        self._peers = stages[self.stage]

    def gather(self, x: Tensor) -> Tensor:
        """Gather each rank's [tokens, heads, dim] into all heads in rank order, [tokens, tp * heads, dim]."""
        if self.tp == 1:
            return x
        raw = x.contiguous().view(torch.uint8).cpu()
        parts = [torch.empty_like(raw) for _ in range(self.tp)]
        dist.all_gather(parts, raw, group=self._peers)
        return torch.cat(parts, dim=1).to(x.device).view(x.dtype)

    def gather_objects(self, mine: Any) -> list[Any]:
        """Gather what each rank of the group gives, in rank order."""
        if self.alone:
            return [mine]
        found: list[Any] = [None] * (self.tp * self.pp)
        dist.all_gather_object(found, mine)
        return found

    def receive_hidden(self, like: Tensor) -> Tensor:
        """The previous stage's hidden states, of the shape and dtype of `like`."""
        raw = torch.empty_like(like, device="cpu").view(torch.uint8)
        dist.recv(raw, src=self.rank - self.tp)
        return raw.to(like.device).view(like.dtype)

    def send_hidden(self, x: Tensor) -> None:
        dist.send(x.contiguous().view(torch.uint8).cpu(), dst=self.rank + self.tp)

    def share(self, row: bytes) -> bytes:
        """Send the last stage's `row` to every rank of the group; of earlier stages only the length counts."""
        if self.pp == 1:
            return row
        box = torch.frombuffer(bytearray(row), dtype=torch.uint8)
        dist.broadcast(box, src=(self.pp - 1) * self.tp)
        return box.numpy().tobytes()

    def close(self) -> None:
        if not self.alone and dist.is_initialized():
            dist.destroy_process_group()
