"""What an engine chooses for its ranks."""

from __future__ import annotations

import msgspec

from kvproto.errors import ArgumentError
from kvproto.protocol import events
from kvproto.protocol.timing import Timing

#: the numbers of the two groups, where there is one of each
PREFILL_GROUP, DECODE_GROUP = 1, events.DECODE_GROUP


#: by setting: the least and the most; offsets in a ring have 48 bits on the wire, peers 16 in a send's key
BOUNDS = (
    ("window", 1, 1 << 16), ("slots", 1, 1 << 16), ("page_writes", 1, 1 << 16), ("requests", 1, 1 << 16),
    ("slot_bytes", 0, (1 << 48) - 1), ("ring_bytes", 1, (1 << 48) - 1),
    ("ahead", 0, 1 << 16), ("tombstones", 1, 1 << 32), ("early", 1, 1 << 32), ("links", 1, 1 << 32),
    ("trace", 0, 1 << 32),
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True):
    """What an engine chooses for a rank; sizes in bytes."""

    timing: Timing = Timing()
    #: chunks of a room that are asked for at a time
    window: int = 4
    #: local staging slots of a prefill rank, and the size of each (0: as large as the largest part; a part that
    #: does not fit a slot goes over pages)
    slots: int = 4
    slot_bytes: int = 0
    #: requests of a prefill rank to one decode rank that are not answered yet
    requests: int = 64
    #: sends of a prefill rank that write page to page at a time
    page_writes: int = 8
    #: staging ring of a decode rank, and how many rounds its promises may run ahead
    ring_bytes: int = 1 << 30
    ahead: int = 2
    #: every part goes over pages, nothing is staged
    pages_only: bool = False
    #: nothing goes over pages: the pool, such as virtual memory that no other process can map, is not opened
    staged_only: bool = False
    #: ended rooms that still answer
    tombstones: int = 4096
    #: rooms that only the other side has opened
    early: int = 4096
    #: links of a rank; on a prefill rank, one that is lost or refused gives way to a new caller
    links: int = 1024
    #: entries that the trace keeps, steps and messages; with 8,192, which leave the cache, a step takes a tenth longer
    trace: int = 512

    def __post_init__(self) -> None:
        for name, low, high in BOUNDS:
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ArgumentError(f"Settings.{name} is {value!r}: it is a whole number from {low} to {high}")
        for name in ("pages_only", "staged_only"):
            if type(getattr(self, name)) is not bool:
                raise ArgumentError(f"Settings.{name} is {getattr(self, name)!r}: it is true or false")
        if self.pages_only and self.staged_only:
            raise ArgumentError("Settings.pages_only and Settings.staged_only leave no route: choose one")
