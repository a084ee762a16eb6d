"""The simulated world by itself: its traffic, the order of its time, and judges that do judge."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import CHUNK_TOKENS, QUICK, layout

from kvproto.fsm.driver import steps
from kvproto.fsm.vocabulary import Report
from kvproto.layout.cut import Cut
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.sim.member import FaultChances, MessageUnderWay, PendingWork
from kvproto.verify.sim.world import SimulatedWorld

ROOM, TOKENS = 100, 20
WRITE = do.PostWrite


def world(
    prefill: int = 1, decode: int = 1, *, seed: int = 0, up: bool = True, native_notify: bool = False, **chances: Any
) -> SimulatedWorld:  # fmt: skip
    made = SimulatedWorld(
        seed, layout(prefill), layout(decode), chunk_tokens=CHUNK_TOKENS,
        settings=Settings(timing=QUICK, ring_bytes=1 << 20),
        chances=FaultChances(**chances), native_notify=native_notify,
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


# --------------------------------------------------------------------------------------------------- who there is
def test_ranks_are_wired_up_and_called_when_it_begins() -> None:
    at = world(2, 4)
    assert [*at.nodes] == [("P", 0), ("P", 1), *(("D", index) for index in range(4))]
    assert [node.name for node in at.nodes.values()] == ["P0", "P1", "D0", "D1", "D2", "D3"]
    for node in at.nodes.values():
        kind = (PLink.UP, 2) if node.side == "P" else (DLink.UP, 1)
        assert [link.state for link in node.rank.links.values()] == [kind[0]] * kind[1]
    assert all(node.place == node.name.encode() for node in at.nodes.values())
    assert at.prefill(1) is at.nodes["P", 1].rank and at.decode(3) is at.nodes["D", 3].rank
    assert [rank.rank.incarnation for rank in at.nodes.values()] == [1, 2, 3, 4, 5, 6]
    assert (at.mail, at.jobs, at.idle(), at.reports) == ([], [], [], [])


def test_who_says_nothing_has_no_trouble_and_the_usual_settings() -> None:
    at = SimulatedWorld(0, layout(1), layout(1), chunk_tokens=CHUNK_TOKENS)
    assert (at.chances, at.settings, at.native_notify) == (FaultChances(), Settings(), False)
    assert world(up=False, lose=0.5).chances == FaultChances(lose=0.5) and world().settings.timing == QUICK


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


def test_without_its_aux_row_a_room_goes_on() -> None:
    at = world()
    at.open_all(ROOM, TOKENS)
    at.produce_all(ROOM, TOKENS, aux=False)
    at.calm()
    assert not at.settled(ROOM)
    at.raise_event("P", 0, ev.AuxProvided(ROOM))
    at.calm()
    assert at.settled(ROOM)


def test_a_prefix_is_not_moved() -> None:
    at = world()
    at.open_all(ROOM, TOKENS, prefix=CHUNK_TOKENS)
    at.produce_all(ROOM, TOKENS)
    at.calm()
    assert at.settled(ROOM) and len(at.posted) == 2


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


def test_messages_are_the_rank_s_whose_place_it_is() -> None:
    at = world()
    at.mail_to(b"D0", b"P0", 5, ROOM, msg.Heartbeat())
    at.mail_to(b"nowhere", b"P0", 5, ROOM, msg.Heartbeat())
    assert at.mail == [MessageUnderWay("D", 0, b"P0", 5, ROOM, msg.Heartbeat())]


@pytest.mark.parametrize(("chances", "copies"), [({"lose": 1.0}, 0), ({"repeat": 1.0}, 2), ({}, 1)])
def test_messages_are_lost_or_come_twice(chances: dict[str, Any], copies: int) -> None:
    at = world()
    at.chances = FaultChances(**chances)
    at.mail_to(b"D0", b"P0", 5, ROOM, msg.Heartbeat())
    assert len(at.mail) == copies


def test_what_is_certain_happens_and_what_is_not_possible_does_not() -> None:
    at = world()
    state = at.random.getstate()
    assert not at.chance(0.0) and at.random.getstate() == state, "no number is drawn for it"
    assert at.chance(1.0) and at.random.getstate() != state
    assert {at.chance(0.5) for _ in range(50)} == {False, True}


# ------------------------------------------------------------------------------------------------- how things go wrong
@pytest.mark.parametrize(
    ("chances", "kinds"),
    [({}, {"Gathered"}), ({"gather_fails": 1.0}, {"GatherFailed"}), ({"gather_hangs": 1.0}, {"Gathered"})],
)
def test_a_gather_ends_fails_or_hangs(chances: dict[str, Any], kinds: set[str]) -> None:
    at = world(up=True)
    at.chances = FaultChances(**chances)
    node = at.nodes["P", 0]
    node.gather(do.LaunchGather(ROOM, 1, 0, Target(1, 5), 0, 0, 1))
    (job,) = at.jobs
    assert {type(job.event).__name__} == kinds and job.hangs is ("gather_hangs" in chances) and job.write is None
    assert (job.node, job.event) == (node, type(job.event)(ROOM, 1, 0))


def write_of(at: SimulatedWorld, **changed: Any) -> WRITE:
    """The write of the job in flight, as its machine asked for it."""
    write = in_flight(at).write
    assert isinstance(write, WRITE)
    return replace(write, **changed)


def test_a_post_is_taken_waits_is_refused_fails_or_is_in_doubt() -> None:
    for chances, answer, event in (
        ({"write_waits": 1.0}, ev.BatchDeferred, ev.BatchReady(ROOM, 9, 0, last=True)),
        ({"write_refused": 1.0}, ev.BatchRefused, None),
        ({"write_fails": 1.0}, None, ev.BatchFailed(ROOM, 9, 0, settled=True)),
        ({"write_fails": 1.0, "doubt": 1.0}, None, ev.BatchFailed(ROOM, 9, 0, settled=False)),
        ({}, None, ev.BatchCompleted(ROOM, 9, 0)),
        ({"write_hangs": 1.0}, None, ev.BatchCompleted(ROOM, 9, 0)),
    ):
        at = world()
        write, node = write_of(at, chunk=9), at.nodes["P", 0]
        node.interpreter.unposted[ROOM, 9, 0] = write, 1
        at.jobs.clear()
        flying, at.chances = at.flying["P0", ROOM], FaultChances(**chances)  # type: ignore[arg-type]
        assert node.post(write) is answer
        assert [job.event for job in at.jobs] == ([] if event is None else [event])
        assert [job.hangs for job in at.jobs] == ([] if event is None else ["write_hangs" in chances])
        assert [job.write for job in at.jobs] == [write if type(event) is ev.BatchCompleted else None for _ in at.jobs]
        assert at.flying["P0", ROOM] - flying == (answer is None)
        assert (("P0", ROOM, 9, 0, type(write), 1) in at.posted) is (answer is None)


def test_a_write_over_pages_is_a_few_batches_unless_it_cannot_be_made_ready() -> None:
    at = world()
    node, pages = at.nodes["P", 0], do.PreparePages(ROOM, 0, 0, Target(1, 1), b"")
    at.chances = FaultChances(batches=3)
    assert {node.prepare(pages) for _ in range(50)} == {1, 2, 3}
    at.chances = FaultChances(batches=3, write_unmade=1.0)
    assert node.prepare(pages) == 0
    asked = do.TransmitPages(1, 5, ROOM, 0, Cut(0, CHUNK_TOKENS))
    assert (node.aux_row(ROOM), node.page_ids(asked)) == (b"aux", b"page"), "all rows are alike, and all pages"


def test_a_batch_in_doubt_is_in_flight_until_it_is_settled() -> None:
    at = world()
    write, node = write_of(at), at.nodes["P", 0]
    key = write.room, 2, write.peer
    at.chances, at.jobs = FaultChances(), [PendingWork(node, ev.BatchFailed(*key, settled=False))]
    before = at.flying["P0", ROOM]
    at.finish(at.jobs[0])
    assert at.flying["P0", ROOM] == before
    settled = next(job for job in at.jobs if isinstance(job.event, ev.BatchSettled))
    assert settled.event == ev.BatchSettled(*key)
    at.finish(settled)
    assert at.flying["P0", ROOM] == before - 1
    at.jobs = [PendingWork(node, ev.BatchFailed(*key, settled=True))]
    at.finish(at.jobs[0])
    assert at.flying["P0", ROOM] == before - 2 and not [j for j in at.jobs if isinstance(j.event, ev.BatchSettled)]


def test_a_wire_up_and_a_scatter_fail_where_they_are_to() -> None:
    for fails in (0.0, 1.0):
        at = world()
        at.chances = FaultChances(wire_fails=fails, scatter_fails=fails)
        at.nodes["P", 0].connect(do.Connect(3, 4))
        at.nodes["D", 0].scatter(do.LaunchScatter(ROOM, 2, 1, 0, 256, Cut(0, CHUNK_TOKENS)))
        up, done = ((ev.WireFailed(3, 4, "no wire"), ev.ScatterFailed(ROOM, 2)) if fails
                    else (ev.WiredUp(3, 4, "P0 3"), ev.Scattered(ROOM, 2)))  # fmt: skip
        assert [job.event for job in at.jobs] == [up, done]


def test_what_ends_together_is_heard_in_one_pass() -> None:
    heard: list[tuple[Any, ...]] = []
    for together in (0.0, 1.0):
        at = world(2, 1)
        at.chances = FaultChances(together=together)
        node, other = at.nodes["P", 0], at.nodes["P", 1]
        node.interpreter.handle = lambda *said: heard.append(said)  # type: ignore[method-assign]
        first, second, hung, foreign = (
            PendingWork(each, ev.Gathered(ROOM, at_, 0), hangs)
            for each, at_, hangs in ((node, 0, False), (node, 1, False), (node, 2, True), (other, 3, False))
        )
        at.jobs = [foreign, hung, first, second]
        at.finish(first)
        assert at.jobs == ([foreign, hung] if together else [foreign, hung, second])
    assert heard == [(ev.Gathered(ROOM, 0, 0), 0.0), (ev.Gathered(ROOM, 0, 0), 0.0, ev.Gathered(ROOM, 1, 0))]


def test_what_ends_alone_is_heard_alone() -> None:
    at = world()
    heard: list[tuple[Any, ...]] = []
    at.chances, node = FaultChances(together=1.0), at.nodes["P", 0]
    node.interpreter.handle = lambda *said: heard.append(said)  # type: ignore[method-assign]
    at.jobs = [PendingWork(node, ev.Gathered(ROOM, 0, 0)), PendingWork(at.nodes["D", 0], ev.Scattered(ROOM, 0))]
    at.finish(at.jobs[0])
    assert heard == [(ev.Gathered(ROOM, 0, 0), 0.0)] and len(at.jobs) == 1


def test_a_write_that_tells_is_heard_of_by_its_reader_first_and_then_by_its_writer() -> None:
    at = world(native_notify=True)
    assert at.prefill(0).native_notify and not world().prefill(0).native_notify
    job = in_flight(at)
    assert isinstance(job.write, WRITE)
    at.mail.clear()
    at.finish(job)
    (parcel,) = at.mail
    assert parcel == MessageUnderWay(
        "D", 0, b"P0", job.write.to.epoch, ROOM, msg.StgNotify(job.write.chunk, job.write.grant)
    )  # fmt: skip
    assert at.jobs[-1] == PendingWork(job.node, job.event)
    at.chances = FaultChances()
    at.hurry()
    at.calm()
    assert at.settled(ROOM)
    at._notify_reader(job.node, replace(job.write, chunk=2, grant=5))
    assert at.mail[-1].body == msg.StgNotify(2, 5)


def test_only_what_goes_into_the_ring_and_tells_is_told() -> None:
    for native_notify, staged, told in ((True, True, 1), (True, False, 0), (False, True, 0), (False, False, 0)):
        at = world(native_notify=native_notify)
        job = in_flight(at)
        job.write = job.write if staged else do.PreparePages(ROOM, 0, 0, Target(1, 1), b"")
        at.mail.clear()
        heard = list[tuple[Any, ...]]()
        job.node.interpreter.handle = lambda *said, heard=heard: heard.append(said)  # type: ignore[method-assign]
        at.finish(job)
        assert (len(at.mail), heard) == ((1, []) if told else (0, [(job.event, 0.0)]))
    at = world(native_notify=True)
    job = in_flight(at)
    at.chances, at.jobs = FaultChances(together=1.0), [job, PendingWork(job.node, job.event, write=job.write)]
    at.mail.clear()
    at.finish(job)
    assert len(at.mail) == len(at.jobs) == 2, "two that tell end together, and their writer has heard of neither"


def test_rows_are_counted_before_a_trace_forgets_them() -> None:
    at = world()
    decode, half = at.nodes["D", 0], (at.decode(0).trace.maxlen or 0) // 2
    link = decode.rank.links[decode.rank.link_of[PREFILL_GROUP, 0]]

    def message() -> None:
        at.mail_to(b"D0", b"P0", link.epoch, 0, msg.Heartbeat())
        at.deliver(len(at.mail) - 1)

    def end() -> None:
        at.jobs.append(PendingWork(decode, ev.Scattered(ROOM, 0)))
        at.finish(at.jobs[-1])

    for happens in (message, end, lambda: at.raise_event("D", 0, ev.Scattered(ROOM, 0))):
        at.rows()
        for _ in range(600):
            happens()
            assert len(decode.rank.trace) <= half
    assert at.fired.total() > 600
    for room in range(400):
        at.open_decode(0, room, TOKENS)
    at.rows()
    before = at.fired.total()
    at.pass_time(QUICK.bootstrap.period + 1.0)
    assert len(decode.rank.trace) <= half and at.fired.total() - before > half


def test_a_dead_rank_hears_nothing_of_what_ends() -> None:
    at = world()
    job = in_flight(at)
    at.start("P", 0)
    job.node.interpreter.handle = lambda *_: pytest.fail("it is dead")  # type: ignore[method-assign]
    at.finish(job)


# ------------------------------------------------------------------------------------------------------------- time
def test_time_passes_when_nothing_moves_and_when_it_is_drawn() -> None:
    at = world(wait=0.0)
    before = at.now
    at.step()
    assert at.now > before, "there is nothing else"
    at.mail_to(b"D0", b"P0", 0, 0, msg.Heartbeat())
    before = at.now
    at.step()
    assert at.now == before and b"P0" not in {parcel.place for parcel in at.mail}
    at.chances = FaultChances(wait=1.0)
    at.mail_to(b"D0", b"P0", 0, 0, msg.Heartbeat())
    at.step()
    assert at.now > before and len(at.mail) >= 1


def test_a_step_takes_a_message_or_something_that_ends_whichever_there_is_and_either_where_there_are_both() -> None:
    at, taken = world(wait=0.0), Counter[str]()
    node, parcel = at.nodes["D", 0], MessageUnderWay("D", 0, b"P0", 0, 0, msg.Heartbeat())
    node.interpreter.hear = lambda *_: taken.update(["message"])  # type: ignore[method-assign]
    node.interpreter.handle = lambda *_: taken.update(["end"])  # type: ignore[method-assign]
    hangs = PendingWork(node, ev.Scattered(ROOM, 1), hangs=True)

    def step(mail: int, jobs: int) -> None:
        at.mail, at.jobs = [parcel] * mail, [hangs, *[PendingWork(node, ev.Scattered(ROOM, 0)) for _ in range(jobs)]]
        before = at.now, len(at.mail) + len(at.jobs)
        at.step()
        assert (at.now, len(at.mail) + len(at.jobs) + 1) == before and hangs in at.jobs

    for _ in range(20):
        step(0, 2)
    assert taken == {"end": 20}
    for _ in range(20):
        step(2, 0)
    assert taken == {"end": 20, "message": 20}
    for _ in range(200):
        step(1, 1)
    assert 60 < taken["end"] - 20 < 110, "messages come first somewhat more often"


def test_what_hangs_ends_when_there_is_hurry() -> None:
    at = world()
    job = in_flight(at)
    assert job.hangs and not at.settled(ROOM)
    at.chances = FaultChances()
    at.hurry()
    assert not any(each.hangs for each in at.jobs)
    at.calm()
    assert at.settled(ROOM)


def test_calm_lets_so_much_time_pass_and_every_timer_end_in_it() -> None:
    at = world()
    before, ends = at.now, Counter(at.decode(0).timer_ends)
    at.calm(2.5)
    assert at.now == pytest.approx(before + 2.5, abs=0.01) and at.now >= before + 2.5
    assert at.decode(0).timer_ends != ends
    assert all(node.rank.next_deadline > at.now for node in at.nodes.values())


def test_calm_is_many_small_steps_so_that_timers_end_near_their_time() -> None:
    at, passed = world(), list[float]()
    pass_time = at.pass_time
    at.pass_time = lambda seconds: (passed.append(seconds), pass_time(seconds))[1]  # type: ignore[func-returns-value, method-assign]
    at.calm(1.0)
    assert max(passed) == 0.05 and 20 <= len(passed) <= 22


def test_a_timer_that_is_due_now_ends_now() -> None:
    at = world()
    assert at.now == 0.0
    due = at.decode(0).next_deadline
    at.pass_time(due)
    assert at.now == due < at.decode(0).next_deadline


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


def test_messages_overtake_each_other_only_where_they_may() -> None:
    for reorder, wanted in ((0.0, [0, 1, 2, 3, 4, 5]), (1.0, None)):
        at = world(seed=3)
        at.chances, order = FaultChances(reorder=reorder, wait=0.0), list[int]()
        hear = at.nodes["D", 0].interpreter
        hear.hear = lambda place, epoch, room, body, now, number=None, order=order: order.append(epoch)  # type: ignore[method-assign,misc]
        for epoch in range(6):
            at.mail_to(b"D0", b"P0", epoch, 0, msg.Heartbeat())
        while at.mail:
            at.step()
        assert sorted(order) == [0, 1, 2, 3, 4, 5] and (order == wanted if wanted else order != sorted(order))


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


def test_a_release_is_the_engine_s_where_it_has_opened_the_room_and_still_owns_its_pages() -> None:
    for value, opened, released, owned in (
        (None, True, False, True), (None, True, True, False), (None, False, False, False),
        ((None,), True, False, True), ((True,), True, False, True), ((False,), True, False, False),
        ((None,), False, False, False), ((True,), False, False, False),
    ):  # fmt: skip
        node = world().nodes["D", 0]
        kept = value and SimpleNamespace(work=None if value[0] is None else SimpleNamespace(owned=value[0]))
        node.rank.value_of = lambda room, kept=kept: kept  # type: ignore[method-assign, misc]
        node.opened, node.released = ({ROOM} if opened else set()), ({ROOM} if released else set())
        node.hear_released(ROOM)
        assert (node.released == {ROOM}) is (owned or released)


def test_what_is_odd_is_kept_for_whoever_looks() -> None:
    at = world()
    at.nodes["P", 0].hear_report(Report("what", "why"))
    assert at.reports == [Report("what", "why")]


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
