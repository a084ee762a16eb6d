"""Strangers at the door of ranks with keys: a short attack changes nothing, and a change would show."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("nixl._api")

from kvproto.io.control.gate import STRANGE, UNLISTED
from kvproto.io.control.keys import Keys
from kvproto.lab.torture.attack import GROWN_MIB, AttackResult, _changed, attack, frames, keys_of
from kvproto.lab.torture.report import attack_page
from kvproto.protocol.codec import decode
from kvproto.protocol.messages import Hello


@pytest.mark.timeout(600)
def test_strangers_change_nothing_but_counters() -> None:
    result = attack(0.02, "nixl-tcp")
    assert result.found == [] and result.ok
    assert len(result.attacks) == 5 and all(result.attacks.values())
    assert result.away.keys() >= {UNLISTED, STRANGE} and result.rooms >= 200
    assert "nothing changed but counters" in attack_page(result)


def seen(**counts: Any) -> dict[str, Any]:
    return {"holds": {"threads": 3}, "metrics": {"writes": 4, **counts}, "rss": 100.0}


def test_what_has_changed_is_told() -> None:
    before = {"P": seen(), "D": seen()}
    assert _changed(before, {"P": seen(**{UNLISTED: 9, "writes": 50}), "D": seen()}) == []
    heard = _changed(before, {"P": seen(**{"messages of strangers": 1}), "D": seen()})
    assert heard == ["P: messages of strangers: 0 before, 1 after"]
    grown = {"P": seen(), "D": {**seen(), "rss": 101.0 + GROWN_MIB, "holds": {"threads": 4}}}
    assert _changed(before, grown) == ["D: threads: 3 before, 4 after", "D: 33.0 MiB more memory"]
    assert "FOUND D: threads" in attack_page(AttackResult("nixl-tcp", found=_changed(before, grown)))


def test_the_two_know_each_other_and_not_the_stranger(tmp_path: Path) -> None:
    keys = {name: Keys.load(file) for name, file in keys_of(tmp_path).items()}
    assert keys["D"].public in keys["P"].allowed and keys["P"].public in keys["D"].allowed
    assert not {keys["stranger"].public} & (keys["P"].allowed | keys["D"].allowed)


def test_what_strangers_say_would_be_heard() -> None:
    bodies = [decode(frame)[2] for frame in frames(random.Random(1))[:30]]
    assert isinstance(bodies[0], Hello) and len({type(body) for body in bodies}) > 10
