"""A decode rank's scatters: whose parts they read, from where, by which plan; and when the rank has to look again."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from support.stories import layout

from kvproto.engine.decode_effects import DecodeData
from kvproto.engine.room_entry import RoomEntry
from kvproto.io.kernels.base import Done
from kvproto.layout.plan import Plan, layers_of
from kvproto.protocol import effects as do
from kvproto.protocol.messages import PagesRsp
from kvproto.testing.access import inside
from kvproto.testing.pair import Pair

GRID, REGION, ROOM = 16, 256, 5


class Asked:
    """A decode rank whose kernels write down what they are asked for."""

    def __init__(self, pair: Pair) -> None:
        _, self.loop, entries, self.data = inside(pair.decodes[0])
        (self.group,) = self.data.plans
        pages = np.arange(40, 50, dtype=np.int64)
        entries[ROOM] = RoomEntry(32, torch.from_numpy(pages), pages, len(pages))
        self.parts: list[list[Any]] = []
        self.brought: list[tuple[int, int]] = []
        self.data.kernels = cast("Any", SimpleNamespace(bind=self.bind))
        self.data.ring.bring = lambda *where: self.brought.append(where)  # type: ignore[method-assign]

    def bind(self, side: str, _pool: Any, _table: Any, first: int, tokens: int, parts: list[Any]) -> Any:
        assert (side, first, tokens) == ("scatter", GRID, GRID)
        self.parts.append(parts)
        return lambda _stream, _after: Done()

    def scatter(self, group: int, writers: int, chunk: int = 0, groups: int = 1) -> list[Any]:
        self.data._scatter(do.LaunchScatter(ROOM, chunk, group, writers, REGION, GRID, GRID, groups))
        return self.parts.pop()

    def where(self, part: torch.Tensor) -> tuple[int, int]:
        """Its first byte in the ring, and its bytes."""
        return part.data_ptr() - self.data.ring.near.data_ptr(), part.nbytes


@pytest.fixture
def asked() -> Iterator[Asked]:
    with Pair(layout(2), layout(1), grid=GRID) as pair:
        yield Asked(pair)


@pytest.mark.parametrize("writers", [0b01, 0b10, 0b11])
@pytest.mark.parametrize(("chunk", "groups"), [(0, 1), (2, 2), (3, 2)])
def test_it_reads_the_parts_of_its_writers_each_at_its_place(
    asked: Asked, writers: int, chunk: int, groups: int
) -> None:
    plan, group = asked.data.plans[asked.group], chunk % groups
    expected = []
    for share in plan.writers(0):
        part = layers_of(share, group, groups)
        start = REGION + plan.part_offset(0, share.writer, GRID, group, groups)
        if writers >> share.writer & 1:
            expected.append((part, (start, plan.part_bytes(part, GRID))))
    made = asked.scatter(asked.group, writers, chunk, groups)
    assert [(part, asked.where(staged)) for part, staged in made] == expected
    assert asked.brought == [(REGION, REGION + plan.grant_bytes(0, GRID, group, groups))]


def test_it_is_cut_by_the_plan_of_its_own_group(asked: Asked) -> None:
    asked.data.plans[asked.group + 1] = Plan(layout(4), layout(1), GRID)
    assert len(asked.scatter(asked.group + 1, 0b1111)) == 4
    assert len(asked.scatter(asked.group, 0b1111)) == 2


def test_pages_are_told_from_the_one_with_the_first_token_to_the_one_with_the_last(asked: Asked) -> None:
    sent: list[Any] = []
    asked.loop.connections.send = lambda *what: sent.append(what)  # type: ignore[method-assign]
    size = asked.data.rank.layout.page_size
    asked.loop.handlers[do.TransmitPages](do.TransmitPages(1, 2, ROOM, 3, size, size + 1, 0.5))
    told = np.arange(41, 43, dtype="<u4").tobytes()
    assert sent == [(1, 2, ROOM, PagesRsp(3, told, 0.5))]


@pytest.mark.parametrize(("notify", "progress", "grants", "calling", "awake"), [
    (False, False, 1, 1, False), (True, False, 1, 0, True), (True, False, 0, 1, False),
    (False, True, 1, 0, True), (False, True, 0, 1, True), (True, True, 0, 0, False),
])  # fmt: skip
def test_a_rank_looks_again_while_somebody_may_need_it(
    notify: bool, progress: bool, grants: int, calling: int, awake: bool
) -> None:
    caps, moving = SimpleNamespace(native_notify=notify, needs_target_progress=progress), [False]
    data: Any = SimpleNamespace(
        transport=SimpleNamespace(caps=caps, busy=lambda: moving[0]), rank=SimpleNamespace(grants=[0] * grants),
        calling=[0] * calling, scatters=[],
    )  # fmt: skip
    assert DecodeData.busy(data) is awake
    data.scatters = [0]
    assert DecodeData.busy(data)
    data.scatters, moving[0] = [], True
    assert DecodeData.busy(data)
