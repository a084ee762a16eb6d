"""Drafting: a draft proposes tokens at decode, whose KV of the prompt has come from prefill.

The draft is the model itself, so its next tokens are the model's: all of them are accepted where its KV of the prompt
is right.  Tokens do not tell, since the model judges each.

vLLM pads the first step of a prompt that came whole to the length of others, with tokens that no draft has proposed; it
counts them, too, and none is accepted.
"""

from __future__ import annotations

import msgspec

from examples.vllm import model
from examples.vllm.setting import Found, Scenario, Setting, found_of


def counted() -> tuple[int, int]:
    """Return how many tokens drafts proposed and how many were accepted, at the youngest instance."""
    from vllm.v1.metrics.reader import get_metrics_snapshot

    values = {each.name: each.value for each in get_metrics_snapshot() if hasattr(each, "value")}
    proposed, accepted = (values[f"vllm:spec_decode_num_{what}_tokens"] for what in ("draft", "accepted"))
    return int(proposed), int(accepted)


async def _drafted(s: Setting) -> tuple[Found, int, int]:
    before, which = counted(), list(range(8))
    found = found_of(s, which, [await s.one_after_another(at) for at in which])
    proposed, accepted = (now - then for now, then in zip(counted(), before, strict=True))
    proposed -= model.DRAFTED * len(which)
    return msgspec.structs.replace(found, note=f"{accepted} of {proposed} drafted tokens accepted"), proposed, accepted


async def accepted_drafts(s: Setting) -> Found:
    """8 prompts in turn: every drafted token is accepted."""
    found, proposed, accepted = await _drafted(s)
    lost = f"{proposed - accepted} drafted tokens were not the model's"
    return msgspec.structs.replace(found, faults=() if 0 < accepted == proposed else (lost,))


async def draft_spoiled(s: Setting) -> Found:
    """Control: two heads of a layer of the draft are exchanged after loads: fewer are accepted."""
    (s.out / "spoil-draft").touch()
    try:
        found, proposed, accepted = await _drafted(s)
    finally:
        (s.out / "spoil-draft").unlink()
    return msgspec.structs.replace(found, faults=() if accepted < proposed else ("it was not noticed",))


DRAFTING: dict[str, Scenario] = {"drafts accepted": accepted_drafts, "draft spoiled": draft_spoiled}
