"""A small Llama with seeded weights, and what it answers unsharded: `python -m examples.vllm.model FOLDER`.

Weights are wide enough that greedy tokens hardly repeat.  Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

#: tokens of the prompts: within a block, whole blocks, several chunks, one block and a bit
LENGTHS = (37, 64, 100, 200, 260, 31, 5, 333)
VOCABULARY, ANSWER, WIDTH = 512, 24, 0.12


def make(folder: Path) -> None:
    """Write it there, unless it is there."""
    if (folder / "config.json").exists():
        return
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=WIDTH)
    model.save_pretrained(folder)  # in float32, as it was made


def prompts() -> list[list[int]]:
    """Prompts of the lengths above, and two that begin like others of them."""
    random_ = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [random_.randrange(3, VOCABULARY) for _ in range(count)]

    plain = [tokens(count) for count in LENGTHS]
    return [*plain, plain[3] + tokens(90), plain[4][:224] + tokens(5)]


def answers(folder: Path, asked: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of the whole model in one process: the reference; kept beside the model."""
    kept = folder / "answers.json"
    if kept.exists():
        known: dict[str, list[int]] = json.loads(kept.read_text())
        return [known[str(prompt)] for prompt in asked]
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    model.train(False)
    found = []
    with torch.inference_mode():
        for prompt in asked:
            whole: Any = model.generate(  # type: ignore[misc]  # its mixin's own annotation
                torch.tensor([prompt]), max_new_tokens=ANSWER, min_new_tokens=ANSWER, do_sample=False, pad_token_id=0,
                eos_token_id=None,
            )  # fmt: skip
            found.append(whole[0, len(prompt) :].tolist())
    kept.write_text(json.dumps(dict(zip(map(str, asked), found, strict=True))))
    return found


if __name__ == "__main__":
    make(Path(sys.argv[1]))
