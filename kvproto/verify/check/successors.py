"""Successors: compute the next states of a state.

At every node its plain moves; at every link a delivery, a loss, a repetition; and the timers, as far as the assumption
about time lets them end:

* a short one (it repeats a message, or gives the ring up) when nothing is on its links, else for an `early`;
* a beat, or its absence, when the two ends of the link disagree and nothing is on it;
* a long one when, after a hard fault, nothing else but timers is left to happen, else for a `timeout`; and where rooms
  may be forgotten (`Config.forgets`), when nothing else at all is left: nobody is told what nobody remembers.  Where
  there are several groups, a room's long timers end for nothing only if the fault was one of its own groups'.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvproto.fsm.table import Row
from kvproto.verify.check.enabled_steps import Choice, LazyChoice, Menu, Menus, Trouble
from kvproto.verify.check.network import REPORT, TO_PREFILL
from kvproto.verify.check.node import Input
from kvproto.verify.check.state_encoding import BITS, DEAD, MASK, QUIET, WorldEvent, event

Found = tuple[list[int], list[WorldEvent]]
SWIFT = frozenset({"gathered", "made", "land", "scattered"})
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

    def fired(self) -> Iterator[Row]:
        return (row for node in self.nodes for row in node.rows.values())

    # ---------------------------------------------------------------------------------------- successors
    def successors(self, state: int) -> Found:
        """The states that come next, and why; what breaks a property is added to `faults`."""
        numbers = [state >> shift & MASK for shift in self.shifts]
        if self.config.swift and (at_once := self._at_once(state, numbers)) is not None:
            return at_once
        states: list[int] = []
        why: list[WorldEvent] = []
        found = states, why
        menus = []
        for at, memo in enumerate(self.menus):
            menu = memo.get(numbers[at]) or self.menu(at, numbers[at])
            menus.append(menu)
            deltas, events, rest = menu.plain
            if deltas:
                states += [state + delta for delta in deltas]
                why += events
            for choice in rest:
                self._take(state, choice, found)
        moving = bool(states)
        budget_at = -1 if numbers[-1] in self.poor else numbers[-1]
        if budget_at >= 0:
            for menu in menus:
                for later in menu.costly:
                    self._pay(state, budget_at, later.cost, later, found)
        noisy = self._deliver(state, numbers, budget_at, found)
        self._timers(state, numbers, menus, noisy, found, moving=moving)
        return found

    def _at_once(self, state: int, numbers: list[int]) -> Found | None:
        """In a swift world: the next kernel, write or report that ends, well or ill, if any, and nothing else."""
        found: Found = [], []
        for at, number in enumerate(numbers[: self.n]):
            menu = self.menu(at, number)
            choice = next((choice for choice in menu.plain.all() if choice[3].what[0] in SWIFT), None)
            if choice is not None:
                self._take(state, choice, found)
                for later in menu.costly:
                    if later.cost in ENDINGS:
                        self._pay(state, numbers[-1], later.cost, later, found)
                return found
        for i, number in enumerate(numbers[self.n : -1]):
            report = next((option for option in self.deliver(number) if option[0] == REPORT), None)
            if report is not None:
                p = self.ends[i][1]
                choice = self.choice(p, numbers[p], self.heard(i, REPORT, report[1], ""), "")
                self._take(state + (report[2] << self.shifts[self.n + i]), choice, found)
                return found
        return None

    def _take(self, state: int, choice: Choice, found: Found) -> None:
        delta, ops, fault, why = choice
        if fault is None:
            found[0].append(self.carry(state + delta, why.at, ops) if ops else state + delta)
            found[1].append(why)
        else:
            self.faults.append((*fault, why))

    def _pay(self, state: int, budget_at: int, cost: str, later: LazyChoice, found: Found) -> None:
        left = self.spend(budget_at, cost, later.room, later.touched)
        if left >= 0:
            delta, ops, fault, why = later.done or later()
            paid = why if why.cost else event(why.at, why.what, cost)
            self._take(state + ((left - budget_at) << self.shifts[-1]), (delta, ops, fault, paid), found)

    def _pay_for(self, state: int, budget_at: int, cost: str, choice: Choice, found: Found) -> None:
        left = self.spend(budget_at, cost, -1)
        if left >= 0:
            delta, ops, fault, why = choice
            paid = event(why.at, why.what, cost)
            self._take(state + ((left - budget_at) << self.shifts[-1]), (delta, ops, fault, paid), found)

    def _deliver(self, state: int, numbers: list[int], budget_at: int, found: Found) -> int:
        """Add the network's moves; return the links that carry something (mask)."""
        states, why = found
        noisy = 0
        for i, ends in enumerate(self.ends):
            wire = numbers[self.n + i]
            if wire == QUIET:
                continue
            noisy |= 1 << i
            for end, at in enumerate(ends):
                number = numbers[at]
                heard = self.hearings[i][end].get(number << BITS | wire) or self.hear(i, end, number, wire)
                (deltas, events, rest), costly, calls = heard
                if deltas:
                    states += [state + delta for delta in deltas]
                    why += events
                for choice in rest:
                    self._take(state, choice, found)
                if costly and budget_at >= 0:
                    self._pay_network(state, budget_at, costly, found)
                for item, delta, cost in calls:
                    choice = self.call(numbers, i, item)
                    if not cost:
                        self._take(state + delta, choice, found)
                    elif budget_at >= 0:
                        self._pay_for(state + delta, budget_at, cost, choice, found)
        return noisy

    def _pay_network(self, state: int, budget_at: int, costly: list[Trouble], found: Found) -> None:
        for cost, delta, later, why in costly:
            left = self.spend(budget_at, cost, -1)
            if left >= 0:
                new = state + delta + ((left - budget_at) << self.shifts[-1])
                if later is not None:
                    self._take(new, later.done or later(), found)
                else:
                    found[0].append(new)
                    found[1].append(why)

    def call(self, numbers: list[int], i: int, item: int) -> Choice:
        """Return the result of a decode rank's call: it gets an epoch that is new on this link."""
        p = self.ends[i][1]
        return self.choice(p, numbers[p], self.called(numbers, i, item), "")

    def called(self, numbers: list[int], i: int, item: int) -> Input:
        return *self.heard(i, TO_PREFILL, item, ""), self._new_epoch(numbers, i)

    def _new_epoch(self, numbers: list[int], i: int) -> int:
        """The least epoch that nobody of this link remembers."""
        used = self._epochs(numbers, i)
        return next(epoch for epoch in range(1, len(used) + 1) if epoch not in used)

    def _epochs(self, numbers: list[int], i: int) -> set[int]:
        """The epochs that somebody of this link remembers, and 0."""
        p, d = self.pairs[i]
        used = {0}
        for at, peer in ((p, d), (self.first_decode + d, p)):
            value = self.parts[at].values[numbers[at]]
            link = value.rank[2][peer] if value[0] is not DEAD else None
            used.add(link.epoch if link is not None else 0)
        wire = self.wires.values[numbers[self.n + i]]
        for number in (*wire.to_decode, *wire.to_prefill, *wire.notifications):
            used.add(self.messages.values[number][0])
        return used

    # -------------------------------------------------------------------------------------------- timers
    def _timers(
        self, state: int, numbers: list[int], menus: list[Menu], noisy: int, found: Found, *, moving: bool
    ) -> None:  # fmt: skip
        early = self.config.budget.early and numbers[-1] not in self.poor
        alone = self._judge_couples(numbers)
        ticking = False
        for menu in menus:
            for links, later in menu.short:
                if not noisy & links:
                    ticking = True
                    self._take(state, later.done or later(), found)
                elif early:
                    self._pay(state, numbers[-1], "early", later, found)
            if alone:
                for end, link, later in menu.beats:
                    if alone & end and not noisy & link:
                        ticking = True
                        self._take(state, later.done or later(), found)
        untold = self.config.forgets and not ticking
        spent = self.budgets.values[numbers[-1]]
        patient = not (moving or noisy) and (untold or spent.hard)
        if patient or self.config.budget.timeout:
            gone = spent.blamed if self.config.several_groups and not untold else -1
            self._long_timers(state, numbers, menus, found, gone if patient else 0)

    def _long_timers(self, state: int, numbers: list[int], menus: list[Menu], found: Found, patient: int) -> None:
        """Add the long timers; `patient`: rooms that may wait for a dead rank (mask), if nothing else can."""
        for menu in menus:
            if patient:
                for later in menu.long:
                    if later.room < 0 or patient >> later.room & 1:
                        self._take(state, later.done or later(), found)
            if self.config.budget.timeout:
                for later in menu.rare if patient else (*menu.long, *menu.rare):
                    self._pay(state, numbers[-1], "timeout", later, found)

    def _judge_couples(self, numbers: list[int]) -> int:
        """Return which ends are alone, two bits a link; add broken properties of two nodes to `faults`."""
        alone = 0
        for i, (d, p) in enumerate(self.ends):
            couple = self.couples[i].get(numbers[p] << BITS | numbers[d]) or self.couple(i, numbers[p], numbers[d])
            alone |= couple.alone
            if couple.fault:
                self.faults.append((*couple.fault, event(self.n + i, ("seen",))))
            if couple.untold and numbers[self.n + i] == QUIET:
                self.faults.append((*couple.untold, event(self.n + i, ("seen",))))
        return alone
