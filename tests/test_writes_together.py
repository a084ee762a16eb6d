"""Parts that are ready at one moment are one write of a real transport, with rooms that stay apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from kvproto.io.kernels.base import Ticket
from kvproto.io.transports.base import Completed, Failed, Fault, Transport
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

LAYOUT = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
ROOMS = 4
STAGED = Settings(ring_bytes=1 << 20, slot_bytes=1 << 16, slots=ROOMS, route="staged")


class Later(Ticket):
    """A gather that is over when all are."""

    over = False

    def done(self) -> bool:
        """Whether they are."""
        return Later.over


class NixlPair(Pair):
    """Over NIXL between two agents of this process, whose gathers all end at the same moment."""

    def transport(self) -> Transport:
        """Every rank has an agent of its own."""
        from kvproto.io.transports.nixl import NixlTransport

        return NixlTransport()


@pytest.fixture(params=["memory", "nixl"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    if request.param == "nixl" and importlib.util.find_spec("nixl") is None:
        pytest.skip("nixl is not installed")
    monkeypatch.setattr(Later, "over", False)
    with (NixlPair if request.param == "nixl" else Pair)(LAYOUT, LAYOUT, chunk_tokens=8, settings=STAGED) as made:
        kernels: Any = inside(made.prefills[0]).data.kernels
        gather = kernels.gather_parts

        def later(*args: Any, **words: Any) -> Ticket:
            gather(*args, **words)
            return Later()

        monkeypatch.setattr(kernels, "gather_parts", later)
        yield made


def gathered(pair: Pair) -> tuple[list[Room], list[int]]:
    """Rooms with all gathers under way, and the number of parts of each write that is posted from now on."""
    parts, data = list[int](), cast("Any", inside(pair.prefills[0]).data)
    kept = data.writes._posted

    def posted(handle: Any, keys: Any, *more: Any) -> None:
        parts.append(len(keys))
        kept(handle, keys, *more)

    data.writes._posted = posted
    rooms = [pair.open(8) for _ in range(ROOMS)]
    for room in rooms:
        pair.produce(room)
    pair.pump(lambda: len(data.gathers._going) == ROOMS)
    return rooms, parts


def test_parts_of_one_moment_are_one_write_and_every_byte_is_right(pair: Pair) -> None:
    rooms, parts = gathered(pair)
    Later.over = True
    pair.finish(*rooms)
    pair.check(*rooms)
    assert parts == [ROOMS]
    assert inside(pair.prefills[0]).data.stats["writes"] == ROOMS


def test_a_room_that_is_given_up_before_takes_no_other_with_it(pair: Pair) -> None:
    rooms, parts = gathered(pair)
    pair.prefills[0].abort(rooms[2])
    Later.over = True
    pair.finish(*rooms)
    left = [room for room in rooms if room is not rooms[2]]
    pair.check(*left)
    assert sum(parts) == len(left) and {Cause.PREFILL_ABORTED} == pair.causes(rooms[2])
    assert all(pair.causes(room) == {Cause.NONE} for room in left)


def test_a_write_that_is_refused_for_one_fails_that_one(pair: Pair) -> None:
    rooms, parts = gathered(pair)
    data: Any = inside(pair.prefills[0]).data
    make, bad = data.prepared_writes._make, rooms[1].key

    def beyond(effect: Any) -> Any:
        write = make(effect)
        if effect.room == bad:  # it begins where no memory of the peer's is
            write.piece = write.piece[0], 1 << 50, write.piece[2]
        return write

    data.prepared_writes._make = beyond
    data.prepared_writes._kept.clear()
    Later.over = True
    pair.finish(*rooms)
    pair.check(*(room for room in rooms if room.key != bad))
    assert parts == [1] * (ROOMS - 1), "refused together, offered one by one"
    assert Cause.WRITE_FAILED in pair.causes(rooms[1])
    assert all(pair.causes(room) == {Cause.NONE} for room in rooms if room.key != bad)


def test_a_write_that_fails_after_it_was_taken_fails_the_rooms_in_it_alone(pair: Pair) -> None:
    rooms, parts = gathered(pair)
    transport: Any = inside(pair.prefills[0]).data.transport
    poll, bad = transport.poll, transport._next

    def polled() -> list[Any]:
        """As it is, but that the next write is told to have failed."""
        failed = Failed(bad, Fault("backend", "planted"), True)
        return [failed if event == Completed(bad) else event for event in poll()]

    transport.poll = polled
    Later.over = True
    pair.pump(lambda: parts == [ROOMS])
    other = pair.open(8)
    pair.produce(other)
    pair.finish(*rooms, other)
    assert all(Cause.WRITE_FAILED in pair.causes(room) for room in rooms) and pair.causes(other) == {Cause.NONE}
