"""Enabled steps: the next moves of each node, link and pair of nodes, computed once for each value.

Most choices do nothing but add a number to the state.  These are kept apart, as plain lists of numbers, because a
search spends its time on them.  What a link hands to a node is worked out for the two together, with the answers that
go back through the same link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproto.protocol.messages import Hello, PagesRsp, StagingRsp
from kvproto.verify.check.config import KINDS, MANY, Config
from kvproto.verify.check.link_invariants import agree, decode_end, disagree, judge_pair, prefill_end, unanswered
from kvproto.verify.check.network import NOTIFICATION, REPORT, TO_DECODE, deliveries
from kvproto.verify.check.node import Move, Unrest
from kvproto.verify.check.state_encoding import BITS, DEAD, MASK, Op, WorldEvent, WorldPart, event
from kvproto.verify.check.world import CheckedWorld

Choice = tuple[int, tuple[Op, ...], tuple[str, str] | None, WorldEvent]
Option = tuple[int, int | None, int, str]  #: way, message, difference to the wire's number, cost
Call = tuple[int, int, str]  #: message, difference to the state, cost


class LazyChoice:
    """A choice that is computed when it is first taken, so nothing counts as seen that did not happen."""

    __slots__ = ("at", "cost", "done", "number", "room", "touched", "what", "world")

    def __init__(self, world: Menus, at: int, number: int, what: Any, cost: str, room: int, touched: int = 0) -> None:
        """`room`: whose it is, or -1; then `touched` says which it may end, if it is a fault."""
        self.world, self.at, self.number, self.what, self.cost, self.room = world, at, number, what, cost, room
        self.touched = touched
        self.done: Choice | None = None

    def __call__(self) -> Choice:
        if self.done is None:
            self.done = self.world.choice(self.at, self.number, self.what, self.cost)
        return self.done


#: the price, the difference to the state that the link makes, and what comes of it (None: it is lost)
Trouble = tuple[str, int, LazyChoice | None, WorldEvent]


class Free(NamedTuple):
    """Choices that need nothing: those that only add to the state, with their events, and the others."""

    deltas: list[int]
    events: list[WorldEvent]
    rest: list[Choice]

    def all(self) -> Iterator[Choice]:
        yield from ((delta, (), None, why) for delta, why in zip(self.deltas, self.events, strict=True))
        yield from self.rest

    def add(self, choice: Choice) -> None:
        delta, ops, fault, why = choice
        if ops or fault:
            self.rest.append(choice)
        else:
            self.deltas.append(delta)
            self.events.append(why)


class Menu(NamedTuple):
    """A node's moves by condition: none, a fault, quiet links, disagreeing ends, patience, a timeout.

    Links are named by masks: `short` needs those of its mask quiet; `beats` a bit of `LinkCouple.alone`, and
    a quiet link.
    """

    plain: Free
    costly: list[LazyChoice]
    short: list[tuple[int, LazyChoice]]
    beats: list[tuple[int, int, LazyChoice]]
    long: list[LazyChoice]
    rare: list[LazyChoice]


class Hearing(NamedTuple):
    """The outcomes of a link's content at one end: free, for a budget, and calls that get an epoch."""

    free: Free
    costly: list[Trouble]
    calls: list[Call]


class LinkCouple(NamedTuple):
    """The relation of a link's two nodes.

    It says which is alone (two bits a link), what cannot be, whether both have the link up as one, and what cannot be
    while nothing is under way on it and nothing was lost.
    """

    alone: int
    fault: tuple[str, str] | None
    agreed: bool
    untold: Unrest


