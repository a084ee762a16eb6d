"""The ring that runs and the ring of the prose, explored by different programs, are the same ring."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import cast

import pytest
from support.night import NIGHT
from support.rings import Stale
from support.witness import changed, model, need, rumur
from witness.ringworld import RingSearchResult, RingWorld, explore

from kvproto.protocol.ring import Mark, Ring


class DelayBoundedExplorer(Ring):
    """A ring whose watermark is the youngest region's place."""

    @property
    def mark(self) -> Mark:
        for region in reversed(self.live.values()):
            return region.round, region.offset
        return self.round, self.head


class Silent(Ring):
    """A ring that does not say which regions have become usable."""

    def free(self, grant: int) -> list[int]:
        super().free(grant)
        return []


@functools.cache
def _ring(kind: Hashable, size: int, promises: int, drops: bool, pulled: bool) -> RingSearchResult:
    assert isinstance(kind, type) and issubclass(kind, Ring)
    return explore(RingWorld(size, promises, kind=kind, drops=drops, pulled=pulled))


def ring(kind: type[Ring], size: int, promises: int, *, drops: bool = False, pulled: bool = False) -> RingSearchResult:
    return _ring(cast("Hashable", kind), size, promises, drops, pulled)


SMALL = [(3, 3), (3, 4), (4, 3)]
LARGE = [(4, 4), (5, 3), (5, 4)] if NIGHT else []
CASES = [
    *[(Ring, size, promises, False, False) for size, promises in [*SMALL, *LARGE]],
    *[(Stale, size, promises, False, False) for size, promises in [(3, 4), (4, 3), *LARGE[:1]]],
    (Ring, 3, 3, True, False), (Ring, 4, 3, True, False), (Ring, 4, 3, False, True), (Stale, 4, 3, False, True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "size", "promises", "drops", "pulled"), CASES)
def test_the_ring_and_its_prose_have_the_same_states(
    kind: type[Ring], size: int, promises: int, drops: bool, pulled: bool
) -> None:
    ours = ring(kind, size, promises, drops=drops, pulled=pulled)
    constants = {"SIZE": size, "PROMISES": promises, "DROPS": drops, "PULLED": pulled, "EMPTY_RULE": kind is Ring}
    theirs = rumur(model("ring.m", {name: int(value) for name, value in constants.items()}))
    kinds = dict(theirs.covers)
    assert (theirs.states, theirs.fired) == (ours.states, ours.transitions)
    assert kinds.pop("something can happen") == ours.states - ours.dead
    assert kinds == ours.kinds
    assert ours.faults == []
    assert ("L2" in theirs.error) == (ours.lost > 0)
    if kind is Ring:
        assert theirs.error == "" and ours.dead == ours.lost == 0


@pytest.mark.parametrize(("size", "promises"), SMALL)
def test_without_the_rule_for_an_empty_ring_something_gets_stuck(size: int, promises: int) -> None:
    found = ring(Stale, size, promises)
    assert found.dead > 0
    assert found.lost > found.dead
    assert found.faults == []


def test_the_model_gets_stuck_without_the_rule_too() -> None:
    stuck = rumur(model("ring.m", {"DROPS": 0, "EMPTY_RULE": 0}), "--deadlock-detection", "stuck")
    assert stuck.error == "deadlock"
    fine = rumur(model("ring.m", {"SIZE": 3, "DROPS": 0}), "--deadlock-detection", "stuck")
    assert fine.error == ""


def test_a_watermark_that_can_be_asked_for_makes_up_for_the_rule() -> None:
    found = ring(Stale, 4, 3, pulled=True)
    assert found.dead == found.lost == 0


@pytest.mark.parametrize(("kind", "property_"), [(DelayBoundedExplorer, "S11"), (Silent, "L3")])
def test_a_ring_that_is_wrong_is_seen(kind: type[Ring], property_: str) -> None:
    faults = explore(RingWorld(3, 3, kind=kind)).faults
    assert [fault for fault in faults if fault.startswith(property_)]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("queue[s].upto <= seen.tail", "queue[s].from <= seen.tail", "S11"),
        ("queue[s].round <= seen.round", "queue[s].round <= seen.round + 1", "S11"),
        ("told[mark_round()][mark_tail()] := true", "told[round][head] := true", "S7"),
    ],
)
def test_a_model_that_is_wrong_is_seen(old: str, new: str, error: str) -> None:
    assert error in rumur(changed(model("ring.m", {"SIZE": 3}), old, new)).error


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_missing_model_checker_is_a_failure_on_a_build_machine(ci: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(pytest.fail.Exception if ci else pytest.skip.Exception, match=r"missing: rumur, gcc"):
        need("rumur", "gcc")


@pytest.mark.parametrize("units", [3, 4, 5])
def test_nothing_gets_stuck_with_the_rule_and_something_does_without(units: int) -> None:
    ruled = explore(RingWorld(units, 3))
    assert (ruled.dead, ruled.lost, ruled.faults) == (0, 0, [])
    stale = explore(RingWorld(units, 3, kind=Stale))
    assert stale.dead > 0 and stale.lost > stale.dead
    assert stale.faults == []  # it is stuck, and not unsafe
