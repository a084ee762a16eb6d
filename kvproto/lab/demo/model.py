"""A real transformer as judge: unsharded, in one process, with the library's own modules and cache.

Weights are random and seeded; the numbers are small and the architecture is whole. What makes the judgement sharp:

* **Bit equality, not tolerance.** Floating-point sums depend on shapes. So attention is computed head by head
  (`attend`), everything else in full by every rank, and the reference prefills in the engine's chunks.
* **The attention is ours, the oracle's is not.** `attend` is registered with transformers, so reference and ranks run
  the library's layers unchanged. That it *is* attention is shown against the library's own `generate()`
  (`oracle_tokens`): equal tokens in float32. In 16 bit "sdpa" and "eager" already differ now and then.
* **8-bit KV** is rounded as it enters the cache, on both sides alike: clamped, cast to float8_e4m3fn without a scale.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.job import DemoJob, RoomSpec

ATTENTION = "kvproto_heads"
AUX = struct.Struct("<Q16s")
F8_MAX = 448.0


def torch_dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


# ---- attention, a head at a time -------------------------------------------------------------------------------


def attend(q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
    """Causal attention of one head: `q` [t, d], the last t of n tokens in `k`, `v` [n, d]; to [t, d]."""
    q, k, v = (x.clone(memory_format=torch.contiguous_format) for x in (q, k, v))
    t, n = q.shape[0], k.shape[0]
    if q.is_cuda and t > 1:  # without the t x n scores, which would be most of what a long prompt takes
        q, k, v = (x[None, None] for x in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(t, n), scale=scaling)[0, 0]
    scores = (q @ k.T) * scaling
    if t > 1:
        later = torch.ones(t, n, dtype=torch.bool, device=q.device).triu(n - t + 1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def _attention(
    _module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None,
    scaling: float, heads: Any = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend as transformers calls it: query [1, heads, t, d], key and value [1, kv heads, n, d] -> [1, t,
    heads, d].

    `heads`, passed by a rank, says which query heads are its own, which of the local KV heads each of them reads,
    and joins the outputs of all ranks; without it all heads are computed here.
    """
    if heads is None:
        group = query.shape[1] // key.shape[1]
        out = [attend(query[0, h], key[0, h // group], value[0, h // group], scaling) for h in range(query.shape[1])]
        return torch.stack(out, dim=1).unsqueeze(0), None
    own = [attend(query[0, q], key[0, kv], value[0, kv], scaling) for q, kv in heads.pairs]
    return heads.join(torch.stack(own, dim=1)).unsqueeze(0), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)


# ---- the model ----------------------------------------------------------------------------------------------------


def build(job: DemoJob, attention: str = ATTENTION, device: str = "cpu") -> Any:
    """Build the causal language model of `job`, in its dtype, with the same bits in every process."""
    shape: dict[str, Any] = {
        "vocab_size": job.vocab, "hidden_size": job.hidden, "intermediate_size": 2 * job.hidden,
        "num_hidden_layers": job.layers, "num_attention_heads": job.query_heads, "num_key_value_heads": job.heads,
        "head_dim": job.dim, "max_position_embeddings": 1 << 17, "tie_word_embeddings": False,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "attn_implementation": attention,
    }  # fmt: skip
    gpus = [torch.device(device).index or 0] if device != "cpu" else []
    with torch.random.fork_rng(gpus), torch.device(device):
        torch.manual_seed(job.seed)
        if job.family == "llama":
            model: Any = LlamaForCausalLM(LlamaConfig(**shape))
        else:
            model = Qwen3ForCausalLM(Qwen3Config(**shape))
    seeded = torch.Generator(device).manual_seed(job.seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=seeded, device=device) * job.spread
            weight.copy_(1.0 + noise if "norm" in name else noise)
    return model.to(torch_dtype(job.compute)).eval().requires_grad_(False)


def prompt(job: DemoJob | CachesJob, room: RoomSpec) -> Tensor:
    """The room's prompt, int64 [tokens]."""
    seeded = torch.Generator().manual_seed(job.seed * 1_000_003 + room.room + 1)
    return torch.randint(job.vocab, (room.tokens,), generator=seeded)


def pieces_of(ids: Tensor, chunk: int) -> list[Tensor]:
    """The prompt as the chunked prefill forwards it."""
    return [ids[first : first + chunk] for first in range(0, len(ids), chunk)]


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as a KV pool of `dtype` stores it."""
    if x.dtype == dtype:
        return x
    return x.clamp(-F8_MAX, F8_MAX).to(dtype)


def logits_digest(logits: Tensor) -> bytes:
    """16 bytes that stand for all bits of one token's logits."""
    raw = logits.contiguous().view(torch.uint8).cpu().numpy().tobytes()
    return hashlib.blake2b(raw, digest_size=16).digest()


def aux_row(token: int, logits: Tensor) -> bytes:
    """Pack AUX.size bytes: a generated token and the digest of its logits. P sends D the first one."""
    return AUX.pack(token, logits_digest(logits))


def read_aux(row: bytes) -> tuple[int, bytes]:
    token, digest = AUX.unpack(row[: AUX.size])
    return token, digest


# ---- the reference ------------------------------------------------------------------------------------------------


class _RoundingCache(DynamicCache):  # type: ignore[misc]  # of a library that mypy does not read
    """The library's cache with KV rounded to the pool's dtype as it enters."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        super().__init__(config=config)
        self.kv_dtype = dtype

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        k, v = (rounded(x, self.kv_dtype).to(x.dtype) for x in (key_states, value_states))
        return super().update(k, v, layer_idx, *args, **kwargs)


@dataclass(frozen=True)
class UnshardedRoom:
    """One room, unsharded: its KV [layers, heads, tokens, dim] is on the host, in the pool's dtype."""

    tokens: list[int]  # greedy continuation; the first is P's, the rest are D's
    logits: list[bytes]  # digest of the logits that each of them was chosen from
    keys: Tensor
    values: Tensor
    seconds: tuple[float, ...] = ()  # from the beginning of the forward to each of the tokens


def reference(model: Any, job: DemoJob, room: RoomSpec) -> UnshardedRoom:
    """Prefill in the job's chunks and continue greedily, with the library's forward and cache."""
    cache, start = _RoundingCache(model.config, torch_dtype(job.dtype)), time.monotonic()
    said, seconds = list[tuple[int, bytes]](), list[float]()
    for each in _answers(model, cache, prompt(job, room), job.chunk, room.new):
        said.append(each)
        seconds.append(time.monotonic() - start)
    layers: list[Any] = cache.layers
    keys = torch.stack([layer.keys[0, :, : room.tokens] for layer in layers])
    values = torch.stack([layer.values[0, :, : room.tokens] for layer in layers])
    keys, values = (rounded(x, torch_dtype(job.dtype)).cpu() for x in (keys, values))
    return UnshardedRoom([token for token, _ in said], [digest for _, digest in said], keys, values, tuple(seconds))


def _answers(model: Any, cache: _RoundingCache, ids: Tensor, chunk: int, new: int) -> Iterator[tuple[int, bytes]]:
    """Forward `ids` behind what is in the cache; yield the next tokens with digests of their logits."""
    device, token, count = model.lm_head.weight.device, 0, 0
    pieces = pieces_of(ids.to(device), chunk)
    while count < new:
        piece = pieces.pop(0) if pieces else torch.tensor([token], device=device)
        logits = model(input_ids=piece[None], past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        if not pieces:
            token, count = int(logits.argmax()), count + 1
            yield token, logits_digest(logits)


def oracle_tokens(job: DemoJob, room: RoomSpec, attention: str = "eager", device: str = "cpu") -> list[int]:
    """Return the continuation by the library's own `generate()` and attention, over KV of the job's dtype."""
    model = build(job, attention, device)
    ids = prompt(job, room)[None].to(device)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=room.new, do_sample=False,
        past_key_values=_RoundingCache(model.config, torch_dtype(job.dtype)),
    )  # fmt: skip
    return [int(t) for t in out[0, room.tokens :]]
