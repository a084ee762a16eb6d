"""Fleet: two prefill groups and two decode groups, every decode rank linked to every prefill rank.

Group 1 has two prefill ranks, group 2 one; group 11 two decode ranks, group 12 one. Rooms go all four *ways* at once,
and two rooms of opposite ways always have the same name, so ranks of foreign groups speak of one's rooms all the time.
The seed chooses layouts, slots, ring, window, and a clock for each rank: its origin, and a rate up to 3 % off. Timers
are short, in the order of the defaults.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from kvproto.fsm.timing import Timer
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings

Carrier = Literal["nixl-tcp", "nixl-shm", "mooncake"]
CARRIERS: tuple[Carrier, ...] = ("nixl-tcp", "nixl-shm", "mooncake")
GroupWay = tuple[int, int]  #: (prefill group, decode group)

PREFILL, DECODE = (1, 2), (11, 12)
WAYS: tuple[GroupWay, ...] = ((1, 11), (2, 12), (1, 12), (2, 11))
#: by group: how its ranks are called
NAMES = {1: ("P0", "P1"), 2: ("Q0",), 11: ("D0", "D1"), 12: ("E0",)}
GROUP_OF = {name: (group, index) for group, names in NAMES.items() for index, name in enumerate(names)}
PREFILL_RANKS = (*NAMES[1], *NAMES[2])
DECODE_RANKS = (*NAMES[11], *NAMES[12])
CableName = tuple[str, str]  #: (decode rank, prefill rank)

CHUNK_TOKENS, HEADS, LAYERS, DIM, ITEMSIZE = 32, 4, 2, 8, 2
#: (prefill tp, prefill pp, prefill page, decode tp, decode pp, decode page) of the groups of two
SHAPES = ((2, 1, 16, 2, 1, 32), (1, 2, 16, 2, 1, 16), (2, 1, 16, 1, 2, 16), (2, 1, 16, 2, 1, 16), (1, 2, 32, 1, 2, 16))
SKEW = 0.03
# A room that nobody touches may wait behind a region whose writer has died: for silence, lease and write, and as many
# timers' quanta as there are calls meanwhile. So `stall` is longer than that, as it is by default.
TIMING = Timing(
    resend=Timer(0.1, 20), grant_retry=Timer(0.1, 5), call=Timer(0.1, 40), engine=Timer(4.0), bootstrap=Timer(4.0),
    stall=Timer(9.0), lease=Timer(2.0), write=Timer(2.0), kernel=Timer(2.0), connect_timeout=Timer(4.0),
    heartbeat=Timer(0.3, 5), silence=Timer(4.0), forget=Timer(60.0),
)  # fmt: skip
#: seconds after which a rank that says nothing counts as gone
SILENCE_S = TIMING.heartbeat.period * (TIMING.heartbeat.tries + 1)
#: a pass longer than this is told: the machine, or somebody, kept this process from running
LATE_S = 0.1
#: steps and messages that a rank's trace keeps
TRACE = 8192


class TortureFleet(msgspec.Struct, frozen=True):
    """The ranks' layouts, settings and clocks; `ring` in chunks; a clock is (seconds at the origin, rate)."""

    shape: tuple[int, int, int, int, int, int]
    slots: int
    ring: int
    window: int
    clocks: dict[str, tuple[float, float]]

    def layout(self, group: int) -> Layout:
        ptp, ppp, ppage, dtp, dpp, dpage = self.shape
        tp, pp, page = {1: (ptp, ppp, ppage), 2: (1, 1, ppage), 11: (dtp, dpp, dpage), 12: (1, 1, dpage)}[group]
        return Layout(
            layers=LAYERS, heads=HEADS, k_dim=DIM, v_dim=DIM, itemsize=ITEMSIZE, dtype="bfloat16", page_size=page,
            tp=tp, pp=pp,
        )  # fmt: skip

    def cables(self) -> tuple[CableName, ...]:
        found = []
        for d in DECODE_RANKS:
            group, index = GROUP_OF[d]
            for p in PREFILL:
                linked = Plan(self.layout(p), self.layout(group), CHUNK_TOKENS).linked_to(index)
                found += [(d, NAMES[p][rank]) for rank in linked]
        return tuple(found)

    def settings(self, name: str) -> Settings:
        group, index = GROUP_OF[name]
        ring = 1 << 20
        if group in DECODE:
            plans = [Plan(self.layout(p), self.layout(group), CHUNK_TOKENS) for p in PREFILL]
            ring = self.ring * max(plan.grant_bytes(index, Cut(0, CHUNK_TOKENS)) for plan in plans)
        return Settings(timing=TIMING, ring_bytes=ring, slots=self.slots, window=self.window, trace=TRACE, costs="free")


def make_fleet(dice: random.Random) -> TortureFleet:
    clocks = {
        name: (dice.choice((0.0, 1e4, 1e8)), round(1 + dice.uniform(-SKEW, SKEW), 4))
        for name in (*PREFILL_RANKS, *DECODE_RANKS)
    }
    shape, slots, ring = dice.choice(SHAPES), dice.choice((1, 1, 2, 4)), dice.choice((1, 2, 2, 4))
    return TortureFleet(shape, slots, ring, dice.randint(1, 4), clocks)
