"""Torture faults, built into ranks, which the bench must find end to end."""

from __future__ import annotations

import os
from typing import Any

from demo_faults import drops_a_token
from msgspec.structs import replace

from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.process_group import ParentPipe
from kvproto.lab.torture.plan import TorturePlan
from kvproto.lab.torture.rank import TortureRank
from kvproto.protocol import effects as do
from kvproto.verify.testing import inside

EVERY = 9


def drops_tokens(rank: TortureRank) -> None:
    """A scatter leaves the last token of its cell as it was."""
    TorchKernels.scatter = drops_a_token  # type: ignore[method-assign]


def forgets_outcomes(rank: TortureRank) -> None:
    """Hide from the engine how some rooms ended."""
    handlers = inside(rank.endpoint).loop.handlers
    announce: Any = handlers[do.AnnounceOutcome]
    seen: list[int] = []

    def announced(effect: do.AnnounceOutcome) -> None:
        seen.append(effect.room)
        if len(seen) % EVERY:
            announce(effect)

    handlers[do.AnnounceOutcome] = announced


def has_a_hand_in_its_grants(rank: TortureRank) -> None:
    """Somebody changes a grant between two steps, once some have gone well; nothing comes of it."""
    handlers: Any = inside(rank.endpoint).loop.handlers
    grants: Any = getattr(inside(rank.endpoint).rank, "grants", {})
    launch: Any = handlers[do.LaunchScatter]
    seen: list[int] = []

    def launched(effect: do.LaunchScatter) -> None:
        seen.append(effect.room)
        if len(seen) > 5 * EVERY:
            value = grants[effect.room][effect.chunk]
            grants[effect.room][effect.chunk] = replace(value, due=value.due + 1.0)
        launch(effect)

    handlers[do.LaunchScatter] = launched


def leaks_descriptors(rank: TortureRank) -> None:
    """Each room that is released leaves one behind."""
    handlers = inside(rank.endpoint).loop.handlers
    announce: Any = handlers[do.AnnounceReleased]

    def announced(effect: do.AnnounceReleased) -> None:
        os.pipe()
        announce(effect)

    handlers[do.AnnounceReleased] = announced


def dies(rank: TortureRank) -> None:
    """A room's outcome ends the process."""
    inside(rank.endpoint).loop.handlers[do.AnnounceReleased] = lambda _effect: os.abort()


SEVERAL = {"E0": drops_tokens, "D1": has_a_hand_in_its_grants, "D0": forgets_outcomes, "Q0": leaks_descriptors}


def several(line: ParentPipe, plan: TorturePlan, name: str, life: int, carrier: Any) -> None:
    rank = TortureRank(line, plan, name, life, carrier)
    SEVERAL.get(name, lambda _rank: None)(rank)
    rank.serve()


def one_dies(line: ParentPipe, plan: TorturePlan, name: str, life: int, carrier: Any) -> None:
    rank = TortureRank(line, plan, name, life, carrier)
    if name == "P1":
        dies(rank)
    rank.serve()
