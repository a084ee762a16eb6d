"""Terms: stand-ins for any value, on which guards, changes and effects run in a proof.

The functions of a table are plain Python, so they are run as they are, on objects that stand for *any* number, any
set of ranks, any text.  Arithmetic builds a formula of the solver's; a question (`if`, `and`, `not`, `bool`) splits
the way in two, and `ways` walks all of them, each with the conditions under which it is taken.

Masks are sets of whole numbers, not words of 64 bits: `1 << rank` is the set of that one, `mask >> rank & 1` asks for
it, `(1 << n) - 1` is all below n.  So what is proved is proved for any number of ranks and chunks.  How many a set
has (`bit_count`), and a quotient by something unknown, are only as much as the proofs need: facts that hold of every
set and of every quotient.  Texts and bytes can be compared, and asked whether they are empty.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import z3

from kvproto.fsm.errors import KvprotoError

#: more ways than this through one step: something is wrong with the table, or with its claims
MOST = 4000
Facts = list[Any]

SET = z3.ArraySort(z3.IntSort(), z3.BoolSort())
NOBODY = z3.EmptySet(z3.IntSort())
_card = z3.Function("card", SET, z3.IntSort())
_below = z3.Function("below", z3.IntSort(), SET)
#: places that were named (`1 << n`), and ends of sets of all that is below
_places: dict[int, Any] = {}
_ends: dict[int, tuple[Any, Any]] = {}
#: by condition: it, what of it is asked and its negation, and whether it holds where that does; ways ask the same again
_asked: dict[int, tuple[Any, int, Any, Any, bool]] = {}
#: by choice and member: the choice, whether it is this member, and whether it is another one
_members: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
#: by what is done, with what: the two, and what they make; ways do the same again
_made: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}
_quotient = z3.Function("quotient", z3.IntSort(), z3.IntSort(), z3.IntSort())


class UndecidedError(KvprotoError, RuntimeError):
    """A way through a step has no end that could be found."""


class Ways:
    """All ways through one function; the one that is being walked is `Ways.walked`."""

    walked: Ways | None = None

    def __init__(self) -> None:
        self.known: dict[int, bool] = {}
        #: by term: the one member that it is, on this way
        self.members: dict[int, int] = {}
        self.given: list[bool] = []
        self.taken: list[bool] = []
        self.conditions: list[Any] = []
        self.facts: Facts = []
        self.ahead: list[list[bool]] = [[]]

    def __iter__(self) -> Iterator[Ways]:
        count = 0
        outer = Ways.walked
        while self.ahead:
            count += 1
            if count > MOST:
                raise UndecidedError(f"more than {MOST} ways")
            self.given = self.ahead.pop()
            self.known, self.members, self.taken, self.conditions, self.facts = {}, {}, [], [], []
            Ways.walked = self
            try:
                yield self
            finally:
                Ways.walked = outer

    def decide(self, term: Any) -> bool:
        """Whether the condition holds, on this way."""
        _, at, plain, negated, positive = _question(term)
        if plain is None:
            return positive
        known = self.known.get(at)
        if known is None:
            place = len(self.taken)
            known = self.given[place] if place < len(self.given) else True
            if place >= len(self.given):
                self.ahead.append([*self.taken, False])
            self.taken.append(known)
            self.known[at] = known
            self.conditions.append(plain if known else negated)
        return known is positive


def _question(term: Any) -> tuple[Any, int, Any, Any, bool]:
    """Return the condition, what it is without negation (number, term, negated), and if it had none.

    Of one that is known those two are None, and the last is the answer.
    """
    found = _asked.get(_id(term))
    if found is None:
        simple = z3.simplify(term)
        if z3.is_true(simple) or z3.is_false(simple):
            found = term, 0, None, None, z3.is_true(simple)
        else:
            positive = not z3.is_not(simple)
            plain = simple if positive else simple.arg(0)
            found = term, _id(plain), plain, z3.Not(plain), positive
        _asked[_id(term)] = found  # with the condition, so that no other one has its number
    return found


def _id(term: Any) -> int:
    """The number of a term, which z3 is asked for once: that takes longer than what it is for."""
    try:
        return int(term.kept_id)
    except AttributeError:
        kept: int = term.get_id()
        term.kept_id = kept
        return kept


def decide(term: Any) -> bool:
    """Whether it holds, on the way that is being walked."""
    assert Ways.walked is not None, "a symbol was asked outside of any way"
    return Ways.walked.decide(term)


def _fact(term: Any) -> None:
    if Ways.walked is not None:
        Ways.walked.facts.append(term)


def formula(question: Callable[[], Any]) -> tuple[Any, Facts]:
    """Return a plain predicate as one formula, and the facts that it leans on."""
    cases: list[Any] = []
    facts: Facts = []
    for way in (ways := Ways()):
        try:
            holds = bool(question())
        except (AttributeError, TypeError, ValueError, LookupError, KvprotoError):
            holds = False  # of a value about which it cannot even be asked it does not hold
        facts += way.facts
        if holds:
            cases.append(_joined(z3.Z3_mk_and, way.conditions))
    del ways
    return _joined(z3.Z3_mk_or, cases), facts


def _joined(make: Callable[..., Any], terms: list[Any]) -> Any:
    """Conditions joined, without the conversions of `z3.And` and `z3.Or`, which take longer than all else."""
    context = z3.main_ctx()
    return z3.BoolRef(make(context.ref(), len(terms), (z3.Ast * len(terms))(*[term.ast for term in terms])), context)


def _make(what: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Make something of two terms, or of a term and a number, once a proof: the conversions take longest."""
    at = (what, _id(left), _id(right), "") if isinstance(right, z3.ExprRef) else (what, _id(left), right)
    found = _made.get(at)
    if found is None:
        found = _made[at] = left, right, what(left, right)  # with both, so that no other term has their numbers
    return found[2]


