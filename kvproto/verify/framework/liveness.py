"""Whether every way ends: two questions to the graph of all states, over the edges that are no faults.

* `cannot_reach`: is there a state from which no state of rest can be reached, whatever happens?  Under fairness (what
  stays possible happens in the end) that there is none is the promise that every room ends, L1, and with it L2, L3 and
  L5: a cycle of waits would be such a state.  The answer is found backwards, from the states of rest.
* `runs_in_circles`: is there a circle without a timer?  Messages that beget each other for ever, or work that is
  retried without pause, would be one (L4).  The answer is found by taking away, again and again, states into which
  nothing leads; what cannot be taken away lies on a circle or behind one.
"""

from __future__ import annotations

from array import array


class EdgeRows:
    """The graph, in compressed rows: state i's edges are those from `begin[i]` to `begin[i + 1]`."""

    def __init__(self) -> None:
        self.begin = array("Q", [0])
        self.to = array("I")
        self.timer = bytearray()

    def add(self, to: int, *, timer: bool) -> None:
        self.to.append(to)
        self.timer.append(timer)

    def close(self) -> None:
        self.begin.append(len(self.to))


def _reversed(edges: EdgeRows, count: int) -> tuple[array[int], array[int]]:
    """Return the begin of each state's incoming edges, and their origins."""
    begin = array("Q", bytes(8 * (count + 2)))
    for to in edges.to:
        begin[to + 2] += 1
    for i in range(2, count + 2):
        begin[i] += begin[i - 1]
    source = array("I", bytes(4 * len(edges.to)))
    for state in range(count):
        for at in range(edges.begin[state], edges.begin[state + 1]):
            to = edges.to[at] + 1
            source[begin[to]] = state
            begin[to] += 1
    return begin, source


def cannot_reach(edges: EdgeRows, ends: list[int], count: int) -> int | None:
    """A state from which no end can be reached; None: there is none.

    Of several the first in which nothing but timers is left to happen, so that the way there shows all of the harm; if
    there is none such, the first.
    """
    begin, source = _reversed(edges, count)
    reached = bytearray(count)
    todo = list(ends)
    for state in todo:
        reached[state] = 1
    while todo:
        state = todo.pop()
        for at in range(begin[state], begin[state + 1]):
            before = source[at]
            if not reached[before]:
                reached[before] = 1
                todo.append(before)
    first = lost = reached.find(0)
    while lost >= 0 and not all(edges.timer[edges.begin[lost] : edges.begin[lost + 1]]):
        lost = reached.find(0, lost + 1)
    found = lost if lost >= 0 else first
    return None if found < 0 else found


def runs_in_circles(edges: EdgeRows, count: int) -> int | None:
    """A state on, or behind, a circle of edges that are no timers; None: there is no circle."""
    incoming = array("I", bytes(4 * count))
    for at, to in enumerate(edges.to):
        if not edges.timer[at]:
            incoming[to] += 1
    todo = [state for state in range(count) if not incoming[state]]
    left = count
    while todo:
        state = todo.pop()
        left -= 1
        for at in range(edges.begin[state], edges.begin[state + 1]):
            if not edges.timer[at]:
                to = edges.to[at]
                incoming[to] -= 1
                if not incoming[to]:
                    todo.append(to)
    return next(state for state in range(count) if incoming[state]) if left else None
