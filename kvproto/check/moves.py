"""What can happen next: the successors of a state.

At every node its plain moves; at every link a delivery, a loss, a repetition; and the timers, as far as the assumption
about time lets them end:

* a short one (it repeats a message, or gives the ring up) when nothing is on its links, else for an `early`;
* a beat, or its absence, when the two ends of the link disagree and nothing is on it;
* a long one when, after a hard fault, nothing else but timers is left to happen, else for a `timeout`.
"""

from __future__ import annotations

from typing import Any

from kvproto.check.menus import Choice, Later, Menu, Menus, Option
from kvproto.check.network import REPORT, TO_DECODE
from kvproto.check.pairs import DECODE_ALONE, PREFILL_ALONE
from kvproto.check.world import BITS, DEAD, MASK, Event

Found = tuple[list[int], list[Event]]
SWIFT = frozenset({"gathered", "land", "scattered"})
ENDINGS = frozenset({"write", "doubt", "kernel", "late"})  #: other ways for these to end


class Explorer(Menus):
    """A world that knows what comes next."""

    def initial(self) -> int:
        """The first state: every rank has started; with `wired`, every link is up."""
        state: int | None = self.start()
        assert state is not None
        while self.config.wired and (further := self._wire_up(state)) is not None:
            state = further
        return self.canonical(state)

    def _wire_up(self, state: int) -> int | None:
        for new, why in zip(*self.successors(state), strict=True):
            greeting = why.what[0] in ("wired", "hello") or (why.what[0] == "message" and why.what[2][1] < 0)
            if not why.cost and greeting:
                return new
        return None

    # ---------------------------------------------------------------------------------------- successors
    def successors(self, state: int) -> Found:
        """The states that come next, and why; what breaks a property is added to `faults`."""
        numbers = [state >> shift & MASK for shift in self.shifts]
        if self.config.swift and (at_once := self._at_once(state, numbers)) is not None:
            return at_once
        states: list[int] = []
        why: list[Event] = []
        found = states, why
        menus = []
        for at, memo in enumerate(self.menus):
            menu = memo.get(numbers[at])
            if menu is None:
                menu = self.menu(at, numbers[at])
            menus.append(menu)
            for delta, ops, fault, event in menu.plain:
                if fault is None:
                    states.append(self.carry(state + delta, at, ops) if ops else state + delta)
                    why.append(event)
                else:
                    self.faults.append((*fault, event))
        moving = bool(states)
        for menu in menus:
            for later in menu.costly:
                self._pay(state, numbers[-1], later.cost, later, found)
        quiet = [self._deliver(state, numbers, i, found) for i in range(len(self.pairs))]
        self._timers(state, numbers, menus, quiet, found, still=not moving and all(quiet))
        return found

    def _at_once(self, state: int, numbers: list[int]) -> Found | None:
        """In a swift world: the next kernel, write or report that ends, well or ill, if any, and nothing else."""
        found: Found = [], []
        for at, number in enumerate(numbers[: self.n]):
            menu = self.menu(at, number)
            for choice in menu.plain:
                if choice[3].what[0] in SWIFT:
                    self._take(state, choice, found)
                    for later in menu.costly:
                        if later.cost in ENDINGS:
                            self._pay(state, numbers[-1], later.cost, later, found)
                    return found
        for i, number in enumerate(numbers[self.n : -1]):
            report = next((option for option in self.deliver(number) if option[0] == REPORT), None)
            if report is not None:
                self._hand_over(state + (report[2] << self.shifts[self.n + i]), numbers, i, report, found)
                return found
        return None

    def _take(self, state: int, choice: Choice, found: Found) -> None:
        delta, ops, fault, event = choice
        if fault is None:
            found[0].append(self.carry(state + delta, event.at, ops) if ops else state + delta)
            found[1].append(event)
        else:
            self.faults.append((*fault, event))

    def _pay(self, state: int, budget: int, cost: str, later: Later, found: Found) -> None:
        left = self.spend(budget, cost, later.room)
        if left >= 0:
            delta, ops, fault, event = later()
            paid = event if event.cost else event._replace(cost=cost)
            self._take(state + ((left - budget) << self.shifts[-1]), (delta, ops, fault, paid), found)

    def _deliver(self, state: int, numbers: list[int], i: int, found: Found) -> bool:
        """What the network can do on a link; returns whether the link is quiet."""
        link, number = self.n + i, numbers[self.n + i]
        options = self.options.get(number)
        for option in self.deliver(number) if options is None else options:
            new = state + (option[2] << self.shifts[link])
            cost = option[3]
            if cost:
                budget = self.spend(numbers[-1], cost, -1)
                if budget < 0:
                    continue
                new += (budget - numbers[-1]) << self.shifts[-1]
            if option[1] is None:
                found[0].append(new)
                found[1].append(Event(link, ("lost", option[0]), cost))
            else:
                self._hand_over(new, numbers, i, option, found)
        return self.quiets[number]

    def _hand_over(self, state: int, numbers: list[int], i: int, option: Option, found: Found) -> None:
        way, item, _, cost = option
        assert item is not None
        p, d = self.pairs[i]
        at = self.config.prefills + d if way == TO_DECODE else p
        choice = self.heard[i][way].get(numbers[at] << BITS | item)
        if cost == "late":
            choice = self.choice(at, numbers[at], ("message late", d, self.messages.values[item]), "")
        elif choice is None:
            what, lasting = self._input(state, numbers, i, way, item)
            choice = self.choice(at, numbers[at], what, "")
            if lasting:
                self.heard[i][way][numbers[at] << BITS | item] = choice
        if cost:
            choice = (*choice[:3], choice[3]._replace(cost=cost))
        self._take(state, choice, found)

    def _input(self, state: int, numbers: list[int], i: int, way: int, item: int) -> tuple[Any, bool]:
        p, d = self.pairs[i]
        message = self.messages.values[item]
        if way == REPORT:
            return ("wrote", message[0], message[1], message[2], d), True
        if isinstance(message[2], tuple) and message[2][0] == "HELLO":
            return ("hello", d, message[2][1], message[2][2], self._new_epoch(state, numbers, i)), False
        return ("message", p if way == TO_DECODE else d, message), True

    def _new_epoch(self, state: int, numbers: list[int], i: int) -> int:
        """The least epoch that nobody of this link remembers."""
        p, d = self.pairs[i]
        used = {0}
        for at, peer in ((p, d), (self.config.prefills + d, p)):
            value = self.parts[at].values[numbers[at]]
            link = value.rank[2][peer] if value[0] is not DEAD else None
            used.add(link.epoch if link is not None else 0)
        wire = self.part(state, self.n + i)
        for number in (*wire.to_decode, *wire.to_prefill):
            epoch, _, body = self.messages.values[number]
            used.add(body[2] if isinstance(body, tuple) and body[0] == "WELCOME" else epoch)
        return next(epoch for epoch in range(1, len(used) + 1) if epoch not in used)

    def _timers(  # noqa: C901  # one kind of timer a loop
        self, state: int, numbers: list[int], menus: list[Menu], quiet: list[bool], found: Found, *, still: bool
    ) -> None:  # fmt: skip
        budget, allowed = numbers[-1], self.config.budget
        patient = still and self.budgets.values[budget].hard
        alone = self._judge_couples(numbers)
        for at, menu in enumerate(menus):
            for links, later in menu.short:
                if all([quiet[link - self.n] for link in links]):  # noqa: C419  # a list is faster than a generator
                    self._take(state, later(), found)
                elif allowed.early:
                    self._pay(state, budget, "early", later, found)
            me = PREFILL_ALONE if at < self.config.prefills else DECODE_ALONE
            for link, later in menu.beats:
                if alone[link - self.n] & me and quiet[link - self.n]:
                    self._take(state, later(), found)
            if patient:
                for later in menu.long:
                    self._take(state, later(), found)
            if allowed.timeout:
                for later in menu.rare if patient else (*menu.long, *menu.rare):
                    self._pay(state, budget, "timeout", later, found)

    def _judge_couples(self, numbers: list[int]) -> list[int]:
        """Who is alone on each link; what breaks a property between two nodes is added to `faults`."""
        alone = []
        for i, (p, d) in enumerate(self.pairs):
            couple = self.couple(i, numbers[p], numbers[self.config.prefills + d])
            alone.append(couple.alone)
            if couple.fault:
                self.faults.append((*couple.fault, Event(self.n + i, ("seen",))))
        return alone
