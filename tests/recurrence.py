"""Recurrence: a model's recurrent state, cut over ranks by hand, and a move of one slot by kernels.

The tensors are as engines have them; which channels and heads a rank has is counted here, without the plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvproto.io.kernels.base import Kernels
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

TAPS, LAYERS, SLOTS = 3, 4, 5
TENSORS = ("conv", "ssm")


@dataclass(frozen=True)
class Recurrence:
    """A model's state: segments of a convolution (name, units, channels a unit) and recurrent heads."""

    segments: tuple[tuple[str, int, int], ...]
    heads: int
    #: elements of a head
    head: tuple[int, int]

    @property
    def parts(self) -> tuple[CachePart, ...]:
        """The parts of its cache: the convolution's taps are 2 bytes, the recurrence's elements 4."""
        conv = [CachePart(name, units, channels * TAPS * 2) for name, units, channels in self.segments]
        return (*conv, CachePart("ssm", self.heads, self.head[0] * self.head[1] * 4))


#: x by heads, B and C of one group on every rank; and q, k, v by their own heads
MAMBA = Recurrence((("x", 8, 16), ("B", 1, 24), ("C", 1, 24)), 8, (16, 8))
DELTA = Recurrence((("q", 4, 16), ("k", 4, 16), ("v", 8, 16)), 8, (8, 16))
HELD = (0, 2, 3)
#: a room's slots on either side, the first of which has all of its state, or by layer what this says
ROOM = (3, 1), (1, 4)
TWO = (1, 0, 1)


def layout_of(model: Recurrence, tp: int) -> Layout:
    full = Cache("full", (CachePart("k", 2, 64), CachePart("v", 2, 64)), (1,), "bfloat16")
    state = Cache("state", model.parts, HELD, "bfloat16, float32", END)
    return Layout.of_caches([full, state], layers=LAYERS, page_size=16, tp=tp)


def whole(model: Recurrence, random: torch.Generator) -> dict[str, torch.Tensor]:
    """One request's state of the whole model by part: [layer, unit, bytes]."""
    sizes = {part.name: (len(HELD), part.units, part.row_bytes) for part in model.parts}
    return {name: torch.randint(0, 256, size, dtype=torch.uint8, generator=random) for name, size in sizes.items()}


def held_units(units: int, tp: int, place: int) -> torch.Tensor:
    """The numbers of the units that a rank has: a block of them, or one that several ranks have."""
    return torch.arange(units).repeat_interleave(max(1, tp // units)).tensor_split(tp)[place]


def tensors_of(model: Recurrence, tp: int, place: int, device: str, random: torch.Generator) -> dict[str, torch.Tensor]:
    """A rank's tensors: conv [layer, slot, channel, tap], and ssm [layer, slot, head, row, column]."""
    channels = sum(len(held_units(units, tp, place)) * each for _, units, each in model.segments)
    heads = len(held_units(model.heads, tp, place))
    conv = torch.randint(0, 256, (len(HELD), SLOTS, channels, TAPS * 2), dtype=torch.uint8, generator=random)
    ssm = torch.randint(0, 256, (len(HELD), SLOTS, heads, *model.head[:1], model.head[1] * 4), dtype=torch.uint8,
                        generator=random)  # fmt: skip
    return {"conv": conv.to(device).view(torch.bfloat16), "ssm": ssm.to(device).view(torch.float32)}


def views_of(model: Recurrence, tp: int, place: int, tensors: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """The parts of a rank's state, [slot, unit, elements], as views of its tensors."""
    found, first = {}, 0
    for name, units, each in model.segments:
        mine = len(held_units(units, tp, place))
        cut = tensors["conv"][:, :, first : first + mine * each]
        found[name] = list(cut.view(*cut.shape[:2], mine, each, *cut.shape[3:]).flatten(3))
        first += mine * each
    found["ssm"] = list(tensors["ssm"].flatten(3))
    return found


def pool_of(
    model: Recurrence, layout: Layout, place: int, device: str, random: torch.Generator, slot_of: tuple[int, ...]
) -> tuple[CachePool, dict[str, torch.Tensor]]:  # fmt: skip
    """A rank's pool, and its tensors of state."""
    kv = {f"full.{name}": [torch.zeros(3, 16, max(1, 2 // layout.tp), 32, dtype=torch.bfloat16, device=device)]
          for name in ("k", "v")}  # fmt: skip
    mine = tensors_of(model, layout.tp, place, device, random)
    state = {f"state.{name}": views for name, views in views_of(model, layout.tp, place, mine).items()}
    tensors = {name: views[0] for name, views in kv.items()} | mine
    return CachePool(layout, place, kv | state, tensors, slot_of=slot_of), mine


def put(model: Recurrence, tp: int, place: int, mine: dict[str, torch.Tensor], slots: list[int],
        truth: dict[str, torch.Tensor]) -> None:  # fmt: skip
    """Write a request's state into a rank's slots, one a layer, by channels and heads counted here."""
    layers = torch.arange(len(HELD))
    channels = [truth[name][:, held_units(units, tp, place)].reshape(len(HELD), -1, TAPS * 2)
                for name, units, _ in model.segments]  # fmt: skip
    conv = torch.cat(channels, 1)
    mine["conv"].view(torch.uint8)[layers, slots] = conv.to(mine["conv"].device)
    heads = truth["ssm"][:, held_units(model.heads, tp, place)]
    ssm = mine["ssm"].view(torch.uint8)
    ssm[layers, slots] = heads.reshape(ssm[:, 0].shape).to(ssm.device)


def move(
    kernels: Kernels, model: Recurrence, tp: tuple[int, int], groups: int, device: str = "cpu",
    slot_of: tuple[int, ...] = (),
) -> int:  # fmt: skip
    """Move a room's state from all prefill to all decode ranks; check every byte, return how many moved."""
    random = torch.Generator().manual_seed(tp[0] * 10 + tp[1])
    plan = Plan(layout_of(model, tp[0]), layout_of(model, tp[1]), 16)
    truth, moved = whole(model, random), 0
    near, far = ([room[at] for at in slot_of or (0,) * len(HELD)] for room in ROOM)
    ours = [pool_of(model, plan.prefill, rank, device, random, slot_of) for rank in range(tp[0])]
    theirs = [pool_of(model, plan.decode, rank, device, random, slot_of) for rank in range(tp[1])]
    for rank, (_, mine) in enumerate(ours):
        put(model, tp[0], rank, mine, near, truth)
    wanted = [{name: tensor.clone() for name, tensor in mine.items()} for _, mine in theirs]
    tables = [torch.tensor(room[: len(set(slot_of)) or 1], device=device) for room in ROOM]
    for group in range(groups):
        cut = Cut(32, 0, group, groups, state=True)
        for reader, (pool, _) in enumerate(theirs):
            region = torch.empty(plan.grant_bytes(reader, cut), dtype=torch.uint8, device=device)
            parts = []
            for share in plan.of(cut).writers(reader):
                part = plan.part(share.writer, reader, cut)
                staged = region[part.offset : part.offset + part.nbytes]
                kernels.gather(ours[share.writer][0].ends[0], tables[0], 0, 1, part.share, staged)
                parts.append((part.share, staged))
                moved += part.nbytes
            kernels.scatter(pool.ends[0], tables[1], 0, 1, parts)
    for rank, mine in enumerate(wanted):
        put(model, tp[1], rank, mine, far, truth)
        for name in TENSORS:
            assert torch.equal(theirs[rank][1][name].view(torch.uint8), mine[name].view(torch.uint8)), (rank, name)
    return moved
