"""Claims: what is always true of a machine, said in the vocabulary of its rows.

A row says what happens; a claim says what is so, whatever happens.  Claims are plain functions of the frozen value, as
guards are: they can be looked at, run on a value that a search has found, and proved (`kvproto.verify.prove`).  Of a
table one writes down five things:

* `holds`: in these states, this is so.  All of them together are the *invariant*: it holds of the initial value, and
  no row leads out of it.
* `promises`: whenever a row leaves this effect (or fact) behind, or moves, that is so.  These are the properties that
  people want; the invariant is only what it takes to see them.
* `assumes`: what the rest of the system gives its word for when an event comes.  An assumption is a debt; where it is
  paid stands beside it.
* `waits`: what it waits for, and so by which timer; whenever a time begins, it is that one's.
* `ghosts`: a witness.  It remembers what the machine has done and seen (what is in flight, who holds what), and
  decides nothing.  A promise about the world ("nothing of it is in flight") is one about the witness.

A claim of one expression is a row: its states, sentence and formula.  A longer one, or one that is named elsewhere, is
a decorated function, and its sentence is the docstring.

`and`, `or` and `not` mean what they do everywhere.  Nothing here knows of any solver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import msgspec

from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Event, State

INFINITY = float("inf")
#: the time that the value itself says (`Table.periods`), where a timer is asked for
OWN = "its own"
V = TypeVar("V", bound=Value)
G = TypeVar("G", bound="Ghost")
F = TypeVar("F", bound=Callable[..., bool])
Formula = TypeVar("Formula", bound=Callable[..., bool])
Asked = Callable[..., bool]
By = TypeVar("By", bound=Callable[..., str])
#: no event has been seen yet
Follow = Callable[["Step"], Any]


class Ghost(msgspec.Struct, frozen=True, gc=False):
    """Base of a witness; the defaults are what it knows of a machine that has just been made."""


class Step(msgspec.Struct):
    """One step of a machine, and the witness beside it, before and after."""

    before: Any
    event: Any
    after: Any
    effects: tuple[Output, ...]
    now: Any
    seen: Any
    then: Any = None

    def all_of(self, kind: type[Any]) -> list[Any]:
        """The effects of this kind."""
        return [each for each in self.effects if isinstance(each, kind)] if self.effects else []

    def says(self, kind: type[Any]) -> int:
        """How many messages of this kind are among the effects."""
        return len([each for each in self.effects if isinstance(getattr(each, "body", None), kind)])


class Claim(msgspec.Struct, frozen=True):
    """A claim of one table.

    `about`: states, events or effects (none: all); `name`: the property that a promise is part of; `on`: of which
    events' steps it is asked (none: of all).
    """

    about: tuple[Any, ...]
    text: str
    test: Callable[..., Any]
    name: str = ""
    paid: str = ""
    on: tuple[type[Event], ...] = ()


class Kept(Generic[Formula]):
    """Takes a claim, as a row (sentence and formula) or as a function with a docstring."""

    def __init__(self, claims: list[Claim], **about: Any) -> None:
        """Keep it among these claims; `about`: what it is about, and its name or who pays for it."""
        self._claims, self._about = claims, about

    @overload
    def __call__(self, said: str, test: Formula) -> None: ...
    @overload
    def __call__(self, said: F) -> F: ...
    def __call__(self, said: Any, test: Any = None) -> Any:
        text = said if isinstance(said, str) else sentence(said)
        self._claims.append(Claim(text=text, test=test or said, **self._about))
        return None if test else said


class Claims(Generic[V, G]):
    """The claims of one table."""

    @overload
    def __init__(self: Claims[V, Ghost], table: Table[V]) -> None: ...
    @overload
    def __init__(self, table: Table[V], ghost: type[G]) -> None: ...
    def __init__(self, table: Table[V], ghost: type[Any] = Ghost) -> None:
        """`ghost`: the witness's type."""
        self.table, self.ghost = table, ghost
        self.invariant: list[Claim] = []
        self.assumptions: list[Claim] = []
        self.promises_: list[Claim] = []
        self.waits_: Claim | None = None
        self.follow: Follow = lambda step: step.seen

    def holds(self, *states: State) -> Kept[Callable[[V, G], bool]]:
        """In these states (none: in all) it is so; the formula takes (value, witness)."""
        return Kept(self.invariant, about=states)

    def assumes(self, *events: type[Event], paid: str) -> Kept[Callable[[V, Any, G], bool]]:
        """When one of these events comes (none: any), it is so; the formula takes (value, event, witness).

        `paid`: who gives his word for it.
        """
        return Kept(self.assumptions, about=events, paid=paid)

    def promises(self, name: str, *effects: type[Output], on: tuple[type[Event], ...] = ()) -> Kept[Asked]:
        """Whenever one of these effects is left behind, it is so; the formula takes (step, effect).

        Without effects: at every step, or at those `on` these events, and the formula takes the step alone.
        """
        assert not (effects and on), "a promise is about effects, or about steps"
        return Kept(self.promises_, about=effects, name=name, on=on)

    def waits(self, name: str) -> Callable[[By], By]:
        """Register the timer by which a state waits (`OWN`: for as long as the value says).

        The function takes (value, witness) as they are after a step with which a time begins.
        """

        def keep(test: By) -> By:
            self.waits_ = Claim((), sentence(test), test, name=name)
            return test

        return keep

    def ghosts(self, follow: Follow) -> Follow:
        """The witness after a step; the function takes the step."""
        self.follow = follow
        return follow

    def broken(self, value: V, seen: Ghost) -> list[str]:
        """Return the parts of the invariant that this value breaks: for searches and tests, on real values."""
        return [
            claim.text
            for claim in self.invariant
            if (not claim.about or value.state in claim.about) and not claim.test(value, seen)
        ]


def sentence(function: Callable[..., Any]) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((function.__doc__ or function.__name__).strip().split("\n\n")[0].split())


def in_order(step: Step, first: type[Any], later: type[Any]) -> bool:
    """Tell whether the first of two kinds of effects comes first, if both are left behind."""
    kinds = [type(each) for each in step.effects]
    return first not in kinds or later not in kinds or kinds.index(first) < kinds.index(later)


def timed_anew(v: Value) -> bool:
    """Tell whether the time of its state begins. In a proof no time runs before the step."""
    return v.due < INFINITY


def begun_anew(step: Step) -> bool:
    """Tell whether this step begins the time of its state, also of a followed step with a running time."""
    return timed_anew(step.after) and step.after.due != step.before.due


def within(some: int, others: int) -> bool:
    """Tell whether all of the first set (mask) is in the second."""
    return not some & ~others


def apart(some: int, others: int) -> bool:
    """Tell whether two sets (masks) have nothing in common."""
    return not some & others


def among(one: int, others: int) -> bool:
    """This rank, or chunk, is in the set (mask)."""
    return bool(others >> one & 1)
