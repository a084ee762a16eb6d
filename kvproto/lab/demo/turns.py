"""Turns: conversations whose next prompt is what was said so far, and something more.

A turn is prefilled on P and answered on D.  P has the KV of what it has prefilled, and D alone that of the answer.  So
D's KV of the answer goes back to P, which computes the new input alone; then P's KV of the input goes to D.  Both sides
are peer endpoints, and while one conversation goes one way another goes the other way.

The judge is one process that carries the same conversations through the unsharded model, in one cache from beginning to
end.  D's tokens and logits, and the KV of both sides, have to be its, bit for bit.

What is saved is measured: when all is judged, P computes the answers' KV itself, as without a way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvproto.lab.demo.run import Run
from kvproto.lab.demo.verify import Sheet

#: the input of a further turn, as a share of the first prompt
ASKED = 8


@dataclass(frozen=True)
class Turn:
    """One turn: `held` tokens have KV before it, its prompt has `tokens`, and `new` are generated."""

    held: int
    tokens: int
    new: int

    @property
    def after(self) -> int:
        """Tokens that have KV after it: the last one of the answer has none yet."""
        return self.tokens + self.new - 1

    @property
    def input(self) -> int:
        """Tokens that P computes: the last one of the answer before, and what was asked."""
        return self.tokens - self.held


@dataclass(frozen=True)
class TurnsRun:
    """A run of conversations; the rooms of its job are the last prompts, with all that was said before."""

    run: Run
    turns: Mapping[int, tuple[Turn, ...]]

    def at_prefill(self, room: int, turn: int) -> int:
        """Tokens that P has itself of what is known after this turn, in whole pages."""
        size = self.run.job.prefill.page_size
        return self.turns[room][turn].tokens // size * size

    def at_decode(self, room: int, turn: int) -> int:
        """Tokens of this turn's prompt that D has, in whole pages."""
        size = self.run.job.decode.page_size
        return self.turns[room][turn].held // size * size


@dataclass(frozen=True)
class TurnsTally:
    """A rank's account at the end: complaints, the KV of its rooms, and the bytes that it has sent."""

    wrong: list[str]
    sheets: dict[int, Sheet]
    sent: int


def make_turns(run: Run, count: int) -> TurnsRun:
    """Have each room of the run be a conversation of so many turns, of which its prompt is the first.

    ValueError: an answer has no KV to send back.
    """
    turns = dict[int, tuple[Turn, ...]]()
    for room in run.job.rooms:
        if room.new < 2:  # the last token of an answer has no KV, and belongs to the next prompt
            raise ValueError("an answer of one token has no KV that could go back: --turns with --new 2 or more")
        made, held = list[Turn](), 0
        for number in range(count):
            asked = 1 + max(1, room.tokens // ASKED) if number else room.tokens
            made.append(Turn(held, held + asked, room.new))
            held = made[-1].after
        turns[room.room] = tuple(made)
    last = tuple(replace(room, tokens=turns[room.room][-1].tokens) for room in run.job.rooms)
    return TurnsRun(replace(run, job=replace(run.job, rooms=last)), turns)
