"""Digests as an engine sees them: asked of both sides' ranks, between outcome and release."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import StagedPart
from kvproto.io.kernels.digesting import DigestingKernels, Place, differing
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import Transport
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.room import Room, Status
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.deferred_kernels import DeferredKernels
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

CHUNK_TOKENS, TOKENS = 8, 30


class Compared(Pair):
    """A pair whose endpoints keep digests, asked for before the engine takes the release."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.seen: dict[tuple[Endpoint, Room], dict[Place, int]] = {}
        super().__init__(*args, **options)

    def make_prefill(self, index: int) -> PrefillEndpoint:
        plan = self.plan
        return PrefillEndpoint(
            plan.prefill, index, noise(plan.prefill, index, self.pages, 1), self.transport(),
            chunk_tokens=plan.chunk_tokens,
            group=PREFILL_GROUP, settings=self.settings, digests=True,
        )  # fmt: skip

    def make_decode(self, index: int) -> DecodeEndpoint:
        plan = self.plan
        return DecodeEndpoint(
            plan.decode, index, noise(plan.decode, index, self.pages, 2), self.transport(),
            chunk_tokens=plan.chunk_tokens,
            group=DECODE_GROUP, settings=self.settings, digests=True,
        )  # fmt: skip

    def collect(self) -> None:
        for endpoint in self.endpoints:
            for room in self.tables:
                if room.key in inside(endpoint).entries:
                    self.seen[endpoint, room] = endpoint.digests(room)
        super().collect()

    def places(self, group: Sequence[Endpoint], room: Room) -> list[Place]:
        return sorted({place for endpoint in group for place in self.seen[endpoint, room]})


@pytest.mark.parametrize(("ours", "theirs"), [(4, 2), (2, 4), (1, 1), (2, 8), (8, 2)])
def test_both_sides_know_the_same_number_for_every_head(ours: int, theirs: int) -> None:
    with Compared(layout(ours), layout(theirs, page=8), chunk_tokens=CHUNK_TOKENS) as pair:
        rooms = [pair.open(TOKENS), pair.open(TOKENS, prefix=8)]
        pair.finish(*rooms)
        pair.check(*rooms)
        for room, prefix in zip(rooms, (0, 8), strict=True):
            every = list(product(range(prefix, TOKENS, CHUNK_TOKENS), range(2), range(4)))
            assert pair.places(pair.prefills, room) == every
            assert pair.places(pair.decodes, room) == every
            assert differing(*(pair.seen[endpoint, room] for endpoint in pair.endpoints)) == []
        several = [set(pair.seen[endpoint, room].values()) for endpoint in pair.endpoints for room in rooms]
        assert len(set.union(*several)) == 2 * 4 * (4 + 3)


