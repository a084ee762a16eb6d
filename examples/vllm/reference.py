"""Reference: an answer of the whole model, with which others are compared."""

from __future__ import annotations

from typing import Literal

import msgspec


class Reference(msgspec.Struct):
    """An answer of the whole model: its tokens, and by token those that are as right as it."""

    tokens: list[int]
    near: list[list[int]] = []

    def fits(self, got: list[int]) -> Literal["equal", "tie", "other"]:
        """How this answer compares: a tie is as right, and equal before."""
        at = next((at for at, (one, other) in enumerate(zip(got, self.tokens, strict=False)) if one != other), None)
        if at is None:
            return "equal" if len(got) == len(self.tokens) else "other"
        return "tie" if self.near and got[at] in self.near[at] else "other"
