"""State encoding: numbered values side by side in one integer, and the steps between such states.

A state has one place for each node, each link's wire, and the budget, `BITS` bits each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvproto.verify.check.node import Input
from kvproto.verify.framework.frozen import ValueNumbers
from kvproto.verify.framework.search import FAULT, TIMER, WORK

BITS = 22
MASK = (1 << BITS) - 1
QUIET = 0  #: the number of the wire on which nothing is
DEAD = "dead"
#: what a clock brings about, an engine's among them
TIMERS = frozenset({"send timer", "room timer", "link timer", "beat", "silence", "renew", "pass"})
BLAMED = frozenset({"abort", "refuse", "timeout", "write", "kernel", "doubt"})  #: faults of one room


class BudgetState(NamedTuple):
    """The rest of the budget, and the rooms (mask) that may be blamed; all after a hard fault."""

    left: tuple[int, ...]
    hard: bool = False
    blamed: int = 0
    #: in a hasty world: what is slow (mask)
    asleep: int = 0
    #: in a timed world: seconds since the last fault, while not all is well again
    hurt: float = 0.0
    #: in it: how many timers have ended while a peer was silent
    silent: int = 0


#: what a node sends: (the link's shift, way, message's number), or (-1, 0, anything else)
Op = tuple[int, int, Any]


class Step(NamedTuple):
    """The result of an input: the difference of the state, the messages, or the broken property."""

    delta: int
    ops: tuple[Op, ...]
    fault: tuple[str, str] | None


class WorldEvent(NamedTuple):
    """One event: its component, its input and its cost; `kind`: a fault, a timer's end, or neither."""

    at: int
    what: Input
    cost: str
    kind: int


def event(at: int, what: Input, cost: str = "") -> WorldEvent:
    return WorldEvent(at, what, cost, FAULT if cost else TIMER if what[0] in TIMERS else WORK)


class WorldPart(ValueNumbers):
    """The values of a kind of component, and the number of each, which has to fit into `BITS`."""

    def __call__(self, value: Any) -> int:
        number = super().__call__(value)
        if number > MASK:
            raise MemoryError(f"more than {MASK} values of one component: raise BITS")
        return number
