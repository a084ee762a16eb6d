"""DP attention of SGLang 0.5.23 on a CPU: stand-ins, by the module that they change.

A data-parallel rank without tokens still takes part in a forward: its attention and rotary embedding are asked about
nothing, which their CPU versions do not expect.  Collectives are PyTorch's own, since SGLang's operators are CUDA's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def patch(module: ModuleType) -> None:
    """Have attention answer nothing to nothing."""
    backend: Any = vars(module)["TorchNativeAttnBackend"]
    backend.get_cuda_graph_seq_len_fill_value = backend.get_cpu_graph_seq_len_fill_value = lambda _: 1
    for name in ("forward_extend", "forward_decode"):
        setattr(backend, name, _or_nothing(getattr(backend, name)))


def _or_nothing(forward: Any) -> Any:
    def asked(self: Any, q: Any, k: Any, v: Any, layer: Any, *args: Any, **named: Any) -> Any:
        if q.shape[0] == 0:
            return q.new_empty((0, layer.tp_q_head_num * layer.v_head_dim))
        return forward(self, q, k, v, layer, *args, **named)

    return asked


def _rotary(module: ModuleType) -> None:
    kind: Any = vars(module)["RotaryEmbedding"]
    rotate = kind.forward_native

    def asked(self: Any, positions: Any, query: Any, key: Any, *args: Any, **named: Any) -> Any:
        return (query, key) if positions.numel() == 0 else rotate(self, positions, query, key, *args, **named)

    kind.forward_native = asked


def _collectives(module: ModuleType) -> None:
    group: Any = vars(module)["GroupCoordinator"]
    for name in ("all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor"):
        if hasattr(group, f"_{name}"):
            setattr(group, name, _plain(name))


def _plain(name: str) -> Any:
    return lambda self, output, input: getattr(self, f"_{name}")(output, input)  # noqa: A006  # SGLang's own names


def _copies(module: ModuleType) -> None:
    vars(module)["memcpy_func"] = vars(module)["memcpy_cpu"]


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "sglang.srt.layers.rotary_embedding.base": _rotary, "sglang.srt.distributed.parallel_state": _collectives,
    "sglang.srt.layers.dp_attention": _copies,
}  # fmt: skip
