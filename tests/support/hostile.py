"""A hostile peer: breaks the contract at a real rank, in any reached state, with every possible input.

A *suspect* is a rank whose surroundings are not to be trusted: its peers say any message, as the party that they are,
with another epoch, as a group that the room does not belong to, or from a place that nobody knows; its libraries give
any answer, asked or not; its engine makes any call at any time.  What only the rank's own machines raise is never fed.

What is judged at every step (`judge`):

* S10: nothing is raised, and every event finds a row, or its message a route that drops it: nothing stops a rank;
* who is no party to a room moves nothing of it, and is told at most that the room is not its own;
* nothing is held by nobody: a slot belongs to a send, a region to a grant.

A rank is put back from a value as in the checker, so each thing is tried in the same state.  Most things move nothing,
and then nothing is frozen anew: every machine has kept the very value that it had, and what the rank keeps beside its
machines is equal to a copy that was made when it was put back (`kept`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

from kvproto.fsm.driver import steps
from kvproto.fsm.vocabulary import Effect
from kvproto.layout.plan import Plan, plan_between
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import LinkEvent
from kvproto.protocol.routes import P_SENDS
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP
from kvproto.verify.check.config import CHUNK_TOKENS, Config
from kvproto.verify.check.node import LATE, NOW
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.nodes_prefill import PrefillNode
from kvproto.verify.check.sides import Side
from kvproto.verify.check.snapshot import Frozen, freeze_decode, freeze_prefill, thaw_decode, thaw_prefill
from support.hostile_menus import Make, Menu, answers_and_calls, made, menu, messages, well_formed, wider

#: a group that no room belongs to, and the number of its link; and a link that there never was
OTHERS, THEIR_LINK, NO_LINK = 9, 99, 55
#: what who is no party may be told: that the room is not its own
NOT_YOURS = (msg.Drained, msg.Gone, msg.Noted)
LINK_BODIES = get_args(msg.LinkBody)
PARTY, STALE, OUTSIDER, STRANGER, WITHIN = "party", "stale", "outsider", "stranger", "this rank's own"
#: it speaks by the connection to an address that is tried beside the link
BESIDE = "beside"


class Thing(NamedTuple):
    """Something that may come: from whom, at which time, and what."""

    sender: str
    now: float
    make: Make
    #: the link that it is about, and of a message the room
    link: int = 0
    room: int = 0


class Suspect:
    """A rank to which anything may happen."""

    NODE: type[Any]

    def __init__(self, config: Config, index: int = 0, *, more: bool = False) -> None:
        """`index`: the rank's own; `more`: its peers' group also has a rank of another, wider layout."""
        self.config = config
        self.node: Any = self.NODE(config, index)
        self.node.initial()
        self.rank: Any = self.node.rank
        self.known = config.decodes if self.NODE is PrefillNode else config.prefills
        self.peers = range(self.known + more)
        #: between this rank and a group that has started anew with twice the ranks
        self.wide = self._wide()
        fields = menu(config, decode=self.NODE is DecodeNode)
        self.theirs = self._meet(), self.rank.peers[THEIR_LINK]
        #: nobody has called, and nobody was called
        self.rank.links.clear()
        self.start = self.freeze()
        self.things = [*self._said(fields), *self._raised(fields)]

    def _wide(self) -> Plan:
        raise NotImplementedError

    def _meet(self) -> Any:
        """Get a link to a rank of `OTHERS`; returns its value."""
        raise NotImplementedError

    def thaw(self, value: Frozen) -> None:
        """Make the rank what was frozen; the others' link is up whatever happens."""
        raise NotImplementedError

    def freeze(self, rank: Any = None) -> Frozen:
        """The rank (or another one like it) as a value; the others' link is no part of it."""
        raise NotImplementedError

    def kept(self) -> tuple[Any, ...]:
        """Return the parts of a rank that are frozen, as they are in the rank."""
        raise NotImplementedError

    def put(self, value: Frozen) -> None:
        """`thaw`, and remember how the rank lies in its memory."""
        self.thaw(value)
        self.copy = tuple(map(copied, self.kept()))

    def padded(self, value: Frozen) -> Frozen:
        """The value of a rank of the checker, whose peers are fewer."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------- what may come
    def _said(self, fields: Menu) -> Iterator[Thing]:
        """Every message from every kind of sender; of those that are not heard, one of each kind will do."""
        for peer in self.peers:
            once: set[type[Any]] = set()
            for kind, make in messages(self.config, fields, peer):
                if not well_formed(make(self.rank, peer + 1)):
                    continue
                senders = [(PARTY, NOW), *[(PARTY, LATE)] * (kind in P_SENDS)]
                if kind not in once or kind in (msg.Hello, msg.Goodbye):
                    senders += [(STALE, NOW), (OUTSIDER, NOW), (STRANGER, NOW)]
                if kind not in once or kind in (msg.Welcome, msg.Refusal):
                    senders.append((BESIDE, NOW))
                once.add(kind)
                for room in (0,) if kind in LINK_BODIES else self.config.keys:
                    yield from (Thing(sender, now, make, peer + 1, room) for sender, now in senders)

    def _raised(self, fields: Menu) -> Iterator[Thing]:
        """Every answer of a handler, and every call of the engine, in time and late."""
        links = [peer + 1 for peer in self.peers]
        for kind, own in answers_and_calls(tuple(store.table for store in self.rank.stores.values()), fields):
            about_link = issubclass(kind, LinkEvent)
            whom: Sequence[int] = self.peers if "peer" in kind.__struct_fields__ else (0,)
            if about_link:
                whom = links if kind is ev.CallAsked else (*links, NO_LINK)
            for peer in whom:
                for make in made(kind, {**own, "peer": (peer,)}):
                    for now in (NOW,) if about_link else (NOW, LATE):
                        yield Thing(WITHIN, now, make, peer if about_link else 0)

    def do(self, thing: Thing) -> list[Effect]:
        rank, link = self.rank, thing.link
        what = thing.make(rank, link)
        if isinstance(what, ev.CallAsked):
            peer = rank.peers[link]
            return list(rank.call(peer.group, peer.rank, peer.plan, thing.now, what.address)[1])
        if thing.sender == WITHIN:
            return list(rank.handle(what, thing.now))
        at = rank.links.get(link)
        epoch, place, via = (at.epoch if at else 7), b"here%d" % link, link if at else 0
        if isinstance(what, msg.Hello):
            rank.next_link, rank.next_epoch = what.rank + 1, 6
        if thing.sender == STALE:
            epoch += 1
        elif thing.sender == OUTSIDER:
            if thing.room and rank._group_of(thing.room) is None:
                return []  # who speaks first of a room that is nobody's is no outsider
            via, place, epoch = THEIR_LINK, b"theirs", self.theirs[0].epoch
        elif thing.sender == STRANGER:
            via, place = 0, b"nowhere"
        elif thing.sender == BESIDE:
            via = -via
        return list(rank.receive(via, epoch, thing.room, what, thing.now, place))

    def timers(self) -> list[tuple[Any, Any]]:
        """The timers that run: store and key."""
        return [
            (store, key)
            for store in self.rank.stores.values()
            for key, value in store.items()
            if value.state in store.table.timers and key != THEIR_LINK
        ]

    # -------------------------------------------------------------------------------------------- judged
    def judge(self, thing: Thing | None, effects: list[Effect], before: Frozen) -> Frozen:
        """Check the invariants after an input and return the frozen rank.  AssertionError.

        That is `before` itself if there is nothing to put back.
        """
        moved = False
        for _, row, event, old, new in steps(self.rank.trace):
            assert row is not None, f"no row for {event} in {old.state.name}"
            moved = moved or new is not old
        self.rank.trace.clear()
        after = before
        if moved or self.kept() != self.copy:
            after = self.freeze()
            self.judge_held()
        if thing is not None and thing.room and thing.sender in {STALE, OUTSIDER, STRANGER}:
            assert after == before, "somebody who is no party moves a room"
            answers = effects if thing.sender == OUTSIDER else ()
            told = [e for e in answers if isinstance(e, do.Transmit) and e.link == THEIR_LINK]
            assert told == effects and len(told) <= 1, f"somebody who is no party causes {effects}"
            assert all(isinstance(e.body, NOT_YOURS) for e in told), f"somebody who is no party is told {told}"
        return after

    def judge_held(self) -> None:
        """Check that every resource that is given out has an owner."""
        raise NotImplementedError

    def held(self) -> list[Any]:
        """Return what the rank has given out beside its machines: pending work, by order of magnitude."""
        raise NotImplementedError


def copied(kept: Any) -> Any:
    """A copy that later changes of a rank do not reach; its machines' values change by being others."""
    if isinstance(kept, dict):
        return type(kept)((key, copied(value)) for key, value in kept.items())
    return kept.copy() if isinstance(kept, list | set) else kept


