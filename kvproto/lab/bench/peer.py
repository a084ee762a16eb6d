"""SGLang's staging kernels beside ours: same bytes, same run, both checked.

Nothing of its release is copied here. From a wheel, an unpacked one or an installed SGLang, the one module with its
staging kernels is loaded without the rest of that package: the packages above it are empty stand-ins, and two small
helpers are given to it.

The kernel alone: its own public function is called once, and the launch that it makes is timed on the device in turns
with our call and a plain copy. The call: seconds of a chunk until the function returns, and until the device is
through; its gather waits for the device, ours gives a ticket. Rows are those that its kernels take: token-major pools
whose K and V are alike, whole pages, heads that divide evenly.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kvproto.io.kernels.base import Kernels, Side
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.kernel_work import KernelCall, KernelShape, check, device_times, make_work
from kvproto.lab.bench.pools import MARKER, marked_twin, random_bytes, same
from kvproto.layout.cut import Cut

MODULE = "sglang.srt.disaggregation.common.staging_buffer"
NEEDED = (MODULE, "sglang.srt.environ", "sglang.kernels.ops.memory.ptr_table")
PAIRS = ((4, 2), (2, 4), (4, 1), (1, 4), (8, 1), (1, 8))


class NotedKernel:
    """A Triton kernel that notes how it is launched."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.last: Callable[[], Any] | None = None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **options: Any) -> Any:
            def again() -> Any:
                return self.kernel[grid](*args, **options)

            self.last = again
            return again()

        return launch


class SglangKernels:
    """The module, loaded from `root`, the directory that has the package `sglang` in it."""

    def __init__(self, root: Path, version: str) -> None:
        self.version = version
        self.module = _load(root)
        self.kernels = [name for name, value in vars(self.module).items() if type(value).__name__ == "JITFunction"]
        for name in self.kernels:
            setattr(self.module, name, NotedKernel(getattr(self.module, name)))

    def ready(self, work: KernelCall, shape: KernelShape) -> tuple[Callable[[], Any], torch.Tensor]:
        """Its public call for this work, and the bytes that it reads or writes beside the pool's."""
        k, v = ([tensor.view(-1, *tensor.shape[2:]) for tensor in kind] for kind in (work.pool.k, work.pool.v))
        if work.side == "gather":
            share, pages = work.parts[0][0], work.table.cpu().numpy()
            buffer = self.module.StagingBuffer(work.nbytes, "cuda", torch.cuda.current_device())
            call = self.module.gather_all_layers_to_staging
            return lambda: call(k, v, pages, buffer, share.src_head, share.heads, shape.page), buffer.buffer
        staged = torch.cat([buffer for _, buffer in work.parts])
        scatter, sizes = self.module.scatter_staging_to_kv, (shape.prefill, shape.decode, 0, shape.heads)
        return lambda: scatter(staged, k, v, work.table, shape.page, *sizes), staged

    def launch(self, call: Callable[[], Any]) -> Callable[[], Any]:
        found: list[NotedKernel] = [getattr(self.module, name) for name in self.kernels]
        for kernel in found:
            kernel.last = None
        call()
        (launch,) = [kernel.last for kernel in found if kernel.last is not None]
        return launch


def find(given: str | None) -> SglangKernels | str:
    """The peer from a wheel, from a directory, or from what is installed; or why there is none."""
    if given is None:
        spec = importlib.util.find_spec("sglang")
        if spec is None or not spec.submodule_search_locations:
            return "not installed; --peer takes its wheel, release 0.5.23 or near"
        return _tried(Path(next(iter(spec.submodule_search_locations))).parent, metadata.version("sglang"))
    path = Path(given)
    if path.is_dir():
        releases = [about.name.split("-")[1].removesuffix(".dist") for about in path.glob("sglang-*.dist-info")]
        return _tried(path, releases[0] if releases else "of unknown number")
    if not zipfile.is_zipfile(path):
        return f"{path} is neither a directory nor a wheel"
    root = Path(tempfile.mkdtemp(prefix="kvproto-peer-"))
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        for module in NEEDED:
            if (name := module.replace(".", "/") + ".py") in names:
                wheel.extract(name, root)
    return _tried(root, path.name.split("-")[1])


def _tried(root: Path, version: str) -> SglangKernels | str:
    try:
        return SglangKernels(root, version)
    except Exception as error:  # noqa: BLE001  # another release may need anything: the table says so
        return f"release {version} could not be loaded alone: {type(error).__name__}: {error}"


