"""Delay-bounded worlds: everything happens at once and in a fixed order, but for a few slow things.

A world of four ranks, two rooms and two chunks has too many states: most differ only in the order of what has nothing
to do with each other. A hasty world goes by a fixed order (kernels and writes, then reports and messages, then engines)
and strays from it: `budget.slow` times something (one direction of a link, a writer's writes, a rank's kernels, an
engine's calls for one room) is *slow*, so that everything else goes first. Faults come at any point. What is found is
real; the search is exhaustive up to a number of slow things and faults. Rooms are not exchanged here, since the order
knows them by their number.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from kvproto.verify.check.config import Config
from kvproto.verify.check.enabled_steps import Choice, Hearing
from kvproto.verify.check.state_encoding import BITS, MASK, QUIET, event
from kvproto.verify.check.successors import Explorer, Found

Source = tuple[int, str, int]  #: component, word, and the room, writer or direction
Turn = tuple[int, int, Source, Choice]  #: place in the order, who as a mask, who, what
Heeds = dict[int, tuple[Hearing, list[Turn]]]

ORDER = (
    "land", "settle", "scattered", "gathered", "gathered deferred", "made", "wired", "restart", "tried", "notified",
    "wrote", "message", "hello", "open", "engine", "name",
)  # fmt: skip
PLACE = {word: place for place, word in enumerate(ORDER)}


class DelayBoundedExplorer(Explorer):
    """A world in which few things are slow."""

    def __init__(self, config: Config) -> None:
        """As for `World`."""
        super().__init__(config)
        #: the place of each source's bit in masks
        self.sources: dict[Source, int] = {}
        self.turns: list[dict[int, list[Turn]]] = [{} for _ in self.nodes]
        self.heeds: list[tuple[Heeds, Heeds]] = [({}, {}) for _ in self.pairs]

    def successors(self, state: int) -> Found:
        """The states that come next, and why; what breaks a property is added to `faults`."""
        numbers = [state >> shift & MASK for shift in self.shifts]
        found: Found = [], []
        menus, turns = [], []
        for at, memo in enumerate(self.menus):
            number = numbers[at]
            menus.append(memo.get(number) or self.menu(at, number))
            mine = self.turns[at].get(number)
            turns += self.turns_of(at, number) if mine is None else mine
        budget_at = -1 if numbers[-1] in self.poor else numbers[-1]
        if budget_at >= 0:
            for menu in menus:
                for later in menu.costly:
                    self._pay(state, budget_at, later.cost, later, found)
        noisy = self._listen(state, numbers, budget_at, turns, found)
        if turns:
            self._take_turn(state, numbers[-1], turns, found)
        self._timers(state, numbers, menus, noisy | -bool(turns), found, moving=bool(turns))
        return found

    def turns_of(self, at: int, number: int) -> list[Turn]:
        """A node's moves, each with its place in the order and its bit."""
        found = self.turns[at][number] = []
        for choice in self.menu(at, number).plain.all():
            what = choice[3].what
            who = what[1] if what[0] in ("open", "engine") else what[1][0] if what[0] in ("land", "settle") else 0
            found.append(self._turn((at, what[0], who), choice))
        return found

    def _turn(self, source: Source, choice: Choice) -> Turn:
        return PLACE[choice[3].what[0]], self.bit(source), source, choice

    def bit(self, source: Source) -> int:
        """The bit that stands for whom, among what may be slow."""
        return 1 << self.sources.setdefault(source, len(self.sources))

    def _listen(self, state: int, numbers: list[int], budget_at: int, turns: list[Turn], found: Found) -> int:
        """Add what the links can do; returns the links on which something is (mask)."""
        noisy = 0
        for i, ends in enumerate(self.ends):
            wire = numbers[self.n + i]
            if wire == QUIET:
                continue
            noisy |= 1 << i
            for end, at in enumerate(ends):
                number = numbers[at]
                mine = self.heeds[i][end].get(number << BITS | wire)
                heard, heeded = self._heed(i, end, number, wire) if mine is None else mine
                turns += heeded
                if heard.costly and budget_at >= 0:
                    self._pay_network(state, budget_at, heard.costly, found)
                for item, delta, cost in heard.calls:
                    choice = self.call(numbers, i, item)
                    if not cost:
                        turns.append(self._turn(self.speaker(i, end, choice[3].what), (delta + choice[0], *choice[1:])))
                    elif budget_at >= 0:
                        self._pay_for(state + delta, budget_at, cost, choice, found)
        return noisy

    def _heed(self, i: int, end: int, number: int, wire: int) -> tuple[Hearing, list[Turn]]:
        heard, turns = self.hear(i, end, number, wire), []
        turns += [self._turn(self.speaker(i, end, choice[3].what), choice) for choice in heard.free.all()]
        self.heeds[i][end][number << BITS | wire] = heard, turns
        return heard, turns

    def speaker(self, i: int, end: int, what: Any) -> Source:
        """The direction of a link, or the transport there, from which an input comes."""
        return self.n + i, what[0] if what[0] in ("wrote", "notified") else "message", end

    def _take_turn(self, state: int, budget: int, turns: list[Turn], found: Found) -> None:
        """Run the first in turn, or delay it while the budget lasts."""
        shift, asleep = self.shifts[-1], self.budgets.values[budget].asleep
        awake = [turn for turn in turns if not asleep & turn[1]]
        if not awake:
            rested = self.put_to_sleep(budget, 0)
            awake, asleep, state, budget = turns, 0, state + ((rested - budget) << shift), rested
        _, bit, source, _ = min(awake, key=itemgetter(0))
        for _, who, _, choice in awake:
            if who == bit:
                self._take(state, choice, found)
        left = self.spend(budget, "slow", -1)
        if left >= 0 and any(who != bit for _, who, _, _ in turns):
            found[0].append(state + ((self.put_to_sleep(left, asleep | bit) - budget) << shift))
            found[1].append(event(source[0], ("slow", *source[1:]), "slow"))

    def put_to_sleep(self, budget: int, asleep: int) -> int:
        return self.budget(self.budgets.values[budget]._replace(asleep=asleep))

