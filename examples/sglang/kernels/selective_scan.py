"""Selective scan: Mamba2 on a CPU for SGLang 0.5.23, which has it for GPUs alone.

The state of a sequence is `[heads, width, size]`: S <- exp(dt A) S + dt x B', and the output is S C + D x; groups of
heads share B and C.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

#: of a head, whatever the token is: A and D
OfHead = tuple[Tensor, Tensor]
#: of a group at a token: B and C
OfGroup = tuple[Tensor, Tensor]


def _step(state: Tensor, x: Tensor, dt: Tensor, of_head: OfHead, of_group: OfGroup) -> Tensor:
    """Take one token into the state, in place; return the output, [heads, width]."""
    decay, skip = of_head
    inputs, outputs = (each.float().repeat_interleave(len(state) // len(each), 0) for each in of_group)
    state.mul_((dt * decay).exp()[:, None, None])
    state.add_((dt[:, None] * x.float())[:, :, None] * inputs[:, None])
    out: Tensor = torch.einsum("hwn,hn->hw", state, outputs) + skip[:, None] * x.float()
    return out


def mamba_chunk_scan_combined(
    x: Tensor, dt: Tensor, decay: Tensor, inputs: Tensor, outputs: Tensor, *, D: Tensor, dt_bias: Tensor,  # noqa: N803
    cu_seqlens: Tensor, initial_states: Tensor | None, out: Tensor, state_dtype: torch.dtype, **_: Any,
) -> tuple[None, Tensor, None]:  # fmt: skip
    """Scan the tokens of several sequences, [1, tokens, heads, width]; return the state behind each."""
    steps, found = softplus(dt[0].float() + dt_bias.float()), []
    for sequence, (first, end) in enumerate(pairwise(cu_seqlens.tolist())):
        empty = torch.zeros(*x.shape[2:], inputs.shape[-1])
        state = empty if initial_states is None else initial_states[sequence].float().clone()
        for at in range(first, end):
            out[0, at] = _step(state, x[0, at], steps[at], (decay, D), (inputs[0, at], outputs[0, at]))
        found.append(state)
    return None, torch.stack(found).to(state_dtype), None


def selective_state_update(
    states: Tensor, x: Tensor, dt: Tensor, decay: Tensor, inputs: Tensor, outputs: Tensor, D: Tensor, *,  # noqa: N803
    dt_bias: Tensor, state_batch_indices: Tensor, out: Tensor, **_: Any,
) -> None:  # fmt: skip
    """Scan the next token of each sequence, in place; what is of a head comes expanded to its width."""
    steps = softplus(dt[..., 0].float() + dt_bias[:, 0].float())
    for sequence, slot in enumerate(state_batch_indices.tolist()):
        state, of_group = states[slot].float(), (inputs[sequence], outputs[sequence])
        out[sequence] = _step(state, x[sequence], steps[sequence], (decay[:, 0, 0], D[:, 0]), of_group)
        states[slot] = state
