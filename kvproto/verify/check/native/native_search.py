"""NativeSearch: the framework's search, with its states, its loop and its graph in C.

States have the same numbers as in the search in Python, so a place in the order is the same state, by the same way.  C
gives up a step that breaks a property, and the step is taken again in Python, where the violation becomes a story.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, overload

from kvproto.fsm.errors import KvprotoError
from kvproto.loop.held_signals import HeldSignals
from kvproto.verify.check.native.answers import MOST_PARTS, Answers, Ask
from kvproto.verify.check.native.library import library
from kvproto.verify.check.state_encoding import MASK
from kvproto.verify.check.successors import Explorer
from kvproto.verify.framework import search as framework
from kvproto.verify.framework.search import Progress, Search

#: how C comes back: a step breaks something; nothing but faults can happen; an answer raised; no memory, or no room
WELL, FAULTY, STUCK, RAISED, FULL = range(5)


class EnginesDisagreeError(KvprotoError, AssertionError):
    """The search in C saw what the one in Python does not."""


class _Met(Sequence[int]):
    """The states that C has met, as the numbers that they are in Python."""

    def __init__(self, c: ctypes.CDLL, search: int, world: Explorer) -> None:
        self._c, self._search, self._shifts = c, search, list(world.shifts)
        self._numbers = (ctypes.c_uint32 * MOST_PARTS)()

    def __len__(self) -> int:
        count: int = self._c.search_states(self._search)
        return count

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        if not 0 <= at < len(self):
            raise IndexError(at)
        self._c.search_state(self._search, at, self._numbers)
        state: int = sum(number << shift for number, shift in zip(self._numbers, self._shifts, strict=False))
        return state


class NativeSearch(Search):
    """One run over one space, in C; mixed into a search of ranks."""

    world: Any

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._c, self.answers = library(), Answers(self.world)
        self._ask = Ask(self.answers.answer)
        self._search: int = self._c.search_new(ctypes.byref(self.answers.rules()), self._ask, self.answers.buffer)
        if not self._search:
            raise MemoryError("there is no memory for a search")
        self._free = weakref.finalize(self, self._c.search_free, self._search)
        self.order: Any = _Met(self._c, self._search, self.world)
        self.edges = None

    def close(self) -> None:
        self._free()
        self.order = []

    def _called(self, function: Callable[..., int], *about: Any) -> int:
        """Call C, which asks: an interrupt on the way into an answer would be lost, and the answer with it."""
        with HeldSignals.waking(self.answers.stop):
            ended = function(self._search, *about)
        if ended == RAISED:
            raise self.answers.raised or EnginesDisagreeError("an answer is not as long as it should be")
        return ended

    def _meet(self, state: Any, parent: int) -> int:
        del parent  # only what a search begins with is met here
        numbers = (ctypes.c_uint32 * MOST_PARTS)(*(state >> shift & MASK for shift in self.world.shifts))
        if self._called(self._c.search_meet, numbers):
            raise MemoryError("there is no memory for a state")
        return len(self.order) - 1

    def _walk(self, report: Callable[[Progress], None] | None, begun: float) -> None:
        result, tick, done = self.result, begun, 0
        while done < len(self.order):
            ended = self._called(self._c.search_advance, (done | framework.LOOK) + 1)
            done = self._c.search_done(self._search)
            result.transitions = self._c.search_transitions(self._search)
            result.depth = self._c.search_depth(self._search)
            if ended in (FAULTY, STUCK):
                self._explain(done, stuck=ended == STUCK)
                return
            now = time.perf_counter()
            if report is not None and now - tick > 1.0:
                tick = now
                report(Progress(len(self.order), result.transitions, result.depth, len(self.order) - done, now - begun))
            if not done & framework.LOOK and len(self.order) > self.bounds.limit:
                result.ended = "limit"
                return
            if ended == FULL or (not done & framework.LOOK and framework.megabytes() > self.memory):
                result.ended = "memory"
                return

    def _explain(self, at: int, *, stuck: bool) -> None:
        """Take a step again in Python."""
        if not stuck:
            states, _ = self.space.successors(self.order[at])
            self.result.transitions += len(states)
            self._broken(at)
        elif unrest := self.space.unrest(self.order[at]):
            self._violate(unrest[0], f"nothing can happen any more: {unrest[1]}", at)
        if not self.result.violations:
            raise EnginesDisagreeError(f"state {at}: the search in C finds it broken, the one in Python does not")

    def _path(self, at: int | None) -> list[Any]:
        if at is None:
            return []
        length = self._c.search_path(self._search, at, None)
        places = (ctypes.c_uint32 * length)()
        self._c.search_path(self._search, at, places)
        return [self.order[place] for place in reversed(places)]

    def _judge_ends(self) -> None:
        marks, found = ctypes.create_string_buffer(len(self.order)), ctypes.c_int64()
        self._called(self._c.search_rests, marks)
        self.rests = [at for at, mark in enumerate(marks.raw[: len(self.order)]) if mark]
        self._called(self._c.search_lost, marks, ctypes.byref(found))
        if found.value >= 0:
            name, text = self._reason(found.value)
            self._violate(name, text, found.value)
            return
        if self._called(self._c.search_circle, ctypes.byref(found)):
            self.result.ended = "memory"
        elif found.value >= 0:
            self._violate("L4", self.CIRCLE, found.value)
