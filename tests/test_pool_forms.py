"""Caches in every form of engines, from each form to each, through the endpoints, bit for bit.

A third of all pairs of forms, each with one pair of groups and one route: taken in turn, so that over the pairs of a
form all of them occur.  Which bytes are right is said by the engines' tensors themselves (`support.engine_pools`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from support.engine_groups import ROOM, SETTINGS, Cut, Groups
from support.engine_pools import Cache, Form, table

from kvproto import DecodeEndpoint, Fabric, Layout, Pool, PrefillEndpoint, Room
from kvproto.errors import LinkError
from kvproto.io.kernels.pool import KernelError
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.placement import Placement, Strides
from kvproto.protocol.states import Cause
from kvproto.settings import Route, Settings
from kvproto.verify.testing.access import inside

#: K and V told apart: in tensors of their own, in one, in one row; a tensor a layer, or one of all
APART = [
    *(Form(letters) for letters in ("BNHC", "BHNC", "SHC", "LSHC", "HBNC")),
    *(Form(letters) for letters in ("2BNHC", "B2NHC", "B2HNC", "BL2NHC")),
    *(Form(letters, fused=True, cut=True) for letters in ("LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC")),
    Form("BNHC", gap=3),
]
#: K and V one row
ROWS = [Form(letters, fused=True) for letters in ("LBNHC", "BHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC", "SHC")]
#: K transposed inside a block
OPAQUE = [Form(letters, opaque="t") for letters in ("BHCN", "LBHCN", "BLHCN")]
GROUPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tp": 1}, {"tp": 2}), ({"tp": 2}, {"tp": 1}), ({"tp": 4}, {"tp": 4}), ({"tp": 2}, {"tp": 4}),
    ({"tp": 2, "size": 8}, {"tp": 1}), ({"stages": (2, 1)}, {"stages": (1, 2)}), ({"tp": 2}, {"tp": 2, "size": 8}),
]  # fmt: skip
ROUTES = ["staged", "pages", "prefix", "mapped"]
PAIRS = [pair for at, pair in enumerate(product(APART, APART)) if at % 3 == 0]
PAIRS += [pair for at, pair in enumerate(product(ROWS, ROWS)) if at % 3 == 1]
CASES = [(*pair, *GROUPS[at % len(GROUPS)], ROUTES[at % len(ROUTES)]) for at, pair in enumerate(PAIRS)]


def settings(route: str) -> Settings:
    forced: dict[str, Route] = {"staged": "staged", "pages": "pages", "mapped": "pages"}
    return Settings(ring_bytes=1 << 20, route=forced.get(route, "cost"))


@pytest.mark.parametrize(
    ("source", "target", "ours", "theirs", "route"), CASES,
    ids=[f"{a} to {b}, {'-'.join(str(g) for g in p.values())} to {'-'.join(str(g) for g in d.values())}, {route}"
         for a, b, p, d, route in CASES],
)  # fmt: skip
def test_from_every_form_to_every_other(
    source: Form, target: Form, ours: dict[str, Any], theirs: dict[str, Any], route: str
) -> None:
    with Groups(
        Cut(source, **ours), Cut(target, **theirs), settings=settings(route),
        transport=partial(MemoryTransport, maps=route == "mapped"),
    ).connect() as groups:  # fmt: skip
        outcomes = groups.move(29, prefix=8 if route == "prefix" else 0)
        assert all(outcome.ok for outcome in outcomes), outcomes
        assert groups.right == [True] * len(groups.decodes)
        counts = groups.counts()
        assert bool(counts["writes"]) is (route not in {"pages", "mapped"}) or route == "prefix"
        assert bool(counts["mapped"]) is (route == "mapped")
        assert not (route == "staged" and counts["pages"] + counts["direct"])


@pytest.mark.parametrize(("source", "target"), [(a, b) for a, b in product(OPAQUE, OPAQUE)], ids=str)
@pytest.mark.parametrize("route", ["staged", "pages"])
def test_blocks_that_are_rearranged_inside_move_as_they_are(source: Form, target: Form, route: str) -> None:
    """A token of the transfer is a block; what lies in a block's last, empty slots goes along."""
    with Groups(Cut(source, tp=2), Cut(target), settings=settings(route)).connect() as groups:
        assert groups.geometry.unit == 4 and groups.geometry.layout.dtype == "float32/t4"
        assert [outcome.ok for outcome in groups.move(24, prefix=8)] == [True]
        assert groups.right == [True]


