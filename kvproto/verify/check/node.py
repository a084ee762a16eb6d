"""A node: a rank with what surrounds it alone, as one value.

A node's *moves* are what can happen at it without a message: engine calls, ends of kernels and timers. `step` takes a
node's value and an input to the next value and to what leaves the node. Both are pure, so the world remembers them. The
interpreter carries out the rank's effects, as in every simulated world; while a step goes on, `current` is the value so
far, and `outs` what has left. What can be judged at a node is judged in the step (a `Violation` names the property);
the rest is in `link_invariants`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from kvproto.fsm.driver import steps
from kvproto.fsm.table import Row
from kvproto.fsm.vocabulary import Effect, Report
from kvproto.layout.cut import Cut, cut_at
from kvproto.protocol.events import LinkCameUp, LinkWentDown, PeerQuiet
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank
from kvproto.verify.check.config import CHUNK_TOKENS, Config
from kvproto.verify.check.moments import in_words
from kvproto.verify.check.snapshot import Names
from kvproto.verify.sim.interpreter import Interpreter, Surroundings

Input = tuple[Any, ...]
RankOutput = tuple[Any, ...]
Unrest = tuple[str, str] | None  #: the property that a node breaks if it stays as it is, and how

#: when a step happens: with every lease holding, or with every lease over
NOW, LATE = 0.0, 50.0
#: `TimerFired.tries` that leave tries, or none; or none, and what was waited is as dear as any other route
MORE, LAST, LONG = 1 << 30, -1, -2
#: places in a script: the engine of a rank that crashed knows the room no more
GONE = -1
#: what an engine has heard of a room: nothing, success, failure
SILENT, SUCCESS, FAILURE = 0, 1, 2


class Violation(Exception):  # noqa: N818
    """A property does not hold."""

    def __init__(self, name: str, text: str) -> None:
        """`name` of the property."""
        super().__init__(name, text)
        self.name, self.text = name, text


class Move(NamedTuple):
    """Something that can happen at a node.

    `kind`: plain; short (a timer that needs a quiet link); beat (a timer that needs two ends that disagree); long (a
    timer that needs a fault before it and a world in which nothing else moves); rare (a timer that is a fault).
    `cost`: what it spends from the budget (short and long ones: if they end all the same).
    """

    kind: str
    cost: str
    #: the other end's index; -1: any
    peer: int
    #: the room that the fault may be blamed for; -1: none, or all
    room: int
    input: Input


#: what a rank tells all rooms of a link, in the order in which it met them
OF_A_LINK = frozenset({LinkCameUp, LinkWentDown, PeerQuiet})


def judge(name: str, holds: bool, text: str) -> None:  # noqa: FBT001
    if not holds:
        raise Violation(name, text)


class Watched(Interpreter):
    """An interpreter that notes which rows fire, and takes what the rank raises for a fault of the rank's."""

    def __init__(self, rank: Rank, around: Node) -> None:
        super().__init__(rank, around)
        #: the rows that have fired, by identity
        self.rows: dict[int, Row] = around.rows
        #: rooms are exchanged, and no value says in which order they were met
        self.unordered = around.config.exchanges_rooms and not around.config.keeps_order

    def ask(self, what: Callable[..., list[Effect]], *about: Any) -> list[Effect]:
        """Let the rank do something; whatever it raises would have stopped the loop."""
        try:
            effects = what(*about)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise Violation("S10", f"the rank stopped: {type(error).__name__}: {error}") from error
        told = 0
        for _, row, event, *_ in steps(self.rank.trace):
            if row is not None:
                self.rows[id(row)] = row
            told += type(event) in OF_A_LINK
        if told > 1 and self.unordered:
            raise RuntimeError("several rooms are told of a link's end in an order that this world forgets")
        return effects


