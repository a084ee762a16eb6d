"""A small model with random weights, and what it says without being cut: the reference of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 512


def make(folder: Path, kind: str = "llama") -> None:
    """Write it, unless it is there; its weights are such that greedy tokens do not repeat themselves.

    SGLang's data-parallel attention knows a "qwen3", and no "llama".
    """
    if (folder / "config.json").exists():
        return
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    configured, of = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    config = configured(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    model: Any = of(config)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.12)
    model.to(torch.float32).eval().save_pretrained(folder)


def continued(folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """What the whole model says to each of them, greedily."""
    import torch
    from transformers import AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # an end of text is a token like others, as where it is ignored
    said = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
                             do_sample=False, pad_token_id=0)  # fmt: skip
        said.append(out[0, len(prompt) :].tolist())
    return said
