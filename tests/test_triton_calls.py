"""Calls of the Triton kernels up to the launch: batches, addresses, streams; nothing is compiled."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

import torch
from test_end_caches import FULL, STATE, of

from kvproto.io.kernels import batch, flat_batch, triton
from kvproto.io.kernels.across import SPARING, AcrossTuning
from kvproto.io.kernels.base import Done, Events, KernelError, Pool, StagedPart
from kvproto.io.kernels.batch import Copy, KernelTuning
from kvproto.io.kernels.digest import new_table
from kvproto.io.kernels.pool import Side
from kvproto.io.kernels.triton import ALONE, DeviceCopy, DeviceLaunch, TritonKernels
from kvproto.layout.plan import Share, plan_between
from kvproto.verify.testing.pools import empty_caches

TABLE = torch.tensor([2, 0, 1, 3, 4])


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record each compilation; a launcher does nothing."""
    found = list[tuple[Any, ...]]()

    def compile_kernel(*about: Any) -> Any:
        found.append(about)
        return lambda *_: None

    for module in (batch, flat_batch):
        monkeypatch.setattr(module, "compile_kernel", compile_kernel)
    return found


def share(head: int, layer: int = 0) -> Share:
    return Share(writer=0, reader=0, src_head=head, dst_head=head, heads=1, src_layer=layer, dst_layer=layer, layers=1)


def pool(heads: int = 4) -> Pool:
    return Pool([torch.zeros((6, 4, heads, 8), dtype=torch.int16) for _ in range(3)], [])


def parts(of: Pool, *shares: Share, tokens: int = 8) -> list[StagedPart]:
    return [(each, torch.zeros(of.part_bytes(each, tokens), dtype=torch.uint8)) for each in shares]


def bound(kernels: TritonKernels, of: Pool, *shares: Share, side: Side = "scatter", first: int = 1) -> DeviceLaunch:
    made = kernels.bind(side, of, TABLE, first, 8, parts(of, *shares))
    assert isinstance(made, DeviceLaunch)
    return made


def test_a_tile_is_a_power_of_two_of_sixteen_bytes_or_more() -> None:
    TritonKernels(KernelTuning(tile=16))
    for tile in (8, 24, 0):
        with pytest.raises(KernelError, match="a tile is a power of two"):
            TritonKernels(KernelTuning(tile=tile))


def test_calls_are_launched_on_the_stream_that_is_named_after_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    told, here = list[Any](), pool()

    def launch(_: Any, place: int, copies: Any, stream: Any, after: Any) -> str:
        told.append((place, len(copies), stream, after))
        return "ticket"

    monkeypatch.setattr(TritonKernels, "launch", launch)
    kernels, (part,) = TritonKernels(), parts(here, share(1))
    where: dict[str, Any] = {"stream": "stream", "after": "after"}
    tickets: list[Any] = [
        kernels.gather(here, TABLE, 0, 8, *part, **where), kernels.gather_parts(here, TABLE, 0, 8, [part], **where),
        kernels.scatter(here, TABLE, 0, 8, [part], **where), bound(kernels, here, share(1))("stream", "after"),
    ]  # fmt: skip
    assert told == [(-1, 1, "stream", "after")] * 4 and tickets == ["ticket"] * 4


def test_a_launch_waits_for_the_event_and_its_ticket_is_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    told, kernels = list[Any](), TritonKernels()
    stream = SimpleNamespace(cuda_stream=7, wait_event=told.append, synchronize=partial(told.append, "waited"))
    monkeypatch.setattr(triton, "INTERPRETED", False)

    def use_device(place: int) -> Any:
        told.append(("on", place))
        return nullcontext()

    def current(place: int) -> Any:
        told.append(("current", place))
        return stream

    monkeypatch.setattr(triton, "use_device", use_device)
    monkeypatch.setattr(Events, "ticket", lambda _, on: ("ticket", on))
    tickets: list[Any] = [
        kernels.launch(3, [told.append, told.append], stream, "after"), kernels.launch(3, [told.append], stream, None),
    ]  # fmt: skip
    assert tickets == [("ticket", stream)] * 2
    assert told == [("on", 3), "after", 7, 7, ("on", 3), 7]
    monkeypatch.setattr(kernels, "_current", current)
    kernels.launch(3, [told.append], None, None)

    def refuse(_: int) -> None:
        raise KernelError("out of resources")

    with pytest.raises(KernelError, match="out of resources"):
        kernels.launch(3, [refuse], stream, None)
    assert told[6:] == [("on", 3), ("current", 3), 7, ("on", 3), "waited"]


