"""Host pool: a room lands in host memory, and its KV is moved up into pages of the pool."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.stories import layout

from kvproto.endpoint import host_pool
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.host_pool import HostPool
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.cache_pool import ANY_PAGE
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import empty_caches, noise, tokens_of

TOKENS, HOST_PAGES, HOST_GROUP = 30, 16, 77


@pytest.mark.parametrize("route", ["staged", "pages"])
def test_a_room_without_pages_lands_in_host_pages_and_is_moved_up(pair: Pair, route: Any) -> None:
    settings, decode = pair.settings, pair.decodes[0]
    host = HostPool(decode.pool, HOST_PAGES)
    below = DecodeEndpoint(
        pair.plan.decode, 0, host.pool, pair.transport(), chunk_tokens=8, group=HOST_GROUP, settings=settings
    )
    with below:
        below.connect(pair.plan.prefill, [each.address for each in pair.prefills])
        pair.pump(lambda: (below.poll(), below.ready())[1])
        room, taken, pages = pair.name(TOKENS), [15, 14, 0, 3, 4, 5, 12, 7], [40, 3, 9, 8, 7, 50, 1, 0]
        for prefill in pair.prefills:
            prefill.open(room, TOKENS, pair.tables[room][0], group=HOST_GROUP)
            prefill.prefetch(room)
        below.open(room, TOKENS, taken)
        pair.produce(room)
        pair.pump(lambda: (below.poll(), room in below.released())[1])
        assert below.finished()[0].ok
        assert host.lift(taken, pages, TOKENS).done()
        pair.tables[room] = pair.tables[room][0], pages, TOKENS, 0
        pair.check(room)  # and no other byte has changed, the last page's other tokens among them


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_pages_of_any_order_and_strides_are_moved(order: Any) -> None:
    axes = (6, 4, 2) if order == "NHD" else (6, 2, 4)
    wide = [torch.zeros((*axes, 16), dtype=torch.bfloat16)[..., :size] for size in (8, 8, 4, 4)]
    above = Pool(wide[:2], wide[2:], order)
    host = HostPool(above, 5, TorchKernels())
    for at, each in enumerate(tensor for kind in host.pool.kinds for tensor in kind):
        each.copy_(torch.randn(each.shape, generator=torch.Generator().manual_seed(at)).to(each.dtype))
    host.lift([4, 0], [1, 5], 6)
    rows = tokens_of(host.pool, [4, 0]), tokens_of(above, [1, 5])
    assert all(torch.equal(a[:6], b[:6]) and not b[6:].any() for a, b in zip(*rows, strict=True))
    assert not any(each.any() for each in tokens_of(above, [0, 2, 3, 4]))


@pytest.mark.parametrize(("gpu", "locked"), [(-1, False), (0, True), (1, True)])
def test_host_pages_of_a_gpu_are_page_locked(monkeypatch: pytest.MonkeyPatch, gpu: int, *, locked: bool) -> None:
    def no_memory(_size: int, *, page_locked: bool) -> None:
        raise OSError(f"page-locked: {page_locked}")

    one = layout(1)
    above = noise(one, 0, 4, 1)
    above.gpu = gpu
    monkeypatch.setattr(host_pool, "use_device", nullcontext)
    monkeypatch.setattr(host_pool, "HostBuffer", no_memory)
    with pytest.raises(OSError, match=f"page-locked: {locked}"):
        HostPool(above, 4)


@pytest.mark.parametrize(
    ("gpu", "stream", "on"), [(-1, None, None), (0, None, "current"), (1, None, "current"), (0, "given", "given")]
)
def test_a_copy_is_launched_on_the_given_stream_or_else_a_gpu_s_current_one(
    monkeypatch: pytest.MonkeyPatch, gpu: int, stream: str | None, on: str | None
) -> None:
    host, done = HostPool(noise(layout(1), 0, 8, 1), 4, TorchKernels()), list[Any]()

    def bind(table: torch.Tensor, theirs: torch.Tensor, *tokens: int) -> Callable[..., None]:
        done.append((table.tolist(), theirs.tolist(), *tokens))
        return lambda *about: done.append(about)

    monkeypatch.setattr(host_pool, "use_device", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "current")
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(host, "_copy", SimpleNamespace(bind=bind))
    host.above.gpu = gpu
    host.lift([2], [1], 3, stream=stream)
    assert done == [([2], [1, 0, 0, 0], 0, 3), (on, None)]


class NoCopy(TorchKernels):
    """Kernels without a copy between pools."""

    def cross(self, *_about: Any) -> None:
        """None."""


@pytest.mark.parametrize(
    ("taken", "pages", "tokens", "why"), [
        ([0], [0, 1], 5, "5 tokens need 2 host pages of 4, the table has 1"),
        ([0, 1], [0], 5, "5 tokens need 2 pages of 4, the table has 1"),
        ([0, 16], [0, 1], 5, "host page 16 of 16: they are 0 .. 15"),
        ([0, 1], [0, -1], 5, "page -1 of 64: they are 0 .. 63"),
        ([0], [0], 0, "0 tokens need 0 host pages"),
        (list(range(16)) * 3, [64] * 48, 192, "page 64 of 64: they are 0 .. 63"),
    ],
)  # fmt: skip
def test_pages_that_cannot_be_moved_are_refused(taken: list[int], pages: list[int], tokens: int, why: str) -> None:
    host = HostPool(noise(layout(1), 0, 64, 1), HOST_PAGES, TorchKernels())
    with pytest.raises(ArgumentError, match=re.escape(why)):
        host.lift(taken, pages, tokens)


def test_the_smallest_host_pool_moves_one_token() -> None:
    above = noise(layout(1), 0, 2, 1)
    host, before = HostPool(above, 1, TorchKernels()), tokens_of(above, [1])
    for tensor in (tensor for kind in host.pool.kinds for tensor in kind):
        tensor.zero_()
    host.lift([0], [1], 1)
    for was, now in zip(before, tokens_of(above, [1]), strict=True):
        assert not now[:1].any() and torch.equal(was[1:], now[1:])


def test_pools_that_name_their_caches_have_no_host_pool() -> None:
    """Their tokens, states and windows lie in tables of their own, which no `lift` is told."""
    named = Layout.of_caches([Cache("full", (CachePart("kv", 4, 16),), (0, 1), "uint8")], layers=2, page_size=4, tp=1)
    with pytest.raises(ArgumentError, match="names its caches"):
        HostPool(empty_caches(named, 0, 8), 4, TorchKernels())


@pytest.mark.parametrize(
    ("pages", "kernels", "why"), [(0, TorchKernels(), "0 host pages: at least"), (4, NoCopy(), "NoCopy has no copy")]
)
def test_a_host_pool_that_cannot_be_is_refused(pages: int, kernels: Kernels, why: str) -> None:
    with pytest.raises(ArgumentError, match=why):
        HostPool(noise(layout(1), 0, 4, 1), pages, kernels)


@pytest.mark.parametrize("pages", [0, ANY_PAGE])
def test_host_pages_are_as_many_as_a_page_table_can_name(pages: int) -> None:
    above = Pool([torch.zeros((1, 1, 1, 1), dtype=torch.uint8)], [])
    with pytest.raises(ArgumentError, match=f"{pages} host pages: at least one, and fewer than {ANY_PAGE}"):
        HostPool(above, pages)