class Term:
    """Base of all that stands for something unknown."""

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Any) -> None:
        self.term = term

    def __repr__(self) -> str:
        return str(self.term)

    def __format__(self, _how: str) -> str:
        return str(self.term)


class Truth(Term):
    """True or false."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return decide(self.term)

    def __and__(self, other: Any) -> Any:
        return Truth(z3.And(self.term, truth(other)))

    __rand__ = __and__

    def __eq__(self, other: object) -> Any:
        return Truth(self.term == truth(other))

    def __ne__(self, other: object) -> Any:
        return Truth(self.term != truth(other))


def truth(value: Any) -> Any:
    """The formula of something that is true or false."""
    if isinstance(value, Term):
        return value.term if isinstance(value, Truth) else as_truth(value)
    return z3.BoolVal(bool(value))


def as_truth(value: Term) -> Any:
    """Return the term's truth as a formula, without branching on it."""
    if isinstance(value, Bits):
        return _make(operator.ne, value.term, NOBODY)
    return _make(operator.ne, value.term, 0)


def _with(what: Callable[[Any, Any], Any]) -> Callable[[Number, Any], Any]:
    """Return the method of a number that makes this of it and another."""
    return lambda self, other: Number(_make(what, self.term, number(other)))


def _compared(what: Callable[[Any, Any], Any], *, below: bool) -> Callable[[Number, Any], Any]:
    """Return the method that compares a number so; against infinity every number is below."""

    def compare(self: Number, other: Any) -> Truth:
        if isinstance(other, float) and other in (float("inf"), float("-inf")):
            return Truth(z3.BoolVal((other > 0) is below))
        return Truth(_make(what, self.term, number(other)))

    return compare


class Number(Term):
    """A whole number, or a time."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return decide(as_truth(self))

    def _as(self, other: Any) -> Any:
        """Convert what it is compared with."""
        return number(other)

    __add__ = __radd__ = _with(operator.add)
    __sub__ = _with(operator.sub)
    __mul__ = __rmul__ = _with(operator.mul)
    __truediv__ = _with(operator.truediv)

    def __rsub__(self, other: Any) -> Any:
        return Number(number(other) - self.term)

    def __neg__(self) -> Any:
        return Number(-self.term)

    def __floordiv__(self, other: Any) -> Any:
        if self.term.is_real():
            return Number(z3.ToReal(z3.ToInt(self.term / number(other))))
        by, over = number(other), self.term
        _fact(_make(_is_quotient, over, by))
        return Number(_make(_quotient, over, by))

    def __rfloordiv__(self, other: int) -> Any:
        return Number(z3.IntVal(other)) // self

    def __eq__(self, other: object) -> Any:
        return Truth(_make(operator.eq, self.term, self._as(other)))

    def __ne__(self, other: object) -> Any:
        return Truth(_make(operator.ne, self.term, self._as(other)))

    __lt__, __le__ = _compared(operator.lt, below=True), _compared(operator.le, below=True)
    __gt__, __ge__ = _compared(operator.gt, below=False), _compared(operator.ge, below=False)

    def __rrshift__(self, mask: int) -> Any:
        return Shifted(Bits(bits(mask)), self.term)

    def __rlshift__(self, one: int) -> Any:
        assert one == 1, "only 1 << rank is a set"
        return OneBit(z3.SetAdd(z3.EmptySet(z3.IntSort()), self.term), self.term)


def _is_quotient(over: Any, by: Any) -> Any:
    """As much as is known of a quotient."""
    found = _make(_quotient, over, by)
    return z3.Implies(by > 0, z3.And((over < 0) == (found < 0), z3.Implies(over == 0, found == 0)))


def number(value: Any) -> Any:
    if isinstance(value, Term):
        return z3.If(value.term, 1, 0) if isinstance(value, Truth) else value.term
    return z3.RealVal(value) if isinstance(value, float) else int(value)


class Opaque(Number):
    """A text, bytes, a name: it is empty or not, and like another one or not."""

    __slots__ = ()

    def _as(self, other: Any) -> Any:
        return opaque(other)


def opaque(value: Any) -> Any:
    """The term of a text; a literal that is not empty is a text like no other."""
    if isinstance(value, Term):
        return value.term
    return hash(value) if value else 0


class Bits(Term):
    """A set of ranks or chunks, where the code has a mask."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return decide(as_truth(self))

    def __and__(self, other: Any) -> Any:
        return Bits(_make(z3.SetIntersect, self.term, bits(other)))

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return Bits(_make(z3.SetUnion, self.term, bits(other)))

    __ror__ = __or__

    def __invert__(self) -> Any:
        return Bits(z3.SetComplement(self.term))

    def __rshift__(self, place: Any) -> Any:
        return Shifted(self, number(place))

    def __eq__(self, other: object) -> Any:
        return Truth(_make(operator.eq, self.term, bits(other)))

    def __ne__(self, other: object) -> Any:
        return Truth(_make(operator.ne, self.term, bits(other)))

    def __gt__(self, other: Any) -> Any:
        assert other == 0, "a mask is only compared with 0"
        return Truth(as_truth(self))

    def bit_count(self) -> Number:
        """How many there are."""
        count = Number(_card(self.term))
        _fact(_make(operator.ge, count.term, 0))
        _fact(_make(_is_count, count.term, self.term))
        return count


