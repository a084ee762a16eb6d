"""State in several slots of a room, whose layers lie over the same bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from test_state_rooms import FULL, SLOTS, SMALL_RING, StatePair, moved, sides, state

from kvproto import ArgumentError, CachePool, Layout, Pool, Room
from kvproto.io.kernels.base import KernelError

#: the first and the third layer of state are in a room's second slot
SLOT_OF = (1, 0, 1)


class OverlaidPair(StatePair):
    """A room has two slots on each side.  The first and second layer of state share their memory."""

    def slots(self, room: Room) -> Any:
        first = room.id * 2 % (SLOTS - 1)
        return (first, first + 1), (SLOTS - 1 - first, SLOTS - 2 - first)

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        parts = self.parts(layout, index, seed)
        for kind in layout.ends[0].kinds:
            parts[kind.name][1] = parts[kind.name][0]
        tensors = {f"{name} {at}": view for name, views in parts.items() for at, view in enumerate(views)}
        return CachePool(layout, index, parts, tensors, slot_of=SLOT_OF)

    def by_slot(self, layout: Layout, index: int, pool: Pool, slots: Any) -> dict[tuple[str, int], torch.Tensor]:
        """A room's own [unit, byte] by part and layer, to be read and written."""
        found = self.mine(layout, index, pool)
        return {key: view[slots[SLOT_OF[key[1]]]] for key, view in found.items()}

    def compute(self, room: Room) -> None:
        layout, truth = self.plan.prefill, self.truth_of(room)
        for index, endpoint in enumerate(self.prefills):
            for key, view in self.by_slot(layout, index, endpoint.pool, self.slots(room)[0]).items():
                view.copy_(self.units(layout, index, truth[key]))

    def check(self, *rooms: Room) -> None:
        layout = self.plan.decode
        for index, endpoint in enumerate(self.decodes):
            wanted = self.before[index]
            for room in rooms:
                for key, view in self.by_slot(layout, index, wanted, self.slots(room)[1]).items():
                    view.copy_(self.units(layout, index, self.truth_of(room)[key]))
            for key, view in self.mine(layout, index, endpoint.pool).items():
                assert torch.equal(view, self.mine(layout, index, wanted)[key]), f"decode rank {index}: {key}"


CASES = [sides(FULL, state(0, 1, 2), tp=tp) for tp in ((1, 1), (2, 1), (1, 4), (4, 2))]


@pytest.mark.parametrize("pair", CASES, ids=[f"{a.tp} to {b.tp}" for a, b in CASES])
def test_each_layer_comes_into_the_slot_that_it_has_there_and_no_other_byte_changes(pair: list[Layout]) -> None:
    with OverlaidPair(*pair, chunk_tokens=8, settings=SMALL_RING) as both:
        moved(both)
        both.rest()


def test_slots_are_counted_and_each_is_one_of_the_pool_s() -> None:
    with OverlaidPair(*CASES[0], chunk_tokens=8, settings=SMALL_RING) as both:
        decode = both.decodes[0]
        with pytest.raises(ArgumentError, match="1 slots, and the state of a room is in 2 of this pool"):
            decode.open(Room(1), 4, [0], slot=3)
        with pytest.raises(ArgumentError, match="slot 7 of a pool of state for 7 requests"):
            decode.open(Room(1), 4, [0], slot=(3, 7))
    with (
        StatePair(*CASES[0], chunk_tokens=8, settings=SMALL_RING) as plain,
        pytest.raises(ArgumentError, match="2 slots, and the state of a room is in 1 of this pool"),
    ):
        plain.decodes[0].open(Room(1), 4, [0], slot=(1, 2))


def test_the_layers_of_a_pool_s_slots_are_its_own() -> None:
    class Short(OverlaidPair):
        def pool(self, layout: Layout, index: int, seed: int) -> Pool:
            parts = self.parts(layout, index, seed)
            return CachePool(layout, index, parts, {"all": parts["full.k"][0]}, slot_of=(0, 1))

    with pytest.raises(KernelError, match="slot_of names 2 layers of state, and rank 0 holds 3"):
        Short(*CASES[0], chunk_tokens=8, settings=SMALL_RING)


class Late(OverlaidPair):
    """An engine that knows a room's slots when its last token is computed."""

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        ours, _, tokens, _ = self.tables[room]
        for endpoint in self.prefills if ranks is None else [self.prefills[i] for i in ranks]:
            endpoint.open(room, tokens, ours)
            endpoint.prefetch(room)

    def last(self, room: Room, **more: Any) -> None:
        for endpoint in self.prefills:
            endpoint.produced(room, self.tables[room][2], slot=self.slots(room)[0], **more)
            endpoint.aux(room, b"aux")


def test_after_a_withdrawal_the_state_has_other_slots() -> None:
    """The slots of before belong to somebody else; what is sent is in those that came last."""

    class Moving(Late):
        moved = False

        def slots(self, room: Room) -> Any:
            ours, theirs = super().slots(room)
            return (ours[::-1] if self.moved else (5, 6)), theirs

    with Moving(*CASES[1], chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.name(16)
        both.open_prefill(room)
        both.last(room)  # nobody has opened it on the other side: nothing leaves
        both.settle()
        for endpoint in both.prefills:
            endpoint.withdraw(room, 8)
        both.open_decode(room)
        both.settle()
        assert not both.outcomes
        both.moved = True
        both.compute(room)
        assert all(endpoint.withdrawn(room) for endpoint in both.prefills)
        both.last(room, pages=both.tables[room][0][2:])
        both.pump(partial(both.over, room))
        both.check(room)
