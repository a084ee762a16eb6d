"""Snapshot of a rank: `freeze` takes all that can make a difference later, `thaw` puts it back.

Two ranks with equal snapshots behave alike, so steps can be remembered by snapshot.  To make snapshots equal where
nothing can tell them apart:

* rooms are named by their place in the configuration, links by the peer's rank;
* deadlines, counts of tries and of silent beats are left out: the checker ends timers itself, and says each time
  whether tries were left;
* the watermark that a send has noted is its link's, or it is not;
* times become three words: asked lately or long ago, a `lease` that holds or is over; of a write that is posted the
  lease is no matter any more;
* pages are kept while they are waited with, and not after; what a send goes to, until it only drains;
* grant ids, which are only compared, are named by (room, chunk); no chunk is granted twice in a rank's life, which the
  checker watches;
* of a room that has failed only what its tombstone can still say is kept.

A world in which time has numbers keeps other things of each value (`Forms`).

What is left out on purpose: the trace, the counters; and, but for worlds in which links come and go (`keeps_order`),
the order in which rooms were met.  In that order a rank tells its rooms of a link's coming and going, and they their
peers; it decides nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.layout.placement import Placement
from kvproto.protocol.events import Target
from kvproto.protocol.ring import RingRegion
from kvproto.protocol.states import PRoom, PSend, PWrite
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.protocol.tables.decode_room import DecodeWork as DWork
from kvproto.protocol.tables.links import DLinkValue, PLinkValue
from kvproto.protocol.tables.prefill_room import PrefillWork as PWork
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.protocol.tables.prefill_write import PWriteValue
from kvproto.rank.base import LinkPeer, Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.fair_queue import FairQueue, SendKey
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.space_queue import SpaceQueue
from kvproto.rank.value import DecodeValue, PrefillValue
from kvproto.verify.check.moments import lately
from kvproto.verify.check.sides import Side

Frozen = tuple[Any, ...]
FAILED = ("FAILED", "ABORTED")


class Names:
    """Room keys by their place and back; grant ids by (place, chunk)."""

    def __init__(
        self, keys: tuple[int, ...], first: tuple[int, ...], mine: tuple[int, ...], *, ordered: bool = False,
        askers: Side | None = None,
    ) -> None:  # fmt: skip
        """Make the names of a world.

        `keys` in the order of their places; `first`: by place, the first rank of the other group that has a part in the
        room; `mine`: places of rooms in which this rank's group has one; `ordered`: rooms are kept in the order in
        which the rank met them; `askers`: the other side, if a room is for whichever group asks first.
        """
        self.keys, self.first, self.ordered, self.askers = keys, first, ordered, askers
        self.place = {key: k for k, key in enumerate(keys)} | {keys[k]: k for k in mine}
        #: by the identity of a value that was put back: the value, and what it was frozen as; most steps leave most
        #: values as they are
        self.frozen: dict[int, tuple[Any, Any]] = {}

    def peer(self, k: int, member: int) -> int:
        """This rank of the room's other group, as ranks of that side are counted; its link is the next number."""
        return self.first[k] + member

    def follow(self, rooms: Iterable[tuple[int, Any]]) -> None:
        """Take the group that has asked for a room's other group, where rooms are for whichever asks first."""
        if self.askers is not None:
            asked = {k: value.facts.claim.group for k, value in rooms}
            self.first = tuple(self.askers.first(asked.get(k) or self.askers.number) for k in range(len(self.first)))

    @staticmethod
    def grant(k: int, chunk: int) -> int:
        return 1 + k * 256 + chunk


def _room(value: Any) -> Any:
    work = value.work
    if value.state._name_ in FAILED:  # `name` is a property, and takes as long as all else here
        prefill, cause = isinstance(work, PWork), work.cause
        kept = PWork(cause=cause, owned=work.owned) if prefill else DWork(cause=cause, untold=work.untold)
        return replace(value, due=INFINITY, peers=0, work=kept)
    if work is not None and work.tries:
        work = replace(work, tries=0)
    return replace(value, due=INFINITY, work=work)


