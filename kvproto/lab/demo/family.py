"""Family: a model of transformers that keeps more than K and V of equal layers.

Each is a whole architecture in small numbers, with random weights: gated delta nets beside full attention, sliding
windows beside it, Mamba2 and attention in one layer, latents (MLA), latents with the index of a sparse attention,
windows with sinks.  What a layer keeps is read from the library's own cache; only how the channels of a convolution are
divided is said here, since no cache tells it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvproto.adapters.recurrence import Segment

if TYPE_CHECKING:
    from kvproto.lab.demo.caches_job import CachesJob

VOCAB = 997
#: standard deviation of a weight: wide enough that greedy tokens keep changing
SPREAD = 0.2
#: what all configurations have
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8, "head_dim": 16,
    "max_position_embeddings": 1 << 17, "tie_word_embeddings": False,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENTS: dict[str, Any] = EXPERTS | {
    "num_hidden_layers": 4, "num_key_value_heads": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "head_dim": 8, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "first_k_dense_replace": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A model's classes in transformers and its numbers; what is in its caches, in words.

    `segments`: the channels of its convolutions, each cut by its own heads or groups.
    """

    model: str
    config: str
    numbers: Mapping[str, Any]
    has: str
    segments: Sequence[Segment] = ()
    #: names of what the library calls keys and values
    parts: tuple[str, str] = ("k", "v")


FAMILIES: dict[str, Family] = {
    "qwen3-next": Family(
        "Qwen3NextForCausalLM", "Qwen3NextConfig",
        EXPERTS | {"num_hidden_layers": 4, "num_key_value_heads": 4, "num_experts": 4, "linear_conv_kernel_dim": 4,
                   "shared_expert_intermediate_size": 32, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                   "linear_num_key_heads": 4, "linear_num_value_heads": 8},
        "gated delta nets beside full attention", (Segment("q", 4, 8), Segment("k", 4, 8), Segment("v", 8, 8)),
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        {"num_hidden_layers": 6, "num_key_value_heads": 4, "sliding_window": 40},
        "five layers with a sliding window to one without",
    ),
    "falcon-h1": Family(
        "FalconH1ForCausalLM", "FalconH1Config",
        {"num_hidden_layers": 4, "num_key_value_heads": 4, "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8,
         "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_chunk_size": 16},
        "Mamba2 of one group and full attention in every layer",
        (Segment("x", 8, 8), Segment("B", 1, 16), Segment("C", 1, 16)),
    ),
    "deepseek-v3": Family(
        "DeepseekV3ForCausalLM", "DeepseekV3Config", LATENTS, "latents (MLA), which every rank has whole",
        parts=("latent", "rope"),
    ),
    "deepseek-v3.2": Family(
        "DeepseekV32ForCausalLM", "DeepseekV32Config",
        LATENTS | {"index_topk": 32, "index_head_dim": 32, "index_n_heads": 4},
        "latents and the index of a sparse attention", parts=("latent", "rope"),
    ),
    "gpt-oss": Family(
        "GptOssForCausalLM", "GptOssConfig",
        {"num_hidden_layers": 4, "num_key_value_heads": 4, "intermediate_size": 64, "num_local_experts": 4,
         "num_experts_per_tok": 2, "sliding_window": 40},
        "every second layer with a sliding window, and sinks",
    ),
}  # fmt: skip


def build_family(job: CachesJob) -> Any:
    """Build the job's causal language model, in its dtype, with the same bits in every process."""
    import torch  # the parent, which draws the progress, need not load it

    family, library = FAMILIES[job.family], importlib.import_module("transformers")
    config = getattr(library, family.config)(**SHAPE | dict(family.numbers), attn_implementation="eager")
    seeded = torch.Generator().manual_seed(job.seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(job.seed)
        model = getattr(library, family.model)(config)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=seeded) * SPREAD
            # Vectors are decays, steps, sinks and norms, for which the library's own values are right.
            weight.add_(noise * SPREAD) if weight.dim() < 2 else weight.copy_(noise)
    return model.to(getattr(torch, job.dtype)).eval().requires_grad_(False)
