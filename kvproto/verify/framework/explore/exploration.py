"""Exploration: a world's states and steps, and what a reader is shown of them.

`Recorder.record` goes breadth first through the states and makes a graph that a page can be given.  States are lists of
numbered parts, and steps name their words and moments by number, so what many states share is written once.  States
that differ by an exchange of names stay apart here, since a reader follows names.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec

from kvproto.fsm.driver import Driver
from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.records import log_of
from kvproto.fsm.telling import Telling
from kvproto.verify.framework.inspect.page import moment_json
from kvproto.verify.framework.search import Space
from kvproto.verify.framework.trace.merge import merge

Json = dict[str, Any]
#: the kinds of steps, in the order in which a reader is offered them
KINDS = ("deliver", "device", "engine", "time", "fault")


class Exploration:
    """One world; a subclass has the words."""

    #: the kinds' headings
    headings: ClassVar[dict[str, str]] = {
        "deliver": "a message arrives", "device": "something ends", "engine": "an application calls",
        "time": "time passes", "fault": "a fault",
    }  # fmt: skip
    telling: Telling
    parties: list[str]

    def __init__(self, name: str, about: str, space: Space) -> None:
        self.name, self.about, self.space = name, about, space

    def phrase(self, state: Any, event: Any) -> str:
        raise NotImplementedError

    def kind(self, event: Any) -> str:
        """Return one of `KINDS`."""
        raise NotImplementedError

    def parts(self, state: Any) -> list[tuple[Any, ...]]:
        """Return the state's parts, each as something hashable that `shown` takes."""
        raise NotImplementedError

    def shown(self, part: tuple[Any, ...]) -> Json:
        """Return what a reader sees of a part: a party with its machines, or messages under way."""
        raise NotImplementedError

    def told(self, state: Any, event: Any) -> list[Json]:
        """Return the moments of the step, as `moment_json` has them; a cause is a place in this list."""
        raise NotImplementedError

    def of_trace(self, party: Driver, name: str, telling: Telling) -> list[Json]:
        """Return the moments of what the party's trace holds, under this name."""
        log = log_of(party, telling=telling)
        moments = [moment_json(moment, telling) for moment in merge([log], telling)]
        for moment in moments:
            moment["party"] = name
            if "fate" in moment:  # the other end is in no log here
                moment["fate"] = ""
        return moments


class Numbered(msgspec.Struct):
    """Things that many states share, each once."""

    items: list[Any] = []
    places: dict[Any, int] = {}

    def __call__(self, key: Any, item: Any) -> int:
        """Return the place of the thing with this key; `item` makes it."""
        place = self.places.get(key)
        if place is None:
            place = self.places[key] = len(self.items)
            self.items.append(item())
        return place


class Recorder:
    """Records the graph of an exploration."""

    def __init__(self, world: Exploration) -> None:
        self.world, self.space = world, world.space
        self.numbers: dict[Any, int] = {}
        #: by number: the state, its parts, its steps (None: not looked at), and their events
        self.states: list[Any] = []
        self.shown: list[list[int]] = []
        self.next: list[list[Any] | None] = []
        self.events: dict[int, list[Any]] = {}
        self.parts, self.phrases, self.told = Numbered(), Numbered(), Numbered()
        self.unrest: dict[int, str] = {}

    def record(self, *, limit: int, way: Iterable[Any] = (), choices: Sequence[int] = ()) -> Json:
        """Return the graph of `limit` states, of those nearest to a way.

        `way`: the steps of a counterexample; `choices`, in its place: the number of each step among those of its state.
        """
        taken, todo = self._choose(choices) if choices else self._walk(way)
        queued = set(todo)
        while todo and len(self.states) < limit:
            fresh = [target for target in dict.fromkeys(self._expand(todo.popleft())) if target not in queued]
            queued.update(fresh)
            todo += fresh
        return {
            "way": taken, "states": self.shown, "next": self.next, "parts": self.parts.items,
            "phrases": self.phrases.items, "told": self.told.items, "unrest": self.unrest,
        }  # fmt: skip

    def _walk(self, way: Iterable[Any]) -> tuple[list[int], deque[int]]:
        """Follow these steps; return the choices taken, and the states on the way."""
        taken, states = list[int](), deque([self._number(self.space.initial())])
        for event in way:
            self._expand(states[-1])
            place = self.events[states[-1]].index(event)
            taken.append(place)
            target = (self.next[states[-1]] or [])[place][2]
            if target is None:
                break
            states.append(target)
        return taken, states

    def _choose(self, choices: Sequence[int]) -> tuple[list[int], deque[int]]:
        """Take these choices; return them, and the states on the way.  ArgumentError: there is no such step."""
        states = deque([self._number(self.space.initial())])
        for place, choice in enumerate(choices, 1):
            self._expand(states[-1])
            steps = self.next[states[-1]] or []
            if choice >= len(steps):
                raise ArgumentError(f"the way's step {place} is {choice}, and its state has {len(steps)} steps, from 0")
            target = steps[choice][2]
            if target is not None:
                states.append(target)
            elif place < len(choices):
                raise ArgumentError(f"the way's step {place} breaks a property: no step comes after it")
        return [*choices], states

    def _number(self, state: Any) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = self.numbers[state] = len(self.states)
            self.states.append(state)
            self.shown.append([self.parts(part, partial(self.world.shown, part)) for part in self.world.parts(state)])
            self.next.append(None)
        return number

    def _expand(self, number: int) -> list[int]:
        """Record the steps of a state; return the states that they lead to."""
        steps, space = self.next[number], self.space
        if steps is None:
            state = self.states[number]
            del space.faults[:]
            found = list(zip(*space.successors(state), strict=True))
            broken = [(f"{name}: {text}", event) for name, text, event in space.faults]
            del space.faults[:]
            steps = self.next[number] = [self._step(state, event, self._number(new), "") for new, event in found]
            steps += [self._step(state, event, None, why) for why, event in broken]
            self.events[number] = [*(event for _, event in found), *(event for _, event in broken)]
            if not steps and (unrest := space.unrest(state)):
                self.unrest[number] = ": ".join(unrest)
        return [step[2] for step in steps if step[2] is not None]

    def _step(self, state: Any, event: Any, target: int | None, broken: str) -> list[Any]:
        """Return the step as the page has it: words, kind, target, moments, and what it breaks."""
        phrase, moments = self.world.phrase(state, event), [] if broken else self.world.told(state, event)
        told = self.told(msgspec.json.encode(moments), lambda: moments)
        return [self.phrases(phrase, lambda: phrase), self.world.kind(event), target, told, broken]


def read_way(text: str) -> tuple[int, ...]:
    """Read the way of a page's address.  ArgumentError: it is none."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})*", text):
        raise ArgumentError(f"{text[:40]!r} is no way: numbers with dots between them, as in 0.2.1")
    return tuple(map(int, text.split(".")))


def budget(counts: Iterable[tuple[str, int]]) -> Json:
    """Return the part that says which faults may still happen, and how often."""
    return {"budget": ", ".join(f"{fault} {count}" for fault, count in counts if count) or "nothing: no fault is left"}
