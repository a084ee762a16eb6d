"""The ring alone, on 3 to 5 units: nothing gets stuck with the rule for an empty ring, else it does."""

from __future__ import annotations

import pytest
from support.rings import Stale
from witness.ringworld import RingWorld, explore


@pytest.mark.parametrize("units", [3, 4, 5])
def test_nothing_gets_stuck_with_the_rule_and_something_does_without(units: int) -> None:
    ruled = explore(RingWorld(units, 3))
    assert (ruled.dead, ruled.lost, ruled.faults) == (0, 0, [])
    stale = explore(RingWorld(units, 3, kind=Stale))
    assert stale.dead > 0 and stale.lost > stale.dead
    assert stale.faults == []  # it is stuck, and not unsafe
