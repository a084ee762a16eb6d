"""The simulated world by itself: one seed is one schedule, and its judges do judge."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import CHUNK_TOKENS, QUICK, layout

from kvproto.fsm.driver import steps
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause, DLink
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.sim.member import FaultChances, PendingWork
from kvproto.verify.sim.world import SimulatedWorld

ROOM, TOKENS = 100, 20
WRITE = do.PostWrite


def world(
    prefill: int = 1, decode: int = 1, *, seed: int = 0, up: bool = True, **chances: Any
) -> SimulatedWorld:  # fmt: skip
    made = SimulatedWorld(
        seed, layout(prefill), layout(decode), chunk_tokens=CHUNK_TOKENS,
        settings=Settings(timing=QUICK, ring_bytes=1 << 20),
        chances=FaultChances(**chances),
    )  # fmt: skip
    if up:
        made.calm()
    return made


def whole(at: SimulatedWorld, room: int = ROOM) -> None:
    """A room from its beginning to its end."""
    at.open_all(room, TOKENS)
    at.produce_all(room, TOKENS)
    at.calm()


def in_flight(at: SimulatedWorld) -> PendingWork:
    """A room's first write, which does not end by itself."""
    at.chances = FaultChances(write_hangs=1.0)
    at.open_all(ROOM, TOKENS)
    at.produce_all(ROOM, TOKENS)
    at.calm()
    return next(job for job in at.jobs if job.write is not None)


def test_a_room_ends_well_and_nothing_is_left() -> None:
    at = world(2, 1)
    assert not at.settled(ROOM) or not any(node.opened for node in at.nodes.values())
    at.open_all(ROOM, TOKENS)
    assert not at.settled(ROOM)
    at.produce_all(ROOM, TOKENS)
    at.calm()
    assert at.settled(ROOM) and at.idle() == []
    for node in at.nodes.values():
        assert (node.outcomes, node.released, node.opened) == ({ROOM: Cause.NONE}, {ROOM}, {ROOM})
    assert len(at.posted) == 2 * 3, "both writers, three chunks"
    assert {name for name, _ in at.flying} == {"P0", "P1"} and not any(at.flying.values())


def test_a_room_is_settled_when_all_who_opened_it_have_its_outcome_and_its_release() -> None:
    at = world(2, 1)
    first, second, third = at.nodes.values()
    assert at.settled(ROOM), "nobody has opened it"
    first.opened, third.opened = {ROOM}, {ROOM}
    for node in (first, third):
        assert not at.settled(ROOM)
        node.outcomes[ROOM] = Cause.NONE
        assert not at.settled(ROOM)
        node.released.add(ROOM)
    assert at.settled(ROOM) and not second.outcomes
    first.outcomes.clear()
    assert not at.settled(ROOM)


def test_a_rank_that_starts_anew_is_another_life_and_what_it_had_under_way_lands_all_the_same() -> None:
    at = world()
    job = in_flight(at)
    at.raise_event("P", 0, ev.EngineOpened(ROOM + 1, TOKENS))
    old = at.nodes["P", 0]
    kernel, foreign = PendingWork(old, ev.Gathered(ROOM, 0, 0)), PendingWork(at.nodes["D", 0], ev.Scattered(ROOM, 0))
    at.jobs = [kernel, job, foreign]
    new = at.start("P", 0)
    assert (new.life, new.name, new.place, new.rank.incarnation) == (1, "P0'", b"P0", 3)
    assert not old.alive and new.alive and at.nodes["P", 0] is new and new.outcomes == {}
    assert at.jobs == [job, foreign], "its kernels went with it"
    again = at.start("D", 0)
    assert (again.name, again.place, at.start("D", 0).name) == ("D0'", b"D0'", "D0''")
    assert at.lives == 5


def write_of(at: SimulatedWorld, **changed: Any) -> WRITE:
    """The write of the job in flight, as its machine asked for it."""
    write = in_flight(at).write
    assert isinstance(write, WRITE)
    return replace(write, **changed)


