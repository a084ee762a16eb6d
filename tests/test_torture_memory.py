"""The torture's canaries and its kernels: each byte that is wrong, late or out of place is found."""

from __future__ import annotations

import random
import time

import pytest
import torch

from kvproto.io.kernels.base import Pool
from kvproto.lab.torture.fleet import CHUNK_TOKENS, make_fleet
from kvproto.lab.torture.kernels import TroubledKernels
from kvproto.lab.torture.memory import RankMemory, room_bytes
from kvproto.lab.torture.plan import SIZES, TortureRoom, Trouble, make_plan
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.room import Room

FLEET = make_fleet(random.Random(1))


def room(number: int, tokens: int = 50, trouble: Trouble = "", slow: float = 0.0) -> TortureRoom:
    return TortureRoom(number, Room(number), (1, 11), tokens, 0, trouble, {}, 1000 + number, slow)


@pytest.fixture
def memory() -> RankMemory:
    return RankMemory(FLEET.layout(12), 0, 600, 7)


def rows(memory: RankMemory) -> torch.Tensor:
    return memory.pages.rows("v", 1)


def test_what_was_filled_is_right_and_nothing_else_has_changed(memory: RankMemory) -> None:
    mine = room(1)
    memory.take(mine, mine.tokens)
    assert memory.wrong(mine)
    memory.fill(mine, 0, mine.tokens)
    assert memory.wrong(mine) == []
    assert memory.intruded() == []


def test_one_wrong_byte_is_found_and_where(memory: RankMemory) -> None:
    mine = room(1)
    table = memory.take(mine, mine.tokens)
    memory.fill(mine, 0, mine.tokens)
    size = memory.layout.page_size
    rows(memory)[table[40 // size], 40 % size, 2, 5] ^= 1
    assert memory.wrong(mine) == ["V of local layer 1: 1 of 50 tokens are wrong, the first is 40"]
    assert memory.intruded() == []


@pytest.mark.parametrize("where", ["behind the last token", "a page of nobody", "a page that was given back"])
def test_a_byte_outside_the_rooms_is_found_once(memory: RankMemory, where: str) -> None:
    mine, other = room(1), room(2)
    table = memory.take(mine, mine.tokens)
    gone = memory.take(other, other.tokens)
    size = memory.layout.page_size
    free = next(page for page in range(memory.pages.pages) if page not in {*table, *gone})
    memory.give_back(other.number)
    places = {"behind the last token": (table[-1], 50 % size), "a page of nobody": (free, 0)}
    page, slot = places.get(where, (gone[0], 3))
    assert memory.intruded() == []
    rows(memory)[page, slot, 0, 0] ^= 1
    assert len(memory.intruded()) == 1
    assert memory.intruded() == []


def test_each_rank_has_its_heads_and_layers_of_the_same_bytes() -> None:
    layout = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=2, pp=2)
    mine, whole = room(5), room_bytes(layout, 1005, 50)
    for index in range(layout.ranks):
        memory = RankMemory(layout, index, 200, index)
        table = memory.take(mine, 50)
        memory.fill(mine, 0, 50)
        (head, heads), (layer, _) = layout.heads_of(index), layout.layers_of(index)
        there = memory.pages.read("k", 0, table, 50).view(torch.uint8)
        assert there.equal(whole[0, layer, :, head : head + heads])


def test_pages_have_an_owner_until_they_are_given_back(memory: RankMemory) -> None:
    table = memory.take(room(9), 50)
    assert {memory.owner(page) for page in table} == {9}
    memory.give_back(9)
    with pytest.raises(KeyError):
        memory.owner(table[0])


# ----------------------------------------------------------------------------------------------------- kernels
def gathered(memory: RankMemory, mine: TortureRoom) -> tuple[TroubledKernels, object, torch.Tensor]:
    plan = Plan(FLEET.layout(2), FLEET.layout(12), CHUNK_TOKENS)
    kernels = TroubledKernels(lambda page: {memory.owner(page): mine}[mine.number])
    share = plan.duties(0)[0]
    out = torch.zeros(plan.part_bytes(share, Cut(0, 16)), dtype=torch.uint8)
    pool: Pool = memory.pool
    table = torch.tensor(memory.held[mine.number].table)
    return kernels, kernels.gather(pool, table, 0, 16, share, out), out


def ticket_done(ticket: object) -> bool:
    return bool(ticket.done())  # type: ignore[attr-defined]


def test_a_kernel_without_trouble_is_over_at_once(memory: RankMemory) -> None:
    mine = room(1)
    memory.take(mine, 50)
    kernels, ticket, out = gathered(memory, mine)
    assert ticket_done(ticket)
    assert out.any()
    assert kernels.hit == 0


def test_a_slow_kernel_copies_what_is_there_at_its_end(memory: RankMemory) -> None:
    mine = room(1, trouble="gather-slow", slow=0.5)
    table = memory.take(mine, 50)
    kernels, ticket, out = gathered(memory, mine)
    kernels.tick()
    assert not ticket_done(ticket)
    for tensor in (*memory.pages.k, *memory.pages.v):
        tensor[table] = 0
    time.sleep(0.6)
    kernels.tick()
    assert ticket_done(ticket)
    assert not out.any()
    assert kernels.hit == 1


def test_a_kernel_that_fails_says_so_and_copies_nothing(memory: RankMemory) -> None:
    mine = room(1, trouble="gather-fails")
    memory.take(mine, 50)
    kernels, ticket, out = gathered(memory, mine)
    time.sleep(0.02)
    kernels.tick()
    with pytest.raises(RuntimeError, match="failed"):
        ticket_done(ticket)
    assert not out.any()


def test_only_the_kernel_that_is_meant_is_in_trouble(memory: RankMemory) -> None:
    mine = room(1, trouble="scatter-fails")
    memory.take(mine, 50)
    _, ticket, out = gathered(memory, mine)
    assert ticket_done(ticket)
    assert out.any()
    assert make_plan(1, SIZES["short"]).room(0).number == 0
