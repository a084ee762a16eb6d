"""Demo faults, built into the kernels of demonstration ranks, which the comparison must find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvproto.fsm.driver import Driver
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.io.kernels.base import Pool, StagedPart
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.demo import rank_program
from kvproto.lab.demo.run import Run
from kvproto.lab.process_group import ParentPipe
from kvproto.protocol.events import RoomOpened
from kvproto.rank.decode import DecodeRank

Parts = Sequence[StagedPart]
prefill = rank_program.prefill
honest = TorchKernels.scatter


def drops_a_token(self: TorchKernels, pool: Pool, table: Any, first: int, tokens: int, parts: Parts, **how: Any) -> Any:
    """The last token of a cell keeps what was there before."""
    token, slot = divmod(first + tokens - 1, pool.page_size)
    before = [tensor[table[token], slot].clone() for tensor in (*pool.k, *pool.v)]
    ticket = honest(self, pool, table, first, tokens, parts, **how)
    for tensor, rows in zip((*pool.k, *pool.v), before, strict=True):
        tensor[table[token], slot] = rows
    return ticket


def swaps_writers(self: TorchKernels, pool: Pool, table: Any, first: int, tokens: int, parts: Parts, **how: Any) -> Any:
    """Each part is taken for the next writer's."""
    turned = [part[1] for part in parts[1:]] + [parts[0][1]]
    mixed = [(share, data) for (share, _), data in zip(parts, turned, strict=True)]
    return honest(self, pool, table, first, tokens, mixed, **how)


def goes_too_far(self: TorchKernels, pool: Pool, table: Any, first: int, tokens: int, parts: Parts, **how: Any) -> Any:
    """The row after the last token is written too."""
    ticket = honest(self, pool, table, first, tokens, parts, **how)
    page, slot = divmod(first + tokens, pool.page_size)
    if slot:
        pool.v[0][table[page], slot] = pool.v[0][table[page], slot - 1]
    return ticket


def has_a_hand_in_its_rooms(self: DecodeRank, event: Event, now: float, *then: Event) -> list[Effect]:
    """The rank replaces the value of an opened room by the next step; nothing comes of it."""
    effects = Driver.handle(self, event, now, *then)
    if isinstance(event, RoomOpened) and event.room in self.rooms:
        self.rooms[event.room] = replace(self.rooms[event.room], due=now + 100.0)
    return effects


def decode(line: ParentPipe, run: Run, rank: int, directory: Path) -> None:
    """As the real one, with the fault that the run's seed names, and a hand in its rooms."""
    fault = (drops_a_token, swaps_writers, goes_too_far)[run.job.seed]
    TorchKernels.scatter = fault  # type: ignore[method-assign]
    DecodeRank.handle = has_a_hand_in_its_rooms  # type: ignore[method-assign, assignment]
    rank_program.decode(line, run, rank, directory)
