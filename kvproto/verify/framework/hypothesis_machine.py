"""Hypothesis machine: takes any way through a world of parties, where a search goes all ways of a
small one.

    from kvproto.verify.framework.hypothesis_machine import world_machine
    TestCommit = world_machine(lambda: Commit(Chances(drop=9, duplicate=9, early=9, crash=9))).TestCase

It takes the scenario that the checker takes, with more parties or more faults than can be searched.  One rule: of all
that can happen, one thing does.  Each step is judged as in a search; at the end there are no more faults, messages
arrive, timers end, and the world has to come to rest.  An example that fails is told as a story, and shrinks.

Needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvproto.verify.framework.scenario import Scenario
from kvproto.verify.framework.world import State, World, WorldStep
from kvproto.verify.framework.world_tale import phrase

#: steps without a fault in which a world has to come to rest
REST = 300


class WorldMachine(RuleBasedStateMachine):
    """One way through a scenario's world."""

    scenario: ClassVar[Callable[[], Scenario]]
    world: World
    state: State

    @initialize()
    def begin(self) -> None:
        """Every party starts."""
        self.world = World(type(self).scenario())
        self.state = self.world.initial()

    @rule(choice=st.integers(0, 1 << 16))
    def happen(self, choice: int) -> None:
        """One of all the things that can happen."""
        if ways := self._ways():
            self._go(*ways[choice % len(ways)])

    def teardown(self) -> None:
        """No more faults: messages first, then what applications do, then timers, each in its turn."""
        if not hasattr(self, "state"):
            return
        for turn in range(REST):
            ways = [(state, why) for state, why in self._ways() if not why.cost]
            unrest = self.world.unrest(self.state)
            if unrest is None or not ways:
                assert unrest is None, f"{unrest[0]}: {unrest[1]}, and nothing can happen any more"
                return
            first = min(_rank(why) for _, why in ways)
            ready = [way for way in ways if _rank(way[1]) == first]
            self._go(*ready[turn % len(ready)])
        unrest = self.world.unrest(self.state)
        assert unrest is None, f"no rest after {REST} steps without a fault: {unrest[1]}"

    def _ways(self) -> list[tuple[State, WorldStep]]:
        states, why = self.world.successors(self.state)
        for broken, text, _ in self.world.faults:
            raise AssertionError(f"{broken}: {text}")
        return list(zip(states, why, strict=True))

    def _go(self, state: State, why: WorldStep) -> None:
        note(phrase(self.world.scenario.names, why))
        self.state = state


def _rank(why: WorldStep) -> int:
    return {"hear": 0, "restart": 1, "call": 2}.get(why.what[0], 3)


def world_machine(scenario: Callable[[], Scenario]) -> type[WorldMachine]:
    """A machine over the worlds that `scenario` makes."""
    return type("ScenarioMachine", (WorldMachine,), {"scenario": staticmethod(scenario)})
