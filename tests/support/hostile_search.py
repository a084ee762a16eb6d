"""Hostile search: for what somebody who breaks the contract can bring about (see `hostile`).

States come from the checker's worlds, in which everybody keeps to the protocol.  Everything is tried in each, and what
comes of it is gone on from, as long as two machines are together as no two have been before: a state of each, with what
guards ask of it.  So the search ends, and it finds nearly all that a full one would.  A state in which one machine by
itself is as never before does not wait behind all pairs: it comes every other time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations
from random import Random
from typing import Any, NamedTuple

import msgspec

from kvproto.fsm.vocabulary import Effect
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import Terms
from kvproto.protocol.states import Cause
from kvproto.settings import DECODE_GROUP
from kvproto.verify.check.config import CHUNK_TOKENS
from kvproto.verify.check.native.library import missing
from kvproto.verify.check.node import LAST, MORE, NOW
from kvproto.verify.check.search import NativeRankSearch, RankSearch
from kvproto.verify.check.snapshot import Frozen, plain
from kvproto.verify.check.state_encoding import DEAD
from kvproto.verify.sim.world import Side, SimulatedWorld
from support.hostile import THEIR_LINK, Suspect, SuspectPrefill, Thing
from support.stories import QUICK, chances

#: what no guard asks of a machine by itself: it is compared with what an event says
COMPARED = {"due", "session", "epoch", "place", "address", "why", "asked", "pages", "mark_round", "mark_tail", "slot"}
GIVEN_UP = (Cause.STALLED, Cause.PREFILL_ABORTED)
Act = Callable[[], list[Effect]]


class Found(NamedTuple):
    """Counts of a search: values with all inputs tried, inputs tried, and values without any."""

    values: int
    things: int
    left: int


def checked_values(suspect: Suspect) -> list[Frozen]:
    """Every value that the suspect's rank has in the checker's world of its configuration."""
    config = suspect.config
    at = suspect.node.index + (0 if isinstance(suspect, SuspectPrefill) else config.prefills)
    # The search in C meets the same values in the same order (tests/test_native_search.py), thirty times as fast.
    searched = RankSearch if missing() else NativeRankSearch
    search = searched("honest", msgspec.structs.replace(config, live=False))
    result = search.run()
    assert result.ended == "exhausted", result.ended
    values = (value.rank for value in search.world.parts[at].values if value[0] is not DEAD)
    return [suspect.padded(value) for value in dict.fromkeys(values)]


def simulated_values(suspect: Suspect, seeds: Iterable[int]) -> list[Frozen]:
    """Values that the suspect's rank has in simulated worlds: a seed, a story with every kind of trouble."""
    config = suspect.config
    found: dict[Frozen, None] = {}
    name: tuple[Side, int] = "P" if isinstance(suspect, SuspectPrefill) else "D", suspect.node.index
    settings = msgspec.structs.replace(config.settings, timing=QUICK)
    for seed in seeds:
        random = Random(seed)
        world = SimulatedWorld(
            seed, config.prefill_layout, config.decode_layout, chunk_tokens=CHUNK_TOKENS, settings=settings,
            native_notify=config.native_notify,
            chances=chances(random),
        )  # fmt: skip

        def live(world: SimulatedWorld = world, random: Random = random) -> None:
            for _ in range(random.randint(0, 40)):
                world.step()
                rank = world.nodes[name].rank
                if all(peer.rank == link - 1 for link, peer in rank.peers.items()):
                    found[suspect.freeze(rank)] = None

        for room in config.keys:
            live()
            world.open_all(room, config.tokens, config.prefix)
            live()
            world.produce_all(room, random.choice((config.prefix, config.prefix + CHUNK_TOKENS, config.tokens)))
            live()
            if random.random() < 0.5:
                world.raise_event(*name, ev.EngineAborted(room, random.choice(GIVEN_UP)))
        live()
    return list(found)


def idle_value(suspect: Suspect) -> list[Frozen]:
    """The value in which every peer of the checker's world has called, and no room was opened."""
    found = [value for value in checked_values(suspect) if not value[0] and not value[1] and _all_up(value[2])]
    return found[-1:]


def _all_up(links: Iterable[Any]) -> bool:
    return all(link is None or link.state.name == "UP" for link in links)