@pytest.mark.parametrize(("percent", "whole"), [(100, True), (101, True), (99, False), (1, False)])
def test_beside_a_forward_the_sparing_form_is_launched(percent: int, whole: bool) -> None:
    told = list[Any]()

    def form(name: str) -> Any:
        return SimpleNamespace(bind=lambda *cell: lambda stream: told.append((name, cell, stream)))

    def launch(copies: Any, held: Any) -> Any:
        assert [type(each) for each in held] == [torch.Tensor] * 2
        return copies

    theirs = TABLE.clone()
    cell = TABLE.data_ptr(), theirs.data_ptr(), 1, 8
    copies: Any = DeviceCopy(launch, [form("whole")], [form("sparing")], lambda: percent).bind(TABLE, theirs, 1, 8)
    for copy in copies:
        copy(5)
    assert told == [("whole", cell, 5) if whole else ("sparing", (*cell, percent), 5)]
    copies = DeviceCopy(launch, [form("whole")], [], lambda: percent).bind(TABLE, theirs, 1, 8)
    copies[0](6)
    assert told[1:] == [("whole", cell, 6)]


def test_tiles_and_warps_of_a_crossing_are_some_that_a_multiprocessor_has() -> None:
    for form in (AcrossTuning(), SPARING):
        assert form.tile & (form.tile - 1) == 0 and form.warps & (form.warps - 1) == 0
        assert form.warps * 32 <= 1024 and form.tile // 32 // form.warps in (32, 64, 128), "bytes of a thread"


def test_calls_of_several_pools_are_joined_where_that_was_prepared(compiled: list[tuple[Any, ...]]) -> None:
    side = of(FULL, STATE)
    plan, here, kernels = plan_between(side, side, 4), empty_caches(side, 0, 6), TritonKernels()
    assert plan.state is not None
    (tokens,), (state,), (end,) = plan.writers(0), plan.state.writers(0), here.ends

    def calls() -> list[Any]:
        rows = (here, TABLE, 1, 7, tokens), (end, end.slots, 0, 1, state)
        return [kernels.bind("gather", pool, table, first, count, parts(pool, share, tokens=count))
                for pool, table, first, count, share in rows]  # fmt: skip

    assert kernels.join(calls()) is None
    kernels.prepare_joint("gather", [(here, [tokens]), (end, [state])])
    count = len(compiled)
    joint = kernels.join(given := calls())
    assert isinstance(joint, DeviceLaunch) and len(joint.copies) == 1 and joint.held is given
    assert kernels.join(given[::-1]) is None and kernels.join(given[:1]) is None, "in the order of what was prepared"
    assert kernels.join([given[0], lambda *_: Done()]) is None, "only what these kernels have bound"
    assert len(compiled) == count, "nothing is compiled for a launch"


def test_more_parts_than_a_launch_serves_are_several_and_each_finds_its_digests() -> None:
    here, kernels = pool(), TritonKernels()
    shares = [share(head, layer) for layer in range(3) for head in range(4)][:10]
    copies: Any = bound(kernels, here, *shares).copies
    assert [copy.batch.parts for copy in copies] == [8, 2]
    assert [copy.arguments[5:7] for copy in copies] == [(0, 10), (0, 10)]
    table, given = new_table(shares, here.device), parts(here, *shares)
    made: Any = kernels._bind("scatter", here, TABLE, 1, 8, tuple(shares), tuple(each for _, each in given), table)
    assert [copy.arguments[5:7] for copy in made.copies] == [(table.data_ptr(), 10), (table.data_ptr() + 64, 10)]
    assert [copy.arguments[7:] for copy in made.copies] == [
        tuple(each.data_ptr() for _, each in given[:8]), (*(each.data_ptr() for _, each in given[8:]), *[0] * 6),
    ]  # fmt: skip
    assert all(copy.arguments[1:4] == (TABLE.data_ptr(), 1, 8) for copy in made.copies)


