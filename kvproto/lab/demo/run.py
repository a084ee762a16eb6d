"""Run: one run of the demonstration as plain values: its job, carrier and controls.

The same rooms are carried several times, in *passes*:

    live        as an engine does it: regions are asked for when the rooms arrive, chunks leave while later ones are
                still being computed, D says a room's next token as soon as the room has landed and continues the text
                when all are through. Aborts happen here, and the controls are shown to be found.
    live_pages  as live without staging, every part as small writes straight into the pages; no aborts, no controls
    staged      all KV is there and every room open before the clock runs; nothing but the transfer takes time.
    pages       the same without staging: what staging is measured against.

With `warm` the first room of each pass goes alone and is not timed: a first write maps the target's memory, a first
forward loads kernels. P's scheduler runs the forwards in batches, the shortest prompt first, so now and then the ring
is held by a room whose KV comes late while KV that is ready waits behind it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal, get_args

from kvproto.fsm.timing import Timer
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.job import DemoJob, RoomSpec
from kvproto.layout.cut import Cut, chunks
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import align_chunk_tokens
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings

Route = Literal["live", "live_pages", "staged", "pages"]
Abort = Literal["none", "prefill", "decode"]
Carrier = Literal["nixl", "mooncake"]
Staging = Literal["device", "pinned"]
GRANT_TRIES = 4
BATCH = 3  # rooms of a prefill batch
LONG_WAIT_S = 20.0  # where the staged route is measured, nothing should leave it
EVERY_STEP = 1 << 18  # trace entries a rank keeps: all of them, for runs of this size
USUAL: tuple[Route, ...] = ("live", "staged", "pages")
ROUNDED = 4096  # bytes by which the parts of a region with several caches may be rounded up


@dataclass(frozen=True)
class Run:
    """`ring`: staging memory of a D rank, in bytes; `grant_wait`: seconds that KV waits for the ring.

    `in_chunks`: the ring is so many of a rank's largest chunks, of a job whose layouts the ranks alone know.
    """

    job: DemoJob | CachesJob
    ring: float
    passes: tuple[Route, ...] = USUAL
    transport: Carrier = "nixl"
    grant_wait: float = 1.0
    window: int = 4
    abort: Abort = "none"
    device: str = "cpu"
    trace: str | None = None  # a directory for the ranks' traces
    limit_s: float = 60.0  # the longest that a phase may take
    warm: bool = False  # the first room is not timed
    slots: int = 4  # staging slots of a P rank
    keys: str | None = None  # the secret file that all ranks share: an encrypted control plane
    costs: str = "free"  # what links are taken to cost: nothing, so that all goes by the ring whatever its size
    staging: Staging = "device"
    digests: bool = False  # ranks keep those of what they move, and all have to agree
    in_chunks: bool = False
    maps: bool = False  # P's kernels store into D's pages, which are mapped: no ring; on GPUs of one host

    def __post_init__(self) -> None:
        """ValueError, or LayoutError, for what cannot run."""
        if isinstance(self.job, DemoJob):
            for room in self.job.rooms:
                self.plan.admit(room.tokens, room.prefix)
        if self.ring < (0 if self.in_chunks else 1) or self.grant_wait <= 0 or self.window < 1:
            raise ValueError("a run needs at least a byte of ring, a window of one chunk and some time to wait")
        if self.abort != "none" and len(self.job.rooms) < 2:
            raise ValueError("to abort rooms takes at least two, so that one is left to be unharmed")
        if not self.passes or not set(self.passes) <= set(get_args(Route)):
            raise ValueError(f"passes are some of {', '.join(get_args(Route))}")

    @property
    def chunk_tokens(self) -> int:
        return align_chunk_tokens(self.job.chunk, self.job.prefill.page_size, self.job.decode.page_size)

    @property
    def plain(self) -> DemoJob:
        """The job, of a model that has K and V alone."""
        assert isinstance(self.job, DemoJob), "only ranks know the layouts of several caches"
        return self.job

    @property
    def plan(self) -> Plan:
        return Plan(self.plain.layout("prefill"), self.plain.layout("decode"), self.chunk_tokens)

    @property
    def aborted(self) -> frozenset[int]:
        """The rooms that are given up half-way: every third one."""
        return frozenset() if self.abort == "none" else frozenset(r.room for r in self.job.rooms[1::3])

    @property
    def first(self) -> tuple[RoomSpec, ...]:
        return self.job.rooms[: int(self.warm)]

    @property
    def timed(self) -> tuple[RoomSpec, ...]:
        return self.job.rooms[int(self.warm) :]

    @property
    def forwards(self) -> list[RoomSpec]:
        rooms = self.timed
        batches = [rooms[first : first + BATCH] for first in range(0, len(rooms), BATCH)]
        return [room for batch in batches for room in sorted(batch, key=lambda room: (room.tokens, room.room))]

    @property
    def chunks(self) -> int:
        return sum(chunks(room.tokens, room.prefix, self.chunk_tokens) for room in self.job.rooms)

    @property
    def timed_bytes(self) -> int:
        """Return the bytes that are carried while the clock runs; 0 if only the ranks know."""
        if isinstance(self.job, CachesJob):
            return 0
        plan = self.plan
        return sum(plan.part_bytes(share, Cut(0, r.tokens - r.prefix)) for r in self.timed for share in plan.shares)

    def settings(self, route: Route, largest: int) -> Settings:
        """Return a rank's settings of a pass; `largest`: bytes of its largest chunk."""
        slot = 0
        if isinstance(self.job, DemoJob):
            slot = max(self.plan.part_bytes(share, Cut(0, self.chunk_tokens)) for share in self.plan.shares)
        wait = self.grant_wait if route.startswith("live") else LONG_WAIT_S
        return Settings(
            timing=Timing(grant_retry=Timer(wait / GRANT_TRIES, GRANT_TRIES)), window=self.window,
            slot_bytes=-(-slot // 256) * 256, slots=self.slots,
            ring_bytes=int(self.ring * (largest + ROUNDED) if self.in_chunks else self.ring),
            route="pages" if self.maps or route.endswith("pages") else "cost",
            costs=self.costs, trace=EVERY_STEP,
        )  # fmt: skip


def chunk_bytes(job: DemoJob) -> int:
    chunk_tokens = align_chunk_tokens(job.chunk, job.prefill.page_size, job.decode.page_size)
    plan = Plan(job.layout("prefill"), job.layout("decode"), chunk_tokens)
    return max(plan.grant_bytes(reader, Cut(0, chunk_tokens)) for reader in range(job.decode.ranks))


def make_rooms(
    count: int,
    tokens: int,
    *,
    page: int,
    prefix: int = 0,
    full_prefix: bool = False,
    new: int = 16,
    seed: int = 0,
    least: float = 0.5,
) -> tuple[RoomSpec, ...]:
    """Make rooms of `least` of `tokens` to `tokens` tokens that fill neither last page nor last chunk.

    Every second room begins with `prefix` tokens that D has (cut to whole pages of D), and with `full_prefix` the last
    one is there as a whole.
    """
    dice = random.Random(seed)
    rooms = []
    for number in range(count):
        length = tokens if number == 0 else dice.randint(math.ceil(tokens * least), tokens)
        length -= length > 1 and length % 2 == 0  # odd: no multiple of any page or chunk of an even number of tokens
        held = min(prefix, length) // page * page if number % 2 else 0
        rooms.append(RoomSpec(number + 1, length, length if full_prefix and number == count - 1 else held, new))
    return tuple(rooms)
