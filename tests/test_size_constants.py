"""Every bound of rank, layout, data, loop and endpoint lies between two sizes, each for a reason.

A bound that is off by a hundred times fails no behaviour test, since these set it small: it shows as memory that grows,
as a pass that takes too long, or as work that is done again.  The table is by hand; a new constant has no row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kvproto"
FOLDERS = ("data", "endpoint", "layout", "loop", "rank")
#: by module and name: the least and the most, and why
BOUNDS: dict[str, tuple[int, int, str]] = {
    "data.device_alarm.MOST": (2, 64, "the driver holds a pipe for each"),
    "data.gathers.AHEAD": (2, 8, "one runs and one is ready; more take slots from other rooms"),
    "data.launches.TOGETHER": (2, 64, "one kernel's arguments; a single launch costs as much as several small ones"),
    "data.mapped_pages.LONG": (1 << 24, 1 << 30, "bytes whose gain is worth what copy engines cost the host"),
    "data.page_writes.CUTS": (32, 4096, "byte runs of a page, kept for a part"),
    "data.prefill_data.WHOLE": (100, 100, "per cent"),
    "data.prepared_launches.KEPT": (64, 4096, "slots and regions; each holds arguments on the host"),
    "data.room_entry.FEW": (8, 256, "an array's operations cost as much as so many numbers"),
    "data.room_entry.MARKS": (16, 1024, "forwards of a room that may be under way; each holds an event"),
    "data.staged_writes.SMALL": (1 << 14, 1 << 21, "bytes that take the wire no longer than a post takes"),
    "data.staging_buffers.PARTS": (512, 1 << 16, "parts of a buffer, each a view"),
    "data.writes.BUDGET": (1024, 1 << 17, "pieces of one pass: tens of milliseconds"),
    "endpoint.engine_news.PENDING": (256, 1 << 16, "events that an engine may be behind; each is an object"),
    "endpoint.explain.NAMED": (2, 16, "names in a sentence that is still read"),
    "endpoint.prefill_groups.STEPS": (4, 256, "each holds a plan, also of a group that is gone"),
    "endpoint.validation.MOST_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "what a message can say"),
    "layout.agreement.MAX_CHUNK_TOKENS": ((1 << 32) - 1, (1 << 32) - 1, "no room has more"),
    "layout.byte_runs_numpy.BATCH": (512, 1 << 16, "runs at a time, in arrays that fit a cache"),
    "layout.caches.MAX_CACHES": (4, 64, "a model's caches in one page table"),
    "layout.caches.MAX_CACHE_PARTS": (4, 64, "tensors of one cache"),
    "layout.caches.MAX_NAME": (16, 256, "a name in a handshake"),
    "layout.caches.MAX_STATE_GROUPS": (8, 256, "chunks of a room's state, each a launch, a write and a notification"),
    "layout.caches.MOST_WINDOW": (1 << 20, 1 << 26, "tokens of the longest window"),
    "layout.caches.WIDEST": (8, 32, "bytes of the widest element"),
    "layout.placement.MAX_PLANES": (1 << 14, 1 << 20, "planes of one rank; a peer makes us compute as many"),
    "layout.plan.PARTS": (512, 1 << 16, "parts that a plan keeps"),
    "layout.plan.PART_ALIGNMENT": (256, 256, "both sides lay regions out by it"),
    "layout.sharding.DEFAULT_CHUNK_TOKENS": (1024, 1 << 16, "tokens a cell where the prefill side is not chunked"),
    "layout.sharding.MAX_RANKS": (64, 4096, "ranks of a group; a peer makes us compute as many"),
    "loop.event_loop.EVERY": (2, 64, "passes between looks at what is seldom there"),
    "loop.event_loop.LIMIT": (32, 4096, "inputs of one pass: milliseconds"),
    "loop.rank_loop.CALLS": (3, 64, "a rank calls twice a second"),
    "rank.base.CUTS": (128, 1 << 14, "terms of rooms that are live, shared by them"),
    "rank.prefill.OLDEST": (4, 256, "rooms that are looked at for the next writes; all would take a pass"),
    "rank.prefill_links.ESTIMATES": (32, 1 << 13, "a link's; there may be thousands of links"),
    "rank.prefill_links.KEPT": (1 << 10, 1 << 18, "lengths and claims of live rooms, shared by them"),
    "rank.room_turns.LARGER": (2, 16, "every so many turns are a larger room's: not every one, and not never"),
}  # fmt: skip


def constants() -> Iterator[str]:
    """Module and name of each whole number that is assigned at the top of a module."""
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            module = import_module("kvproto." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
            for node in ast.parse(path.read_text()).body:
                if isinstance(getattr(node, "value", None), ast.Call):
                    continue  # it follows from others
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets:
                    if isinstance(target, ast.Name) and target.id.isupper() and type(vars(module)[target.id]) is int:
                        yield f"{module.__name__.removeprefix('kvproto.')}.{target.id}"


def test_every_bound_has_a_row() -> None:
    assert sorted(constants()) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_lies_between_two_sizes(name: str) -> None:
    module, _, constant = name.rpartition(".")
    least, most, why = BOUNDS[name]
    assert least <= getattr(import_module(f"kvproto.{module}"), constant) <= most, why
