"""Takeover plan: rooms whose decode or prefill instance is killed, as a pure function of the seed.

One side survives, with two ranks; the other is killed at the end of each of its *lives*, and comes back as another
instance: with another group, and with one rank where it had two.  In each life so many new rooms begin, and those of
the life before go on.  Whatever a room has done when the kill comes, it is under way: a prefill engine keeps the aux
row of every other room back in its first life.  So every room has at least one kill, during the transfer or when all
of its KV has arrived, and where decode is killed also when it had succeeded.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import replace

from kvproto.fsm.timing import Timer
from kvproto.lab.torture.fleet import CHUNK_TOKENS, DIM, HEADS, ITEMSIZE, LAYERS, TRACE
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings

Victim = Literal["decode", "prefill"]
VICTIMS: tuple[Victim, ...] = ("decode", "prefill")
TakeoverSide = Literal["P", "D"]
SIDES: tuple[TakeoverSide, TakeoverSide] = ("P", "D")

ROW = DIM * ITEMSIZE
#: bytes of one token in the whole model
TOKEN_BYTES = 2 * LAYERS * HEADS * ROW
#: ranks of the side that survives, and of the other in odd and in even lives
SURVIVORS, LIVES = 2, (2, 1)
#: new rooms of a life; and pages, in units of the larger ones, for those that a kill has hit twice or more
NEW, LONGEST = 100, 7
PAGES = 6 * NEW * LONGEST
#: how many of the lives do not wait for the rooms that go on: these are killed once more
HASTY = 0.2
#: how many rooms find a replacement that computes other KV than the prefill instance that was killed
OTHER_KV = 0.15
#: lease, and longest write, by victim: a decode rank whose peer was killed waits for both before it releases, each life
PATIENCE: dict[Victim, Timer] = {"decode": Timer(20.0), "prefill": Timer(5.0)}
# A dead peer is noticed within two seconds. What a busy machine keeps waiting has all the time that it may want:
# what is looked for here is not how a room fails. Requests that are repeated back off: those of some hundred rooms, all
# ten times a second, would keep a slow pair from anything else until an outbox is full.
TIMING = Timing(
    resend=Timer(0.1, 200, 2.0), grant_retry=Timer(0.1, 5), call=Timer(0.1, 2000), engine=Timer(200.0),
    bootstrap=Timer(200.0), stall=Timer(200.0), kernel=Timer(20.0), connect_timeout=Timer(20.0),
    heartbeat=Timer(0.25, 6), silence=Timer(60.0), forget=Timer(60.0), aux=Timer(200.0),
)  # fmt: skip


class TakeoverRoom(msgspec.Struct, frozen=True):
    """A room: the prefill engine's steps in its first life, as (seconds after the last one, tokens)."""

    number: int
    id: int
    tokens: int
    seed: int
    steps: tuple[tuple[float, int], ...]
    #: the prefill engine gives the aux row in the first life, too
    aux: bool
    #: the replacement of its prefill instance computes other KV
    other_kv: bool
    #: what has arrived is overwritten by the judge, so that a byte that is written again is seen
    marked: bool


class TakeoverPlan(msgspec.Struct, frozen=True):
    """A whole run."""

    seed: int
    rooms: int
    victim: Victim

    @property
    def victims(self) -> TakeoverSide:
        return "D" if self.victim == "decode" else "P"

    @property
    def survivors(self) -> TakeoverSide:
        return "P" if self.victims == "D" else "D"

    def layout(self, side: TakeoverSide, life: int) -> Layout:
        """Return the layout of a side's instance in this life of the side that is killed."""
        tp = LIVES[life % 2] if side == self.victims else SURVIVORS
        page = 16 if side == "P" else 16 << random.Random(f"{self.seed} page").randrange(2)
        return Layout(
            layers=LAYERS, heads=HEADS, k_dim=DIM, v_dim=DIM, itemsize=ITEMSIZE, dtype="bfloat16", page_size=page, tp=tp
        )  # fmt: skip

    def group(self, side: TakeoverSide, life: int) -> int:
        return {"P": 1, "D": 2}[side] + (10 * life if side == self.victims else 0)

    def room(self, number: int) -> TakeoverRoom:
        return _room(self.seed, number, decode_dies=self.victim == "decode")

    def moment(self, life: int) -> tuple[float, bool]:
        """Return which share of the new rooms' tokens has arrived at a life's kill, and if it is patient.

        A patient one waits for the rooms that go on to be over.
        """
        dice = random.Random(f"{self.seed} life {life}")
        return dice.choice((0.0, dice.uniform(0.0, 0.3), dice.random(), 1.0)), dice.random() >= HASTY

    def settings(self) -> Settings:
        """Return the settings of every rank: a ring of a few chunks, for many rooms."""
        dice = random.Random(f"{self.seed} settings")
        chunk = CHUNK_TOKENS * TOKEN_BYTES
        return Settings(
            timing=replace(TIMING, lease=PATIENCE[self.victim], write=PATIENCE[self.victim]),
            ring_bytes=dice.choice((2, 4, 16)) * chunk, slots=dice.choice((1, 2, 4)),
            trace=TRACE, window=dice.randint(1, 4), costs="free", route=dice.choice(("cost", "cost", "pages")),
        )  # fmt: skip


@lru_cache(maxsize=4096)
def _room(seed: int, number: int, *, decode_dies: bool) -> TakeoverRoom:
    dice = random.Random(f"{seed} takeover {number}")
    tokens = dice.choice((dice.randint(1, 32), dice.randint(33, 120), dice.randint(33, LONGEST * 32)))
    uptos = sorted({*dice.sample(range(1, tokens + 1), min(tokens, dice.randint(0, 4))), tokens})
    steps = tuple((round(dice.choice((0.0, dice.uniform(0.0, 0.15))), 4), upto) for upto in uptos)
    other_kv = not decode_dies and dice.random() < OTHER_KV
    base = random.Random(f"{seed} ids").getrandbits(62)
    return TakeoverRoom(
        number, base + number, tokens, dice.getrandbits(48), steps, decode_dies and number % 2 == 0, other_kv,
        dice.random() < 0.5,
    )  # fmt: skip
