"""Statements about the unsearched whole world: its lemmas exist, and so do the worlds of open ones."""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace
from support.night import night_alone

from kvproto.verify.check.config import Budget
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.search import check
from kvproto.verify.claims import CLAIMS
from kvproto.verify.claims.open_lemmas import OPEN
from kvproto.verify.draw.whole_worlds import CROSSINGS, searched

TOGETHER = ("ends", "rooms", "routes")


def claimed(name: str) -> set[str]:
    """The names of all that is proved, or kept, by what has this name."""
    if name in TOGETHER:
        module: ModuleType = import_module(f"kvproto.verify.claims.{name}")
        kept: tuple[Any, ...] = getattr(module, "INVARIANT", ())
        return {test.__name__ for test in (*kept, *(test for _, test in module.PROMISES))}
    for claims in CLAIMS:
        if claims.table.name == name:
            waits = [claims.waits_] if claims.waits_ is not None else []
            return {claim.test.__name__ for claim in (*claims.invariant, *claims.promises_, *waits)}
    pytest.importorskip("z3")
    return {title for _, title, _ in import_module(f"kvproto.verify.prove.{name}").LEMMAS}


@pytest.mark.parametrize("said", sorted({each for crossing in CROSSINGS for each in crossing.proved}))
def test_what_excludes_it_is_proved(said: str) -> None:
    name, claim = said.split(": ")
    assert claim in claimed(name)


def test_all_that_is_open_is_said_where_it_matters() -> None:
    assert {name for crossing in CROSSINGS for name in crossing.left} == {lemma.name for lemma in OPEN}
    assert all(crossing.proved or crossing.left for crossing in CROSSINGS)


@pytest.mark.parametrize("lemma", OPEN, ids=lambda lemma: lemma.name)
def test_the_worlds_of_what_is_open_exist_and_have_numbers(lemma: Any) -> None:
    for asked in lemma.worlds:
        assert [name for name in CONFIGS if re.fullmatch(asked, name)], asked
        assert [name for name in searched(lemma.name) if re.fullmatch(asked, name)], asked


@night_alone("some seconds of a core")
def test_rooms_that_have_ended_begin_anew_where_no_tombstone_meets_an_open_that_was_overtaken() -> None:
    """`ended_rooms_stay_ended` needs its assumption: an ABORT overtakes its OPEN and finds no tombstone."""
    world = replace(CONFIGS["deep-tombstone-abort"], net="unordered", swift=True, budget=Budget(abort=1))
    (found,) = check("unordered", world).violations
    assert found.property == "S4" and found.text.endswith("and P0 is at work on it")
    assert not check("in order", replace(world, net="fifo")).violations
