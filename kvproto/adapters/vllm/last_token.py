"""The last token of a prompt, which vLLM's decode instance computes once more, to sample from it.

KV of that token may come twice: what is written is the same.  A recurrent state may not, since a state after N tokens
that sees the last one again is a state after N + 1.  So of a model with such state, the first N - 1 tokens are carried:
the prefill instance stops before the last token, and the decode instance computes it from the state that has come.
"""

from __future__ import annotations

from typing import Any


def carried_tokens(prompt: int, *, state: bool) -> int:
    """Return how many of a prompt's tokens are carried; 0: there is nothing to carry."""
    return prompt - 1 if state else prompt


def leave_last_token(request: Any) -> None:
    """Have this prefill instance stop before the request's last token, and sample one token only.

    A second one would be computed in the state that is to be carried.  ValueError: the prompt is no list of tokens.
    """
    if request.prompt_token_ids is None:
        raise ValueError("a prompt of embeddings, of a model with recurrent state: its last token cannot be left out")
    del request.prompt_token_ids[-1:]
    del request._all_token_ids[-1:]  # noqa: SLF001  # as vLLM's own connectors do it
    request.num_prompt_tokens -= 1
    request.max_tokens = 1
