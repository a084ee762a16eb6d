"""Times: how long a room takes to its first continued token, and the transfer's part of it.

The first token of an answer is chosen by P, with the prompt's forward; the second is the first that D says, from the
pages that were carried: the *first continued token*. From the beginning of a room's forward to it there are

    prefill    the forward of the prompt, until P knows the first token; chunks leave meanwhile
    transfer   from then until the room has landed on every D rank: what the transfer adds
    wait       until D is free: it says one token at a time, and rooms may land faster
    token      the forward of one token on D

and of the unsharded model only the first and the last. Times are `time.monotonic`, one clock for all processes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from kvproto.lab.demo.job import RoomSpec
from kvproto.lab.demo.pass_counts import PassCounts
from kvproto.lab.demo.verify import Verdict

PARTS = ("prefill", "transfer", "wait", "token", "whole")
Spans = dict[str, list[float]]


def sharded(rooms: Iterable[RoomSpec], p: Sequence[PassCounts], d: Sequence[PassCounts]) -> Spans:
    """Seconds of each part, a value a room that went through all of them."""
    spans: Spans = {part: [] for part in PARTS}
    for room in (each.room for each in rooms):
        if not all(room in tally.marks.get("said", {}) for tally in d):
            continue
        begun = min(tally.marks["begun"][room] for tally in p)
        computed = max(tally.marks["computed"][room] for tally in p)
        landed, asked, said = (max(tally.marks[name][room] for tally in d) for name in ("landed", "asked", "said"))
        at = (begun, computed, landed, asked, said)
        for part, first, last in zip(PARTS, at, at[1:], strict=False):
            spans[part].append(last - first)
        spans["whole"].append(said - begun)
    return spans


def unsharded(rooms: Iterable[RoomSpec], verdicts: Mapping[int, Verdict]) -> Spans:
    """The same of the model that is not sharded."""
    took = [verdicts[room.room].seconds for room in rooms]
    both = [seconds for seconds in took if len(seconds) > 1]
    return {
        "prefill": [seconds[0] for seconds in both],
        "token": [seconds[1] - seconds[0] for seconds in both],
        "whole": [seconds[1] for seconds in both],
    }


def spread(spans: Spans) -> dict[str, dict[str, float]]:
    """Median and 99th percentile of each part that has values."""
    found = {part: sorted(values) for part, values in spans.items() if values}
    return {
        part: {"median": statistics.median(values), "p99": values[min(len(values) - 1, len(values) * 99 // 100)]}
        for part, values in found.items()
    }
