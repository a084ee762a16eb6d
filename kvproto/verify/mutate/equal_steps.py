"""Equal steps: whether a changed table still takes the same steps on every value and event.

The compiled step of one pair, as it was and as it is now, is walked on the same terms (`kvproto.verify.prove`), and the
solver is asked for a value and an event on which the two leave different values or effects behind.  If there is none,
no test and no search can ever tell the two apart, and the mutant is equivalent: that is shown, not said.

`Reach.PROVED` asks only of values that fulfil the table's proved invariant and of events that its assumptions allow.
Then no peer that keeps to the protocol can tell; one that misbehaves may.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import z3

from kvproto.fsm.table import Row
from kvproto.fsm.timing import NamedTimers
from kvproto.verify.framework.claims import Claims
from kvproto.verify.prove.steps import Pair, TermMachine, Way, machine_of, subjects, walk
from kvproto.verify.prove.terms import (
    Bits,
    Choice,
    Number,
    Opaque,
    Term,
    Truth,
    bits,
    forget,
    formula,
    landmarks,
    number,
)
from kvproto.verify.prove.terms import opaque as opaque_term
from kvproto.verify.prove.terms import truth as truth_term
from kvproto.verify.prove.values import Maker

#: more than this is left to searches and tests: seconds for a pair, milliseconds for a question
LONGEST_S, PATIENCE_MS = 12.0, 1_000


class Reach(IntEnum):
    """On what two steps have to be equal."""

    ANYTHING = 0
    PROVED = 1


class StepPair:
    """One pair of state and event of a table, as its rows have it now."""

    def __init__(self, claims: Claims[Any, Any], timing: NamedTimers, pair: Pair) -> None:
        """To be made before the change; the machine that is compiled here keeps its rows."""
        self.claims, self.timing, self.pair = claims, timing, pair
        self.before: TermMachine = machine_of(claims.table, timing)

    def unchanged(self, reach: Reach) -> bool:
        """The table's step on this pair is what it was; False: it is not, or it was not found out in time."""
        now = machine_of(self.claims.table, self.timing)
        until = time.monotonic() + LONGEST_S
        maker = Maker()
        forget()
        return all(
            self._alike(now, value, event, seen, maker, reach, until)
            for value, event in self._subjects(maker)
            for seen in self._witnesses(maker, reach)
        )

    def _subjects(self, maker: Maker) -> Iterator[tuple[Any, Any]]:
        table = self.claims.table
        if self.pair.state is not table.initial:
            yield from subjects(maker, table, self.pair)
            return
        for event in maker.variants(self.pair.event, "e"):
            yield self.before.initial, event

    def _witnesses(self, maker: Maker, reach: Reach) -> Iterator[Any]:
        if reach is Reach.ANYTHING or self.pair.state is self.claims.table.initial:
            yield self.claims.ghost()
        else:
            yield from maker.variants(self.claims.ghost, "seen")

    def _alike(
        self, now: TermMachine, value: Any, event: Any, seen: Any, maker: Maker, reach: Reach, until: float
    ) -> bool:  # fmt: skip
        solver = z3.SimpleSolver()
        solver.set("timeout", PATIENCE_MS)
        if reach is Reach.PROVED:
            self._assume(solver, value, event, seen)
        solver.add(*maker.facts)
        mine, theirs = list(walk(self.before, value, event)), list(walk(now, value, event))
        answers = [_answers(other) for other in theirs]
        for one in mine:
            known = _answers(one)
            for other, given in zip(theirs, answers, strict=True):
                if any(given.get(question, answer) != answer for question, answer in known.items()):
                    continue  # no value goes both ways
                same = _same_end(one, other)
                if z3.is_true(same):
                    continue
                if time.monotonic() > until:
                    return False
                solver.push()
                solver.add(*one.conditions, *one.facts, *other.conditions, *other.facts, *landmarks(), z3.Not(same))
                met = solver.check()
                solver.pop()
                if met != z3.unsat:
                    return False
        return True

    def _assume(self, solver: Any, value: Any, event: Any, seen: Any) -> None:
        for claim in self.claims.invariant:
            if not claim.about or self.pair.state in claim.about:
                solver.add(*_formula(lambda test=claim.test: test(value, seen)))
        for claim in self.claims.assumptions:
            if not claim.about or self.pair.event in claim.about:
                solver.add(*_formula(lambda test=claim.test: test(value, event, seen)))


def pair_of(row: Row) -> Pair:
    return Pair(row.source, row.event)


def _formula(question: Any) -> Sequence[Any]:
    term, facts = formula(question)
    return term, *facts


def _answers(way: Way) -> dict[int, bool]:
    """How each question was answered on it; what is asked on two ways is one term."""
    return {(each.arg(0) if z3.is_not(each) else each).get_id(): not z3.is_not(each) for each in way.conditions}


def _same_end(one: Way, other: Way) -> Any:
    """Under which conditions two ways leave the same behind."""
    if one.fault or other.fault:
        return z3.BoolVal(one.fault == other.fault)
    return z3.simplify(z3.And(_same(one.after, other.after), _same(one.effects, other.effects)))


def _same(one: Any, other: Any) -> Any:
    if isinstance(one, Term) or isinstance(other, Term):
        return _same_terms(one, other)
    if isinstance(one, msgspec.Struct) and type(one) is type(other):
        return z3.And(*[_same(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__])
    if isinstance(one, tuple) and isinstance(other, tuple):
        pairs = list(zip(one, other, strict=False)) if len(one) == len(other) else [(True, False)]
        return z3.And(*[_same(a, b) for a, b in pairs])
    return z3.BoolVal(type(one) is type(other) and bool(one == other))


def _same_terms(one: Any, other: Any) -> Any:
    known, unknown = (other, one) if isinstance(one, Term) else (one, other)
    if known is None or (isinstance(known, float) and known in (float("inf"), float("-inf"))):
        return z3.BoolVal(False)
    if isinstance(known, msgspec.Struct | tuple):
        return z3.BoolVal(False)
    for kind, term in ((Bits, bits), (Truth, truth_term), (Opaque, opaque_term), (Choice, number), (Number, number)):
        if isinstance(unknown, kind):
            other_term = term(known)
            return z3.BoolVal(False) if _sorts_differ(unknown.term, other_term) else unknown.term == other_term
    return z3.BoolVal(False)


def _sorts_differ(one: Any, other: Any) -> bool:
    return isinstance(other, z3.ExprRef) and one.sort() != other.sort() and not (one.is_real() or one.is_int())
