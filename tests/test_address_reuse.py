"""An address passes to another prefill instance: the old link's calls disturb and free nothing.

The usual thing with fixed ports and addresses of pods.  The decode rank still has a link to the instance that left, and
calls it; what answers there is another one, at which the same decode rank has, or will have, a link of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_foreign_groups import MINE, PREFILL, hello, prefill

from kvproto import DecodeEndpoint, LinkError, PrefillEndpoint, Room
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol import effects as do
from kvproto.protocol.events import QueueOverflowed, RefusalReceived
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import noise

OLD, NEW, TOKENS, PAGES = 101, 102, 8, [3, 5]
#: quick enough that the old link is lost and calls again while a room goes by
QUICK = Timing(heartbeat=Timer(0.05, 3), call=Timer(0.02, 10, 0.1))


@dataclass
class OneAddress:
    """A decode endpoint, and prefill instances that come one after the other at one address."""

    ends: ExitStack = field(default_factory=ExitStack)
    fabric: Fabric = field(default_factory=lambda: Fabric(auto=True))
    address: str = "tcp://127.0.0.1:*"

    def __post_init__(self) -> None:
        self.held, self.settings = layout(1), Settings(ring_bytes=1 << 16, slot_bytes=1 << 12, timing=QUICK)
        self.decode = self.ends.enter_context(
            DecodeEndpoint(
                self.held, 0, noise(self.held, 0, 8, 2), self.transport(), chunk_tokens=8, settings=self.settings
            )
        )

    def transport(self) -> MemoryTransport:
        return MemoryTransport(self.fabric)

    def instance(self, group: int) -> PrefillEndpoint:
        """An instance comes up where the former one was, and the decode engine is told of it."""
        made = PrefillEndpoint(
            self.held, 0, noise(self.held, 0, 8, 1), self.transport(), chunk_tokens=8, group=group,
            settings=self.settings,
            bind=self.address,
        )  # fmt: skip
        self.address = made.address
        return self.ends.enter_context(made)

    def pump(self, over: Callable[[], bool], prefill: PrefillEndpoint) -> None:
        """Pass both until it is so; AssertionError after ten seconds, with what the links do."""
        end = time.monotonic() + 10.0
        while not over():
            assert time.monotonic() < end, (self.decode.links(), prefill.links())
            moved = [each.poll() for each in (prefill, self.decode)]
            if not any(moved):
                time.sleep(1e-4)

    def carry(self, prefill: PrefillEndpoint, group: int, number: int) -> list[Cause]:
        """One room from this instance: both outcomes."""
        room, causes = Room(number), list[Cause]()
        self.decode.open(room, TOKENS, PAGES, group=group)
        prefill.open(room, TOKENS, PAGES)
        prefill.produced(room, TOKENS)
        prefill.aux(room, b"first token")

        def over() -> bool:
            causes.extend(outcome.cause for each in (prefill, self.decode) for outcome in each.finished())
            return len(causes) == 2 and not [*prefill.rooms(), *self.decode.rooms()]

        self.pump(over, prefill)
        return causes


@pytest.fixture
def at() -> Iterator[OneAddress]:
    made = OneAddress()
    with made.ends:
        yield made


def test_a_link_to_the_instance_that_left_disturbs_none_to_the_one_that_came(at: OneAddress) -> None:
    old = at.instance(OLD)
    at.decode.connect(at.held, [at.address], group=OLD)
    at.pump(lambda: at.decode.ready(OLD), old)
    assert at.carry(old, OLD, 1) == [Cause.NONE] * 2
    old.close()
    new = at.instance(NEW)
    at.decode.connect(at.held, [at.address], group=NEW)
    at.pump(lambda: at.decode.ready(NEW), new)
    at.pump(lambda: inside(new).rank.counts["calls for another rank"] >= 3, new)
    assert [at.carry(new, NEW, 10 + each) for each in range(8)] == [[Cause.NONE] * 2] * 8
    rank, link = inside(new).rank, inside(new).rank.links
    assert [value.state for value in link.values()] == [PLink.UP] and rank.next_link == 2, "one link, and never another"
    with pytest.raises(LinkError, match=f"rank 0 of group {NEW} listens here, not rank 0 of group {OLD}"):
        at.decode.ready(OLD)


# ------------------------------------------------------------------------------------------ on the ranks alone
@pytest.mark.parametrize(("group", "index"), [(PREFILL + 1, 0), (PREFILL, 1)])
def test_a_call_for_another_rank_moves_no_link(group: int, index: int) -> None:
    rank, links = prefill()
    before, said = repr(rank.links), replace(hello(MINE, session=9), to_group=group, to_rank=index)
    link, effects = rank.hello(said, 0.0, b"a stranger's place")
    assert repr(rank.links) == before and link == links[MINE]
    (refused,) = effects
    assert isinstance(refused, do.RefuseCall) and refused.place == b"a stranger's place" and refused.session == 9
    assert f"not rank {index} of group {group}" in refused.why


def test_a_call_for_this_rank_is_heard() -> None:
    rank, links = prefill()
    rank.hello(replace(hello(MINE, session=9), to_group=PREFILL), 0.0, b"\2")
    assert rank.links[links[MINE]].state is PLink.LOST, "a new session: the former life is over"


def test_a_refusal_frees_nothing_of_a_link_that_was_lost(at: OneAddress) -> None:
    """A refusal may come from another rank: only agreement, or lease and write, show that no byte lands."""
    old = at.instance(OLD)
    at.decode.connect(at.held, [at.address], group=OLD)
    at.pump(lambda: at.decode.ready(OLD), old)
    rank, link = inside(at.decode).rank, 1
    rank.handle(QueueOverflowed(link), 0.0)
    for told in (True, False):
        effects = rank.handle(RefusalReceived(link, rank.links[link].session, "not I"), 0.0)
        assert rank.links[link].state is DLink.AWAIT_RETURN and rank.links[link].why == "not I"
        assert [type(each) for each in effects] == [do.AnnounceLink] * told, "once"