def test_a_run_counts_its_steps_and_one_that_does_not_end_says_where_it_is() -> None:
    at = world(seed=7)
    whole(at)
    assert at.run(lambda: at.settled(ROOM)) == 0
    at.open_all(ROOM + 1, TOKENS)
    with pytest.raises(AssertionError, match=r"seed 7: not done after 3 steps, at .* s: \[.*rooms.*\]"):
        at.run(lambda: False, steps=3)
    at.produce_all(ROOM + 1, TOKENS)
    took = at.run(lambda: at.settled(ROOM + 1))
    assert took > 3


def test_a_seed_is_one_schedule() -> None:
    def told(seed: int) -> list[object]:
        at = world(2, 1, seed=seed, up=False, lose=0.1, repeat=0.1, reorder=0.5)
        at.open_all(ROOM, TOKENS)
        at.produce_all(ROOM, TOKENS)
        seen = list[object]()
        for _ in range(150):
            at.step()
            seen.append((at.now, len(at.mail), len(at.jobs)))
        return seen

    assert told(1) == told(1) != told(2)


# ----------------------------------------------------------------------------------------------------------- judges
def test_a_part_that_is_posted_twice_is_found() -> None:
    at = world(seed=11)
    write, node = write_of(at), at.nodes["P", 0]
    at.note_posted(node, replace(write, chunk=7), 1)
    at.note_posted(node, replace(write, chunk=7), 2)
    with pytest.raises(AssertionError, match=r"seed 11: .* is posted twice"):
        at.note_posted(node, replace(write, chunk=7), 1)


def test_a_part_that_is_posted_after_its_room_s_release_is_found() -> None:
    at = world(seed=11)
    write, node = write_of(at), at.nodes["P", 0]
    node.released.add(ROOM)
    with pytest.raises(AssertionError, match=r"seed 11: .* after the release"):
        at.note_posted(node, replace(write, chunk=7), 1)


def test_a_part_that_lands_in_another_room_s_region_is_found() -> None:
    at = world(seed=11)
    job = in_flight(at)
    assert isinstance(job.write, WRITE)
    decode = at.decode(0)
    grant = job.write.grant
    for wrong in ((ROOM + 1, job.write.chunk), (ROOM, job.write.chunk + 1), None):
        kept = decode.chunk_of.pop(grant)
        if wrong is not None:
            decode.chunk_of[grant] = wrong
        with pytest.raises(AssertionError, match=r"seed 11: .* into a region of"):
            at._landing(job.node, job.write)
        decode.chunk_of[grant] = kept
    at._landing(job.node, job.write)
    decode.chunk_of.clear()
    with pytest.raises(AssertionError, match=r"seed 11: .* into a region of None"):
        at.finish(job)
    at._landing(job.node, replace(job.write, to=replace(job.write.to, epoch=job.write.to.epoch + 1)))
    at._landing(job.node, do.PreparePages(ROOM, 0, 0, Target(1, 1), b""))
    link = decode.link_of.pop((PREFILL_GROUP, 0))
    at._landing(job.node, job.write)  # nobody whom it knows
    decode.link_of[PREFILL_GROUP, 0] = link
    decode.links[link] = replace(decode.links[link], state=DLink.AWAIT_RETURN)
    at._landing(job.node, job.write)


def test_pages_that_are_released_in_flight_are_found() -> None:
    at = world(seed=11)
    in_flight(at)
    at.look()
    at.nodes["P", 0].released.add(ROOM)
    for happens in (at.look, at.step, at.calm):
        with pytest.raises(AssertionError, match="seed 11: P0 released 100 in flight"):
            happens()