class Menus(CheckedWorld):
    """A world that remembers what could come next."""

    def __init__(self, config: Config) -> None:
        """As for `CheckedWorld`."""
        super().__init__(config)
        self.sights: set[str] = set()
        #: the faults of which this world has any
        self.possible = frozenset(kind for kind in KINDS if getattr(config.budget, kind))
        #: what was said may not come
        self.lossy = "drop" in self.possible
        self.menus: list[dict[int, Menu]] = [{} for _ in self.nodes]
        self.options: dict[int, list[Option]] = {}
        #: a link: what its decode end can hear, and what its prefill end can
        self.hearings: list[tuple[dict[int, Hearing], dict[int, Hearing]]] = [({}, {}) for _ in self.pairs]
        self.couples: list[dict[int, LinkCouple]] = [{} for _ in self.pairs]
        #: what one end of a link may know of the other, by the node's number; and each two of these, judged
        self.link_ends = WorldPart(), WorldPart()  # decode ends, prefill ends
        self.ends_of: list[tuple[dict[int, int], dict[int, int]]] = [({}, {}) for _ in self.pairs]
        self.relations: list[dict[tuple[int, int], LinkCouple]] = [{} for _ in self.pairs]
        self.rests: list[dict[int, Unrest]] = [{} for _ in self.nodes]

    def seen(self) -> set[str]:
        return self.sights.union(*(node.seen for node in self.nodes))

    # ------------------------------------------------------------------------------------------ a node's
    def menu(self, at: int, number: int) -> Menu:
        menu = self.menus[at].get(number)
        if menu is None:
            menu = self.menus[at][number] = self._menu(at, number)
        return menu

    def _menu(self, at: int, number: int) -> Menu:
        value, node = self.parts[at].values[number], self.nodes[at]
        menu = Menu(Free([], [], []), [], [], [], [], [])
        if value[0] is DEAD:
            if self.config.restart:
                menu.plain.add(self.choice(at, number, ("restart",), ""))
            return menu
        self.sights |= node.sights(value)
        if self.config.budget.crash:
            menu.costly.append(LazyChoice(self, at, number, ("crash",), "crash", -1, self.touched(at, -1)))
        if self.config.budget.close:
            menu.costly.append(LazyChoice(self, at, number, ("close",), "close", -1, self.touched(at, -1)))
        for move in node.moves(value):
            self._enter(menu, at, number, move)
        return menu

    def _enter(self, menu: Menu, at: int, number: int, move: Move) -> None:
        kind, cost = move.kind, move.cost
        if kind == "plain" and not cost:
            menu.plain.add(self.choice(at, number, move.input, ""))
            return
        if kind == "plain" and cost not in self.possible:
            return  # most moves are faults of which this world has none
        touched = self.touched(at, move.peer)
        later = LazyChoice(self, at, number, move.input, cost if kind == "plain" else "", move.room, touched)
        if kind == "short":
            peers = self.nodes[at].peers if move.peer < 0 else (move.peer,)
            menu.short.append((sum(1 << self._link(at, peer) for peer in peers), later))
        elif kind == "beat":
            link = self._link(at, move.peer)
            menu.beats.append(((1 if at < self.first_decode else 2) << 2 * link, 1 << link, later))
        else:
            {"plain": menu.costly, "long": menu.long, "rare": menu.rare}[kind].append(later)

    def choice(self, at: int, number: int, what: Any, cost: str) -> Choice:
        step = self.step(at, number, what)
        return step.delta, step.ops, step.fault, event(at, what, cost)

    def _link(self, at: int, peer: int) -> int:
        me = self.index(at)
        return self.link_at[(me, peer) if at < self.first_decode else (peer, me)] - self.n

    # ------------------------------------------------------------------------------------------ a link's
    def hear(self, i: int, end: int, number: int, wire: int) -> Hearing:
        """Return the moves of link `i` at its decode end (0) or prefill end (1), whose value is `number`."""
        memo = self.hearings[i][end]
        found = memo.get(number << BITS | wire)
        if found is None:
            found = memo[number << BITS | wire] = self._hear(i, end, number, wire)
        return found

    def _hear(self, i: int, end: int, number: int, wire: int) -> Hearing:
        link, at = self.n + i, self.ends[i][end]
        found = Hearing(Free([], [], []), [], [])
        for way, item, change, cost in self.deliver(wire):
            delta = change << self.shifts[link]
            if (way in (TO_DECODE, NOTIFICATION)) == bool(end):
                continue
            if item is None:
                found.costly.append((cost, delta, None, event(link, ("lost", way), cost)))
                continue
            what = self.heard(i, way, item, cost)
            if what[0] == "hello":
                found.calls.append((item, delta, cost))
            elif cost:
                found.costly.append((cost, delta, LazyChoice(self, at, number, what, cost, -1), event(at, what, cost)))
            else:
                found.free.add(self._with_answers(link, wire + change, delta, self.choice(at, number, what, "")))
        return found

    def heard(self, i: int, way: int, item: int | None, cost: str) -> tuple[Any, ...]:
        """Return a message or report as the node's input; a call needs an epoch, too."""
        p, d = self.pairs[i]
        assert item is not None  # what is lost is heard by nobody
        message = self.messages.values[item]
        if way == REPORT:
            return "wrote late" if cost == "late" else "wrote", *message, d
        if isinstance(message[2], Hello):
            return "hello", d, message
        if way == NOTIFICATION:
            return "notified", p, message
        return "message late" if cost == "late" else "message", p if way == TO_DECODE else d, message

    def _with_answers(self, link: int, wire: int, delta: int, choice: Choice) -> Choice:
        """Return the choice with its effect on the link: the message leaves, and answers enter."""
        change, ops, fault, why = choice
        shift = self.shifts[link]
        if all(op[0] >= 0 for op in ops):
            for _, way, item in (op for op in ops if op[0] == shift):
                answered = self.pushed(way, wire, item)
                delta, wire = delta + ((answered - wire) << shift), answered
            ops = tuple(op for op in ops if op[0] != shift)
        return change + delta, ops, fault, why

    def deliver(self, number: int) -> list[Option]:
        """Return the network's moves with a wire."""
        found = self.options.get(number)
        if found is None:
            wire = self.wires.values[number]
            cheap = {"", *self.possible}
            found = self.options[number] = [
                (d.way, d.item, self.wires(d.left) - number, d.cost)
                for d in deliveries(wire, self.config.net)
                if d.cost in cheap and (d.cost != "late" or self._lasts(d.way, d.item))
            ]
        return found

    def _lasts(self, way: int, item: int | None) -> bool:
        """Tell whether the message grants something for a lease, or a write ends that a lease waits for."""
        if way == REPORT:
            return self.config.page_writes < MANY
        return item is not None and isinstance(self.messages.values[item][2], PagesRsp | StagingRsp)

    # ------------------------------------------------------------------------------------------ what is judged
    def couple(self, i: int, p: int, d: int) -> LinkCouple:
        """Return the relation of the two ends of link `i`, by the numbers of its nodes."""
        found = self.couples[i].get(p << BITS | d)
        if found is None:
            found = self.couples[i][p << BITS | d] = self.coupled(i, self.end(i, 1, p), self.end(i, 0, d))
        return found

    def end(self, i: int, end: int, number: int) -> int:
        """Number what a node has to do with link `i`, at its decode end (0) or its prefill end (1)."""
        found = self.ends_of[i][end].get(number)
        if found is None:
            at_p, at_d = self.pairs[i]
            value, node = self.judged(self.parts[self.ends[i][end]].values[number]), self.decodes[at_d]
            seen = prefill_end(value, at_d, node) if end else decode_end(value, at_p, node)
            found = self.ends_of[i][end][number] = self.link_ends[end](seen)
        return found

    def coupled(self, i: int, p: int, d: int) -> LinkCouple:
        """Return the relation of these two ends of link `i`."""
        found = self.relations[i].get((p, d))
        if found is None:
            ours, theirs, pair = self.link_ends[1].values[p], self.link_ends[0].values[d], self.pairs[i]
            untold = None if self.lossy else unanswered(ours, theirs, *pair)
            found = self.relations[i][p, d] = LinkCouple(
                disagree(ours, theirs) << 2 * i, judge_pair(ours, theirs, *pair), agree(ours, theirs), untold
            )
        return found

    def judged(self, value: Any) -> Any:
        """Return a node's value in the form in which the two ends of a link are judged."""
        return value

    def unrest(self, state: int) -> Unrest:
        """Why the world is not at rest; None if it is."""
        for at in range(self.n):
            if found := self.unsettled(at, state >> self.shifts[at] & MASK):
                return found
        links = range(self.n, self.last)
        return None if all(self.part(state, at).quiet for at in links) else ("L4", "messages are always under way")

    def unsettled(self, at: int, number: int) -> Unrest:
        """Why a node is not at rest; None if it is."""
        if number not in self.rests[at]:
            value = self.parts[at].values[number]
            self.rests[at][number] = None if value[0] is DEAD else self.nodes[at].settled(value)
        return self.rests[at][number]
