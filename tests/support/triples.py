"""Triples: draws value, event and time by the kinds of their fields.

Numbers are small, so that they meet, or at an end of their kind, so that a bit too few is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from random import Random
from typing import Any, Literal, get_args, get_origin

import msgspec

from kvproto.fsm.kinds import Kind, Mask, bare, field_hints, kind_of, options
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import Event, State

SMALL = (0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7)
EDGES = (8, 31, 32, 63, 64, 65, 127, 128, 511)
ENDS = (2**31, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
MASKS = (0, 0, 1, 1, 2, 3, 3, 7, 5, 1 << 63, 1 << 64, 3 << 63, 1 << 127, 1 << 511, (1 << 512) - 1, (1 << 511) - 1)
SETS = (*MASKS, 1 << 512, (1 << 700) - 1)
TIMES = (0.0, 0.0, 0.5, 1.0, 1.03, 5.5, 7.7, 29.0, 50.0, 100.25)
TEXTS = ("", "", "a", "bc", "promise", "commit", "größer", "a" * 70)
NOW = (0.5, 1.03, 7.7, 50.0, 101.0, 123456.789)


class Triples:
    """Draws triples for tables."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def of(self, table: Table[Any], state: State, event: type[Event]) -> Iterator[tuple[Any, Any, float]]:
        while True:
            due = self.random.choice((float("inf"), 3.0))
            yield self.struct(table.value, state=state, due=due), self.struct(event), self.random.choice(NOW)

    def struct(self, kind: type[msgspec.Struct], **known: Any) -> Any:
        """Draw a struct; some of its fields are known."""
        drawn = {field: self.field(hint) for field, hint in field_hints(kind).items() if field not in known}
        return kind(**drawn, **known)

    def field(self, hint: Any) -> Any:
        """Draw what a field with this annotation may hold."""
        option = self.random.choice(options(hint))
        inner = bare(option)
        if inner is int:
            return self.number(kind_of(option))
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return self.struct(inner)
        if isinstance(inner, type) and issubclass(inner, IntEnum):
            return self.random.choice(list(inner))
        if get_origin(inner) is Literal:
            return self.random.choice(get_args(inner))
        if get_origin(inner) is tuple:
            of = SMALL if get_args(inner)[0] is int else TEXTS
            return tuple(self.random.choices(of, k=self.random.choice((0, 1, 3))))
        drawn = {float: TIMES, bool: (False, True), str: TEXTS, bytes: tuple(map(str.encode, TEXTS))}
        return self.random.choice(drawn.get(inner, (None,)))

    def number(self, kind: Kind) -> int:
        """Draw a number or a mask of this kind."""
        if isinstance(kind, Mask):
            sets = [each for each in SETS if not kind.bits or each < 1 << kind.bits]
            return self.random.choice(sets)
        if self.random.random() < 0.8:
            return self.random.choice(SMALL)
        pool = [*EDGES, *(ENDS if kind.bits >= 64 else ()), *((2**64, kind.most) if kind.bits > 64 else ())]
        pool += [-1, -2] if kind.signed else []
        fitting: list[int] = [each for each in pool if kind.least <= each <= kind.most]
        return self.random.choice(fitting)
