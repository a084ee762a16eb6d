"""Hybrid: rooms of a hybrid model, pages and state, of one prefill group and several decode groups.

The model is Qwen3.5-397B-A17B: 15 layers of full attention, 45 of gated delta nets, whose state is 192 MB a request
whatever its length.  A prefill group of four ranks serves four decode instances of one rank each, as data-parallel
attention has it.  Rooms are open before the clock runs; the time is from the moment that all of them are computed until
the last decode rank has handed out the last outcome.  They are reported then, or when their forward is launched
(`--forward`).  Beside each transfer the same bytes are written by hand: one bulk write for each room, prefill rank and
reader, through the same transport, polled to their ends by their senders.  Where pages are mapped, the kernels of all
rooms are launched by hand, too, as soon as the device takes them (`stores`): what that takes no protocol can save,
since ranks of one GPU take turns on it.  Of few rooms the rows are written piece by piece, too, by NIXL's own
descriptors in their best form (`descriptors`): lists and requests are prepared beforehand.

Every byte of the first transfer is compared, and of one after the timed ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from kvproto.arguments import positive, several
from kvproto.lab.bench.cache_calls import QWEN, heads
from kvproto.lab.bench.held_forward import add_forward, need_device_to_wait
from kvproto.lab.bench.hybrid_rank import HybridForm, HybridRank
from kvproto.lab.bench.members import spent
from kvproto.lab.bench.pipeline import LEAD_S, BenchProcesses
from kvproto.lab.bench.pipeline_cases import PipelineShape
from kvproto.lab.bench.results import Course, command_line, need_gpus
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.sharding import Layout
from kvproto.settings import Route, Settings

LAYERS = 60
#: processes of one GPU take turns of milliseconds on it, so each needs more in flight than one alone
PAGE_WRITES = 16
#: seconds of a room's forward, in which its launches are prepared
FORWARD_S = 2e-4
RANKS, INSTANCES = 4, 4
#: rooms of which the descriptors are posted, too: each takes as long as the one before
DESCRIBED = 8
#: bytes of a ring at most
MOST_RING = 2 << 30


def layouts(groups: int, *, tiny: bool) -> tuple[Layout, Layout]:
    """Return the prefill group's layout, and that of a decode instance."""
    full, delta = QWEN
    caches = full, replace(delta, groups=groups)
    layers, page = LAYERS, 64
    if tiny:
        layers, page = 2, 16
        parts = CachePart("q", 4, 48), CachePart("ssm", 4, 256)
        caches = Cache("full", heads(2, 16), (1,)), replace(delta, parts=parts, layers=(0,))
    return (
        Layout.of_caches(caches, layers=layers, page_size=page, tp=RANKS),
        Layout.of_caches(caches, layers=layers, page_size=page, tp=1),
    )


