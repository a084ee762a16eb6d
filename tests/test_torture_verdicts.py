"""The torture's judge by itself, without processes: what it lets pass, and what it does not."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from kvproto.lab.torture.fleet import NAMES, SILENCE_S, WAYS, GroupWay
from kvproto.lab.torture.ledger import HEARSAY_S, STARVED_S, RoomLedger, ways_of
from kvproto.lab.torture.plan import SIZES, TROUBLES, TorturePlan, TortureRoom, Trouble, make_plan
from kvproto.lab.torture.report import torture_page
from kvproto.lab.torture.result import TortureResult, starvation
from kvproto.lab.torture.verdicts import CAUSES, LOSSES, verdict
from kvproto.protocol.states import Cause

PLAN = make_plan(3, SIZES["short"])
WELL = ("NONE", "")


def room_in(trouble: Trouble) -> TortureRoom:
    """A room of the plan's, and what its trouble is if it had one."""
    return replace(PLAN.room(PLAN.size.rooms), trouble=trouble)


def names_of(room: TortureRoom) -> list[str]:
    return [NAMES[group][index] for group, index in room.acts]


def all_say(room: TortureRoom, cause: str) -> dict[str, tuple[str, str]]:
    return dict.fromkeys(names_of(room), (cause, "why" if cause != "NONE" else ""))


def test_causes_are_those_of_the_protocol() -> None:
    names = {cause.name for cause in Cause}
    assert names >= LOSSES
    assert all(names >= causes for causes in CAUSES.values())
    assert CAUSES.keys() <= TROUBLES.keys()


@pytest.mark.parametrize("trouble", ["", "gather-slow", "scatter-slow", "intruded"])
def test_an_undisturbed_room_succeeds_or_is_told(trouble: Trouble) -> None:
    room = room_in(trouble)
    assert verdict(room, all_say(room, "NONE"), disturbed=False) == []
    assert verdict(room, all_say(room, "LINK_LOST"), disturbed=False)
    assert verdict(room, all_say(room, "LINK_LOST"), disturbed=True) == []


@pytest.mark.parametrize("trouble", CAUSES)
def test_a_trouble_explains_its_own_cause_and_no_other(trouble: Trouble) -> None:
    room = room_in(trouble)
    for cause in {each.name for each in Cause} - {"NONE"}:
        good = cause in CAUSES[trouble]
        assert (verdict(room, all_say(room, cause), disturbed=False) == []) == good
        assert (verdict(room, all_say(room, cause), disturbed=True) == []) == (good or cause in LOSSES)


@pytest.mark.parametrize("trouble", ["", "gather-slow", "scatter-slow"])
def test_a_slow_kernel_is_found_too_slow_only_where_a_clock_may_have_jumped(trouble: Trouble) -> None:
    room = room_in(trouble)
    assert verdict(room, all_say(room, "KERNEL_FAILED"), disturbed=False)
    assert (verdict(room, all_say(room, "KERNEL_FAILED"), disturbed=True) == []) == bool(trouble)
    assert verdict(room, all_say(room, "KERNEL_FAILED"), disturbed=True, timers_ended=True) == []


@pytest.mark.parametrize(("timers", "found"), [(True, False), (False, True)])
def test_a_clock_that_jumps_excuses_kernels_of_the_rooms_that_are_under_way(*, timers: bool, found: bool) -> None:
    ledger, number = RoomLedger(PLAN), calm_number(PLAN, (1, 11))
    ledger.touch(ways_of("P0"), timers=True)  # before the room
    ledger.enter(number, ())
    ledger.touch(ways_of("P0"), timers=timers)
    ended(ledger, number, "KERNEL_FAILED")
    ledger.settle(now=time.monotonic() + HEARSAY_S)
    assert bool(ledger.found) == found


def test_whoever_takes_the_name_of_another_group_must_not_succeed() -> None:
    room = room_in("intruder")
    assert verdict(room, {"E0": WELL}, disturbed=True) == ["E0 says that it succeeded, but the name is another group's"]


