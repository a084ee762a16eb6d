"""The ring, of any size, with any number of regions and rounds.

The lemmas run the ring's own code (`usable`, `Ring.reserve`, `Ring.free`) on terms.  How many regions there are does
not matter to them, because each speaks of two: an older one, `i`, and a younger one, `j`, of which nothing is known
but what the order of giving says.

* `order`: what `reserve` gives comes after every region that was given before, and lies in the ring.
* `between`: of three regions given one after the other, the first comes before the third; so two neighbours in the
  ring's list, whatever lay between them and was freed, are in order.
* `mark-free`, `mark-empty`, `mark-reserve`: the watermark never falls (S7), whatever is freed and given.
* `overlap`: a region that any watermark up to the true one lets be written has nothing in common with an older one
  that is not freed (S11); a watermark that comes late is one up to the true one.
* `in-order`: what a watermark lets be written, it lets all older regions be written, too; so nobody is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from time import process_time
from typing import Any, NamedTuple

import z3

from kvproto.protocol.ring import Mark, Ring, RingRegion, usable
from kvproto.verify.prove.proof import Failure, PairProof
from kvproto.verify.prove.terms import Number, Ways, number

NAME = "ring"
SIZE = Number(z3.Int("size"))


class _Region(NamedTuple):
    """A region on terms."""

    round: Any
    offset: Any
    end: Any

    def real(self, grant: int) -> RingRegion:
        """As the ring keeps it."""
        return RingRegion(grant, Number(self.round), Number(self.offset), Number(self.end))  # type: ignore[arg-type]


def _region(name: str) -> _Region:
    return _Region(*(z3.Int(f"{name}.{field}") for field in _Region._fields))


def lies_in_ring(region: _Region) -> Any:
    """It is not empty, and within the ring."""
    return z3.And(region.round >= 0, region.offset >= 0, region.offset < region.end, region.end <= SIZE.term)


def given_before(one: _Region, other: _Region) -> Any:
    """The first was given earlier: in an earlier round, or before it in the same one."""
    return z3.Or(one.round < other.round, z3.And(one.round == other.round, one.end <= other.offset))


def up_to(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """A watermark that is no higher than another."""
    return z3.Or(one[0] < other[0], z3.And(one[0] == other[0], one[1] <= other[1]))


class _TermRing(Ring):
    """A ring in some state: what it has given so far is told by its head, its oldest region by the mark."""

    def __init__(self) -> None:
        super().__init__(SIZE)  # type: ignore[arg-type]  # a term
        self.ahead = Number(z3.Int("ahead"))  # type: ignore[assignment]
        self.round, self.head = Number(z3.Int("round")), Number(z3.Int("head"))  # type: ignore[assignment]
        self.told: Mark | None = Number(z3.Int("mark.round")), Number(z3.Int("mark.tail"))  # type: ignore[assignment]

    @property
    def mark(self) -> Mark:
        """The watermark; where no region is kept here, some one."""
        return self.told if self.told is not None else super().mark


class Question(NamedTuple):
    """The known facts, and the statement that has to follow."""

    known: list[Any]
    follows: Any


def _head_is_after(ring: _TermRing, region: _Region) -> Any:
    round_, head = number(ring.round), number(ring.head)
    return z3.Or(region.round < round_, z3.And(region.round == round_, region.end <= head))


def _ring_is_sound(ring: _TermRing) -> Any:
    return z3.And(SIZE.term > 0, number(ring.round) >= 0, number(ring.head) >= 0, number(ring.head) <= SIZE.term)


def order() -> Iterator[Question]:
    """A region that `reserve` gives comes after every earlier region and lies in the ring."""
    for way in Ways():
        ring, old, wanted = _TermRing(), _region("i"), Number(z3.Int("wanted"))
        known = [_ring_is_sound(ring), lies_in_ring(old), _head_is_after(ring, old), wanted.term > 0]
        try:
            got = ring.reserve(wanted)  # type: ignore[arg-type]
        except ValueError:
            continue  # larger than the ring: nothing is given
        if got is None:
            continue
        new = _Region(*_pair((got.round, got.offset)), _pair((got.end, 0))[0])
        after = z3.And(_head_is_after(ring, new), _head_is_after(ring, old), _ring_is_sound(ring))
        yield Question([*known, *way.conditions], z3.And(given_before(old, new), lies_in_ring(new), after))


def between() -> Iterator[Question]:
    """The first of three regions that are given in turn comes before the third."""
    i, j, k = _region("i"), _region("j"), _region("k")
    known = [lies_in_ring(i), lies_in_ring(j), lies_in_ring(k), given_before(i, j), given_before(j, k)]
    yield Question(known, given_before(i, k))


def _freed(live: int, gone: tuple[int, ...], last: int) -> Iterator[tuple[_TermRing, list[_Region], Mark, Any]]:
    """Yield a ring of so many regions, some freed already, after `free` of one more, and its old mark."""
    for way in Ways():
        ring, regions = _TermRing(), [_region(f"r{n}") for n in range(live)]
        ring.told = None
        ring.live = {n: region.real(n) for n, region in enumerate(regions)}
        ring.freed = set(gone)
        before = ring.mark
        ring.free(last)
        known = [_ring_is_sound(ring), *map(lies_in_ring, regions)]
        known += [given_before(one, other) for one, other in pairwise(regions)]
        start = _TermRing()
        known += [_ring_is_sound(start), *(_head_is_after(start, region) for region in regions)]
        yield ring, regions, before, [*known, *way.conditions]


def mark_free() -> Iterator[Question]:
    """The watermark never falls when a region is freed: the oldest, another one, the last."""
    for live, gone, last in ((2, (), 0), (2, (), 1), (3, (1,), 0), (3, (), 1), (1, (), 0), (2, (1,), 0)):
        for ring, _, before, known in _freed(live, gone, last):
            yield Question(known, up_to(_pair(before), _pair(ring.mark)))


def _pair(mark: Mark) -> tuple[Any, Any]:
    return number(mark[0]), number(mark[1])


def mark_empty() -> Iterator[Question]:
    """The watermark never falls when the ring becomes empty, and what is given next is not before it."""
    ring = _TermRing()
    mark = z3.Ints("m.round m.tail")
    known = [_ring_is_sound(ring), up_to((mark[0], mark[1]), (number(ring.round), number(ring.head)))]
    yield Question(known, up_to((mark[0], mark[1]), (number(ring.round) + 1, z3.IntVal(0))))


def mark_reserve() -> Iterator[Question]:
    """A region given to an empty ring begins at or after the watermark; else the watermark stays."""
    for way in Ways():
        ring = _TermRing()
        ring.told = None
        before, wanted = ring.mark, Number(z3.Int("wanted"))
        known = [_ring_is_sound(ring), wanted.term > 0]
        try:
            got = ring.reserve(wanted)  # type: ignore[arg-type]
        except ValueError:
            continue
        if got is not None:
            yield Question([*known, *way.conditions], up_to(_pair(before), _pair(ring.mark)))


def overlap() -> Iterator[Question]:
    """A writable region shares no byte with an older region that is not freed."""
    i, j, mark = _region("i"), _region("j"), z3.Ints("mark.round mark.tail")
    known = [lies_in_ring(i), lies_in_ring(j), given_before(i, j), up_to((mark[0], mark[1]), (i.round, i.offset))]
    for way in Ways():
        told: Any = (Number(mark[0]), Number(mark[1]))
        if usable(Number(j.round), Number(j.end), told):  # type: ignore[arg-type]
            known_ = [*known, *way.conditions, *(m >= 0 for m in mark)]
            yield Question(known_, z3.Or(i.end <= j.offset, j.end <= i.offset))


def in_order() -> Iterator[Question]:
    """A watermark that lets a region be written lets all older ones be written."""
    i, j, mark = _region("i"), _region("j"), z3.Ints("mark.round mark.tail")
    known = [lies_in_ring(i), lies_in_ring(j), given_before(i, j), *(m >= 0 for m in mark)]
    told: Any = (Number(mark[0]), Number(mark[1]))
    for way in Ways():
        younger = usable(Number(j.round), Number(j.end), told)  # type: ignore[arg-type]
        older = bool(younger) and bool(usable(Number(i.round), Number(i.end), told))  # type: ignore[arg-type]
        if younger:
            yield Question([*known, *way.conditions], z3.BoolVal(older))


Lemma = tuple[str, str, Callable[[], Iterator[Question]]]
LEMMAS: tuple[Lemma, ...] = (
    ("S11", "order", order), ("S11", "between", between), ("S7", "mark-free", mark_free),
    ("S7", "mark-empty", mark_empty), ("S7", "mark-reserve", mark_reserve), ("S11", "overlap", overlap),
    ("L3", "in-order", in_order),
)  # fmt: skip


def prove(name: str = NAME, lemmas: tuple[Lemma, ...] = LEMMAS) -> Iterator[PairProof]:
    for about, title, questions in lemmas:
        began = process_time()
        found = PairProof(name, title, proved={about: 0})
        for question in questions():
            solver = z3.SimpleSolver()
            solver.add(*question.known)
            found.ways += 1
            found.questions += 2
            if solver.check() == z3.unsat:
                continue
            found.possible = True
            found.proved[about] += 1
            if solver.check(z3.Not(question.follows)) != z3.unsat:
                found.failures = [*found.failures, _failure(name, about, title, questions, solver)]
        found.seconds = process_time() - began
        yield found


def _failure(name: str, about: str, title: str, questions: Callable[..., Any], solver: Any) -> Failure:
    model = solver.model()
    names = sorted(model.decls(), key=lambda each: str(each.name()))
    values = tuple(f"{each.name()} = {model[each]}" for each in names)
    text = (questions.__doc__ or title).splitlines()[0]
    return Failure(name, title, about, text, "", "", values)
