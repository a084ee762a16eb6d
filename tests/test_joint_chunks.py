"""Joint chunks: which last tokens are one chunk with the state, what lies where in it, who writes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from kvproto import Cache, CachePart, Layout, LayoutError
from kvproto.data import decode_data
from kvproto.data.decode_data import DecodeData
from kvproto.layout.caches import END
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import PART_ALIGNMENT
from kvproto.protocol import effects as do
from kvproto.protocol.room_chunks import joint

CHUNK = 16
#: a token of four heads of 40 bytes on five layers, and a state of four heads of 300 bytes on two
TOKEN, STATE = 4 * 40 * 5, 4 * 300 * 2
KV = Cache("kv", (CachePart("k", 4, 40),))
LAST = Cache("state", (CachePart("s", 4, 300),), (1, 2), travels=END)


def layout(*caches: Cache, tp: int = 1, pp: int = 1, **more: Any) -> Layout:
    return Layout.of_caches(caches or (KV, LAST), layers=5, page_size=4, tp=tp, pp=pp, **more)


def grown(units: int) -> Cache:
    return replace(LAST, parts=(CachePart("s", 4, 300 * units),))


def test_a_joint_chunk_is_a_quarter_larger_than_the_largest_other_one() -> None:
    held = layout()
    assert [held.joint_tokens(size) for size in (4, 8, 16)] == [2, 7, 15], "and no whole cell"
    large = layout(KV, grown(10))  # 24,000 bytes: a quarter of it is seven tokens and a half
    assert [large.joint_tokens(size) for size in (4, 8, 16)] == [3, 7, 7]
    window = replace(KV, name="near", layers=(0,), travels="window", window=10)  # 1,600 bytes at its longest
    assert layout(replace(KV, layers=(1, 2)), window).joint_tokens(4) == 1
    assert layout(replace(KV, layers=(1, 2)), window).joint_tokens(16) == 15


def test_who_has_no_state_or_cuts_it_or_says_so_has_none() -> None:
    for held in (layout(KV), layout(KV, replace(LAST, groups=2)), layout(joint=False)):
        assert held.joint_tokens(CHUNK) == 0
    assert replace(layout(KV), joint=True).joint_tokens(CHUNK) == 0, "a peer may say so that has none"
    assert layout(KV).joint is UNSET and layout(joint=False).joint is UNSET and layout().joint is True
    for sides in ((layout(joint=False), layout()), (layout(), layout(joint=False))):
        assert Plan(*sides, CHUNK).joint_tokens == 0
    assert Plan(layout(), layout(tp=2), CHUNK).joint_tokens == 15


def test_a_slot_holds_it_and_who_has_no_room_says_that_it_takes_none() -> None:
    held = layout(tp=2)
    most = (STATE + 15 * TOKEN) // 2 + PART_ALIGNMENT
    assert [held.slot_bytes(rank, CHUNK) for rank in (0, 1)] == [most] * 2
    assert layout(tp=2, joint=False).slot_bytes(0, CHUNK) == CHUNK * TOKEN // 2
    assert held.fitted(most, CHUNK) is held and held.fitted(most - 1, CHUNK) == layout(tp=2, joint=False)
    apart = layout(joint=False)
    assert apart.fitted(1, CHUNK) is apart
    stages = layout(pp=2)  # the first of two has two of the five layers, and the other one more
    sizes = [stages.slot_bytes(rank, CHUNK) for rank in (0, 1)]
    assert stages.fitted(max(sizes), CHUNK) is stages and not stages.fitted(min(sizes), CHUNK).joint


@pytest.mark.parametrize(("tokens", "prefix", "found"), [
    (15, 0, [(0, 15, True)]), (16, 0, [(0, 16, False), (16, 0, True)]), (17, 0, [(0, 16, False), (16, 1, True)]),
    (20, 4, [(4, 16, False), (20, 0, True)]), (20, 16, [(16, 4, True)]), (20, 20, [(20, 0, True)]),
    (22, 4, [(4, 16, False), (20, 2, True)]),
])  # fmt: skip
def test_a_cell_that_is_not_whole_joins_the_state(tokens: int, prefix: int, found: list[tuple[int, int, bool]]) -> None:
    about = tokens, prefix, CHUNK, 1, 1, 15
    cuts = [cut_at(k, *about) for k in range(chunks(*about))]
    assert [(cut.first, cut.tokens, cut.state) for cut in cuts] == found
    assert all((cut.group, cut.groups) == (0, 1) for cut in cuts)
    with pytest.raises(LayoutError, match=f"chunk {len(cuts)} of a room of"):
        cut_at(len(cuts), *about)
    told: Any = SimpleNamespace(
        tokens=tokens, prefix=prefix, terms=SimpleNamespace(chunk_tokens=CHUNK, joint_tokens=15)
    )
    assert joint(told) == (cuts[-1].tokens if cuts[-1].state else 0)


def test_with_fewer_tokens_or_several_groups_none_joins() -> None:
    assert [cut_at(k, 20, 0, CHUNK, 1, 1, 3) for k in range(3)] == [Cut(0, 16), Cut(16, 4), Cut(20, 0, state=True)]
    assert chunks(20, 0, CHUNK, 1, 1, 3) == 3 and chunks(20, 0, CHUNK, 1, 1, 4) == 2
    assert chunks(20, 0, CHUNK, 2, 1, 15) == 5 and cut_at(3, 20, 0, CHUNK, 2, 1, 15) == Cut(16, 4, 1, 2)
    assert cut_at(4, 20, 0, CHUNK, 2, 1, 15) == Cut(20, 0, 0, 1, state=True)
    assert chunks(20, 0, CHUNK, 1, 0, 15) == 2, "a model without state has its cells"


def test_each_of_the_two_is_what_it_would_be_alone() -> None:
    both = Cut(16, 4, state=True)
    assert (both.only(at_end=False), both.only(at_end=True)) == (Cut(16, 4), Cut(20, 0, state=True))
    for other in (Cut(0, 16), Cut(20, 0, 1, 2, state=True)):
        assert other.only(at_end=False) == other.only(at_end=True) == other


def test_parts_have_a_block_of_either_behind_those_of_the_writers_before() -> None:
    plan, both = Plan(layout(tp=2), layout(), CHUNK), Cut(16, 3, state=True)
    half, last = 3 * TOKEN // 2, STATE // 2  # 1,200 bytes of tokens, and 1,200 of state
    assert plan.fan_in(0, both) == plan.fan_in(0, Cut(0, 16)) == plan.fan_in(0, Cut(19, 0, state=True)) == (0, 1)
    for writer in (0, 1):
        part = plan.part(writer, 0, both)
        tokens, state = part.blocks(both)
        assert (tokens.offset, tokens.nbytes, tokens.at_end) == (0, half, False)
        assert (state.offset, state.nbytes, state.at_end) == (1280, last, True)
        assert (part.offset, part.nbytes) == (writer * 2560, 1280 + last)
        assert tokens.share == part.share == plan.share(writer, 0)
        assert plan.state is not None and state.share == plan.state.share(writer, 0)
        assert plan.kv_bytes(tokens.share, both.only(at_end=False)) == half
        assert plan.kv_bytes(state.share, both.only(at_end=True)) == last
        assert plan.part(writer, 0, replace(both, first=32)) is part, "of every room"
    assert plan.grant_bytes(0, both) == 2 * 2560
    assert plan.whole_state == (Cut(0, 15, state=True),)
    apart = Plan(layout(tp=2), layout(tp=2), CHUNK)
    assert apart.fan_in(0, both) == (0,)
    for ask in (apart.part, lambda writer, reader, cut: apart.part_offset(reader, writer, cut)):
        with pytest.raises(LayoutError, match="writer 1 has no duty towards reader 0"):
            ask(1, 0, both)
    late = replace(LAST, layers=(4,))  # which a first of two stages has not
    plan = Plan(layout(KV, late, pp=2), layout(KV, late), CHUNK)
    assert [plan.fan_in(0, Cut(16, tokens, state=True)) for tokens in (0, 1)] == [(1,), (0, 1)]


def test_a_writer_of_one_kind_alone_has_one_block() -> None:
    first, second = replace(KV, layers=(0, 1)), replace(LAST, layers=(2, 3, 4))
    plan, both = Plan(layout(first, second, pp=2), layout(first, second), CHUNK), Cut(0, 2, state=True)
    assert plan.fan_in(0, Cut(0, 2)) == (0,) and plan.fan_in(0, Cut(2, 0, state=True)) == (1,)
    assert plan.fan_in(0, Cut(0, 1, state=True)) == (0, 1)
    assert plan.fan_in(0, both) == (0, 1)
    (tokens,), (state,) = (plan.part(writer, 0, both).blocks(both) for writer in (0, 1))
    assert not tokens.at_end and state.at_end and tokens.offset == state.offset == 0
    assert plan.part(1, 0, both).offset == -(tokens.nbytes // -256) * 256
    assert plan.owed(0, 0) is not None and plan.owed(1, 0) is None


def test_a_scatter_of_a_joint_chunk_counts_the_bytes_of_both_and_no_gap_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[Any]()
    monkeypatch.setattr(decode_data, "bind_chunk", lambda *about: given.append(about[5]))
    plan, entry = Plan(layout(tp=2), layout(), CHUNK), SimpleNamespace(table="a table")
    ring = SimpleNamespace(parts=None)
    data: Any = SimpleNamespace(rank=SimpleNamespace(index=0), kernels=None, pool=None, ring=ring)
    for cut, nbytes in ((Cut(16, 3, state=True), 3 * TOKEN + STATE), (Cut(0, 16), 16 * TOKEN)):
        for writers, share in ((0b11, 1), (0b10, 2)):
            effect = do.LaunchScatter(5, 1, writers, 1024, 8192, cut)
            made = DecodeData._bind(data, effect, cast("Any", entry), plan)
            assert made.nbytes * share == nbytes and (made.first, made.end) == (1024, 8192)
            wrote = [writer for writer in (0, 1) if writers >> writer & 1]
            parts = [plan.part(writer, 0, cut) for writer in wrote]
            assert given.pop() == [(part, 1024 + part.offset) for part in parts]
