"""The kernels on a GPU, where there is one: the CPU's cases again, and what only a device can show.

That a gather waits for the event it is given, that no call waits for the device or allocates on it, that addresses
beyond 32 bits are reached, and that pinned host memory serves as staging.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from digest_cases import check_digests
from kernels_cases import (
    BASE,
    PAIRS,
    SHAPES,
    Case,
    check_cells,
    check_gathers,
    check_late_tables,
    check_scatters,
    pool_of,
    table_of,
)

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.staging_buffers import Staging
from kvproto.io.kernels.base import Events, Kernels, Pool
from kvproto.io.kernels.digest import new_table
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.kernels.triton import INTERPRETED, KernelTuning, TritonKernels
from kvproto.layout.plan import Share

if INTERPRETED:
    pytest.skip("the interpreter was chosen for this process", allow_module_level=True)

MAKERS: list[Callable[[], Kernels]] = [
    TritonKernels, lambda: TritonKernels(KernelTuning(tile=512, mixed=False)), TorchKernels,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=["triton", "small tiles, parts apart", "torch"])
@pytest.mark.parametrize("case", PAIRS + SHAPES, ids=str)
def test_the_cases_of_the_cpu(case: Case, make: Callable[[], Kernels], gpu: str) -> None:
    check_gathers(make(), case, gpu)
    check_scatters(make(), case, gpu)
    assert torch.cuda.current_device() == 0, "what the caller had"


@pytest.mark.parametrize("make", MAKERS[:2], ids=["triton", "small tiles, parts apart"])
@pytest.mark.parametrize("case", PAIRS + SHAPES[:-1], ids=str)
def test_cells_in_one_launch(case: Case, make: Callable[[], Kernels], gpu: str) -> None:
    check_cells(make(), case, gpu)


@pytest.mark.parametrize("make", MAKERS, ids=["triton", "small tiles, parts apart", "torch"])
@pytest.mark.parametrize("case", PAIRS + SHAPES, ids=str)
def test_digests(case: Case, make: Callable[[], Kernels], gpu: str) -> None:
    check_digests(make(), case, gpu)


@pytest.mark.parametrize("make", MAKERS[:2], ids=["triton", "small tiles, parts apart"])
def test_page_tables_are_read_by_the_launch(make: Callable[[], Kernels], gpu: str) -> None:
    check_late_tables(make(), gpu)


@pytest.mark.parametrize("shift", [1, 2, 4, 8])
def test_staging_at_any_byte(shift: int, gpu: str) -> None:
    check_gathers(TritonKernels(), BASE, gpu, shift)
    check_scatters(TritonKernels(), BASE, gpu, shift)


def test_one_kernels_object_serves_pools_of_several_gpus() -> None:
    gpus, kernels = torch.cuda.device_count(), TritonKernels()
    if gpus < 2:
        pytest.skip(f"this needs two GPUs, torch sees {gpus}")
    for turn in range(4):
        check_gathers(kernels, BASE, f"cuda:{turn % 2}")
        check_scatters(kernels, BASE, f"cuda:{turn % 2}")


def small(gpu: str) -> tuple[Pool, torch.Tensor, Share, torch.Tensor]:
    case = replace(BASE, dims=(64, 64), tokens=32)
    host = pool_of(case.plan.prefill, 0, 16, 1)
    pool = Pool([t.to(gpu) for t in host.k], [t.to(gpu) for t in host.v])
    share = case.plan.duties(0)[0]
    out = torch.zeros(pool.part_bytes(share, 32), dtype=torch.uint8, device=gpu)
    return pool, table_of(16, 4, 32, 1).to(gpu), share, out


def test_a_gather_waits_for_its_event_and_its_ticket_for_the_gather(gpu: str) -> None:
    kernels, (pool, table, share, out) = TritonKernels(), small(gpu)
    kernels.prepare(pool, "gather", [share])
    kernels.gather(pool, table, 0, 32, share, out)
    torch.cuda.synchronize(gpu)
    sleep: Callable[[int], None] = torch.cuda._sleep
    stream: Callable[[str], Any] = torch.cuda.Stream
    event: Callable[[], Any] = torch.cuda.Event
    producer, mover, produced = stream(gpu), stream(gpu), event()
    with torch.cuda.stream(producer):
        sleep(400_000_000)
        for tensor in pool.k + pool.v:
            tensor.view(torch.uint8).fill_(0x3C)
        produced.record()
    ticket = kernels.gather(pool, table, 0, 32, share, out, stream=mover, after=produced)
    assert not ticket.done()
    mover.synchronize()
    assert ticket.done()
    assert ticket.done()
    assert bool((out == 0x3C).all())


def test_a_call_neither_waits_nor_allocates(gpu: str) -> None:
    kernels, (pool, table, share, out) = TritonKernels(), small(gpu)
    kernels.prepare(pool, "gather", [share])
    kernels.prepare(pool, "scatter", [replace_offsets(share)])
    kernels.prepare(pool, "gather", [share], digests=True)
    digest = new_table([share], pool.device)
    torch.cuda.synchronize(gpu)
    statistics: Callable[[str], dict[str, Any]] = torch.cuda.memory_stats
    before = statistics(gpu)["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        tickets = [kernels.gather(pool, table, 0, 32, share, out) for _ in range(5)]
        tickets += [kernels.scatter(pool, table, 0, 32, [(replace_offsets(share), out)]) for _ in range(5)]
        tickets += [kernels.gather(pool, table, 0, 32, share, out, digest=digest) for _ in range(5)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert statistics(gpu)["allocation.all.allocated"] == before
    torch.cuda.synchronize(gpu)
    assert all(ticket.done() for ticket in tickets)


def test_other_current_device_and_stream_are_the_callers(gpu: str) -> None:
    kernels, (pool, table, share, out) = TritonKernels(), small(gpu)
    stream: Callable[[str], Any] = torch.cuda.Stream
    side = stream(gpu)
    with torch.cuda.stream(side):
        kernels.gather(pool, table, 0, 32, share, out)
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_device() == 0
    side.synchronize()
    for make in (TritonKernels, TorchKernels):
        before = torch.cuda.current_stream(gpu)
        ticket = make().gather(pool, table, 0, 32, share, out)
        assert torch.cuda.current_device() == 0 and torch.cuda.current_stream(gpu) == before
        torch.cuda.synchronize(gpu)
        assert ticket.done(), "it is of the pool's device"
    again = torch.zeros_like(out)
    TorchKernels().gather(pool, table, 0, 32, share, again)
    assert torch.equal(out, again)


def test_pinned_host_memory_is_staging_too(gpu: str) -> None:
    pool, table, share, out = small(gpu)
    host = torch.zeros(out.numel(), dtype=torch.uint8).pin_memory()
    kernels = TritonKernels()
    kernels.gather(pool, table, 0, 32, share, host)
    kernels.gather(pool, table, 0, 32, share, out)
    torch.cuda.synchronize(gpu)
    assert torch.equal(host, out.cpu())
    others = [Pool([torch.zeros_like(t) for t in pool.k], [torch.zeros_like(t) for t in pool.v]) for _ in range(2)]
    put = replace_offsets(share)
    kernels.scatter(others[0], table, 0, 32, [(put, host)])
    kernels.scatter(others[1], table, 0, 32, [(put, out)])
    torch.cuda.synchronize(gpu)
    pairs = zip(others[0].k + others[0].v, others[1].k + others[1].v, strict=True)
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def test_twins_carry_pieces_in_order_from_any_thread(gpu: str) -> None:
    """A thread that has not used the device, then one that has; all pieces queued before any is over."""
    streams = DeviceStreams(torch.device(gpu))
    with torch.cuda.device(gpu):  # as an endpoint's constructor does
        staging = Staging(1 << 22, streams, "pinned")
    assert staging.wire.is_pinned()
    data = torch.randint(0, 256, (1 << 22,), dtype=torch.uint8)
    back, step = torch.zeros_like(data).to(gpu), 1 << 20
    wrong: list[str] = []

    def work() -> None:
        tickets = []
        for first in range(0, 1 << 22, step):
            staging.bring(first, first + step)
            with torch.cuda.stream(streams.stream):
                back[first : first + step] = staging.near[first : first + step] ^ 0x5A
                staging.near[first : first + step] = back[first : first + step]
            tickets.append(staging.sent_off(first, first + step, Events().ticket(streams.stream)))
        while not all(ticket.done() for ticket in tickets):
            time.sleep(0)
        if not torch.equal(staging.wire, data ^ 0x5A):
            wrong.append("bytes differ")

    for _ in range(2):
        staging.wire.copy_(data)
        staging.near.fill_(0xFF)
        torch.cuda.synchronize(gpu)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        assert wrong == []
        assert torch.equal(back.cpu(), data ^ 0x5A)


def replace_offsets(share: Share) -> Share:
    """The same heads and layers, at the same place of the reader's pool as of the writer's."""
    return Share(share.writer, share.reader, 0, share.src_head, share.heads, 0, share.src_layer, share.layers)


def test_beyond_four_gibibytes(gpu: str) -> None:
    """Pool and staging offsets of one layer both exceed 32 bits; the last pages and tokens are right."""
    if (free := torch.cuda.mem_get_info(gpu)[0]) < 40 << 30:
        pytest.skip(f"this needs 40 GiB of device memory, {free >> 30} are free")
    pages, heads = 90_000, 4
    k, v = (torch.empty((pages, 64, heads, 256), dtype=torch.uint8, device=gpu) for _ in range(2))
    k.view(torch.int64).random_()
    v.view(torch.int64).random_()
    pool, tokens = Pool([k], [v]), 80_000 * 64
    share = Share(0, 0, 1, 1, 2, 0, 0, 1)
    table = torch.randperm(pages, device=gpu)[:80_000]
    out = torch.full((pool.part_bytes(share, tokens),), 0xA5, dtype=torch.uint8, device=gpu)
    TritonKernels().gather(pool, table, 0, tokens, share, out)
    halves = out.view(2, tokens, 2, 256)
    for kind, tensor in enumerate((k, v)):
        for at in range(0, 80_000, 8_000):
            want = tensor[table[at : at + 8_000], :, 1:3].reshape(-1, 2, 256)
            assert torch.equal(halves[kind, at * 64 : (at + 8_000) * 64], want)
    back = Pool([torch.full_like(k, 0xA5)], [torch.full_like(v, 0xA5)])
    TritonKernels().scatter(back, table, 0, tokens, [(share, out)])
    rest = torch.ones(pages, dtype=torch.bool, device=gpu)
    rest[table] = False
    for tensor, found in ((k, back.k[0]), (v, back.v[0])):
        assert bool((found[rest] == 0xA5).all())
        assert bool((found[:, :, [0, 3]] == 0xA5).all())
        for at in range(0, 80_000, 8_000):
            some = table[at : at + 8_000]
            assert torch.equal(found[some][:, :, 1:3], tensor[some][:, :, 1:3])
