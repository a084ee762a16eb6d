"""Caches in engines' forms on a GPU, through the endpoints: kernels over strided pools, and pages.

The fabric is in memory, in one process: of a transport that reaches host memory alone, which closes the pools, so that
all is staged through pinned memory; or of one that copies between device addresses, as a transport of GPUs would.
"""

from __future__ import annotations

import ctypes
from itertools import product
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from support.engine_groups import Cut, Groups
from support.engine_pools import Form

from kvproto.io.transports.cargo import FabricWrite
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.regions import RegionTable
from kvproto.settings import Settings

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU here", allow_module_level=True)

FORMS = [
    *(Form(letters, fused=True) for letters in ("LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC", "LHBNC")),
    *(Form(letters, fused=True, cut=True) for letters in ("LBNHC", "BLHNC", "BHLNC")),
    *(Form(letters) for letters in ("BNHC", "BHNC", "SHC", "2BNHC", "B2NHC", "BL2NHC")),
]
PAIRS = [(a, b) for at, (a, b) in enumerate(product(FORMS, FORMS)) if (a.fused and not a.cut) == (b.fused and not b.cut)
         and at % 2 == 0]  # fmt: skip
GROUPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tp": 1}, {"tp": 2}), ({"tp": 2}, {"tp": 1}), ({"tp": 2}, {"tp": 2}), ({"tp": 2, "size": 8}, {"tp": 4}),
    ({"stages": (2, 1)}, {"stages": (1, 2)}),
]  # fmt: skip
#: source, target, both groups, and whether the loops have threads of their own
CASES = [(*pair, *GROUPS[at % len(GROUPS)], at % 2 > 0) for at, pair in enumerate(PAIRS)]
NAMES = "source", "target", "ours", "theirs", "start"
RING = Settings(ring_bytes=1 << 20)


class DeviceFabric(Fabric):
    """Copies by the driver, which takes addresses of a device and of the host alike."""

    def _land(self, cargo: FabricWrite, piece: int) -> None:
        source, target, length = cargo.pieces[piece]
        copy = ctypes.CDLL("libcuda.so.1").cuMemcpy
        copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t)
        assert copy(target, source, length) == 0
        for place in range(torch.cuda.device_count()):
            torch.cuda.synchronize(place)
        del cargo.pieces[piece]


class DeviceTransport(MemoryTransport):
    """One that takes device memory."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.caps = replace(self.caps, kinds=("DRAM", "VRAM"))
        self._table = RegionTable(self.caps.kinds)


@pytest.mark.parametrize(NAMES, CASES, ids=str)
def test_staged_through_the_host(
    source: Form, target: Form, ours: dict[str, Any], theirs: dict[str, Any], start: bool, gpu: str
) -> None:  # fmt: skip
    made = Groups(Cut(source, **ours), Cut(target, **theirs), settings=RING, device=gpu, staging="pinned")
    with made.connect(start=start) as groups:
        assert set(groups.prefills[0].routes().values()) == {
            f"the pool of the prefill rank is closed: memory reaches DRAM here, and the pool is on {gpu}"
        }
        assert all(outcome.ok for outcome in groups.move(29))
        assert groups.right == [True] * len(groups.decodes)


@pytest.mark.parametrize(NAMES, CASES, ids=str)
@pytest.mark.parametrize("pages", [False, True], ids=["staged or direct", "pages"])
def test_between_device_addresses(
    source: Form, target: Form, ours: dict[str, Any], theirs: dict[str, Any], start: bool, pages: bool, gpu: str
) -> None:
    made = Groups(
        Cut(source, **ours), Cut(target, **theirs), device=gpu,
        settings=replace(RING, route="pages" if pages else "cost"),
        fabric=DeviceFabric(auto=True), transport=DeviceTransport,
    )  # fmt: skip
    with made.connect(start=start) as groups:
        assert all(outcome.ok for outcome in groups.move(29, prefix=8))
        assert groups.right == [True] * len(groups.decodes)