@pytest.mark.parametrize("form", [Form("BNC", fused=True), Form("SC", fused=True), Form("BLNC", fused=True)], ids=str)
def test_a_latent_cache_without_heads(form: Form) -> None:
    with Groups(Cut(form, tp=2, heads=1), Cut(Form("BNC", fused=True), heads=1)).connect() as groups:
        groups.move(29)
        assert groups.right == [True]


# ------------------------------------------------------------------------------------------------ which route
def test_a_block_of_all_layers_and_both_k_and_v_is_one_piece() -> None:
    """Between equal groups whole blocks go; neighbours on both sides would even go together."""
    form = Form("BL2NHC")
    dear = replace(SETTINGS, costs="shm")
    with Groups(Cut(form, tp=2), Cut(form, tp=2), settings=dear).connect() as groups:
        assert [each.routes() for each in groups.prefills] == [{(2, 0): ""}, {(2, 1): ""}]
        groups.move(32)
        assert groups.right == [True, True]
        counts = groups.counts()
        assert counts["direct"] == 2 * 4 and counts["pieces"] <= 2 * 8


def test_a_page_that_is_not_one_run_is_staged_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kvproto.links")
    with Groups(Cut(Form("BHLNC", fused=True)), Cut(Form("BNHC", fused=True))).connect() as groups:
        assert groups.prefills[0].routes() == {(2, 0): "a page of the prefill rank's pool is not one run of bytes"}
        groups.move(29)
        assert groups.right == [True] and groups.counts()["writes"] == 4
    assert "staged route: a page of the prefill rank's pool is not one run of bytes" in caplog.text


WORDS = [
    (Cut(Form("BNHC"), tp=2), Cut(Form("BNHC")), "a part has 2 of the decode rank's 4 heads, a fraction of every page"),
    (Cut(Form("BNHC")), Cut(Form("BNHC"), size=8), "pages of 4 tokens on the prefill side, of 8 on the other"),
    (Cut(Form("BNHC")), Cut(Form("BHNC")), "the two sides have the tokens and heads of a page in different order"),
]


@pytest.mark.parametrize(("prefill", "decode", "why"), WORDS, ids=[why for *_, why in WORDS])
def test_why_a_part_is_staged_can_be_read(prefill: Cut, decode: Cut, why: str) -> None:
    with Groups(prefill, decode).connect() as groups:
        assert groups.prefills[0].routes() == {(2, 0): why}


def test_a_closed_pool_is_staged_even_between_equal_groups() -> None:
    closed = Settings(ring_bytes=1 << 20, route="staged")
    with Groups(Cut(Form("BNHC")), Cut(Form("BNHC")), settings=SETTINGS, theirs=closed).connect() as groups:
        why = 'the pool of the decode rank is closed: Settings.route is "staged"'
        assert groups.prefills[0].routes() == {(2, 0): why}
        groups.move(29)
        assert groups.right == [True] and groups.counts()["writes"] == 4


NO_WAY = [
    (Settings(route="pages"), "nothing is staged here .* the pool of the decode rank is closed"),
    (Settings(slot_bytes=64), "a part of 6144 bytes fits no slot of 64 .* the pool of the decode rank is closed"),
]


@pytest.mark.parametrize(("ours", "why"), NO_WAY, ids=["pages only", "small slots"])
def test_where_no_route_is_left_the_call_is_refused(ours: Settings, why: str) -> None:
    closed = Settings(ring_bytes=1 << 20, route="staged")
    with (
        Groups(Cut(Form("BNHC")), Cut(Form("BNHC")), settings=ours, theirs=closed) as groups,
        pytest.raises(LinkError, match=why),
    ):
        groups.connect()


OVER_PAGES = "prefill group 1 takes 6144 bytes, the ring has 6143 (Settings.ring_bytes): it is written page to page"
RINGS = [
    (Settings(ring_bytes=6143), [OVER_PAGES]),
    (Settings(ring_bytes=6143, route="staged"), [": it fails, since the pool of the decode rank is closed"]),
    (Settings(ring_bytes=6144), []), (Settings(ring_bytes=6143, route="pages"), []),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "said"), RINGS, ids=["open", "closed", "as large", "pages only"])
