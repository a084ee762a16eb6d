"""Writes into pages that are made before their KV is there: their inputs, and their ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.data import prepared_pages
from kvproto.data.prepared_pages import PreparedBatch, PreparedPages
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.io.transports.base import PeerId, Transport, UsageError, WritePart
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.page_lists import PagePiece
from kvproto.layout.cut import NO_PART, Cut
from kvproto.protocol import effects as do
from kvproto.protocol.events import Target
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

PAGE, CHUNK_TOKENS = 4, 8


class Counting(MemoryTransport):
    """Counts what it is asked to prepare, and frees; prepared are those that are neither posted nor freed."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.made, self.prepared = 0, set[int]()

    def _prepare(self, prepared: Any) -> int:
        del prepared
        self.made += 1
        self.prepared.add(self.made)
        return self.made

    def _unprepare(self, raw: int) -> None:
        self.prepared.remove(raw)

    def _post(self, handle: Any, prepared: Any) -> Any:
        self.prepared.discard(prepared.raw)
        prepared.raw = None
        return super()._post(handle, prepared)


class PagesPair(Pair):
    """A pair that writes page to page."""

    def transport(self) -> Transport:
        return Counting(self.fabric)


@pytest.fixture
def pair() -> Iterator[PagesPair]:
    settings = replace(SMALL, route="pages")
    with PagesPair(layout(1, page=PAGE), layout(1, page=PAGE), chunk_tokens=CHUNK_TOKENS, settings=settings) as made:
        yield made


def data_of(pair: Pair) -> Any:
    return inside(pair.prefills[0]).data


def test_writes_are_ready_before_their_kv_is_posted_once_and_forgotten_with_their_room(pair: PagesPair) -> None:
    data, room, other = data_of(pair), pair.open(3 * CHUNK_TOKENS + 1), pair.open(2 * CHUNK_TOKENS)
    pair.pump(lambda: len(data.prepared_pages.keys) == 6)
    transport = data.transport
    assert transport.made == len(transport.prepared) == len(data.prepared_pages.batches)
    assert {key for key in data.prepared_pages.keys if key[0] == room.key} == {(room.key, at, 0) for at in range(4)}
    assert not any(data.stats.values())
    made = transport.made
    pair.finish(room)
    pair.check(room)
    assert data.stats["pages"] + data.stats["direct"] == 4 and transport.made == made
    assert {key[0] for key in data.prepared_pages.keys} == {other.key}
    pair.prefills[0].abort(other)
    pair.pump(lambda: pair.over(other))
    pair.rest()
    assert not data.prepared_pages.kept and not transport.prepared and not data.prepared_pages._pieces


def test_what_was_made_of_pages_that_the_engine_has_taken_back_is_not_posted(pair: PagesPair) -> None:
    data, room = data_of(pair), pair.open(CHUNK_TOKENS)
    pair.pump(lambda: bool(data.prepared_pages.kept))
    ours, theirs, tokens, prefix = pair.tables[room]
    fresh = [pair.free.pop() for _ in ours]
    pair.prefills[0].withdraw(room, 0)
    pair.pump(lambda: pair.prefills[0].withdrawn(room))
    pair.tables[room] = fresh, theirs, tokens, prefix
    pair.prefills[0].produced(room, tokens, pages=fresh)
    pair.prefills[0].aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(room)
    assert not data.transport.prepared


def test_nothing_is_ready_before_the_room_s_own_pages_are_known(pair: PagesPair) -> None:
    data, room = data_of(pair), pair.name(CHUNK_TOKENS)
    ours, _, tokens, _ = pair.tables[room]
    pair.open_decode(room)
    pair.prefills[0].open(room, tokens, group=pair.numbers[1])
    pair.prefills[0].prefetch(room)
    pair.settle()
    assert not data.prepared_pages.kept and not data.transport.made
    pair.prefills[0].produced(room, tokens, pages=ours)
    pair.prefills[0].aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(room)


