"""Worlds in which time has numbers: nothing exceeds its bound, and some things nearly reach it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.night import NIGHT

from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.search import RankSearch
from kvproto.verify.check.timed_world import TimedExplorer

COUNTS = tomllib.loads((Path(__file__).parent.parent / "spec" / "counts.toml").read_text())
#: of the small ones, whether some room, or some link, takes (nearly) as long as it may
SHARP = {"timed-wait": "rooms", "timed-stalled": "rooms", "timed-no-aux": "rooms", "timed-alone": "rooms"}
#: two groups where a ready room waits: as one group, and as long
LONG = {"timed-groups-in-ready"}


@pytest.mark.parametrize("name", [name for name in SUITES["timed-small"] if NIGHT or name not in LONG])
def test_everything_ends_in_its_time(name: str) -> None:
    search = RankSearch(name, CONFIGS[name])
    world = search.world
    assert isinstance(world, TimedExplorer)
    longest, bounds = world.longest, world.bounds
    result = search.run()
    assert [tale.story() for tale in result.violations] == []
    found = {"states": result.states, "transitions": result.transitions, "depth": result.depth}
    stale = "run: kvproto check timed-small --counts spec/counts.toml"
    assert (result.ended, found) == ("exhausted", COUNTS[name]), stale
    what = SHARP.get(name)
    if what:
        assert longest[what] >= 0.9 * getattr(bounds, what), "a bound that nothing comes near says little"


def test_an_hour_of_silence_is_a_few_states() -> None:
    """Times are counted from now, so an idle link is a circle."""
    result = RankSearch("idle", CONFIGS["timed-idle"]).run()
    assert result.states < 1000
