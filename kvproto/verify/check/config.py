"""Config: the size of a world, the behaviour of its network, and the budgets of faults in it.

A `Config` is a value. Its *budgets* say how often each kind of trouble may happen in one behaviour; a search is
exhaustive up to them. Two kinds are no faults but early clocks: `early` (a timer that repeats a message ends although
the link is busy) and `late` (a gather or a forward ends after the lease).

Time has no numbers here. Without budget a short timer ends only when nothing is on its link; a long one that waits for
somebody who may be gone, after a hard fault, when nothing else moves; the other long ones only for a `timeout`. So a
wait that nothing but a long timer would end is found as a stuck state.
"""

from __future__ import annotations

from itertools import islice, permutations
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from kvproto.fsm.timing import Timer
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.costs import PROFILES
from kvproto.layout.cut import chunks
from kvproto.layout.placement import Placement, dense
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol.events import room_key
from kvproto.protocol.timing import Timing
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.check.sides import Side, ids, parties
from kvproto.verify.framework.network import Net

#: faults after which long timers may end by themselves when nothing else moves
HARD = frozenset({"crash", "link", "leave", "close"})

UNIT = 256  #: bytes of a ring unit: one head of one layer of one cell
CHUNK_TOKENS = 2  #: tokens a chunk: one page of a decode rank, two of a prefill rank, so that pages have two pieces
FIRST_ROOM = 100


#: bounds of what a recorded counterexample may ask for, beyond any world that can be searched: one is made of it
MANY = 8  #: no world has so many sends at a time
Few = Annotated[int, msgspec.Meta(ge=0, le=8)]
Some = Annotated[int, msgspec.Meta(ge=1, le=8)]
#: a world knows every order of its rooms
Rooms = Annotated[int, msgspec.Meta(ge=1, le=4)]
WORDS = "open|schedule|produce|withdraw|withdrawn|finish|aux"
LayersOf = Annotated[tuple[Few, ...], msgspec.Meta(max_length=4)]
EngineCalls = Annotated[str, msgspec.Meta(max_length=64, pattern=f"^({WORDS}|[+])+$")]
EngineScript = Annotated[tuple[EngineCalls, ...], msgspec.Meta(max_length=8)]


