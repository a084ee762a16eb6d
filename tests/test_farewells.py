"""Farewells: which life of a group has said goodbye, until a later one comes."""

from __future__ import annotations

from kvproto.endpoint.farewells import EPOCH_BITS, Farewells

GROUP, OTHER = 7, 8


def epoch(incarnation: int) -> int:
    return incarnation << EPOCH_BITS | 3


def test_the_latest_of_a_group_s_ranks_is_its_life() -> None:
    of = Farewells()
    for incarnation in (40, 42, 41):
        of.came_up(GROUP, epoch(incarnation))
    assert not of.has_left(GROUP, 42)
    of.left(GROUP)
    assert [of.has_left(GROUP, each) for each in (41, 42, 43)] == [False, True, False]
    assert not of.has_left(OTHER, 42)


def test_a_successor_that_comes_up_ends_it_and_another_rank_of_the_same_life_does_not() -> None:
    of = Farewells()
    of.came_up(GROUP, epoch(42))
    of.left(GROUP)
    of.came_up(GROUP, epoch(41))
    assert of.has_left(GROUP, 42)
    of.came_up(GROUP, epoch(50))
    assert not of.has_left(GROUP, 42) and not of.has_left(GROUP, 50)
    of.left(GROUP)
    assert of.has_left(GROUP, 50)


def test_of_a_group_that_was_never_up_or_is_forgotten_nothing_is_known() -> None:
    of = Farewells()
    of.left(OTHER)
    assert not of.has_left(OTHER, 42) and not of.has_left(OTHER, 1)
    of.came_up(OTHER, epoch(0))
    of.left(OTHER)
    assert of.has_left(OTHER, 0)
    of.came_up(GROUP, epoch(42))
    of.left(GROUP)
    of.forget(GROUP)
    of.forget(GROUP)
    assert not of.has_left(GROUP, 42)
    of.came_up(GROUP, epoch(30))
    of.left(GROUP)
    assert of.has_left(GROUP, 30), "its earlier lives are forgotten, too"
