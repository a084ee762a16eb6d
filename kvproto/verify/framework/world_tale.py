"""Counterexamples of a world of parties, in words; and the checker that makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.framework import search, story
from kvproto.verify.framework.checker import Checker, PlantedBug
from kvproto.verify.framework.scenario import Scenario
from kvproto.verify.framework.search import Progress, Result, Space
from kvproto.verify.framework.story import Counterexample, PlainStep, RecordedHead, ReplayedWay
from kvproto.verify.framework.world import World, WorldStep
from kvproto.verify.framework.world_steps import Input

if TYPE_CHECKING:
    from kvproto.fsm.telling import Telling
    from kvproto.verify.framework.explore.exploration import Exploration

COSTS = {
    "drop": "the network loses it", "duplicate": "and it will arrive again", "crash": "a fault",
    "early": "although messages are under way",
}  # fmt: skip


class WorldTale(Counterexample):
    """A violation in a world of parties; `config` names the world, `names` its parties."""

    names: tuple[str, ...] = ()

    def actors(self) -> list[str]:
        return list(self.names)

    def phrases(self) -> list[str]:
        """Return who acts, and why the step may happen."""
        return [phrase(self.names, event) for event in self.events]

    def arrows(self) -> list[str]:
        return [_arrow(self.names, event) for event in self.events]


def phrase(names: tuple[str, ...], event: WorldStep) -> str:
    note = f"  [{COSTS[event.cost]}]" if event.cost else ""
    return f"{names[event.at]}: {_deed(names, event.what)}{note}"


def _deed(names: tuple[str, ...], what: Input) -> str:
    match what:
        case ("call", word):
            return f"its application: {word}"
        case ("hear", peer, body):
            return f"hears {spoken(body)} from {names[peer]}"
        case ("lost", to, body):
            return f"its {spoken(body)} to {names[to]} is lost"
        case ("timer", _, key, state):
            return f"its timer of {key} ends in {state}"
        case ("crash in", inner, done):
            return f"{_deed(names, inner)}, and crashes after {', '.join(done)}"
    return {"crash": "crashes", "restart": "starts again"}[what[0]]


def spoken(body: Any) -> str:
    values = [(name, getattr(body, name)) for name in body.__struct_fields__]
    fields = ", ".join((name if v else f"not {name}") if isinstance(v, bool) else f"{name} {v}" for name, v in values)
    return f"{body.__struct_config__.tag} ({fields})" if fields else str(body.__struct_config__.tag)


def _arrow(names: tuple[str, ...], event: WorldStep) -> str:
    match event.what:
        case ("hear", peer, body):
            return f"{names[peer]}->>{names[event.at]}: {spoken(body)}"
        case ("lost", to, body):
            return f"{names[event.at]}--x{names[to]}: {spoken(body)}"
    return f"Note over {names[event.at]}: {_deed(names, event.what)}".replace(";", ",")


def plain(event: WorldStep) -> PlainStep:
    return event.at, [_plain(item) for item in event.what], event.cost


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain(each) for each in item]
    if isinstance(item, msgspec.Struct):
        tag = item.__struct_config__.tag or type(item).__name__
        return [str(tag), *(_plain(getattr(item, name)) for name in item.__struct_fields__)]
    return item


class _StorySearch(search.Search):
    def __init__(self, name: str, world: World, memory: int) -> None:
        super().__init__(name, world.chances, world, memory=memory)
        self.names = world.scenario.names

    def tale(self, name: str, text: str, events: list[Any]) -> WorldTale:
        steps = [plain(event) for event in events]
        return WorldTale(name, text, self.result.name, steps, events, self.names)


class WorldChecker(Checker):
    """Searches scenarios, by name; a subclass, or `planted`, has the bugs to find in them."""

    def __init__(
        self, scenarios: Mapping[str, Callable[[], Scenario]], planted: Mapping[str, PlantedBug] | None = None
    ) -> None:  # fmt: skip
        self.scenarios = scenarios
        self.first = next(iter(scenarios))
        if planted is not None:
            self.planted, self.suites = planted, {"all": tuple(scenarios)}

    def worlds(self) -> Mapping[str, str]:
        made = {name: make() for name, make in self.scenarios.items()}
        return {name: f"{len(each.names)} parties  {each.chances.about}" for name, each in made.items()}

    def search(self, name: str, *, limit: int | None, memory: int, report: Callable[[Progress], None] | None) -> Result:
        scenario = self.scenarios[name]()
        if limit is not None:
            scenario.chances = replace(scenario.chances, limit=limit)
        return search.run(_StorySearch(name, World(scenario), memory), report)

    def walk(self, text: str) -> ReplayedWay:
        return story.walk(text, self._recorded, plain)

    def explored(self, name: str, telling: Telling) -> Exploration:
        from kvproto.verify.framework.explore.world_exploration import WorldExploration  # it needs the pictures

        (known,) = self.named(name)
        return WorldExploration(known, World(self.scenarios[known]()), telling)

    def explored_way(self, once: Counterexample, telling: Telling) -> Exploration:
        return self.explored(once.config, telling)

    def _recorded(self, head: RecordedHead) -> tuple[Counterexample, Space]:
        if not isinstance(head.config, str) or head.config not in self.scenarios:
            raise ArgumentError(f"line 1: config: there is no world {head.config!r}")
        scenario = self.scenarios[head.config]()
        return WorldTale(head.property, head.text, head.config, [], [], scenario.names), World(scenario)
