"""The plan of a torture: a pure function of the seed, and what the judge rests on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.lab.torture import plan as plans
from kvproto.lab.torture.fleet import DECODE, DECODE_RANKS, GROUP_OF, NAMES, PREFILL, SKEW, WAYS
from kvproto.lab.torture.ledger import ways_of
from kvproto.lab.torture.plan import ON_RANKS, PROBES, SIZES, STRIKES, TROUBLES, TortureSize, make_plan

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
