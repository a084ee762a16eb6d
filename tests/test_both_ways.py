"""Worlds of two processes that send each other KV: nothing is broken, and what is broken is found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.explorers import explorer
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.check.search import check
from kvproto.verify.check.world import CheckedWorld
from kvproto.verify.framework.table_patching import TablePatch

#: states, transitions and the longest way
SIZES = {
    "both-ways-calm": (784, 2240, 28), "both-ways-chunks": (316969, 1297152, 54),
    "both-ways-rooms": (172225, 735380, 60), "both-ways-abort": (11144, 34288, 34),
    "both-ways-write": (1512, 4288, 31), "both-ways-doubt": (4704, 14672, 36),
    "both-ways-drop": (4816, 8824, 30), "both-ways-duplicate": (36627, 92828, 29),
    "both-ways-link": (14908, 34712, 35), "both-ways-leave": (4738, 9874, 34), "both-ways-close": (123863, 374252, 44),
    "both-ways-crash": (261824, 821744, 46), "both-ways-death": (9768, 27958, 34),
}  # fmt: skip


@pytest.mark.parametrize("name", SUITES["both-ways"])
def test_both_directions_at_once_break_nothing_and_every_way_ends(name: str) -> None:
    result = check(name, CONFIGS[name])
    assert [tale.story() for tale in result.violations] == []
    assert (result.ended, (result.states, result.transitions, result.depth)) == ("exhausted", SIZES[name])


@pytest.mark.parametrize("name", ["both-ways-death", "both-ways-close"])
def test_a_process_ends_in_both_roles_and_its_rooms_in_both_directions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the rooms of the role that is named were excused, those of the other one would break S9."""
    touched = CheckedWorld.touched

    def of_one_role(self: CheckedWorld, at: int, peer: int) -> int:
        return touched(self, at, peer) & sum(1 << k for k in self.nodes[at].mine)

    monkeypatch.setattr(CheckedWorld, "touched", of_one_role)
    tale = check(name, CONFIGS[name]).violations[0]
    assert tale.property == "S9" and "although nothing happened to it" in tale.text
    assert ", in both roles" in tale.story() or name == "both-ways-close"


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("failed-room-leaks-grant", "both-ways-abort"), ("prefill-abort-silent", "both-ways-abort"),
        ("decode-death-unnoticed", "both-ways-death"), ("scatter-after-release", "both-ways-abort"),
    ],
)  # fmt: skip
def test_a_planted_hazard_is_found(mutant: str, name: str) -> None:
    with TablePatch() as bench:
        MUTANTS[mutant].apply(bench)
        tale = check(name, CONFIGS[name]).violations[0]
    assert tale.property in MUTANTS[mutant].expect


@pytest.mark.parametrize("lacks", [{"decode_groups": 1}, {"prefill_groups": 4}, {"decodes": 2}])
def test_a_process_has_both_roles_or_is_none(lacks: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="both ways: two groups a side"):
        explorer(replace(CONFIGS["both-ways-calm"], **lacks))
