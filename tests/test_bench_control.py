"""Rooms by hand, the control benchmark's comparison: every byte is carried, and each room ends."""

from __future__ import annotations

import pytest


def test_rooms_by_hand_bring_every_byte_and_leave_the_link_to_rooms_that_are_none() -> None:
    for module in ("torch", "zmq", "nixl._api"):
        pytest.importorskip(module)
    from kvproto.lab.bench.control_side import LIVE, ControlRank
    from kvproto.lab.bench.members import Members

    members = Members()
    for side in "PD":
        members.start(side, 0, ControlRank, side, False, False)
    members.tell("D", "connect", next(iter(members.tell("P", "address").values())))
    assert not members.tell("D", "right")["D", 0]
    for _ in range(2):
        (begin, end), (began, ended) = members.tell("PD", "by_hand", max(LIVE)).values()
        assert 0 < min(begin, began) < max(end, ended)
    assert members.tell("D", "right")["D", 0]
    members.tell("PD", "flood", max(LIVE), 1)
    assert members.tell("D", "right")["D", 0]
    members.tell("PD", "end")
