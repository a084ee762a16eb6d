"""Writes of many batches: posted while the lease holds, at most so many pieces a pass, and ended once.

The machine is the compiled table, the handler the real one; what stands in is the transport and the loop around them.
"""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvproto.data import writes
from kvproto.data.page_writes import PagesBatch
from kvproto.data.staged_writes import StagedWrite
from kvproto.data.writes import BUDGET, HOLD_S, TOGETHER, KernelBatch, RankWrites
from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Event
from kvproto.io.transports.base import Busy, Completed, Failed, Fault, Handle, PeerId
from kvproto.io.transports.page_lists import PageLists
from kvproto.observe.logs import Logs
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import Aux, StgNotify
from kvproto.protocol.notification import MAX_NOTES, make_tag
from kvproto.protocol.states import PWrite
from kvproto.protocol.tables.prefill_write import PWriteValue, prefill_write
from kvproto.protocol.timing import Timing

KEY, OTHER = (7, 0, 1), (7, 1, 1)
PEER, WRITER = PeerId("peer"), (4, 1)
WHY = Fault("backend", "planted")
LEASE_S = 30.0
LAPSED = ev.WriteLapsed(*KEY)
DONE, LOST, DOUBT = ev.WriteCompleted(*KEY), ev.WriteFailed(*KEY, settled=True), ev.WriteFailed(*KEY, settled=False)


def stand_in(**parts: Any) -> Any:
    """Something that has these, and nothing else."""
    return SimpleNamespace(**parts)