def test_no_more_pieces_are_kept_than_may_be(pair: PagesPair, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(pair)
    first = pair.open(CHUNK_TOKENS)
    pair.pump(lambda: bool(data.prepared_pages.kept))
    monkeypatch.setattr(prepared_pages, "PIECES", 2 * data.prepared_pages._pieces - 1)
    second = pair.open(CHUNK_TOKENS)
    pair.settle()
    assert {key[0] for key in data.prepared_pages.keys} == {first.key}
    pair.finish(first, second)
    pair.check(first, second)


def test_one_that_the_transport_refuses_is_made_when_it_is_due_and_what_was_prepared_is_freed(
    pair: PagesPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, transport = data_of(pair), data_of(pair).transport
    prepare, asked = transport.prepare, list[Any]()

    def refuses(*about: Any) -> Any:
        asked.append(about)
        raise UsageError("planted")

    # A chunk that ends within a page is two batches: the transport refuses the second.
    monkeypatch.setattr(transport, "prepare", refuses)
    room = pair.open(CHUNK_TOKENS - 1)
    pair.pump(lambda: bool(asked))
    pair.settle()
    assert transport.made == 1 and not transport.prepared and not data.prepared_pages.kept
    monkeypatch.setattr(transport, "prepare", prepare)
    pair.finish(room)
    pair.check(room)


def test_pages_that_differ_on_the_two_sides_are_laid_out_when_they_are_due() -> None:
    settings = replace(SMALL, route="pages")
    with PagesPair(layout(1, page=PAGE), layout(1, page=8), chunk_tokens=CHUNK_TOKENS, settings=settings) as pair:
        data, room = data_of(pair), pair.open(CHUNK_TOKENS)
        pair.settle()
        assert not data.prepared_pages.kept and not data.transport.made
        pair.finish(room)
        pair.check(room)


def test_what_is_ready_for_a_link_goes_with_all_that_is_kept_for_it(pair: PagesPair) -> None:
    data, room = data_of(pair), pair.open(2 * CHUNK_TOKENS)
    pair.pump(lambda: len(data.prepared_pages.keys) == 2)
    ((link, _),) = data.link_peer.items()
    data.page_writes.forget(link + 1)
    assert len(data.prepared_pages.keys) == 2
    data.page_writes.forget(link)
    assert not data.prepared_pages.kept and not data.transport.prepared and not data.prepared_pages._pieces
    pair.finish(room)
    pair.check(room)


def test_a_write_that_is_given_up_before_its_post_frees_what_was_prepared(pair: PagesPair) -> None:
    data, room = data_of(pair), pair.open(CHUNK_TOKENS)
    pair.pump(lambda: bool(data.prepared_pages.kept))
    forward = Forward()
    pair.prefills[0].produced(room, CHUNK_TOKENS, after=forward)
    pair.pump(lambda: bool(data.writes.unposted))
    (left,) = data.writes.unposted.values()
    assert all(isinstance(batch, PreparedBatch) for batch in left.batches) and data.transport.prepared
    pair.prefills[0].abort(room)
    pair.pump(lambda: pair.over(room))
    assert not data.transport.prepared and not data.writes.unposted
    pair.rest()


def test_a_fault_of_the_forward_frees_what_was_prepared(pair: PagesPair) -> None:
    data, room = data_of(pair), pair.open(CHUNK_TOKENS)
    pair.pump(lambda: bool(data.prepared_pages.kept))
    pair.prefills[0].produced(room, CHUNK_TOKENS, after=Forward(OSError("planted")))
    pair.pump(lambda: pair.over(room))
    assert not data.transport.prepared and not data.writes.unposted


class Forward:
    """An event of a forward that never ends, or whose device has failed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def query(self) -> bool:
        if self.error is not None:
            raise self.error
        return False


class Noting:
    """A transport that notes what it prepares and frees."""

    def __init__(self) -> None:
        self.made, self.freed = 0, list[Any]()

    def prepare(self, *_: Any) -> str:
        self.made += 1
        return f"write {self.made}"

    def drop(self, write: Any) -> None:
        self.freed.append(write)


def noted() -> tuple[PreparedPages, Noting]:
    transport = Noting()
    return PreparedPages(cast("Any", transport), PAGE), transport


def asked(first: int, tokens: int, pages: bytes = b"theirs") -> do.PreparePages:
    return do.PreparePages(5, 1, 0, Target(1, 7, Cut(first, tokens), NO_PART), pages)


def entered(*pages: int, given: int = 4) -> RoomEntry:
    return RoomEntry(16, NO_TABLE, np.array(pages, np.int64), given)


def batch(pieces: int) -> Any:
    return [WritePart(cast("Any", None), cast("Any", None), np.full((pieces, 3), 9, np.uint64))]


@pytest.mark.parametrize("change", ["nothing", "a page before", "a page behind", "a page of it", "its end", "entry",
                                    "effect", "given"])  # fmt: skip
def test_a_prepared_write_is_used_only_for_what_it_was_made_from(change: str) -> None:
    """The write is of tokens 5 to 9, which lie in the second and third page of the room."""
    (kept, transport), entry, effect = noted(), entered(1, 2, 3, 4), asked(5, 5)
    kept.keep(effect, entry, PeerId("peer"), [batch(2)], direct=True)
    if change.startswith("a page"):
        entry.pages[{"a page before": 0, "a page of it": 2, "a page behind": 3}[change]] = 9
    if change == "its end":
        entry.ends = ((3,),)
    if change == "given":
        entry.given = 2
    other = entered(1, 2, 3, 4) if change == "entry" else entry
    found = kept.take(asked(5, 5, b"others") if change == "effect" else effect, other)
    same = change in ("nothing", "a page before", "a page behind")
    assert (found is not None) is same and transport.freed == ([] if same else ["write 1"])
    assert not kept.kept and kept.left == prepared_pages.PIECES
    assert kept.take(effect, entry) is None


@pytest.mark.parametrize(("pieces", "room"), [(3, True), (4, False)])
def test_so_many_pieces_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch, pieces: int, room: bool) -> None:
    monkeypatch.setattr(prepared_pages, "PIECES", 7)
    (kept, transport), entry = noted(), entered(1, 2, 3, 4)
    kept.keep(asked(0, 4), entry, PeerId("peer"), [batch(1), batch(3)], direct=True)
    assert kept.left == 3
    kept.keep(replace(asked(4, 4), chunk=2), entry, PeerId("peer"), [batch(pieces)], direct=False)
    assert kept.keys == {(5, 1, 0), (5, 2, 0)} if room else {(5, 1, 0)}
    assert (kept.left, transport.made) == ((0, 3) if room else (3, 2))


def test_a_prepared_write_of_pages_is_laid_anew_where_its_lists_were_dropped() -> None:
    fabric, memory = Fabric(auto=True), np.zeros(128, np.uint8)
    one, two = Counting(fabric), Counting(fabric)
    region, _ = one.register(memory.ctypes.data, 64), two.register(memory.ctypes.data + 64, 64)
    peer = one.connect(two.endpoint())
    memory[:64] = np.arange(64)
    lists, page = one.page_lists(peer, [PagePiece(region, one.remote(peer, 0), 0, 0, 8, 8, 8)]), np.array([2])
    prepared = one.prepare_pages(lists, page, page + 1, b"")
    one.drop_lists(lists)
    one.post(prepared)
    one.poll()
    assert memory[64 + 24 : 64 + 32].tolist() == memory[16:24].tolist() and not one.prepared and one.made == 1
