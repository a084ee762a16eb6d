"""What surrounds SGLang's ranks in a world, what may go wrong there, and what has to hold, stated once.

A world says who is there, how large the ring is, what applications may do and how often the network may err; and which
of the properties it is asked for.  Nothing else is said: no world knows what it is expected to find.

* S1: no write lands in a part of the ring that nobody has at that moment.
* S12: no write lands in a part that another chunk has, or another use of a room's id: it would be scattered there.
* S2: a chunk is written once to each decode rank.
* S3: a scatter begins when every writer's bytes are there.
* S4: pages are given back on an acknowledgement only if they are no target any more.
* S5: decode hands over a room only with every chunk in its pages.
* S6: prefill says Success only when every chunk was written to all.
* S9: a room fails only of what happened to itself.
* S10: no message, and no failed write, ends a thread.
* L1: from every state there is a way to one in which every room has ended at both sides.  The time-outs of 300 s, which
  end everything in the end, with pages and ring held until then, are not in the tables: what only they would end does
  not end here.  A prefill rank that waits for its first metadata holds nothing, and is not counted; nor is a decode
  rank whose prefill rank has died, for it notices (`GET /health`).

Workers do not poll: one goes through the queue when something has come, and once nothing is under way.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from examples.others.sglang_staging.effects import (
    AckHeard,
    Landed,
    PagesWritten,
    Posted,
    RegionHeld,
    Reported,
    ScatterLaunched,
)
from examples.others.sglang_staging.events import (
    Aborted,
    Cancelled,
    Forwarded,
    Opened,
    ScatterFinished,
    SenderCreated,
    TransportBreaks,
    Unregistered,
)
from examples.others.sglang_staging.parties import Decode, Prefill, RoomPlan, Setting
from examples.others.sglang_staging.prefill import Mends
from examples.others.sglang_staging.words import (
    D,
    G,
    Key,
    P,
    T,
    W,
)
from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View

PROPERTIES = ("S1", "S2", "S3", "S4", "S5", "S6", "S9", "S10", "S12", "L1")


class May(msgspec.Struct, frozen=True):
    """What applications may do: each at most once a room, unless it says otherwise."""

    #: decode gives up these rooms; prefill gives up a room; the transport breaks, once
    abort: tuple[int, ...] = ()
    cancel: bool = False
    breaks: bool = False
    #: a batch is formed as soon as all metadata is there, or whenever the scheduler likes
    eager: bool = False
    #: a batch is formed when the first metadata is there (optimistic prefill)
    optimistic: bool = False
    #: the sender may come after metadata
    late: bool = False
    #: pages wait for acknowledgements (deferred release)
    hold: bool = True
    #: so often a room's id is used
    lives: int = 1


class Around(msgspec.Struct, frozen=True):
    """What is true outside of the tables: what schedulers were told, regions, writes, pages, and what broke."""

    words: tuple[tuple[int, int, str], ...] = ()
    did: tuple[tuple[str, int, int], ...] = ()
    held: tuple[tuple[Key, int, int], ...] = ()
    writes: tuple[tuple[Key, int], ...] = ()
    landed: tuple[tuple[Key, int, int], ...] = ()
    acked: tuple[tuple[int, int], ...] = ()
    scattering: tuple[Key, ...] = ()
    pages: tuple[Key, ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()

    def last(self, room: int) -> tuple[int, str]:
        """Life and word of the newest that was said of a room."""
        return next(((life, word) for number, life, word in reversed(self.words) if number == room), (-1, ""))


class Staging(Scenario):
    """A world of prefill and decode ranks; those named P are prefill's."""

    def __init__(
        self, names: tuple[str, ...], rooms: dict[int, RoomPlan], asks: tuple[str, ...] = PROPERTIES, *,
        chances: Chances | None = None, may: May | None = None, ring: int = 4, staging: bool = True,
        mends: Mends = frozenset(), about: str = "",
    ) -> None:  # fmt: skip
        chances = replace(chances or Chances(), about=about, live="L1" in asks)
        super().__init__(names, chances)
        self.setting = Setting(names, rooms, mends, ring, staging)
        self.asks, self.may = asks, may or May()

    def around(self, number: int) -> Around:
        """Nothing yet."""
        del number
        return Around()

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Member, list[Effect]]:
        """Senders are made, and metadata is sent, unless that is for applications to do."""
        del around, life
        prefill = self.names[number].startswith("P")
        rank: Member = Prefill(number, self.setting) if prefill else Decode(number, self.setting)
        effects: list[Effect] = []
        for room, plan in self.setting.rooms.items():
            if prefill and number in plan.writers and not self.may.late:
                effects += rank.handle(SenderCreated(room, 1), now)
            if not prefill and number in plan.readers:
                effects += rank.handle(Opened(room, 1, plan.writers), now)
        return rank, effects

    # --------------------------------------------------------------------------------------- what may be done
    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """What this rank's engine may do."""
        of = self._prefill_calls if self.names[number].startswith("P") else self._decode_calls
        for room, plan in self.setting.rooms.items():
            if number in (*plan.writers, *plan.readers):
                for word, event in of(room, plan, around):
                    life = max(1, around.last(room)[0])
                    done = (word, room, 0 if word == "the transport breaks" else life)
                    if done not in around.did:
                        yield ApplicationCall(f"{word} (room {room})", replace(around, did=(*around.did, done)), event)
        for room, _, chunk in around.scattering:
            yield ApplicationCall(
                f"polls the scatter of chunk {chunk} (room {room})", around, ScatterFinished((room, chunk))
            )

    def _prefill_calls(self, room: int, plan: RoomPlan, around: Around) -> Iterable[tuple[str, Event]]:
        may, (_, word) = self.may, around.last(room)
        if may.late:
            yield "makes a sender", SenderCreated(room, 1)
        made = not may.late or ("makes a sender", room, 1) in around.did
        if made and not may.eager and word in (("ready", "partial") if may.optimistic else ("ready",)):
            yield "computes the prompt", Forwarded(room, len(plan.sizes))
        if may.cancel:
            yield "cancels the request", Cancelled(room)
        if may.breaks:
            yield "the transport breaks", TransportBreaks(0)

    def _decode_calls(self, room: int, plan: RoomPlan, around: Around) -> Iterable[tuple[str, Event]]:
        life, word = around.last(room)
        if room in self.may.abort and word not in ("committed", "released", "acknowledged"):
            yield "gives the request up", Aborted(room, self.may.hold)
        if word == "detached":
            yield "unregisters", Unregistered(room)
        if word in ("committed", "released", "acknowledged") and life < self.may.lives:
            yield "uses the id again", Opened(room, life + 1, plan.writers)

    # -------------------------------------------------------------------------------------------- what is true
    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, Event | None]:
        """What the effect changes outside of the tables."""
        match effect:
            case Reported(room, life, word):
                around = replace(around, words=(*(w for w in around.words if w[0] != room), (room, life, word)))
                formed = self.may.eager and word == "ready"
                chunks = len(self.setting.rooms[room].sizes)
                return self._reported(around, room, life, word), Forwarded(room, chunks) if formed else None
            case Posted(key, peer):
                if (key, peer) in around.writes:
                    return self._wrong(
                        around, "S2", f"{_chunk(key)} is written to {self.names[peer]} a second time"
                    ), None
                return replace(around, writes=tuple(sorted((*around.writes, (key, peer))))), None
            case RegionHeld(key, offset, end):
                held = [each for each in around.held if each[0][0::2] != key[0::2]]
                held += [(key, offset, end)] if offset >= 0 else []
                launched = (
                    around.scattering if offset >= 0 else tuple(k for k in around.scattering if k[0::2] != key[0::2])
                )
                return replace(around, held=tuple(held), scattering=launched), None
            case AckHeard(peer, posted):
                most = max(posted, dict(around.acked).get(peer, 0))
                return replace(around, acked=tuple(sorted((dict(around.acked) | {peer: most}).items()))), None
        return self._bytes(number, around, effect), None

    def _bytes(self, number: int, around: Around, effect: Effect) -> Around:
        match effect:
            case Landed(key, peer, offset, end, nth):
                if (key, peer, nth) in around.landed:  # the message comes twice, not the write
                    return around
                around = replace(around, landed=tuple(sorted({*around.landed, (key, peer, nth)})))
                if (key, offset, end) in around.held or nth <= dict(around.acked).get(peer, 0):
                    return around
                others = [_chunk(k) for k, low, high in around.held if k != key and low < end and offset < high]
                place = f"{_chunk(key)} lands in [{offset}, {end}) of {self.names[number]}'s ring"
                if others:
                    return self._wrong(around, "S12", f"{place}, which {others[0]} has now: its bytes are overwritten")
                return self._wrong(around, "S1", f"{place}, which is nobody's now")
            case ScatterLaunched((room, _, chunk)):
                key = next(k for k, _, _ in around.held if (k[0], k[2]) == (room, chunk))
                there = {(each, peer) for each, peer, _ in around.landed}
                missing = [p for p in self.setting.rooms[room].writers if (key, p) not in there]
                around = replace(around, scattering=(*around.scattering, key))
                text = (
                    f"{_chunk(key)} is scattered although {self.names[missing[0]]} has not written" if missing else ""
                )
                return self._wrong(around, "S3", text) if missing else around
            case PagesWritten((room, _, chunk)):
                key = next(k for k in around.scattering if (k[0], k[2]) == (room, chunk))
                left = tuple(k for k in around.scattering if k != key)
                return replace(around, pages=tuple(sorted({*around.pages, key})), scattering=left)
        raise AssertionError(effect)

    def _reported(self, around: Around, room: int, life: int, word: str) -> Around:
        plan = self.setting.rooms[room]
        keys = [(room, life, chunk) for chunk in range(len(plan.sizes))]
        if word == "committed" and (left := [key for key in keys if key not in around.pages]):
            return self._wrong(around, "S5", f"room {room} is handed over, and {_chunk(left[0])} is not in its pages")
        unwritten = [(key, peer) for key in keys for peer in plan.readers if (key, peer) not in around.writes]
        if word == "success" and unwritten:
            (key, peer), *_ = unwritten
            return self._wrong(
                around, "S6", f"Success is said, and {_chunk(key)} was never written to {self.names[peer]}"
            )
        return around

    @staticmethod
    def _wrong(around: Around, name: str, text: str) -> Around:
        return replace(around, wrong=(*around.wrong, (name, text)))

    # --------------------------------------------------------------------------------------------- what must hold
    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """The first of the properties that are asked for here and that does not hold."""
        wrong = [each for view in views for each in view.around.wrong]
        wrong += [*self._threads(views), *self._targets(views), *self._strangers(views)]
        return next((each for each in wrong if each[0] in self.asks), None)

    def _threads(self, views: list[View]) -> Iterable[tuple[str, str]]:
        for view in views:
            for value in (view.values or {}).get("threads", {}).values():
                if value.state in (W.DEAD, T.DEAD) and value.state.name == "DEAD":
                    yield "S10", f"a thread of {view.name} is dead: an exception has left its loop"

    def _targets(self, views: list[View]) -> Iterable[tuple[str, str]]:
        for number, view in enumerate(views):
            for room, life, word in view.around.words:
                for writer in self.setting.rooms[room].writers if word == "acknowledged" else ():
                    value = (views[writer].values or {}).get("rooms", {}).get(room)
                    if value is not None and value.state is P.WAITING and value.life == life and number in value.dests:
                        yield "S4", (f"{views[writer].name} has acknowledged that {view.name} has left room {room}, "
                                     "and is about to write to it")  # fmt: skip

    def _strangers(self, views: list[View]) -> Iterable[tuple[str, str]]:
        done = {(word, room) for view in views for word, room, _ in view.around.did}
        reasons = {room for word, room in done if word in ("gives the request up", "cancels the request")}
        fault = any(word == "the transport breaks" for word, _ in done)
        for view in views:
            for room, value in (view.values or {}).get("rooms", {}).items():
                own = max(self.setting.rooms[room].sizes) > self.setting.ring or not self.setting.staging
                dead = any(views[each].values is None for each in self.setting.rooms[room].readers)
                if (
                    value.state is P.FAILED
                    and isinstance(value.state, P)
                    and not (own or dead or fault or room in reasons)
                ):
                    yield "S9", f"room {room} fails at {view.name}, and nothing has happened to it"

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """Every room has ended, at both sides, and has given back what it had."""
        if "L1" not in self.asks:
            return None
        for view in views:
            for room, value in (view.values or {}).get("rooms", {}).items():
                state = value.state
                if isinstance(state, P) and (state is P.WAITING or (state is P.SUCCESS and value.outstanding)):
                    return "L1", f"room {room} stays {state.name} at {view.name}"
                alone = any(views[writer].values is None for writer in self.setting.rooms[room].writers)
                if isinstance(state, D) and state not in (D.COMMITTED, D.RELEASED) and not alone:
                    chunks = (view.values or {})["chunks"]
                    kept = [
                        f"chunk {key[1]} GRANTED"
                        for key, chunk in chunks.items()
                        if key[0] == room and chunk.state is G.GRANTED
                    ]
                    return "L1", f"room {room} stays {state.name} at {view.name}" + (f", {kept[0]}" if kept else "")
        return None


def _chunk(key: Key) -> str:
    room, life, chunk = key
    return f"chunk {chunk} of room {room}" + (f" (use {life} of the id)" if life > 1 else "")