def test_a_ring_that_holds_no_whole_chunk_is_told_of_when_it_connects(
    theirs: Settings, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with Groups(Cut(Form("BNHC")), Cut(Form("BNHC")), theirs=theirs).connect():
        told = [each.getMessage() for each in caplog.records if "whole chunk" in each.getMessage()]
    assert len(told) == len(said) and all(part in each for part, each in zip(said, told, strict=True))


def test_a_part_that_the_ring_cannot_take_fails_with_a_reason_that_can_be_read() -> None:
    closed = Settings(ring_bytes=256, route="staged")
    with Groups(Cut(Form("BNHC")), Cut(Form("BNHC")), theirs=closed).connect() as groups:
        (outcome,) = groups.move(29)
        assert outcome.cause is Cause.WRITE_FAILED
        (told,) = groups.prefills[0].finished()
        assert "this part was not staged, and the pool of the decode rank is closed: Settings.route is " in told.reason
        assert inside(groups.decodes[0]).rank.value_of(ROOM.key) is not None


# -------------------------------------------------------------------------------------------- negative controls
PACKED = Cut(Form("BLNHC", fused=True))


def placement_of(groups: Groups) -> Placement:
    told = inside(groups.decodes[0]).rank.placement
    assert told is not None
    return told


def wrong_strides(told: Placement) -> Placement:
    """The steps of a token and of a head exchanged."""
    (at,) = told.strides
    return Placement((Strides(at.page, at.head, at.token),), told.planes)


def wrong_planes(told: Placement) -> Placement:
    """Two layers exchanged."""
    first, second, *more = told.planes
    return Placement(told.strides, (second, first, *more))


@pytest.mark.parametrize("lie", [wrong_strides, wrong_planes])
def test_a_placement_that_is_wrong_is_noticed(lie: Callable[[Placement], Placement]) -> None:
    with Groups(PACKED, PACKED, settings=Settings(ring_bytes=1 << 20, route="pages")) as groups:
        inside(groups.decodes[0]).rank.placement = lie(placement_of(groups))
        groups.connect().move(32)
        assert groups.right == [False]


def test_a_placement_that_is_not_told_is_noticed() -> None:
    """The layout's own form would be written to regions that this pool does not have: nothing is posted."""
    with Groups(PACKED, PACKED, settings=Settings(ring_bytes=1 << 20, route="pages")) as groups:
        inside(groups.decodes[0]).rank.placement = None
        (outcome,) = groups.connect().move(32)
        assert outcome.cause is Cause.WRITE_FAILED and groups.right == [False]


def test_a_placement_of_other_planes_is_refused_by_name() -> None:
    with Groups(PACKED, PACKED) as groups:
        told = placement_of(groups)
        inside(groups.decodes[0]).rank.placement = Placement(told.strides, told.planes[:2])
        with pytest.raises(LinkError, match="1 strides and 2 planes for a rank of 3 planes"):
            groups.connect()


def swap_heads(cache: Cache) -> None:
    """Swap the heads of one token in one layer."""
    row = cache.rows(1, table(29, 4, 0)[2], 1)[0]
    row[[0, 3]] = row[[3, 0]]


def swap_layers(cache: Cache) -> None:
    """Swap the layers of one token."""
    one, other = (cache.rows(layer, table(29, 4, 0)[2], 1)[0] for layer in (0, 1))
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


@pytest.mark.parametrize("spoil", [swap_heads, swap_layers])
@pytest.mark.parametrize("route", ["staged", "pages"])
def test_the_judge_notices_a_single_row(spoil: Callable[[Cache], None], route: str) -> None:
    with Groups(Cut(Form("BNHC")), Cut(Form("BHNC")), settings=settings(route)).connect() as groups:
        groups.move(29, spoil=spoil)
        assert groups.right == [False]


def write_beside(cache: Cache) -> None:
    cache.whole[0][table(29, 4, 1)[0] - 1, 3] += 1


def test_the_judge_notices_a_byte_that_nobody_should_have_written() -> None:
    with Groups(Cut(Form("BNHC")), Cut(Form("BNHC"))).connect() as groups:
        groups.move(29, beside=write_beside)
        assert groups.right == [False]


def carry(prefill: PrefillEndpoint, decode: DecodeEndpoint, tokens: int, ours: list[int], theirs: list[int]) -> bool:
    """Carry one room of one chunk, and close both; return whether equal digests were kept."""
    decode.connect(prefill._rank.layout, [prefill.address], chunk_tokens=tokens)
    room, outcomes, deadline = Room(1), list[Any](), time.monotonic() + 30.0
    decode.open(room, tokens, theirs)
    prefill.open(room, tokens, ours)
    prefill.produced(room, tokens)
    prefill.aux(room, b"row")
    while not outcomes and time.monotonic() < deadline:
        for end in (prefill, decode):
            end.poll()
        outcomes = decode.finished()
    assert [(each.cause, each.reason) for each in outcomes] == [(Cause.NONE, "")]
    digested = prefill._digesting is not None
    if digested:
        assert prefill.digests(room) == decode.digests(room) != {}
    for end in (prefill, decode):
        end.close()
    return digested


@pytest.mark.parametrize("route", ["staged", "pages"])
@pytest.mark.parametrize("digests", [False, True])
def test_the_stride_of_a_dimension_of_one_element_does_not_matter(route: Any, digests: bool) -> None:
    """A window of one head of a wider row: an odd stride that is never taken."""
    cut = Layout(layers=1, heads=1, k_dim=8, v_dim=8, itemsize=1, dtype="int8", page_size=16, tp=1)
    wide = [torch.arange(16 * 16 * 2 * 9, dtype=torch.int64).to(torch.int8).view(16, 16, 2, 9) + at for at in range(2)]
    source = Pool([wide[0][:, :, :1, :8]], [wide[1][:, :, :1, :8]])
    target = Pool([torch.zeros(16, 16, 1, 8, dtype=torch.int8)], [torch.zeros(16, 16, 1, 8, dtype=torch.int8)])
    assert source.k[0].data_ptr() == wide[0].data_ptr(), "the same memory"
    fabric, settings = Fabric(auto=True), Settings(ring_bytes=1 << 16, route=route)
    prefill = PrefillEndpoint(
        cut, 0, source, MemoryTransport(fabric), chunk_tokens=32, settings=settings, digests=digests
    )
    decode = DecodeEndpoint(cut, 0, target, MemoryTransport(fabric), settings=settings, digests=digests)
    digested = carry(prefill, decode, 32, [5, 6], [1, 2])
    for ours, theirs in zip(wide, (*target.k, *target.v), strict=True):
        assert torch.equal(theirs[1:3], ours[5:7, :, :1, :8])
    assert digested == digests


def test_layers_may_differ_in_strides_that_are_never_taken() -> None:
    odd, even = (torch.zeros(16, 16, 2, dim, dtype=torch.int8)[:, :, :1, :8] for dim in (9, 8))
    with pytest.raises(KernelError, match="layer 1 differs"):  # from token to token it is another way
        Pool([odd, even], [])
    one = torch.zeros(1, 16, 1, 8, dtype=torch.int8)
    assert Pool([one, one.as_strided(one.shape, (3, 8, 5, 1))], []).grains[0].align == 8


@pytest.mark.parametrize(("route", "maps"), [("staged", False), ("pages", False), ("pages", True)])
def test_pages_beyond_sixteen_bits_are_carried(route: Any, *, maps: bool) -> None:
    """Pages of one token: a pool of 70,000 is small, and no id may lose its upper bits on the way."""
    cut = Layout(layers=1, heads=1, k_dim=16, v_dim=0, itemsize=1, dtype="int8", page_size=1, tp=1)
    ours, theirs = [65_540, 4, 69_999, 4_463], [69_998, 4_462, 65_541, 5]
    source, target = (torch.zeros(70_000, 1, 1, 16, dtype=torch.int8) for _ in range(2))
    source[ours] = torch.randint(1, 100, (4, 1, 1, 16), dtype=torch.int8)
    fabric, settings = Fabric(auto=True), Settings(ring_bytes=1 << 16, route=route)
    near, far = (MemoryTransport(fabric, maps=maps) for _ in range(2))
    prefill = PrefillEndpoint(cut, 0, Pool([source], []), near, chunk_tokens=4, settings=settings)
    decode = DecodeEndpoint(cut, 0, Pool([target], []), far, settings=settings)
    carry(prefill, decode, 4, ours, theirs)
    assert torch.equal(target[theirs], source[ours]) and int((target != 0).any(3).sum()) == len(theirs)
