"""The real model of the demonstration: the reference is right, and what differs from it is found.

That sharded ranks equal it to the bit is part of every whole run (`test_demo_matrix`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from kvproto.lab.demo.guard import Guard, PooledRoom
from kvproto.lab.demo.job import DemoJob, GroupShape, RoomSpec
from kvproto.lab.demo.model import build, oracle_tokens, read_aux, reference
from kvproto.lab.demo.oracle import truth_file, truth_sheet
from kvproto.lab.demo.pages import Allocator, PagedKV, sheet_of
from kvproto.lab.demo.rank import DemoRank
from kvproto.lab.demo.tampered_room import CONTROLS, TamperedRoom, corrupted
from kvproto.lab.demo.verify import Kind, ReferenceJudge, Sheet, Verdict, compare, unequal_rows
from kvproto.layout.sharding import LayoutError


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def kv(tokens: int) -> dict[Kind, int]:
    """As many rows of K and of V."""
    return {"k": tokens, "v": tokens}


def one_room(p: GroupShape, d: GroupShape, tokens: int = 75, **more: Any) -> DemoJob:
    return DemoJob(p, d, (RoomSpec(7, tokens, new=6),), chunk=32, layers=3, **more)


# ---- the reference ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_reference_continues_as_the_library_does(family: Any) -> None:
    job = DemoJob(GroupShape(1), GroupShape(1), (RoomSpec(1, 90, new=16),), family=family, dtype="float32")
    truth = reference(build(job), job, job.rooms[0])
    for attention in ("eager", "sdpa"):
        assert oracle_tokens(job, job.rooms[0], attention) == truth.tokens
    assert len(set(truth.tokens)) > 8, "a model that repeats itself judges nothing"


def test_reference_depends_on_seed_and_room() -> None:
    job = DemoJob(GroupShape(1), GroupShape(1), (RoomSpec(1, 40), RoomSpec(2, 40)), dtype="float32")
    other = DemoJob(GroupShape(1), GroupShape(1), job.rooms, dtype="float32", seed=1)
    a, b = (reference(build(job), job, room) for room in job.rooms)
    c = reference(build(other), other, other.rooms[0])
    assert a.tokens not in (b.tokens, c.tokens)
    assert a.tokens == reference(build(job), job, job.rooms[0]).tokens


def test_fp8_reference_is_rounded() -> None:
    job = DemoJob(GroupShape(1), GroupShape(1), (RoomSpec(1, 40),), dtype="float8_e4m3fn")
    wide = DemoJob(GroupShape(1), GroupShape(1), job.rooms, dtype="bfloat16")
    narrow, exact = reference(build(job), job, job.rooms[0]), reference(build(wide), wide, job.rooms[0])
    assert narrow.keys.dtype == torch.float8_e4m3fn
    assert torch.equal(narrow.keys[0].view(torch.uint8), exact.keys[0].to(torch.float8_e4m3fn).view(torch.uint8))
    assert narrow.logits != exact.logits


# ---- verification finds what is wrong -----------------------------------------------------------------------------


ROOM = RoomSpec(1, 40, prefix=8)


def tampered(heads: int, room: RoomSpec = ROOM, cells: Any = ((8, 16), (24, 16))) -> TamperedRoom:
    """A room of which the tokens from 8 on came in cells of 16."""
    rows = {(kind, layer): torch.randint(256, (room.tokens, heads, 8), dtype=torch.uint8)
            for kind in ("k", "v") for layer in range(2)}  # fmt: skip
    return TamperedRoom(room, 8, rows, cells)


@pytest.mark.parametrize("control", ["another head", "another chunk", "a chunk read too early", "a page left out"])
def test_every_control_is_detected(control: str) -> None:
    at = tampered(2)
    right, changed = sheet_of(at.rows, dict.fromkeys(at.rows, 0)), CONTROLS[control](at)
    assert changed is not None
    assert compare(1, kv(40), right, {"D0": sheet_of(changed, dict.fromkeys(changed, 0))}, "D")
    assert sheet_of(at.rows, dict.fromkeys(at.rows, 0)) == right, "and the room's own rows are left as they are"


def test_each_control_is_planted_in_the_first_room_that_it_fits() -> None:
    nothing_moved = tampered(2, RoomSpec(5, 40, prefix=40), ())
    assert list(corrupted([nothing_moved])) == []
    small = tampered(1, RoomSpec(2, 40, prefix=8), ((8, 32),))
    planted = {name: room for name, room, _ in corrupted([nothing_moved, small, tampered(2)])}
    assert planted == {"a page left out": 2, "another head": 1, "another chunk": 1, "a chunk read too early": 1}


def test_a_touched_row_outside_the_room_is_found() -> None:
    pool = PagedKV(layers=2, heads=2, dim=4, pages=12, page_size=8, dtype=torch.bfloat16, seed=3)
    guard, held = Guard(pool), PooledRoom(Allocator(12, 0).take(5), 36)
    assert guard.intruded([held]) == []
    pool.rows("v", 1)[held.table[-1], 4, 0, 0] += 1  # the slot after the last token, in the room's own page
    assert guard.intruded([held]) == [
        f"local layer 1 V: 1 rows outside the rooms changed, the first in page {held.table[-1]} at 4"
    ]


def test_missing_head_and_wrong_length_are_differences() -> None:
    kinds: tuple[Kind, Kind] = ("k", "v")
    truth: Sheet = {(0, kind, head): bytes(range(12)) for kind in kinds for head in (0, 1)}
    part = {key: value for key, value in truth.items() if key[2] == 0}
    missing = compare(1, kv(3), truth, {"D0": part}, "D")
    assert [str(x) for x in missing] == [f"room 1: nobody of D holds layer 0 {k} head 1" for k in "KV"]
    assert unequal_rows(b"abcdef", b"abXdef", 3) == [1]
    assert unequal_rows(b"abcdef", b"abcd", 3) == [0, 1, 2]


def test_the_judge_names_what_differs() -> None:
    judge, kinds = ReferenceJudge(), ("k", "v")
    sheet_: Sheet = {(0, kind, 0): b"abcdef" for kind in kinds}
    assert judge.learn(1, Verdict([4, 5, 6], [b"x", b"y", b"z"], sheet_, [4, 5, 6])) == []
    assert judge.learn(1, Verdict([4, 5, 6], [b"x", b"y", b"z"], sheet_, [4, 5, 7], rows=kv(3))) == [
        "room 1: the library's own generation differs from token 2 on: [6] expected, [7] generated"
    ]
    assert judge.said("D0", 1, [(4, b"x")], 1) == [] == judge.said("D0", 1, [(4, b"x"), (5, b"y"), (6, b"z")], 3)
    assert "from token 1 on: [5]" in judge.said("D0", 1, [(4, b"x")], 2)[0]
    assert judge.said("D0", 1, [(4, b"x"), (5, b"-")], 2) == ["room 1: D0: logits of token 1 differ"]
    assert judge.said("D0", 1, [(4, b"x"), (8, b"y")], 2) == [
        "room 1: D0 differs from token 1 on: [5] expected, [8] generated"
    ]
    assert judge.kv("D", 1, {"D0": sheet_}) == []
    assert judge.kv("D", 1, {"D0": sheet_ | {(0, "v", 0): b"abcdeX"}}) == [
        "room 1: D0 differs in layer 0 V head 0 in 1 tokens, the first of them 2"
    ]
    assert len(judge.kv("D", 1, {})) == len(kinds)


# ---- pages and jobs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_pages_give_back_what_was_written(order: Any) -> None:
    pool = PagedKV(layers=1, heads=3, dim=5, pages=9, page_size=4, dtype=torch.float8_e4m3fn, order=order, seed=1)
    x = torch.randn(18, 3, 5).to(torch.float8_e4m3fn)
    pool.write("k", 0, [8, 0, 3, 7, 1], 0, x[:10])
    pool.write("k", 0, [8, 0, 3, 7, 1], 10, x[10:])
    assert torch.equal(pool.read("k", 0, [8, 0, 3, 7, 1], 18).view(torch.uint8), x.view(torch.uint8))


def test_allocator_scatters_and_never_hands_out_twice() -> None:
    allocator = Allocator(64, "seed")
    a, b = allocator.take(20), allocator.take(20)
    assert not set(a) & set(b) and a != sorted(a)
    with pytest.raises(MemoryError, match="24 free"):
        allocator.take(25)
    allocator.give(a)
    assert set(allocator.take(44)) | set(b) == set(range(64))


def test_jobs_refuse_what_cannot_run() -> None:
    one, room = GroupShape(1), RoomSpec(1, 8)
    with pytest.raises(ValueError, match="int4"):
        DemoJob(one, one, (room,), dtype="int4")
    with pytest.raises(ValueError, match="share an id"):
        DemoJob(one, one, (room, room))
    with pytest.raises(ValueError, match="prefix <= tokens"):
        DemoJob(one, one, (RoomSpec(1, 8, prefix=9),))
    with pytest.raises(LayoutError):
        DemoJob(GroupShape(3), one, (room,)).layout("prefill")
    assert DemoJob(GroupShape(6), GroupShape(4), (room,), heads=12).query_heads == 24
    assert DemoJob(GroupShape(8), GroupShape(2), (room,)).query_heads == 8


# ---- a rank but for its endpoint ----------------------------------------------------------------------------------


def test_a_rank_starts_from_its_prefix_and_names_its_cells(tmp_path: Path) -> None:
    room = RoomSpec(5, 100, prefix=32, new=4)
    job = DemoJob(GroupShape(1, page_size=8), GroupShape(1, page_size=16), (room, RoomSpec(6, 20)), layers=2, chunk=50)
    truth = reference(build(job), job, room)
    torch.save(truth, truth_file(tmp_path, 5))
    me = DemoRank(job, "decode", 0, tmp_path)
    table = me.allocate(room)
    assert me.cells(5) == [(32, 48), (80, 20)] and len(table) == 7
    assert torch.equal(me.pool.read("k", 1, table, 32), truth.keys[1, :, :32].transpose(0, 1))
    right = truth_sheet(truth)
    missing = compare(5, kv(100), right, {"D0": me.sheet(5)}, "D")
    assert {(x.first, x.rows) for x in missing} == {(32, 68)}, "only what has yet to come differs"
    me.shard.place(truth, table, 100)
    planted = {name: compare(5, kv(100), right, {"D0": sheet}, "D") for name, _, sheet in me.corrupted([5])}
    assert len(planted) == 4 and all(planted.values())
    said = [read_aux(row) for row in me.resume(5, truth.tokens[0])]
    assert [token for token, _ in said] == truth.tokens[1:] and me.intruded() == []
    assert compare(5, kv(100), right, {"D0": me.sheet(5)}, "D") == []


def test_pages_given_back_are_noise_and_are_reused(tmp_path: Path) -> None:
    job = DemoJob(GroupShape(1), GroupShape(1), (RoomSpec(1, 40), RoomSpec(2, 40)), layers=1)
    me = DemoRank(job, "prefill", 0, tmp_path)
    table = me.allocate(job.rooms[0])
    list(me.prefill(1))
    before = me.pool.rows("k", 0)[table].clone()
    me.give_back(1)
    assert not torch.equal(before, me.pool.rows("k", 0)[table]) and me.intruded() == [] and not me.tables
    me.pool.rows("v", 0)[table[0], 0, 0, 0] ^= 1
    assert len(me.intruded()) == 1, "a write into pages that were given back is found"
