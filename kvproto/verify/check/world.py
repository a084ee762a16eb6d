"""The world: every node, every link and the budget in one number.

A state is one integer: the places of each node's value, each link's wire and the budget in tables that keep each once,
side by side, `BITS` each. What a node does with an input is remembered as a `Step`: the difference that it makes to the
state, and what it sends. The ranks are pure, so this is exact, and nearly every step is two look-ups and an addition.
Of the states that differ by exchanging rooms only one is kept (`canonical`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from kvproto.verify.check.config import HARD, KINDS, Config
from kvproto.verify.check.moments import LONG_AGO, aged
from kvproto.verify.check.network import NOTIFICATION, REPORT, TO_DECODE, TO_PREFILL, Wire, push, put_queue
from kvproto.verify.check.node import Input, RankOutput, Violation
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.nodes_prefill import PrefillNode
from kvproto.verify.check.state_encoding import (
    BITS,
    BLAMED,
    DEAD,
    MASK,
    QUIET,
    BudgetState,
    Op,
    Step,
    WorldEvent,
    WorldPart,
    event,
)
from kvproto.verify.check.symmetry import swap_blame, swap_message, swap_value

#: what happens to both roles of a process
TOGETHER = frozenset({("crash",), ("restart",), ("close",)})


class CheckedWorld:
    """A configuration's components, and what becomes of them."""

    #: what the ranks are put into
    PREFILL: ClassVar[type[PrefillNode]] = PrefillNode
    DECODE: ClassVar[type[DecodeNode]] = DecodeNode

    def __init__(self, config: Config) -> None:
        """Build the ranks of the configuration, from the tables as they are now."""
        self.config = config
        prefill, decode = config.sides
        self.prefills = [self.PREFILL(config, p) for p in range(prefill.everyone)]
        self.decodes = [self.DECODE(config, d) for d in range(decode.everyone)]
        self.nodes: list[PrefillNode | DecodeNode] = [*self.prefills, *self.decodes]
        self.pairs, self.apart = config.links, config.several_groups
        #: the first decode rank's component, and how many components are ranks
        self.first_decode, self.n = prefill.everyone, len(self.nodes)
        self.link_at = {pair: self.n + i for i, pair in enumerate(self.pairs)}
        #: a link's two ends: its decode rank's component and its prefill rank's
        self.ends = [(self.first_decode + d, p) for p, d in self.pairs]
        self.last = self.n + len(self.pairs)
        self.shifts = [BITS * (self.last - at) for at in range(self.last + 1)]
        self.wires, self.messages, self.budgets = WorldPart(), WorldPart(), WorldPart()
        self.parts = [WorldPart() for _ in self.nodes] + [self.wires] * len(self.pairs) + [self.budgets]
        self.steps: list[dict[Any, Step]] = [{} for _ in self.nodes]
        self.pushes: tuple[dict[int, int], ...] = ({}, {}, {}, {})
        #: budgets of which nothing is left
        self.poor: set[int] = set()
        self.spendings: dict[tuple[int, str, int, int], int] = {}
        #: (property, what is wrong, event) of every step so far that broke one
        self.faults: list[tuple[str, str, WorldEvent]] = []
        self.swaps = list(config.exchanges)
        self.swapped: list[list[dict[int, int]]] = [[{} for _ in self.shifts] for _ in self.swaps]
        if self.wires(Wire()) != QUIET:
            raise AssertionError("the empty wire comes first")

    def part(self, state: int, at: int) -> Any:
        return self.parts[at].values[state >> self.shifts[at] & MASK]

    def index(self, at: int) -> int:
        """The rank's index on its side, of the node at this component."""
        return at if at < self.first_decode else at - self.first_decode

    def other_role(self, at: int) -> int:
        """Return the component of the other role of this rank's process: groups are P0, P1, D0, D1."""
        ranks = self.config.prefills
        return at + (3, 1, -1, -3)[at // ranks] * ranks

    def start(self) -> int:
        """The state in which every rank has just started."""
        left, hard = tuple(getattr(self.config.budget, k) for k in KINDS), bool(self.config.misfit)
        blamed = sum(1 << k for k in self.config.unfit)
        state = self.budget(BudgetState(left, hard, blamed)) << self.shifts[-1]
        for at in range(self.n, self.last):
            state |= self.wires(Wire()) << self.shifts[at]
        for at, node in enumerate(self.nodes):
            value, _ = node.initial()
            state |= self.parts[at](value) << self.shifts[at]
        for at, node in enumerate(self.nodes):
            state = self.carry(state, at, self._ops(at, node.initial()[1]))
        return state

    # ------------------------------------------------------------------------------------------ symmetry
    def canonical(self, state: int) -> int:
        """The least of the states that differ from this one by exchanging rooms."""
        best, shifts = state, self.shifts
        for swap, memos in zip(self.swaps, self.swapped, strict=True):
            first = memos[0].get(state >> shifts[0])
            if first is not None and first > best:
                continue  # the first component decides, unless the exchange leaves it as it is
            other = 0
            for at, memo in enumerate(memos):
                number = state >> shifts[at] & MASK
                new = memo.get(number)
                if new is None:
                    new = memo[number] = self.exchanged(at, number, swap) << shifts[at]
                other |= new
            best = min(best, other)
        return best

    def exchanged(self, at: int, number: int, swap: tuple[int, ...]) -> int:
        """The number of a component after an exchange of rooms."""
        part = self.parts[at]
        value = part.values[number]
        if at == self.last:
            return self.budget(value._replace(blamed=swap_blame(value.blamed, swap)))
        if at < self.n:
            if value[0] is DEAD:
                return part((*value[:2], _permuted(value[2], swap)))
            return part(swap_value(value, swap, ordered=self.config.keeps_order))
        queues = [tuple(self.messages(swap_message(self.messages.values[m], swap)) for m in queue) for queue in value]
        if self.config.net == "unordered":
            queues = [tuple(sorted(queue)) for queue in queues]
        return part(Wire(*queues[:REPORT], *(tuple(sorted(queue)) for queue in queues[REPORT:])))

    # --------------------------------------------------------------------------------------------- steps
    def step(self, at: int, number: int, what: Input) -> Step:
        memo = self.steps[at]
        found = memo.get((number, what))
        if found is None:
            found = memo[number, what] = self._step(at, number, what)
        return found

    def _step(self, at: int, number: int, what: Input) -> Step:
        value = self.parts[at].values[number]
        both = [("both roles", (*what, "too"))] if self.config.both_ways and what in TOGETHER else []
        if what[0] in ("crash", "restart"):
            return self._life(at, number, what[0], both)
        if value[0] is DEAD:
            lost = [("wrote", what[1], ("failed", what[2], what[3], what[6]))] if what[0] == "post" else []
            return Step(0, self._ops(at, lost), None)
        try:
            new, outs = self.nodes[at].step(value, what)
        except Violation as fault:
            return Step(0, (), (fault.name, fault.text))
        return Step((self.parts[at](new) - number) << self.shifts[at], self._ops(at, [*outs, *both]), None)

    def _life(self, at: int, number: int, what: str, both: list[RankOutput]) -> Step:
        """A rank dies (its writes die with it, those to it fail), or starts anew."""
        value, node = self.parts[at].values[number], self.nodes[at]
        new: Any
        outs: list[RankOutput] = []
        if what == "restart":
            new, outs = node.initial(value[1] + 1, value[2])
        else:
            new = (DEAD, value.life, node.gone(value))
            if at >= self.first_decode:  # not by its class: it may be another build's
                outs = [("wrote", w[0], ("settled" if w[-1] else "failed", w[1], w[2], w[5])) for w in value.writes]
                outs += [("forget notifications", p) for p in node.peers]
            else:
                outs = [("peer crashed", d) for d in node.peers]
        return Step((self.parts[at](new) - number) << self.shifts[at], self._ops(at, [*outs, *both]), None)

    def _ops(self, at: int, outs: list[RankOutput]) -> tuple[Op, ...]:
        """Return the outputs of a node, with messages and links by their numbers."""
        ops: list[Op] = []
        prefill = at < self.first_decode
        for out in outs:
            if out[0] in ("send", "wrote", "notified"):
                pair = (self.index(at), out[1]) if prefill else (out[1], self.index(at))
                way = {"wrote": REPORT, "notified": NOTIFICATION}.get(out[0], TO_DECODE if prefill else TO_PREFILL)
                ops.append((self.shifts[self.link_at[pair]], way, self.messages(out[2])))
            else:
                ops.append((-1, 0, out))
        return tuple(ops)

    def carry(self, state: int, at: int, ops: tuple[Op, ...]) -> int:
        """Carry out what left a node; what breaks a property is added to `faults`."""
        for shift, way, item in ops:
            if shift < 0:
                state = self._act(state, at, item)
                continue
            number = state >> shift & MASK
            new = self.pushes[way].get(number << BITS | item)
            state += ((self.pushed(way, number, item) if new is None else new) - number) << shift
        return state

    def pushed(self, way: int, wire: int, item: int) -> int:
        new = self.wires(push(self.wires.values[wire], way, item, self.config.net))
        self.pushes[way][wire << BITS | item] = new
        return new

    def deeds(self, at: int, out: RankOutput) -> tuple[tuple[int, Input], ...]:
        """Return what an output that enters no link does to components, in this order."""
        kind, other, me = out[0], out[1], self.index(at)
        if kind == "both roles":
            return ((self.other_role(at), other),)
        if kind == "failed":
            return ((self.last, ("failed", other)),)
        if kind == "post":
            return ((self.first_decode + other, ("post", me, *out[2])),)
        if kind == "forget notifications":
            return ((self.link_at[other, me], ("wipe", NOTIFICATION)),)
        if kind == "peer crashed":
            return (self.link_at[me, other], ("wipe", REPORT)), (self.first_decode + other, ("peer crashed", me))
        return (self.link_at[other, me], ("age",)), (other, ("age", me, out[2]))

    def _act(self, state: int, at: int, out: RankOutput) -> int:
        for place, what in self.deeds(at, out):
            if place < self.n:
                state = self._hand(state, place, what)
            elif place == self.last:
                self._judge_blame(state, at, what[1])
            else:
                number = state >> self.shifts[place] & MASK
                state += (self.rewired(number, what) - number) << self.shifts[place]
        return state

    def rewired(self, number: int, what: Input) -> int:
        """The wire whose recent requests are old ones now, or without the reports to a crashed rank."""
        wire = self.wires.values[number]
        if what[0] == "wipe":
            return self.wires(put_queue(wire, what[1], ()))
        return self.wires(aged(wire, self.messages, self.config.net, lambda _at: LONG_AGO))

    def _hand(self, state: int, at: int, what: Input) -> int:
        step = self.step(at, state >> self.shifts[at] & MASK, what)
        if step.fault:
            self.faults.append((*step.fault, event(at, what)))
        return self.carry(state + step.delta, at, step.ops)

    def _judge_blame(self, state: int, at: int, k: int) -> None:
        if not self.may_fail(state >> self.shifts[-1] & MASK, k):
            text = f"room {k} fails although nothing happened to it"
            self.faults.append(("S9", text, event(at, ("failed", k))))

    def may_fail(self, number: int, k: int) -> bool:
        """Whether something has happened, by the budget of this number, for which a room may fail."""
        spent: BudgetState = self.budgets.values[number]
        return (spent.hard and not self.apart) or bool(spent.blamed >> k & 1)

    # -------------------------------------------------------------------------------------------- budget
    def touched(self, at: int, peer: int) -> int:
        """Return the rooms that a fault of this rank, or between it and `peer` (not -1), may end (mask).

        There are none where no other group has to be left alone.
        """
        if not self.apart:
            return 0
        if peer < 0 and self.config.both_ways:  # both roles of the process: rooms in both directions
            return (1 << len(self.config.keys)) - 1
        node = self.nodes[at]
        first = -1 if peer < 0 or node.names.askers else peer - node.others.member(peer)
        return sum(1 << k for k in node.mine if first in (-1, node.names.first[k]))

    def spend(self, number: int, kind: str, k: int, touched: int = 0) -> int:
        """The budget after a fault of room `k`, or of all that it touches; -1: there is nothing left for it."""
        found = self.spendings.get((number, kind, k, touched))
        if found is None:
            found = self.spendings[number, kind, k, touched] = self._spend(number, kind, k, touched)
        return found

    def _spend(self, number: int, kind: str, k: int, touched: int) -> int:
        spent: BudgetState = self.budgets.values[number]
        i = KINDS.index(kind)
        if not spent.left[i]:
            return -1
        left = (*spent.left[:i], spent.left[i] - 1, *spent.left[i + 1 :])
        hard = kind in HARD or (kind == "timeout" and k < 0)
        blamed = spent.blamed | (touched if hard else 1 << k if kind in BLAMED and k >= 0 else 0)
        return self.budget(BudgetState(left, spent.hard or hard, blamed, spent.asleep))

    def budget(self, spent: BudgetState) -> int:
        number = self.budgets(spent)
        if not any(spent.left):
            self.poor.add(number)
        return number


def _permuted(items: tuple[Any, ...], swap: tuple[int, ...]) -> tuple[Any, ...]:
    new = list(items)
    for k, item in enumerate(items):
        new[swap[k]] = item
    return tuple(new)
