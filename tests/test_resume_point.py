"""Resume points: a room goes on as another over the same pages, whose prefix is what arrived of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint import resume_point
from kvproto.endpoint.resume_point import PageDigests, ResumePoint, Resumption, point_of, resume_prefix
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.sharding import Layout
from kvproto.protocol.events import Terms
from kvproto.protocol.states import Cause, DRoom
from kvproto.protocol.tables.decode_room import DecodeWork, DRoomValue
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

TOKENS, CHUNK = 30, 8
ROOM = Room(5, 1)


@pytest.fixture(params=["cost", "pages"], ids=["staged", "over pages"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two prefill ranks and one decode rank."""
    settings = replace(Pair.__init__.__globals__["SMALL"], route=request.param)
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK, settings=settings) as made:
        yield made


def half_way(pair: Pair, upto: int = 20) -> Room:
    """A room of which the forward has computed so much, and all whole chunks of it have arrived."""
    room = pair.open(TOKENS)
    pair.produce(room, upto, aux=None)
    pair.pump(lambda: all(d.resume_point(room).upto == upto // CHUNK * CHUNK for d in pair.decodes))
    return room


def successor(pair: Pair, dead: Room, prefix: int) -> Room:
    """A room of the next gen over the pages of this one, opened on all ranks."""
    ours, theirs, tokens, _ = pair.tables[dead]
    room = Room(dead.id, dead.gen + 1)
    pair.tables[room] = ours, theirs, tokens, prefix
    for decode in pair.decodes:
        decode.open(room, tokens, theirs, prefix=prefix, resumes=dead)
    for prefill in pair.prefills:
        prefill.open(room, tokens, ours, resumes=dead)
        prefill.prefetch(room)
    return room


def written(pair: Pair) -> int:
    """Bytes that the prefill ranks have written."""
    return sum(endpoint.metrics()["bytes"] for endpoint in pair.prefills)


# ----------------------------------------------------------------------------------------------------- points
@pytest.mark.parametrize(
    ("done", "groups", "upto"),
    [
        (0b0, 1, 4), (0b1, 1, 12), (0b11, 1, 20), (0b101, 1, 12), (0b110, 1, 4), (0b111, 1, 27), (0b1111, 1, 27),
        (0b1, 2, 4), (0b11, 2, 12), (0b111, 2, 12), (0b11_1111, 2, 27), (0b1_1111, 2, 20),
    ],
)  # fmt: skip
def test_what_lies_before_the_first_hole_in_all_layers_counts(done: int, groups: int, upto: int) -> None:
    terms = Terms(1, 1, 1, 1, CHUNK, layer_groups=groups, state_groups=1, state_writes=1)
    value = DRoomValue(DRoom.OPEN, terms=terms, tokens=27, prefix=4, work=DecodeWork(done=done))
    assert point_of(ROOM, value) == ResumePoint(ROOM, 27, 4, upto)


def test_nothing_is_in_place_of_a_room_without_work_as_yet() -> None:
    terms = Terms(1, 1, 1, 1, CHUNK)
    assert point_of(ROOM, DRoomValue(DRoom.OPEN, terms=terms, tokens=27, prefix=4)).upto == 4


def test_a_rank_without_layers_of_the_page_table_has_all_that_it_can_have() -> None:
    terms = Terms(1, 1, 0, 1, CHUNK, state_groups=1, state_writes=1)
    assert point_of(ROOM, DRoomValue(DRoom.OPEN, terms=terms, tokens=27, prefix=4)).upto == 27


def test_a_point_rises_with_what_is_in_place_and_stays_when_the_room_is_over(pair: Pair) -> None:
    decode = pair.decodes[0]
    with pytest.raises(NotFoundError, match="is not open here"):
        decode.resume_point(ROOM)
    room = pair.name(TOKENS)
    decode.open(room, TOKENS, pair.tables[room][1], prefix=4)
    assert decode.resume_point(room) == ResumePoint(room, TOKENS, 4, 4)
    pair.open_prefill(room)
    pair.finish(room)
    room = half_way(pair)
    assert decode.resume_point(room) == ResumePoint(room, TOKENS, 0, 16)
    pair.finish(room)
    assert decode.resume_point(room).upto == TOKENS


# -------------------------------------------------------------------------------------------- a room after it
def test_a_room_goes_on_where_the_one_before_it_ended_and_nothing_is_written_again(pair: Pair) -> None:
    dead = half_way(pair)
    pair.prefills[0].abort(dead)
    pair.pump(lambda: pair.over(dead))
    before = written(pair)
    room = successor(pair, dead, pair.decodes[0].resume_point(dead).upto)
    pair.finish(room)
    pair.check(dead)  # of which every token counts, and whose pages these are
    assert pair.causes(room) == {Cause.NONE}
    token = sum(pair.plan.decode.held_bytes(rank) for rank in range(pair.plan.decode.ranks))
    assert written(pair) - before == (TOKENS - 16) * token


def test_pages_are_not_taken_over_while_something_of_the_room_may_land(pair: Pair) -> None:
    dead = half_way(pair)
    for endpoints, pages in ((pair.prefills, 0), (pair.decodes, 1)):
        for endpoint in endpoints:
            with pytest.raises(ArgumentError, match=f"{dead.id}.* is not released here: .* may still land"):
                endpoint.open(Room(9), TOKENS, pair.tables[dead][pages], resumes=dead)
    pair.finish(dead)


def test_a_room_that_no_rank_knows_may_be_resumed(pair: Pair) -> None:
    """As on an instance that has just started."""
    room = pair.name(TOKENS)
    pair.decodes[0].open(room, TOKENS, pair.tables[room][1], resumes=Room(77))
    for prefill in pair.prefills:
        prefill.open(room, TOKENS, pair.tables[room][0], resumes=Room(77))
    pair.finish(room)


def test_kv_that_has_not_arrived_is_no_prefix(pair: Pair) -> None:
    dead = half_way(pair)
    pair.decodes[0].abort(dead)
    pair.pump(lambda: pair.over(dead))
    with pytest.raises(ArgumentError, match=r"prefix 24: of .* only 16 tokens have arrived here"):
        pair.decodes[0].open(Room(9), TOKENS, pair.tables[dead][1], prefix=24, resumes=dead)


# -------------------------------------------------------------------------------------------------- digests
def digests(pair: Pair, point: ResumePoint, dead: Room) -> tuple[list[PageDigests], list[PageDigests]]:
    """Those of all ranks, decode and prefill, as another process reads them."""
    ours, theirs, *_ = pair.tables[dead]
    made = [d.digest_pages(point, theirs) for d in pair.decodes], [p.digest_pages(point, ours) for p in pair.prefills]
    receivers, senders = ([PageDigests.decode(each.encode()) for each in side] for side in made)
    return receivers, senders


@pytest.mark.parametrize("tp", [(2, 1), (1, 2), (4, 2), (8, 4), (2, 8)])
def test_digests_of_pages_agree_whatever_the_sharding(tp: tuple[int, int]) -> None:
    with Pair(layout(tp[0]), layout(tp[1], page=2 if tp[0] > 2 else 8), chunk_tokens=CHUNK) as pair:
        dead = half_way(pair)
        point = pair.decodes[0].resume_point(dead)
        receivers, senders = digests(pair, point, dead)
        assert resume_prefix(receivers, senders) == Resumption(16)
        assert {place for each in receivers for place in each.digests} == {f"{a}/{b}" for a in (0, 1) for b in range(4)}
        pair.finish(dead)


def test_digests_are_sums_of_what_is_gathered_at_a_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = half_way(pair)
    point = pair.decodes[0].resume_point(dead)
    whole = digests(pair, point, dead)
    monkeypatch.setattr("kvproto.io.kernels.page_digests.SCRATCH", 1)  # a page at a time
    assert digests(pair, point, dead) == whole
    pair.finish(dead)


@pytest.mark.parametrize("bit", range(3))
def test_one_bit_that_differs_makes_the_whole_prompt_travel(pair: Pair, bit: int) -> None:
    dead = half_way(pair)
    pool, page = pair.prefills[1].pool, pair.tables[dead][0][bit]
    pool.v[1][page, bit, bit % 2].view(torch.uint8)[bit] ^= 1 << bit
    receivers, senders = digests(pair, pair.decodes[0].resume_point(dead), dead)
    found = resume_prefix(receivers, senders)
    assert found.prefix == 0 and "tokens 0 .. 15 of 1/" in found.why
    assert "are not what the replacement has computed: the whole prompt is sent" in found.why
    pair.finish(dead)


def test_tokens_behind_the_point_do_not_count(pair: Pair) -> None:
    dead = half_way(pair)
    pair.prefills[0].pool.k[0][pair.tables[dead][0][4]] = 7  # tokens 16 .. 19
    assert resume_prefix(*digests(pair, pair.decodes[0].resume_point(dead), dead)) == Resumption(16)
    pair.finish(dead)


LATENT = Cache("latent", (CachePart("kv", 1, 24), CachePart("rope", 1, 6)))
CACHES = LATENT, Cache("kv", (CachePart("k", 4, 8),), (1,))


def test_named_caches_have_digests_by_layer_unit_and_part() -> None:
    sides = [Layout.of_caches(CACHES, layers=2, page_size=page, tp=tp) for page, tp in ((4, 2), (2, 1))]
    pools = [[noise(side, rank, 8, 3) for rank in range(side.ranks)] for side in sides]
    for rank, pool in enumerate(pools[0]):  # the same KV as on the other side, in pages twice as long
        for ours, theirs in zip(pool.kinds, pools[1][0].kinds, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                heads = a.shape[2]
                first = 2 * rank if b.shape[2] > heads else 0
                a[:4] = b[:8].reshape(4, 4, *b.shape[2:])[:, :, first : first + heads]
    from kvproto.endpoint.validation import pick_kernels
    from kvproto.io.kernels.page_digests import page_digests

    made = [
        [page_digests(pick_kernels(pool), side, rank, pool, range(pool.pages), 4, 12) for rank, pool in enumerate(each)]
        for side, each in zip(sides, pools, strict=True)
    ]
    found = [{**made[0][0], **made[0][1]}, made[1][0]]
    assert found[0] == found[1] and {"0/0/latent.rope", "1/3/kv.k"} <= set(found[0]) and len(found[0]) == 8


# ---------------------------------------------------------------------------------------------------- resume
POINT = ResumePoint(ROOM, TOKENS, 8, 16)


def told(tp: int, *, point: ResumePoint = POINT, model: Layout | None = None, **other: str) -> list[PageDigests]:
    """Digests of every rank of such a group."""
    cut = model or layout(tp)
    return [
        PageDigests(point, cut, rank, {
            f"{layer}/{head}": other.get(f"at{layer}{head}", f"{layer}{head}")
            for layer in range(cut.layers) for head in range(cut.heads_of(rank)[0], sum(cut.heads_of(rank)))
        }) for rank in range(cut.ranks)
    ]  # fmt: skip


def test_all_that_has_arrived_is_kept_where_every_digest_agrees() -> None:
    assert resume_prefix(told(2), told(4)) == Resumption(16)


LESS = replace(POINT, upto=8)
OTHER = Layout(layers=2, heads=4, k_dim=8, v_dim=4, itemsize=2, dtype="bfloat16", page_size=4, tp=1)


@pytest.mark.parametrize(
    ("receivers", "senders", "why"),
    [
        (told(2), told(1, at13="x"), r"tokens 8 \.\. 15 of 1/3 \(layer/head\) are not what the replacement"),
        (told(2)[:1], told(1), "decode rank 1 has told no digests"),
        (told(2), told(4)[1:], "prefill rank 0 has told no digests"),
        (told(2, point=LESS), told(1, point=LESS), "nothing of Room.* has arrived"),
        (told(1), told(1, model=OTHER), "v_dim is 4 on the prefill side and 8 on the decode side: the whole prompt"),
        ([*told(2)[:1], told(1)[0]], told(1), "decode ranks 0 and 0 have different layouts"),
        ([replace(told(1)[0], digests={"0/0": "00"})], told(1), r"0/1 \(layer/head\) has a digest on one side alone"),
    ],
)  # fmt: skip
def test_the_whole_prompt_is_sent_where_it_cannot_be_told(
    receivers: Sequence[PageDigests], senders: Sequence[PageDigests], why: str
) -> None:
    found = resume_prefix(receivers, senders)
    assert found.prefix == POINT.prefix
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(found.why)


def test_digests_of_several_points_are_no_question() -> None:
    with pytest.raises(ArgumentError, match="make all of the lowest point"):
        resume_prefix(told(1), told(1, point=LESS))
    with pytest.raises(ArgumentError, match="every rank of both sides"):
        resume_prefix(told(1), [])
    with pytest.raises(ArgumentError, match="every rank of both sides"):
        resume_prefix([], told(1))


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[" * 100_000, '{"room":{"id":1},"tokens":4,"prefix":3,"upto":2}',
        '{"room":{"id":-1},"tokens":4,"prefix":0,"upto":2}', '{"room":{"id":1},"tokens":4,"prefix":0,"upto":5}',
        "x" * ((1 << 22) + 1),
    ],
)  # fmt: skip
def test_foreign_text_is_refused_by_a_sentence(text: str) -> None:
    for kind in (ResumePoint, PageDigests):
        with pytest.raises(ArgumentError, match=kind.__name__):
            kind.decode(text)
    assert ResumePoint.decode(POINT.encode()) == POINT


def test_text_has_a_length_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    text = POINT.encode()
    for most, fits in ((len(text), True), (len(text) - 1, False)):
        monkeypatch.setattr(resume_point, "MAX_TEXT", most)
        with nullcontext() if fits else pytest.raises(ArgumentError, match=f"characters, more than {most}"):
            assert ResumePoint.decode(text) == POINT


def test_digests_are_of_pages_that_are_there(pair: Pair) -> None:
    decode = pair.decodes[0]
    with pytest.raises(ArgumentError, match="16 tokens need 4 pages of 4, the table has 3"):
        decode.digest_pages(POINT, [1, 2, 3])
    with pytest.raises(ArgumentError, match="page 64 of a pool of 64"):
        decode.digest_pages(POINT, [1, 2, 3, 64])
    assert not inside(decode).entries


def test_of_a_room_that_the_loop_has_not_taken_yet_the_prefix_alone_is_in_place(pair: Pair) -> None:
    decode, announced, opened = pair.decodes[0], Room(77), Room(78)
    decode.announce(announced, 12)
    decode.open(opened, TOKENS, list(range(-(-TOKENS // decode.pool.page_size))), prefix=decode.pool.page_size)
    assert decode.resume_point(announced) == ResumePoint(announced, 12, 0, 0)
    size = decode.pool.page_size
    assert decode.resume_point(opened) == ResumePoint(opened, TOKENS, size, size)
