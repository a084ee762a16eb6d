"""The simulated world with durations: how long a room takes, its queues, and that it is repeatable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from kvproto.layout.costs import Costs
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings
from kvproto.verify.sim.hardware import Queues
from kvproto.verify.sim.member import FaultChances, Side
from kvproto.verify.sim.timed import TimedInstance, TimedRank, TimedWorld

#: a launch takes 1 ms, a token of one head 1 us to copy and 10 us to send, a piece 1 us
COSTS = Costs(piece=1e-6, rate=16 * 1e5, launch=1e-3, copy=16e6)
CHUNK_TOKENS, LATENCY = 64, 1e-4


def layout(tp: int) -> Layout:
    """Two heads; a token of one head has 16 bytes."""
    return Layout(layers=1, heads=2, k_dim=4, v_dim=4, itemsize=2, dtype="bfloat16", page_size=16, tp=tp)


@dataclass
class Heard:
    """The news of engines, with their times."""

    outcomes: list[tuple[str, int, Cause, float]] = field(default_factory=list)
    released: list[tuple[str, int]] = field(default_factory=list)


class Recorder(TimedInstance):
    """An engine that keeps what it hears."""

    def __init__(self, world: TimedWorld, number: int, heard: Heard) -> None:
        super().__init__(world, number)
        self.heard = heard

    def heard_outcome(self, rank: TimedRank, news: do.AnnounceOutcome) -> None:
        self.heard.outcomes.append((rank.name, news.room, news.cause, self.world.now))

    def heard_release(self, rank: TimedRank, room: int) -> None:
        self.heard.released.append((rank.name, room))


class Prefill(Recorder):
    side: ClassVar[Side] = "P"


class Decode(Recorder):
    side: ClassVar[Side] = "D"


def world(
    prefill: int = 1, decode: int = 1, *, tp: tuple[int, int] = (1, 1), closed: bool = False, route: str = "staged",
    **chances: Any,
) -> tuple[TimedWorld, Heard]:  # fmt: skip
    """So many instances; all links are up."""
    settings = Settings(costs=COSTS, ring_bytes=1 << 20, route=route)  # type: ignore[arg-type]
    made = TimedWorld(
        1, layout(tp[0]), layout(tp[1]), chunk_tokens=CHUNK_TOKENS, settings=settings, closed=closed, latency=LATENCY,
        chances=FaultChances(),
    )  # fmt: skip
    heard = Heard()
    for number in range(prefill):
        made.add(Prefill(made, number, heard))
    for number in range(decode):
        made.add(Decode(made, number, heard))
    made.connect()
    made.chances = FaultChances(**chances)
    return made, heard


def carry(at: TimedWorld, room: int, prefill: int, decode: int, tokens: int = CHUNK_TOKENS) -> None:
    """Open a room between these instances; its KV is there at once."""
    source, target = at.instances["P"][prefill], at.instances["D"][decode]
    for node in target.ranks:
        assert isinstance(node.rank, DecodeRank)
        node.opened.add(room)
        at.tell(node, ev.RoomOpened(room, node.rank.terms(source.group, at.plan), tokens, 0))
    for node in source.ranks:
        assert isinstance(node.rank, PrefillRank)
        node.opened.add(room)
        at.tell(node, ev.EngineOpened(room, tokens, node.rank.claim(target.group, b"")))
        at.tell(node, ev.TokensProduced(room, tokens))
        at.tell(node, ev.AuxProvided(room))


def until(at: TimedWorld, heard: Heard, releases: int) -> None:
    """Let things happen until there are so many releases."""
    end = at.now + 60
    at.run(lambda: len(heard.released) >= releases or at.now > end)
    assert len(heard.released) == releases
    end = at.now + 3
    at.run(lambda: at.now > end)
    assert at.idle() == []


def test_a_room_takes_its_messages_its_gather_its_write_and_its_scatter() -> None:
    at, heard = world()
    begun = at.now
    carry(at, 7, 0, 0)
    until(at, heard, 2)
    nbytes = CHUNK_TOKENS * 2 * 16
    kernel, write = 1e-3 + nbytes / 16e6, 1e-6 + nbytes / 16e5
    # OPEN, STAGING_REQ, STAGING_RSP
    took = next(when for name, _, _, when in heard.outcomes if name == "D0.0") - begun
    assert took == pytest.approx(3 * LATENCY + 2 * kernel + write)


def test_rooms_of_two_prefill_instances_queue_for_the_port_of_one_decode_rank() -> None:
    at, heard = world(prefill=2)
    begun = at.now
    carry(at, 1, 0, 0)
    carry(at, 2, 1, 0)
    until(at, heard, 4)
    ends = sorted(when - begun for name, _, _, when in heard.outcomes if name == "D0.0")
    assert ends[1] - ends[0] == pytest.approx(1e-6 + CHUNK_TOKENS * 2 * 16 / 16e5), "gathers overlap, writes do not"


def test_rooms_between_other_instances_cost_each_other_nothing() -> None:
    at, heard = world(prefill=2, decode=2)
    begun = at.now
    carry(at, 1, 0, 0)
    carry(at, 2, 1, 1)
    until(at, heard, 4)
    ends = {name: when - begun for name, _, _, when in heard.outcomes}
    assert ends["D0.0"] == ends["D1.0"]


def test_a_write_of_many_pieces_takes_as_long_as_its_pieces_or_its_bytes() -> None:
    queues = Queues(COSTS)
    assert queues.write_seconds(16, 1) == pytest.approx(1e-6 + 1e-5)
    assert queues.write_seconds(16, 100) == pytest.approx(1e-4)
    assert queues.write_seconds(16_000, 100) == pytest.approx(1e-2)


def test_work_of_one_queue_follows_one_another_and_an_idle_queue_begins_at_once() -> None:
    queues = Queues(COSTS)
    assert queues.take("a", 1.0, 0.5) == 1.5
    assert queues.take("a", 1.2, 0.5) == 2.0
    assert queues.take("b", 1.2, 0.5) == 1.7
    assert queues.take("a", 3.0, 0.5) == 3.5
    assert queues.busy == {"a": 1.5, "b": 0.5}


def test_over_pages_nothing_is_staged_and_closed_pools_take_nothing() -> None:
    at, heard = world(route="pages")
    carry(at, 5, 0, 0)
    until(at, heard, 2)
    assert (at.counts["parts staged"], at.counts["parts over pages"]) == (0, 1)
    with pytest.raises(AssertionError, match="a link is not up"):
        world(route="pages", closed=True)


def test_a_write_that_fails_fails_its_room_alone() -> None:
    at, heard = world(write_fails=1.0)
    carry(at, 5, 0, 0)
    until(at, heard, 2)
    assert {cause for _, _, cause, _ in heard.outcomes} == {Cause.WRITE_FAILED}
    at.chances = FaultChances()
    carry(at, 6, 0, 0)
    until(at, heard, 4)
    assert {cause for _, room, cause, _ in heard.outcomes if room == 6} == {Cause.NONE}


def test_a_region_that_another_chunk_holds_is_a_breach() -> None:
    at, heard = world()
    carry(at, 5, 0, 0)
    at.run(lambda: at.counts["parts staged"] > 0)
    reader = at.instances["D"][0].ranks[0].rank
    assert isinstance(reader, DecodeRank)
    reader.chunk_of = dict.fromkeys(reader.chunk_of, (99, 0))
    with pytest.raises(AssertionError, match="into a region of"):
        until(at, heard, 2)
