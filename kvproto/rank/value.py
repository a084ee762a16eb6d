"""Value: all of a rank that later steps depend on, taken and restored as one object.

`rank.value()` refers to the rank's state and copies nothing; `rank.restore(value)` makes a rank with the same layout,
settings and incarnation go on from there.  A search goes from value to value with one rank.

What a rank has beside its value is fixed when it is made, follows from the value, or is kept for readers alone:
counters and the trace.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Self

import msgspec

from kvproto.protocol.ring import Ring
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.rank.fair_queue import FairQueue, SendKey
from kvproto.rank.room_turns import RoomTurns
from kvproto.rank.space_queue import SpaceQueue


class RankValue(msgspec.Struct):
    """The state that both kinds of rank have; the attributes of a rank explain each field."""

    rooms: dict[int, Any]
    tombs: dict[int, Any]
    links: dict[int, Any]
    peers: dict[int, Any]
    #: of a decode rank: none
    writes: dict[tuple[int, int], Any]
    heard_by: set[int]
    next_link: int

    @classmethod
    def of(cls, rank: object) -> Self:
        """Return the rank's value of this kind."""
        return cls(*[getattr(rank, name) for name in cls.__struct_fields__])


class PrefillValue(RankValue):
    """The state of a prefill rank."""

    unclaimed: set[int]
    next_epoch: int
    sends: dict[int, dict[int, PSendValue]]
    free_slots: list[int]
    slot_of: dict[SendKey, int]
    slot_queue: FairQueue
    credits: dict[int, set[SendKey]]
    credit_queues: dict[int, OrderedDict[SendKey, None]]
    permits: set[SendKey]
    permit_queue: FairQueue
    watch: dict[int, list[tuple[int, int, int, int, int]]]


class DecodeValue(RankValue):
    """The state of a decode rank."""

    grants: dict[int, dict[int, DGrantValue]]
    ring: Ring
    chunk_of: dict[int, tuple[int, int]]
    space_queue: SpaceQueue
    space_turns: RoomTurns
