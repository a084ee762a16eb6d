"""Models with seeded weights, small, and their answers unsharded: `python -m examples.vllm.model FOLDER`.

*dense* is a Llama in float32: every answer has to be the whole model's.  *hybrid* is a Qwen3-Next, three of whose four
layers are gated delta nets.  Its kernels compute in bfloat16 alone, so two shards without any transfer move a log
probability by up to .06: where two tokens lie nearer than `NEAR` to each other either is right, and what follows
cannot be compared.  *alternating* is one of which only every other layer is such a net, so that each of two stages has
a layer that attends fully.  *windows* is a Gemma 3 in float32, of whose six layers four look back over `WINDOW` tokens.
*sinks* is a gpt-oss in float32: every other layer does, and each head has a sink, which no cache holds.  *latents* is a
DeepSeek-V3 in float32 without experts, whose layers keep latents of 576 elements (MLA).  *drafted* is the Llama with
itself as its draft, so that every drafted token is accepted as long as the draft's KV is right; *eagle* is the Llama
with a drawn EAGLE head of one layer and two KV heads, none of whose tokens need be.  Nothing is downloaded.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from examples.vllm.reference import Reference

Kind = Literal["dense", "hybrid", "alternating", "windows", "sinks", "latents", "drafted", "eagle"]
#: those whose kernels compute in bfloat16 alone
HYBRIDS: tuple[Kind, ...] = "hybrid", "alternating"
#: tokens of the prompts: within a block, whole blocks, several chunks, one block and a bit
LENGTHS = (37, 64, 100, 200, 260, 31, 5, 333)
VOCABULARY, ANSWER, WIDTH = 512, 24, 0.12
#: bytes of a rank's cache, which an engine fills at its start: 32 prompts of 333 tokens, several times
CACHE_BYTES = 256 << 20
#: tokens of a window: of one and a half blocks
WINDOW = 48
#: log probabilities of tokens that are told, and how far from the best one a token is as right
TOLD, NEAR = 8, 0.13
#: tokens that a draft proposes at a time
DRAFTED = 3
SIZES = {"vocab_size": VOCABULARY, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 64, "max_position_embeddings": 1024, "tie_word_embeddings": False, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
#: sizes of hybrids: vLLM's kernels for a CPU want heads of 128
QWEN: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "mlp_only_layers": [0, 1, 2],
}  # fmt: skip
LLAMA: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512}
#: by kind: transformers' name for it, and its own sizes
FAMILIES: dict[Kind, tuple[str, dict[str, Any]]] = {
    "dense": ("Llama", LLAMA), "drafted": ("Llama", LLAMA), "eagle": ("Llama", LLAMA),
    "hybrid": ("Qwen3Next", QWEN),
    # vLLM wants experts on each stage
    "alternating": ("Qwen3Next", QWEN | {
        "layer_types": ["linear_attention", "full_attention"] * 2, "mlp_only_layers": [0, 2],
    }),
    "windows": ("Gemma3", {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "sliding_window": WINDOW,
        "query_pre_attn_scalar": 64,
    }),
    "sinks": ("GptOss", {
        "hidden_size": 256, "intermediate_size": 256, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2,
    }),
    "latents": ("DeepseekV3", {
        "hidden_size": 256, "intermediate_size": 512, "num_key_value_heads": 8, "first_k_dense_replace": 4,
        "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 64, "num_experts_per_tok": 2,
        "kv_lora_rank": 512, "q_lora_rank": 48, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64, "v_head_dim": 32,
        # without it vLLM alone answers otherwise than transformers
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 1024, "beta_fast": 32, "beta_slow": 1,
        },
    }),
}  # fmt: skip


def make(folder: Path, kind: Kind = "dense") -> None:
    """Write it there, unless it is there."""
    if (folder / "config.json").exists():
        return
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    torch.manual_seed(0)
    family, own = FAMILIES[kind]
    of: Any = getattr(transformers, f"{family}ForCausalLM")
    model = of(of.config_class(**SIZES | own))
    for name, weights in model.named_parameters():
        if kind not in HYBRIDS and weights.dim() > 1:  # wide enough that greedy tokens hardly repeat
            torch.nn.init.normal_(weights, std=WIDTH)
        elif name.endswith("sinks"):
            torch.nn.init.normal_(weights, std=0.5)
        elif name.endswith("A_log"):  # a recurrence that remembers: by default half is forgotten in a token
            torch.nn.init.uniform_(weights, -6.0, -3.0)
    model.save_pretrained(folder)  # in float32, as it was made
    if kind == "latents":  # vLLM asks for it, transformers does not write it
        file = folder / "config.json"
        file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | {"moe_layer_freq": 1}))


def drafting(folder: Path, kind: Kind) -> dict[str, Any] | None:
    """Return what vLLM is told of the model's draft; None: it has none."""
    if kind not in ("drafted", "eagle"):
        return None
    own = {"method": "draft_model", "model": str(folder)} if kind == "drafted" else _eagle(folder / "eagle")
    return own | {"num_speculative_tokens": DRAFTED}


