"""Resume points: how much of a room has arrived, as data that outlives the process that has it.

A decode rank dies, or a prefill rank: the engine opens a new room over the same pages, whose prefix is what arrived
(docs/design/kv_that_outlives_an_instance.md).  `ResumePoint` says how much that is.  Where a replacement has computed
the prompt again, each rank of both sides makes `PageDigests` of what its pages hold, and `resume_prefix` compares them.

A router may use this module: it needs neither torch nor a transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any, Self

import msgspec

from kvproto.call_arguments import checked
from kvproto.errors import ArgumentError
from kvproto.fsm.codec import UNREADABLE
from kvproto.layout.agreement import agree
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol.room_chunks import cells, joined
from kvproto.room import Room

#: characters of an encoded point, and of encoded digests: of some 100,000 layers and heads
MAX_TEXT = 1 << 22


class Portable(msgspec.Struct, frozen=True):
    """Data that engines hand on as JSON text, and read as foreign input."""

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    @checked
    def decode(cls, text: str | bytes) -> Self:
        """Return what this text says; ArgumentError names what is wrong with it."""
        if len(text) > MAX_TEXT:
            raise ArgumentError(f"{cls.__name__}: {len(text)} characters, more than {MAX_TEXT}")
        try:
            return msgspec.json.decode(text, type=cls)
        except (*UNREADABLE, LayoutError, ArgumentError) as error:
            raise ArgumentError(f"this is no {cls.__name__}: {error}") from error


class ResumePoint(Portable, frozen=True):
    """The tokens of a room that are in place on a decode rank: from `prefix` on, up to `upto`.

    In place: in all layers and in all caches of the page table, scattered.  State and windows are not meant.  The first
    `prefix` tokens were there before the room.
    """

    room: Room
    tokens: int
    prefix: int
    upto: int

    def __post_init__(self) -> None:
        if not 0 <= self.prefix <= self.upto <= self.tokens:
            told = f"prefix {self.prefix}, up to {self.upto}, of {self.tokens} tokens"
            raise ArgumentError(f"resume point of {self.room}: {told}: they may only rise in this order")


class PageDigests(Portable, frozen=True):
    """Digests of what a rank's pages hold of the tokens of a point: 64 bits in hex, by "layer/head".

    Of named caches by "layer/unit/cache.part".  Layers and heads are numbered as the model's.
    """

    point: ResumePoint
    layout: Layout
    rank: int
    digests: dict[str, str]


class Resumption(msgspec.Struct, frozen=True):
    """The prefix with which a room goes on; `why` not all that has arrived is kept, empty if it is."""

    prefix: int
    why: str = ""


def point_of(room: Room, value: Any) -> ResumePoint:
    """Return the resume point of a room from its value on a decode rank, which knows its tokens."""
    done = value.work.done if value.work is not None else 0
    whole, groups = cells(value) + joined(value), value.terms.layer_groups
    # Chunks from the first one on: one behind a hole is sent again. Those behind the cells are of state and windows.
    placed = min((~done & done + 1).bit_length() - 1, whole) if value.terms.writes else whole
    upto = min(value.tokens, value.prefix + placed // groups * value.terms.chunk_tokens)
    return ResumePoint(room, value.tokens, value.prefix, upto)


@checked
def resume_prefix(receivers: Sequence[PageDigests], senders: Sequence[PageDigests]) -> Resumption:
    """Return the prefix of the room that goes on with what the receivers have.

    Args:
        receivers: of every rank of the decode group, of one point
        senders: of every rank of the prefill group that replaces another, of the same point

    Raises:
        ArgumentError: there are none of one side, or they are of several points

    """
    if not receivers or not senders:
        raise ArgumentError("resume_prefix: give the digests of every rank of both sides")
    point = receivers[0].point
    if other := next((each.point for each in (*receivers, *senders) if each.point != point), None):
        raise ArgumentError(f"resume_prefix: digests of {point} and of {other}: make all of the lowest point")
    why = _why_not(receivers, senders)
    return Resumption(point.prefix if why else point.upto, why)


def _why_not(receivers: Sequence[PageDigests], senders: Sequence[PageDigests]) -> str:
    """Say why nothing that has arrived is kept; empty: all of it is."""
    point, (ours, theirs) = receivers[0].point, (receivers[0].layout, senders[0].layout)
    if point.upto == point.prefix:
        return f"nothing of {point.room} has arrived: all of it is sent"
    for side, group, layout in (("decode", receivers, ours), ("prefill", senders, theirs)):
        if other := next((each for each in group if each.layout != layout), None):
            return f"{side} ranks 0 and {other.rank} have different layouts: the whole prompt is sent"
        if missing := set(range(layout.ranks)) - {each.rank for each in group}:
            return f"{side} rank {min(missing)} has told no digests: the whole prompt is sent"
    try:
        agree(theirs, ours, lcm(theirs.page_size, ours.page_size))
    except LayoutError as error:
        return f"{error.sentence}: the whole prompt is sent"
    known: dict[str, str] = {}
    for each in (*receivers, *senders):
        for place, digest in each.digests.items():
            if known.setdefault(place, digest) != digest:
                where = f"tokens {point.prefix} .. {point.upto - 1} of {place} (layer/head)"
                return f"{where} are not what the replacement has computed: the whole prompt is sent"
    mine, its = ({place for each in group for place in each.digests} for group in (receivers, senders))
    if mine != its:
        return f"{min(mine ^ its)} (layer/head) has a digest on one side alone: the whole prompt is sent"
    return ""
