"""Rooms by name: which ids and generations there are, their key, and when an outcome is a success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvproto.errors import ArgumentError
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room


@pytest.mark.parametrize(("id_", "gen"), [(0, 0), (7, 2), (2**64 - 1, 2**32 - 1)])
def test_a_room_s_key_is_that_of_the_wire(id_: int, gen: int) -> None:
    assert Room(id_, gen).key == room_key(id_, gen) == gen * 2**64 + id_


@pytest.mark.parametrize(("id_", "gen"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**32)])
def test_an_id_has_64_bits_and_a_generation_32(id_: int, gen: int) -> None:
    with pytest.raises(ArgumentError, match=f"^room {id_} gen {gen}: an id has 64 bits"):
        Room(id_, gen)


def test_numbers_of_numpy_become_plain_ones_and_what_is_no_number_is_named() -> None:
    given: Any = (np.int64(7), np.uint8(2))
    room = Room(*given)
    assert room == Room(7, 2) and (type(room.id), type(room.gen)) == (int, int)
    for wrong, name in (("x", "id"), (1.0, "id"), (True, "id")):
        with pytest.raises(ArgumentError, match=rf"^Room\.{name} is {wrong!r}, of type "):
            Room(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^Room\.gen is None"):
        Room(7, None)  # type: ignore[arg-type]


def test_an_outcome_is_a_success_where_there_is_no_cause() -> None:
    assert [Outcome(Room(1), cause).ok for cause in (Cause.NONE, Cause.STALLED)] == [True, False]
