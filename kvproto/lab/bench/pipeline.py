"""Pipeline: gather, write and scatter through real endpoints beside NIXL's bulk write in the same run.

Every rank is a process of its own, polled without sleeping. The rooms are open and the grants asked for before the
clock runs; the time is from the moment at which all is computed until the last decode rank has handed out the outcome.
The engine says so then, or when it launches the forward, as engines do that need not wait for its end (`--forward`).
Bulk and transfer take turns, so that both see the same clocks; the bulk write is posted by hand, one from each prefill
rank to each decode rank that it owes something, through the same transport to the same ring. Bytes are counted once, a
row's figure is its median, and the first transfer and one after the timed ones are compared in full.

`one`: a room at a time, so nothing hides what stands before the first byte and after the last. `many`: several rooms
whose KV is ready at once, as under load; beside them stands the bulk write of one room's size, so many times. `slice`:
the same bytes without staging.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from kvproto.arguments import positive
from kvproto.lab.bench.bare import PagesThere
from kvproto.lab.bench.held_forward import add_forward, need_device_to_wait
from kvproto.lab.bench.members import Members, spent
from kvproto.lab.bench.pipeline_cases import MIB, SHAPES, Case, PipelineShape, cases, mapped
from kvproto.lab.bench.pipeline_rank import EndpointForm, Moment, PipelineRank
from kvproto.lab.bench.results import Course, among, command_line, need_gpus
from kvproto.layout.cut import Cut, chunks
from kvproto.settings import Settings

LEAD_S = 0.001
#: samples of a row, whatever they take
LEAST = 3
#: regions of a ring that a room alone is not given
SPARE = 1
#: tokens: what a bulk write that is cut to the ring is cut to
GRAIN = 64


@dataclass
class BenchProcesses:
    shape: PipelineShape
    cuda: bool
    members: Members = field(default_factory=Members)
    #: what each process is
    kind: type[PipelineRank] = PipelineRank
    #: rooms are reported as their forward is launched
    forward: bool = False
    #: seconds of the bulk write of so many MiB, as last measured: for rings that are smaller than the room
    bulk: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> Self:
        sides = ("P", self.shape.prefill_on), ("D", self.shape.decode_on)
        for side, devices in sides:
            for index, device in enumerate(devices):
                self.members.start(side, index, self.kind, side, index, f"cuda:{device}" if self.cuda else "cpu")
        self.members.tell("PD", "idle")  # all are there: to start takes some ten seconds on a host of GPUs
        return self

    def __exit__(self, *_: object) -> None:
        self.members.tell("PD", "end")

    def begin(self, case: Case) -> tuple[EndpointForm, list[int], int]:
        """Make and connect the endpoints of a row; return their form, the rooms, and the tokens of each."""
        form = self._form(case)
        made = self.members.tell("PD", "make", form)
        self.members.tell("D", "connect", [address for (side, _), address in made.items() if side == "P"])
        tokens = case.size * MIB // self.shape.token_bytes
        names = list(range(1, case.rooms + 1))
        self.members.tell("PD", "fill", names, tokens, case.fresh)
        return form, names, tokens

    def run(self, case: Case) -> dict[str, Any]:
        form, names, tokens = self.begin(case)
        bulk_tokens = self._bulk_tokens(case, form)
        times: list[float] = []
        bulks: list[float] = []
        bares: list[float] = []
        indexed: list[tuple[float, float]] = []
        logs: list[dict[str, Any]] = []
        warm, turn = (1 if case.what == "slice" or case.route == "pages" else 3), 0
        right = self.checked(names, turn, tokens)
        there = self._mapped(names)
        bare = case.beside and case.staging == "device" and case.route != "pages"
        bare &= bool(there) or (case.rooms == 1 and bulk_tokens == tokens)
        until = time.perf_counter() + case.seconds
        while len(times) < case.repeats and (len(times) < LEAST or time.perf_counter() < until):
            turn += 1
            if bulk_tokens:
                bulks.append(self.bulk_write(bulk_tokens))
            if bare:
                bares.append(self._bare(names, tokens, there))
            if case.by_index:
                indexed.append(self._by_index(names[0]))
            seconds, log = self.transfer(names, turn, tokens)
            if turn >= warm:
                times.append(seconds)
                logs.append(log)
        right &= self.checked(names, turn + 1, tokens)
        if bulks:
            bulks = [seconds * case.rooms * tokens / bulk_tokens for seconds in bulks[-len(times) :]]
            self.bulk[case.size] = statistics.median(bulks) / case.rooms
        bulk = self.bulk.get(case.size, 0.0)
        stats = self.members.tell("PD", "stats")
        odd = {f"{side}{index}": s for (side, index), s in stats.items() if s["reports"]}
        nbytes = case.rooms * tokens * self.shape.token_bytes
        at_end = zip(*(indexed or [(0.0, 1.0)])[-len(times) :], strict=True)
        by_index, noted = (statistics.median(each) for each in at_end)
        return {
            **asdict(case), "seconds": round(case.seconds), "pair": self.shape.name, "links": len(form.plan.shares),
            "bytes": nbytes, "right": right, "odd": odd, "forward": self.forward,
            "ms": 1e3 * statistics.median(times), "gbs": 1e-9 * nbytes / statistics.median(times),
            "best_gbs": 1e-9 * nbytes / min(times), "all_ms": [round(1e3 * t, 4) for t in times],
            "all_bulk_ms": [round(1e3 * t, 4) for t in bulks],
            "pieces": stats["P", 0]["pieces"] // (turn + 2), "phases": phases(logs),
            "went": went(stats["P", 0]),
            **({"bulk_ms": 1e3 * bulk, "bulk_gbs": 1e-9 * nbytes / case.rooms / bulk,
                "ratio": case.rooms * bulk / statistics.median(times)} if bulk else {}),
            **({"indexed_ms": 1e3 * by_index, "of_indexed": by_index / statistics.median(times),
                "noted_ms": 1e3 * noted, "floor_of_indexed": by_index / noted} if indexed else {}),
            **({"bare_ms": 1e3 * statistics.median(bares[-len(times) :])} if bares else {}),
            **({"floor_ratio": case.rooms * bulk / statistics.median(bares[-len(times) :])} if bares and bulk else {}),
        }  # fmt: skip

    def checked(self, names: Sequence[int], gen: int, tokens: int) -> bool:
        """Whether a transfer into a marked pool brings every byte, and none elsewhere."""
        self.members.tell("D", "mark")
        self.transfer(names, gen, tokens)
        return all(self.members.tell("D", "right", names, tokens).values())

    def _bulk_tokens(self, case: Case, form: EndpointForm) -> int:
        """Tokens of the bulk write beside each transfer; 0: none."""
        tokens = case.rooms * case.size * MIB // self.shape.token_bytes
        if case.beside:
            whole = max(form.plan.grant_bytes(rank, Cut(0, tokens)) for rank in range(form.decode.ranks))
            held = form.settings.ring_bytes
            return tokens if whole <= held else tokens * held // whole // GRAIN * GRAIN
        return tokens if case.what == "one" and not case.ring else 0

    def _form(self, case: Case) -> EndpointForm:
        shape = replace(self.shape, page_sizes=(case.page, case.page)) if case.page else self.shape
        prefill, decode = shape.layouts()
        chunk_tokens = case.chunk * MIB // self.shape.token_bytes
        tokens = case.size * MIB // self.shape.token_bytes
        form = EndpointForm(
            prefill, decode, chunk_tokens, Settings(), case.rooms * tokens * 5 // 64 + 64, "device", case.max_descs
        )
        need = max(form.plan.grant_bytes(rank, Cut(0, chunk_tokens)) for rank in range(decode.ranks))
        ring = case.ring * MIB or need * (case.rooms * chunks(tokens, 0, chunk_tokens) + SPARE)
        settings = Settings(
            window=case.window, slots=case.slots, ring_bytes=ring, trace=256,
            route="pages" if case.what == "slice" else case.route,
            slot_bytes=max(form.plan.part_bytes(share, Cut(0, chunk_tokens)) for share in form.plan.shares),
        )  # fmt: skip
        return EndpointForm(
            prefill, decode, chunk_tokens, settings, form.pages,
            case.staging, case.max_descs, case.maps, case.packed,  # type: ignore[arg-type]
        )  # fmt: skip

    def transfer(self, names: Sequence[int], gen: int, tokens: int) -> tuple[float, dict[str, Any]]:
        """Move these rooms once; return the seconds, and when what happened."""
        rooms = [(name, gen) for name in names]
        self.members.tell("PD", "open", rooms, tokens)
        told = self.members.tell("PD", "go", rooms, tokens, time.perf_counter() + LEAD_S, self.forward)
        begin = min(begin for (side, _), (begin, _, _) in told.items() if side == "P")
        end = max(end for (side, _), (_, end, _) in told.items() if side == "D")
        logs = {f"{side}{index}": log for (side, index), (_, _, log) in told.items()}
        return end - begin, {"begin": begin, "end": end, **logs}

    def _mapped(self, names: Sequence[int]) -> dict[int, PagesThere]:
        """By room its pages, if kernels have stored into them; empty: they have not."""
        if not self.members.tell("P", "stats")["P", 0]["mapped"]:
            return {}
        return {name: self._pages_of(name) for name in names}

    def _pages_of(self, name: int) -> PagesThere:
        return {index: pages for (_, index), pages in self.members.tell("D", "pages_of", name).items()}

    def _bare(self, names: Sequence[int], tokens: int, there: Mapping[int, PagesThere]) -> float:
        return spent(self.members.tell("PD", "bare", names, tokens, time.perf_counter() + LEAD_S, there), "D")

    def _by_index(self, name: int) -> tuple[float, float]:
        """Seconds until the writer sees the end of the write, and until the decode rank has its note."""
        there = self._pages_of(name)
        told = self.members.tell("PD", "by_index", name, time.perf_counter() + LEAD_S, there)
        return spent(told, "P"), spent(told, "D")

    def bulk_write(self, tokens: int) -> float:
        """Return the seconds of a bulk write by hand of so many tokens."""
        return spent(self.members.tell("P", "bulk", tokens, time.perf_counter() + LEAD_S), "P")


def went(stats: Mapping[str, int]) -> str:
    """Return the route that a prefill rank's parts took, by its counts."""
    return "staged" if stats["writes"] else "mapped" if stats["mapped"] else "pages"


