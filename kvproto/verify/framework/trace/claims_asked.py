"""What is claimed of a table, as one function a row.

A row says where a machine goes and on which event, so it is known beforehand which claims a step by this row concerns:
the assumptions about its event, the invariant of the state that it leads to, the promises.  They are written out as one
function (`kvproto.fsm.inline`), made when the row first fires.  The invariant is asked where the value or its witness
has moved; what stays as it was keeps what it kept.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from kvproto.fsm.generated import compiled
from kvproto.fsm.inline import expression
from kvproto.fsm.table import Output, Row
from kvproto.verify.framework.claims import Claim, Claims, Step


class Breach(msgspec.Struct, frozen=True):
    """`what` is broken: an assumption, the invariant, or the promise of this name; `text`: how it reads."""

    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


Ask = Callable[[Step], Breach | None]
#: the names that the function gives itself
LOCAL = ("step", "before", "event", "after", "seen", "then", "follow", "promised", "effect")
HEAD = """\
def ask(step):
    before, event, after, seen = step.before, step.event, step.after, step.seen"""
FOLLOW = "    then = step.then = follow(step)"
MOVED = "    if then is not seen or after is not before:"
EFFECTS = """\
    for effect in step.effects:
        for test, broken in promised(type(effect)):
            if not test(step, effect):
                return broken
    return None"""
Promised = tuple[tuple[Callable[..., bool], Breach], ...]


class ClaimsAsked:
    """The claims of one table."""

    def __init__(self, claims: Claims[Any]) -> None:
        self.claims = claims
        #: by the row's identity; and the row, so that no other one has it
        self._asks: dict[int, tuple[Ask, Row]] = {}
        self._promised: dict[type[Output], Promised] = {}

    def broken(self, row: Row, step: Step) -> Breach | None:
        """The first claim that the step by this row does not keep; gives it the witness that comes after."""
        found = self._asks.get(id(row))
        if found is None:
            found = self._asks[id(row)] = self._compile(row), row
        return found[0](step)

    def _compile(self, row: Row) -> Ask:
        claims, names = self.claims, dict.fromkeys(LOCAL, LOCAL)
        names["follow"], names["promised"] = claims.follow, self._promises_of  # type: ignore[assignment]
        raised = [(c, Breach("nobody can have raised this event", f"{c.text} ({c.paid})")) for c in claims.assumptions
                  if not c.about or issubclass(row.event, c.about)]  # fmt: skip
        kept = [(c, Breach("the invariant", c.text)) for c in claims.invariant if not c.about or row.target in c.about]
        at_each = [(c, Breach(c.name, c.text)) for c in claims.promises_
                   if not c.about and issubclass(row.event, c.on or object)]  # fmt: skip
        lines = [HEAD, *_asked(raised, ("before", "event", "seen"), names, "    "), FOLLOW]
        if kept:
            lines += [MOVED, *_asked(kept, ("after", "then"), names, "        ")]
        lines += [*_asked(at_each, ("step",), names, "    "), EFFECTS]
        exec(compiled("\n".join(lines), f"claims of {claims.table.name} row {row.index}"), names)  # noqa: S102
        ask: Ask = names["ask"]  # type: ignore[assignment]
        return ask

    def _promises_of(self, kind: type[Output]) -> Promised:
        found = self._promised.get(kind)
        if found is None:
            about = [c for c in self.claims.promises_ if c.about and issubclass(kind, c.about)]
            found = self._promised[kind] = tuple((c.test, Breach(c.name, c.text)) for c in about)
        return found


@cache
def asked_of(claims: Claims[Any]) -> ClaimsAsked:
    """The claims of a table, written out once for all parties of the process."""
    return ClaimsAsked(claims)


def _asked(
    claims: list[tuple[Claim, Breach]], arguments: tuple[str, ...], names: dict[str, Any], indent: str
) -> list[str]:  # fmt: skip
    lines = []
    for claim, breach in claims:
        names[f"breach{len(names)}"] = breach
        broken = next(reversed(names))
        test = ast.unparse(expression(claim.test, arguments, names))
        lines += [f"{indent}if not ({test}):", f"{indent}    return {broken}"]
    return lines