def test_a_watermark_beyond_the_ring_s_own_is_found() -> None:
    at = world(seed=11)
    rank = at.prefill(0)
    link = rank.link_of[DECODE_GROUP, 0]
    round_, tail = at.decode(0).ring.mark
    value = rank.links[link]
    for seen in ((round_, tail), (round_, tail + 1), (round_ + 1, 0)):
        rank.links[link] = replace(value, mark_round=seen[0], mark_tail=seen[1])
        if seen == (round_, tail):
            at.look()
            continue
        with pytest.raises(AssertionError, match="seed 11: a watermark of"):
            at.look()
        rank.links[link] = replace(rank.links[link], epoch=value.epoch + 1)
        at.look()
    decode = at.decode(0)
    here = decode.link_of[PREFILL_GROUP, 0]
    rank.links[link] = replace(rank.links[link], epoch=0)
    decode.links[here] = replace(decode.links[here], epoch=0)
    at.look()  # neither has agreed to anything
    rank.links[link] = replace(rank.links[link], epoch=5)
    decode.links[here] = replace(decode.links[here], epoch=5)
    del decode.link_of[PREFILL_GROUP, 0]
    at.look()  # nobody whom it knows


def test_a_second_outcome_and_a_second_release_are_found() -> None:
    at = world(seed=11)
    whole(at)
    node = at.nodes["D", 0]
    with pytest.raises(AssertionError, match=r"seed 11: a second outcome: .* on D0"):
        node.hear_outcome(do.AnnounceOutcome(ROOM, Cause.NONE))
    with pytest.raises(AssertionError, match="seed 11: a second release of 100 on D0"):
        node.hear_released(ROOM)
    node.hear_released(ROOM + 1)
    assert node.released == {ROOM}, "nobody has opened the other one, and nobody waits for it"


def test_what_is_left_is_told_by_rank_and_kind() -> None:
    at = world()
    in_flight(at)
    left = {line.partition(": ")[0] + ": " + line.split(": ")[1] for line in at.idle()}
    assert {"P0: rooms", "P0: sends", "P0: slots", "P0: slot_of", "P0: writes", "D0: rooms", "D0: grants", "D0: ring",
            "D0: regions"} <= left  # fmt: skip


LEFT = {
    "P": {"rooms": "rooms", "sends": "sends", "slot_of": "slot_of", "slot_queue": "queue", "permits": "permits",
          "permit_queue": "writers", "credits": "credits", "credit_queues": "askers", "writes": "writes",
          "unposted": "unposted"},
    "D": {"rooms": "rooms", "grants": "grants", "space_queue": "queue", "chunk_of": "regions", "live": "ring",
          "blocked": "blocked", "freed": "freed"},
}  # fmt: skip


@pytest.mark.parametrize(("side", "kind"), [(side, kind) for side in LEFT for kind in LEFT[side]])
def test_each_thing_that_is_left_is_told(side: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = world()
    node = at.nodes["P" if side == "P" else "D", 0]
    owner: Any = node.rank
    if kind == "unposted":
        owner = node.interpreter
    elif kind in ("live", "blocked", "freed"):
        owner = at.decode(0).ring
    assert at.idle() == []
    monkeypatch.setattr(owner, kind, {1: "planted"})
    assert at.idle() == [f"{side}0: {LEFT[side][kind]}: {{1: 'planted'}}"]


def test_a_slot_that_is_not_free_is_told() -> None:
    at = world()
    at.prefill(0).free_slots.pop()
    assert at.idle() == ["P0: slots: 1"]


def test_rows_are_counted_over_all_lives() -> None:
    at = world()
    whole(at)
    before = at.fired + Counter(
        row for node in at.nodes.values() for _, row, *_ in steps(node.rank.trace) if row is not None
    )
    fired = at.rows()
    assert at.fired == before and at.rows() == fired and at.fired == before, "each is counted once"
    assert {row.source for row in fired if row.event is ev.RoomOpened} and at.fired.total() >= len(fired) > 30
    whole(at, ROOM + 1)
    late = Counter(row for _, row, *_ in steps(at.nodes["D", 0].rank.trace) if row is not None)
    at.start("D", 0)
    assert at.fired == before + late
    at.start("P", 0)
    assert fired <= at.rows()
