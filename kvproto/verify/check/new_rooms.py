"""New rooms succeed after the last fault: from every state of rest in which all links are up.

Of a state in which all rooms are over and nothing is under way, a new room meets only what the ranks have kept: links,
ring and watermark, slots, lives. The rooms that are over go, with tombstones and outcomes; what is left is the first
state of a world of one room and no fault (`rest_of`). After a ring's first round only differences of rounds decide
anything, so every used ring is counted as in its round 1 (`recounted`). Few states are left that differ.

From all of them together every order of messages, engines and timers is searched, kernels and writes in no time: the
room may not fail (S9), it ends (L1), it leaves nothing (L2, S8). After a hasty world it is searched in haste, too. Of
several groups there is one new room for each two. A state in which a rank is dead, or a link not up at both ends, is
left out: there a room may well fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from kvproto.verify.check.config import KINDS, Budget, Config
from kvproto.verify.check.decode_memory import DNode
from kvproto.verify.check.delay_bounded import DelayBoundedExplorer
from kvproto.verify.check.node import GONE
from kvproto.verify.check.prefill_local_steps import PNode
from kvproto.verify.check.state_encoding import DEAD, MASK, QUIET, BudgetState
from kvproto.verify.check.successors import Explorer
from kvproto.verify.framework.search import Search

#: what a node's value has by room
OF_ROOMS = ("script", "outcome", "released", "pages", "aux")
#: the nodes' values, without rooms: what a new room meets
Rest = tuple[Any, ...]


def one_room(config: Config) -> Config:
    """The world of the new room: between two groups, whichever they are."""
    rooms, budget = config.prefill_groups * config.decode_groups, Budget(slow=config.budget.slow)
    calm = {"swift": not config.hasty, "live": True, "lives": 1, "rooms": rooms, "memory": 0}
    return replace(config, budget=budget, must=(), never=(), **calm)


def rests(world: Explorer, order: Sequence[int], places: Iterable[int]) -> dict[Rest, int]:
    """Return what a new room can meet at these places of states of rest, with one place for each."""
    found: dict[Rest, int] = {}
    known: dict[tuple[int, int], Any] = {}
    if world.config.misfit or world.config.timed:
        return found
    for place in places:
        state = order[place]
        if not _all_up(world, state):
            continue
        nodes = []
        for at in range(world.n):
            number = state >> world.shifts[at] & MASK
            if (at, number) not in known:
                known[at, number] = rest_of(world.parts[at].values[number])
            nodes.append(known[at, number])
        found.setdefault(recounted(nodes, world.first_decode), place)
    return found


def _all_up(world: Explorer, state: int) -> bool:
    numbers = [state >> shift & MASK for shift in world.shifts]
    if any(world.parts[at].values[numbers[at]][0] is DEAD for at in range(world.n)):
        return False
    return all(world.couple(i, numbers[p], numbers[d]).agreed for i, (d, p) in enumerate(world.ends))


def rest_of(value: PNode | DNode) -> PNode | DNode:
    """A node at rest, as it is for a room that it has never heard of."""
    none: dict[str, Any] = {"script": (), "outcome": (), "released": ()}
    if isinstance(value, PNode):
        rooms, _, links, known, sends, free, held, queue, watch, *more = value.rank
        rank = (rooms, (), links, known, sends, free, held, queue, ((),) * len(watch), *more)
        return value._replace(rank=rank, slots=(None,) * len(value.slots), **none)
    rooms, _, *kept = value.rank
    return value._replace(rank=(rooms, (), *kept), pages=(), aux=(), **none)


def recounted(nodes: Sequence[Any], first_decode: int) -> Rest:
    """Return the nodes at rest, with every ring that was used in its round 1.

    Watermarks stay as far behind as they are.  One that is two rounds behind permits nothing any more.
    """
    rounds = [value.rank[4][0] for value in nodes[first_decode:]]

    def seen(link: Any) -> Any:
        if link is None or not (last := rounds[int(link.place[1:])]):
            return link
        mark = (link.mark_round - last + 1, link.mark_tail) if link.mark_round >= last - 1 else (0, 0)
        return replace(link, mark_round=mark[0], mark_tail=mark[1])

    def counted(value: Any) -> Any:
        rooms, tombs, links, third, fourth, *more = value.rank
        if isinstance(value, PNode):
            return value._replace(rank=(rooms, tombs, tuple(map(seen, links)), third, fourth, *more))
        return value._replace(rank=(rooms, tombs, links, third, (min(fourth[0], 1), *fourth[1:]), *more))

    return tuple(map(counted, nodes))


class OneRoom(Explorer):
    """The new room's world, which begins where it is told to."""

    first: int

    def initial(self) -> int:
        return self.first


class OneHastyRoom(OneRoom, DelayBoundedExplorer):
    """The same, in which few things are slow."""


class NewRoomSearch(Search):
    """Searches from these states of rest with one new room and no faults."""

    def __init__(self, config: Config, starts: Iterable[Rest], *, memory: int = 12_000) -> None:
        self.config = one_room(config)
        self.world = (OneHastyRoom if config.hasty else OneRoom)(self.config)
        super().__init__("new room", self.config, self.world, memory=memory)
        self.starts = [self._packed(nodes, k) for nodes in starts for k in range(self.config.rooms)]
        self.world.first = self.starts[0]

    def _packed(self, nodes: Rest, new: int) -> int:
        world, state = self.world, 0
        for at, value in enumerate(nodes):
            fresh, _ = world.nodes[at].initial(value.life)  # a decode rank remembers whom it has called in which life
            of_rooms = {name: getattr(fresh, name) for name in OF_ROOMS if hasattr(fresh, name)}
            of_rooms["script"] = tuple(begun if k == new else GONE for k, begun in enumerate(fresh.script))
            state |= world.parts[at](value._replace(**of_rooms)) << world.shifts[at]
        for at in range(world.n, world.last):
            state |= QUIET << world.shifts[at]
        left = tuple(getattr(self.config.budget, kind) for kind in KINDS)
        return state | world.budget(BudgetState(left)) << world.shifts[-1]

    def _walk(self, report: Any, begun: float) -> None:
        for state in self.starts[1:]:
            self._meet(state, 0)
        super()._walk(report, begun)

    def _add_violation(self, name: str, text: str, at: int | None, event: Any) -> None:
        """Only that there is one: the way there begins in another world."""
        self.result.violations.append((name, text))


class SearchCut(Exception):  # noqa: N818  # it is no error
    """Not every state that new rooms come to was met; `ended` is how the search for them ended."""

    def __init__(self, ended: str) -> None:
        super().__init__(ended)
        self.ended = ended


def first_failure(
    config: Config, found: dict[Rest, int], *, memory: int = 12_000, searched: type[NewRoomSearch] = NewRoomSearch
) -> tuple[int, str, str] | None:  # fmt: skip
    """Return the first state of rest after which a new room fails, the property, and the way.

    Raises SearchCut, or KeyboardInterrupt as anything does that is interrupted.
    """
    if not found or not _failure(searched(config, found, memory=memory)):
        return None
    for nodes, place in found.items():  # by itself, so that it is known which
        failure = _failure(searched(config, [nodes], memory=memory))
        if failure is not None:
            name, text = failure
            return place, name, f"after this, with a new room: {re.sub('room [0-9]+', 'the new room', text)}"
    raise AssertionError("what fails together has to fail alone")


def _failure(search: NewRoomSearch) -> tuple[str, str] | None:
    result = search.run()
    search.close()
    if result.violations:
        name, text = result.violations[0]
        return name, text
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    if result.ended != "exhausted":
        raise SearchCut(result.ended)
    return None
