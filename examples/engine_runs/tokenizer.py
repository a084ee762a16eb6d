"""Tokenizer of a model with random weights: one token a character.

So an instance can be asked in text, and every token that it answers is text that compares by characters.  One token a
byte would not do: random bytes are no text, and an engine that streams shows them otherwise than a whole answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
#: tokens that are no text, and the first letter of those beyond ASCII
SPECIAL, BEYOND = ("<pad>", "<s>", "</s>"), 0x100


def save(folder: Path, vocabulary: int) -> None:
    """Write it beside a model of so many tokens, unless it is there."""
    if (folder / "tokenizer.json").exists():
        return
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    known = [*SPECIAL, "\n", *map(chr, range(0x20, 0x7F))]
    known += [chr(BEYOND + index) for index in range(vocabulary - len(known))]
    made: Any = Tokenizer(models.BPE({token: index for index, token in enumerate(known)}, [], unk_token=None))
    made.decoder = decoders.Fuse()
    kind: Any = PreTrainedTokenizerFast
    pad, begin, end = SPECIAL
    kept = kind(tokenizer_object=made, bos_token=begin, eos_token=end, pad_token=pad, model_max_length=1024)
    kept.chat_template = TEMPLATE
    kept.save_pretrained(folder)
