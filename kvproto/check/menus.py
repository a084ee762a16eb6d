"""Menus: what each node, each link and each pair of nodes could do next, worked out once for each of their values."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvproto.check.config import KINDS, Config
from kvproto.check.network import deliveries
from kvproto.check.node import Move, Unrest
from kvproto.check.pairs import disagree, judge_pair
from kvproto.check.world import BITS, DEAD, MASK, Event, Op, World
from kvproto.messages import PagesRsp, StagingRsp

Choice = tuple[int, tuple[Op, ...], tuple[str, str] | None, Event]
Option = tuple[int, int | None, int, str]  #: way, message, difference to the wire's number, cost


class Later:
    """A choice that is worked out when it is first taken, so that nothing counts as seen that did not happen."""

    __slots__ = ("at", "cost", "done", "number", "room", "what", "world")

    def __init__(self, world: Menus, at: int, number: int, what: Any, cost: str, room: int) -> None:
        self.world, self.at, self.number, self.what, self.cost, self.room = world, at, number, what, cost, room
        self.done: Choice | None = None

    def __call__(self) -> Choice:
        """The choice."""
        if self.done is None:
            self.done = self.world.choice(self.at, self.number, self.what, self.cost)
        return self.done


class Menu(NamedTuple):
    """A node's moves, by what they need: nothing, a fault, quiet links, ends that disagree, patience, a timeout."""

    plain: list[Choice]
    costly: list[Later]
    short: list[tuple[tuple[int, ...], Later]]
    beats: list[tuple[int, Later]]
    long: list[Later]
    rare: list[Later]


class Couple(NamedTuple):
    """What two nodes of a link are to each other."""

    alone: int
    fault: tuple[str, str] | None


class Menus(World):
    """A world that remembers what could come next."""

    def __init__(self, config: Config) -> None:
        """As for `World`."""
        super().__init__(config)
        self.sights: set[str] = set()
        self.menus: list[dict[int, Menu]] = [{} for _ in self.nodes]
        self.options: dict[int, list[Option]] = {}
        self.quiets: dict[int, bool] = {}
        self.heard: list[tuple[dict[int, Choice], ...]] = [({}, {}, {}) for _ in self.pairs]
        self.couples: list[dict[int, Couple]] = [{} for _ in self.pairs]
        self.rests: list[dict[int, Unrest]] = [{} for _ in self.nodes]

    def menu(self, at: int, number: int) -> Menu:
        """The moves of a node."""
        menu = self.menus[at].get(number)
        if menu is None:
            menu = self.menus[at][number] = self._menu(at, number)
        return menu

    def _menu(self, at: int, number: int) -> Menu:
        value, node = self.parts[at].values[number], self.nodes[at]
        menu = Menu([], [], [], [], [], [])
        if value[0] is DEAD:
            if self.config.restart:
                menu.plain.append(self.choice(at, number, ("restart",), ""))
            return menu
        self.sights |= node.sights(value)
        if self.config.budget.crash:
            menu.costly.append(Later(self, at, number, ("crash",), "crash", -1))
        for move in node.moves(value):
            self._enter(menu, at, number, move)
        return menu

    def _enter(self, menu: Menu, at: int, number: int, move: Move) -> None:
        node = self.nodes[at]
        later = Later(self, at, number, move.input, move.cost if move.kind == "plain" else "", move.room)
        links = tuple(self._link(at, peer) for peer in (node.peers if move.peer < 0 else (move.peer,)))
        if move.kind == "short":
            menu.short.append((links, later))
        elif move.kind == "beat":
            menu.beats.append((links[0], later))
        elif move.kind == "long":
            menu.long.append(later)
        elif move.kind == "rare":
            menu.rare.append(later)
        elif not move.cost:
            menu.plain.append(later())
        elif getattr(self.config.budget, move.cost):
            menu.costly.append(later)

    def choice(self, at: int, number: int, what: Any, cost: str) -> Choice:
        """What comes of an input."""
        step = self.step(at, number, what)
        return step.delta, step.ops, step.fault, Event(at, what, cost)

    def _link(self, at: int, peer: int) -> int:
        me = self.index(at)
        return self.link_at[(me, peer) if at < self.config.prefills else (peer, me)]

    def deliver(self, number: int) -> list[Option]:
        """What the network can do with a wire."""
        found = self.options.get(number)
        if found is None:
            wire = self.wires.values[number]
            cheap = {"", *(k for k in KINDS if getattr(self.config.budget, k))}
            found = [
                (d.way, d.item, self.wires(d.left) - number, d.cost)
                for d in deliveries(wire, self.config.net)
                if d.cost in cheap and (d.cost != "late" or self._leases(d.item))
            ]
            self.options[number] = found
            self.quiets[number] = wire.quiet
        return found

    def _leases(self, item: int | None) -> bool:
        """The message gives something for the time of a lease."""
        return item is not None and isinstance(self.messages.values[item][2], PagesRsp | StagingRsp)

    def couple(self, i: int, p: int, d: int) -> Couple:
        """What the two ends of link `i` are to each other."""
        found = self.couples[i].get(p << BITS | d)
        if found is None:
            at_p, at_d = self.pairs[i]
            ours, theirs = self.parts[at_p].values[p], self.parts[self.config.prefills + at_d].values[d]
            alone = disagree(ours, theirs, at_p, at_d)
            found = Couple(alone, judge_pair(ours, theirs, at_p, at_d, self.decodes[at_d]))
            self.couples[i][p << BITS | d] = found
        return found

    def unrest(self, state: int) -> Unrest:
        """Why the world is not at rest; None if it is."""
        for at in range(self.n):
            number = state >> self.shifts[at] & MASK
            if number not in self.rests[at]:
                value = self.parts[at].values[number]
                self.rests[at][number] = None if value[0] is DEAD else self.nodes[at].settled(value)
            found = self.rests[at][number]
            if found:
                return found
        links = range(self.n, self.last)
        return None if all(self.part(state, at).quiet for at in links) else ("L4", "messages are always under way")
