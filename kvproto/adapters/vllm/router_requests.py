"""Router requests: the bodies that a prefill and a decode instance get of a client's request.

Each request gets a room and a secret of its own, so both instances can be asked at once.  A request whose prompt cannot
be handed over as one room goes to the decode instance alone (`needs_no_prefill`), which computes the prompt itself.
"""

from __future__ import annotations

import secrets
from typing import Any

Params = dict[str, Any]
#: what only the instance that generates may have: with one token it is refused, or makes no sense
GENERATION = (
    "stream_options", "max_completion_tokens", "min_tokens", "n", "best_of", "use_beam_search", "logprobs",
    "top_logprobs", "echo",
)  # fmt: skip


def params_for(card: str) -> tuple[Params, Params]:
    """Return a request's `kv_transfer_params`, to the prefill instance with this card and to a decode one.

    The room is drawn here, so it is unique; the secret is shown by whoever fetches the KV: these two alone know it.
    """
    room, secret = secrets.randbits(63), secrets.token_hex(16)
    return (
        {"do_remote_decode": True, "room": room, "secret": secret},
        {"do_remote_prefill": True, "room": room, "secret": secret, "card": card},
    )


def prefill_body(body: Params, params: Params) -> Params:
    """The request as the prefill instance gets it: one token, once, no stream.

    A call of a tool that the client demands is no call after one token, and vLLM would refuse its own answer.
    """
    plain = {name: value for name, value in body.items() if name not in GENERATION}
    if plain.get("tool_choice") not in (None, "auto", "none"):
        plain["tool_choice"] = "none"  # the tools stay in the prompt
    return {**plain, "max_tokens": 1, "stream": False, "kv_transfer_params": params}


def needs_no_prefill(body: Params) -> bool:
    """Whether the decode instance is asked alone: several prompts, a beam search, scores of a prompt.

    Several prompts would be several rooms, and a request names one; embeddings are prompts beside `prompt`.  What is
    told of a prompt is computed with it.
    """
    prompt = body.get("prompt")
    several = isinstance(prompt, list) and len(prompt) > 1 and not all(isinstance(token, int) for token in prompt)
    told = body.get("prompt_logprobs") is not None or bool(body.get("echo") and body.get("logprobs") is not None)
    return several or told or body.get("prompt_embeds") is not None or bool(body.get("use_beam_search"))
