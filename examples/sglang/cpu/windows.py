"""Windows of SGLang 0.5.23 on a CPU: its plain attention reads their layers by their own slots.

Layers with a sliding window have a pool of their own, whose slots have other numbers than those in the table of a
request.  The plain backend writes new tokens by the former and reads by the latter.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any


def patch(module: ModuleType) -> None:
    """Have both forwards of a layer with a window read by the numbers of its pool."""
    backend: Any = vars(module)["TorchNativeAttnBackend"]
    for name in ("forward_extend", "forward_decode"):
        setattr(backend, name, _translated(getattr(backend, name)))


def _translated(forward: Any) -> Any:
    def asked(self: Any, q: Any, k: Any, v: Any, layer: Any, *args: Any, **named: Any) -> Any:
        pool, table = self.token_to_kv_pool, self.req_to_token_pool
        if not self.use_sliding_window_kv_pool or not pool.layers_mapping[layer.layer_id][1]:
            return forward(self, q, k, v, layer, *args, **named)
        slots = pool.full_to_swa_index_mapping[table.req_to_token.long()]
        self.req_to_token_pool = SimpleNamespace(req_to_token=slots)
        try:
            return forward(self, q, k, v, layer, *args, **named)
        finally:
            self.req_to_token_pool = table

    return asked
