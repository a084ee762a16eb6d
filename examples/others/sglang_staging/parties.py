"""SGLang's ranks as parties: routes, what they look up outside of tables, and all of it as objects for the tools.

`PROTOCOL` is the protocol as it is in 0.5.23, `MENDED` with every mend.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from examples.others.sglang_staging import decode, effects, events, prefill, transfer_queue, words
from examples.others.sglang_staging.decode import Ring, may_be_written
from examples.others.sglang_staging.effects import (
    Acknowledge,
    Answer,
    Ask,
    Assign,
    Ban,
    Check,
    Free,
    Post,
    Posted,
    Queue,
    RegionHeld,
    Retry,
    RetryOne,
    Sweep,
    Tell,
    Unregister,
)
from examples.others.sglang_staging.events import (
    Checked,
    ChunkForgotten,
    ChunkQueued,
    ChunkTried,
    Noted,
    RetryNow,
    Subscribed,
    WatermarkSeen,
)
from examples.others.sglang_staging.prefill import Mends
from examples.others.sglang_staging.routes import ListenerIs, to_decode, to_prefill
from examples.others.sglang_staging.words import (
    ALL,
    OVERSIZED,
    AbortAck,
    ChunkReady,
    G,
    P,
    Q,
    StagingReq,
    StagingRsp,
    T,
    Timing,
    W,
    Watermark,
)
from kvproto.fsm.codec import Body
from kvproto.fsm.party import Member, MemberMessage
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table
from kvproto.fsm.telling import Telling
from kvproto.fsm.vocabulary import Transmit
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, table_says
from kvproto.verify.framework.protocol import Protocol

#: every interleaving that is known, and its mend
KNOWN = tuple(f"R{number}" for number in range(1, 18))
#: tombstones that are kept
MANY = 64


class RoomPlan(msgspec.Struct, frozen=True):
    """A room of a world: who writes it and who reads it (numbers of parties), and the size of each chunk."""

    writers: tuple[int, ...]
    readers: tuple[int, ...]
    sizes: tuple[int, ...] = (1,)


class Setting(msgspec.Struct, frozen=True):
    """What every party of a world knows."""

    names: tuple[str, ...]
    rooms: dict[int, RoomPlan]
    mends: Mends = frozenset()
    #: units of each ring; `staging`: decode has it switched on
    ring: int = 4
    staging: bool = True


def by_room(event: Any) -> Any:
    """The room that an event is about."""
    return event.room


def by_key(event: Any) -> Any:
    """The chunk that an event is about."""
    return event.key


def by_thread(event: Any) -> Any:
    """The thread that an event is about."""
    return event.thread


@cache
def tables(mends: Mends) -> tuple[tuple[Table[Any], ...], tuple[Table[Any], ...]]:
    """Of a prefill rank, and of a decode rank."""
    return (
        (prefill.rooms(mends), transfer_queue.chunks(mends), transfer_queue.workers(mends)),
        (decode.rooms(mends), decode.chunks(mends), decode.listeners(mends)),
    )


class Rank(Member):
    """Either kind; `setting` is what it knows of its world."""

    def __init__(self, number: int, setting: Setting, routes: Routes) -> None:
        super().__init__(number, dict(enumerate(setting.names)), Timing(), routes)
        self.setting = setting
        self.inner[Tell] = self._tell
        self.take(Noted, self._note)

    def room(self, number: int) -> Any:
        """What is known of the room."""
        return self.stores["rooms"].get(number) or self.stores["rooms"].ended().get(number)

    def _note(self, event: Noted, _now: float) -> None:
        self._out.append(event.effect)

    def _tell(self, effect: Tell) -> None:
        for peer in effect.peers:
            self._leave(Transmit(peer, effect.body))


class Prefill(Rank):
    """Rooms, the queue of chunks and a worker; it keeps the watermarks, whom it has banned, and counts its writes."""

    KEPT = ("watermarks", "banned", "posted")

    def __init__(self, number: int, setting: Setting) -> None:
        super().__init__(number, setting, to_prefill)
        rooms, chunks, workers = tables(setting.mends)[0]
        self.add("rooms", rooms, by_room, bound=MANY)
        self.add("queue", chunks, by_key)
        self.add("threads", workers, by_thread)
        self.watermarks: frozenset[tuple[int, tuple[int, int]]] = frozenset()
        self.banned: frozenset[int] = frozenset()
        self.posted: frozenset[tuple[int, int]] = frozenset()
        self.inner |= {
            Ask: self._ask, Queue: self._enqueue, Retry: self._retry, RetryOne: self._retry_one, Sweep: self._sweep,
            Post: self._post, Ban: self._ban, Acknowledge: self._acknowledge,
        }  # fmt: skip
        self.take(WatermarkSeen, self._see)
        self.take(RetryNow, self._now)

    def _see(self, event: WatermarkSeen, _now: float) -> None:
        marks = dict(self.watermarks)
        marks[event.peer] = max(event.mark, marks.get(event.peer, (0, 0)))
        self.watermarks = frozenset(marks.items())
        self._queue.extend(RetryNow(key) for key, _ in sorted(self.stores["queue"].items()))

    def _now(self, event: RetryNow, now: float) -> None:
        self.stores["queue"].take[ChunkTried](self._tried(event.key), now)

    def _ask(self, effect: Ask) -> None:
        for chunk in range(len(self.setting.rooms[effect.room].sizes)):
            for peer in effect.peers:
                self._leave(Transmit(peer, StagingReq(effect.room, effect.life, chunk)))

    def _enqueue(self, effect: Queue) -> None:
        for chunk in range(effect.chunks):
            self._queue.append(ChunkQueued((effect.room, effect.life, chunk)))

    def _retry(self, effect: Retry) -> None:
        for key, _ in sorted(self.stores["queue"].items()):
            if key[0] == effect.room:
                self._queue.append(RetryNow(key))

    def _sweep(self, effect: Sweep) -> None:
        for key, value in sorted(self.stores["queue"].items()):
            if key[0] == effect.room and value.state is Q.DEFERRED:
                self._queue.append(RetryNow(key))

    def _retry_one(self, effect: RetryOne) -> None:
        self._queue.append(RetryNow(effect.key))

    def _tried(self, key: tuple[int, int, int]) -> ChunkTried:
        room, _, chunk = key
        value, worker = self.room(room), self.stores["threads"].get(0)
        marks = dict(self.watermarks)
        grants = {grant.peer: grant for grant in value.grants if grant.chunk == chunk}
        alive = value.state in (P.BOOTSTRAPPING, P.WAITING, P.SUCCESS)
        ready = tuple(peer for peer, grant in grants.items() if grant.offset >= 0 and may_be_written(
            decode.Region(grant.offset, grant.end, grant.round), marks.get(peer, (0, 0))))  # fmt: skip
        never = tuple(peer for peer, grant in grants.items() if grant.offset == OVERSIZED)
        return ChunkTried(key, alive, value.life == key[1], value.dests, ready, never, tuple(sorted(self.banned)),
                          W.RUNNING if worker is None else worker.state)  # fmt: skip

    def _post(self, effect: Post) -> None:
        room, life, chunk = effect.key
        grants = {grant.peer: grant for grant in self.room(room).grants if grant.chunk == chunk}
        for peer in effect.peers:
            counts = dict(self.posted)
            counts[peer] = counts.get(peer, 0) + 1
            self.posted = frozenset(counts.items())
            writer = self.number if "R5" in self.setting.mends else peer  # it says the destination's own id
            grant = grants[peer]
            body = ChunkReady(room, life, chunk, grant.offset, grant.end, writer, counts[peer])
            self._out.append(Posted(effect.key, peer))
            self._leave(Transmit(peer, body))

    def _ban(self, effect: Ban) -> None:
        room, _, chunk = effect.key
        bad = {g.peer for g in self.room(room).grants if g.chunk == chunk and g.offset == OVERSIZED}
        self.banned |= bad

    def _acknowledge(self, effect: Acknowledge) -> None:
        counts = dict(self.posted)
        for peer in effect.peers:
            self._leave(Transmit(peer, AbortAck(effect.room, effect.life, counts.get(peer, 0))))


class Decode(Rank):
    """Rooms, chunks, the listener and the ring; it keeps who has ever asked (`_wm_subscribers`)."""

    KEPT = ("ring", "subscribers")

    def __init__(self, number: int, setting: Setting) -> None:
        super().__init__(number, setting, to_decode)
        rooms, chunks, listeners = tables(setting.mends)[1]
        self.add("rooms", rooms, by_room, bound=MANY)
        self.add("chunks", chunks, by_key)
        self.add("threads", listeners, by_thread)
        self.ring, self.subscribers = Ring(setting.ring), frozenset[int]()
        self.inner |= {
            Assign: self._assign, Answer: self._answer, Free: self._free, Check: self._check,
            Unregister: self._unregister,
        }  # fmt: skip
        self.take(Subscribed, self._subscribe)

    def facts(self, heard: MemberMessage) -> int:
        """Whether somebody listens."""
        del heard
        listener = self.stores["threads"].get(0)
        dead = listener is not None and listener.state is T.DEAD
        return Routes.place(ListenerIs.DEAD if dead else ListenerIs.RUNNING)

    def _subscribe(self, event: Subscribed, _now: float) -> None:
        new = event.registered and event.peer not in self.subscribers
        self.subscribers |= {event.peer} if event.registered else frozenset()
        if new and self.ring.watermark != (0, 0):
            self._leave(Transmit(event.peer, Watermark(*self.ring.watermark)))

    def _assign(self, effect: Assign) -> None:
        room, chunk = effect.key
        self.ring = self.ring.assign(effect.key, self.setting.rooms[room].sizes[chunk])
        region = self.ring.region(effect.key)
        assert region is not None
        self._out.append(RegionHeld((room, self.room(room).life, chunk), region.offset, region.end))
        self._answer(Answer(effect.key, oversized=False))

    def _answer(self, effect: Answer) -> None:
        room, chunk = effect.key
        region = None if effect.oversized else self.ring.region(effect.key)
        assert region is not None or effect.oversized
        said = (OVERSIZED, OVERSIZED, 0) if region is None else (region.offset, region.end, region.round)
        life = self.room(room).life if self.room(room) is not None else 0
        self._tell(Tell(self.setting.rooms[room].writers, StagingRsp(room, life, chunk, *said)))

    def _free(self, effect: Free) -> None:
        room, chunk = effect.key
        before, self.ring = self.ring.watermark, self.ring.free(effect.key)
        self._out.append(RegionHeld((room, self.room(room).life, chunk), -1, -1))
        if self.ring.watermark != before:
            self._tell(Tell(tuple(sorted(self.subscribers)), Watermark(*self.ring.watermark)))

    def _check(self, effect: Check) -> None:
        mine = [value.state for key, value in self.stores["chunks"].items() if key[0] == effect.room]
        idle = not any(state in (G.GRANTED, G.SCATTERING) for state in mine)
        complete = mine == [G.DONE] * len(self.setting.rooms[effect.room].sizes)
        self._queue.append(Checked(effect.room, idle, complete))

    def _unregister(self, effect: Unregister) -> None:
        for key, _ in sorted(self.stores["chunks"].items()):
            if key[0] == effect.room:
                self._queue.append(ChunkForgotten(key))


def said() -> str:
    """What two builds must have in common."""
    texts = DigestTexts()
    parts = {"messages": ALL, "routes": (*routes_say(to_prefill), *routes_say(to_decode))}
    return digest({name: texts.part(name, roots) for name, roots in parts.items()}
                  | {table.name: texts.part(table.name, table_says(table)) for table in _all(frozenset())})  # fmt: skip


def _all(mends: Mends) -> tuple[Table[Any], ...]:
    of_prefill, of_decode = tables(mends)
    return (*of_prefill, *of_decode)


class RoomTelling(Telling):
    """Names the room that a message is about."""

    def subject_of_body(self, body: Any) -> int:
        """Return the room; a watermark is of none (0)."""
        return getattr(body, "room", 0)


WORDS = RoomTelling(_all(frozenset()), Timing, said, (words, events, effects), Body)
PROTOCOL = Protocol(
    name="SGLang 0.5.23 staging", tables=_all(frozenset()), timing=Timing(), digest=said,
    telling="examples.others.sglang_staging.parties:WORDS", checker="examples.others.sglang_staging.worlds:CHECKER",
)  # fmt: skip
MENDED = Protocol(
    name="SGLang 0.5.23 staging, mended", tables=_all(frozenset(KNOWN)), timing=Timing(), digest=said,
    telling="examples.others.sglang_staging.parties:WORDS", checker="examples.others.sglang_staging.worlds:MENDED",
)  # fmt: skip
