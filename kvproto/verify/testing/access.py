"""Access: an endpoint's hidden rank, loop, entries of rooms, and handlers of effects.

An engine needs none of it, and all of it may change.  Tests, benchmarks and demonstrations look here, at one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

if TYPE_CHECKING:
    from kvproto.data.decode_data import DecodeData
    from kvproto.data.prefill_data import PrefillData
    from kvproto.data.room_entry import RoomEntry
    from kvproto.endpoint.decode_endpoint import DecodeEndpoint
    from kvproto.endpoint.endpoint import Endpoint
    from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
    from kvproto.loop.rank_loop import Loop
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
