"""Goals of a file of results: each beside what was measured and its floor, and whether it is met.

A floor is what the same bytes take by hand, with the same kernels and the same transport and nothing of a protocol
around them (`kvproto.lab.bench.bare`), or what something that is not ours takes in the place of ours: what is missed
above it is the protocol's, what is missed below it is not to be had in this form ("nor the floor": whatever misses the
goal has a floor that misses it, too).  A line stands only if the figures that it is made of are there; of several
measurements the worst decides whether the goal is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from kvproto.lab.bench.flat import Label, MeasuredRow, MeasuredRun, rows_of
from kvproto.lab.bench.pivot import markdown, number

READY: dict[str, Any] = {"ring": 0, "staging": "device"}
#: of rows whose rooms were reported as their forward was launched, and of the others; and what the first are called
FORWARD: Mapping[bool, dict[str, Any]] = {True: {"forward": True}, False: {"forward": lambda forward: not forward}}
SAID = {True: ", reported with the forward's launch", False: ""}
OURS = READY | {"route": lambda route: route != "pages"}
#: what the protocol alone takes of the way from `produced` to the post
POSTED = "produced to posted, without the gather"
#: bytes of two heads of 64 values of four bits each, and their scales
NVFP4_ROW = 144
#: rooms a second of a rank that is not busy
RATE = 300


class Goal(NamedTuple):
    """A line: which figure of which rows, by which label it is told apart, and what it should reach.

    Of rows that share the labels of `by` the best counts; without `by` all count, and the extremes are told.  `where`
    has a label's value, or a question to it.  `floor` is a figure of the same row.
    """

    what: str
    bench: str
    figure: str
    where: Mapping[str, Any] = {}
    by: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    floor: str = ""


def _least(count: int) -> Callable[[Label], bool]:
    return lambda label: isinstance(label, int) and label >= count


GOALS = (
    Goal("gather and scatter, 512 MiB, pages at random, as endpoints call them: share of a copy on the device",
         "kernels", "ratio", {"table": "kernels", "usual": True, "row": lambda row: row != NVFP4_ROW}, least=0.95),
    Goal("the same by SGLang's kernels, in the same run", "kernels", "peer ratio", {"table": "peer kernels"}),
    Goal("scatter of fp8 by one writer: share of the copy", "kernels", "ratio",
         {"table": "kernels", "what": "scatter", "row": 128, "parts": 1}, least=0.95),
    Goal("torch's own copy of such strips", "kernels", "write ratio", {"table": "strips", "strip": 128, "of": 1024}),
    Goal("kernels on 16 MiB: share of the copy", "kernels", "ratio",
         {"table": "kernels", "bytes": lambda nbytes: nbytes <= 17 << 20}, least=0.95),
    Goal("host time of a launch, us, median", "kernels", "median us", {"table": "host"}),
    *(Goal(f"chunks of {what}, all caches at once: share of the copy", "kernels", "ratio",
           {"table": "caches", "bytes": _least(16 << 20), "model": models.__contains__}, least=least)
      for what, models, least in (
          ("Qwen3.5, DeepSeek-V3.2 and gpt-oss", ("Qwen3.5-397B", "DeepSeek-V3.2", "gpt-oss-120b"), 0.95),
          ("index rows of 132 bytes", ("index rows of 132 bytes",), 0.9))),
    Goal("nvfp4 heads of 72 bytes, 2 of 8 a rank, as endpoints call them: share of the copy", "kernels", "ratio",
         {"table": "kernels", "usual": True, "row": NVFP4_ROW}, least=0.8),
    Goal("host time of such a chunk's call, us, median", "kernels", "host us", {"table": "caches"}, most=45),
    *(Goal(f"a room of {size} MiB alone{SAID[forward]}: share of its bulk write", "pipeline", "ratio",
           OURS | FORWARD[forward] | {"rooms": 1, "size": size, "beside": True}, ("pair",), least=wanted,
           floor="floor ratio")
      for forward in (False, True) for size, wanted in ((64, 0.6), (256, 0.85), (1024, 0.85))),
    *(Goal(f"rooms of {size} MiB together{SAID[forward]}: share of bulk writes", "pipeline", "ratio",
           OURS | FORWARD[forward] | {"what": "many", "size": size}, ("pair",), least=0.9, floor="floor ratio")
      for forward in (False, True) for size in (64, 256, 1024)),
    Goal("staging in pinned memory, between processes of one host, GB/s", "pipeline", "GB/s",
         {"staging": "pinned", "rooms": _least(2)}, ("pair",), least=20, floor="bulk GB/s"),
    Goal("pages by the pages route: share of NIXL's own lists and indices by hand", "pipeline", "of indexed",
         {"route": "pages"}, least=0.95, floor="floor of indexed"),
    Goal("what a room takes longer where the default is not the best route", "route", "lost", most=0.05),
    Goal("the same where nothing is mapped", "route", "unmapped lost", most=0.05),
    Goal("each cell of the grid of 256 MiB and more: share of the bulk write", "grid", "share", {"size": _least(256)},
         least=0.9, floor="floor share"),
    Goal("the grid, times as fast as a write for each page, layer, K and V", "grid", "faster", least=1),
    Goal("after a forward, beyond the last layer group's bulk write, ms", "layers", "over ms", {"groups": _least(2)},
         ("tokens",), most=0.3, floor="floor over ms"),
    *(Goal(f"pages and state of a hybrid model, 8 rooms and more{SAID[forward]}: share of bulk writes", "hybrid",
           "share", FORWARD[forward] | {"rooms": _least(8)}, ("tokens", "rooms"), least=0.95, floor="floor share")
      for forward in (False, True)),
    Goal("the same, what the busiest prefill rank sends, of the mean", "hybrid", "busiest writer", most=1.1),
    *(Goal(f"{work} a transfer of {pool} pools by the default", "beside", "slowdown",
           {"side": side, "pool": pool, "way": "mapped", "percent": 10}, most=most, floor="floor slowdown")
      for pool in ("layered", "packed")
      for side, work, most in (("P", "how much longer products take beside", 0.06),
                               ("D", "how much longer memory traffic takes beside", 0.18))),
    *(Goal(f"a transfer of {pool} pools by the default, beside products: share of the bulk write alone", "beside",
           "share", {"side": "P", "pool": pool, "way": "mapped", "percent": 10}, least=0.8, floor="floor share")
      for pool in ("layered", "packed")),
    *(Goal(f"{POSTED}, 64 rooms open, us, {name}", "control", f"{POSTED}, {part} us", {"table": "rows", "rooms": 64},
           most=most, floor=f"posting to posted, {part} us")
      for part, name, most in (("median", "p50", 40), ("p99", "p99", 100), ("p999", "p99.9", 400))),
    Goal("rooms a second through one link, hardly any KV", "control", "rooms a second", least=10_000),
    Goal(f"processor time of a room at {RATE} a second, of that at full load", "control", "times",
         {"table": "processor"}, ("side",), most=2, floor="floor times"),
    Goal("an event through the full typed path, us", "step", "per event us", most=2),
    Goal("bytes a room", "step", "bytes per room", most=200),
    Goal("what the transfer adds to the first token, s, median", "demo", "first token, transfer, median",
         {"table": "passes"}, ("route",)),
)  # fmt: skip


def goals(runs: Iterable[MeasuredRun]) -> str:
    """Make the table of goals and figures, a line for each goal and run.

    Args:
        runs: runs of benchmarks

    Returns:
        Markdown; empty if no run has anything to do with a goal

    """
    lines = [line for run in runs for line in _lines(run.bench, run.command, rows_of(run.figures))]
    head = ("what", "measured", "goal", "floor, in the same run", "met", "command")
    return markdown(head, lines) if lines else ""


def _lines(bench: str, command: str, rows: Sequence[MeasuredRow]) -> Iterator[tuple[str, ...]]:
    for goal in GOALS:
        found = chosen(goal, rows) if goal.bench == bench else []
        if not found:
            continue
        floors = _told(goal, [(row, row.values[goal.floor]) for row in found if goal.floor in row.values])
        missed = [row for row in found if not _is_met(goal, row.values[goal.figure])]
        met, bounded = len(found) - len(missed), goal.least is not None or goal.most is not None
        yes = "yes" if not missed else "**no**" if goal.by or not met else f"**no**: {met} of {len(found)}"
        if missed and all(goal.floor in row.values and not _is_met(goal, row.values[goal.floor]) for row in missed):
            yes += ", nor the floor"
        aim = f"{number(goal.least)} or more" if goal.least is not None else f"at most {number(goal.most or 0.0)}"
        measured = _told(goal, [(row, row.values[goal.figure]) for row in found])
        yield goal.what, measured, aim if bounded else "", floors, yes if bounded else "", f"`{command}`"


def chosen(goal: Goal, rows: Iterable[MeasuredRow]) -> list[MeasuredRow]:
    found: dict[str, MeasuredRow] = {}
    for place, row in enumerate(rows):
        if goal.figure not in row.values or not all(_fits(row, *each) for each in goal.where.items()):
            continue
        key = _place(goal, row) if goal.by else str(place)
        held = found.setdefault(key, row)
        mine, best = row.values[goal.figure], held.values[goal.figure]
        if (mine < best) if goal.most is not None else (mine > best):
            found[key] = row
    return list(found.values())


def _fits(row: MeasuredRow, name: str, wanted: Any) -> bool:
    label = row.labels.get(name)
    return bool(wanted(label)) if callable(wanted) else label == wanted and type(label) is type(wanted)


def _is_met(goal: Goal, value: float) -> bool:
    return (goal.least is None or value >= goal.least) and (goal.most is None or value <= goal.most)


def _told(goal: Goal, values: list[tuple[MeasuredRow, float]]) -> str:
    """Name each by its labels; without labels the extremes."""
    if goal.by:
        return ", ".join(f"{_place(goal, row)} {number(each)}" for row, each in values)
    found = sorted({number(each): each for _, each in values}.items(), key=itemgetter(1))
    return " to ".join(text for text, _ in (found[:1] + found[1:][-1:]))


def _place(goal: Goal, row: MeasuredRow) -> str:
    """Name the labels by which a row is told apart; of a pair the ranks, not their GPUs."""
    return " ".join(str(row.labels.get(name)).partition(" on ")[0] for name in goal.by)