def _eagle(folder: Path) -> dict[str, Any]:
    """Write an EAGLE head of one layer, unless it is there; its embeddings are the model's."""
    if not (folder / "config.json").exists():
        import torch
        import transformers
        from safetensors.torch import save_file

        torch.manual_seed(1)
        sizes = SIZES | LLAMA | {"num_hidden_layers": 1, "num_key_value_heads": 2}
        made: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
        made.config.architectures = ["LlamaForCausalLM"]  # of which vLLM makes the head's name
        made.config.save_pretrained(folder)
        layer = {name: weights for name, weights in made.model.state_dict().items() if name.startswith("layers.")}
        del layer["layers.0.input_layernorm.weight"]  # a head has none
        width = LLAMA["hidden_size"]
        save_file(layer | {"fc.weight": WIDTH * torch.randn(width, 2 * width)}, folder / "model.safetensors")
    return {"method": "eagle", "model": str(folder)}


def prompts() -> list[list[int]]:
    """Prompts of the lengths above, and two that begin like others of them."""
    random_ = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [random_.randrange(3, VOCABULARY) for _ in range(count)]

    plain = [tokens(count) for count in LENGTHS]
    return [*plain, plain[3] + tokens(90), plain[4][:224] + tokens(5)]


def answers(folder: Path, asked: list[list[int]], kind: Kind = "dense") -> list[Reference]:
    """Greedy tokens of the whole model in one process; kept beside the model."""
    kept = folder / "references.json"
    if not kept.exists():
        if kind not in HYBRIDS:
            kept.write_bytes(msgspec.json.encode(_of_transformers(folder, asked)))
        else:  # an engine that has ended leaves threads behind
            command = [sys.executable, "-m", "examples.vllm.model", str(folder), str(kept)]
            subprocess.run(command, check=True)  # noqa: S603  # our own program
    return msgspec.json.decode(kept.read_bytes(), type=list[Reference])


def _of_transformers(folder: Path, asked: list[list[int]]) -> list[Reference]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    model.train(False)
    found = []
    with torch.inference_mode():
        for prompt in asked:
            whole: Any = model.generate(
                torch.tensor([prompt]), max_new_tokens=ANSWER, min_new_tokens=ANSWER, do_sample=False, pad_token_id=0,
                eos_token_id=None,
            )  # fmt: skip
            found.append(Reference(whole[0, len(prompt) :].tolist()))
    return found


def _of_vllm(folder: Path, asked: list[list[int]]) -> list[Reference]:
    """Ask the engine alone, which computes in the same precision as its shards."""
    from vllm import LLM, SamplingParams

    engine = LLM(model=str(folder), enforce_eager=True, max_model_len=512, dtype="bfloat16", max_num_seqs=4, seed=0,
                 max_num_batched_tokens=64, enable_prefix_caching=False, skip_tokenizer_init=True,
                 kv_cache_memory_bytes=CACHE_BYTES)  # fmt: skip
    how = SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True, detokenize=False, logprobs=TOLD)
    found = []
    for prompt in asked:
        said = engine.generate([{"prompt_token_ids": prompt}], how, use_tqdm=False)[0].outputs[0]
        told = [{token: each.logprob for token, each in by.items()} for by in said.logprobs or ()]
        near = [[token for token, each in by.items() if each > max(by.values()) - NEAR] for by in told]
        found.append(Reference(list(said.token_ids), near))
    return found


if __name__ == "__main__":
    if len(sys.argv) == 2:  # noqa: PLR2004  # a folder alone
        make(Path(sys.argv[1]))
    else:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        Path(sys.argv[2]).write_bytes(msgspec.json.encode(_of_vllm(Path(sys.argv[1]), prompts())))
        sys.stdout.flush()
        os._exit(0)  # whatever threads the engine has left behind
