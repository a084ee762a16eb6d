"""Exchanging rooms loses nothing: states are counted with the exchange, and orbits without it."""

from __future__ import annotations

from typing import Any

import pytest
from support.night import by_night

from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.search import RankSearch
from kvproto.verify.check.small_worlds import AT_ONCE


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