def test_a_failure_without_a_reason_is_told() -> None:
    room = room_in("abort-P")
    said = {**all_say(room, "NONE"), names_of(room)[0]: ("PREFILL_ABORTED", "")}
    assert verdict(room, said, disturbed=False) == [f"{names_of(room)[0]} says PREFILL_ABORTED, and no reason"]


# ----------------------------------------------------------------------------------------------------- ledger
def calm_number(plan: TorturePlan, way: GroupWay) -> int:
    return next(n for n in range(plan.size.rooms) if (room := plan.room(n)).way == way and not room.trouble)


def ended(ledger: RoomLedger, number: int, cause: str) -> None:
    for name in names_of(ledger.plan.room(number)):
        ledger.told(name, [(number, cause, "why" if cause != "NONE" else "")], [number])


@pytest.mark.parametrize("way", WAYS)
def test_a_fault_excuses_rooms_of_the_ways_that_it_may_touch_and_no_others(way: GroupWay) -> None:
    for target in ("P0", "Q0", "D1", "E0", "D0>P1", "E0>Q0"):
        ledger, number = RoomLedger(PLAN), calm_number(PLAN, way)
        ledger.enter(number, ())
        ledger.touch(ways_of(target))
        ended(ledger, number, "LINK_LOST")
        ledger.settle(now=time.monotonic() + HEARSAY_S)
        groups = {group for group, names in NAMES.items() if set(names) & set(target.split(">"))}
        assert bool(ledger.found) == (not groups <= set(way)), target
        assert ledger.complete == 1
        assert not ledger.open


def test_a_room_waits_for_each_rank_that_opened_it_and_lives() -> None:
    ledger, number = RoomLedger(PLAN), calm_number(PLAN, (1, 11))
    assert ledger.enter(number, {"P0"}) == ["P1", "D0", "D1"]
    assert ledger.open[number].disturbed
    ledger.told("P1", [(number, "PEERS_MISSING", "why")], [number])
    ledger.told("D0", [(number, "PEERS_MISSING", "why")], [number])
    assert ledger.open[number].waits == {"D1"}
    ledger.lost("D1")
    assert not ledger.open
    assert ledger.causes == {"PEERS_MISSING": 2}


@pytest.mark.parametrize(
    ("cause", "kept", "excused"),
    [("LINK_LOST", 1.1, True), ("LINK_LOST", 0.9, False), ("KERNEL_FAILED", 9.0, False)],
)
def test_a_machine_that_keeps_processes_waiting_excuses_losses_alone(cause: str, kept: float, excused: bool) -> None:
    ledger, number, now = RoomLedger(PLAN), calm_number(PLAN, (1, 12)), time.monotonic()
    ledger.enter(number, ())
    half = kept * STARVED_S / 2
    ended(ledger, number, cause)
    assert not ledger.settle(now=now + HEARSAY_S / 2) and not ledger.found, "who was kept from running may yet say so"
    for name, begin, end in (("P1", now - 2 * half, now - half), ("P1", now - half, now),
                             ("D0", now - 99, now - SILENCE_S - 1), ("D1", now + 1, now + 99)):  # fmt: skip
        ledger.kept_from(name, begin, end)
    assert ledger.settle(now=time.monotonic() + HEARSAY_S)
    assert bool(ledger.found) != excused
    assert ledger.starved == excused


def test_a_starved_machine_is_called_one() -> None:
    assert starvation({}, 60.0) == starvation({"P0": 1.0, "proxy": 2.0}, 60.0) == ""
    said = starvation({"P0": 1.0, "proxy": 7.25}, 60.0)
    assert "kept proxy from running for 7.2 s of 60 s" in said
    result = TortureResult(1, "nixl-tcp", starvation=said)
    assert said in torture_page(result) and "starved" not in torture_page(TortureResult(1, "nixl-tcp"))


def test_a_room_that_hangs_is_no_longer_waited_for() -> None:
    ledger, number = RoomLedger(PLAN), calm_number(PLAN, (2, 11))
    ledger.enter(number, ())
    assert ledger.live[2, 11] == 1
    ledger.give_up(number)
    assert ledger.live[2, 11] == 0
    ended(ledger, number, "NONE")
    assert ledger.complete == 0