def test_a_bit_that_flips_in_the_ring_is_named_by_both_sides_together() -> None:
    class Flipping(TorchKernels):
        def scatter(
            self, pool: Any, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart], **options: Any
        ) -> Any:
            if first == 2 * CHUNK_TOKENS:
                share, staged = next(part for part in parts if part[0].writer == 1)
                staged[staged.numel() // 2] ^= 0x40  # V of the first layer: token 0, head 0 of the part
                assert share.dst_head == 1
            return super().scatter(pool, table, first, tokens, parts, **options)

    with Compared(layout(4), layout(2, page=8), chunk_tokens=CHUNK_TOKENS) as pair:
        for endpoint in pair.decodes[:1]:
            kernels = inside(endpoint).data.kernels
            assert isinstance(kernels, DigestingKernels)
            kernels._inner = Flipping()
        room = pair.open(TOKENS)
        pair.finish(room)
        assert differing(*(pair.seen[endpoint, room] for endpoint in pair.endpoints)) == [(16, 0, 1)]


@pytest.mark.parametrize(("ours", "theirs"), [(4, 2), (2, 4), (1, 1)])
def test_what_goes_page_to_page_has_those_of_its_pages(ours: int, theirs: int) -> None:
    tiny = Settings(ring_bytes=256, slot_bytes=1 << 18)
    with Compared(layout(ours), layout(theirs, page=8), chunk_tokens=CHUNK_TOKENS, settings=tiny) as pair:
        room, other = pair.open(TOKENS), pair.open(TOKENS, prefix=8)
        pair.finish(room, other)
        pair.check(room, other)
        for each, prefix in ((room, 0), (other, 8)):
            every = list(product(range(prefix, TOKENS, CHUNK_TOKENS), range(2), range(4)))
            assert pair.places(pair.prefills, each) == pair.places(pair.decodes, each) == every
            assert differing(*(pair.seen[endpoint, each] for endpoint in pair.endpoints)) == []


def test_so_has_what_was_announced_before_it_had_pages() -> None:
    tiny = Settings(ring_bytes=256, slot_bytes=1 << 18)
    with Compared(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, settings=tiny) as pair:
        room = pair.name(TOKENS)
        pair.decodes[0].announce(room, TOKENS)
        pair.open_decode(room)
        pair.prefills[0].open(room, TOKENS, pair.tables[room][0])
        pair.finish(room)
        every = list(product(range(0, TOKENS, CHUNK_TOKENS), range(2), range(4)))
        assert pair.places(pair.prefills, room) == pair.places(pair.decodes, room) == every


@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (1, 2)])
def test_what_is_stored_into_mapped_pages_has_those_of_its_pages_too(ours: int, theirs: int) -> None:
    class Mapped(Compared):
        def transport(self) -> Transport:
            return MemoryTransport(self.fabric, maps=True)

    with Mapped(layout(ours), layout(theirs, page=8), chunk_tokens=CHUNK_TOKENS) as pair:
        room = pair.open(TOKENS, prefix=CHUNK_TOKENS)
        pair.finish(room)
        pair.check(room)
        for endpoint in pair.prefills:
            stats = inside(endpoint).data.stats
            assert stats["mapped"] and not (stats["writes"] or stats["pages"] or stats["direct"])
        every = list(product(range(CHUNK_TOKENS, TOKENS, CHUNK_TOKENS), range(2), range(4)))
        assert pair.places(pair.prefills, room) == pair.places(pair.decodes, room) == every
        assert differing(*(pair.seen[endpoint, room] for endpoint in pair.endpoints)) == []


@pytest.mark.parametrize("settings", [Settings(route="pages"), Settings(slots=1), Settings(slots=1, window=1)])
@pytest.mark.parametrize("turns", [1, 4, 8, 16, 40])
def test_pages_that_were_withdrawn_after_they_had_been_sent_raise_no_alarm(settings: Settings, turns: int) -> None:
    with Compared(
        layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=replace(settings, ring_bytes=1 << 20)
    ) as pair:
        room = pair.open(TOKENS)
        pair.pump(lambda: all(prefill.opened_by_all(room) for prefill in pair.prefills))
        for prefill in pair.prefills:
            prefill.produced(room, TOKENS)
        for _ in range(turns):
            pair.turn()
        for prefill in pair.prefills:
            prefill.withdraw(room, 0)
        pair.pump(lambda: all(prefill.withdrawn(room) for prefill in pair.prefills))
        old = pair.tables[room][0]
        new = [pair.free.pop() for _ in old]
        for prefill in pair.prefills:
            for tensor in (*prefill.pool.k, *prefill.pool.v):
                tensor[new] = -tensor[old]  # no forward computes the same bits twice
                tensor[old] = 7
            if ("P", inside(prefill).rank.index, room) not in pair.outcomes:
                prefill.produced(room, TOKENS, pages=new)
                prefill.aux(room, b"aux")
        pair.pump(lambda: pair.over(room))
        assert differing(*(pair.seen[endpoint, room] for endpoint in pair.endpoints)) == []


def test_what_nobody_may_ask_for_is_not_kept() -> None:
    class Looked(Pair):
        kept: ClassVar[list[object]] = []

        def collect(self) -> None:
            self.kept.extend(each.by_pages for each in inside(self.prefills[0]).entries.values())
            super().collect()

    with Looked(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=Settings(route="pages")) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        assert pair.kept and not any(pair.kept)


