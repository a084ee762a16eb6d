"""What a scenario has in its hands: instances, prompts, the answers that there have to be; and what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from examples.vllm import model
from examples.vllm.instances import Answer, Instance
from examples.vllm.reference import Reference

Tokens = list[int]
LONG = 7  #: the prompt of several chunks
WELL = ("NONE",)


class Setting(msgspec.Struct):
    """The instances, the prompts and their answers; `remake` makes one anew that was killed, of the same name."""

    prefills: list[Instance]
    decode: Instance
    prompts: list[Tokens]
    answers: list[Reference]
    out: Path
    ttl: float
    wait: float
    remake: Callable[[Instance], Instance]
    #: bytes that have come through the cable between two hosts; none: there is one host
    crossed: Callable[[], int] | None = None

    @property
    def prefill(self) -> Instance:
        """The one that most scenarios are about."""
        return self.prefills[0]

    @property
    def instances(self) -> list[Instance]:
        """All."""
        return [*self.prefills, self.decode]

    async def warm(self, instance: Instance) -> None:
        """Have it compute something: the first forward of a process takes long."""
        await instance.ask(self.prompts[0], 2)
        await instance.free()

    async def one_after_another(self, at: int) -> tuple[Answer, float]:
        """The decode instance is asked with what the prefill instance has answered; milliseconds between the two."""
        first = await self.prefill.ask(self.prompts[at], 1, {"do_remote_decode": True})
        then = await self.decode.ask(self.prompts[at], model.ANSWER, for_decode(first))
        return then, 1e3 * (then.first - first.over)

    async def at_once(self, at: int) -> tuple[Answer, float]:
        """Both are asked at once; milliseconds from the prefill instance's answer to the first token of the other."""
        return await self.at_once_by(at, self.prefill)

    async def at_once_by(self, at: int, prefill: Instance) -> tuple[Answer, float]:
        """The same, by this prefill instance; NixlConnector needs its answer first."""
        if prefill.carrier == "nixl":
            return await self.one_after_another(at)
        ours, theirs = prefill.hand_over()
        first, then = await asyncio.gather(
            prefill.ask(self.prompts[at], 1, ours), self.decode.ask(self.prompts[at], model.ANSWER, theirs)
        )
        return then, 1e3 * (then.first - first.over)

    async def replace(self, killed: Instance) -> None:
        """Another one is in its place."""
        made = await asyncio.to_thread(self.remake, killed)
        await self.warm(made)
        if killed is self.decode:
            self.decode = made
        else:
            self.prefills[self.prefills.index(killed)] = made


def for_decode(first: Answer) -> dict[str, Any]:
    """Parameters for the decode instance, without the prefill instance's own cache hits: it reports them as its own."""
    return {name: value for name, value in first.params.items() if name != "remote_prefill_cached_tokens"}


class Found(msgspec.Struct):
    """What was answered, beside what had to be; milliseconds of the hand-over; what else is to be said."""

    got: list[Tokens]
    want: list[Reference]
    lags: list[float] = msgspec.field(default_factory=list)
    #: tokens of a prompt that the decode instance has computed itself, at most; None: all, as it must be
    computed: int | None = None
    note: str = ""
    #: the answers have to be wrong; an instance was killed
    control: bool = False
    killed: bool = False
    #: what else is not as it must be
    faults: tuple[str, ...] = ()
    #: how rooms may end
    causes: tuple[str, ...] = WELL


Scenario = Callable[[Setting], Awaitable[Found]]


def found_of(s: Setting, which: list[int], carried: list[tuple[Answer, float]]) -> Found:
    """Of these prompts, what was answered, and after how many milliseconds."""
    computed = max(len(s.prompts[at]) - answer.cached for at, (answer, _) in zip(which, carried, strict=True))
    answers = [answer.tokens for answer, _ in carried]
    return Found(answers, [s.answers[at] for at in which], [lag for _, lag in carried], computed)


async def many(s: Setting, carry: Callable[[int], Awaitable[tuple[Answer, float]]], which: list[int]) -> Found:
    """All of these prompts at once."""
    return found_of(s, which, await asyncio.gather(*[carry(at) for at in which]))


def together(*parts: Found) -> Found:
    """One after the other, as one."""
    got, want, lags = ([each for part in parts for each in getattr(part, name)] for name in ("got", "want", "lags"))
    return Found(got, want, lags, max(part.computed or 0 for part in parts))
