"""The checker's configurations find no violation in a known number of states; exchanges lose none."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.night import by_night

from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.deep_configs import two_faults
from kvproto.verify.check.search import RankSearch, check
from kvproto.verify.check.small_worlds import AT_ONCE

ROOT = Path(__file__).parent.parent
COUNTS = tomllib.loads((ROOT / "spec" / "counts.toml").read_text())
DEEP = tomllib.loads((ROOT / "spec" / "deep-counts.toml").read_text())
#: of the deeper worlds
BY_DAY = ["deep-overtaken", *Random(14).sample(list(two_faults()), 16)]
LARGE = by_night(1 << 20, by_day=30_000)  # states beyond which a configuration is left to `kvproto check standard`


@pytest.mark.parametrize("name", [name for name in SUITES["small"] if COUNTS[name]["states"] < LARGE])
def test_everything_holds_and_nothing_is_missing(name: str) -> None:
    result = check(name, CONFIGS[name])
    assert [tale.story() for tale in result.violations] == []
    found = {"states": result.states, "transitions": result.transitions, "depth": result.depth}
    assert (result.ended, found) == ("exhausted", COUNTS[name]), "run: kvproto check --counts spec/counts.toml"


@pytest.mark.parametrize("name", by_night(list(SUITES["deep"]), by_day=BY_DAY))
def test_what_two_faults_make_of_a_world_is_known(name: str) -> None:
    result = check(name, CONFIGS[name])
    assert [tale.story() for tale in result.violations] == []
    found = {"states": result.states, "transitions": result.transitions, "depth": result.depth}
    known = {what: DEEP[name][what] for what in found}
    assert (result.ended, found) == ("exhausted", known), "run: kvproto check deep --counts spec/deep-counts.toml"


def test_every_configuration_of_the_suites_exists() -> None:
    assert {name for names in SUITES.values() for name in names} <= set(CONFIGS)
    assert set(COUNTS) == {*SUITES["standard"], *SUITES["two-by-two"]} and set(DEEP) == set(SUITES["deep"])


def world(rooms: int, **faults: int) -> Config:
    """One rank a side, of which nothing takes time but messages, engines and timers."""
    return Config(ring=1, rooms=rooms, chunks=1, engine=AT_ONCE, swift=True, budget=Budget(**faults))


@pytest.mark.parametrize(
    "config",
    [world(2, link=1), world(2, drop=1), world(2, abort=1), world(3), *by_night([world(2, crash=1)], by_day=[])],
)
def test_of_each_orbit_one_state_is_kept(config: Config) -> None:
    kept = RankSearch("exchanged", config)
    assert kept.run().ended == "exhausted"
    whole = RankSearch("whole", config)
    space: Any = whole.space
    exchanges = kept.world.swaps
    space.swaps, space.swapped = [], []
    assert whole.run().ended == "exhausted"
    space.swaps, space.swapped = exchanges, [[{} for _ in space.shifts] for _ in exchanges]
    orbits = {space.canonical(state) for state in whole.order}
    assert len(orbits) == kept.result.states < len(whole.order)


def test_a_world_that_forgets_in_which_order_rooms_were_met_says_so_where_it_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Config, "keeps_order", property(lambda _config: False))
    with pytest.raises(RuntimeError, match="in an order that this world forgets"):
        RankSearch("forgetful", world(2, link=1)).run()