class Node(Surroundings):
    """Base of both kinds."""

    #: which of a world's two sides it is on, 0: prefill
    SIDE: ClassVar[int]

    def __init__(self, config: Config, index: int) -> None:
        """`index`: the rank's own on its side."""
        self.config, self.index, self.plan = config, index, config.plan
        self.own, self.others = config.sides[self.SIDE], config.sides[1 - self.SIDE]
        #: which of its group's ranks it is
        self.member = self.own.member(index)
        group, parties = index // self.own.ranks, config.parties
        #: the rooms that its group has a part in
        meant = range(len(parties)) if config.misfit != "claim" or self.SIDE else (0,)
        anyone = config.misfit == "anyone"
        self.mine = tuple(k for k in meant if anyone or parties[k][self.SIDE] == group)
        first = tuple(of[1 - self.SIDE] * self.others.ranks for of in parties)
        askers = self.others if anyone and not self.SIDE else None
        self.names = Names(config.keys, first, self.mine, ordered=config.keeps_order, askers=askers)
        #: the rows that have fired, by identity
        self.rows: dict[int, Row] = {}
        #: what was worth having seen in steps (see `sights` for values)
        self.seen: set[str] = set()
        self._cuts: dict[int, Cut] = {}
        #: while a step goes on: the value as it is so far, and what has left
        self.current: Any = None
        self.interpreter: Watched
        self.outs: list[RankOutput] = []

    # ------------------------------------------------------------------------------ what both kinds share
    def stands(self, link: int) -> bool:
        """Whether the connection to a link's other end stands."""
        return self.config.stands

    def may_begin(self, k: int, script: tuple[int, ...], outcome: tuple[int, ...]) -> bool:
        """An id may be used again once this engine has heard how its former room ended."""
        former = k - self.config.rooms
        return former < 0 or script[former] == GONE or outcome[former] != SILENT

    @staticmethod
    def gone(value: Any) -> tuple[int, ...]:
        """Return the knowledge of the next life's engine: rooms that were open are unknown to it."""
        return tuple(GONE if at else 0 for at in value.script)

    def script(self) -> tuple[int, ...]:
        """Return an engine's beginning: it has opened nothing, and never opens rooms of other groups."""
        return tuple(0 if k in self.mine else GONE for k in range(len(self.names.keys)))

    def unfit(self, k: int) -> bool:
        """Whether the two sides of this room must not come to an agreement."""
        return self.config.misfit in ("length", "secret") or (self.config.misfit == "claim" and k > 0)

    def take_leave(self) -> None:
        it = self.interpreter
        it.carry_out(it.ask(it.rank.take_leave, NOW), NOW)

    def place(self, peer: int) -> bytes:
        return f"{'DP'[self.SIDE]}{peer}".encode()

    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        """A message leaves; a room is named by its place, and when something was asked in this world's words."""
        message = (epoch, self.names.place[room] if room else -1, self.dated(body))
        self.outs.append(("send", int(place[1:]), message))

    def dated(self, body: Message) -> Message:
        return in_words(body)

    def cut_at(self, chunk: int) -> Cut:
        cut = self._cuts.get(chunk)
        if cut is None:
            cfg, plan = self.config, self.plan
            groups = cfg.layer_groups, plan.state_groups, plan.joint_tokens
            cut = self._cuts[chunk] = cut_at(chunk, cfg.tokens, cfg.prefix, CHUNK_TOKENS, *groups)
        return cut

    def judge_cut(self, k: int, chunk: int, cut: Cut) -> None:
        """Require that an effect's chunk is the chunk that both engines mean."""
        if cut == self.cut_at(chunk):
            return
        what = f"the state after {cut.first} tokens" if cut.state else f"{cut.tokens} tokens from {cut.first} on"
        taken = f"{what}, layer group {cut.group} of {cut.groups}"
        judge("S12", holds=False, text=f"chunk {chunk} of room {k} is taken for {taken}")

    def hear_report(self, report: Report) -> None:
        """Between ranks that keep to the protocol nothing is refused."""
        judge("S10", holds=False, text=f"{report.what}: {report.why}")

    @staticmethod
    def judge_ends(rank: Rank) -> None:
        """Require that exactly the rooms that an engine gave up are aborted."""
        for value in rank.tombs.values():
            name = value.state._name_
            aborted = value.work is not None and value.work.cause.aborted
            judge("S6", name == "DONE" or aborted == (name == "ABORTED"), f"a room ends as {name} for another cause")

    def note_outcome(self, k: int, cause: Cause) -> None:
        outcome = self.current.outcome
        judge("S6", outcome[k] == SILENT, f"a second outcome, {cause.name}, for room {k}")
        told = SUCCESS if cause is Cause.NONE else FAILURE
        fits = told == FAILURE or not self.unfit(k)
        judge("S12", fits, f"room {k} succeeds, and its two sides name two {self.config.misfit}s")
        self.current = self.current._replace(outcome=put(outcome, k, told))
        if told == FAILURE and (self.config.misfit != "anyone" or cause is not Cause.NOT_ENTITLED):
            self.outs.append(("failed", k))
        elif any(end == FAILURE and self.names.first[j] != self.names.first[k] for j, end in enumerate(outcome)):
            self.seen.add("success after another group's failure")


def page_ids(first: int) -> bytes:
    """The pages of the chunk whose first token this is, by their places in the prompt."""
    return bytes([first // CHUNK_TOKENS])


def put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def add(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    return tuple(sorted((*items, item)))


def remove(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]
