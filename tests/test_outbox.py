"""Messages to a peer without room: order, bounds, bundles, retries, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from kvproto.io.control.bundle import BUNDLE
from kvproto.io.control.outbox import SLOWEST_S, SOONEST_S, Counts, Outboxes
from kvproto.io.control.sockets import Peer, Sent

A, B, OURS = Peer(0, b"a"), Peer(0, b"b"), Peer(1, b"c")
FRAMES, NBYTES, MESSAGE = 200, 1000, 100


class Post:
    """Outboxes before a socket that does as it is told, and a clock that stands."""

    def __init__(self) -> None:
        self.now, self.room = 0.0, dict.fromkeys((A, B, OURS), Sent.TAKEN)
        self.left: list[tuple[Peer, list[bytes]]] = []
        self.tried: list[Peer] = []
        self.emptied: list[Peer] = []
        self.counts = Counts()
        self.boxes = Outboxes(self.post, self.counts, FRAMES, NBYTES, MESSAGE, lambda: self.now)
        self.boxes.emptied = self.emptied.append

    def post(self, peer: Peer, data: Sequence[bytes]) -> Sent:
        assert data, "a message of nothing"
        self.tried.append(peer)
        if self.room[peer] is Sent.TAKEN:
            self.left.append((peer, list(data)))
        return self.room[peer]

    def wait(self, seconds: float) -> int:
        """Go on in time, and flush; how often somebody was tried."""
        self.now, before = self.now + seconds, len(self.tried)
        self.boxes.flush()
        return len(self.tried) - before


@pytest.fixture
def made() -> Post:
    return Post()


def test_who_has_room_is_sent_to_at_once_and_nothing_is_kept(made: Post) -> None:
    assert made.boxes.offer(A, b"one") is Sent.TAKEN
    assert (made.left, made.boxes.waiting(), made.boxes.depth(A)) == ([(A, [b"one"])], (0, 0), (0, 0))
    assert not made.boxes and A not in made.boxes and made.boxes.due_in == float("inf")
    assert (made.counts.sent, made.counts.gone) == (1, 0)
    made.room[A] = Sent.GONE
    assert made.boxes.offer(A, b"two") is Sent.GONE
    assert (made.counts.sent, made.counts.gone, made.counts.refused) == (1, 1, 0)


def test_what_is_held_leaves_in_one_message_and_before_whatever_is_not(made: Post) -> None:
    for frame in (b"one", b"two"):
        assert made.boxes.offer(A, frame, later=True) is Sent.TAKEN
    assert (made.left, made.boxes.depth(A), made.boxes.due_in) == ([], (2, 6), 0.0)
    made.boxes.offer(B, b"now")
    assert made.left == [(A, [b"one", b"two"]), (B, [b"now"])]
    assert (made.emptied, made.boxes.held, made.counts.sent) == ([A], [], 3)
    assert made.boxes.due_in == float("inf")


def test_urgent_frames_go_first_and_each_lane_keeps_its_order(made: Post) -> None:
    made.room[A] = Sent.FULL
    for frame, urgent in ((b"1", False), (b"u", True), (b"2", False), (b"v", True)):
        assert made.boxes.offer(A, frame, urgent=urgent) is Sent.TAKEN
    made.room[A] = Sent.TAKEN
    assert made.boxes.move(A)
    assert made.left == [(A, [b"u", b"v", b"1", b"2"])]
    assert (made.counts.sent, made.boxes.waiting(), made.emptied) == (4, (0, 0), [A])
    for frame, urgent in ((b"3", False), (b"w", True), (b"x", True)):
        made.boxes.offer(A, frame, urgent=urgent, later=True)
    made.boxes.flush()
    assert made.left[1:] == [(A, [b"w", b"x", b"3"])]


def test_both_bounds_are_kept_and_a_frame_too_many_is_refused(made: Post) -> None:
    made.room[A] = Sent.FULL
    assert made.boxes.offer(A, bytes(NBYTES)) is Sent.TAKEN
    assert made.boxes.offer(A, b"x") is Sent.FULL
    assert (made.counts.refused, made.boxes.depth(A), made.boxes.waiting()) == (1, (1, NBYTES), (1, NBYTES))
    made.room[B] = Sent.FULL
    assert [made.boxes.offer(B, b"x") for _ in range(FRAMES + 1)].count(Sent.TAKEN) == FRAMES
    assert (made.counts.refused, made.boxes.waiting()) == (2, (FRAMES + 1, NBYTES + FRAMES))


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ((50, 50), [2]),  # as many bytes as a message may have
        ((50, 50, 1), [2, 1]),
        ((101, 1, 1), [1, 2]),  # one that is longer goes alone
        ((1,) * (BUNDLE + 1), [BUNDLE, 1]),
        ((1,) * BUNDLE, [BUNDLE]),
        ((0,) * (2 * BUNDLE), [BUNDLE, BUNDLE]),
    ],
)
def test_a_message_has_so_many_bytes_and_frames_at_most(made: Post, sizes: Sequence[int], messages: list[int]) -> None:
    for size in sizes:
        made.boxes.offer(A, bytes(size), later=True)
    made.boxes.flush()
    assert [len(frames) for _, frames in made.left] == messages
    assert [len(frame) for _, frames in made.left for frame in frames] == list(sizes)


def test_who_stays_without_room_is_tried_more_and_more_seldom(made: Post) -> None:
    made.room[A] = made.room[B] = Sent.FULL
    made.boxes.offer(A, b"a")
    made.now = SOONEST_S / 2
    made.boxes.offer(B, b"b")  # due later than the other one
    assert made.wait(0.0) == 2  # both at once for the first time
    pauses = []
    for _ in range(12):
        pause = made.boxes.due_in
        assert pause > 0.0
        assert made.wait(pause / 2) == 0
        assert made.wait(pause) == 2
        pauses.append(pause)
    assert pauses[0] == pytest.approx(SOONEST_S)
    assert [later / pause for pause, later in pairwise(pauses[:8])] == pytest.approx([2.0] * 7)
    assert pauses[-1] == pytest.approx(SLOWEST_S)


def test_only_those_that_are_due_are_tried(made: Post) -> None:
    made.room[A] = made.room[B] = Sent.FULL
    made.boxes.offer(A, b"a")
    assert made.wait(0.0) == 1
    made.boxes.offer(B, b"b")
    assert made.wait(0.0) == 1 and made.tried[-1] == B  # A's next try is a while off
    assert made.boxes.due_in == pytest.approx(SOONEST_S)
    assert made.wait(SOONEST_S) == 2


def test_who_has_moved_on_is_tried_in_the_next_pass(made: Post) -> None:
    made.room[A] = Sent.FULL
    for frame in (bytes(MESSAGE), b"x"):
        made.boxes.offer(A, frame)
    made.wait(0.0)
    assert made.wait(made.boxes.due_in) == 1
    took = iter((Sent.TAKEN, Sent.FULL))
    answer = made.post

    def once(peer: Peer, data: Sequence[bytes]) -> Sent:
        made.room[peer] = next(took)
        return answer(peer, data)

    made.boxes._post = once  # the socket answers so from now on
    assert made.wait(made.boxes.due_in) == 2
    assert (made.boxes.depth(A), made.boxes.due_in, made.counts.sent) == ((1, 1), 0.0, 1)


def test_our_own_connection_is_not_tried_by_time(made: Post) -> None:
    made.room[OURS] = Sent.FULL
    made.boxes.offer(OURS, b"x")
    made.boxes.offer(OURS, b"y")
    assert (made.boxes.due_in, made.wait(60.0)) == (float("inf"), 0)
    assert not made.boxes.move(OURS)
    made.room[OURS] = Sent.TAKEN
    assert made.boxes.move(OURS) and made.left == [(OURS, [b"x", b"y"])]


def test_what_waits_for_one_who_is_gone_is_lost_and_counted(made: Post) -> None:
    made.room[A] = made.room[B] = Sent.FULL
    for frame in (b"x", b"y"):
        made.boxes.offer(A, frame)
        made.boxes.offer(B, frame)
    made.room[A] = Sent.GONE
    assert made.wait(0.0) == 2
    assert (A in made.boxes, B in made.boxes, made.counts.lost, made.emptied) == (False, True, 2, [])
    assert made.boxes.waiting() == (2, 2)
    made.boxes.offer(B, b"z", urgent=True)
    made.boxes.forget(B)
    made.boxes.forget(B)
    assert (made.counts.lost, made.boxes.waiting(), made.wait(1.0), made.boxes.due_in) == (5, (0, 0), 0, float("inf"))


def test_an_old_try_does_not_wake_a_new_outbox(made: Post) -> None:
    made.room[A] = Sent.FULL
    made.boxes.offer(A, b"x")
    made.boxes.forget(A)
    made.boxes.offer(A, b"y")
    assert made.wait(0.0) == 1
