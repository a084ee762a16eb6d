"""The checker's configurations find no violation, and the number of their states is known exactly."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

import pytest
from support.night import by_night

from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.deep_configs import two_faults
from kvproto.verify.check.search import check

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
