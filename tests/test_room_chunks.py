"""Chunks of a room at one rank, and who takes part in each, beside a list of them all."""

from __future__ import annotations

from itertools import product

from kvproto.layout.cut import chunks
from kvproto.protocol.events import Terms
from kvproto.protocol.room_chunks import cells, end_chunk, first_chunk, taking_part
from kvproto.protocol.states import DRoom
from kvproto.protocol.tables.decode_room import DRoomValue
from kvproto.rank.base import cut_of


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
