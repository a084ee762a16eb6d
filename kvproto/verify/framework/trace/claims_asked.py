"""Claims asked of a step, by the row that it fired.

A row says where a machine goes and on which event, so it is known beforehand which claims a step by this row concerns:
the assumptions about its event, the invariant of the state that it leads to, the promises.  They are chosen when the
row first fires.  The invariant is asked where the value or its witness has moved; what stays as it was keeps what it
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

from kvproto.fsm.table import Output, Row
from kvproto.verify.framework.claims import Claims, Step


class Breach(msgspec.Struct, frozen=True):
    """`what` is broken: an assumption, the invariant, or the promise of this name; `text`: how it reads."""

    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


Tests = tuple[tuple[Callable[..., bool], Breach], ...]


class RowClaims(NamedTuple):
    """The claims that a step by this row concerns; the row, so that no other one has its identity."""

    row: Row
    raised: Tests
    kept: Tests
    promised: Tests


class ClaimsAsked:
    """The claims of one table."""

    def __init__(self, claims: Claims[Any, Any]) -> None:
        self.claims = claims
        #: by the row's identity
        self._of_row: dict[int, RowClaims] = {}
        self._of_effect: dict[type[Output], Tests] = {}

    def broken(self, row: Row, step: Step) -> Breach | None:
        """Find the first claim that the step by this row breaks; give the step the witness that comes after."""
        _, raised, kept, promised = self._of_row.get(id(row)) or self._choose(row)
        before, event, after, seen = step.before, step.event, step.after, step.seen
        for test, breach in raised:
            if not test(before, event, seen):
                return breach
        then = step.then = self.claims.follow(step)
        if then is not seen or after is not before:
            for test, breach in kept:
                if not test(after, then):
                    return breach
        return self._unkept(promised, step)

    def _unkept(self, promised: Tests, step: Step) -> Breach | None:
        """Find the first promise that the step breaks, by itself or by an effect."""
        for test, breach in promised:
            if not test(step):
                return breach
        for effect in step.effects:
            for test, breach in self._promises_of(type(effect)):
                if not test(step, effect):
                    return breach
        return None

    def _choose(self, row: Row) -> RowClaims:
        claims, event = self.claims, row.event
        found = self._of_row[id(row)] = RowClaims(
            row,
            tuple((c.test, Breach("nobody can have raised this event", f"{c.text} ({c.paid})"))
                  for c in claims.assumptions if not c.about or issubclass(event, c.about)),
            tuple((c.test, Breach("the invariant", c.text))
                  for c in claims.invariant if not c.about or row.target in c.about),
            tuple((c.test, Breach(c.name, c.text))
                  for c in claims.promises_ if not c.about and issubclass(event, c.on or object)),
        )  # fmt: skip
        return found

    def _promises_of(self, kind: type[Output]) -> Tests:
        found = self._of_effect.get(kind)
        if found is None:
            about = [c for c in self.claims.promises_ if c.about and issubclass(kind, c.about)]
            found = self._of_effect[kind] = tuple((c.test, Breach(c.name, c.text)) for c in about)
        return found


@cache
def asked_of(claims: Claims[Any, Any]) -> ClaimsAsked:
    """The claims of a table, chosen once for all parties of the process."""
    return ClaimsAsked(claims)