def _send(value: Any) -> Any:
    lease, begin_by = (0.0 if not until else 30.0 if until > 0 else -1.0 for until in (value.lease, value.begin_by))
    asked, first = lately(value.asked), lately(value.first)
    pages = value.pages if value.state in (PSend.AWAIT_PAGES_KV, PSend.AWAIT_PERMIT) else b""
    grant, to = 1 if value.grant else 0, Target() if value.state is PSend.DRAINING else value.to
    return replace(
        value, due=INFINITY, to=to, tries=0, mark=0, asked=asked, first=first, lease=lease, begin_by=begin_by,
        grant=grant, pages=pages,
    )


def _write(value: Any) -> Any:
    until = 0.0 if value.state is not PWrite.POSTING else 30.0 if value.until > 0 else -1.0
    return replace(value, until=until)


def _link(value: Any) -> Any:
    calm = {"trial": 0} if isinstance(value, DLinkValue) else {}
    return replace(value, due=INFINITY, silent=0, **calm)


def plain(value: Any) -> Any:
    """Return the kept part of one machine's value."""
    if isinstance(value, PSendValue):
        return _send(value)
    if isinstance(value, PWriteValue):
        return _write(value)
    if isinstance(value, PLinkValue | DLinkValue):
        return _link(value)
    return _grant(value, 1) if isinstance(value, DGrantValue) else _room(value)


def _grant(value: Any, name: int) -> Any:
    return replace(value, due=INFINITY, grant=name if value.grant else 0)


class Forms(NamedTuple):
    """The kept part of each kind of value."""

    room: Callable[[Any], Any]
    send: Callable[[Any], Any]
    write: Callable[[Any], Any]
    link: Callable[[Any], Any]
    grant: Callable[[Any], Any]


#: where time has no numbers
UNTIMED = Forms(_room, _send, _write, _link, lambda value: _grant(value, 1))


def _unchanged(names: Names, forms: Forms) -> dict[int, tuple[Any, Any]]:
    """Return what need not be frozen again; where time has numbers, all has grown older."""
    return names.frozen if forms is UNTIMED else {}


def _rooms(rank: Rank, names: Names, forms: Forms) -> tuple[Frozen, Frozen]:
    place, old, room = names.place, _unchanged(names, forms), forms.room
    met = [(place[key], v if id(v) in old else room(v)) for key, v in rank.rooms.items()]
    ended = [(place[key], v if id(v) in old else room(v)) for key, v in rank.tombs.items()]
    if names.ordered:
        return tuple(met), by_end(ended)
    return tuple(sorted(met, key=_first)), tuple(sorted(ended, key=_first))


_first = itemgetter(0)


def by_end(tombs: Iterable[tuple[int, Any]]) -> Frozen:
    """Order tombstones by place, but first those that a new link reports, in the order of their ends."""
    return tuple(sorted(tombs, key=lambda tomb: -1 if getattr(tomb[1].work, "untold", 0) else tomb[0]))


def _links(rank: Rank, peers: int, forms: Forms) -> Frozen:
    """By the peer's rank; None: there is none."""
    return tuple([forms.link(rank.links[i + 1]) if i + 1 in rank.links else None for i in range(peers)])


def _thawed_rooms(names: Names, rooms: Frozen, tombs: Frozen) -> dict[str, Any]:
    keys = names.keys
    names.frozen = {id(v): (v, v) for _, v in (*rooms, *tombs)}
    return {"rooms": {keys[k]: v for k, v in rooms}, "tombs": OrderedDict([(keys[k], v) for k, v in tombs])}