def _load(root: Path) -> ModuleType:
    for module in NEEDED:
        above = module.split(".")[:-1]
        for depth in range(1, len(above) + 1):
            package = ModuleType(".".join(above[:depth]))
            package.__path__ = [str(root.joinpath(*above[:depth]))]
            sys.modules[package.__name__] = package
    helpers = ModuleType("sglang.srt.utils")
    vars(helpers)["create_device_stream"] = lambda device: torch.get_device_module(device).Stream(device=device)
    vars(helpers)["device_stream_context"] = torch.cuda.stream
    sys.modules[helpers.__name__] = helpers
    return importlib.import_module(MODULE)


def right(peer: SglangKernels, work: KernelCall, shape: KernelShape) -> bool:
    """Whether its call does what plain indexing does, and touches nothing else."""
    call, staged = peer.ready(work, shape)
    if work.side == "gather":
        (share, buffer), want = work.parts[0], torch.empty_like(staged)
        TorchKernels().gather(work.pool, work.table, 0, work.tokens, share, want)
        staged.fill_(MARKER)
        call()
        torch.cuda.synchronize()
        return torch.equal(staged[: buffer.numel()], want)
    pool = marked_twin(work.pool)
    TorchKernels().scatter(pool, work.table, 0, work.tokens, work.parts)
    call()
    torch.cuda.synchronize()
    return same(pool, work.pool)


def compare(
    peer: SglangKernels, shape: KernelShape, side: Side, nbytes: int, kernels: Kernels, repeats: int
) -> dict[str, Any]:
    """One row: copy, ours and theirs in turns."""
    work = make_work(shape, side, side == "scatter", nbytes)
    fine = check(work, kernels), right(peer, work, shape)
    source, target = random_bytes(work.nbytes), random_bytes(work.nbytes)
    theirs = peer.launch(peer.ready(work, shape)[0])
    copy, ours, other = device_times([lambda: target.copy_(source), lambda: work.run(kernels), theirs], repeats)
    return {
        "what": side, "pair": shape.name, "page": shape.page, "parts": len(work.parts), "bytes": work.nbytes,
        "copy_gbs": 2e-9 * work.nbytes / copy, "ratio": copy / ours, "peer_ratio": copy / other,
        "faster": other / ours, "right": fine[0], "peer_right": fine[1],
    }  # fmt: skip


def calls(peer: SglangKernels, shape: KernelShape, side: Side, kernels: Kernels, repeats: int) -> dict[str, Any]:
    """Host time of a call of 512 tokens, ours and theirs: medians in microseconds."""
    plan = shape.plan()
    shares = plan.duties(0)[:1] if side == "gather" else plan.writers(0)
    work = make_work(shape, side, side == "scatter", 512 * sum(plan.part_bytes(share, Cut(0, 1)) for share in shares))
    other, _ = peer.ready(work, shape)
    found: dict[str, Any] = {"what": side, "pair": shape.name, "parts": len(shares), "tokens": work.tokens}
    both: dict[str, Callable[[], Any]] = {"ours": lambda: work.run(kernels).done(), "peer": other}
    for name, call in both.items():
        spent: list[tuple[float, float]] = []
        for _ in range(repeats + 20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            middle = time.perf_counter()
            torch.cuda.synchronize()
            spent.append((middle - begin, time.perf_counter() - begin))
        for which, at in (("", 0), ("_over", 1)):
            found[f"{name}{which}_us"] = 1e6 * statistics.median(times[at] for times in spent[20:])
    return found


def figures(peer: SglangKernels, mib: int, kernels: Kernels, repeats: int) -> dict[str, Any]:
    """All rows, and what the machine had installed them from."""
    sides: tuple[Side, ...] = ("gather", "scatter")
    rows = []
    for side in sides:
        for prefill, decode in PAIRS:
            for page in (1, 16, 64):
                rows.append(compare(peer, KernelShape(prefill, decode, page=page), side, mib << 20, kernels, repeats))
                torch.cuda.empty_cache()
    shapes = [KernelShape(prefill, decode, layers=32) for prefill, decode in ((4, 2), (1, 4), (8, 1))]
    host = [calls(peer, shape, side, kernels, 200) for side in sides for shape in shapes]
    return {"release": peer.version, "kernels": rows, "calls": host}
