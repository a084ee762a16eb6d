"""World: parties, a network and a budget of faults, as a space that a search goes through.

A state is a tuple of small numbers: each party's value, each direction's queue of messages, and what is left of the
budget; each kind of value is kept once, in a table, and named by its place there.

What can happen: an application's call; a message arrives, is lost, or arrives and stays to arrive again; a timer ends;
a party crashes, also in the middle of a step, and starts again.  *Timers* have no numbers here.  One ends when nothing
is under way to its party or from it, which is what periods that are long against a round trip amount to; or else for an
`early`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kvproto.fsm.table import Row
from kvproto.verify.framework.frozen import PartyValue, ValueNumbers
from kvproto.verify.framework.network import first, push
from kvproto.verify.framework.scenario import Scenario, View
from kvproto.verify.framework.search import FAULT, TIMER, WORK
from kvproto.verify.framework.symmetry import Renaming, renamed, renamings
from kvproto.verify.framework.world_steps import Input, StepOutcome, Steps

FAULTS = ("drop", "duplicate", "early", "crash")
State = tuple[int, ...]


class WorldStep(NamedTuple):
    """A step: its party, its input and its cost; `kind`: a fault, a timer's end, or neither."""

    at: int
    what: Input
    cost: str
    kind: int


Found = tuple[list[State], list[WorldStep]]


