"""Model: random weights, small or 400 million, and what it says uncut: the reference of a run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from examples.vllm.reference import Reference

VOCABULARY = 512
#: of weights that are drawn for a hidden size of 256, so that greedy tokens do not repeat themselves
WIDTH = 0.12
#: those whose kernels on a GPU compute in bfloat16 alone
HYBRIDS = "qwen3_5", "falcon_h1"
#: the only tokens that a model says if it is judged in bfloat16, or has a drawn head whose drafts are to be accepted at
#: times: of a pair one is likely where the other is not, so that most are far ahead of the next best
SPOKEN = (101, 202), (303, 404)
#: all layers are dense: SGLang's experts are kernels of a GPU
DEEPSEEK = {
    "num_key_value_heads": 8, "moe_intermediate_size": 64, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 4, "n_group": 2, "topk_group": 1, "kv_lora_rank": 512,
    "q_lora_rank": 48, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64, "v_head_dim": 32,
    "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024, "beta_fast": 32, "beta_slow": 1,
    },
}  # fmt: skip
#: three of four layers are gated delta nets
QWEN = {
    "num_key_value_heads": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "linear_num_key_heads": 4, "linear_num_value_heads": 8,
}  # fmt: skip
#: every layer has attention and Mamba2, of two groups
FALCON = {
    "num_key_value_heads": 4, "mamba_d_ssm": 256, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 2,
    "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_chunk_size": 64,
}  # fmt: skip
#: every other layer looks back over 40 tokens; all are dense, as above
MELLUM = {
    "num_key_value_heads": 4, "sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "mlp_layer_types": ["dense"] * 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
}  # fmt: skip
#: by kind: transformers' name for it, and what it has beside what all have
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_key_value_heads": 4}), "qwen3": ("Qwen3", {"num_key_value_heads": 4}),
    "deepseek_v3": ("DeepseekV3", DEEPSEEK), "qwen3_5": ("Qwen3_5", QWEN), "falcon_h1": ("FalconH1", FALCON),
    "mellum": ("Mellum", MELLUM), "eagle": ("Llama", {"num_key_value_heads": 4}),
}  # fmt: skip
#: the gated delta nets of Qwen3.5 as they are on a GPU, for which SGLang's kernels were written
HEADS = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
#: a model's form: small, or for a GPU 400 million weights (the kinds above with parts of their own stay small)
SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
LARGE = {"hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 24}
LARGE_KV = {"num_key_value_heads": 8}
#: what SGLang asks for and transformers does not write
UNWRITTEN = {"deepseek_v3": {"moe_layer_freq": 1}, "qwen3_5": {"full_attention_interval": 4}}


def make(folder: Path, kind: str = "llama", scale: int = 1, device: str = "cpu", *, coarse: bool = False) -> None:
    """Write it, unless it is there; its weights are such that greedy tokens do not repeat themselves.

    `scale`: how much longer prompts are than on a CPU; with more than 1 the dense kinds are large.  `device` draws the
    weights.  `coarse`: it is judged in bfloat16, and says `SPOKEN` alone.

    SGLang's data-parallel attention knows a "qwen3", and no "llama"; "deepseek_v3" has latents of 576 elements (MLA),
    "qwen3_5" the state of gated delta nets, "falcon_h1" that of Mamba2, "mellum" has sliding windows, and "eagle" is a
    Llama with a head that drafts (`draft_of`).
    """
    if (folder / "config.json").exists():
        return
    import torch
    import transformers

    torch.manual_seed(0)
    family, own = KINDS[kind]
    large = scale > 1 and kind in ("llama", "qwen3")
    form = LARGE if large else SMALL
    config = getattr(transformers, f"{family}{'Text' * (kind == 'qwen3_5')}Config")(
        vocab_size=VOCABULARY, head_dim=64, max_position_embeddings=1024 * scale, tie_word_embeddings=False,
        bos_token_id=1, eos_token_id=2, **form,
        **own | (LARGE_KV if large else HEADS if kind == "qwen3_5" and scale > 1 else {}),
    )  # fmt: skip
    with torch.device(device):
        model: Any = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=WIDTH * (SMALL["hidden_size"] / form["hidden_size"]) ** 0.5)
        elif name.endswith("A_log"):  # a recurrence that remembers: by default half is forgotten in a token
            torch.nn.init.uniform_(weights, -6.0, -3.0)
    if coarse or kind == "eagle":
        _hush(model.lm_head.weight)
    model.to(torch.float32).eval().save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | UNWRITTEN.get(kind, {})))


def draft_of(folder: Path, kind: str) -> str:
    """Write the EAGLE head of a model that has one, unless it is there; its folder, or nothing."""
    head = folder / "eagle"
    if kind != "eagle" or (head / "config.json").exists():
        return str(head) * (kind == "eagle")
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    torch.manual_seed(1)
    own = {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()) | own)
    whole: Any = transformers.LlamaForCausalLM(config)
    weights = {name: weights for name, weights in whole.model.state_dict().items() if name.startswith("layers.")}
    del weights["layers.0.input_layernorm.weight"]  # a head has none
    width = config.hidden_size
    weights["fc.weight"], weights["fc.bias"] = torch.empty(width, 2 * width), torch.zeros(width)
    for drawn in (each for each in weights.values() if each.dim() > 1):
        torch.nn.init.normal_(drawn, std=WIDTH)
    weights["embed_tokens.weight"] = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    config.save_pretrained(head)
    file = head / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | own))
    save_file(weights, head / "model.safetensors", metadata={"format": "pt"})
    return str(head)


def _hush(head: Any) -> None:
    """Leave the model few tokens that it can say: what one of a pair gains, the other loses."""
    spoken = head.detach().clone()
    head.detach().zero_()
    for one, other in SPOKEN:
        head.detach()[one], head.detach()[other] = spoken[one], -spoken[one]


@cache
def _whole(folder: Path, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).eval().to(device)
    model.generation_config.eos_token_id = None  # an end of text is a token like others, as where it is ignored
    return model


def continued(folder: Path, prompts: list[list[int]], tokens: int, device: str = "cpu") -> list[Reference]:
    """What the whole model says to each of them, greedily."""
    return [_continued(folder, tuple(prompt), tokens, device) for prompt in prompts]


@cache
def _continued(folder: Path, prompt: tuple[int, ...], tokens: int, device: str) -> Reference:
    import torch

    ids = torch.tensor([prompt], device=device)
    out = _whole(folder, device).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0
    )
    return Reference(out[0, len(prompt) :].tolist())
