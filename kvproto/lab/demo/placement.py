"""Placement: the device on which a process of a run computes and keeps its KV.

Prefill ranks share the first half of the GPUs, decode ranks the rest, so that with two GPUs or more every byte goes
from one GPU to another. The judge is with the decode ranks: it is through before the clock runs.
"""

from __future__ import annotations

import torch

from kvproto.lab.demo.job import Side


def device_of(kind: str, side: Side, rank: int) -> str:
    """The device of a rank, made the process's own."""
    if kind == "cpu":
        return "cpu"
    place = gpu_of(side, rank, torch.cuda.device_count())
    torch.cuda.set_device(place)
    return f"cuda:{place}"


def gpu_of(side: Side, rank: int, gpus: int) -> int:
    half = gpus // 2
    if half == 0:
        return 0
    return rank % half if side == "prefill" else half + rank % (gpus - half)
