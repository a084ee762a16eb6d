"""Ringworld: the ring alone, explored to the end, with grants, writes, frees and late watermarks.

One prefill rank writes into the ring.  It knows the ring only by the watermarks that have reached it: each that a free
has moved is *told*, and arrives late, in any order, or never; the writer keeps the highest.  So what can happen next is

* a grant of 1 .. `size` units, while the ring remembers fewer than `promises` regions and may promise it;
* the arrival of a watermark that is higher than the highest seen (`pulled`: also of the present one, asked for);
* the write into a region that the writer takes for usable; after it the free;
* with `drops` the free of a region into which nothing was written: given up, or its room has ended.

What must hold: S1, a write lands in nothing that another region holds; S7, the writer has never seen more than the
watermark; S11, a region that it takes for usable covers
nothing that an older region still holds; the ring's own list of regions that have become usable (`free`) is the true
one; the watermark never falls.  Without `drops` two more questions: is there a state in which nothing can happen
(`dead`), and is there one from which the ring can never be empty again (`lost`)?

Rounds grow for ever, so a state names them relative to the watermark, which is exact: nothing in the ring looks at a
round but by comparison with another one, except that a region of round 0 may always be written, and there is none of
those any more once the watermark has left that round.  A watermark of two rounds ago lets nothing be written and never
will; it is forgotten.

The Murphi model in spec/murphi/ring.m was written by hand from the prose.  Under the same abstraction both must have
the same number of states, of transitions, and of states of each kind (`RingSearchResult.kinds`).
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from typing import NamedTuple

import msgspec

from kvproto.protocol.ring import Mark, Ring, RingRegion, usable

PROMISED, WRITTEN, FREED = 0, 1, 2
PooledRoom = tuple[int, int, int, int]  #: (round, offset, end, use), the oldest first


class RingState(NamedTuple):
    """The ring, the highest watermark that the writer has seen, and the higher ones that are on their way."""

    round: int
    head: int
    held: tuple[PooledRoom, ...]
    seen: Mark
    told: frozenset[Mark]


class RingSearchResult(msgspec.Struct):
    """The findings of an exploration; `faults` are sentences, the first a word of what fails."""

    states: int
    transitions: int
    dead: int
    lost: int
    kinds: dict[str, int]
    faults: list[str]


class RingAfter(NamedTuple):
    """The ring after a step, rounds as the ring counts them."""

    round: int
    head: int
    held: tuple[PooledRoom, ...]
    mark: Mark


Alone = tuple[int, int, tuple[PooledRoom, ...]]  #: of a state, what is the ring's


class RingWorld:
    """A ring of `size` units that remembers at most `promises` regions."""

    def __init__(
        self, size: int, promises: int, *, kind: type[Ring] = Ring, ahead: int = 2, drops: bool = False,
        pulled: bool = False,
    ) -> None:  # fmt: skip
        """`kind`: the ring to be explored."""
        self.size, self.promises, self.kind, self.ahead = size, promises, kind, ahead
        self.drops, self.pulled = drops, pulled
        self.faults: Counter[str] = Counter()
        #: what the ring makes of a step is the same whatever the writer has seen
        self._mark = functools.cache(self.__mark)
        self._grants = functools.cache(self.__grants)
        self._free = functools.cache(self.__free)

    def ring(self, alone: Alone) -> Ring:
        """The real ring of this state; region ids are places, from 1."""
        ring = self.kind(self.size, ahead=self.ahead)
        ring.round, ring.head, ring.next_grant = alone[0], alone[1], len(alone[2]) + 1
        ring.live = {i: RingRegion(i, r, offset, end) for i, (r, offset, end, _) in enumerate(alone[2], 1)}
        ring.freed = {i for i, (*_, use) in enumerate(alone[2], 1) if use == FREED}
        ring.blocked = {i: region for i, region in ring.live.items() if not usable(region.round, region.end, ring.mark)}
        return ring

    @staticmethod
    def _after(ring: Ring, uses: dict[int, int]) -> RingAfter:
        held = tuple((r.round, r.offset, r.end, FREED if i in ring.freed else uses[i]) for i, r in ring.live.items())
        return RingAfter(ring.round, ring.head, held, ring.mark)

    def __mark(self, alone: Alone) -> Mark:
        return self.ring(alone).mark

    def __grants(self, alone: Alone) -> list[RingAfter]:
        found = []
        for size in range(1, self.size + 1):
            ring = self.ring(alone)
            region = ring.reserve(size)
            if region is None:
                self._judge("L2", bool(alone[2]), "an empty ring grants nothing")
                continue
            uses = {i: use for i, (*_, use) in enumerate(alone[2], 1)} | {region.grant: PROMISED}
            found.append(self._after(ring, uses))
        return found

    def __free(self, alone: Alone, at: int) -> RingAfter:
        ring = self.ring(alone)
        mark, blocked = ring.mark, set(ring.blocked) - ring.freed - {at + 1}
        said = ring.free(at + 1)
        now = [i for i in ring.live if i in blocked and usable(ring.live[i].round, ring.live[i].end, ring.mark)]
        self._judge("L3", said == now, f"{said} are said to have become usable, {now} have")
        self._judge("S7", ring.mark >= mark, "the watermark falls")
        return self._after(ring, {i: use for i, (*_, use) in enumerate(alone[2], 1)})

    # -------------------------------------------------------------------------------------- what comes next
    def next(self, state: RingState) -> list[RingState]:
        """The states that can come next; faults are counted in `faults`."""
        alone = state[:3]
        found = []
        if len(state.held) < self.promises:
            found += [_normal(after, state.seen, state.told) for after in self._grants(alone)]
        mark = self._mark(alone)
        here = RingAfter(*alone, mark)
        found += [_normal(here, heard, state.told) for heard in state.told]
        if self.pulled and mark > state.seen:
            found.append(_normal(here, mark, state.told))
        for at, (round_, _, end, use) in enumerate(state.held):
            if use == PROMISED and usable(round_, end, state.seen):
                found.append(self._write(state, at))
            if use == WRITTEN or (use == PROMISED and self.drops):
                after = self._free(alone, at)
                told = state.told | {after.mark} if after.mark != mark else state.told
                found.append(_normal(after, state.seen, told))
        return found

    def _write(self, state: RingState, at: int) -> RingState:
        round_, offset, end, _ = state.held[at]
        for _, from_, upto, use in state.held[:at]:
            clear = use == FREED or upto <= offset or end <= from_
            self._judge("S1", clear, "a write lands in what another region holds")
        return state._replace(held=(*state.held[:at], (round_, offset, end, WRITTEN), *state.held[at + 1 :]))

    def judge(self, state: RingState) -> None:
        """Judge the properties that must hold in a state."""
        self._judge("S7", state.seen <= self._mark(state[:3]), "the writer has seen more than the watermark")
        for at, (round_, offset, end, use) in enumerate(state.held):
            if use != FREED and usable(round_, end, state.seen):
                clear = all(old == FREED or upto <= offset or end <= from_ for _, from_, upto, old in state.held[:at])
                self._judge("S11", clear, "a region that may be written covers one that is held")

    def _judge(self, name: str, holds: bool, text: str) -> None:
        if not holds:
            self.faults[f"{name}: {text}"] += 1

    def kinds(self, state: RingState) -> list[str]:
        """Names of what the state is; the model in spec/murphi counts the same."""
        mark = self._mark(state[:3])
        waits = any(use == PROMISED and not usable(r, end, state.seen) for r, _, end, use in state.held)
        is_ = {
            "the ring is empty": not state.held,
            "full of promises": len(state.held) == self.promises,
            "some region waits": waits,
            "a region ahead by two rounds": any(r > mark[0] + 1 for r, *_ in state.held),
            "freed behind an older one": any(use == FREED for *_, use in state.held),
            "the writer lags": mark > state.seen,
        }
        return [name for name, holds in is_.items() if holds]


def _normal(after: RingAfter, seen: Mark, told: frozenset[Mark]) -> RingState:
    """The state, with rounds counted from the watermark's."""
    by = max(after.mark[0] - 1, 0)
    if seen[0] < by:
        seen = by, 0
    marks = frozenset((r - by, tail) for r, tail in told if (r, tail) > seen)
    held = tuple((r - by, offset, end, use) for r, offset, end, use in after.held) if by else after.held
    return RingState(after.round - by, after.head, held, (seen[0] - by, seen[1]), marks)


def explore(world: RingWorld) -> RingSearchResult:
    first = RingState(0, 0, (), (0, 0), frozenset())
    before: dict[RingState, list[RingState]] = {first: []}
    queue, found, kinds = deque([first]), RingSearchResult(0, 0, 0, 0, {}, []), Counter[str]()
    while queue:
        state = queue.popleft()
        world.judge(state)
        kinds.update(world.kinds(state))
        following = world.next(state)
        found.transitions += len(following)
        found.dead += not following
        for new in following:
            if new not in before:
                before[new] = []
                queue.append(new)
            before[new].append(state)
    found.states, found.kinds, found.faults = len(before), dict(kinds), sorted(world.faults)
    found.lost = len(before) - _reaching([state for state in before if not state.held], before)
    return found


def _reaching(goals: list[RingState], before: dict[RingState, list[RingState]]) -> int:
    """How many states can come to one of the goals."""
    reached, todo = set(goals), list(goals)
    while todo:
        for state in before[todo.pop()]:
            if state not in reached:
                reached.add(state)
                todo.append(state)
    return len(reached)
