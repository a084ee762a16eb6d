"""What SGLang 0.5.23 asks of a GPU while it serves on a CPU, answered by the CPU.

Its CPU build serves models, but the disaggregation of prefill and decode was written for GPUs: it pins memory, records
events and makes streams without asking for which device.  On a CPU a kernel is over when its call returns, so an event
is passed as soon as it is recorded and a stream orders nothing.  The stand-ins:

* `torch.cuda` streams and events that have nothing to wait for; memory is not pinned;
* `torchvision`, which some processors of images import, and which no text model uses: a package of names that stand for
  nothing (the one from PyPI is built against another torch, and breaks the import of transformers);
* the modules of rotary embeddings and of gated norms are told that they are on a CPU, where they would look for other
  kernels; those of gated delta nets and Mamba2 are in a folder of their own (`kernels`), which hybrid models alone see;
* data-parallel attention has stand-ins of its own (`dp_attention`), and so have `windows` and `drafts`; the plain
  attention backend takes latents as they are;
* its processes are forked, not spawned (`forking`), and schedulers without a batch pause (`idle`);
* which drafts are accepted is told by kernels in Triton, which its interpreter runs (TRITON_INTERPRET=1);
* its NIXL backend is told that the cache is no GPU's memory;
* where SGLang's own staging is measured: its two modules are compiled without their assertions (they say that a device
  is one with an index, which a CPU has not), and "cpu" is added to the devices that they know.

Nothing of this is needed on a GPU, and nothing in kvproto knows of it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any, Self

#: the files lie in a folder of PYTHONPATH, and are no package
ALTERED = importlib.import_module("altered")
#: by module: what is done to it on a CPU and, without SGLang's compiled kernels, on a GPU, too
PATCHES = importlib.import_module("dp_attention").PATCHES | importlib.import_module("drafts").PATCHES
#: and on a CPU alone: a process that has used a GPU cannot be forked
ALONE = importlib.import_module("forking").PATCHES | importlib.import_module("idle").PATCHES
STAGING = "sglang.srt.disaggregation.common.staging_buffer", "sglang.srt.disaggregation.common.staging_handler"
#: by module: names that mean something else here
KNOWN: dict[str, dict[str, Any]] = {
    STAGING[0]: {"_STAGING_SUPPORTED_DEVICE_TYPES": ("cuda", "xpu", "cpu")},
    STAGING[1]: {},
    "sglang.srt.layers.rotary_embedding.base": {"_is_cpu": True},
    "sglang.kernels.ops.attention.fla.layernorm_gated": {"_use_cpu": True},
    "sglang.kernels.ops.speculative.spec_tree": {"_is_xpu": True},
    "sglang.srt.disaggregation.nixl.conn": {"_normalize_kv_mem_kinds": lambda _kinds, count: ["DRAM"] * count},
}


class Passed:
    """An event of a device that does everything at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0


class Straight:
    """A stream of such a device; also the context in which it is the current one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        import torch

        self.device = torch.device("cpu")

    def synchronize(self) -> None: ...
    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...

    def record_event(self, *_: Any) -> Passed:
        return Passed()

    def query(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class CpuDevice:
    """`torch.get_device_module("cpu")`, with what SGLang's staging expects of a GPU's."""

    Event, Stream = Passed, Straight
    set_device = synchronize = staticmethod(lambda *_: None)
    current_stream = staticmethod(lambda *_: Straight())
    stream = staticmethod(lambda _: contextlib.nullcontext())

    def __init__(self, real: ModuleType) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _latents(module: ModuleType) -> None:
    method = vars(module)["AttnForwardMethod"].MLA
    vars(module)["AttentionBackendRegistry"].register("torch_native", lambda *_: method)


PATCHES["sglang.srt.models.deepseek_common.attention_backend_handler"] = _latents


def _scans(module: ModuleType) -> None:
    if "SGLANG_USE_CPU_ENGINE" in os.environ:
        kernels, scan = importlib.import_module("sgl_kernel.mamba"), importlib.import_module("selective_scan")
        vars(module).update(
            causal_conv1d_fn=kernels.causal_conv1d_fn_cpu, causal_conv1d_update=kernels.causal_conv1d_update_cpu,
            mamba_chunk_scan_combined=scan.mamba_chunk_scan_combined,
            selective_state_update=scan.selective_state_update,
        )  # fmt: skip


PATCHES["sglang.srt.layers.attention.mamba.mamba"] = _scans


def _attention(module: ModuleType) -> None:
    for name in ("dp_attention", "windows", "drafts"):
        importlib.import_module(name).patch(module)


PATCHES["sglang.srt.layers.attention.torch_native_backend"] = _attention


def install() -> None:
    """Put the stand-ins in their places."""
    sys.meta_path[:0] = [ALTERED.Hollow("torchvision"), ALTERED.Altered(KNOWN, PATCHES | ALONE, STAGING)]
    import torch

    def unpinned(make: Any) -> Any:
        @functools.wraps(make)
        def made(*args: Any, **options: Any) -> Any:
            options.pop("pin_memory", None)
            return make(*args, **options)

        return made

    for name in ("empty", "zeros", "ones", "full", "tensor"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    own: Any = torch
    own.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    own.cuda.Event, own.cuda.Stream = Passed, Straight
    own.cuda.current_stream, own.cuda.stream = CpuDevice.current_stream, CpuDevice.stream
    own.cuda.synchronize = CpuDevice.synchronize
    if os.environ.get("SGLANG_DISAGG_STAGING_BUFFER"):
        module_of = torch.get_device_module
        cpu = CpuDevice(module_of("cpu"))
        own.get_device_module = lambda device=None: (
            cpu if str(getattr(device, "type", device)).startswith("cpu") else module_of(device)
        )