def freeze_prefill(rank: PrefillRank, names: Names, peers: int, forms: Forms = UNTIMED) -> Frozen:
    """Freeze a prefill rank.

    The parts are (rooms, tombs, links, terms, sends, free slots, slots held, queue for slots, waiting for a mark,
    writes, permits held, queue for them, a link's queue for credits).
    """
    place, keep, old = names.place, forms.send, _unchanged(names, forms)
    names.follow((place[key], value) for key, value in (*rank.rooms.items(), *rank.tombs.items()))
    links = _links(rank, peers, forms)
    known = tuple((rank.peers[d + 1].terms,) if d + 1 in rank.peers else None for d in range(peers))
    writes = tuple(sorted((place[key], at, forms.write(v)) for (key, at), v in rank.writes.items()))
    seen = {d: _mark(rank.links[d + 1]) for d in range(peers) if d + 1 in rank.links}

    def sent(k: int, at: int, v: Any) -> Any:
        known = v.mark == seen.get(names.peer(k, at & 0xFFFF), 0)
        if id(v) in old and (before := old[id(v)][1]).mark == known:
            return before
        return replace(keep(v), mark=known)

    sends = tuple(sorted(
        [
            (place[key], tuple([(at, sent(place[key], at, v)) for at, v in group.items()]))
            for key, group in rank.sends.items()
        ], key=_first,
    ))  # fmt: skip
    held = tuple(sorted([(place[k], c, p, slot) for (k, c, p), slot in rank.slot_of.items()]))
    queue = tuple([(place[k], c, p) for k, c, p in rank.slot_queue])
    heaps = [rank.watch.get(d + 1, ()) for d in range(peers)]
    watch = tuple([tuple(sorted([(r, e, place[k], c, p) for r, e, k, c, p in heap])) if heap else () for heap in heaps])
    permits = tuple(sorted([(place[k], c, p) for k, c, p in rank.permits]))
    waiting = tuple([(place[k], c, p) for k, c, p in rank.permit_queue])
    free = tuple(sorted(rank.free_slots))
    queues = tuple([tuple([(place[k], c, p) for k, c, p in rank.credit_queues.get(d + 1, ())]) for d in range(peers)])
    rooms = _rooms(rank, names, forms)
    return (*rooms, links, known, sends, free, held, queue, watch, writes, permits, waiting, queues)


def _mark(link: Any) -> int:
    """Return the watermark that a send's timer carries."""
    return int(link.mark_round << 48 | link.mark_tail)


def _marked(names: Names, parts: Frozen, links: Frozen) -> dict[int, Any]:
    """Return a room's sends with their watermarks: the link's, or an older; `links` of the room's group."""
    marks = [_mark(link) if link is not None else 0 for link in links]
    made = {at: replace(v, mark=marks[at & 0xFFFF] if v.mark else -1) for at, v in parts}
    for at, v in parts:
        names.frozen[id(made[at])] = made[at], v
    return made


def thaw_prefill(
    rank: PrefillRank, names: Names, frozen: Frozen, others: Side, plan: Any, placed: Sequence[Placement | None] = ()
) -> None:  # fmt: skip
    """Make `rank` what was frozen; `others`: the decode ranks; `placed`: what each tells of its pool."""
    rooms, tombs, links, known, sends, free, held, queue, watch, writes, permits, waiting, queues = frozen
    keys = names.keys
    names.follow((*rooms, *tombs))
    asked: dict[int, set[SendKey]] = {}
    for k, parts in sends:
        for at, send in parts:
            if send.state is PSend.AWAIT_GRANT:
                asked.setdefault(names.peer(k, at & 0xFFFF) + 1, set()).add((keys[k], at >> 16, at & 0xFFFF))

    def waits(some: Frozen) -> FairQueue:
        return FairQueue(((keys[k], c, p) for k, c, p in some), rank.slot_queue.link)

    # where the rank has stopped, the search may go on from before
    rank.restore(PrefillValue(
        **_thawed_rooms(names, rooms, tombs),
        heard_by=rank.heard_by, next_link=rank.next_link, next_epoch=rank.next_epoch,
        slot_queue=rank.slot_queue, permit_queue=rank.permit_queue,
        unclaimed={keys[k] for k, v in rooms if v.state is PRoom.AWAIT_ENGINE},
        links={d + 1: v for d, v in enumerate(links) if v is not None},
        peers={
            d + 1: LinkPeer(
                others.group(d), others.member(d), plan if peer[0] else None, peer[0],
                placement=placed[d] if placed else None,
            )
            for d, peer in enumerate(known)
            if peer is not None
        },
        writes={(keys[k], at): v for k, at, v in writes},
        sends={keys[k]: _marked(names, parts, links[names.peer(k, 0) :]) for k, parts in sends},
        free_slots=list(free), slot_of={(keys[k], c, p): slot for k, c, p, slot in held},
        permits={(keys[k], c, p) for k, c, p in permits}, credits=asked,
        credit_queues={
            d + 1: OrderedDict(((keys[k], c, p), None) for k, c, p in asking)
            for d, asking in enumerate(queues)
            if asking
        },
        watch={d + 1: [(r, e, keys[k], c, p) for r, e, k, c, p in heap] for d, heap in enumerate(watch)},
    ), timers=False)  # fmt: skip
    # these ask the rank, as it is now, which link a send goes by
    rank.slot_queue, rank.permit_queue = waits(queue), waits(waiting)


