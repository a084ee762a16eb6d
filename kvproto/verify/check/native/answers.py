"""Answers: tells the search in C, once for each value, what a world's parts do.

The search asks by numbers, is told numbers, and keeps what it was told.  All that a number means stays here: nodes,
wires, budgets and exchanges are the world's, so what is searched in C is what `Explorer` searches.  A *deed* is
anything that changes one component: a node's input, an item that enters a link, a price.  Its number has its component
in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from kvproto.verify.check.delay_bounded import PLACE, DelayBoundedExplorer
from kvproto.verify.check.enabled_steps import LazyChoice
from kvproto.verify.check.network import NOTIFICATION, REPORT, TO_DECODE
from kvproto.verify.check.state_encoding import BITS, TIMERS, Op
from kvproto.verify.check.successors import ENDINGS, SWIFT, Explorer

NONE = (1 << 32) - 1
WORD = (1 << 32) - 1
#: components that a deed's number can name, and what may be slow that a mask can name
MOST_PARTS, MOST_SOURCES = 32, 63
#: numbers in the longest answer
ROOM = 1 << 16
FINE, BROKEN, NOTHING_LEFT = range(3)
FREE, PAID, LOST, CALL = range(4)
Ask = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_uint32] * 5)


class Rules(ctypes.Structure):
    """A configuration as C knows it."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("nodes", "links", "swaps", "early", "timeout", "forgets", "groups",
                                               "swift", "hasty", "live", "slow")),
        ("ends", ctypes.c_uint32 * 2 * MOST_PARTS),
    )  # fmt: skip


