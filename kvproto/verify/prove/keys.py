"""Keys: that what is said of a room, chunk and rank is said to their machine, and to no other.

A message names its room and, where it is about one, its chunk; who says it is known by its link.  A route makes an
event of it, a store finds the event's machine by its key.  Both are plain functions, run here on terms: for every
message that a route takes, and for every event of every store of the real ranks.  That a store looks its machines up by
that key, and that a rank knows whose a room is, is code, and has tests.

* `events`: the event that a route makes is about the message's room and chunk, and about the rank, or the link, by
  which it came.
* `machines`: two events that have one key are about the same room, chunk and rank, as far as the machine is one of
  these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import z3

from kvproto.fsm.machine_store import MachineStore
from kvproto.fsm.routing import Routes
from kvproto.layout.cut import NO_CUT, Cut
from kvproto.layout.sharding import MAX_RANKS, Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, LinkEvent, Terms
from kvproto.protocol.routes import HeardMessage, decode_routes, prefill_routes
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.prove.proof import PairProof
from kvproto.verify.prove.ring import Lemma, Question, prove
from kvproto.verify.prove.terms import Number, Ways, number
from kvproto.verify.prove.values import Maker

NAME = "keys"
#: of which the rank itself makes the event: it has no link yet, or none that is up
CALLS = (msg.Hello, msg.Welcome)
#: what a machine is one of, by store
ONE_OF = {
    "rooms": ("room",), "links": ("peer",), "grants": ("room", "chunk"),
    "sends": ("room", "chunk", "peer"), "writes": ("room", "chunk", "peer"),
}  # fmt: skip
#: a word of a key, wide enough for a chunk above 16 bits of a rank
WORD = 64
CHUNKS = 1 << 24


class _Edge:
    """A rank that knows nothing: what routes ask of theirs."""

    lease = Number(z3.Real("lease"))

    @staticmethod
    def shared(value: Any) -> Any:
        return value

    @staticmethod
    def full(_room: Any) -> bool:
        return False

    @staticmethod
    def cut_for(_link: Any, _groups: Any) -> Terms:
        return Terms(1, 1, 1, 1, 1)

    @staticmethod
    def cut_of(_room: Any, _chunk: Any) -> Cut:
        return NO_CUT

    @staticmethod
    def writers_of(_room: Any, _chunk: Any) -> int:
        return 1

    @staticmethod
    def claim(group: int, secret: bytes) -> Claim:
        return Claim(group, secret)

    @staticmethod
    def unsent(_room: Any, _peer: Any) -> bool:
        return False


class _Marks:
    """A link's value, as far as routes look at it."""

    mark_round, mark_tail = Number(z3.Int("seen.round")), Number(z3.Int("seen.tail"))


def _heard(maker: Maker, message: type[Any]) -> HeardMessage:
    heard = HeardMessage(_Edge())
    heard.link, heard.peer = Number(z3.Int("link")), Number(z3.Int("peer"))  # type: ignore[assignment]
    heard.epoch, heard.room = Number(z3.Int("epoch")), Number(z3.Int("room"))  # type: ignore[assignment]
    heard.terms, heard.value, heard.place = Terms(1, 1, 1, 1, 1), _Marks(), b""
    taken_off = {"blame": None} if "blame" in message.__struct_fields__ else {}  # before a rank hears it
    (heard.body,) = maker.variants(message, "said", **taken_off)
    return heard


def events() -> Iterator[Question]:
    """A routed message's event is about the message's room, chunk and rank, or the link it came by."""
    for routes in (prefill_routes, decode_routes):
        yield from events_of(routes)


def events_of(routes: Routes) -> Iterator[Question]:
    """Yield the questions of one side's routes."""
    taken = {(message, to) for message, _, route in routes.cases() if route is not None and route.end == "route"
             for to in route.to if message not in CALLS}  # fmt: skip
    for message, to in taken:
        maker = Maker()
        heard = _heard(maker, message)
        for way in Ways():
            event = to(heard)
            said = [number(event.peer) == number(heard.link if isinstance(event, LinkEvent) else heard.peer)]
            if not isinstance(event, LinkEvent):
                said.append(number(event.room) == number(heard.room))
            if "chunk" in event.__struct_fields__:
                chunk = heard.body.chunk if "chunk" in message.__struct_fields__ else msg.AUX_CHUNK
                said.append(number(event.chunk) == number(chunk))
            yield Question([*way.conditions, *maker.facts], z3.And(*said))


def machines() -> Iterator[Question]:
    """Two events with one key are about the same room, chunk and rank, as far as the machine has these."""
    layout = Layout(1, 1, 1, 1, 1, "u8", 1, 1)
    for kind in (PrefillRank, DecodeRank):
        for store in kind(layout, 0, group=1, chunk_tokens=1, incarnation=1).stores.values():
            yield told_apart(store.store, _key_of(store))


def told_apart(store: str, key: Callable[[Any], tuple[Any, ...]]) -> Question:
    """Ask the question of one store with this key."""
    one, other = (_About(*z3.BitVecs(f"{name}.room {name}.chunk {name}.peer", WORD)) for name in ("i", "j"))
    known = [within for event in (one, other) for within in event.within]
    known += [mine == yours for mine, yours in zip(key(one), key(other), strict=True)]
    return Question(known, z3.And(*[getattr(one, name) == getattr(other, name) for name in ONE_OF[store]]))


def _key_of(store: MachineStore) -> Callable[[Any], tuple[Any, ...]]:
    def key(event: Any) -> tuple[Any, ...]:
        found = store.key(event)
        parts = found if isinstance(found, tuple) else (found,)
        return parts if store.within is None else (store.within(event), *parts)

    return key


class _About:
    """An event, as far as keys look at it; the aux row's chunk, and a room's, are below 0."""

    def __init__(self, room: Any, chunk: Any, peer: Any) -> None:
        self.room, self.chunk, self.peer = room, chunk, peer
        self.within = [chunk >= msg.AUX_CHUNK, chunk < CHUNKS, peer >= 0, peer < MAX_RANKS]


LEMMAS: tuple[Lemma, ...] = (("S9", "events", events), ("S9", "machines", machines))


def proofs() -> Iterator[PairProof]:
    """Both lemmas."""
    return prove(NAME, LEMMAS)
