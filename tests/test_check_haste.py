"""Hasty worlds are a part of the whole world, and enough of it to notice the planted mutants."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.verify.check.config import KINDS, Budget, Config
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.check.search import RankSearch, check
from kvproto.verify.check.story import replay
from kvproto.verify.framework.table_patching import TablePatch

WHOLE = replace(CONFIGS["abort"], live=False)


def hasty(config: Config, slow: int) -> Config:
    return replace(config, hasty=True, budget=replace(config.budget, slow=slow))


def reached(config: Config) -> set[Any]:
    """The states of a search by value, whatever their numbers, without the parts that only haste has."""
    search = RankSearch("", config)
    assert search.run().ended == "exhausted"
    world, found = search.world, set()
    for state in search.order:
        *nodes, spent = [world.part(state, at) for at in range(world.last + 1)]
        messages = world.messages.values
        links = [tuple(tuple(map(messages.__getitem__, queue)) for queue in wire) for wire in nodes[world.n :]]
        left = tuple(count for kind, count in zip(KINDS, spent.left, strict=True) if kind != "slow")
        found.add((*nodes[: world.n], *links, left, spent.hard, spent.blamed))
    return found


def test_what_a_hasty_world_does_the_whole_one_can_do() -> None:
    whole = reached(WHOLE)
    parts = [reached(hasty(WHOLE, slow)) for slow in range(5)]
    for part in parts:
        assert part <= whole
    assert [len(part) for part in parts] == sorted({len(part) for part in parts})  # each slow thing shows more
    assert len(parts[0]) < len(whole) / 10 and len(parts[-1]) > len(whole) / 4


def test_what_is_slow_is_told_and_can_be_walked_again() -> None:
    with TablePatch() as bench:
        MUTANTS["success-before-all-chunks"].apply(bench)
        tale = check("", hasty(CONFIGS[MUTANTS["success-before-all-chunks"].world], 1)).violations[0]
        assert tale.property == "S5"
        assert "slow  [everything else goes first]" in tale.story()
        assert replay(tale.jsonl()) == ("S5", "S5")
    assert replay(tale.jsonl()) != ("S5", "S5")


@cache
def holds(config: Config) -> bool:
    return not check("", config).violations


#: where one slow thing is not enough: a gather that holds the slot, and the word that the KV may be computed anew; a
#: message that comes late, and one that is heard late; two groups' calls that cross
TWO_SLOW = ("taken-back-and-read", "late-gone-believed", "any-caller-unbound")
#: what haste does not show: a message that overtakes another, a timer that ends while a write is under way, and a lease
#: that ends while a write is made ready
UNSEEN = ("epoch-unread", "epoch-unread-by-decode", "others-writes-count", "lapse-fails-room")
NOTICED = [name for name in MUTANTS if name not in UNSEEN and not CONFIGS[MUTANTS[name].world].timed]


@pytest.mark.parametrize("name", NOTICED)
def test_a_slow_thing_is_enough_to_notice_the_hazard(name: str) -> None:
    config = hasty(CONFIGS[MUTANTS[name].world], 2 if name in TWO_SLOW else 1)
    with TablePatch() as bench:
        MUTANTS[name].apply(bench)
        assert check(name, replace(config, must=())).violations
    assert holds(replace(config, must=()))


def test_in_no_time_without_slow_things() -> None:
    result = check("", Config(hasty=True, budget=Budget()))
    assert result.ended == "exhausted"
    assert result.states == result.transitions + 1  # one way, and no other


#: by how time goes in it: states of four worlds in all, and how many rows of the whole ones never fire in it
HIDDEN = {"whole": (20_917, 0), "swift": (4_149, 38), "hasty, one slow": (5_925, 24), "hasty": (851, 42)}


def test_what_the_abstractions_leave_out_is_known_and_written_down() -> None:
    """The table of docs/checker.md: states, and rows that fire in a whole world and not in the part of it."""
    worlds = [replace(CONFIGS[name], must=(), never=()) for name in ("abort", "drop", "kernel", "timeout")]
    parts = {
        "whole": worlds, "swift": [replace(world, swift=True) for world in worlds],
        "hasty, one slow": [hasty(world, 1) for world in worlds], "hasty": [hasty(world, 0) for world in worlds],
    }  # fmt: skip
    found = {how: [check("", world) for world in these] for how, these in parts.items()}
    rows = {how: {row for result in results for row in result.rows} for how, results in found.items()}
    hidden = {how: (sum(r.states for r in found[how]), len(rows["whole"] - rows[how])) for how in parts}
    assert hidden == HIDDEN
    page = (Path(__file__).parent.parent / "docs" / "checker.md").read_text()
    for how, (states, out) in HIDDEN.items():
        assert f"| {how} | {states:,} | {out} |" in page
