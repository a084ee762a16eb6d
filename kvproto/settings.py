"""Settings: what an engine chooses for its ranks."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from kvproto.errors import ArgumentError
from kvproto.layout.costs import PROFILES, Costs
from kvproto.protocol import events
from kvproto.protocol.timing import Timing

Route = Literal["cost", "staged", "pages"]
#: the numbers of the two groups, where there is one of each
PREFILL_GROUP, DECODE_GROUP = 1, events.DECODE_GROUP


#: by setting: the least and the most; offsets in a ring have 48 bits on the wire, peers 16 in a send's key
BOUNDS = (
    ("window", 1, 1 << 16), ("slots", 1, 1 << 16), ("page_writes", 1, 1 << 16), ("max_unanswered_requests", 1, 1 << 16),
    ("slot_bytes", 0, (1 << 48) - 1), ("ring_bytes", 1, (1 << 48) - 1),
    ("ring_rounds_ahead", 0, 1 << 16), ("tombstones", 1, 1 << 32), ("unclaimed_rooms", 1, 1 << 32),
    ("links", 1, 1 << 32),
    ("trace", 0, 1 << 32), ("layer_groups", 1, 1 << 10), ("forward_slowdown", 1, 100),
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True):
    """The settings of a rank; sizes in bytes."""

    timing: Timing = Timing()
    #: chunks of a room that are asked for at a time
    window: int = 4
    #: local staging slots of a prefill rank, of which one decode rank among several holds all but one at most, and the
    #: size of each (0: as large as the largest part; a part that does not fit a slot goes page to page)
    slots: int = 4
    slot_bytes: int = 0
    #: requests of a prefill rank that one decode rank has not answered yet; further sends queue for a credit
    max_unanswered_requests: int = 64
    #: sends of a prefill rank that write page to page at a time, of which one decode rank has all but one, likewise
    page_writes: int = 8
    #: staging ring of a decode rank, and how many rounds of it may be promised beyond the watermark
    ring_bytes: int = 1 << 30
    ring_rounds_ahead: int = 2
    #: how parts travel: by what costs less ("cost"), or always through the ring ("staged": the pool, such as virtual
    #: memory that no other process can map, is not opened), or always page to page ("pages")
    route: Route = "cost"
    #: groups of layers that rooms may be cut into, at most, so that KV leaves while later layers are computed: what a
    #: decode rank asks for where it costs less, and what both sides have kernels ready for; 1 unless the prefill
    #: engines say `produced(..., layers=...)`
    layer_groups: int = 1
    #: percent of the multiprocessors that a store into mapped pages takes of a forward, while one runs whose event the
    #: prefill engine has given (`produced(..., after=event)`); 100: no forward is spared
    forward_slowdown: int = 10
    #: what the links of a rank cost: figures, or the name of a profile; nothing: as its transport says, and then as its
    #: writes show
    costs: Costs | str = ""
    #: ended rooms that still answer
    tombstones: int = 4096
    #: rooms of a prefill rank that only decode ranks have opened
    unclaimed_rooms: int = 4096
    #: links of a rank; on a prefill rank, one that is lost or refused gives way to a new caller
    links: int = 1024
    #: entries that the trace keeps, steps and messages; with 8,192, which leave the cache, a step takes a tenth longer
    trace: int = 512

    def __post_init__(self) -> None:
        for name, low, high in BOUNDS:
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ArgumentError(f"Settings.{name} is {value!r}: it is a whole number from {low} to {high}")
        if not isinstance(self.timing, Timing):
            raise ArgumentError(f"Settings.timing is {self.timing!r}: it is a Timing")
        if not isinstance(self.route, str) or self.route not in get_args(Route):
            raise ArgumentError(f"Settings.route is {self.route!r}: it is {', '.join(get_args(Route))}")
        named = isinstance(self.costs, str) and self.costs in ("", *PROFILES)
        if not isinstance(self.costs, Costs) and not named:
            raise ArgumentError(f"Settings.costs is {self.costs!r}: it is a Costs, or one of {', '.join(PROFILES)}")

    def costs_of(self, profile: str) -> Costs:
        """Return the costs of a link: the engine's, or those of this profile of the transport."""
        return self.costs if isinstance(self.costs, Costs) else PROFILES[self.costs or profile]
