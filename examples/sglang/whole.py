"""Whole: one engine of SGLang that prefills and decodes by itself, as the judge of some pairs.

In bfloat16 an answer depends on the kernels, on how many ranks share a model and on what else is in a batch: wherever
two tokens are nearly as likely, another one may come first.  So the judge is an engine with the same kernels and the
same type, and it chooses the prompts.  Of those that are drawn it keeps the ones of whose answer each token is ahead of
the next best by `LEAD` in log probability, which is far more than such noise is; how much noise there was is told with
each row.  Then an answer is right if it is equal, as in float32.

Few of a usual model's answers are so clear, since it finds many of its tokens likely.  A model that is judged this way
says four (`model.SPOKEN`): of a dozen drawn prompts about one is kept.  Pairs of one model share the judge, and as
prompts are drawn by the name of a scenario, they get the same ones.

A pair with drafts is judged in float32 by an engine that has the same drafts: it tells in how many forwards they are
verified, so how many of them are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from examples.sglang.instance import Instance
from examples.sglang.messages import Answer, Request, Start
from examples.vllm.reference import Reference

#: of the most likely token over the next, in log probability
LEAD: Final = 0.25
#: how many prompts are drawn at a time for each that is wanted, and how many times
DRAWN, TIMES = 8, 24
#: seconds for the answers to all prompts of one drawing, and how many of them the engine computes at once
ANSWERS_S, AT_ONCE = {"cpu": 1200.0, "cuda": 240.0}, 64
Prompt = list[int]


class Sure(Reference):
    """An answer that noise does not change.

    `logs`: the log probability of each token; `lead`: by how much the closest one is ahead of the next best.
    """

    logs: list[float] = msgspec.field(default_factory=list)
    lead: float = 0.0
    #: forwards in which drafts were verified
    verified: int = 0

    def noise(self, answer: Answer) -> float:
        """Return by how much a token's log probability differs in this answer, while tokens are equal."""
        both = zip(self.tokens, answer.tokens, self.logs, answer.logs, strict=False)
        return max((abs(ours - theirs) for one, other, ours, theirs in both if one == other), default=0.0)


class Whole:
    """The engine; it starts beside the pairs, and stands still while it is not asked.

    `lead`: of an answer that is sure; 0: every answer is.
    """

    def __init__(self, start: Start, tokens: int, lead: float) -> None:
        self.engine, self.tokens, self.lead, self.asked = Instance(start), tokens, lead, 0
        #: of each prompt that was drawn: its answer, or None if it is not sure
        self.known: dict[tuple[int, ...], Sure | None] = {}

    def choose(self, lengths: list[int], draw: Callable[[int], Prompt]) -> list[tuple[Prompt, Sure]]:
        """Draw a prompt of each length whose answer is sure; RuntimeError: there is none among many."""
        found: dict[int, tuple[Prompt, Sure]] = {}
        for _ in range(TIMES):
            lacking = [at for at in range(len(lengths)) if at not in found]
            if not lacking:
                return [found[at] for at in range(len(lengths))]
            drawn = [(at, draw(lengths[at])) for at in lacking for _ in range(DRAWN if self.lead else 1)]
            self._ask([prompt for _, prompt in drawn])
            for at, prompt in drawn:
                if (sure := self.known[tuple(prompt)]) is not None:
                    found.setdefault(at, (prompt, sure))
        raise RuntimeError(f"no answer of one engine is ahead by {self.lead} at each token, of {DRAWN * TIMES} prompts")

    def _ask(self, prompts: list[Prompt]) -> None:
        new = [prompt for prompt in prompts if tuple(prompt) not in self.known]
        if not new:
            return
        self.engine.ready()
        seconds = ANSWERS_S[self.engine.start.device]
        self.engine.go_on()
        try:
            requests = [
                Request(f"w{at}", prompt, self.tokens, 0, 0, weighed=self.lead > 0)
                for at, prompt in enumerate(new, self.asked)
            ]
            self.asked += len(new)
            for request in requests:
                self.engine.ask(request)
            answers = self.engine.wait(*(request.rid for request in requests), seconds=seconds)
        finally:
            self.engine.pause()
        for prompt, answer in zip(new, answers, strict=True):
            if answer.error:
                raise RuntimeError(f"one engine for all: {answer.error}")
            self.known[tuple(prompt)] = weigh(answer, self.lead)

    def close(self) -> None:
        """End it."""
        self.engine.go_on()
        self.engine.close()


def weigh(answer: Answer, least: float) -> Sure | None:
    """Return the answer as one that others are compared with; None: another one would be as right."""
    lead = min(answer.lead, default=0.0)
    return Sure(answer.tokens, [], answer.logs, lead, answer.verified) if lead >= least else None
