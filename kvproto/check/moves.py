"""What can happen next: the successors of a state.

At every node its plain moves; at every link a delivery, a loss, a repetition; and the timers, as far as the assumption
about time lets them end:

* a short one (it repeats a message, or gives the ring up) when nothing is on its links, else for an `early`;
* a beat, or its absence, when the two ends of the link disagree and nothing is on it;
* a long one when, after a hard fault, nothing else but timers is left to happen, else for a `timeout`.
"""

from __future__ import annotations

from typing import Any

from kvproto.check.menus import Choice, Later, Menu, Menus
from kvproto.check.network import REPORT, TO_DECODE, Delivery
from kvproto.check.pairs import DECODE_ALONE, PREFILL_ALONE
from kvproto.check.world import BITS, DEAD, MASK, Event, Spent

Found = tuple[list[int], list[Event]]


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
        states: list[int] = []
        why: list[Event] = []
        budget = numbers[-1]
        moving, short = False, []
        for at in range(self.n):
            menu = self.menus[at].get(numbers[at]) or self.menu(at, numbers[at])
            for choice in menu.plain:
                moving = True
                self._take(state, choice, states, why)
            for later in menu.costly:
                left = self.spend(budget, later.cost, later.room)
                if left >= 0:
                    self._take(state + ((left - budget) << self.shifts[-1]), later(), states, why)
            short.append(menu)
        quiet = self._deliver(state, numbers, states, why)
        self._timers(state, numbers, short, quiet, states, why, still=not moving and all(quiet))
        return states, why

    def _take(self, state: int, choice: Choice, states: list[int], why: list[Event]) -> None:
        delta, outs, fault, event = choice
        if fault:
            self.faults.append((*fault, event))
            return
        state += delta
        states.append(self.carry(state, event.at, outs) if outs else state)
        why.append(event)

    def _deliver(self, state: int, numbers: list[int], states: list[int], why: list[Event]) -> list[bool]:
        quiet = []
        for i in range(len(self.pairs)):
            at = self.n + i
            number = numbers[at]
            for option, left in self.options.get(number) or self.deliver(number):
                new = state + ((left - number) << self.shifts[at])
                if option.cost:
                    budget = self.spend(numbers[-1], option.cost, -1)
                    if budget < 0:
                        continue
                    new += (budget - numbers[-1]) << self.shifts[-1]
                if option.item is None:
                    states.append(new)
                    why.append(Event(at, ("lost", option.way), option.cost))
                    continue
                self._arrive(new, numbers, i, option, states, why)
            quiet.append(self.quiets[number])
        return quiet

    def _arrive(
        self, state: int, numbers: list[int], i: int, option: Delivery, states: list[int], why: list[Event]
    ) -> None:
        p, d = self.pairs[i]
        at = self.config.prefills + d if option.way == TO_DECODE else p
        assert option.item is not None
        key = numbers[at] << BITS | option.item
        found = self.heard[i][option.way].get(key)
        if found is None:
            what, lasting = self._input(state, numbers, i, option)
            found = self.step(at, numbers[at], what), Event(at, what, option.cost)
            if lasting:
                self.heard[i][option.way][key] = found
        step, event = found
        self._take(state, (step.delta, step.outs, step.fault, event), states, why)

    def _input(self, state: int, numbers: list[int], i: int, option: Delivery) -> tuple[Any, bool]:
        p, d = self.pairs[i]
        assert option.item is not None
        message = self.messages.values[option.item]
        if option.way == REPORT:
            return ("wrote", message[0], message[1], message[2], d), True
        if isinstance(message[2], tuple) and message[2][0] == "HELLO":
            return ("hello", d, message[2][1], message[2][2], self._new_epoch(state, numbers, i)), False
        return ("message", p if option.way == TO_DECODE else d, message), True

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

    def _timers(
        self, state: int, numbers: list[int], menus: list[Menu], quiet: list[bool], states: list[int],
        why: list[Event], *, still: bool,
    ) -> None:  # fmt: skip
        spent: Spent = self.budgets.values[numbers[-1]]
        alone = self._judge_couples(numbers)
        for at, menu in enumerate(menus):
            for links, later in menu.short:
                if all(quiet[link - self.n] for link in links):
                    self._take(state, later(), states, why)
                else:
                    self._pay(state, numbers[-1], "early", later, states, why)
            me = PREFILL_ALONE if at < self.config.prefills else DECODE_ALONE
            for link, later in menu.beats:
                if quiet[link - self.n] and alone[link - self.n] & me:
                    self._take(state, later(), states, why)
            for later in menu.long:
                if still and spent.hard:
                    self._take(state, later(), states, why)
                else:
                    self._pay(state, numbers[-1], "timeout", later, states, why)
            for later in menu.rare:
                self._pay(state, numbers[-1], "timeout", later, states, why)

    def _judge_couples(self, numbers: list[int]) -> list[int]:
        """Who is alone on each link; what breaks a property between two nodes is added to `faults`."""
        alone = []
        for i, (p, d) in enumerate(self.pairs):
            couple = self.couple(i, numbers[p], numbers[self.config.prefills + d])
            alone.append(couple.alone)
            if couple.fault:
                self.faults.append((*couple.fault, Event(self.n + i, ("seen",))))
        return alone

    def _pay(self, state: int, budget: int, cost: str, later: Later, states: list[int], why: list[Event]) -> None:
        left = self.spend(budget, cost, later.room)
        if left >= 0:
            delta, outs, fault, event = later()
            paid = event._replace(cost=cost)
            self._take(state + ((left - budget) << self.shifts[-1]), (delta, outs, fault, paid), states, why)