class World:
    """Writes and their machines over a transport that takes everything, until it is told to be full."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.posted: list[int] = []
        self.full, self.broken, self.settled, self.now = False, False, False, 0.0
        self.machine = Machine(prefill_write, Timing())
        self.values: dict[tuple[int, int, int], PWriteValue] = {}
        self.queue: deque[Event] = deque()
        self.loop = stand_in(
            turns=1, logs=Logs("prefill rank 0", Counter()), raise_event=self.queue.append, submit=self.submit,
            settle=lambda: self.submit([]),
            at_end=[], hold=lambda _error: None,
        )  # fmt: skip
        #: prepared writes that were posted, and that were dropped
        self.prepared_writes: list[object] = []
        self.dropped: list[object] = []
        transport = stand_in(
            write_many=self.write_many, quiescent=lambda _: self.settled, drop=self.dropped.append, post=self.post,
            run=self.run, tell=self.note,
        )  # fmt: skip
        #: notes that went alone, and whether the transport takes them
        self.notes: list[tuple[PeerId, bytes]] = []
        self.takes = True
        #: what was told of the time of writes
        self.times: list[tuple[Any, ...]] = []
        #: of staged writes: tags in the order of their posts; whose alone, and together with whose, is refused
        self.tags: list[list[int]] = []
        self.bad: set[int] = set()
        self.writes = RankWrites(
            self.loop, transport, stand_in(parts=self.parts, tag=lambda writes: writes, writer=WRITER),
            stand_in(posted=self.begun, over=self.ended),
        )  # fmt: skip
        self.handlers: dict[type[Any], Any] = {
            do.PostBatch: self.writes.post_batch, do.DropBatches: self.writes.drop_batches,
        }  # fmt: skip

    def begun(self, peer: PeerId, route: str) -> None:
        self.times.append((peer, route))

    def ended(self, peer: PeerId, pieces: int, nbytes: int, *, ok: bool) -> None:
        self.times.append((peer, pieces, nbytes, ok))

    @staticmethod
    def parts(writes: list[StagedWrite]) -> list[Any]:
        return [SimpleNamespace(descs=np.array([write.piece for write in writes], np.uint64))]

    def post(self, prepared: object) -> Handle:
        self.prepared_writes.append(prepared)
        self.posted.append(1)
        return Handle(len(self.posted) - 1)

    def note(self, peer: PeerId, tag: bytes) -> bool:
        self.notes.append((peer, tag))
        return self.takes

    def run(self, *about: object) -> Handle:
        self.prepared_writes.append(about)
        self.posted.append(1)
        return Handle(len(self.posted) - 1)

    def write_many(self, _peer: PeerId, parts: list[Any], tag: Any) -> Handle:
        if self.full:
            raise Busy("planted")
        chunks = [write.note[2].chunk for write in tag]
        if self.broken or self.bad.intersection(chunks):
            raise OSError("planted")
        if chunks:
            self.tags.append(chunks)
        self.posted.append(sum(len(part.descs) for part in parts))
        return Handle(len(self.posted) - 1)

    def submit(self, _effects: list[Any]) -> None:
        """Fire what was raised; what is said to the send is kept, the rest carried out."""
        while self.queue or self.loop.at_end:
            if self.queue:
                self.fire()
            else:
                self.loop.at_end.pop(0)()

    def fire(self) -> None:
        while self.queue:
            event: Any = self.queue.popleft()
            key = event.room, event.chunk, event.peer
            value, outputs = self.machine.step(self.values.get(key, self.machine.initial), event, self.now)
            self.values[key] = value
            for output in outputs:
                if isinstance(output, Event):
                    self.told.append(output)
                elif type(output) in self.handlers:
                    self.handlers[type(output)](output)
                else:
                    assert isinstance(output, do.PreparePages), output

    def write(self, batches: int, pieces: int = 1, key: tuple[int, int, int] = KEY) -> None:
        """Begin one of so many batches of so many pieces."""
        part: Any = SimpleNamespace(descs=np.ones((pieces, 3), np.uint64))
        self.tell(ev.PagesBegun(*key, ev.Target(), b"", LEASE_S))
        self.writes.offer(key, PEER, deque([part] for _ in range(batches)), None)
        self.submit([])

    def stage(self, *chunks: int, peer: PeerId = PEER, hold: bool = False, prepared_writes: bool = False) -> None:
        """Gathers of these chunks have ended at one moment; `prepared_writes`: their writes were made ready."""
        for chunk in chunks:
            key = 7, chunk, 1
            prepared: Any = f"prepared {chunk}" if prepared_writes else None
            write = StagedWrite(peer, (0, 64 * chunk, 64), (1, 7, StgNotify(chunk, 1)), prepared)
            self.handlers[do.PostWrite] = lambda _, key=key, write=write: self.writes.post_staged(key, write, hold=hold)
            self.queue.append(ev.WriteBegun(*key, ev.Target(), 0, 0, 1, LEASE_S))
            self.fire()
        self.submit([])

    def ends(self) -> list[tuple[str, int]]:
        """The reports, and their chunks."""
        return [(type(event).__name__, event.chunk) for event in self.told]  # type: ignore[attr-defined]

    def tell(self, event: Event) -> None:
        self.queue.append(event)
        self.submit([])

    def end(self, *handles: int) -> None:
        for handle in handles:
            self.writes.hear(Completed(Handle(handle)))
        self.submit([])

    def fail(self, handle: int, *, settled: bool) -> None:
        self.writes.hear(Failed(Handle(handle), WHY, settled))
        self.submit([])

    def next_pass(self) -> bool:
        self.loop.turns += 1
        moved = self.writes.poll()
        self.submit([])
        return moved

    def over(self) -> bool:
        return not self.writes and not self.writes.unposted and not self.writes.doubtful


@pytest.fixture
def world() -> World:
    return World()


def test_a_write_ends_when_its_last_batch_has(world: World) -> None:
    world.write(3)
    world.end(0, 2)
    assert not world.told and world.writes
    world.end(1)
    assert world.told == [DONE] and world.over()
    assert not world.notes and not world.writes.told, "no kernel stored it"


def test_a_pass_posts_a_bounded_number_of_pieces_and_the_next_one_goes_on(world: World) -> None:
    world.write(7, BUDGET // 2)
    assert len(world.posted) == 2
    assert not world.writes.poll(), "the pass has posted enough"
    assert world.next_pass() and len(world.posted) == 4
    world.write(1, key=OTHER)
    assert len(world.posted) == 4, "another send waits its turn"
    while world.next_pass():
        pass
    assert sorted(world.posted) == [1, *[BUDGET // 2] * 7]
    assert world.writes.pieces == world.writes.nbytes == sum(world.posted), "each piece is of one byte"


@pytest.mark.parametrize("why", ["lease", "stopped"])
def test_what_may_no_longer_be_posted_is_given_up_and_the_write_ends_with_what_was(world: World, why: str) -> None:
    world.write(5, BUDGET // 2)
    if why == "lease":
        world.now = LEASE_S
    else:
        world.tell(ev.WriteStopped(*KEY))
    world.next_pass()
    assert len(world.posted) == 2 and not world.told, "two batches are under way"
    assert not world.writes.unposted
    world.end(0, 1)
    assert world.told == [LOST] and world.over()


def test_a_write_whose_lease_is_over_before_its_first_byte_is_not_lost(world: World) -> None:
    world.now = LEASE_S
    world.write(2)
    assert not world.posted and world.told == [LAPSED] and world.over()


def test_one_that_had_no_room_until_its_lease_was_over_is_not_lost_either(world: World) -> None:
    world.full = True
    world.write(2)
    world.full, world.now = False, LEASE_S
    world.next_pass()
    assert not world.posted and world.told == [LAPSED] and world.over()


def test_one_of_which_a_batch_has_landed_when_its_lease_ends_is(world: World) -> None:
    world.write(2, BUDGET)
    world.end(0)
    world.now = LEASE_S
    world.next_pass()
    assert len(world.posted) == 1 and world.told == [LOST] and world.over()


def test_a_batch_without_room_waits_in_order(world: World) -> None:
    world.full = True
    world.write(2)
    world.write(1, 3, OTHER)
    assert not world.posted and world.writes
    world.full = False
    assert world.next_pass()
    assert world.posted == [1, 1, 3]


def test_a_peer_without_room_is_asked_once_a_pass(world: World) -> None:
    world.full = True
    for chunk in range(5):
        world.write(1, key=(7, chunk, 1))
    asked = []
    take = world.write_many
    world.writes.transport.write_many = lambda *given: asked.append(given) or take(*given)  # type: ignore[method-assign, func-returns-value]
    world.next_pass()
    assert len(asked) == 1


def test_a_batch_that_the_transport_refuses_fails_the_write_at_once(world: World) -> None:
    world.broken = True
    world.write(2)
    assert world.told == [LOST] and world.over()
    assert any("planted" in report for report in world.loop.logs.reports)


def test_one_that_fails_while_the_rest_waits_ends_once(world: World) -> None:
    world.write(2, BUDGET)
    world.full = True
    world.fail(0, settled=True)
    world.full = False
    for _ in range(3):
        world.next_pass()
    assert len(world.posted) == 1 and world.told == [LOST] and world.over()


def test_a_write_in_doubt_is_told_at_once_and_once_more_when_it_can_move_no_more(world: World) -> None:
    world.write(1)
    world.fail(0, settled=False)
    assert world.told == [DOUBT] and world.values[KEY].state is PWrite.IN_DOUBT
    world.next_pass()
    assert world.told == [DOUBT] and not world.over()
    world.settled = True
    world.next_pass()
    assert world.told == [DOUBT, LOST] and world.over()


def test_a_batch_that_was_deferred_when_its_send_was_stopped_is_never_posted(world: World) -> None:
    world.full = True
    world.write(1)
    world.tell(ev.WriteStopped(*KEY))
    world.full = False
    world.next_pass()
    assert not world.posted and world.told == [LOST] and world.over()


def test_a_write_over_pages_waits_for_what_it_reads(world: World) -> None:
    passed, asked = [False], list[int]()
    part: Any = SimpleNamespace(descs=np.ones((1, 3), np.uint64))
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))

    def query() -> bool:
        asked.append(1)
        return passed[0]

    world.writes.offer(KEY, PEER, deque([[part], [part]]), stand_in(query=query))
    world.next_pass()
    assert not world.posted and world.writes
    passed[0] = True
    world.next_pass()
    assert world.posted == [1, 1] and len(asked) == 3, "what has passed is not asked again"


def test_pieces_and_bytes_of_what_was_posted_are_counted(world: World) -> None:
    rows = [[0, 0, 5], [0, 0, 6]], [[0, 0, 7]]
    parts: list[Any] = [SimpleNamespace(descs=np.array(each, np.uint64)) for each in rows]
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([parts]), None)
    world.submit([])
    assert (world.writes.pieces, world.writes.nbytes) == (3, 18)


def test_one_whose_forward_has_failed_is_never_posted_and_fails_once(world: World) -> None:
    def query() -> bool:
        raise RuntimeError("planted")

    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([[]]), stand_in(query=query))
    for _ in range(2):
        world.next_pass()
    assert not world.posted and world.told == [LOST] and world.over()


def test_staged_writes_of_one_moment_are_one_of_the_transport_to_each_peer(world: World) -> None:
    world.stage(0, 1, 2)
    world.stage(3, peer=PeerId("other"))
    assert world.tags == [[0, 1, 2], [3]] and world.posted == [3, 1]
    world.end(0)
    assert world.ends() == [("WriteCompleted", chunk) for chunk in (0, 1, 2)]
    world.end(1)
    assert world.ends()[3:] == [("WriteCompleted", 3)] and world.over()
    assert (world.writes.pieces, world.writes.nbytes) == (4, 4 * 64)


def test_small_ones_that_are_held_leave_at_the_next_look_with_what_is_ready_then(world: World) -> None:
    world.stage(0, hold=True)
    world.stage(1, hold=True)
    assert not world.tags and world.writes
    assert world.next_pass() and world.tags == [[0, 1]]
    assert not world.next_pass()


def test_small_ones_wait_while_others_are_about_to_be_ready_but_few_and_not_for_long(world: World) -> None:
    at = [0.5]
    world.loop.clock = SimpleNamespace(real=lambda: at[0])
    world.writes.others = lambda: True
    world.stage(0, hold=True)
    world.next_pass()
    at[0] += 0.9 * HOLD_S
    world.stage(1, hold=True)
    world.next_pass()
    assert not world.tags and world.writes
    at[0] += 0.2 * HOLD_S
    world.next_pass()
    assert world.tags == [[0, 1]], "the first of them has waited long enough"
    world.stage(*range(2, 2 + TOGETHER), hold=True)
    world.next_pass()
    assert world.tags[1:] == [[*range(2, 2 + TOGETHER)]], "they are enough"
    world.stage(20, hold=True)
    world.next_pass()
    assert len(world.tags) == 2, "who is held now has not waited yet"
    world.stage(*range(21, 20 + TOGETHER), hold=True)
    world.next_pass()
    assert world.tags[2:] == [[*range(20, 20 + TOGETHER)]]
    at[0] += 2 * HOLD_S
    world.stage(40, hold=True)
    world.next_pass()
    assert len(world.tags) == 3, "nor has who is held after those that were enough"


def test_what_is_held_no_longer_goes_behind_what_waits_already(world: World) -> None:
    world.full = True
    world.stage(0)
    world.stage(1, hold=True)
    world.full = False
    world.next_pass()
    assert world.tags == [[0, 1]]


def test_what_is_held_asks_for_its_lease_when_it_leaves(world: World) -> None:
    world.stage(0, 1, hold=True)
    world.now = LEASE_S
    world.next_pass()
    assert not world.tags and world.ends() == [("WriteLapsed", 0), ("WriteLapsed", 1)] and world.over()


def test_a_tag_holds_so_many_notes_and_the_rest_is_a_write_of_its_own(world: World) -> None:
    world.stage(*range(2 * MAX_NOTES + 1))
    assert [len(tag) for tag in world.tags] == [MAX_NOTES, MAX_NOTES, 1]
    assert [chunk for tag in world.tags for chunk in tag] == [*range(2 * MAX_NOTES + 1)]


@pytest.mark.parametrize("settled", [True, False])
def test_what_fails_together_is_told_of_each(world: World, settled: bool) -> None:
    world.stage(0, 1)
    world.fail(0, settled=settled)
    first = [ev.WriteFailed(7, chunk, 1, settled=settled) for chunk in (0, 1)]
    assert world.told == first
    if not settled:
        world.next_pass()
        assert world.told == first, "bytes may still land"
        world.settled = True
        world.next_pass()
        assert world.told == [*first, *(ev.WriteFailed(7, chunk, 1, settled=True) for chunk in (0, 1))]
    assert world.over()


def test_of_those_that_are_refused_together_only_who_is_at_fault_fails(world: World) -> None:
    world.bad = {1}
    world.stage(0, 1, 2)
    assert world.tags == [[0], [2]]
    assert world.told == [ev.WriteFailed(7, 1, 1, settled=True)]
    world.end(0, 1)
    assert world.ends()[1:] == [("WriteCompleted", 0), ("WriteCompleted", 2)] and world.over()


def test_those_without_room_leave_together_later(world: World) -> None:
    world.full = True
    world.stage(0, 1)
    assert not world.tags and world.values[7, 0, 1].state is PWrite.POSTING
    world.full = False
    world.next_pass()
    assert world.tags == [[0, 1]]


def test_one_that_is_given_up_before_the_others_are_posted_is_left_out(world: World) -> None:
    world.stage(0, 1, hold=True)
    for chunk in (0, 1):
        world.queue.append(ev.BatchReady(7, chunk, 1, last=True))
    world.queue.append(ev.WriteStopped(7, 0, 1))
    world.writes._held.clear()
    world.submit([])
    assert world.tags == [[1]] and world.told == [ev.WriteFailed(7, 0, 1, settled=True)]
    world.end(0)
    assert world.ends()[1:] == [("WriteCompleted", 1)] and world.over()


def test_a_prepared_write_is_posted_as_it_is_if_its_write_is_alone_and_else_dropped(world: World) -> None:
    world.stage(0, prepared_writes=True)
    assert world.prepared_writes == ["prepared 0"] and not world.tags and not world.dropped
    world.stage(1, 2, prepared_writes=True)
    assert world.tags == [[1, 2]] and world.dropped == ["prepared 1", "prepared 2"] and len(world.prepared_writes) == 1
    world.stage(3)
    assert world.tags[1:] == [[3]] and len(world.dropped) == 2, "there is nothing to drop"


def test_the_prepared_write_of_what_is_given_up_is_dropped(world: World) -> None:
    world.stage(0, hold=True, prepared_writes=True)
    world.tell(ev.WriteStopped(7, 0, 1))
    world.next_pass()
    assert world.dropped == ["prepared 0"] and not world.prepared_writes and not world.tags


def test_a_pass_posts_as_much_as_it_may_and_no_less(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "BUDGET", 2)
    world.next_pass()
    world.write(3)
    assert len(world.posted) == 2
    world.next_pass()
    assert len(world.posted) == 3


NOTE = 9, KEY[0], StgNotify(KEY[1], 0)


def stored_by_a_kernel(world: World) -> Any:
    """A write that a kernel does, and is at: what is launched."""
    launch: Any = object()
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([KernelBatch(launch, (1, 2), 50)]), None, NOTE)
    world.submit([])
    assert not world.notes and not world.writes.told
    return launch


def test_what_a_kernel_stores_is_launched_for_its_peer_and_told_when_it_ends(world: World) -> None:
    launch = stored_by_a_kernel(world)
    assert world.prepared_writes == [(PEER, launch, (1, 2))] and (world.writes.pieces, world.writes.nbytes) == (1, 50)
    world.end(0)
    assert world.told == [DONE] and world.over()
    assert world.notes == [(PEER, make_tag(*WRITER, [NOTE]))] and world.writes.told == {(PEER, NOTE)}
    assert not world.writes._notes


def test_a_note_that_the_transport_does_not_take_counts_as_not_told(world: World) -> None:
    world.takes = False
    stored_by_a_kernel(world)
    world.end(0)
    assert world.told == [DONE] and len(world.notes) == 1 and not world.writes.told


def test_a_note_is_left_at_the_peer_s_door_where_there_is_one(world: World) -> None:
    left = list[tuple[PeerId, bytes]]()

    def leave(peer: PeerId, tag: bytes) -> bool:
        left.append((peer, tag))
        return True

    world.writes.tell = leave
    stored_by_a_kernel(world)
    world.end(0)
    assert left == [(PEER, make_tag(*WRITER, [NOTE]))] and not world.notes
    assert world.told == [DONE] and world.writes.told == {(PEER, NOTE)}


def test_a_note_that_cannot_be_left_goes_by_the_transport(world: World) -> None:
    world.writes.tell = lambda _peer, _tag: False
    stored_by_a_kernel(world)
    world.end(0)
    assert len(world.notes) == 1 and world.writes.told == {(PEER, NOTE)}


@pytest.mark.parametrize("bell", [True, False])
def test_what_a_kernel_could_not_store_is_not_told(world: World, bell: bool) -> None:  # by either way
    if bell:
        world.writes.tell = lambda peer, tag: not world.notes.append((peer, tag))  # type: ignore[func-returns-value]
    stored_by_a_kernel(world)
    world.fail(0, settled=True)
    assert world.told == [LOST] and not world.notes and not world.writes.told and not world.writes._notes


def test_what_a_kernel_stores_of_a_write_that_was_stopped_is_not_told(world: World) -> None:
    stored_by_a_kernel(world)
    world.tell(ev.WriteStopped(*KEY))
    world.end(0)
    assert world.told == [LOST] and world.over() and not world.notes and not world.writes._notes


AUX = 9, KEY[0], Aux(b"row", b"trace")


def test_an_aux_row_goes_with_the_note_of_a_write_and_before_it(world: World) -> None:
    stored_by_a_kernel(world)
    assert world.writes.takes_along(KEY, AUX, pytest.fail)
    world.end(0)
    assert world.notes == [(PEER, make_tag(*WRITER, [AUX, NOTE]))] and world.writes.told == {(PEER, NOTE)}


def test_an_aux_row_goes_alone_where_the_transport_does_not_take_the_note(world: World) -> None:
    world.takes, alone = False, list[bool]()
    stored_by_a_kernel(world)
    assert world.writes.takes_along(KEY, AUX, lambda: alone.append(True))
    assert not alone
    world.end(0)
    assert alone == [True]


def test_an_aux_row_goes_with_no_write_that_is_another_or_has_one_or_is_over(world: World) -> None:
    stored_by_a_kernel(world)
    assert not world.writes.takes_along(OTHER, AUX, pytest.fail)
    assert world.writes.takes_along(KEY, AUX, pytest.fail)
    assert not world.writes.takes_along(KEY, AUX, pytest.fail), "it was not confirmed"
    world.end(0)
    assert not world.writes.takes_along(KEY, AUX, pytest.fail) and len(world.notes) == 1


def test_each_of_two_that_kernels_store_is_told_when_it_ends_itself(world: World) -> None:
    stored_by_a_kernel(world)
    other, launch = (9, OTHER[0], StgNotify(OTHER[1], 0)), object()
    world.tell(ev.PagesBegun(*OTHER, ev.Target(), b"", LEASE_S))
    world.writes.offer(OTHER, PEER, deque([KernelBatch(launch, (1, 2), 50)]), None, other)  # type: ignore[arg-type]
    world.submit([])
    world.end(1)
    assert world.writes.told == {(PEER, other)}
    world.end(0)
    assert world.writes.told == {(PEER, other), (PEER, NOTE)}


def test_a_write_of_many_batches_is_told_once_when_the_last_of_them_has_ended(world: World) -> None:
    part: Any = SimpleNamespace(descs=np.ones((1, 3), np.uint64))
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([[part], [part], [part]]), None, NOTE)
    world.submit([])
    for at in (2, 0):
        world.end(at)
        assert not world.notes
    world.end(1)
    assert world.told == [DONE] and world.notes == [(PEER, make_tag(*WRITER, [NOTE]))] and not world.writes._notes


def test_whole_pages_are_posted_by_their_numbers_and_counted(world: World) -> None:
    lists, posted = PageLists(PEER, ()), list[Any]()
    lists.nbytes = 100
    near, far = np.array([1, 2, 5]), np.array([0, 1, 2])
    world.writes.transport.write_pages = lambda *what: posted.append(what) or Handle(0)  # type: ignore[method-assign, func-returns-value]
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([PagesBatch(lists, near, far, 2)]), None, NOTE)
    world.submit([])
    assert posted == [(lists, near, far, b"")] and (world.writes.pieces, world.writes.nbytes) == (2, 300)
    world.end(0)
    assert world.told == [DONE] and world.writes.written["pages"] == 300 and len(world.notes) == 1


def test_one_that_cannot_be_posted_is_not_told(world: World) -> None:
    def fails() -> bool:
        raise OSError("planted")

    part: Any = SimpleNamespace(descs=np.ones((1, 3), np.uint64))
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([[part]]), SimpleNamespace(query=fails), NOTE)
    world.submit([])
    assert world.told == [LOST] and not world.notes and not world.writes._notes


def test_writes_tell_the_event_that_the_oldest_waits_for_if_all_wait_for_one(world: World) -> None:
    part: Any = SimpleNamespace(descs=np.ones((1, 3), np.uint64))
    first, second = (SimpleNamespace(query=lambda: False) for _ in range(2))
    assert world.writes.awaits() is None
    for key, after in ((KEY, first), (OTHER, second)):
        world.tell(ev.PagesBegun(*key, ev.Target(), b"", LEASE_S))
        world.writes.offer(key, PEER, deque([[part]]), after)
    world.submit([])
    assert world.writes.awaits() is first
    world.writes.unposted[OTHER].after = None
    assert world.writes.awaits() is None
    world.writes.unposted[OTHER].after = second
    world.writes._held.append(KEY)
    assert world.writes.awaits() is None, "what is held waits for others"
    world.writes._held.clear()
    world.writes.flying[Handle(0)] = (KEY,)
    assert world.writes.awaits() is None, "what is in flight is polled"


def test_a_peer_is_woken_before_a_write_that_has_waited_for_its_forward(world: World) -> None:
    part: Any = SimpleNamespace(descs=np.ones((1, 3), np.uint64))
    woken, over = list[tuple[PeerId, int]](), list[bool]()
    world.writes.nudge = lambda peer: woken.append((peer, len(world.posted)))
    world.tell(ev.PagesBegun(*KEY, ev.Target(), b"", LEASE_S))
    world.writes.offer(KEY, PEER, deque([[part]]), SimpleNamespace(query=lambda: bool(over)))
    world.next_pass()
    assert not woken
    over.append(True)
    world.next_pass()
    assert woken == [(PEER, 0), (PEER, 1)], "it wakes while the write is made"
    world.tell(ev.PagesBegun(*OTHER, ev.Target(), b"", LEASE_S))
    world.writes.offer(OTHER, PEER, deque([[part]]), None)
    world.submit([])
    assert woken[2:] == [(PEER, 2)], "nobody has slept over one that waits for nothing"


def test_the_room_of_each_part_that_has_arrived_is_told(world: World) -> None:
    rooms = list[int]()
    world.writes.arrived = rooms.append
    world.stage(5, 6)
    world.end(0)
    assert rooms == [KEY[0]] * 2
    world.write(1)
    world.fail(1, settled=True)
    assert len(rooms) == 2


def test_a_staged_write_waits_for_the_next_pass_if_this_one_has_posted_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "BUDGET", 1)
    world.next_pass()
    world.stage(0)
    world.stage(1)
    assert world.tags == [[0]]
    world.next_pass()
    assert world.tags == [[0], [1]]


def test_of_each_write_is_told_when_it_begins_and_how_it_ends(world: World) -> None:
    for handle in (1, 2):
        world.writes._posted(Handle(handle), (KEY,), PEER, "pages", 3, 64)
    world.writes.hear(Completed(Handle(1)))
    world.writes.hear(Failed(Handle(2), WHY, False))
    assert world.times == [(PEER, "pages")] * 2 + [(PEER, 3, 64, True), (PEER, 3, 64, False)]


def test_a_write_whose_notification_fails_is_over_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_key: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(world.writes, "_note", fails)
    world.writes._posted(Handle(1), (KEY,), PEER, "pages", 3, 64)
    with pytest.raises(RuntimeError, match="planted"):
        world.writes.hear(Completed(Handle(1)))
    assert world.times[1:] == [(PEER, 3, 64, True)] and world.writes.written["pages"] == 64


def test_peers_are_woken_by_writes_that_begin_and_that_end(world: World) -> None:
    woken = list[PeerId]()
    world.writes.nudge = woken.append
    world.write(1)
    assert woken == [PEER]
    world.end(0)
    assert woken == [PEER, PEER]
    world.stage(3)
    assert len(woken) == 3
    world.fail(1, settled=True)
    assert len(woken) == 3
