"""Seen: what a row of SGLang's runs tells beside its judgement, in words."""

from __future__ import annotations

from typing import Any

SAID = {
    "other_heard_s": "the other side is answered in {} s", "decode_heard_s": "decode is answered in {} s",
    "aborted": "{} aborted", "both_answered": "{} times both sides answer", "noticed": "noticed {}",
    "lead": "each token leads by {} or more", "noise": "log probabilities differ by up to {}",
    "verified": "drafts are verified in {} forwards", "verified_alone": "by one engine in {}",
    "cable_mb": "{} MB through the cable",
}  # fmt: skip


def seen(row: dict[str, Any]) -> str:
    """Return all of it; empty: nothing was noted."""
    return "; ".join(text.format(row[name]) for name, text in SAID.items() if name in row)
