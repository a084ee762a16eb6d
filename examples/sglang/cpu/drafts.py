"""Drafts of SGLang 0.5.23 without compiled kernels: its plain attention verifies a chain of them.

SGLang verifies drafts with kinds of attention that are kernels.  In a chain each draft attends to all before it, so the
drafts of a request are like the next tokens of its prompt, which the plain attention computes.
"""

from __future__ import annotations

import copy
import importlib
from types import ModuleType
from typing import Any

CREATE = "_create_backend"


def patch(module: ModuleType) -> None:
    """Have the plain attention take drafts that are verified for the next tokens of a prompt."""
    backend: Any = vars(module)["TorchNativeAttnBackend"]
    extend = backend.forward_extend

    def asked(self: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *args: Any, **named: Any) -> Any:
        if batch.forward_mode.is_target_verify():
            batch, before = copy.copy(batch), batch.seq_lens
            batch.extend_prefix_lens, batch.extend_seq_lens = before, before * 0 + batch.spec_info.draft_token_num
            batch.seq_lens = before + batch.extend_seq_lens
        return extend(self, q, k, v, layer, batch, *args, **named)

    backend.forward_extend = asked


def make_backends(module: ModuleType) -> None:
    """Have a draft use the plain attention, too."""
    factory: Any = vars(module)["DraftBackendFactory"]
    create = getattr(factory, CREATE)

    def asked(self: Any, name: str, known: dict[str, Any], *args: Any, **named: Any) -> Any:
        plain: Any = importlib.import_module("sglang.srt.layers.attention.torch_native_backend")

        def made() -> tuple[str, Any]:
            return "torch_native", plain.TorchNativeAttnBackend(self.draft_model_runner)

        return create(self, name, known | {"torch_native": made}, *args, **named)

    setattr(factory, CREATE, asked)


PATCHES = {"sglang.srt.speculative.draft_utils": make_backends}