def phases(logs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return median microseconds before P0's first write, after the last, and of its chunks."""
    found: dict[str, list[float]] = {}
    for log in logs:
        marks = [each for name in log if name[0] in "PD" for each in log[name] if name in ("P0", "D0")]
        for name, span in _spans(marks, log["begin"], log["end"]):
            found.setdefault(name, []).append(1e6 * span)
    return {name: round(statistics.median(spans), 1) for name, spans in found.items()}


def _spans(marks: Iterable[Moment], begin: float, end: float) -> list[tuple[str, float]]:
    at: dict[str, list[float]] = {}
    for name, _, when in marks:
        at.setdefault(name, []).append(when)
    first, last = ({name: pick(times) for name, times in at.items()} for pick in (min, max))
    if "gather" not in at and {"post", "BatchCompleted", "StgNotify"} <= at.keys():
        posts = [b - a for a, b in zip(at["post begins"], at["post"], strict=True)]
        return [
            ("produced to post", first["post begins"] - begin), ("first post", posts[0]),
            ("writes", last["BatchCompleted"] - first["post"]),
            ("completed to heard", last["StgNotify"] - last["BatchCompleted"]),
            ("heard to finished", end - last["StgNotify"]), ("a post", statistics.median(posts)),
        ]  # fmt: skip
    if not {"gather", "post", "BatchCompleted", "scatter", "Scattered"} <= at.keys():
        return []
    launches = [b - a for a, b in zip(at["gather begins"], at["gather"], strict=True)]
    posts = [b - a for a, b in zip(at["post begins"], at["post"], strict=True)]
    return [
        ("produced to gather", first["gather begins"] - begin),
        ("first launch", launches[0]),
        ("first gather", first["Gathered"] - first["gather"]),
        ("gathered to post", first["post begins"] - first["Gathered"]),
        ("first post", posts[0]),
        ("writes", last["BatchCompleted"] - first["post"]),
        ("completed to scatter", last["scatter begins"] - last["BatchCompleted"]),
        ("scatter launch", last["scatter"] - last["scatter begins"]),
        ("last scatter", last["Scattered"] - last["scatter"]),
        ("scattered to finished", end - last["Scattered"]),
        ("a launch", statistics.median(launches)),
        ("a post", statistics.median(posts)),
    ]


def case(row: dict[str, Any]) -> str:
    if row.get("by_index"):
        return f"{'packed' if row['packed'] else 'layered'} pages of {row['page']}, chunks of {row['chunk']} MiB"
    if row["what"] == "slice":
        return "slices, " + (f"at most {row['max_descs']} a write" if row["max_descs"] else "as endpoints do it")
    pinned = ", pinned" if row.get("staging") == "pinned" else ""
    return ("one room" if row["rooms"] == 1 else f"{row['rooms']} rooms") + pinned


def told(row: dict[str, Any]) -> str:
    """A row as soon as it is measured, with what took its time."""
    phases = ", ".join(f"{name} {us:.0f}" for name, us in row["phases"].items())
    return (
        f"{row['pair']}, {case(row)}, {row['size']} MiB: {row['gbs']:.1f} GB/s, best {row['best_gbs']:.1f}"
        + (f", {row['went']} {row['ms']:.3f} ms, by hand {row['bare_ms']:.3f}" if "bare_ms" in row else "")
        + (f", {row['ms']:.3f} ms, by index {row['indexed_ms']:.3f}, noted {row['noted_ms']:.3f}"
           if "indexed_ms" in row else "")
        + (f"\n   us: {phases}" if phases else "") + (f"\n   {row['odd']}" if row["odd"] else "")
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    parser = command_line("pipeline", __doc__)
    parser.add_argument("--pairs", type=among(SHAPES), default="1-1", metavar="LIST",
                        help=f"prefill-decode ranks, comma separated, of {', '.join(SHAPES)} (w: over more GPUs, "
                        "r: prefill on the second, s: all on one; tiny: little KV, to see that it works; "
                        "default 1-1)")  # fmt: skip
    parser.add_argument(
        "--what",
        choices=("figures", "goals", "pieces", "slice", "pinned", "pages"),
        default="figures",
        help="the table; a few of its rows; rate over chunk size; the other route; host staging; whole "
             "pages beside NIXL's lists by hand",
    )
    parser.add_argument("--repeats", type=positive, default=15, help="timed transfers a row (default 15)")
    parser.add_argument("--maps", action="store_true", help="as costs less, where kernels may store into mapped pages")
    parser.add_argument("--cpu", action="store_true", help="host memory and torch kernels: for a machine without GPUs")
    add_forward(parser)
    options = parser.parse_args(argv)
    need_device_to_wait(parser, options)
    names = options.pairs
    need_gpus(max(SHAPES[name].gpus for name in names), cpu=options.cpu)
    course, rows = Course("pipeline", argv, options), list[dict[str, Any]]()
    for turn, name in enumerate(names):
        with BenchProcesses(SHAPES[name], cuda=not options.cpu, forward=options.forward) as fleet:
            found = cases(name, options.what, options.repeats)
            for case in course.cases(mapped(found) if options.maps else found, len(names) - turn):
                rows.append(fleet.run(case))
                course.keep(rows, told(rows[-1]))
    return course.judged(rows)
