"""World exploration: a scenario's world to click through."""

from __future__ import annotations

from typing import Any

import msgspec

from kvproto.fsm.telling import Telling
from kvproto.verify.framework.explore.exploration import Exploration, Json, budget
from kvproto.verify.framework.search import FAULT
from kvproto.verify.framework.world import FAULTS, World, WorldStep
from kvproto.verify.framework.world_tale import phrase, spoken


class WorldExploration(Exploration):
    """One scenario."""

    def __init__(self, name: str, world: World, telling: Telling) -> None:
        super().__init__(name, world.chances.about, world)
        self.world, self.telling, self.parties = world, telling, list(world.scenario.names)
        self._told: dict[tuple[Any, ...], list[Json]] = {}

    def phrase(self, state: Any, event: WorldStep) -> str:
        return "the state itself" if event.what[0] == "seen" else phrase(tuple(self.parties), event)

    def kind(self, event: WorldStep) -> str:
        if event.kind == FAULT:
            return "fault"
        return {"hear": "deliver", "timer": "time", "call": "engine"}.get(event.what[0], "device")

    def told(self, state: Any, event: WorldStep) -> list[Json]:
        asked = event.at, state[event.at], event.what
        if (moments := self._told.get(asked)) is None:
            member = self.world.steps.traced(*asked)
            moments = [] if member is None else self.of_trace(member, self.parties[event.at], self.telling)
            self._told[asked] = moments
        return moments

    def parts(self, state: Any) -> list[tuple[Any, ...]]:
        n, pairs = self.world.n, self.world.pairs
        parties = [("party", i, state[i]) for i in range(n)]
        queues = [("queue", pair, state[n + place]) for place, pair in enumerate(pairs)]
        return [*parties, *queues, ("budget", 0, state[-1])]

    def shown(self, part: tuple[Any, ...]) -> Json:
        """A party's machines and surroundings; the messages of a queue; what may still go wrong."""
        kind, place, number = part
        if kind == "party":
            return self._party(place, number)
        if kind == "queue":
            sender, to = (self.parties[each] for each in place)
            said = (self.world.messages.values[item] for item in self.world.queues.values[number])
            return {"link": [sender, to], "mail": [{"from": sender, "to": to, "said": spoken(body)} for body in said]}
        counts = zip(FAULTS, self.world.budgets.values[number], strict=True)
        return budget(counts)

    def _party(self, i: int, number: int) -> Json:
        view = self.world.steps.view(i, number)
        tables = self.world.steps.tables(i, number)
        machines = [
            {"machine": tables[store].name, "name": f"{store} {key}", "state": value.state.name}
            for store, values in (view.values or {}).items()
            for key, value in values.items()
        ]
        around = msgspec.to_builtins(view.around, enc_hook=str, str_keys=True) if view.around is not None else None
        facts = [] if around in (None, (), [], {}) else [["beside its machines", str(around)]]
        return {"party": view.name, "dead": view.values is None, "machines": machines, "facts": facts}
