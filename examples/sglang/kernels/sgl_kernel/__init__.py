"""Gated delta nets on a CPU for SGLang 0.5.23: PyPI has no package of SGLang's own kernels for CPUs.

All is plain PyTorch.  SGLang finds this package where it looks for its kernels; any other kernel says that it is not
here.  The state of a sequence is a row of SGLang's pool, and is read and written in place:

    convolution   [channels, taps - 1]: the last inputs of each channel, the oldest first
    matrices      [heads, value width, key width]: S <- exp(g) S + beta (v - exp(g) S k) k', and the output is S q
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # its usual name


def _convolved(inputs: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None, activation: Any) -> Tensor:
    """Convolve one sequence's next inputs, [channels, tokens], behind those that its state has."""
    whole = torch.cat([state.to(inputs.dtype), inputs], dim=1)
    state.copy_(whole[:, whole.shape[1] - state.shape[1] :])
    out = F.conv1d(whole[None], weight.reshape(weight.shape[0], 1, -1), bias, groups=weight.shape[0])[0]
    return F.silu(out) if activation else out


def causal_conv1d_fn_cpu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, query_start_loc: Tensor, cache_indices: Tensor,
    has_initial_state: Tensor | None, conv_states: Tensor, activation: Any = "silu", **_: Any,
) -> Tensor:  # fmt: skip
    """Convolve the tokens of several sequences, [channels, tokens], one sequence after another."""
    out, starts = torch.empty_like(x), query_start_loc.tolist()
    for sequence, (first, end) in enumerate(pairwise(starts)):
        state = conv_states[cache_indices[sequence]]
        if has_initial_state is None or not has_initial_state[sequence]:
            state.zero_()
        out[:, first:end] = _convolved(x[:, first:end], state, weight, bias, activation)
    return out


def causal_conv1d_update_cpu(
    x: Tensor, conv_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Any = "silu", *,
    conv_state_indices: Tensor, **_: Any,
) -> Tensor:  # fmt: skip
    """Convolve the next token of each sequence, [sequences, channels]."""
    rows = [
        _convolved(token[:, None], conv_states[slot], weight, bias, activation)[:, 0]
        for token, slot in zip(x, conv_state_indices, strict=True)
    ]
    return torch.stack(rows)


def _normed(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + 1e-6)


def chunk_gated_delta_rule_cpu(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, initial_state: Tensor, initial_state_indices: Tensor,
    cu_seqlens: Tensor, **_: Any,
) -> tuple[Tensor, None, None]:  # fmt: skip
    """Run the recurrence over several sequences: [1, tokens, heads, width], g and beta [1, tokens, heads]."""
    wide = v.shape[2] // q.shape[2]
    keys, asked = (_normed(each[0].float()).repeat_interleave(wide, 1) for each in (k, q))
    asked, out, starts = asked * q.shape[-1] ** -0.5, torch.empty_like(v, dtype=torch.float32), cu_seqlens.tolist()
    for sequence, (first, end) in enumerate(pairwise(starts)):
        place = initial_state[initial_state_indices[sequence]]
        state = place.float()
        for at in range(first, end):
            state = state * g[0, at].float().exp()[:, None, None]
            lacks = v[0, at].float() - torch.einsum("hvk,hk->hv", state, keys[at])
            state = state + torch.einsum("hv,hk->hvk", lacks * beta[0, at].float()[:, None], keys[at])
            out[0, at] = torch.einsum("hvk,hk->hv", state, asked[at])
        place.copy_(state)
    return out.to(v.dtype), None, None


def fused_gdn_gating_cpu(decay: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return g and beta, [1, tokens, heads]."""
    g = -decay.float().exp() * F.softplus(a.float() + bias.float())
    return g[None], b.float().sigmoid()[None]


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log: Tensor, dt_bias: Tensor, q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor,  # noqa: N803  # SGLang's
    initial_state_source: Tensor, initial_state_indices: Tensor, cu_seqlens: Tensor, **_: Any,
) -> Tensor:  # fmt: skip
    """Run the recurrence over the next token of each sequence."""
    g, beta = fused_gdn_gating_cpu(A_log, a, b, dt_bias)
    state = {"initial_state": initial_state_source, "initial_state_indices": initial_state_indices}
    return chunk_gated_delta_rule_cpu(q, k, v, g, beta, **state, cu_seqlens=cu_seqlens)[0]


def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    qkvz: Tensor, ba: Tensor, _keys: int, values: int, _key_width: int, value_width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Split projections into q, k and v as one, z by head of the values, b and a."""
    wide = values * value_width
    qkv, z = qkvz[:, :-wide], qkvz[:, -wide:]
    b, a = ba.chunk(2, dim=1)
    return qkv.contiguous(), z.reshape(-1, values, value_width), b.contiguous(), a.contiguous()


def _scaled(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalize rows by their root mean square."""
    found = rows.float()
    return (found * torch.rsqrt(found.square().mean(-1, keepdim=True) + eps) * weight).to(rows.dtype)


def fused_qk_gemma_rmsnorm_with_gate_cpu(
    q_gate: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, width: int, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize q and k by head; between two heads of q lies a gate."""
    q, gate = q_gate.reshape(-1, heads, 2, width).unbind(2)
    return _scaled(q, 1 + q_weight, eps), _scaled(k.reshape(-1, width), 1 + k_weight, eps), gate.contiguous()


def fused_rmsnorm_gated_cpu(x: Tensor, weight: Tensor, z: Tensor, eps: float) -> Tensor:
    """Normalize, and open as far as the gate says."""
    return _scaled(x, weight, eps) * F.silu(z)


def fused_sigmoid_mul_cpu(x: Tensor, gate: Tensor) -> None:
    """Open as far as the gate says, in place."""
    x.mul_(gate.reshape(x.shape).sigmoid())


def _missing(name: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"sgl_kernel.{name} is not among the kernels that these runs have on a CPU")

    return missing


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


for _kernel in (
    fused_gdn_gating_cpu, fused_sigmoid_gating_delta_rule_update_cpu, fused_qkvzba_split_reshape_cat_contiguous_cpu,
    fused_qk_gemma_rmsnorm_with_gate_cpu, fused_rmsnorm_gated_cpu, fused_sigmoid_mul_cpu,
):  # fmt: skip
    setattr(torch.ops.sgl_kernel, _kernel.__name__, _kernel)
#: SGLang looks it up, and calls it for attention without a gate
_UNUSED = "fused_qk_gemma_rmsnorm_cpu"
setattr(torch.ops.sgl_kernel, _UNUSED, _missing(_UNUSED))
