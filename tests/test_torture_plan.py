"""The plan of a torture is a pure function of the seed, and its judge lets pass what it may, no more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproto.lab.torture import plan as plans
from kvproto.lab.torture.fleet import DECODE, DECODE_RANKS, GROUP_OF, NAMES, PREFILL, SILENCE_S, SKEW, WAYS, GroupWay
from kvproto.lab.torture.ledger import HEARSAY_S, STARVED_S, RoomLedger, ways_of
from kvproto.lab.torture.plan import (
    ON_RANKS,
    PROBES,
    SIZES,
    STRIKES,
    TROUBLES,
    TorturePlan,
    TortureRoom,
    TortureSize,
    Trouble,
    make_plan,
)
from kvproto.lab.torture.report import torture_page
from kvproto.lab.torture.result import TortureResult, starvation
from kvproto.lab.torture.verdicts import CAUSES, LOSSES, verdict
from kvproto.protocol.states import Cause

seeds = st.integers(0, 1 << 40)
sizes = st.builds(
    TortureSize, rooms=st.integers(40, 120), episodes=st.integers(1, 6), strikes=st.integers(1, 4),
    at_once=st.integers(1, 8), troubled=st.floats(0, 1),
)  # fmt: skip


def told(seed: int, size: TortureSize) -> str:
    plan = make_plan(seed, size)
    plans._room.cache_clear()
    return repr((plan, [plan.room(number) for number in range(size.rooms)]))


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    code = (
        "import hashlib; from kvproto.lab.torture.plan import SIZES, make_plan; p = make_plan(7, SIZES['short']);"
        "print(hashlib.sha256(repr((p, [p.room(n) for n in range(200)])).encode()).hexdigest())"
    )
    said = {
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": str(hashing)}, text=True,
                       capture_output=True, check=True, timeout=60).stdout
        for hashing in (1, 2)
    }  # fmt: skip
    assert len(said) == 1


@settings(max_examples=30)
@given(seeds, sizes)
def test_another_seed_is_another_run(seed: int, size: TortureSize) -> None:
    assert told(seed, size) != told(seed + 1, size)


@settings(max_examples=30)
@given(seeds, sizes)
def test_two_rooms_have_one_name_and_no_rank_has_it_twice(seed: int, size: TortureSize) -> None:
    plan = make_plan(seed, size)
    names: Counter[object] = Counter()
    for number in range(size.rooms & ~1):
        room = plan.room(number)
        twin = plan.room(number ^ 1)
        assert room.room == twin.room
        assert room.way in WAYS
        assert number & 1 or twin.trouble == "intruder" or set(room.way).isdisjoint(twin.way)
        names.update((room.room, member) for member in room.acts)
    assert max(names.values()) == 1


@settings(max_examples=30)
@given(seeds, sizes)
def test_what_an_engine_does_makes_sense(seed: int, size: TortureSize) -> None:
    plan = make_plan(seed, size)
    for number in range(size.rooms):
        room = plan.room(number)
        assert 0 <= room.prefix <= room.tokens
        for (group, index), acts in room.acts.items():
            assert group in room.way
            assert index < len(NAMES[group])
            assert acts[0].what == "open"
            assert [act.what for act in acts].count("open") == 1
            upto = [act.upto for act in acts if act.what == "produced"]
            assert upto == sorted(set(upto))
            gives_up = acts[-1].what == "abort"
            if group in PREFILL and not gives_up:
                assert upto[-1] == room.tokens
                assert [act.what for act in acts].count("aux") == 1
            assert group in PREFILL or not upto
            assert gives_up <= (room.trouble.startswith("abort"))
        if not room.trouble:
            assert len(room.acts) == sum(len(NAMES[group]) for group in room.way)
        if room.trouble == "intruder":
            assert {group for group, _ in room.acts} <= set(DECODE)
            assert plan.room(number - 1).trouble == "intruded"


@settings(max_examples=30)
@given(seeds, sizes)
def test_faults_of_an_episode_do_not_strike_the_same(seed: int, size: TortureSize) -> None:
    plan = make_plan(seed, size)
    assert [episode.at for episode in plan.episodes] == sorted({episode.at for episode in plan.episodes})
    for episode in plan.episodes:
        assert episode.at + episode.storm <= size.rooms
        targets = [strike.target for strike in episode.strikes]
        assert len(set(targets)) == len(targets) == size.strikes
        for strike in episode.strikes:
            assert (strike.kind in ON_RANKS) == (strike.target in GROUP_OF)
            assert strike.kind in ON_RANKS or tuple(strike.target.split(">")) in plan.fleet.cables()
            assert strike.kind != "kill-and-move" or strike.target not in DECODE_RANKS
            assert ways_of(strike.target)


@settings(max_examples=30)
@given(seeds)
def test_clocks_stay_within_what_a_lease_can_bear(seed: int) -> None:
    fleet = make_plan(seed, SIZES["short"]).fleet
    assert all(abs(rate - 1) < SKEW + 1e-6 for _, rate in fleet.clocks.values())
    timing = fleet.settings("P0").timing
    assert SKEW * timing.lease.period * 2 < timing.write.period


def test_a_long_run_has_every_trouble_and_every_fault_and_enough_of_them() -> None:
    plan = make_plan(1, SIZES["long"])
    struck = Counter(strike.kind for episode in plan.episodes for strike in episode.strikes)
    troubles = Counter(plan.room(number).trouble for number in range(plan.size.rooms))
    assert struck.keys() == set(STRIKES)
    assert troubles.keys() == {"", "intruded", *TROUBLES}
    assert plan.size.rooms >= 20_000
    assert struck.total() + troubles.total() - troubles[""] - troubles["intruded"] >= 2_000


@settings(max_examples=30)
@given(seeds, st.integers(0, 3))
def test_nothing_happens_to_probes_and_they_go_every_way(seed: int, turn: int) -> None:
    plan = make_plan(seed, SIZES["short"])
    probes = [plan.room(number) for number in plan.probes(turn)]
    assert len(probes) == PROBES
    assert {room.way for room in probes} == set(WAYS)
    assert {room.trouble for room in probes} == {""}


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
