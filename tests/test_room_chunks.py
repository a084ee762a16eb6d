"""Rooms by name, their chunks at one rank, and who takes part in each, beside a list of them all."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kvproto.errors import ArgumentError
from kvproto.layout.cut import chunks
from kvproto.protocol.events import Terms, room_key
from kvproto.protocol.room_chunks import cells, end_chunk, first_chunk, taking_part
from kvproto.protocol.states import Cause, DRoom
from kvproto.protocol.tables.decode_room import DRoomValue
from kvproto.rank.base import cut_of
from kvproto.room import Outcome, Room


def test_a_rank_takes_part_in_the_chunks_of_its_kinds_and_in_no_others() -> None:
    rooms = [(0, 0), (1, 0), (8, 0), (9, 0), (21, 4), (8, 8)]
    ways = product([0, 0b101], [0, 0b010], [1, 3], [0, 2], [0, 1, 7], rooms)
    for writes, state, groups, state_groups, most, (tokens, prefix) in ways:
        joint = most if groups == 1 and writes | state else 0
        terms = Terms(1, 0b111, writes, 0, 8, 2, groups, state_groups if state else 0, state, joint)
        room = DRoomValue(DRoom.OPEN, terms=terms, tokens=tokens, prefix=prefix)
        told = [writes] * chunks(tokens, prefix, 8, groups)
        if joint and 0 < (tokens - prefix) % 8 <= joint:
            told[-1] |= state
        else:
            told += [state] * terms.state_groups
        mine = [chunk for chunk, ranks in enumerate(told) if ranks]
        assert [*range(first_chunk(room), end_chunk(room))] == mine, room
        assert [taking_part(room, chunk) for chunk in mine] == [told[chunk] for chunk in mine]
        for chunk in range(cells(room)):
            assert told[chunk] == writes and not cut_of(room, chunk).state
        for chunk in mine:
            cut = cut_of(room, chunk)
            assert cut.state is (chunk >= cells(room)) and cut.end <= tokens


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