def _is_count(count: Any, of: Any) -> Any:
    return (count == 0) == (of == NOBODY)


class OneBit(Bits):
    """`1 << n`."""

    __slots__ = ("place",)

    def __init__(self, term: Any, place: Any) -> None:
        super().__init__(term)
        self.place = _places[place.get_id()] = place

    def __sub__(self, one: int) -> Any:
        assert one == 1, "only (1 << n) - 1 is a set"
        return below(self.place)


class Shifted:
    """`mask >> n`, of which only the lowest bit is ever asked for."""

    def __init__(self, mask: Bits, place: Any) -> None:
        self.mask, self.place = mask, place

    def __and__(self, one: int) -> Truth:
        assert one == 1, "only the lowest bit is asked for"
        return Truth(_make(_has, self.mask.term, self.place))


def _has(mask: Any, place: Any) -> Any:
    return z3.IsMember(place, mask)


def below(place: Any) -> Bits:
    """All whole numbers from 0 that are below this one."""
    found = _below(place)
    _ends[place.get_id() if isinstance(place, z3.ExprRef) else place] = (place, found)
    return Bits(found)


def landmarks() -> Facts:
    """Say for every named place and every `below` whether the place is in it."""
    return [
        z3.IsMember(place, found) == z3.And(place >= 0, place < end)
        for place in _places.values()
        for end, found in _ends.values()
    ]


def forget() -> None:
    """Name no place any more: another proof begins."""
    _places.clear()
    _ends.clear()
    _asked.clear()
    _members.clear()
    _made.clear()


def bits(value: Any) -> Any:
    if isinstance(value, Term):
        return value.term
    if value < 0:
        return z3.SetComplement(bits(~value))
    found = z3.EmptySet(z3.IntSort())
    for place in range(value.bit_length()):
        if value >> place & 1:
            found = z3.SetAdd(found, place)
    return found


class Choice(Number):
    """A member of an enumeration; it answers a member's yes-or-no questions."""

    __slots__ = ("kind", "place")

    def __init__(self, term: Any, kind: type[IntEnum]) -> None:
        super().__init__(term)
        self.kind, self.place = kind, term.get_id()

    def __eq__(self, other: object) -> Any:
        return super().__eq__(other) if isinstance(other, Term) else Member(self, other, is_one=True)

    def __ne__(self, other: object) -> Any:
        return super().__ne__(other) if isinstance(other, Term) else Member(self, other, is_one=False)

    def __getattr__(self, name: str) -> Truth:
        if name.startswith("__"):
            raise AttributeError(name)
        return Truth(z3.Or(*[self.term == int(each) for each in self.kind if getattr(each, name)]))


class Member(Truth):
    """Whether a choice is this member; a way on which it is another one does not branch."""

    __slots__ = ("is_one", "place", "which")

    def __init__(self, choice: Choice, which: Any, *, is_one: bool) -> None:
        self.place, self.which, self.is_one = choice.place, int(which), is_one
        key = self.place, self.which
        if key not in _members:
            _members[key] = choice.term, choice.term == self.which, choice.term != self.which
        super().__init__(_members[key][1 if is_one else 2])

    def __bool__(self) -> bool:
        assert Ways.walked is not None, "a symbol was asked outside of any way"
        members = Ways.walked.members
        if self.place not in members:
            if decide(self.term) is not self.is_one:
                return not self.is_one
            members[self.place] = self.which
        return (members[self.place] == self.which) is self.is_one