class Answers:
    """The questions of one search, about one world."""

    def __init__(self, world: Explorer) -> None:
        self.world = world
        self.hasty = world if isinstance(world, DelayBoundedExplorer) else None
        self.buffer = (ctypes.c_uint32 * ROOM)()
        #: the error that an answer raised, for the caller of C
        self.raised: BaseException | None = None
        #: nothing more is answered, so C comes back
        self.stopped = False
        self._numbers: dict[tuple[int, Any], int] = {}
        self._deeds: list[Any] = []
        self._questions: tuple[Callable[..., list[Any]], ...] = (
            self._outcome, self._menu, self._offers, self._couple, self._calls, self._budget, self._exchanged,
            self._asleep, self._settled, self._end,
        )  # fmt: skip

    def stop(self) -> None:
        """Answer nothing more: an interrupt has come."""
        self.stopped = True

    def rules(self) -> Rules:
        """Return all that the search has to know before it asks."""
        world, config = self.world, self.world.config
        ends: Any = world.ends
        return Rules(
            world.n, len(world.pairs), len(world.swaps), bool(config.budget.early), bool(config.budget.timeout),
            config.forgets, config.several_groups, config.swift, self.hasty is not None, config.live,
            self._price("slow"), (ctypes.c_uint32 * 2 * MOST_PARTS)(*ends),
        )  # fmt: skip

    def answer(self, question: int, *about: int) -> int:
        """Write the answer into the buffer; returns how many numbers it has, or -1."""
        if self.stopped:
            return -1
        try:
            found = self._questions[question](*about)
            self.buffer[: len(found)] = found
        except BaseException as error:  # noqa: BLE001  # C cannot pass it on: who called C raises it again
            self.raised = error
            return -1
        return len(found)

    # ----------------------------------------------------------------------------------------------- deeds
    def _deed(self, place: int, what: Any) -> int:
        number = self._numbers.get((place, what))
        if number is None:
            item = self.world.n <= place < self.world.last and what[0] == "push"
            timer = place < self.world.n and what[0] in TIMERS
            number = self._numbers[place, what] = len(self._deeds) << 7 | item << 6 | timer << 5 | place
            if number > WORD:
                raise MemoryError("more deeds than the search in C can number: --engine python has no such bound")
            self._deeds.append(what)
        return number

    def _price(self, cost: str, room: int = -1, touched: int = 0) -> int:
        return self._deed(self.world.last, ("spend", cost, room, touched))

    def _after(self, at: int, ops: Iterable[Op]) -> list[int]:
        found = []
        for shift, way, item in ops:
            if shift >= 0:
                found.append(self._deed(self.world.last - shift // BITS, ("push", way, item)))
            else:
                found += [self._deed(place, what) for place, what in self.world.deeds(at, item)]
        return found

    def _outcome(self, deed: int, number: int, *_: int) -> list[int]:
        world, place, what = self.world, deed & 31, self._deeds[deed >> 7]
        if place < world.n:
            step = world.step(place, number, what)
            new = number + (step.delta >> world.shifts[place])
            return [BROKEN if step.fault else FINE, new, *self._after(place, step.ops)]
        if place < world.last:
            return [FINE, world.pushed(what[1], number, what[2]) if what[0] == "push" else world.rewired(number, what)]
        if what[0] == "spend":
            left = world.spend(number, *what[1:])
            return [NOTHING_LEFT, 0] if left < 0 else [FINE, left]
        return [FINE if world.may_fail(number, what[1]) else BROKEN, number]

    # ----------------------------------------------------------------------------------------------- menus
    def _menu(self, at: int, number: int, *_: int) -> list[int]:
        menu = self.world.menu(at, number)
        plain = [choice[3].what for choice in menu.plain.all()]
        turns = [turn[:2] for turn in self.hasty.turns_of(at, number)] if self.hasty else [(0, 1)] * len(plain)
        first = next((i for i, what in enumerate(plain) if what[0] in SWIFT), NONE)
        found = [first, len(plain)]
        for what, (rank, bit) in zip(plain, turns, strict=True):
            found += self._deed(at, what), NONE, 0, 0, NONE, 0, rank, _place(bit)
        found.append(len(menu.costly))
        for later in menu.costly:
            found += self._choice(later, later.cost)
        found.append(len(menu.short))
        for links, later in menu.short:
            found += self._choice(later, "early", links)
        found.append(len(menu.beats))
        for end, link, later in menu.beats:
            found += self._beat(end, link, later)
        for section in (menu.long, menu.rare):
            found.append(len(section))
            for later in section:
                found += self._choice(later, "timeout")
        return found

    def _choice(self, later: LazyChoice, cost: str, links: int = 0, end: int = 0) -> tuple[int, ...]:
        price = self._price(cost, later.room, later.touched)
        return self._deed(later.at, later.what), price, links, end, later.room & WORD, cost in ENDINGS, 0, 0

    def _beat(self, end: int, link: int, later: LazyChoice) -> tuple[int, ...]:
        i = _place(link)
        return self._choice(later, "", i, end >> 2 * i)

    def _offers(self, link: int, wire: int, *_: int) -> list[int]:
        found: tuple[list[int], list[int]] = [], []
        reported = False
        for way, item, change, cost in self.world.deliver(wire):
            end = int(way not in (TO_DECODE, NOTIFICATION))
            report, reported = way == REPORT and not reported, reported or way == REPORT
            found[end].extend((end, *self._offer(link, end, way, item, cost, wire + change), report))
        return found[0] + found[1]

    def _offer(self, link: int, end: int, way: int, item: int | None, cost: str, left: int) -> tuple[int, ...]:
        price = self._price(cost) if cost else NONE
        if item is None:
            return LOST, left, 0, price, 0, 0
        what = self.world.heard(link, way, item, cost)
        rank = bit = 0
        if self.hasty and not cost:
            rank, bit = PLACE[what[0]], _place(self.hasty.bit(self.hasty.speaker(link, end, what)))
        if what[0] == "hello":
            return CALL, left, 0, price, rank, bit
        return PAID if cost else FREE, left, self._deed(self.world.ends[link][end], what), price, rank, bit

    def _calls(self, link: int, prefill: int, decode: int, wire: int) -> list[int]:
        world, numbers = self.world, [0] * (self.world.last + 1)
        d, p = world.ends[link]
        numbers[p], numbers[d], numbers[world.n + link] = prefill, decode, wire
        return [
            self._deed(p, world.called(numbers, link, item))
            for way, item, _, cost in world.deliver(wire)
            if item is not None and world.heard(link, way, item, cost)[0] == "hello"
        ]

    # ----------------------------------------------------------------------------------- pairs, budgets, exchanges
    def _end(self, link: int, end: int, number: int, _: int) -> list[int]:
        return [self.world.end(link, end, number)]

    def _couple(self, link: int, prefill: int, decode: int, _: int) -> list[int]:
        couple = self.world.coupled(link, prefill, decode)
        return [couple.alone >> 2 * link, couple.fault is not None, couple.untold is not None]

    def _budget(self, number: int, *_: int) -> list[int]:
        spent = self.world.budgets.values[number]
        poor = number in self.world.poor
        return [poor, spent.hard, spent.blamed, spent.asleep & WORD, spent.asleep >> 32]

    def _asleep(self, number: int, low: int, high: int, _: int) -> list[int]:
        assert self.hasty is not None
        return [self.hasty.put_to_sleep(number, low | high << 32)]

    def _exchanged(self, swap: int, at: int, number: int, _: int) -> list[int]:
        return [self.world.exchanged(at, number, self.world.swaps[swap])]

    def _settled(self, at: int, number: int, *_: int) -> list[int]:
        return [self.world.unsettled(at, number) is None]


def _place(bit: int) -> int:
    place = bit.bit_length() - 1
    if place >= MOST_SOURCES:
        raise MemoryError("more things may be slow than the search in C can name: --engine python has no such bound")
    return place
