"""Load: clients ask while something happens to the instances, and judge each answer.

Each client asks for the next prompt soon after it has its answer, every other time as a stream.  A load that took every
core would slow the starts of instances that replace others.  An answer is compared with the whole model's by its
tokens.  A decode instance that computes a prompt itself, since its KV did not come, says so in its usage: it has cached
less than all but the last token.

Where a router takes prompts as text alone (`Spelling`), an answer is text, too, and an instance without the KV of a
prompt fails the request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import aiohttp
import msgspec

from examples.vllm.reference import Reference

#: seconds for one answer
PATIENCE = 180.0
#: seconds between a client's answer and what it asks next
THINK_S = 1.0


class Spelling(NamedTuple):
    """Tokens as text, and text as tokens."""

    write: Callable[[list[int]], str]
    read: Callable[[str], list[int]]


class Answer(msgspec.Struct):
    """Tokens of an answer, and what its usage says of the prompt; `fault`: why there is none."""

    tokens: list[int] = []
    prompt: int = 0
    cached: int = 0
    fault: str = ""

    @property
    def computed(self) -> bool:
        """Whether the decode instance has computed the prompt itself; the last token always is."""
        return not self.fault and self.cached < self.prompt - 1


class Tally(msgspec.Struct):
    """Counts of a load; in seconds `pause`, the longest time between two answers, and `longest`, of one."""

    requests: int = 0
    answered: int = 0
    equal: int = 0
    computed: int = 0
    longest: float = 0.0
    pause: float = 0.0
    faults: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Requests without an answer."""
        return self.requests - self.answered


class Load:
    """Some clients; one has the first address, the next one the second, and so on."""

    def __init__(
        self, urls: Sequence[str], session: aiohttp.ClientSession, prompts: list[list[int]], want: list[Reference],
        tokens: int, spelling: Spelling | None = None,
    ) -> None:  # fmt: skip
        self.spelling = spelling
        self.urls, self.session, self.prompts, self.want, self.tokens = urls, session, prompts, want, tokens
        self.tally, self._serial, self._last = Tally(), itertools.count(), 0.0
        self._over = asyncio.Event()

    async def run(self, clients: int) -> None:
        """Ask until `stop`."""
        self._last = time.monotonic()
        await asyncio.gather(*[self._client(self.urls[at % len(self.urls)]) for at in range(clients)])

    def stop(self) -> None:
        """Let each client have its answer, and ask no more."""
        self._over.set()

    async def more(self, count: int, seconds: float) -> None:
        """Wait until so many more answers have come; TimeoutError: they have not."""
        until = self.tally.answered + count
        async with asyncio.timeout(seconds):
            while self.tally.answered < until:  # noqa: ASYNC110  # the clients' own tasks count
                await asyncio.sleep(0.05)

    async def _client(self, url: str) -> None:
        while not self._over.is_set():
            at = next(self._serial)
            await self._one(url, at % len(self.prompts), stream=bool(at // len(self.prompts) % 2))
            await asyncio.sleep(THINK_S)

    async def _one(self, url: str, at: int, *, stream: bool) -> None:
        begun, tally = time.monotonic(), self.tally
        tally.requests += 1
        answer = await ask(self.session, url, self.prompts[at], self.tokens, self.spelling, stream=stream)
        now = time.monotonic()
        tally.longest, tally.pause = max(tally.longest, now - begun), max(tally.pause, now - self._last)
        if answer.fault:
            tally.faults[answer.fault] += 1
            return
        self._last = now
        tally.answered += 1
        tally.equal += self.want[at].fits(answer.tokens) == "equal"
        tally.computed += answer.computed


async def ask(
    session: aiohttp.ClientSession, url: str, prompt: list[int], tokens: int, spelling: Spelling | None = None, *,
    stream: bool = False,
) -> Answer:  # fmt: skip
    """Ask for greedy tokens."""
    body: dict[str, Any] = {
        "model": "m", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": stream,
        **({"prompt": spelling.write(prompt)} if spelling else {"prompt": prompt, "return_token_ids": True}),
    }  # fmt: skip
    if stream:
        body["stream_options"] = {"include_usage": True}
    try:
        timeout = aiohttp.ClientTimeout(PATIENCE)
        async with session.post(f"{url}/v1/completions", json=body, timeout=timeout) as said:
            text = await said.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer(fault=f"{'a stream' if stream else 'an answer'} broke off: {type(error).__name__}")
    if said.status != HTTPStatus.OK:
        return Answer(fault=f"status {said.status}: {text[:120]}")
    return read(text, spelling)


def read(text: str, spelling: Spelling | None = None) -> Answer:
    """Return the answer of this body, or of this stream."""
    streams, answer, said_so_far = text.startswith("data:"), Answer(), ""
    for line in text.splitlines() if streams else [f"data: {text}"]:
        if not line.startswith("data: {"):
            continue
        said = json.loads(line[6:])
        if "error" in said:
            return Answer(fault=f"an error in a stream: {str(said['error'])[:120]}")
        for choice in said["choices"]:
            answer.tokens += choice.get("token_ids") or []
            said_so_far += choice.get("text") or ""
            if choice.get("finish_reason") not in (None, "length"):
                return Answer(fault=f"it ends by {choice['finish_reason']}")
        if usage := said.get("usage"):
            answer.prompt = usage["prompt_tokens"]
            answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if spelling:
        answer.tokens, answer.cached = spelling.read(said_so_far), answer.prompt
    return answer