def test_caches_have_flat_batches() -> None:
    side = of(FULL)
    here = empty_caches(side, 0, 6)
    made: Any = bound(TritonKernels(), here, *plan_between(side, side, 4).writers(0), side="gather")
    assert len(made.copies) == 1 and not isinstance(made.copies[0], Copy)


def test_a_scatter_of_some_writers_needs_no_kernel_of_its_own_if_each_was_prepared(
    compiled: list[tuple[Any, ...]],
) -> None:
    here, kernels = pool(), TritonKernels()
    kernels.prepare(here, "scatter", [share(0), share(1), share(2)])
    count = len(compiled)
    several = bound(kernels, here, share(0), share(2))
    some: Any = several.copies
    assert [copy.batch.parts for copy in some] == [1, 1] and len(compiled) == count
    assert kernels.join([bound(kernels, here, share(0))] * 2) is not None
    assert kernels.join([several] * 2) is None, "each has a copy more"
    made: Any = bound(kernels, here, share(0), share(3)).copies
    assert [copy.batch.parts for copy in made] == [2]


def test_only_the_shares_of_a_scatter_of_several_are_prepared_alone() -> None:
    for side, shares, alone in (
        ("gather", (share(0), share(1)), False), ("scatter", (share(0),), False),
        ("scatter", (share(0), share(1)), True),
    ):  # fmt: skip
        here, kernels = pool(), TritonKernels()
        kernels.prepare(here, cast("Side", side), shares)
        assert {(kernels, False, ALONE) in here.cut(cast("Side", side), (each,)).plans for each in shares} == {alone}


def test_a_call_takes_as_many_tokens_as_a_batch_bears() -> None:
    here, kernels = pool(), TritonKernels()
    (copy,) = cast("Any", bound(kernels, here, share(0)).copies)
    copy.batch.max_tokens = 8
    bound(kernels, here, share(0))
    copy.batch.max_tokens = 7
    with pytest.raises(KernelError, match=r"tokens 1\.\.8 are too many for one call"):
        bound(kernels, here, share(0))


def test_what_is_interpreted_is_over_when_it_was_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "INTERPRETED", True)
    streams = list[int]()
    assert TritonKernels().launch(-1, [streams.append] * 2, "a stream", "an event").done() and len(streams) == 2


def test_tokens_are_counted_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    here, kernels = pool(), TritonKernels()
    monkeypatch.setattr(triton, "MAX_UNITS", 11)
    bound(kernels, here, share(0), first=3)
    with pytest.raises(KernelError, match=r"tokens 4\.\.11 are too many for one call"):
        bound(kernels, here, share(0), first=4)
    monkeypatch.setattr(batch, "MAX_UNITS", 7)
    with pytest.raises(KernelError, match=r"tokens 0\.\.7 are too many for one call"):
        bound(kernels, here, share(1), first=0)


def test_only_launches_of_one_batch_are_joined() -> None:
    here, kernels = pool(), TritonKernels()
    kernels.prepare(here, "scatter", [share(0)])
    one, two = (bound(kernels, here, share(0), first=first) for first in (0, 1))
    joined = kernels.join([one, two])
    assert isinstance(joined, DeviceLaunch) and (joined.place, joined.held) == (-1, [one, two])
    other = bound(kernels, pool(), share(0))
    many = bound(kernels, here, *(share(head, layer) for layer in range(3) for head in range(3)))
    assert len(many.copies) == 2
    foreign: Any = partial(str)
    for launches in ([], [one, other], [other, one], [one, many], [many], [one, two, foreign], [foreign]):
        assert kernels.join(launches) is None
    alone = kernels.join([one])
    assert isinstance(alone, DeviceLaunch) and [*alone.copies] == [*one.copies]
