"""Counterexamples: the way from the beginning to where a property breaks, told without exchanged names.

The search keeps one state of each pair that differs by exchanging rooms.  `retrace` walks the way again from the first
state, always from a state as it is, and so keeps every room's own name: of the successors of the state at hand it takes
the one whose least equal is the next of the way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvproto.check.config import Config
from kvproto.check.haste import explorer
from kvproto.check.moves import Explorer
from kvproto.check.parts import Event
from kvproto.check.phrases import actors, arrow, calls, named, phrase
from kvproto.draw.properties import HAZARDS, PROPERTIES

EXAMPLES = "spec/counterexamples"


class Tale(msgspec.Struct):
    """A violation: the property, what is wrong, and each step as (component, input, cost)."""

    property: str
    text: str
    config: Config
    steps: list[tuple[int, list[Any], str]]
    events: list[Event] = []

    def story(self) -> str:
        """For people: one numbered line a step."""
        events = calls(self.config, self.events)
        lines = [f"{i:>3}. {phrase(self.config, event)}" for i, event in enumerate(events, 1)]
        return "\n".join([*lines, f"     {self.property}: {self.text}", *self._matter()])

    def _matter(self) -> list[str]:
        """Why it matters: what the property promises, and what goes wrong in practice without it."""
        promised = next((each for each in PROPERTIES if each.name == self.property), None)
        if promised is None:
            return []
        harm = [hazard.name for hazard in HAZARDS if self.property in hazard.breaks]
        lines = [f"     {promised.name} promises: {promised.text}"]
        return lines + ([f"     without it: {', '.join(harm)} (PROTOCOL.md, What is promised)"] if harm else [])

    def mermaid(self) -> str:
        """A sequence diagram."""
        lines = ["sequenceDiagram", *(f"    participant {name}" for name in actors(self.config))]
        lines += [f"    {arrow(self.config, event)}" for event in calls(self.config, self.events)]
        last = actors(self.config)
        return "\n".join([*lines, f"    Note over {last[0]},{last[-1]}: {self.property} {self.text}"])

    def jsonl(self) -> str:
        """One line for the configuration and the property, then one a step."""
        head = {"property": self.property, "text": self.text, "config": msgspec.to_builtins(self.config)}
        lines = [msgspec.json.encode(head)]
        lines += [msgspec.json.encode({"at": at, "event": what, "cost": cost}) for at, what, cost in self.steps]
        return "".join(line.decode() + "\n" for line in lines)


def retrace(world: Explorer, path: list[int], name: str, text: str, last: Event | None) -> Tale:
    """The tale of a way of least states; `last`: the step that broke the property, if a step did."""
    events: list[Event] = []
    state = path[0] if path else 0
    for goal in path[1:]:
        state, event = _next(world, state, goal)
        events.append(event)
    if last is not None and last.what[0] != "seen" and path:
        del world.faults[:]
        world.successors(state)
        mine = next(((n, t, e) for n, t, e in world.faults if n == name), None)
        _, text, last = mine or (name, text, last)
        events.append(last)
    del world.faults[:]
    return Tale(name, named(world.config, text), world.config, [plain(event) for event in events], events)


def _next(world: Explorer, state: int, goal: int) -> tuple[int, Event]:
    for new, event in zip(*world.successors(state), strict=True):
        if world.canonical(new) == goal:
            return new, event
    raise LookupError("a way that was walked cannot be walked again: the ranks are not pure")


def plain(event: Event) -> tuple[int, list[Any], str]:
    """A step as JSON has it; a message by its type and fields."""
    return event.at, [_plain(item) for item in event.what], event.cost


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain(each) for each in item]
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, msgspec.Struct):
        return [type(item).__name__, *(_plain(getattr(item, name)) for name in item.__struct_fields__)]
    return item


def replay(text: str) -> tuple[str, str | None]:
    """Walk a recorded way; returns the property that it once broke, and the one that it breaks now (None: none).

    Raises LookupError at the first step that is no longer possible: then the fault is gone by another way.
    """
    head, *lines = (msgspec.json.decode(line) for line in text.splitlines())
    world = explorer(msgspec.convert(head["config"], Config))
    state = world.initial()
    for at, line in enumerate(lines):
        wanted = (line["at"], line["event"], line["cost"])
        states, why = world.successors(state)
        if world.faults:
            broken = [fault for fault in world.faults if fault[0] == head["property"]]
            if at == len(lines) - 1 and broken:
                return head["property"], head["property"]
        found = next((new for new, event in zip(states, why, strict=True) if _same(event, wanted)), None)
        if found is None:
            raise LookupError(f"step {at + 1} is not possible: {line}")
        del world.faults[:]
        state = found
    world.successors(state)
    return head["property"], world.faults[0][0] if world.faults else None


def _same(event: Event, wanted: tuple[int, Any, str]) -> bool:
    return plain(event) == tuple(wanted)
