"""Gather and scatter of named caches against a copy row by row, and what a pool claims.

Triton's interpreter is chosen by TRITON_INTERPRET for a whole process, so its tests run this file in one of their own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recurrence
import torch
from cache_case import CASES, SPARSE, WHOLE, CacheCase, check_case
from ends_judge import Move
from msgspec.structs import replace
from support.night import NIGHT
from test_end_caches import FULL, LONG, SHORT, STATE, TABLES, of

from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.pool import KernelError, Side
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.cache_calls import CacheShape, make_call
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.sharding import Layout

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
#: those of which many ranks read, which take the interpreter longest
SLOW = (CASES[2], CASES[4])
SPARSE_RANK = Layout.of_caches(SPARSE, layers=3, page_size=4, tp=2)


@pytest.mark.skipif(INTERPRETED, reason="torch's own process")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("digests", [False, True])
def test_torch_moves_what_a_copy_row_by_row_moves(case: CacheCase, digests: bool) -> None:
    assert check_case(TorchKernels(), case, digests=digests) > 0


if not INTERPRETED and importlib.util.find_spec("triton") is not None:

    @pytest.mark.timeout(600)
    def test_under_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")
@pytest.mark.parametrize(
    ("case", "digests"),
    [(case, digests) for case in CASES for digests in (True, False)
     if NIGHT or case is CASES[0] or (case in WHOLE and not digests) or (digests and case not in (*SLOW, *WHOLE))],
)
def test_triton_moves_what_a_copy_row_by_row_moves(case: CacheCase, digests: bool) -> None:
    from kvproto.io.kernels.triton import TritonKernels

    assert check_case(TritonKernels(), case, digests=digests) > 0


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")
def test_each_of_eight_parts_has_its_own_memory() -> None:
    from kvproto.io.kernels.triton import TritonKernels

    eight = Cache("kv", (CachePart("k", 8, 4),))
    assert check_case(TritonKernels(), CacheCase((eight,), layers=1, tp=(8, 1), tokens=3)) > 0


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")
def test_one_token_has_digests() -> None:
    from kvproto.io.kernels.triton import TritonKernels

    one = Cache("kv", (CachePart("k", 2, 4),))
    assert check_case(TritonKernels(), CacheCase((one,), layers=1, tp=(2, 1), tokens=1), digests=True) > 0


@pytest.mark.parametrize("slot_of", [(), recurrence.TWO], ids=["one slot", "two slots"])
@pytest.mark.parametrize("tp", [(2, 1), (1, 2)])
def test_a_room_s_state_is_in_its_slots(tp: tuple[int, int], slot_of: tuple[int, ...]) -> None:
    from kvproto.io.kernels.triton import TritonKernels

    kernels = TritonKernels() if INTERPRETED else TorchKernels()
    assert recurrence.move(kernels, recurrence.DELTA, tp, 1, slot_of=slot_of) > 0


def test_a_room_s_window_is_in_its_tables_beside_its_state() -> None:
    from kvproto.io.kernels.triton import TritonKernels

    caches = replace(FULL, layers=()), LONG, STATE
    move = Move(of(*caches, tp=2), of(*caches, page_size=2), 8, 13, 8, tables=TABLES)
    assert move.run(TritonKernels() if INTERPRETED else TorchKernels()) > 0
    move.judge()


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")
def test_one_launch_moves_all_kinds_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproto.io.kernels import flat_batch
    from kvproto.io.kernels.triton import TritonKernels

    launched: list[int] = []
    queue = flat_batch._queue

    def counted(launch: Any, programs: int, *rest: Any) -> None:
        launched.append(programs)
        queue(launch, programs, *rest)

    monkeypatch.setattr(flat_batch, "_queue", counted)
    check_case(TritonKernels(), CacheCase(SPARSE, tp=(2, 1)))
    assert len(launched) == 3, "a gather for each of two writers, and one scatter"


@pytest.mark.skipif(not INTERPRETED, reason="runs in a process of its own")
@pytest.mark.parametrize("side", ["gather", "scatter"])
def test_one_launch_moves_tokens_windows_and_state(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproto.io.kernels import flat_batch
    from kvproto.io.kernels.triton import TritonKernels

    kernels, shape = TritonKernels(), CacheShape("four", (FULL, LONG, SHORT, STATE), 6, (2, 1), 7, 4)
    (cut,) = shape.cuts
    call = make_call(shape, side, cut, torch.device("cpu"))
    assert cut.state and cut.tokens == 7 and len(call.pool.ends) == 3
    assert call.check(kernels), "launched one by one"
    call.prepare(kernels)
    launched, queue = list[int](), flat_batch._queue

    def counted(launch: Any, programs: int, *rest: Any) -> None:
        launched.append(programs)
        queue(launch, programs, *rest)

    monkeypatch.setattr(flat_batch, "_queue", counted)
    assert call.check(kernels) and len(launched) == 1


def parts(pages: int = 6) -> tuple[dict[str, list[torch.Tensor]], dict[str, torch.Tensor]]:
    """An engine's tensors of one rank, and views of them; keys of a page come before its scales."""
    latents = [torch.zeros((pages, 4, 1, 656), dtype=torch.uint8) for _ in range(3)]
    indices = [torch.zeros((pages, 4 * (128 + 4)), dtype=torch.uint8) for _ in range(2)]
    keys = [each[:, : 4 * 128].view(pages, 4, 128) for each in indices]
    scales = [each[:, 4 * 128 :].view(pages, 4, 4) for each in indices]
    tensors = {f"latent.{at}": each for at, each in enumerate(latents)}
    tensors |= {f"index.{at}": each for at, each in enumerate(indices)}
    return {"mla.latent": latents, "index.key": keys, "index.scale": scales}, tensors


