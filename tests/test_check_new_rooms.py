"""After the last fault a new room succeeds from every state of rest with its links up, without time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.verify.check import new_rooms
from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.new_rooms import NewRoomSearch, Rest, first_failure, rests
from kvproto.verify.check.search import RankSearch
from kvproto.verify.check.small_worlds import AT_ONCE
from kvproto.verify.check.state_encoding import MASK

#: writes that fail, leases and timers that end, on the one slot that there is
CHAIN = Config(ring=1, engine=AT_ONCE, swift=True, budget=Budget(write=1, late=2, timeout=1))
LINK = Config(ring=1, chunks=1, engine=AT_ONCE, swift=True, budget=Budget(link=1, crash=1))

#: a ring in its round 2 or 3, with watermarks of this round and of those before it
ROUNDS = Config(ring=2, rooms=2, chunks=2, engine=AT_ONCE, swift=True, budget=Budget(drop=1))


@cache
def of(config: Config) -> dict[Rest, int]:
    """The rests that a new room can meet in this world."""
    search = RankSearch("world", config)
    assert search.run().ended == "exhausted"
    return rests(search.world, search.order, search.rests)


def test_a_new_room_is_searched_from_every_state_that_it_can_meet() -> None:
    met = of(LINK)
    lives = {(p.life, d.life) for p, d in met}
    assert lives == {(0, 0), (1, 0), (0, 1)}
    assert len({d.rank[2][0].epoch for _, d in met}) > 1
    search = NewRoomSearch(LINK, met)
    assert search.run().violations == []
    assert search.result.states > 10 * len(met)
    steps = {why.what[0] for state in search.order for why in search.space.successors(state)[1]}
    assert {"gathered", "land", "scattered"} <= steps


def test_a_new_room_after_a_hasty_world_is_hasty() -> None:
    world = replace(LINK, hasty=True, swift=False, chunks=2, budget=Budget(drop=1, slow=1))
    met = of(world)
    search = NewRoomSearch(world, met)
    assert search.run().ended == "exhausted" and not search.result.violations
    assert any(search.world.budgets.values[state & MASK].asleep for state in search.order)
    assert first_failure(world, {no_slot(*nodes): at for nodes, at in met.items()}) is not None


def elsewhere_in_the_ring(nodes: Rest) -> Rest:
    """The same, with the ring's head and watermark where they were at the beginning."""
    found: list[Any] = []
    for node in nodes:
        links, where = node.rank[2], node.rank[4]
        if "ring" in node._fields:
            where = (0, 0, None)
        else:
            links = tuple(replace(link, mark_round=0, mark_tail=0) for link in links)
        found.append(node._replace(rank=(*node.rank[:2], links, node.rank[3], where, *node.rank[5:])))
    return tuple(found)


@pytest.mark.parametrize("config", [CHAIN, replace(CHAIN, rooms=2, chunks=1, budget=Budget(write=1, late=2))])
def test_failures_on_the_one_slot_leave_what_there_was_before_the_first(config: Config) -> None:
    begun = of(replace(config, rooms=1, budget=Budget()))
    after = {elsewhere_in_the_ring(rest) for rest in of(config)}
    assert after == {elsewhere_in_the_ring(rest) for rest in begun}
    assert len(after) == 1


def test_rounds_that_are_over_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(new_rooms, "recounted", lambda nodes, _first: tuple(nodes))
        met = list(of.__wrapped__(ROUNDS))
    alike = {nodes: new_rooms.recounted(nodes, 1) for nodes in met}
    assert {where(nodes): where(alike[nodes]) for nodes in met} == {
        (2, 0, 0): (1, 0, 0), (2, 0, 256): (1, 0, 0), (2, 1, 0): (1, 0, 0), (2, 1, 256): (1, 0, 256),
        (3, 1, 256): (1, 0, 0), (3, 2, 0): (1, 0, 0),
    }  # fmt: skip
    size = {nodes: how_much(nodes) for nodes in {*met, *alike.values()}}
    assert [size[nodes] for nodes in met] == [size[alike[nodes]] for nodes in met]


def where(nodes: Rest) -> tuple[int, int, int]:
    """Return the ring's round, and the watermark that its only writer has seen."""
    link = nodes[0].rank[2][0]
    return nodes[1].rank[4][0], link.mark_round, link.mark_tail


def how_much(nodes: Rest) -> tuple[int, int, int]:
    """Return states, transitions and depth of a new room from this rest."""
    result = NewRoomSearch(ROUNDS, [nodes]).run()
    assert result.ended == "exhausted"
    return result.states, result.transitions, result.depth


def no_slot(p: Any, d: Any) -> Rest:
    """A rank that has lost its staging slot."""
    return p._replace(rank=(*p.rank[:5], (), *p.rank[6:])), d


def no_peer(p: Any, d: Any) -> Rest:
    """A rank that has forgotten who is at the other end of its link."""
    return p._replace(rank=(*p.rank[:3], (None,), *p.rank[4:])), d


@pytest.mark.parametrize("lost", [no_slot, no_peer])
def test_what_a_rank_has_lost_is_told_by_the_way_there(lost: Callable[[Any, Any], Rest]) -> None:
    met = of(LINK)
    last = list(met)[-1]
    failed = first_failure(LINK, {**met, lost(*last): met[last]})
    assert failed is not None
    place, _, text = failed
    assert place == met[last]
    assert "with a new room" in text


def test_who_is_dead_or_alone_is_not_asked() -> None:
    met = of(Config(ring=1, chunks=1, engine=AT_ONCE, swift=True, restart=False, budget=Budget(crash=1)))
    assert {(p.life, d.life) for p, d in met} == {(0, 0)}


@pytest.mark.parametrize("ended", ["interrupted", "limit", "memory"])
def test_a_search_that_is_cut_off_among_new_rooms_is_not_taken_for_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    walk = NewRoomSearch._walk

    def cut(self: NewRoomSearch, report: Any, begun: float) -> None:
        walk(self, report, begun)
        if ended == "interrupted":
            raise KeyboardInterrupt
        self.result.ended = ended

    monkeypatch.setattr(NewRoomSearch, "_walk", cut)
    result = RankSearch("world", LINK).run()
    assert result.ended == ended and not result.violations


def test_new_rooms_have_the_memory_that_their_search_has(monkeypatch: pytest.MonkeyPatch) -> None:
    given, begin = list[int](), NewRoomSearch.__init__

    def noted(self: NewRoomSearch, config: Config, starts: Any, *, memory: int) -> None:
        given.append(memory)
        begin(self, config, starts, memory=memory)

    monkeypatch.setattr(NewRoomSearch, "__init__", noted)
    assert RankSearch("world", LINK, memory=9_000).run().ended == "exhausted" and given == [9_000]
