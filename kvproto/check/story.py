"""Counterexamples: the way from the beginning to where a property breaks, told without exchanged names.

The search keeps one state of each pair that differs by exchanging rooms.  `retrace` walks the way again from the first
state, always from a state as it is, and so keeps every room's own name: of the successors of the state at hand it takes
the one whose least equal is the next of the way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvproto.check.config import Config
from kvproto.check.delay_bounded import explorer
from kvproto.check.state_encoding import Event
from kvproto.check.step_wording import actors, arrow, calls, named, phrase
from kvproto.check.successors import Explorer
from kvproto.draw.properties import HAZARDS, PROPERTIES
from kvproto.protocol.messages import Hello, Welcome


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
    """A step as JSON has it; a message by its type and fields, of a handshake those that tell it from others."""
    return event.at, [_plain(item) for item in event.what], event.cost


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain(each) for each in item]
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, Hello):
        return ["HELLO", item.session, *item.endpoint]
    if isinstance(item, Welcome):
        return ["WELCOME", item.session, item.epoch]
    if isinstance(item, msgspec.Struct):
        return [type(item).__name__, *(_plain(getattr(item, name)) for name in item.__struct_fields__)]
    return item


class Walk(msgspec.Struct):
    """A recorded way, walked again: how far it goes, and what it breaks now (empty: nothing)."""

    once: Tale
    events: list[Event]
    broken: str = ""
    #: why the next recorded step cannot happen; empty: all of them did
    gone: str = ""

    def story(self) -> str:
        """For people: the steps that still happen, and how it ends."""
        lines = [f"{i:>3}. {phrase(self.once.config, event)}" for i, event in enumerate(self._called(), 1)]
        end = f"now {self.broken} is broken" if self.broken else self.gone or "now everything holds"
        return "\n".join([*lines, f"     once {self.once.property}: {self.once.text}", f"     {end}"])

    def _called(self) -> list[Event]:
        return calls(self.once.config, self.events)


def walk(text: str) -> Walk:
    """Walk a recorded way again, as far as it goes.  Raises ValueError for what is not one."""
    try:
        head, *lines = (msgspec.json.decode(line) for line in text.splitlines())
        once = Tale(head["property"], head["text"], msgspec.convert(head["config"], Config), [])
        steps = [(line["at"], line["event"], line["cost"]) for line in lines]
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a recorded counterexample: {error}") from error
    world, done = explorer(once.config), Walk(once, [])
    state = world.initial()
    for at, wanted in enumerate(steps, 1):
        states, why = world.successors(state)
        mine = next((e for name, _, e in world.faults if name == once.property and at == len(steps)), None)
        if mine is not None:
            return Walk(once, [*done.events, mine], once.property)
        found = next(((new, e) for new, e in zip(states, why, strict=True) if plain(e) == wanted), None)
        if found is None:
            done.gone = f"step {at} cannot happen any more: {wanted[1]}"
            return done
        del world.faults[:]
        state = found[0]
        done.events.append(found[1])
    world.successors(state)
    done.broken = world.faults[0][0] if world.faults else ""
    return done


def replay(text: str) -> tuple[str, str | None]:
    """Walk a recorded way; returns the property that it once broke, and the one that it breaks now (None: none).

    Raises LookupError at the first step that is no longer possible: then the fault is gone by another way.
    """
    walked = walk(text)
    if walked.gone:
        raise LookupError(walked.gone)
    return walked.once.property, walked.broken or None
