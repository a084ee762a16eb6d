"""The torch reference against a copy written one head at a time, and what pools and calls refuse."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from kernels_cases import (
    BASE,
    PAIRS,
    SHAPES,
    Case,
    check_far_pages,
    check_gathers,
    check_scatters,
    pool_of,
    staging,
    table_of,
)

from kvproto.io.kernels import base
from kvproto.io.kernels.base import Events, EventTicket, KernelError, Pool
from kvproto.io.kernels.torch import HostCopy, TorchKernels, _places
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Share

TORCH = TorchKernels()
SHARE = Share(writer=0, reader=0, src_head=0, dst_head=0, heads=2, src_layer=0, dst_layer=0, layers=2)


@pytest.mark.parametrize("case", PAIRS + SHAPES, ids=str)
def test_gather(case: Case) -> None:
    check_gathers(TORCH, case)


@pytest.mark.parametrize("case", PAIRS + SHAPES, ids=str)
def test_scatter(case: Case) -> None:
    check_scatters(TORCH, case)


@pytest.mark.parametrize("shift", [1, 2, 4, 8])
def test_staging_at_any_byte(shift: int) -> None:
    check_gathers(TORCH, BASE, shift=shift)
    check_scatters(TORCH, BASE, shift=shift)


def test_views_of_one_interleaved_tensor() -> None:
    """An engine that keeps K and V of a page side by side hands out views with a page stride of its own."""
    whole = torch.randint(0, 256, (9, 2, 4, 2, 16), dtype=torch.uint8)
    pool = Pool([whole[:, 0]], [whole[:, 1]])
    plain = Pool([whole[:, 0].clone()], [whole[:, 1].clone()])
    share = replace_share(layers=1)
    table = table_of(9, 4, 30, 3)
    outs = [torch.zeros(pool.part_bytes(share, 30), dtype=torch.uint8) for _ in range(2)]
    TORCH.gather(pool, table, 0, 30, share, outs[0])
    TORCH.gather(plain, table, 0, 30, share, outs[1])
    assert torch.equal(*outs)


@pytest.mark.parametrize("call", ["gather_parts", "scatter"])
def test_a_copy_waits_for_the_event_that_it_comes_after(call: str) -> None:
    waited = list[str]()
    pool, table, part = ordinary()
    event = SimpleNamespace(wait=lambda: waited.append("after"))
    getattr(TORCH, call)(pool, table, 0, 11, [(SHARE, part)], after=event)
    assert waited == ["after"]


def test_each_share_and_all_of_them_together_are_checked_when_they_are_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, asked = pool_of(BASE.plan.prefill, 0, 8, 1), list[tuple[object, ...]]()
    monkeypatch.setattr(pool, "cut", lambda *about: asked.append(about))
    other = replace_share(layers=1)
    TORCH.prepare(pool, "scatter", [SHARE, other])
    assert asked == [("scatter", (SHARE,)), ("scatter", (other,)), ("scatter", (SHARE, other))]


def test_a_pool_on_the_host_alone_is_copied_into_mapped_pages_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(BASE.plan.prefill, 0, 8, 1)
    assert isinstance(TORCH.cross(pool, []), HostCopy)
    monkeypatch.setattr(pool, "device", torch.device("cuda"))
    assert TORCH.cross(pool, []) is None


class DeviceTable:
    """A table whose ids cannot be looked at without waiting; indexing it needs indices on its device."""

    device = torch.device("meta")

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table

    def __getitem__(self, at: torch.Tensor) -> torch.Tensor:
        return self.table[at]


def test_on_a_device_tokens_are_found_without_a_look_at_the_table_and_a_ticket_tells_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, table, part = ordinary()
    made = torch.arange
    near = _places(pool, table, 3, 7)

    def arange(first: int, end: int, *, device: object = None) -> torch.Tensor:
        assert device in (None, DeviceTable.device)
        return made(first, end)

    monkeypatch.setattr(torch, "arange", arange)
    pages, slots = _places(pool, cast("Any", DeviceTable(table + (1 << 20))), 3, 7)
    assert (pages - (1 << 20)).tolist() == near[0].tolist() and slots.tolist() == near[1].tolist()
    monkeypatch.setattr(pool, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    monkeypatch.setattr(Events, "ticket", lambda _, stream: ("ticket", stream))
    ticket: Any = TORCH.gather(pool, table, 0, 11, SHARE, part)
    assert ticket == ("ticket", ("stream of", torch.device("cuda")))


def test_ids_behind_the_tokens_of_a_call_are_not_looked_at() -> None:
    pool, table, part = ordinary()
    TORCH.gather(pool, torch.cat([table, torch.tensor([99, -1])]), 0, 11, SHARE, part)
    with pytest.raises(KernelError, match=r"names pages .*99 of 8"):
        TORCH.gather(pool, torch.tensor([*table[:-1].tolist(), 99]), 0, 11, SHARE, part)


def test_a_pool_may_begin_at_any_element_of_the_engine_s_tensor() -> None:
    """Words are as wide as where it begins allows, counted in bytes: the sixth element of two is byte 12."""
    plain = pool_of(BASE.plan.prefill, 0, 8, 1)

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        whole = torch.zeros(6 + tensor.numel(), dtype=tensor.dtype)
        view = whole[6:].view(tensor.shape)
        view.copy_(tensor)
        return view

    pool = Pool([shifted(each) for each in plain.k], [shifted(each) for each in plain.v])
    table, nbytes = table_of(8, 4, 11, 1), plain.part_bytes(SHARE, 11)
    outs = [torch.zeros(nbytes, dtype=torch.uint8) for _ in range(2)]
    for each, out in zip((plain, pool), outs, strict=True):
        TORCH.gather(each, table, 0, 11, SHARE, out)
    assert torch.equal(*outs)


def replace_share(**changes: int) -> Share:
    fields = {name: getattr(SHARE, name) for name in SHARE.__struct_fields__}
    return Share(**{**fields, **changes})


def ordinary() -> tuple[Pool, torch.Tensor, torch.Tensor]:
    pool = pool_of(BASE.plan.prefill, 0, 8, 1)
    return pool, table_of(8, 4, 11, 1), staging(pool.part_bytes(SHARE, 11))[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 13}, "of a table of 3 pages"),
        ({"tokens": 0}, "tokens 0..-1"),
        ({"first": -1}, "tokens -1"),
        ({"table": torch.zeros(3, dtype=torch.int32)}, "int64"),
        ({"table": torch.zeros((3, 1), dtype=torch.int64)}, "1-D"),
        ({"table": torch.zeros(6, dtype=torch.int64)[::2]}, "must be dense 1-D int64"),
        ({"table": torch.tensor([0, 8, 1])}, "pages 0..8 of 8"),
        ({"table": torch.tensor([0, -1, 1])}, "pages -1..1 of 8"),
        ({"out": torch.zeros(10, dtype=torch.uint8)}, "needs a 1-D uint8 view"),
        ({"out": torch.zeros(2 * 1408, dtype=torch.uint8)[::2]}, "must be dense"),
        ({"out": torch.zeros(1408, dtype=torch.int8)}, "uint8"),
        ({"out": torch.zeros((11, 128), dtype=torch.uint8)}, "needs a 1-D uint8 view"),
        ({"share": replace_share(src_head=1)}, "heads 1..2 of a pool of 2"),
        ({"share": replace_share(src_layer=1)}, "layers 1..2 of a pool of 2"),
        ({"share": replace_share(heads=0)}, "heads 0..-1 of a pool of 2"),
        ({"share": replace_share(layers=0)}, "layers 0..-1 of a pool of 2"),
        ({"share": replace_share(src_head=-1)}, "heads -1..0 of a pool of 2"),
        ({"share": replace_share(src_layer=-1)}, "layers -1..0 of a pool of 2"),
    ],
)
def test_a_call_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    pool, table, out = ordinary()
    call: dict[str, Any] = {"table": table, "first": 0, "tokens": 11, "share": SHARE, "out": out}
    with pytest.raises(KernelError, match=message):
        TORCH.gather(pool, **{**call, **changes})


@pytest.mark.parametrize(("near", "pinned", "why"), [
    (True, True, ""), (True, False, "staging on cpu is not reachable from a pool on cuda:0"),
    (False, True, "the page table must be dense 1-D int64 on cuda:0, not 1-D torch.int64 on cpu"),
])  # fmt: skip
def test_a_device_reads_tables_of_its_own_and_pinned_memory(near: bool, pinned: bool, why: str) -> None:
    class Placed:
        """A tensor of 512 bytes, or a table of three pages, which says where it is."""

        device = torch.device("cpu")

        def __init__(self, dtype: torch.dtype, count: int, place: int) -> None:
            self.dtype, self.count, self.place, self.shape = dtype, count, place, (count,)

        def get_device(self) -> int:
            return self.place

        def dim(self) -> int:
            return 1

        def numel(self) -> int:
            return self.count

        def is_contiguous(self) -> bool:
            return True

        def is_pinned(self) -> bool:
            return pinned

    pool: Any = SimpleNamespace(gpu=0, device="cuda:0", page_size=4)
    cut: Any = SimpleNamespace(slices=[SHARE], token_bytes=(128,), entries=4)
    table: Any = Placed(torch.int64, 3, 0 if near else -1)
    staged: Any = Placed(torch.uint8, 4 * 128, -1)
    with pytest.raises(KernelError, match=why) if why else nullcontext():
        base.check_call(pool, cut, table, 0, 4, [staged], None)


def test_parts_that_overlap() -> None:
    pool, table, out = ordinary()
    with pytest.raises(KernelError, match="two parts of one scatter"):
        TORCH.scatter(pool, table, 0, 11, [(SHARE, out), (SHARE, out)])
    with pytest.raises(KernelError, match="at least one part"):
        TORCH.scatter(pool, table, 0, 11, [])


def zeros(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("k", "v", "more", "message"),
    [
        ([], [], {}, "at least one layer"),
        ([zeros(2, 2, 2, 4)], [zeros(2, 2, 2, 4)] * 2, {}, "1 K tensors but 2 V"),
        ([zeros(2, 2, 4)], [], {}, "four dimensions"),
        ([zeros()], [], {}, "four dimensions"),
        ([zeros(2, 2, 2, 4)], [zeros(2, 2, 2, 4).to("meta")], {}, "K is on cpu but V on meta"),
        ([zeros(2, 2, 2, 0)], [], {}, "must not be empty"),
        ([zeros(2, 2, 2, 8)[..., ::2]], [], {}, "must be dense"),
        ([zeros(2, 2, 2, 4), zeros(3, 2, 2, 4)], [], {}, "layer 1 differs"),
        ([zeros(2, 2, 2, 4)], [zeros(2, 2, 1, 4)], {}, "last dimension only"),
        ([zeros(2, 2, 2, 4)], [zeros(2, 2, 2, 4, dtype=torch.uint8)], {}, "same size"),
        ([zeros(2, 2, 2, 4)], [zeros(2, 2, 2, 4, dtype=torch.bfloat16)], {}, "a layout has one dtype"),
        ([zeros(2, 1, 2, 4).expand(2, 3, 2, 4)], [], {}, "let rows share memory"),
        ([zeros(99).as_strided((3, 2, 2, 4), (8, 8, 4, 1))], [], {}, "let rows share memory"),
        ([zeros(2, 2, 2, 4)], [], {"page_size": 4}, "pages of 4 tokens"),
        ([zeros(2, 2, 2, 4)], [], {"order": "DHN"}, "'NHD' or 'HND'"),
    ],
)
def test_a_pool_that_cannot_be(k: Any, v: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        Pool(k, v, **more)


def test_what_was_gathered_can_be_scattered() -> None:
    """P's pages go to D's through staging, across page sizes and orders: head by head, token by token."""
    case = replace(BASE, tp=(4, 2), heads=8, pages=(3, 4), orders=("NHD", "HND"), tokens=23)
    plan = case.plan
    whole = torch.randint(-(2**15), 2**15, (case.layers, 2, 24, case.heads, 8), dtype=torch.int16)
    tables = [table_of(20, case.pages[side], 24, side) for side in (0, 1)]
    sources = []
    for writer in range(4):
        pool = pool_of(plan.prefill, writer, 20, 5)
        heads = slice(2 * writer, 2 * writer + 2)
        for layer in range(case.layers):
            for kind, tensors in enumerate(pool.kinds):
                rows = whole[layer, kind, :, heads].reshape(8, 3, 2, 8)
                tensors[layer][tables[0]] = rows.view(torch.bfloat16)
        sources.append(pool)
    for reader in range(2):
        parts = []
        for share in plan.writers(reader):
            out = torch.empty(plan.part_bytes(share, Cut(0, 23)), dtype=torch.uint8)
            TORCH.gather(sources[share.writer], tables[0], 0, 23, share, out)
            parts.append((share, out))
        target = pool_of(plan.decode, reader, 20, 6)
        TORCH.scatter(target, tables[1], 0, 23, parts)
        for layer in range(case.layers):
            for kind, tensors in enumerate(target.kinds):
                found = tensors[layer][tables[1]].transpose(1, 2).reshape(24, 4, 8).view(torch.int16)
                assert torch.equal(found[:23], whole[layer, kind, :23, 4 * reader : 4 * reader + 4])


@pytest.mark.parametrize("side", ["gather", "scatter"])
def test_page_ids_need_more_than_sixteen_bits(side: str) -> None:
    check_far_pages(TORCH, side)


class Recorded:
    """An event that says that it is done, and a stream that is told to wait."""

    def __init__(self) -> None:
        self.waited: list[object] = []

    def query(self) -> bool:
        return True

    def wait_event(self, event: object) -> None:
        self.waited.append(event)


def test_work_is_queued_on_the_stream_that_is_named_or_on_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current = list[object]()

    def stream(named: object) -> Any:
        current.append(named)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "stream", stream)
    for named in (None, "side"):
        with base.on_stream(named):
            assert current == ["side"] * (named is not None)


def test_an_event_that_is_over_is_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Recorded]()

    class Made(Recorded):
        def record(self, stream: object) -> None:
            self.waited.append(stream)

    def new_event() -> Recorded:
        made.append(Made())
        return made[-1]

    monkeypatch.setattr(base, "_new_event", new_event)
    events = Events()
    first, _ = events.ticket("one"), events.ticket("two")
    assert first.done()
    events.ticket("three")
    assert [each.waited for each in made] == [["one", "three"], ["two"]]


@pytest.mark.parametrize("spend", ["done", "lead"])
def test_a_spent_ticket_gives_its_event_back_once(spend: str) -> None:
    """Given back twice, two tickets would record the same event, and one of them be done too early."""
    event, stream, spare = Recorded(), Recorded(), list[Any]()
    ticket = EventTicket(event, spare)
    if spend == "done":
        assert ticket.done()
    else:
        ticket.lead(stream)
    assert spare == [event] and stream.waited == ([event] if spend == "lead" else [])
    assert ticket.done()
    ticket.lead(stream)
    assert spare == [event] and len(stream.waited) == (spend == "lead")