class SuspectPrefill(Suspect):
    """A prefill rank."""

    NODE = PrefillNode

    def _wide(self) -> Plan:
        return plan_between(self.config.prefill_layout, wider(self.config.decode_layout), CHUNK_TOKENS)

    def _meet(self) -> Any:
        rank, config = self.rank, self.config
        call = msg.Hello(
            msg.VERSION, tables_digest(), 3, OTHERS, 0, config.decode_layout, CHUNK_TOKENS, rank.lease, b""
        )
        rank.next_link = THEIR_LINK
        rank.hello(call, NOW, b"theirs")
        rank.handle(ev.WiredUp(THEIR_LINK, 3, "theirs"), NOW)
        return rank.links[THEIR_LINK]

    def thaw(self, value: Frozen) -> None:
        rank = self.rank
        thaw_prefill(rank, self.node.names, value, Side(DECODE_GROUP, len(self.peers)), self.node.plan)
        for link, peer in rank.peers.items():
            peer.plan = self.wide if link > self.known and peer.plan else peer.plan
        rank.links[THEIR_LINK], rank.peers[THEIR_LINK] = self.theirs
        rank.link_of[OTHERS, 0], rank.watch[THEIR_LINK] = THEIR_LINK, []

    def freeze(self, rank: Any = None) -> Frozen:
        return freeze_prefill(rank or self.rank, self.node.names, len(self.peers))

    def kept(self) -> tuple[Any, ...]:
        rank = self.rank
        return (
            rank.rooms, rank.tombs, rank.links, [peer.terms for peer in rank.peers.values()], rank.sends, rank.writes,
            rank.free_slots, rank.slot_of, list(rank.slot_queue), rank.permits, rank.permit_queue, rank.credits,
            rank.credit_queues, rank.watch,
        )  # fmt: skip

    def padded(self, value: Frozen) -> Frozen:
        rooms, tombs, links, known, *kept, watch, writes, permits, waiting, asking = value
        nobody = (None,) * (len(self.peers) - len(links))
        more = [()] * len(nobody)
        links, known, watch, asking = (*links, *nobody), (*known, *nobody), (*watch, *more), (*asking, *more)
        return rooms, tombs, links, known, *kept, watch, writes, permits, waiting, asking

    def judge_held(self) -> None:
        rank = self.rank
        sends = {(room, at >> 16, at & 0xFFFF) for room, parts in rank.sends.items() for at in parts}
        assert {*rank.slot_of, *rank.slot_queue} <= sends, "a slot belongs to no send"
        slots = sorted((*rank.free_slots, *rank.slot_of.values()))
        assert slots == list(range(self.config.slots)), f"slots {slots}"
        assert {*rank.permits, *rank.permit_queue} <= sends, "a permit belongs to no send"
        assert len(rank.permits) <= self.config.page_writes, f"permits {rank.permits}"
        for asked in (rank.credits, rank.credit_queues):
            assert all(keys and keys <= sends for keys in map(set, asked.values())), "a credit belongs to no send"
        assert all(len(keys) <= self.config.requests for keys in rank.credits.values()), f"credits {rank.credits}"

    def held(self) -> list[Any]:
        rank = self.rank
        waiting = [("watch", link, min(2, len(heap))) for link, heap in rank.watch.items()]
        waiting += [("asking", link, min(2, len(queue))) for link, queue in rank.credit_queues.items()]
        waiting.append(("permits", len(rank.permits), min(2, len(rank.permit_queue))))
        return [("slots", len(rank.free_slots), min(2, len(rank.slot_queue))), *waiting]


