"""The control path's cost as a number independent of the machine: Python calls a room, and a chunk."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from kvproto.lab.bench.control_calls import CallCounter, count

#: calls a room of one chunk, and for each further chunk; who has a reason to need more raises the bound and says why
#: (21 of a prefill rank's are made before the KV is there: they make its first write ready while nothing happens; some
#: ten a room on either side are for groups of layers, and for launches that wait for the frames of their pass; two of a
#: decode rank are for launches that may be ready; one a chunk of a prefill rank asks whether its KV is there;
#: five and two a room are to explain a wrong argument of an engine's call; two and seventeen, to time transfers and to
#: count their bytes; five of a decode rank's room find where its chunks of state begin; eight of a room on either side
#: are for other names of it, and a pool that may be away, and three of a launch for caches that travel at the end;
#: four on either side hold signals while a room is opened, and put back what an interrupted call has changed; five ask
#: whether a room's last tokens are one chunk with its state, which is a chunk less for each room that has any; one of
#: a prefill rank's room forgets writes into pages that were made ready; four of its room, and one of its chunk, tell
#: when a write begins and ends, by which costs are learned; seven of its chunk, how long its gather took and its write
#: waited for a region; two and four of a room set and read its news, which were a library's before)
BOUNDS = {"prefill": {"room": 482, "chunk": 163}, "decode": {"room": 414, "chunk": 151}}


def test_a_room_and_a_chunk_take_no_more_calls_than_they_did() -> None:
    found = count()
    assert {side: each.keys() for side, each in found.items()} == {side: each.keys() for side, each in BOUNDS.items()}
    for side, bounds in BOUNDS.items():
        for what, most in bounds.items():
            assert 0.8 * most < found[side][what] <= most, (side, what, found)


def test_what_counts_is_this_package() -> None:
    counter = CallCounter()
    counter.during(lambda: [count.__name__, sorted([2, 1], key=abs)])
    assert not counter.calls, "neither a library nor the counter's own"