def freeze_decode(rank: DecodeRank, names: Names, peers: int, forms: Forms = UNTIMED) -> Frozen:
    """(rooms, tombs, links, grants, ring's round and head and whose turn it is, regions, queue for space)."""
    place, ring = names.place, rank.ring
    links = _links(rank, peers, forms)
    grants = tuple(
        (place[key], tuple((c, forms.grant(v)) for c, v in group.items()))
        for key, group in sorted(rank.grants.items(), key=lambda item: place[item[0]])
    )
    regions = tuple(
        (*_owner(rank, names, grant), r.round, r.offset, r.end, grant in ring.freed, grant in ring.blocked)
        for grant, r in ring.live.items()
    )
    queue = tuple((place[key], c, size) for (key, c), size in rank.space_queue.items())
    where = ring.round, ring.head, getattr(ring, "tail", None), rank.space_turns.passed
    return (*_rooms(rank, names, forms), links, grants, where, regions, queue)


def _owner(rank: DecodeRank, names: Names, grant: int) -> tuple[int, int]:
    key, chunk = rank.chunk_of.get(grant, (-1, -1))
    return names.place.get(key, -1), chunk


def thaw_decode(rank: DecodeRank, names: Names, frozen: Frozen) -> None:
    """Make `rank` what was frozen; its peers stay as they are."""
    rooms, tombs, links, grants, (round_, head, tail, passed), regions, queue = frozen
    keys, ring = names.keys, rank.ring
    ring.round, ring.head, ring.next_grant, rank.space_turns.passed = round_, head, 1 << 20, passed
    ring.live, ring.freed, ring.blocked, chunk_of = {}, set(), {}, dict[int, tuple[int, int]]()
    ring.__dict__.pop("tail", None)
    if tail is not None:
        ring.__dict__["tail"] = tail  # a mutant remembers more than the ring itself does
    for at, (k, c, r, offset, end, freed, blocked) in enumerate(regions):
        grant = names.grant(k, c) if k >= 0 else (1 << 19) + at
        ring.live[grant] = RingRegion(grant, r, offset, end)
        if freed:
            ring.freed.add(grant)
        if blocked:
            ring.blocked[grant] = ring.live[grant]
        if k >= 0:
            chunk_of[grant] = keys[k], c
    kept = _thawed_rooms(names, rooms, tombs)
    space = SpaceQueue()
    for k, c, size in queue:
        space.put((keys[k], c), size, kept["rooms"][keys[k]].tokens)
    rank.restore(DecodeValue(
        **kept, peers=rank.peers, writes=rank.writes, heard_by=rank.heard_by, next_link=rank.next_link,
        ring=ring, space_turns=rank.space_turns,
        links={p + 1: v for p, v in enumerate(links) if v is not None},
        grants={
            keys[k]: {c: replace(v, grant=names.grant(k, c)) if v.grant else v for c, v in group} for k, group in grants
        },
        chunk_of=chunk_of, space_queue=space,
    ), timers=False)  # fmt: skip
