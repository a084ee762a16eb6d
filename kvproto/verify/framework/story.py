"""Story: a counterexample as the way from the first state to the broken property, without exchanged
names.

The search keeps one state of each set that differs by an exchange.  `retrace` walks the way again from the first state,
always from a state as it is, and so keeps every name: of the successors of the state at hand it takes the one whose
least equal is the next of the way.  `walk` does the same from a file, as far as what was recorded can still happen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kvproto.fsm.bounded_files import decoded, json_value
from kvproto.fsm.errors import ArgumentError, KvprotoError

if TYPE_CHECKING:
    from kvproto.verify.framework.search import Space

#: an event as JSON has it: at which component, what, at what price
PlainStep = tuple[int, list[Any], str]


class Counterexample(msgspec.Struct):
    """A violation: the property, what is wrong, and each step; a subclass has the words."""

    property: str
    text: str
    #: what was searched, as `jsonl` can write it
    config: Any
    steps: list[PlainStep]
    events: list[Any] = []

    def actors(self) -> list[str]:
        """The names of all that take part, in their order."""
        raise NotImplementedError

    def phrases(self) -> list[str]:
        raise NotImplementedError

    def arrows(self) -> list[str]:
        """Each step as a line of a sequence diagram."""
        raise NotImplementedError

    def matter(self) -> list[str]:
        """Why it matters."""
        return []

    def story(self) -> str:
        """For people: one numbered line a step."""
        lines = [f"{i:>3}. {phrase}" for i, phrase in enumerate(self.phrases(), 1)]
        return "\n".join([*lines, f"     {self.property}: {self.text}", *(f"     {line}" for line in self.matter())])

    def mermaid(self) -> str:
        actors = self.actors()
        lines = ["sequenceDiagram", *(f"    participant {name}" for name in actors)]
        lines += [f"    {arrow}" for arrow in self.arrows()]
        return "\n".join([*lines, f"    Note over {actors[0]},{actors[-1]}: {self.property} {self.text}"])

    def jsonl(self) -> str:
        """One line for what was searched and the property, then one a step."""
        head = {"property": self.property, "text": self.text, "config": msgspec.to_builtins(self.config)}
        lines = [msgspec.json.encode(head)]
        lines += [msgspec.json.encode({"at": at, "event": what, "cost": cost}) for at, what, cost in self.steps]
        return "".join(line.decode() + "\n" for line in lines)


def retrace(space: Space, path: list[Any], name: str, text: str, last: Any) -> tuple[str, list[Any]]:
    """Return what is wrong, and the events of a shortest way; `last`: the one that broke it, if any."""
    events: list[Any] = []
    state = path[0] if path else None
    for goal in path[1:]:
        state, event = _next(space, state, goal)
        events.append(event)
    if last is not None and last.what[0] != "seen" and path:
        del space.faults[:]
        space.successors(state)
        mine = next(((n, t, e) for n, t, e in space.faults if n == name), None)
        _, text, last = mine or (name, text, last)
        events.append(last)
    del space.faults[:]
    return text, events


def _next(space: Space, state: Any, goal: Any) -> tuple[Any, Any]:
    for new, event in zip(*space.successors(state), strict=True):
        if space.canonical(new) == goal:
            return new, event
    raise LookupError("a way that was walked cannot be walked again: the parties are not pure")


class ReplayedWay(msgspec.Struct):
    """A recorded way, walked again: how far it goes, and what it breaks now (empty: nothing)."""

    once: Counterexample
    broken: str = ""
    #: why the next recorded step cannot happen; empty: all of them did
    gone: str = ""

    def story(self) -> str:
        """For people: the steps that still happen, and how it ends."""
        lines = [f"{i:>3}. {phrase}" for i, phrase in enumerate(self.once.phrases(), 1)]
        end = f"now {self.broken} is broken" if self.broken else self.gone or "now everything holds"
        return "\n".join([*lines, f"     once {self.once.property}: {self.once.text}", f"     {end}"])


class RecordedHead(msgspec.Struct):
    """The first line of a recorded counterexample."""

    property: str
    text: str
    config: Any


class RecordedStep(msgspec.Struct):
    """Every other line."""

    at: int
    event: list[Any]
    cost: str


def walk(
    text: str, make: Callable[[RecordedHead], tuple[Counterexample, Space]], plain: Callable[[Any], PlainStep]
) -> ReplayedWay:  # fmt: skip
    """Walk a recorded way again, as far as it goes.

    `make` gives the tale (without its steps) and the space that the first line names, `plain` an event as it is
    recorded.  ArgumentError (a ValueError): this is not one.
    """
    try:
        values = [json_value(line, f"line {number}") for number, line in enumerate(text.splitlines(), 1)]
        head = decoded("line 1", values[0] if values else None, RecordedHead)
        lines = [decoded(f"line {number}", value, RecordedStep) for number, value in enumerate(values[1:], 2)]
        once, space = make(head)
    except (KvprotoError, KeyError) as error:
        raise ArgumentError(f"not a recorded counterexample: {error}") from error
    steps: list[PlainStep] = [(line.at, line.event, line.cost) for line in lines]
    done, state = ReplayedWay(once), space.initial()
    for at, wanted in enumerate(steps, 1):
        states, why = space.successors(state)
        mine = next((e for name, _, e in space.faults if name == once.property and at == len(steps)), None)
        if mine is not None:
            once.events.append(mine)
            done.broken = once.property
            return done
        found = next(((new, e) for new, e in zip(states, why, strict=True) if plain(e) == wanted), None)
        if found is None:
            done.gone = f"step {at} cannot happen any more: {wanted[1]}"
            return done
        del space.faults[:]
        state = found[0]
        once.events.append(found[1])
    _, why = space.successors(state)
    if space.faults:
        done.broken = space.faults[0][0]
    elif not any(event.kind for event in why) and (unrest := space.unrest(state)):
        done.broken = unrest[0]  # nothing can happen any more
    return done
