"""What an endpoint hides: its rank, its loop, the entries of its rooms, and what carries out its effects.

An engine needs none of it, and all of it may change.  Tests, benchmarks and demonstrations look here, at one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from kvproto.engine.decode_effects import DecodeData
    from kvproto.engine.decode_endpoint import DecodeEndpoint
    from kvproto.engine.endpoint import Endpoint
    from kvproto.engine.loop import Loop
    from kvproto.engine.prefill_effects import PrefillData
    from kvproto.engine.prefill_endpoint import PrefillEndpoint
    from kvproto.engine.room_entry import RoomEntry
    from kvproto.rank.base import Rank
    from kvproto.rank.decode import DecodeRank
    from kvproto.rank.prefill import PrefillRank

R_co = TypeVar("R_co", covariant=True)
D_co = TypeVar("D_co", covariant=True)


class Inside(NamedTuple, Generic[R_co, D_co]):
    """The parts of one endpoint; `entries` by room key."""

    rank: R_co
    loop: Loop
    entries: dict[int, RoomEntry]
    data: D_co


@overload
def inside(endpoint: PrefillEndpoint) -> Inside[PrefillRank, PrefillData]: ...
@overload
def inside(endpoint: DecodeEndpoint) -> Inside[DecodeRank, DecodeData]: ...
@overload
def inside(endpoint: Endpoint) -> Inside[Rank, Any]: ...
def inside(endpoint: Endpoint) -> Inside[Any, Any]:
    """The endpoint's own parts, not copies."""
    return Inside(endpoint._rank, endpoint._loop, endpoint._entries, endpoint._data)  # noqa: SLF001