def test_a_bit_that_flips_in_a_page_is_named_where_none_was_staged() -> None:
    class Flipping(Compared):
        """Once there is an outcome, before the digests are asked for."""

        def collect(self) -> None:
            last = self.decodes[1]
            for room, (_, pages, *_) in self.tables.items():
                if room.key in inside(last).entries and last.status(room) is Status.SUCCESS:
                    last.pool.v[0].view(torch.uint8)[pages[2], 3, 1] = 0x40
            super().collect()

    with Flipping(layout(4), layout(2, page=8), chunk_tokens=CHUNK_TOKENS, settings=Settings(route="pages")) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        assert differing(*(pair.seen[endpoint, room] for endpoint in pair.endpoints)) == [(16, 0, 3)]


def test_asked_in_vain() -> None:
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room = pair.open(TOKENS)
        with pytest.raises(ValueError, match="digests=True"):
            pair.decodes[0].digests(room)
    with Compared(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        with pytest.raises(KeyError, match="released"):
            pair.decodes[0].digests(room)


def test_only_so_many_rooms_are_kept() -> None:
    plan, pool = Plan(layout(2), layout(1), CHUNK_TOKENS), noise(layout(2), 0, 8, 1)
    (share,) = plan.duties(0)
    kernels = DigestingKernels(TorchKernels(), layout(2), 0, rooms=2)
    out = torch.empty(plan.part_bytes(share, Cut(0, 4)), dtype=torch.uint8)
    tables = [torch.tensor([page]) for page in range(3)]
    for table in tables:
        kernels.gather(pool, table, 0, 4, share, out)
    assert [len(kernels.read(table)) for table in tables] == [0, 4, 4]


def test_a_table_given_by_the_engine_may_change_afterwards() -> None:
    with Compared(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room, mine = pair.name(TOKENS), pair.tables
        theirs = torch.tensor(mine[room][1])
        pair.decodes[0].open(room, TOKENS, theirs, group=PREFILL_GROUP)
        theirs.zero_()
        pair.open_prefill(room)
        pair.finish(room)
        pair.check(room)


@pytest.mark.parametrize("side", ["gather_parts", "scatter"])
def test_for_want_of_memory_for_digests_nothing_is_under_way(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory for digests")

    inner, shape = DeferredKernels(), layout(1)
    kernels, pool, (share,) = DigestingKernels(inner, shape, 0), noise(shape, 0, 4, 1), Plan(shape, shape, 8).shares
    parts = [(share, torch.empty(pool.part_bytes(share, 8), dtype=torch.uint8))]
    for patched in ("empty", "sum"):  # before the launch there may be no memory, and behind it none is needed
        with monkeypatch.context() as patch:
            patch.setattr(torch if patched == "empty" else torch.Tensor, patched, refuse)
            try:
                getattr(kernels, side)(pool, torch.arange(4), 0, 8, parts)
            except torch.OutOfMemoryError:
                assert patched == "empty" and not inner.pending
    assert len(inner.pending) == 1


@pytest.mark.parametrize("side", ["gather_parts", "scatter"])
def test_where_rows_have_no_digests_the_copy_is_the_same(side: str) -> None:
    inner, shape = DeferredKernels(), layout(1, page=3)  # of pages that do not divide `ORIGIN`
    kernels, (share,) = DigestingKernels(inner, shape, 0), Plan(shape, shape, 9).shares
    table, found = torch.tensor([3, 1, 2]), list[list[torch.Tensor]]()
    for made in (kernels, TorchKernels()):
        pool, out = noise(shape, 0, 4, 1), torch.arange(4096).to(torch.uint8)
        pool.digested = True
        parts = [(share, out[: pool.part_bytes(share, 7)])]
        ticket = getattr(made, side)(pool, table, 1, 7, parts)
        if inner.pending:
            assert not ticket.done()
            inner.finish()
        assert ticket.done()
        found.append([out, *(each.view(torch.uint8) for each in (*pool.k, *pool.v))])
    assert all(map(torch.equal, *found))
    assert kernels.read(table) == {}
