"""Layer by layer: the first continued token of prompts of several lengths, with and without.

The same prompts, one room at a time, are carried twice: cut into chunks, which leave as the forwards of the prompt end
(`live`), and cut into groups of layers, too, which leave while a forward goes on (`live_layers`).  Without, what is
left when the last forward ends is all that it has computed; with, it is the last group of layers.  The forward takes
longer where the host says after each group that it is there, and each group costs two kernels and messages of its own:
so of short prompts more is lost than won, and what the link costs decides (`kvproto.layout.costs`), unless the request
says how it is cut.  Each length is there in every way of `--layer-groups`.

`gain`: by how much sooner than without the first continued token was there, of the median; a negative one is a loss.
"""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kvproto.arguments import positive, whole
from kvproto.lab.demo.job import RoomSpec
from kvproto.lab.demo.times import Spans
from kvproto.layout.costs import Costs

if TYPE_CHECKING:
    from kvproto.lab.demo.conduct import DemoResult

#: lengths of prompts, and how many of each
Lengths = tuple[tuple[int, int], ...]
#: what is assumed for KV in host memory, and on GPUs (as in `demo_command`)
DEFAULTS: dict[str, tuple[Any, Any]] = {
    "prefill_tp": (2, 1), "decode_tp": (1, 1), "layers": (8, 16), "chunk": (256, 16384), "ring": ((2.0, 0), (2.0, 0)),
    "slots": (8, 4), "window": (8, 8), "new": (4, 4), "warm": (True, True),
    "passes": ("live,live_layers", "live,live_layers"),
    "lengths": (((64, 2), (256, 2), (1024, 2)), ((1024, 5), (4096, 5), (16384, 3), (65536, 1))),
}  # fmt: skip
#: tokens of a chunk where rooms are not cut
CELLS = {"cpu": 64, "cuda": 1024}
#: tokens of a prompt whose KV is compared by hashes
LONG = 8192
#: what a link costs over which staging in pinned memory is carried to a process of the same host
THROUGH_HOST = Costs(piece=2e-6, rate=5e9)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's."""
    group = parser.add_argument_group("layer by layer")
    group.add_argument("--by-layer", action="store_true",
                       help="rooms one at a time, as forwards end and layer by layer: first tokens")  # fmt: skip
    group.add_argument("--lengths", type=_lengths, metavar="N*TIMES,...", help="prompts, and how many of each length")
    group.add_argument("--layer-groups", type=_ways, default="0,8", metavar="LIST",
                       help="into how many rooms ask to be cut, of each length; 0: as many as pay")  # fmt: skip


def _lengths(text: str) -> Lengths:
    parts = [part.partition("*") for part in text.split(",")]
    return tuple((positive(tokens), positive(often or "1")) for tokens, _, often in parts)


def _ways(text: str) -> tuple[int, ...]:
    return tuple(whole(0, 1 << 10)(part) for part in text.split(","))


def long(lengths: Lengths) -> bool:
    """Whether there is a prompt whose bytes would take minutes to be compared."""
    return max(tokens for tokens, _ in lengths) > LONG


def carried(device: str, staging: str) -> dict[str, Any]:
    """How: fields of `Run`."""
    costs = "shm" if device == "cpu" else "cuda_ipc" if staging == "device" else THROUGH_HOST
    return {"ring_only": True, "alone": True, "cell": CELLS[device], "costs": costs}


def make_rooms(lengths: Lengths, ways: tuple[int, ...], new: int, *, warm: bool) -> tuple[RoomSpec, ...]:
    """So many prompts of each length in each way of being cut; with `warm` one of the longest ahead."""
    wanted = [(tokens, way) for tokens, often in lengths for way in ways for _ in range(often)]
    if warm:
        wanted.insert(0, (max(tokens for tokens, _ in lengths), ways[0]))
    return tuple(RoomSpec(at, tokens, 0, new, way) for at, (tokens, way) in enumerate(wanted, 1))


def rows(result: DemoResult) -> list[dict[str, Any]]:
    """Return by length and way: layer groups, and median seconds of forward, transfer and first token."""
    found = []
    by = {each.route: each for each in result.passes}
    if not {"live", "live_layers"} <= by.keys():
        return []
    uncut, cut = by["live"], by["live_layers"]
    for tokens, way in dict.fromkeys((room.tokens, room.layer_groups) for room in result.run.timed):
        these = [room.room for room in result.run.timed if (room.tokens, room.layer_groups) == (tokens, way)]
        alike = [room.room for room in result.run.timed if room.tokens == tokens]
        without = _medians([uncut.rooms[room] for room in alike])
        with_ = _medians([cut.rooms[room] for room in these])
        if without and with_:
            gain = 1 - with_["whole"] / without["whole"]
            found.append({
                "tokens": tokens, "asked": way, "groups": cut.groups[these[0]], "without": without, "by_layer": with_,
                "gain": gain,
            })  # fmt: skip
    return found


def _medians(rooms: list[Spans]) -> dict[str, float]:
    seen = [spans for spans in rooms if spans["whole"]]
    return {part: statistics.median(spans[part][0] for spans in seen) for part in seen[0]} if seen else {}


def table(result: DemoResult) -> Table:
    """The same for a reader, in milliseconds."""
    made = Table(title="layer by layer: milliseconds, medians of rooms alone; * by cost", title_justify="left")
    told = [name for part in ("forward", "transfer", "first token") for name in (part, "by layer")]
    for head in ("tokens", "groups", *told, "gain"):
        made.add_column(head, justify="right")
    for row in rows(result):
        parts, ways = ("prefill", "transfer", "whole"), ("without", "by_layer")
        pairs = [f"{1e3 * row[way][part]:.1f}" for part in parts for way in ways]
        groups = f"{row['groups']}{'' if row['asked'] else '*'}"
        made.add_row(f"{row['tokens']:,}", groups, *pairs, f"{row['gain']:+.1%}")
    return made
