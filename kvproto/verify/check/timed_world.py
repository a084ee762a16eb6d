"""Timed worlds: the clock moves, from one moment at which a timer is due to the next.

What can happen at a moment happens in it, in the fixed order of hasty worlds; then time passes. From there a search
strays: a message is lost, doubled, or overtaken; a rank dies, a link is lost, at any point; the first room is opened at
any moment; what is *slow* comes after the next timer has ended, once for each `slow` of the budget; with `silence` one
direction of a link is held up for longer. So for every message and every timer that is due next both orders are tried.

What is judged, beside what every world judges:

* S9  a link that both ends have up ends by a fault alone, and a room that began when all was well does not fail;
* L1, L2, L5, S8  `within` seconds after the last fault, or the engine's last call, whichever came later, every room
  that was opened is over, given back and forgotten; and `apart` seconds after it every link is up again, or forgotten
  by whoever lives;
* L3  when nothing is left to happen at a moment, nobody waits for what is free;
* L4  no circle without time.

A room that is not the first of its two groups is opened when all is well again, whatever has happened before; it has to
succeed.  So has one of other groups than those that are hurt, which is opened at any moment.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.protocol.states import DLink
from kvproto.verify.check.config import Config
from kvproto.verify.check.delay_bounded import DelayBoundedExplorer, Turn
from kvproto.verify.check.link_invariants import link_to
from kvproto.verify.check.moments import aged, since
from kvproto.verify.check.node import FAILURE, GONE, Unrest
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.nodes_prefill import PrefillNode
from kvproto.verify.check.state_encoding import BITS, DEAD, MASK, BudgetState, event
from kvproto.verify.check.successors import Found
from kvproto.verify.check.timed_bounds import bounds
from kvproto.verify.check.timed_nodes import DUE, TimedDecodeNode, TimedPrefillNode
from kvproto.verify.check.timed_waits import idle_wait

#: calls of engines, and what nobody is bound to do at once
OPENINGS = frozenset({"open", "engine"})
#: the place of the script in a value, also in that of a rank that is dead
SCRIPT = 2
#: the place of the links in a rank
LINKS = 2
LINK = "the link"


class TimedExplorer(DelayBoundedExplorer):
    """A world in which time has numbers."""

    PREFILL: ClassVar[type[PrefillNode]] = TimedPrefillNode
    DECODE: ClassVar[type[DecodeNode]] = TimedDecodeNode
    #: what may be put off
    LATER: ClassVar[frozenset[str]] = frozenset({"restart"})

    def __init__(self, config: Config) -> None:
        """As for `World`."""
        super().__init__(config)
        self.bounds = bounds(config)
        #: rooms that are opened at any moment, whatever has become of others
        self.firsts = {k for k, of in enumerate(config.parties) if config.abreast or of not in config.parties[:k]}
        #: an engine that never says all that it should: its rooms fail, and nobody else is to blame
        self.mute = not any("aux" in word for word in config.engine)
        #: the longest that rooms and links took, for whoever wants to know how sharp the bounds are
        self.longest = {"rooms": 0.0, "links": 0.0}

    # ---------------------------------------------------------------------------------------- successors
    def successors(self, state: int) -> Found:
        """The states that come next, and why; what breaks a property is added to `faults`."""
        numbers = [state >> shift & MASK for shift in self.shifts]
        found: Found = [], []
        turns: list[Turn] = []
        menus = []
        for at in range(self.n):
            menus.append(self.menu(at, numbers[at]))
            mine = self.turns[at].get(numbers[at])
            turns += self.turns_of(at, numbers[at]) if mine is None else mine
        budget_at = -1 if numbers[-1] in self.poor else numbers[-1]
        if budget_at >= 0:
            for menu in menus:
                for later in menu.costly:
                    self._pay(state, budget_at, later.cost, later, found)
        self._listen(state, numbers, budget_at, turns, found)
        self._judge_couples(numbers)
        unwell = self.unwell(numbers)
        asleep = self.budgets.values[numbers[-1]].asleep
        free, prompt = self._sorted(numbers, turns, well=unwell is None)
        awake = [turn for turn in prompt if not asleep & turn[1]]
        if awake:
            self._go_on(state, numbers[-1], awake, found)
        else:
            for turn in free:
                self._take(self._clocked(state, numbers[-1], 0.0), turn[3], found)
            self._pass(state, numbers, unwell, found, held=bool(prompt))
        self._judge_links(state, found)
        return found

    def _sorted(self, numbers: list[int], turns: list[Turn], *, well: bool) -> tuple[list[Turn], list[Turn]]:
        """Split turns into those that may be put off (a return, a room's first call) and the rest.

        A room that is not its groups' first is not opened before all is well, and an engine keeps its pace.
        """
        scripts = [self.parts[at].values[numbers[at]][SCRIPT] for at in range(self.n)]
        early = self.budgets.values[numbers[-1]].hurt < self.config.pace
        free, prompt = [], []
        for turn in turns:
            word, *about = turn[3][3].what
            if word in self.LATER:
                free.append(turn)
            elif word == "engine" and early and scripts[turn[3][3].at][about[0]] > 0:
                continue
            elif word not in OPENINGS or any(script[about[0]] > 0 for script in scripts):
                prompt.append(turn)
            elif well or about[0] in self.firsts:
                free.append(turn)
        return free, prompt

    def _go_on(self, state: int, budget: int, awake: list[Turn], found: Found) -> None:
        """Run the first in turn, or delay it while the budget lasts."""
        _, bit, source, _ = min(awake, key=itemgetter(0))
        for _, who, _, choice in awake:
            if who == bit:
                called = self.config.pace and choice[3].what[0] == "engine"
                self._take(self._clocked(state, budget, 0.0) if called else state, choice, found)
        left = self.spend(budget, "slow", -1)
        if left >= 0:
            asleep = self.budgets.values[budget].asleep
            found[0].append(state + ((self.put_to_sleep(left, asleep | bit) - budget) << self.shifts[-1]))
            found[1].append(event(source[0], ("slow", *source[1:]), "slow"))

    # ---------------------------------------------------------------------------------------------- time
    def _judge_blame(self, state: int, at: int, k: int) -> None:
        if not self.mute:
            super()._judge_blame(state, at, k)

    def _pass(self, state: int, numbers: list[int], unwell: Unrest, found: Found, *, held: bool) -> None:
        """Nothing is left to happen now, but for what is held up: time goes to where the next timer ends."""
        spent = self.budgets.values[numbers[-1]]
        values = [self.parts[at].values[number] for at, number in enumerate(numbers[: self.n])]
        alive = [value for value in values if value[0] is not DEAD]
        seconds = min((value.rank[DUE] for value in alive), default=INFINITY)
        if seconds == INFINITY or self._overdue(values, spent):
            if held:
                found[0].append(self._woken(state, numbers[-1]))
                found[1].append(event(0, ("pass", 0.0)))
            return
        why = event(0, ("pass", seconds))
        waits = None if held else idle_wait(self.config, values)
        if waits is not None:
            self.faults.append((*waits, why))
        hurt = spent.hurt + seconds if unwell else 0.0
        if unwell is not None:
            self._judge_clock(unwell, hurt, why)
        calm = unwell is None and len(alive) == self.n
        blamed = self._lost(values) if calm else spent.blamed
        left = spent._replace(asleep=0, hurt=hurt, hard=spent.hard and not calm, blamed=blamed, silent=0)
        ends = [left]
        if self._speech() & spent.asleep and spent.silent < self.config.silence:
            ends.append(left._replace(asleep=spent.asleep, silent=spent.silent + 1))
        new = state
        for at in range(self.n, self.last):
            wire = aged(self.part(state, at), self.messages, self.config.net, lambda at: since(at - seconds))
            new += (self.wires(wire) - numbers[at]) << self.shifts[at]
        for at in range(self.n):
            new = self._hand(new, at, ("pass", seconds))
        for end in ends:
            found[0].append(new + ((self.budget(end) - numbers[-1]) << self.shifts[-1]))
            found[1].append(why)

    def _overdue(self, values: list[Any], spent: BudgetState) -> bool:
        """Tell whether a dead rank has to start anew now."""
        dead = any(value[0] is DEAD for value in values)
        return dead and self.config.restart and spent.hurt >= self.bounds.away

    def _speech(self) -> int:
        """Return the directions of links, and the writes into a stopped process, among slow things (mask)."""
        return sum(1 << place for source, place in self.sources.items() if source[1] in {"message", "land"})

    def _lost(self, values: list[Any]) -> int:
        """The rooms that some engine has lost with its rank, or knows to have failed (mask)."""
        return sum(1 << k for k in range(len(self.config.keys)) if any(_gone(value, k) for value in values))

    def _judge_clock(self, unwell: tuple[str, str], hurt: float, why: Any) -> None:
        what = "links" if unwell[1].startswith(LINK) else "rooms"
        limit = getattr(self.bounds, what)
        self.longest[what] = max(self.longest[what], hurt)
        if hurt > limit:
            text = f"{hurt:g} s after the last fault, of {limit:g} that it may take: {unwell[1]}"
            self.faults.append((unwell[0], text, why))

    def _clocked(self, state: int, budget: int, hurt: float) -> int:
        spent = self.budgets.values[budget]
        return state + ((self.budget(spent._replace(hurt=hurt)) - budget) << self.shifts[-1])

    def _woken(self, state: int, budget: int) -> int:
        return state + ((self.put_to_sleep(budget, 0) - budget) << self.shifts[-1])

    # --------------------------------------------------------------------------------------------- judged
    def unwell(self, numbers: list[int]) -> Unrest:
        """Return what is wrong at the end; None: all is well."""
        for at, number in enumerate(numbers[: self.n]):
            if found := self.unsettled(at, number):
                return found
        for i, (d, p) in enumerate(self.ends):
            if not self._agreed(i, numbers[p], numbers[d]) and (found := self._parted(i, numbers)):
                return found
        return None

    def _parted(self, i: int, numbers: list[int]) -> Unrest:
        """A link that is not up is well if one of its ends is dead and the other has forgotten it."""
        at_p, at_d = self.pairs[i]
        d, p = self.ends[i]
        ends = (self.parts[p].values[numbers[p]], at_d), (self.parts[d].values[numbers[d]], at_p)
        alive = [(value, peer) for value, peer in ends if value[0] is not DEAD]
        if self.config.misfit == "name" and _refused(self.parts[p].values[numbers[p]], *alive[-1], at_d):
            return None
        if len(alive) < len(ends) and all(value.rank[LINKS][peer] is None for value, peer in alive):
            return None
        text = f"{LINK} between prefill {at_p} and decode {at_d} is neither up nor forgotten"
        return "S8" if len(alive) < len(ends) else "L1", text

    def unrest(self, state: int) -> Unrest:
        """As `unwell`; a room that nobody opens is no unrest, and messages are under way now and then."""
        return self.unwell([state >> shift & MASK for shift in self.shifts])

    def _agreed(self, i: int, p: int, d: int) -> bool:
        couple = self.couples[i].get(p << BITS | d) or self.couple(i, p, d)
        return couple.agreed

    def _links(self, state: int) -> int:
        """The links that both ends have up, as one (mask)."""
        at = [state >> shift & MASK for shift in self.shifts]
        return sum(1 << i for i, (d, p) in enumerate(self.ends) if self._agreed(i, at[p], at[d]))

    def _judge_links(self, state: int, found: Found) -> None:
        up = self._links(state)
        if not up:
            return
        for new, why in zip(*found, strict=True):
            if not why.cost and up & ~self._links(new):
                self.faults.append(("S9", "a link that is up ends although nothing happened to it", why))
                return


def _refused(prefill: Any, decode: Any, at_p: int, at_d: int) -> bool:
    """Tell whether this decode instance was refused by name, and remembers it or has forgotten."""
    theirs = decode.rank[LINKS][at_p]
    return link_to(prefill, at_d) is None and (theirs is None or theirs.state is DLink.REFUSED)


def _gone(value: Any, k: int) -> bool:
    return bool(value[SCRIPT][k] == GONE or (value[0] is not DEAD and value.outcome[k] == FAILURE))
