"""Chunk search: breadth first, over every ring that is asked for, with the counts to compare."""

from __future__ import annotations

from collections import Counter

import msgspec

from witness.chunk import RINGS, Tables
from witness.chunkworld import BrokenProperty, ChunkWorld


class ChunkSearchResult(msgspec.Struct):
    """The findings of an exploration, some by ring; `moves`: transitions that change the state."""

    states: dict[str, int]
    transitions: int
    moves: int
    kinds: dict[str, int]
    rests: int
    lost: int
    refused: dict[str, int]
    faults: list[str]


def explore(
    tables: Tables | None = None, rings: tuple[str, ...] = RINGS, *, trouble: bool = True, tells: bool = False
) -> ChunkSearchResult:  # fmt: skip
    """Every state of these rings' worlds; the first fault ends it."""
    found = ChunkSearchResult({}, 0, 0, {}, 0, 0, {}, [])
    for ring in rings:
        world = ChunkWorld(ring, tables, trouble=trouble, tells=tells)
        try:
            _explore(world, found)
        except BrokenProperty as fault:
            found.faults.append(f"{ring} ring: {fault}")
        for why, count in world.refused.items():
            found.refused[why] = found.refused.get(why, 0) + count
    return found


def _explore(world: ChunkWorld, found: ChunkSearchResult) -> None:
    first = world.first()
    place, order, heads, tails = {first: 0}, [first], [0], list[int]()
    looks: dict[tuple[int, int, int], list[int]] = {}  # what a state is called depends on these three alone
    for at, state in enumerate(order):
        look = state.reader, state.writers[0], state.memory.write[0]
        looks.setdefault(look, [at, 0])[1] += 1
        for new in world.next(state):
            to = place.get(new)
            found.moves += to != at
            if to is None:
                to = place[new] = len(order)
                order.append(new)
            tails.append(to)
        heads.append(len(tails))
    found.states[world.ring] = len(order)
    found.transitions += len(tails)
    kinds = Counter(found.kinds)
    for one, many in looks.values():
        kinds.update(dict.fromkeys(world.kinds(order[one]), many))
    found.kinds = dict(kinds)
    rests = [world.rests(state) for state in order]
    found.rests += sum(rests)
    found.lost += _lost(rests, heads, tails)


def _lost(goal: list[bool], heads: list[int], tails: list[int]) -> int:
    """How many states cannot come to a goal; the edges of state i are tails[heads[i]:heads[i + 1]]."""
    before: list[list[int]] = [[] for _ in goal]
    for at in range(len(goal)):
        for to in tails[heads[at] : heads[at + 1]]:
            before[to].append(at)
    todo = [at for at, there in enumerate(goal) if there]
    reached = set(todo)
    while todo:
        for at in before[todo.pop()]:
            if at not in reached:
                reached.add(at)
                todo.append(at)
    return len(goal) - len(reached)