class SuspectDecode(Suspect):
    """A decode rank."""

    NODE = DecodeNode

    def _wide(self) -> Plan:
        plan = plan_between(wider(self.config.prefill_layout), self.config.decode_layout, CHUNK_TOKENS)
        if len(self.peers) > self.known:
            self.rank.next_link = self.known + 1
            self.rank.call(PREFILL_GROUP, self.known, plan, NOW, "wider")
        return plan

    def _meet(self) -> Any:
        rank, config = self.rank, self.config
        rank.next_link = THEIR_LINK
        rank.call(OTHERS, 0, self.node.plan, NOW, "theirs")
        session = rank.links[THEIR_LINK].session
        layout = config.prefill_layout
        said = msg.Welcome(msg.VERSION, tables_digest(), session, 77, OTHERS, 0, layout, CHUNK_TOKENS, rank.lease)
        rank.receive(THEIR_LINK, 0, 0, said, NOW, b"theirs")
        self.everyone = dict(rank.peers)
        return rank.links[THEIR_LINK]

    def thaw(self, value: Frozen) -> None:
        rank = self.rank
        thaw_decode(rank, self.node.names, value)
        rank.peers = dict(self.everyone)  # a step may have forgotten one
        rank.link_of = {(peer.group, peer.rank): link for link, peer in rank.peers.items()}
        rank.links[THEIR_LINK] = self.theirs[0]

    def freeze(self, rank: Any = None) -> Frozen:
        return freeze_decode(rank or self.rank, self.node.names, len(self.peers))

    def kept(self) -> tuple[Any, ...]:
        rank, ring = self.rank, self.rank.ring
        where = ring.round, ring.head, rank.space_turns.passed
        regions = ring.live, ring.freed, ring.blocked, rank.chunk_of, rank.space_queue
        return rank.rooms, rank.tombs, rank.links, rank.grants, list(rank.peers), where, *regions

    def padded(self, value: Frozen) -> Frozen:
        rooms, tombs, links, *kept = value
        return rooms, tombs, (*links, *[None] * (len(self.peers) - len(links))), *kept

    def judge_held(self) -> None:
        rank = self.rank
        grants = {(room, chunk): grant.grant for room, parts in rank.grants.items() for chunk, grant in parts.items()}
        assert rank.ring.live.keys() - rank.ring.freed == rank.chunk_of.keys(), "a region is no chunk's"
        assert all(grants.get(key) == number for number, key in rank.chunk_of.items()), "a region is no grant's"
        assert rank.space_queue.keys() <= grants.keys(), "a chunk queues that has no grant"

    def held(self) -> list[Any]:
        ring = self.rank.ring
        regions = [("region", *key, number in ring.blocked) for number, key in self.rank.chunk_of.items()]
        return [("queue", *self.rank.space_queue), *regions]
