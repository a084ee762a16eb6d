"""What is checked: the size of a world, how its network behaves, and how much may go wrong in it.

A `Config` is a value.  Its *budgets* say how often each kind of trouble may happen in one behaviour; a search is
exhaustive up to them.  Two kinds are no faults but early clocks: `early` (a timer that repeats a message ends although
the link is busy) and `late` (a gather or a forward ends after the lease).

Time has no numbers here.  Without budget a short timer (it repeats a message, or gives the ring up) ends only when
nothing is on its link, which is what periods that are long against a round trip amount to.  A long one that waits for
somebody who may be gone (engine, bootstrap, call, return) ends after a hard fault, when nothing else moves.  The other
long ones (stall, lease, kernel, write, wire, forget, a last try) end only for a `timeout`.  So a wait that nothing but
a long timer would end is found as a stuck state.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from kvproto.fsm.network import Net
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol.events import room_key
from kvproto.rank.settings import Settings

#: faults after which long timers may end by themselves when nothing else moves
HARD = frozenset({"crash", "link", "leave"})

UNIT = 256  #: bytes of a ring unit: one head of one chunk
GRID = 2  #: tokens a chunk: one page of a decode rank, two of a prefill rank, so that nothing goes page to page
FIRST_ROOM = 100


class Budget(msgspec.Struct, frozen=True):
    """How often each may happen in one behaviour."""

    drop: int = 0
    duplicate: int = 0
    early: int = 0
    late: int = 0
    abort: int = 0
    crash: int = 0
    link: int = 0
    timeout: int = 0
    write: int = 0
    kernel: int = 0
    doubt: int = 0
    slow: int = 0
    #: a decode engine lets go of the prefill group
    leave: int = 0


#: what a budget can be spent on
KINDS: tuple[str, ...] = Budget.__struct_fields__


class Config(msgspec.Struct, frozen=True):
    """A world; sizes of the ring in units of one head of one chunk."""

    prefills: int = 1
    decodes: int = 1
    rooms: int = 1
    #: how often each room id is used, each time with a new gen
    lives: int = 1
    chunks: int = 2
    #: tokens that the decode side has already
    prefix: int = 0
    #: pipeline stages of the prefill side (they cut the layers; with one, its ranks cut the heads)
    stages: int = 1
    #: KV heads; 0: as many as the larger group has ranks
    heads: int = 0
    ring: int = 2
    slots: int = 1
    window: int = 2
    ahead: int = 2
    #: units of a part, each of which lands by itself
    pieces: int = 1
    net: Net = "fifo"
    pages_only: bool = False
    #: a staged write carries its own notification: it arrives at any moment after the last piece has landed
    tells: bool = False
    #: a batch of a write is ready in a step of its own (else as soon as it may be)
    preparing: bool = False
    #: batches of a write over pages, each of one piece
    batches: int = 1
    #: kernels and writes take no time: only calls, messages and timers interleave (not for the smaller worlds)
    swift: bool = False
    #: everything goes by a fixed order, but for `slow` (see `delay_bounded`)
    hasty: bool = False
    #: links are up when it begins; else the handshake is part of it
    wired: bool = True
    #: what does not fit: a decode rank's first life runs other tables; or the engines name other lengths
    misfit: Literal["", "tables", "length"] = ""
    #: what crashed comes back
    restart: bool = True
    #: rooms that are over and remembered, a rank
    tombstones: int = 4096
    #: tokens that the last chunk is short of the grid
    short: int = 0
    #: sends never give the ring up: whether the ring gets there alone
    patient: bool = False
    #: rooms that the prefill engine can have computed and not given back; 0: any number
    memory: int = 0
    #: the engine's calls, those of one word in one go ("open+schedule"); "produce" may come up to once a chunk
    engine: tuple[str, ...] = ("open+schedule", "produce", "produce", "aux")
    budget: Budget = Budget()
    #: the search keeps the graph and asks whether every way ends
    live: bool = True
    #: give up beyond so many states
    limit: int = 20_000_000
    #: what must, and what must not, be seen in it
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    about: str = ""

    @property
    def tokens(self) -> int:
        """Length of each room's prompt."""
        return self.prefix + self.chunks * GRID - self.short

    @property
    def keys(self) -> tuple[int, ...]:
        """The room keys, all first lives first."""
        return tuple(room_key(FIRST_ROOM + k % self.rooms, k // self.rooms) for k in range(self.rooms * self.lives))

    @property
    def plan(self) -> Plan:
        """Who writes what to whom."""
        return Plan(self.prefill_layout, self.decode_layout, GRID)

    @property
    def prefill_layout(self) -> Layout:
        """The layout of the prefill ranks."""
        return self._layout(self.prefills // self.stages, self.stages, 1)

    @property
    def decode_layout(self) -> Layout:
        """The layout of the decode ranks."""
        return self._layout(self.decodes, 1, GRID)

    def _layout(self, tp: int, pp: int, page: int) -> Layout:
        heads = self.heads or max(self.prefills // self.stages, self.decodes)
        dim = UNIT * self.pieces // GRID // 2  # elements of two bytes: `pieces` units a chunk
        return Layout(
            layers=self.stages, heads=heads, k_dim=dim, v_dim=0, itemsize=2, dtype="bfloat16", page_size=page,
            tp=tp, pp=pp,
        )  # fmt: skip

    @property
    def settings(self) -> Settings:
        """What every rank is started with."""
        return Settings(
            window=self.window, slots=self.slots, ring_bytes=self.ring * UNIT, ahead=self.ahead,
            pages_only=self.pages_only, tombstones=self.tombstones, trace=64,
        )  # fmt: skip