def test_every_tensor_of_the_engine_is_in_a_cache_or_left_out_by_name() -> None:
    views, tensors = parts()
    assert CachePool(SPARSE_RANK, 1, views, tensors).pages == 6
    more = tensors | {"draft.k": torch.zeros(8)}
    with pytest.raises(KernelError, match=r"tensor 'draft.k' is in no cache: give it a part, or leave it out by name"):
        CachePool(SPARSE_RANK, 1, views, more)
    assert CachePool(SPARSE_RANK, 1, views, more, {"draft.k": "the decode side drafts anew"}).pages == 6
    with pytest.raises(KernelError, match=r"left_out names draft.v, which is none of the engine's tensors"):
        CachePool(SPARSE_RANK, 1, views, tensors, {"draft.v": "why"})
    with pytest.raises(KernelError, match=r"tensor 'latent.0' is left out, and parts lie in all of it"):
        CachePool(SPARSE_RANK, 1, views, tensors, {"latent.0": "why"})
    with pytest.raises(KernelError, match="a part lies in none of the engine's tensors"):
        CachePool(SPARSE_RANK, 1, views, {name: t for name, t in tensors.items() if name != "index.1"})
    with pytest.raises(KernelError, match=r"tensor 'draft.k' is in no cache"):
        CachePool(SPARSE_RANK, 1, views, more, {"draft.k": ""})


def test_every_byte_of_a_tensor_is_in_a_part_or_left_out_by_name() -> None:
    """An index page has keys and scales: naming the keys alone would leave wrong scales behind."""
    keys_alone = Layout.of_caches([SPARSE[0], Cache("index", SPARSE[1].parts[:1], (0, 2))], layers=3, page_size=4, tp=2)
    views, tensors = parts()
    del views["index.scale"]
    with pytest.raises(KernelError, match=r"96 of 3168 bytes of 'index.0' are in no part: give it a part, or leave"):
        CachePool(keys_alone, 0, views, tensors)
    why = dict.fromkeys(("index.0", "index.1"), "scales are constant")
    assert CachePool(keys_alone, 0, views, tensors, why).pages == 6


def test_a_tensor_that_is_rounded_up_at_its_ends_is_no_reason_to_refuse() -> None:
    views, tensors = parts()
    wider = torch.zeros(6 * 4 * 656 + 1000, dtype=torch.uint8)
    views["mla.latent"][0] = wider[500:][: 6 * 4 * 656].view(6, 4, 1, 656)
    assert CachePool(SPARSE_RANK, 1, views, tensors | {"latent.0": wider}).pages == 6


@pytest.mark.parametrize("more", [1, 3279, 3280])
def test_less_than_a_page_at_a_tensor_s_ends_is_no_token_s(more: int) -> None:
    """A page is a fifth of the engine's tensor of five, with what is at its ends."""
    views, tensors = parts(5)
    wider = torch.zeros(5 * 4 * 656 + more, dtype=torch.uint8)
    views["mla.latent"][0] = wider[: 5 * 4 * 656].view(5, 4, 1, 656)
    tensors |= {"latent.0": wider}
    if more < 3280:
        assert CachePool(SPARSE_RANK, 1, views, tensors).pages == 5
    else:
        with pytest.raises(KernelError, match=r"3280 of 16400 bytes of 'latent\.0' are in no part"):
            CachePool(SPARSE_RANK, 1, views, tensors)
    assert CachePool(SPARSE_RANK, 1, views, tensors, {"latent.0": "it is rounded up"}).pages == 5


def changed(name: str, views: Any) -> dict[str, Any]:
    return {**parts()[0], name: views}


@pytest.mark.parametrize(("views", "why"), [
    ({"mla.latent": []}, "parts are mla.latent; the layout has index.key, index.scale, mla.latent"),
    (changed("index.key", parts()[0]["index.key"][:1]), "1 tensors of index.key; rank 0 holds 2 layers of it"),
    (changed("index.key", parts()[0]["index.scale"]), "(tokens, units, bytes) = (4, 1, 128) in a page, it has"),
    (changed("index.scale", parts(7)[0]["index.scale"]), "parts of [6, 7] pages: all caches have the pages of"),
    (changed("index.scale", [torch.zeros((6, 4))] * 2), "it needs four dimensions, the last one dense"),
    (changed("index.scale", [torch.zeros((6, 4, 1, 8), dtype=torch.uint8)[..., ::2]] * 2), "the last one dense"),
    (changed("index.scale", [parts()[0]["index.scale"][0], torch.zeros((6, 4, 4), dtype=torch.uint8)]),
     "index.scale of layer 1 differs from layer 0 in shape, strides"),
])  # fmt: skip
def test_a_pool_that_is_not_the_layout_s_is_refused_by_the_part_s_name(views: dict[str, Any], why: str) -> None:
    with pytest.raises(KernelError) as refused:
        CachePool(SPARSE_RANK, 0, views, {str(at): view for some in views.values() for at, view in enumerate(some)})
    assert why in str(refused.value)