class World:
    """The possible steps and their results."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.chances, self.steps = scenario, scenario.chances, Steps(scenario)
        self.n = len(scenario.names)
        self.pairs = [(i, j) for i in range(self.n) for j in range(self.n) if i != j]
        self.wire_at = {pair: self.n + at for at, pair in enumerate(self.pairs)}
        self.messages, self.queues, self.budgets = ValueNumbers(), ValueNumbers(), ValueNumbers()
        #: (property, what is wrong, event) of every step so far that broke one
        self.faults: list[tuple[str, str, Any]] = []
        self.swaps: list[Renaming] = list(renamings(scenario.alike))
        self._sights: set[str] = set()
        self._swapped: dict[tuple[int, bool, int], int] = {}

    # --------------------------------------------------------------------------------------------- as a space
    def initial(self) -> State:
        """Every party has just started."""
        started = [self.steps.first(i) for i in range(self.n)]
        budget = self.budgets(tuple(getattr(self.chances, kind) for kind in FAULTS))
        state = [*(each.number for each in started), *[self.queues(())] * len(self.pairs), budget]
        for i, each in enumerate(started):
            self._send(state, i, each)
        return self.canonical(tuple(state))

    def successors(self, state: State) -> Found:
        """The states that come next, and why; what breaks a property is added to `faults`."""
        found: Found = [], []
        views = self.views(state)
        self._sights.update(self.scenario.sights(views))
        broken = self.scenario.broken(views)
        if broken is not None:
            self.faults.append((*broken, WorldStep(0, ("seen",), "", WORK)))
            return found
        for i in range(self.n):
            noisy = any(self._queue(state, pair) for pair in self.pairs if i in pair)
            for what, cost in self.steps.menu(i, state[i]):
                self._steps_of(state, i, what, "early" if noisy and what[0] == "timer" else cost, found)
        for sender, to in self.pairs:
            self._deliver(state, sender, to, found)
        return found

    def canonical(self, state: State) -> State:
        """The least of the states that differ from this one by an exchange."""
        return min([state, *(self._renamed(state, swap) for swap in range(len(self.swaps)))])

    def unrest(self, state: State) -> tuple[str, str] | None:
        """Return why there is no rest: mail under way, a dead party that returns, or the scenario's word."""
        if any(self._queue(state, pair) for pair in self.pairs):
            return "rest", "messages are always under way"
        dead = [view.name for view in self.views(state) if view.values is None]
        if dead and self.chances.restart:
            return "rest", f"{dead[0]} never comes back"
        return self.scenario.unrest(self.views(state))

    def seen(self) -> set[str]:
        return self._sights

    def fired(self) -> Iterable[Row]:
        return self.steps.rows.values()

    def views(self, state: State) -> list[View]:
        return [self.steps.view(i, state[i]) for i in range(self.n)]

    # ---------------------------------------------------------------------------------------------- what happens
    def _deliver(self, state: State, sender: int, to: int, found: Found) -> None:
        for message, left in first(self._queue(state, (sender, to)), self.chances.net):
            body = self.messages.values[message]
            without = self._replaced(state, self.wire_at[sender, to], self.queues(left))
            self._steps_of(without, to, ("hear", sender, body), "", found)
            self._steps_of(state, to, ("hear", sender, body), "duplicate", found)
            lost = self._spent(without, "drop")
            if lost is not None:
                found[0].append(lost)
                found[1].append(WorldStep(sender, ("lost", to, body), "drop", FAULT))

    def _steps_of(self, state: State, i: int, what: Input, cost: str, found: Found) -> None:
        self._step(state, i, what, cost, found)
        if not cost and self.budgets.values[state[-1]][FAULTS.index("crash")]:
            for cut in self.steps.cuts(i, state[i], what):
                self._step(state, i, cut, "crash", found)

    def _step(self, state: State, i: int, what: Input, cost: str, found: Found) -> None:
        paid = self._spent(state, cost)
        if paid is None:
            return
        outcome = self.steps.step(i, state[i], what)
        event = WorldStep(i, what, cost, FAULT if cost else TIMER if what[0] == "timer" else WORK)
        if outcome.fault:
            self.faults.append(("stops", f"{self.scenario.names[i]} stops: {outcome.fault}", event))
            return
        new = list(paid)
        new[i] = outcome.number
        self._send(new, i, outcome)
        found[0].append(tuple(new))
        found[1].append(event)

    def _send(self, state: list[int], sender: int, outcome: StepOutcome) -> None:
        for to, body in outcome.sent:
            at = self.wire_at[sender, to]
            state[at] = self.queues(push(self.queues.values[state[at]], self.messages(body), self.chances.net))

    def _spent(self, state: State, cost: str) -> State | None:
        """The state after this was paid for; None: there is nothing left for it."""
        if not cost:
            return state
        left, at = list(self.budgets.values[state[-1]]), FAULTS.index(cost)
        left[at] -= 1
        return None if left[at] < 0 else self._replaced(state, len(state) - 1, self.budgets(tuple(left)))

    def _queue(self, state: State, pair: tuple[int, int]) -> tuple[int, ...]:
        queue: tuple[int, ...] = self.queues.values[state[self.wire_at[pair]]]
        return queue

    @staticmethod
    def _replaced(state: State, at: int, number: int) -> State:
        return (*state[:at], number, *state[at + 1 :])

    # ------------------------------------------------------------------------------------------------- symmetry
    def _renamed(self, state: State, swap: int) -> State:
        parts = [self._part(swap, number, wire=self.n <= at) for at, number in enumerate(state[:-1])]
        return (*parts, state[-1])

    def _part(self, swap: int, number: int, *, wire: bool) -> int:
        found = self._swapped.get((swap, wire, number))
        if found is None:
            by = self.swaps[swap]
            if wire:
                messages = [self.messages(renamed(self.messages.values[m], by)) for m in self.queues.values[number]]
                found = self.queues(tuple(messages if self.chances.net == "fifo" else sorted(messages)))
            else:
                found = self.steps.parties(self._party(self.steps.parties.values[number], by))
            self._swapped[swap, wire, number] = found
        return found

    def _party(self, value: PartyValue, by: Renaming) -> PartyValue:
        """Machines change places with the names that are their keys."""
        around = self.scenario.renamed(value.around, by)
        if value.memory is None:
            return value._replace(around=around)
        names = {old: new for each in by.values() for old, new in each.items()}
        stores, kept = value.memory
        moved = tuple(
            tuple(tuple(sorted((names.get(key, key), renamed(each, by)) for key, each in part)) for part in store)
            for store in stores
        )
        return PartyValue(value.life, (moved, tuple(renamed(each, by) for each in kept)), around)
