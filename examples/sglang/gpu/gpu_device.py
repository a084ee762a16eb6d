"""GPU device: SGLang 0.5.23 serves on a GPU without any kernel that was compiled for it.

Its own kernels and FlashInfer's are gigabytes of machine code, which a machine without a network may lack.  SGLang's
layers have a way without them, in plain PyTorch, on whatever device the tensors are; they take it on a platform for
which they know no kernels.  So SGLang is told that this is no CUDA platform, before any layer asks:

* the two functions that say so answer no, and rotary embeddings take their plain way;
* the ranks' groups are told the device after all: their collectives are NCCL's, through PyTorch.  NCCL refuses two
  ranks on one GPU, so where ranks of an instance share one (GPU_CROWDED), collectives are Gloo's, over the host;
* attention is PyTorch's (`torch_native`), with the stand-ins for latents, drafts and data-parallel attention that it
  needs on a CPU, too; gated delta nets and the acceptance of drafts have kernels in Triton, which any GPU compiles;
* packages that SGLang imports at its start, and of which a text model uses nothing, are made of nothing if missing.

How fast a forward is this way says nothing about SGLang.  Pools, memory, streams, events and the calls of its
disaggregation are SGLang's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: the files lie in folders of PYTHONPATH, and are no package
CPU: Any = importlib.import_module("cpu_device")


@contextlib.contextmanager
def _place(rank: int) -> Iterator[int]:
    """Yield a rank's GPU: ranks beyond the last one begin with the first again."""
    import torch

    yield rank % torch.cuda.device_count()


KNOWN: dict[str, dict[str, Any]] = {
    "sglang.srt.utils.common": {
        "is_cuda": lambda: False, "is_cuda_alike": lambda: False, "maybe_reindex_device_id": _place,
    },
    "sglang.srt.layers.rotary_embedding.base": {"_is_cpu": True},
    "sglang.kernels.ops.speculative.spec_tree": {"_is_xpu": True},
}  # fmt: skip
#: of which a text model needs nothing
MISSING = (
    "IPython", "anthropic", "av", "blobfile", "datasets", "decord", "llguidance", "modelscope", "openai_harmony",
    "outlines", "soundfile",
)  # fmt: skip


def _groups(module: ModuleType) -> None:
    def device(local_rank: int) -> Any:
        import torch

        return torch.device(f"cuda:{local_rank}")

    CPU.PATCHES["sglang.srt.distributed.parallel_state"](module)
    vars(module)["_group_coordinator_device"] = device
    if "GPU_CROWDED" in os.environ:
        make = vars(module)["init_model_parallel_group"]
        vars(module).update(
            get_default_distributed_backend=lambda _: "gloo",
            init_model_parallel_group=functools.partial(make, use_pynccl=False),
        )


def install() -> None:
    """Put the stand-ins in their places."""
    patches = CPU.PATCHES | {"sglang.srt.distributed.parallel_state": _groups}
    sys.meta_path.insert(0, CPU.ALTERED.Altered(KNOWN, patches))
    sys.meta_path.append(CPU.ALTERED.Hollow(*MISSING))