def used_again(suspect: Suspect) -> list[Frozen]:
    """Make a prefill rank whose first room is open again while the old sends still wait.

    The engine opens room A, gives it up before its watermark is reached, opens B and gives it up, so that the one
    tombstone that is kept is B's, and opens A again.  Then its sends go on, over staging or over pages, as far as one
    slot and one permit let them.
    """
    config, rank = suspect.config, suspect.rank
    first, second = config.keys
    suspect.thaw(suspect.start)
    call = msg.Hello(
        msg.VERSION, tables_digest(), 3, DECODE_GROUP, 0, config.decode_layout, CHUNK_TOKENS, rank.lease, b""
    )
    rank.next_link = 1
    rank.hello(call, NOW, b"here1")
    rank.handle(ev.WiredUp(1, 3, "here1"), NOW)

    def say(body: msg.RoomBody) -> None:
        rank.receive(1, rank.links[1].epoch, first, body, NOW)

    def open_first() -> None:
        rank.handle(ev.EngineOpened(first, config.tokens), NOW)
        say(msg.Open(config.tokens, config.prefix))
        rank.handle(ev.TokensProduced(first, config.tokens), NOW)

    open_first()
    for chunk in range(config.chunks):
        say(msg.StagingRsp(chunk, chunk + 1, 0, 1, 256, 0, 0))
    rank.handle(ev.EngineAborted(first, Cause.PREFILL_ABORTED), NOW)
    say(msg.Noted())
    rank.handle(ev.EngineOpened(second, CHUNK_TOKENS), NOW)
    rank.handle(ev.EngineAborted(second, Cause.PREFILL_ABORTED), NOW)
    open_first()
    assert rank.watch[1], "nothing waits for the old room's chunks"
    opened = [suspect.freeze()]
    for staged in (True, False):
        suspect.thaw(opened[0])
        for chunk in range(config.chunks):
            say(msg.StagingRsp(chunk, chunk + 1, 0, 0, 256, 0, 0) if staged else msg.StagingRefused(chunk))
            say(msg.PagesRsp(chunk, bytes(4), NOW))
        opened.append(suspect.freeze())
    return opened


class HostileSearch:
    """One search at one suspect."""

    def __init__(self, suspect: Suspect, starts: Iterable[Frozen]) -> None:
        self.suspect = suspect
        #: those in which a machine is as never before, and those in which two are: of each in turn
        self.todo: tuple[deque[Frozen], deque[Frozen]] = deque(), deque()
        self.seen: set[Frozen] = set()
        self.together: set[Any] = set()
        #: how a value came about: the one before, and what happened
        self.ways: dict[Frozen, tuple[Frozen | None, str]] = {}
        for start in starts:
            suspect.thaw(start)
            suspect.judge_held()
            self._offer(start, None, "")

    def run(self, limit: int) -> Found:
        """Go on for so many values at most.  AssertionError: what does not hold, and the way there."""
        tried = values = 0
        while any(self.todo) and values < limit:
            turn = values % 2
            value = (self.todo[turn] or self.todo[not turn]).popleft()
            values += 1
            self.suspect.put(value)
            for act, thing, words in self._all():
                tried += 1
                try:
                    after = self.suspect.judge(thing, act(), value)
                except Exception as error:
                    story = "\n".join([*self._way(value), words()])
                    raise AssertionError(f"{type(error).__name__}: {error}\n{story}") from error
                if after is value:
                    continue
                if after not in self.seen:
                    self._offer(after, value, words())
                self.suspect.put(value)
        return Found(values, tried, sum(map(len, self.todo)))

    def _all(self) -> Iterator[tuple[Act, Thing | None, Callable[[], str]]]:
        suspect = self.suspect
        for thing in suspect.things:
            yield partial(suspect.do, thing), thing, partial(self._words, thing)
        for store, key in suspect.timers():
            ends = [(MORE, False, "tries are left"), (LAST, False, "no tries are left")]
            if store.store == "links":
                ends += [(store.get(key).silent, True, "a peer lives"), (LAST, True, "it lives on")]
            for tries, stands, left in ends:
                words = f"the timer of {store.table.name} {key} ends, {left}"
                yield partial(self._expire, store, key, tries, stands=stands), None, partial(str, words)

    def _expire(self, store: Any, key: Any, tries: int, *, stands: bool) -> list[Effect]:
        """End the timer; `stands`: the connection to the link's peer does."""
        self.suspect.rank.stands = lambda _link: stands
        return list(self.suspect.rank.expire(store, key, NOW, tries))

    def _words(self, thing: Thing) -> str:
        """Describe the input, in terms of the rank as it is now."""
        return f"{thing.sender}, room {thing.room}, at {thing.now:g} s: {thing.make(self.suspect.rank, thing.link)}"

    def _offer(self, value: Frozen, before: Frozen | None, what: str) -> None:
        self.seen.add(value)
        marks = self._marks()
        new = [{*combinations(marks, many)} - self.together for many in (1, 2)]
        if any(new):
            self.together.update(*new)
            self.ways[value] = before, what
            next(todo for todo, found in zip(self.todo, new, strict=True) if found).append(value)

    def _marks(self) -> list[Any]:
        rank = self.suspect.rank
        machines = [
            (store.store, key, mark(value))
            for store in rank.stores.values()
            for key, value in store.items()
            if key != THEIR_LINK
        ]
        over = [("over", key, value.state) for key, value in rank.tombs.items()]
        return ["rank", *machines, *over, *self.suspect.held()]

    def _way(self, value: Frozen) -> list[str]:
        found: list[str] = []
        at: Frozen | None = value
        while at is not None:
            at, words = self.ways[at]
            found.append(words)
        return found[::-1]


def mark(value: Any) -> Any:
    """Reduce a value to what its own comparisons with events distinguish; counts end at none and two."""
    if isinstance(value, Terms):
        return None
    if isinstance(value, msgspec.Struct):
        kept = plain(value) if hasattr(value, "due") else value
        return tuple(mark(getattr(kept, name)) for name in kept.__struct_fields__ if name not in COMPARED)
    return max(-1, min(value, 2)) if type(value) is int else value
