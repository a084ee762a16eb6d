"""The turns of rooms while a larger room waits."""

from __future__ import annotations

from kvproto.rank.room_turns import LARGER, RoomTurns, digits


def test_of_so_many_turns_one_is_a_larger_room_s() -> None:
    turns, went = RoomTurns(), list[str]()
    for _ in range(2 * LARGER):
        went.append(turns.whose("first", "larger"))
        turns.taken(before_larger=went[-1] == "first")
    assert went == [*["first"] * (LARGER - 1), "larger"] * 2


def test_what_goes_before_nobody_larger_is_not_counted() -> None:
    turns = RoomTurns()
    for _ in range(LARGER + 1):
        assert turns.whose("first", None) == "first"
        turns.taken(before_larger=False)
    assert turns.passed == 0
    for passed in range(1, LARGER):
        turns.taken(before_larger=True)
        assert turns.passed == passed
    assert turns.whose("first", None) == "first"
    turns.taken(before_larger=False)
    assert turns.passed == 0


def test_rooms_are_as_large_as_their_tokens_have_digits() -> None:
    assert [digits(tokens) for tokens in (0, 1, 8, 15, 16)] == [0, 1, 4, 4, 5]