def form_of(rooms: int, tokens: int, chunk_tokens: int, groups: int, route: Route, *, tiny: bool) -> HybridForm:
    prefill, decode = layouts(groups, tiny=tiny)
    form = HybridForm(prefill, decode, INSTANCES, rooms, tokens, chunk_tokens, Settings())
    plan = form.plan
    cuts = Cut(0, min(tokens, chunk_tokens)), plan.whole_state[0]
    need = sum(plan.grant_bytes(0, cut) for cut in cuts) * -(-rooms // INSTANCES) * plan.state_groups
    whole = 2 * decode.slot_bytes(0, chunk_tokens)  # a ring of less takes no joint chunks
    ring = max(whole, min(MOST_RING, need))
    settings = Settings(ring_bytes=ring, slots=8, window=64, page_writes=PAGE_WRITES, route=route, trace=256)
    return replace(form, settings=settings)


class Hybrid(BenchProcesses):
    """The processes: prefill ranks on the first GPUs, decode instances on the last."""

    def measure(self, form: HybridForm, repeats: int) -> dict[str, Any]:
        made = self.members.tell("PD", "begin", form)
        self.members.tell("D", "call", [address for (side, _), address in made.items() if side == "P"])
        right, gen, times, bulks, stores = self._checked(form.rooms, 0), 1, list[float](), list[float](), list[float]()
        maps = all(self.members.tell("P", "bind_stores").values())
        while len(times) < repeats:
            bulks.append(self._spent("write", "P"))
            stores += [self._spent("store", "P")] if maps else []
            times.append(self._moved(form.rooms, gen))
            gen += 1
        found = self._described(form)
        right &= self._checked(form.rooms, gen)
        nbytes = form.rooms * sum(form.owed(writer, 0) for writer in range(RANKS))
        busiest = max(form.owed(writer, 0) for writer in range(RANKS)) * RANKS * form.rooms / nbytes
        time_s, bulk_s, store_s = (statistics.median(each or [0.0]) for each in (times, bulks, stores))
        return {
            "route": form.settings.route, "forward": self.forward, "rooms": form.rooms, "tokens": form.tokens,
            "chunk_tokens": form.chunk_tokens, "state_groups": form.plan.state_groups,
            "mb_a_room": 1e-6 * nbytes / form.rooms,
            "ms": 1e3 * time_s, "bulk_ms": 1e3 * bulk_s, "gbs": 1e-9 * nbytes / time_s, "share": bulk_s / time_s,
            **({"stores_ms": 1e3 * store_s, "floor_share": bulk_s / store_s} if maps else {}),
            **({"descriptors_share": bulk_s / (1e-3 * found["descriptors_ms"])} if found else {}), **found,
            "busiest_writer": busiest, "right": right and found.get("descriptors_right", True),
        }  # fmt: skip

    def _described(self, form: HybridForm) -> dict[str, Any]:
        """Post the rows by NIXL's own descriptors, once: how long, how many, and whether they were right.

        {}: too many rooms.
        """
        if form.rooms > DESCRIBED:
            return {}
        self.members.tell("D", "mark")
        pieces = self.members.tell("P", "bind_descriptors").values()
        spent = 1e3 * self._spent("describe", "P")
        right = all(self.members.tell("D", "whole").values())
        return {"descriptors_ms": spent, "pieces": sum(pieces), "descriptors_right": right}

    def _moved(self, rooms: int, gen: int) -> float:
        self.members.tell("PD", "ask", gen)
        return self._spent("run", "PD", gen, self.forward, lead_s=LEAD_S + rooms * FORWARD_S)

    def _spent(self, name: str, sides: str, *args: Any, lead_s: float = LEAD_S) -> float:
        return spent(self.members.tell(sides, name, *args, time.perf_counter() + lead_s), sides[-1])

    def _checked(self, rooms: int, gen: int) -> bool:
        self.members.tell("D", "mark")
        self._moved(rooms, gen)
        return all(self.members.tell("D", "whole").values())


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a byte was wrong."""
    parser = command_line("hybrid", __doc__)
    parser.add_argument("--gpus", type=positive, default=2, help="half of them for either side (default 2)")
    parser.add_argument("--rooms", type=several(positive), default=(1, 8, 64), help="default 1,8,64")
    parser.add_argument("--tokens", type=several(positive), default=(1000, 8192), help="default 1000,8192")
    parser.add_argument("--chunk-tokens", type=positive, default=8192, help="default 8192")
    parser.add_argument("--groups", type=positive, default=1, help="chunks of a room's state (default 1)")
    parser.add_argument("--routes", type=several(str), default=("cost",), help="of staged, pages, cost (default cost)")
    parser.add_argument("--repeats", type=positive, default=7, help="timed transfers a row (default 7)")
    parser.add_argument("--cpu", action="store_true", help="a tiny model in host memory, to see that it works")
    add_forward(parser)
    options = parser.parse_args(argv)
    need_device_to_wait(parser, options)
    if options.gpus % 2:
        parser.error(f"--gpus {options.gpus}: half of them are for either side")
    need_gpus(options.gpus, cpu=options.cpu)
    course, rows = Course("hybrid", argv, options), list[dict[str, Any]]()
    half = options.gpus // 2
    places = [tuple(first + at % half for at in range(count)) for count, first in ((RANKS, 0), (INSTANCES, half))]
    shape = PipelineShape(RANKS, INSTANCES, places[0], places[1])
    with Hybrid(shape, cuda=not options.cpu, kind=HybridRank, forward=options.forward) as fleet:
        forms = [(rooms, tokens, way) for tokens in options.tokens for rooms in options.rooms for way in options.routes]
        for rooms, tokens, way in course.cases(forms):
            form = form_of(rooms, tokens, options.chunk_tokens, options.groups, way, tiny=options.cpu)
            rows.append(fleet.measure(form, options.repeats))
            row, about = rows[-1], f"{rooms} rooms of {tokens} tokens, {way}"
            right = "right" if row["right"] else "WRONG"
            course.keep(rows, f"{about}: {row['ms']:.2f} ms, {row['share']:.3f} of bulk, {right}")
    return course.judged(rows)
