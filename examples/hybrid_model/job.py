"""Job: a request to a small Qwen3-Next of random weights, and what a rank has of all that it keeps.

Three of its four layers are gated delta nets.  Each keeps a convolution's last columns of q, k and v, and a matrix for
each value head; the fourth layer has K and V.  Which channels and heads a rank has is counted here by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextForCausalLM
from transformers.utils import logging

from kvproto import Cache, CachePart, Layout

VOCAB, PAGE = 256, 4
KV_HEADS, DIM = 2, 16
#: heads of q and k, and of v, of a gated delta net; elements of a head; columns of the convolution
KEYS, VALUES, WIDE, TAPS = 4, 8, 8, 4
#: by part: heads, and channels of the convolution a head
SEGMENTS = (("q", KEYS, WIDE), ("k", KEYS, WIDE), ("v", VALUES, WIDE))
LINEAR, ATTENTION = (0, 1, 2), 3
ITEM = 4


@dataclass(frozen=True)
class Job:
    """One request: ranks of both sides, tokens of the prompt, those that decode has already, and new ones."""

    prefill: int = 2
    decode: int = 1
    tokens: int = 37
    prefix: int = 0
    new: int = 12
    chunk_tokens: int = 16
    groups: int = 1
    seed: int = 1

    def layout(self, tp: int) -> Layout:
        """The model's caches on so many ranks."""
        full = Cache("full", (CachePart("k", KV_HEADS, DIM * ITEM), CachePart("v", KV_HEADS, DIM * ITEM)), (ATTENTION,))
        parts = [CachePart(name, heads, channels * TAPS * ITEM) for name, heads, channels in SEGMENTS]
        parts.append(CachePart("recurrent", VALUES, WIDE * WIDE * ITEM))
        state = Cache("delta", tuple(parts), LINEAR, "float32", "end", self.groups)
        return Layout.of_caches([full, state], layers=4, page_size=PAGE, tp=tp)


def build(job: Job) -> Any:
    """The model, with the same weights in every process."""
    config = Qwen3NextConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=KV_HEADS, head_dim=DIM, linear_conv_kernel_dim=TAPS, linear_key_head_dim=WIDE,
        linear_value_head_dim=WIDE, linear_num_key_heads=KEYS, linear_num_value_heads=VALUES, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32, initializer_range=0.4,
    )  # fmt: skip
    logging.set_verbosity_error()  # that the torch form of a kernel is used is what is wanted
    torch.manual_seed(job.seed)
    model: Any = Qwen3NextForCausalLM(config)
    return model.eval().requires_grad_(False)


def prompt(job: Job) -> torch.Tensor:
    """The tokens of the prompt."""
    return torch.randint(VOCAB, (1, job.tokens), generator=torch.Generator().manual_seed(job.seed))


def forward(model: Any, ids: torch.Tensor, past: Any = None) -> tuple[int, Any]:
    """Run these tokens; return the next one, and the model's own cache."""
    out = model(ids, past_key_values=past, use_cache=True)
    return int(out.logits[0, -1].argmax()), out.past_key_values


def continued(model: Any, token: int, past: Any, count: int) -> list[int]:
    """Return the token and those after it, one by one from this cache."""
    found = [token]
    while len(found) < count:
        token, past = forward(model, torch.tensor([[token]]), past)
        found.append(token)
    return found


def tensors_of(past: Any) -> list[torch.Tensor]:
    """Return all that the cache keeps: K and V, and of each gated delta net the columns and the state."""
    full = past.layers[ATTENTION]
    linear = [past.layers[layer] for layer in LINEAR]
    return [full.keys, full.values, *(t for each in linear for t in (each.conv_states[0], each.recurrent_states[0]))]


def held(heads: int, tp: int, rank: int) -> slice:
    """The heads that a rank has: a block of them, or one that several ranks have."""
    each = max(1, heads // tp)
    first = rank * heads // tp
    return slice(first, first + each)


def parts_of(past: Any, tp: int, rank: int) -> dict[str, list[torch.Tensor]]:
    """Return a rank's part of a cache, by "cache.part" and layer.

    Each is [token, head, element], and of state [head, element].  These are views of the cache's own tensors, so they
    are read, and written, through.
    """
    full, found = past.layers[ATTENTION], dict[str, list[torch.Tensor]]()
    for name, kv in (("full.k", full.keys), ("full.v", full.values)):
        found[name] = [kv[0].transpose(0, 1)[:, held(KV_HEADS, tp, rank)]]
    for layer in LINEAR:
        first, conv = 0, past.layers[layer].conv_states[0][0]
        for name, heads, channels in SEGMENTS:
            segment = conv[first : first + heads * channels].view(heads, channels * TAPS)
            found.setdefault(f"delta.{name}", []).append(segment[held(heads, tp, rank)])
            first += heads * channels
        matrix = past.layers[layer].recurrent_states[0][0].flatten(1)
        found.setdefault("delta.recurrent", []).append(matrix[held(VALUES, tp, rank)])
    return found