#: the timers of a timed world: the defaults, but that who is gone for good is forgotten sooner
TIMED = Timing(forget=Timer(60.0))
#: in a world without numbers for time: pages as dear as the ring; a piece that costs, so pages do; or the kernels
FREE = PROFILES["free"]
COSTS = {"even": FREE, "dear pages": replace(FREE, piece=1.0), "dear ring": replace(FREE, launch=1.0)}


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often each may happen in one behaviour."""

    drop: Few = 0
    duplicate: Few = 0
    early: Few = 0
    late: Few = 0
    abort: Few = 0
    crash: Few = 0
    link: Few = 0
    timeout: Few = 0
    write: Few = 0
    kernel: Few = 0
    doubt: Few = 0
    #: a decode engine lets go of the prefill group
    leave: Few = 0
    #: a prefill engine says no to a room, whether or not it has opened it
    refuse: Few = 0
    #: a rank says goodbye on all of its links, as if it were closed
    close: Few = 0
    slow: Few = 0
    #: a decode engine is made to name an address where nobody is
    address: Few = 0


#: what a budget can be spent on
KINDS: tuple[str, ...] = Budget.__struct_fields__


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A world; sizes of the ring in units of one head of one layer of one cell."""

    #: ranks of a group
    prefills: Some = 1
    decodes: Some = 1
    #: groups of each side, every one of them linked to all of the other side
    prefill_groups: Some = 1
    decode_groups: Some = 1
    #: the first prefill group and the second decode group are the roles of one process, and the other two of another: a
    #: process ends, returns and says goodbye in both, and rooms go from each process to the other one
    both_ways: bool = False
    rooms: Rooms = 1
    #: how often each room id is used, each time with a new gen
    lives: Rooms = 1
    #: cells that a room moves, each in so many layer groups: a chunk is one group of one cell
    chunks: Few = 2
    layer_groups: Some = 1
    #: layers of a pipeline stage; groups are unequal if they do not divide it
    layers: Some = 1
    #: layers of the model with state, each a chunk of its own, and those with KV (none named: all)
    state: LayersOf = ()
    full: LayersOf = ()
    #: the last tokens of a cell that is short are one chunk with the state
    joint: bool = False
    #: state has a way over pages, too: into the decode rank's slots
    open_end: bool = False
    #: but not for these prefill ranks, which have a room's state in several slots
    closed_ends: LayersOf = ()
    #: tokens that the decode side has already
    prefix: Few = 0
    #: pipeline stages of the prefill side (they cut the layers; with one, its ranks cut the heads)
    stages: Some = 1
    #: KV heads; 0: as many as the larger group has ranks
    heads: Few = 0
    ring: Some = 2
    slots: Some = 1
    #: requests of a prefill rank to one decode rank that are not answered yet
    requests: Some = MANY
    #: sends of a prefill rank that write page to page at a time
    page_writes: Some = MANY
    window: Some = 2
    ahead: Few = 2
    #: units of a part's layer, each of which lands by itself
    pieces: Some = 1
    net: Net = "fifo"
    #: "staged": pools are closed, so there is no way over pages
    route: Literal["cost", "pages", "staged"] = "cost"
    #: both sides have heads and pages alike
    alike: bool = False
    #: what the routes cost: the same, or one of them more than the other
    costs: Literal["even", "dear pages", "dear ring"] = "even"
    #: a staged write carries its own notification: it arrives at any moment after the last piece has landed
    native_notify: bool = False
    #: a batch of a write is ready in a step of its own (else as soon as it may be)
    preparing: bool = False
    #: batches of a write over pages, each of one piece
    batches: Some = 1
    #: kernels and writes take no time: only calls, messages and timers interleave (not for the smaller worlds)
    swift: bool = False
    #: everything goes by a fixed order, but for `slow` (see `delay_bounded`)
    hasty: bool = False
    #: links are up when it begins; else the handshake is part of it
    wired: bool = True
    #: the first life of the first decode group is a newer build: it speaks one wire version more, tells of other
    #: tables, and names agreements and capabilities that are not known here
    newer: bool = False
    #: what does not fit: the first life of the first decode group speaks no common version, or has other leases; or the
    #: ranks of another build do not fit as they are (`mixed_builds`); or the engines name other lengths, or secrets; or
    #: all rooms have one id, and the prefill engine means the first one; or all decode groups have one name; or all ask
    #: for the same room, and the prefill engine means any of them
    misfit: Literal["", "version", "lease", "build", "length", "secret", "claim", "name", "anyone"] = ""
    #: what crashed comes back
    restart: bool = True
    #: in a timed world: a prefill rank that comes back listens at another address, which engines name later
    moves: bool = False
    #: rooms that are over and remembered, a rank
    tombstones: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)] = 4096
    #: tokens that the last chunk is short of a whole chunk
    short: Annotated[int, msgspec.Meta(ge=0, lt=CHUNK_TOKENS)] = 0
    #: sends never give the ring up: whether the ring gets there alone
    patient: bool = False
    #: rooms that the prefill engine can have computed and not given back; 0: any number
    memory: Few = 0
    #: the engine's calls, those of one word in one go ("open+schedule"); "produce" may come up to once a chunk;
    #: "withdraw" takes all KV back, and "withdrawn" is when the engine has heard that nothing of it is read
    engine: EngineScript = ("open+schedule", "produce", "produce", "aux")
    budget: Budget = Budget()
    #: time has numbers, and timers end when they are due (see `timed_world`)
    timed: bool = False
    #: in it, seconds between two calls of a prefill engine for one room (at once: 0)
    pace: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 0
    #: in a timed world: rooms of the same groups are opened while others are at work
    abreast: bool = False
    #: in it, what is said on a link that is slow may be held up until so many timers have ended: its peer is silent
    silence: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    #: the connection to a rank stands although nothing is heard of it, even when its process is dead: a proxy holds it
    stands: bool = False
    #: a decode engine may announce a room before it opens it
    announce: bool = False
    #: the search keeps the graph and asks whether every way ends
    live: bool = True
    #: give up beyond so many states
    limit: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 40_000_000
    #: what must, and what must not, be seen in it
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    about: str = ""

    @property
    def tokens(self) -> int:
        """Length of each room's prompt."""
        return self.prefix + self.chunks * CHUNK_TOKENS - self.short

    @property
    def sends(self) -> int:
        """Chunks of a room: each cell once for each layer group, and those of its state, unless it is joint."""
        plan = self.plan
        return chunks(
            self.tokens, self.prefix, CHUNK_TOKENS, self.layer_groups, plan.state_groups, plan.joint_tokens
        )  # fmt: skip

    def opens_end(self, writer: int) -> bool:
        """Whether this prefill rank has a way for state over pages."""
        return self.open_end and writer not in self.closed_ends

    def placement(self, layout: Layout, rank: int) -> Placement | None:
        """Return what a rank tells of its pool; None: that it is as its layout says, and state is staged."""
        ends = tuple(dense(end, rank) for end in layout.ends) if self.open_end else ()
        return replace(dense(layout, rank), ends=ends) if ends else None

    @property
    def keys(self) -> tuple[int, ...]:
        """The room keys, all first lives first; rooms that no two groups share have one id."""
        one = self.rooms if self.misfit == "claim" else ids(*self.sides)
        places = range(self.rooms * self.lives)
        return tuple(room_key(FIRST_ROOM + k % self.rooms // one, k // self.rooms) for k in places)

    @property
    def sides(self) -> tuple[Side, Side]:
        prefill = Side(PREFILL_GROUP, self.prefills, self.prefill_groups)
        return prefill, Side(DECODE_GROUP, self.decodes, self.decode_groups, self.misfit == "name")

    @property
    def parties(self) -> tuple[tuple[int, int], ...]:
        """By room: its prefill and its decode group, counted from 0."""
        if self.both_ways:
            return tuple((k % 2, k % 2) for k in range(self.rooms * self.lives))
        return tuple(parties(k, *self.sides) for k in range(self.rooms * self.lives))

    @property
    def several_groups(self) -> bool:
        """Tell whether a side has several groups: a fault of one group then excuses no room of another."""
        return self.prefill_groups * self.decode_groups > 1

    @property
    def unfit(self) -> tuple[int, ...]:
        """The rooms that may fail because of what does not fit, where that is not the same for all groups."""
        places = range(self.rooms * self.lives)
        if self.misfit == "claim":
            return tuple(k for k in places if k)
        if self.misfit == "name":
            return tuple(places)
        return tuple(k for k in places if self.misfit and not self.parties[k][1]) if self.several_groups else ()

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """(prefill, decode) of each link, as ranks of a side are counted."""
        prefill, decode = self.sides
        linked = {d: self.plan.linked_to(d) for d in range(decode.ranks)}
        return tuple(
            (group * prefill.ranks + p, d)
            for d in range(decode.everyone)
            for group in range(prefill.groups)
            for p in linked[decode.member(d)]
            if not self.both_ways or group == d // decode.ranks  # a process has no link with itself
        )

    def peers(self, side: int, index: int) -> tuple[int, ...]:
        """Return the ranks of the other side that this rank of a side has links with."""
        return tuple(pair[1 - side] for pair in self.links if pair[side] == index)

    @property
    def exchanges(self) -> tuple[tuple[int, ...], ...]:
        """Return each exchange of rooms of one life between the same groups, as the new place of each place.

        There is none where a fixed order knows numbers.
        """
        if self.rooms == 1 or self.hasty or self.timed:
            return ()
        of, count = self.parties, self.rooms
        orders = islice(permutations(range(count)), 1, None)
        swaps = (tuple(life * count + new for life in range(self.lives) for new in order) for order in orders)
        return tuple(swap for swap in swaps if all(of[k] == of[new] for k, new in enumerate(swap)))

    @property
    def exchanges_rooms(self) -> bool:
        """Whether of states that differ by an exchange of rooms one is kept."""
        return bool(self.exchanges)

    @property
    def keeps_order(self) -> bool:
        """Tell whether a rank's value keeps the order in which it met its rooms, as links come and go."""
        comes_and_goes = any(getattr(self.budget, kind) for kind in (*HARD, "timeout"))
        return self.exchanges_rooms and bool(comes_and_goes or self.misfit or not self.wired)

    @property
    def forgets(self) -> bool:
        """Whether a room that is over may be forgotten while the other side still speaks of it."""
        return self.tombstones < self.rooms * self.lives

    @property
    def plan(self) -> Plan:
        return Plan(self.prefill_layout, self.decode_layout, CHUNK_TOKENS)

    @property
    def prefill_layout(self) -> Layout:
        return self._layout(self.prefills // self.stages, self.stages, CHUNK_TOKENS if self.alike else 1)

    @property
    def decode_layout(self) -> Layout:
        return self._layout(self.decodes, 1, CHUNK_TOKENS)

    def _layout(self, tp: int, pp: int, page: int) -> Layout:
        heads = self.heads or max(self.prefills // self.stages, self.decodes)
        dim = UNIT * self.pieces // CHUNK_TOKENS // 2  # elements of two bytes: `pieces` units a layer
        if self.state:
            kv, state = CachePart("k", heads, 2 * dim), CachePart("state", heads, UNIT * self.pieces)
            caches = Cache("kv", (kv,), self.full), Cache("state", (state,), self.state, "", END, len(self.state))
            layers = self.stages * self.layers
            return Layout.of_caches(caches, layers=layers, page_size=page, tp=tp, pp=pp, joint=self.joint)
        return Layout(
            layers=self.stages * self.layers, heads=heads, k_dim=dim, v_dim=0, itemsize=2, dtype="bfloat16",
            page_size=page, tp=tp, pp=pp,
        )  # fmt: skip

    @property
    def settings(self) -> Settings:
        return Settings(
            window=self.window, slots=self.slots, page_writes=self.page_writes,
            max_unanswered_requests=self.requests, ring_bytes=self.ring * UNIT, ring_rounds_ahead=self.ahead,
            route=self.route, costs=COSTS[self.costs], timing=TIMED if self.timed else Timing(),
            tombstones=self.tombstones, trace=64,
        )  # fmt: skip
