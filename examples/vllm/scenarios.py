"""What is done to a prefill and a decode instance, and what has to come of it.

A scenario asks, kills, gives up; it returns what was answered beside what had to be.  After each one both instances
have to give back every block, and what the ranks recorded is read: how rooms ended, and whether the digests of what was
gathered are those of what was scattered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from examples.vllm import model
from examples.vllm.instances import Answer, Instance
from examples.vllm.router import params_for

Tokens = list[int]
LONG = 7  #: the prompt of several chunks


class Setting(msgspec.Struct):
    """The instances, the prompts and their answers; `remake` puts a new prefill instance in the place of one."""

    prefill: Instance
    decode: Instance
    prompts: list[Tokens]
    answers: list[Tokens]
    out: Path
    ttl: float
    remake: Callable[[], Instance]

    async def one_after_another(self, at: int) -> tuple[Answer, float]:
        """The decode instance is asked with what the prefill instance has answered; milliseconds between the two."""
        first = await self.prefill.ask(self.prompts[at], 1, {"do_remote_decode": True})
        then = await self.decode.ask(self.prompts[at], model.ANSWER, first.params)
        return then, 1e3 * (then.first - first.over)

    async def at_once(self, at: int) -> tuple[Answer, float]:
        """Both are asked at once; milliseconds from the prefill instance's answer to the first token of the other."""
        ours, theirs = params_for(self.prefill.card)
        first, then = await asyncio.gather(
            self.prefill.ask(self.prompts[at], 1, ours), self.decode.ask(self.prompts[at], model.ANSWER, theirs)
        )
        return then, 1e3 * (then.first - first.over)


class Found(msgspec.Struct):
    """What was answered, beside what had to be; milliseconds of the hand-over; what else is to be said."""

    got: list[Tokens]
    want: list[Tokens]
    lags: list[float] = msgspec.field(default_factory=list)
    note: str = ""
    #: the answers have to be wrong
    control: bool = False


Scenario = Callable[[Setting], Awaitable[Found]]


async def _many(s: Setting, carry: Callable[[int], Awaitable[tuple[Answer, float]]], which: list[int]) -> Found:
    found = await asyncio.gather(*[carry(at) for at in which])
    computed = sorted({len(s.prompts[at]) - answer.cached for at, (answer, _) in zip(which, found, strict=True)})
    lags = [lag for _, lag in found]
    note = f"tokens of the prompt computed by decode: {computed[0]} to {computed[-1]}"
    return Found([answer.tokens for answer, _ in found], [s.answers[at] for at in which], lags, note)


async def sequential(s: Setting) -> Found:
    """8 prompts of 5 to 333 tokens, prefill in chunks of 64; the decode instance is asked afterwards."""
    return await _many(s, s.one_after_another, list(range(8)))


async def at_once(s: Setting) -> Found:
    """The same; both instances are asked at once."""
    return await _many(s, s.at_once, list(range(8)))


async def in_turn(s: Setting) -> Found:
    """The same, one request at a time, one instance after the other: what the hand-over takes."""
    found = [await s.one_after_another(at) for at in range(8)]
    return Found([answer.tokens for answer, _ in found], s.answers[:8], [lag for _, lag in found])


async def load(s: Setting) -> Found:
    """32 requests at once."""
    return await _many(s, s.at_once, list(range(8)) * 4)


async def prefix(s: Setting) -> Found:
    """Prompts that begin like others that both instances, or the decode instance, have in their caches."""
    await s.one_after_another(3)
    await s.decode.ask(s.prompts[4][:224], 1)
    found = await _many(s, s.at_once, [8, 9])
    again = await _many(s, s.one_after_another, [3])
    return Found([*found.got, *again.got], [*found.want, *again.want], [*found.lags, *again.lags])


async def preempted(s: Setting) -> Found:
    """The prefill instance takes the blocks of a prompt away when it is half computed, and computes it anew."""
    await s.prefill.free()
    asked = asyncio.create_task(s.at_once(LONG))
    await _opened(s)
    await s.prefill.engine.reset_prefix_cache(reset_running_requests=True)
    answer, lag = await asked
    return Found([answer.tokens], [s.answers[LONG]], [lag])


async def _opened(s: Setting) -> None:
    """The prefill instance begins to compute the next prompt."""
    record = s.out / "P0.jsonl"
    before = record.read_text().count("OpenRoom")
    while record.read_text().count("OpenRoom") == before:  # noqa: ASYNC110  # another process writes it
        await asyncio.sleep(2e-3)


async def _leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def decode_leaves_first(s: Setting) -> Found:
    """The client leaves while the decode instance waits; the prefill instance is asked afterwards."""
    ours, theirs = params_for(s.prefill.card)
    task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.0)
    await _leave(task)
    await s.prefill.ask(s.prompts[LONG], 1, ours)
    return Found([], [])


async def decode_leaves_midway(s: Setting) -> Found:
    """The client leaves the decode instance at eight moments of a prompt's computation and transfer."""
    for moment in range(8):
        ours, theirs = params_for(s.prefill.card)
        ahead = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
        task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
        await asyncio.sleep(0.05 * moment)
        await _leave(task)
        await ahead
    return Found([], [])


async def decode_leaves_between(s: Setting) -> Found:
    """The client leaves the decode instance at four moments after the prefill instance has answered."""
    for moment in (0.0, 0.01, 0.05, 0.2):
        first = await s.prefill.ask(s.prompts[LONG], 1, {"do_remote_decode": True})
        task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, first.params))
        await asyncio.sleep(moment)
        await _leave(task)
    return Found([], [])


async def prefill_leaves_early(s: Setting) -> Found:
    """The client leaves the prefill instance before the prompt has blocks there; decode computes it itself."""
    ours, theirs = params_for(s.prefill.card)
    then = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    others = [asyncio.create_task(s.prefill.ask(prompt, 1)) for prompt in s.prompts[:8]]
    task = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
    await asyncio.sleep(0.2)  # it stands in the queue, behind the others
    begun = time.perf_counter()
    await _leave(task)
    answer = await then
    await asyncio.gather(*others)
    return Found([answer.tokens], [s.answers[LONG]], note=f"answered {answer.over - begun:.1f} s later")


async def prefill_leaves_midway(s: Setting) -> Found:
    """The client leaves the prefill instance while the prompt is computed; decode computes it itself."""
    ours, theirs = params_for(s.prefill.card)
    await s.prefill.free()
    then = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    task = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
    await _opened(s)
    begun = time.perf_counter()
    await _leave(task)
    answer = await then
    return Found([answer.tokens], [s.answers[LONG]], note=f"answered {answer.over - begun:.1f} s later")


async def never_fetched(s: Setting) -> Found:
    """The client leaves between the two instances: nobody fetches."""
    begun = time.perf_counter()
    await s.prefill.ask(s.prompts[2], 1, {"do_remote_decode": True})
    await s.prefill.free(s.ttl + 20)
    return Found([], [], note=f"blocks free after {time.perf_counter() - begun:.1f} s, TTL {s.ttl:g} s")


async def too_late(s: Setting) -> Found:
    """The decode instance is asked when the prefill instance has given the KV up."""
    first = await s.prefill.ask(s.prompts[4], 1, {"do_remote_decode": True})
    await asyncio.sleep(s.ttl + 2)
    begun = time.perf_counter()
    answer = await s.decode.ask(s.prompts[4], model.ANSWER, first.params)
    return Found([answer.tokens], [s.answers[4]], note=f"answered {answer.over - begun:.1f} s later")


async def spoiled(s: Setting) -> Found:
    """Control: two heads of one layer are exchanged after each load, and the tokens have to differ."""
    (s.out / "spoil").touch()
    try:
        found = await _many(s, s.at_once, list(range(8)))
    finally:
        (s.out / "spoil").unlink()
    return msgspec.structs.replace(found, control=True)


async def killed(s: Setting) -> Found:
    """The prefill instance is killed while the decode instance waits, and replaced by one of the same name."""
    _, theirs = params_for(s.prefill.card)
    waits = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.5)
    begun = time.perf_counter()
    s.prefill.kill()
    answer = await waits
    s.prefill = await asyncio.to_thread(s.remake)
    found = await _many(s, s.at_once, [0, LONG])
    note = f"answered {answer.over - begun:.1f} s after the kill; then 2 requests by the instance that replaced it"
    return Found([answer.tokens, *found.got], [s.answers[LONG], *found.want], note=note)


async def killed_between(s: Setting) -> Found:
    """The prefill instance has answered and is killed; the decode instance is asked, and computes the prompt itself."""
    first = await s.prefill.ask(s.prompts[LONG], 1, {"do_remote_decode": True})
    s.prefill.kill()
    begun = time.perf_counter()
    answer = await s.decode.ask(s.prompts[LONG], model.ANSWER, first.params)
    s.prefill = await asyncio.to_thread(s.remake)
    found = await _many(s, s.one_after_another, [0, LONG])
    note = f"answered {answer.over - begun:.1f} s after the kill; then 2 requests by the instance that replaced it"
    return Found([answer.tokens, *found.got], [s.answers[LONG], *found.want], note=note)


SCENARIOS: dict[str, Scenario] = {
    "sequential": sequential, "in turn": in_turn, "at once": at_once, "prefix hits": prefix, "32 at once": load,
    "preempted": preempted, "decode leaves first": decode_leaves_first, "decode leaves midway": decode_leaves_midway,
    "decode leaves between": decode_leaves_between, "prefill leaves early": prefill_leaves_early,
    "prefill leaves midway": prefill_leaves_midway, "never fetched": never_fetched, "too late": too_late,
    "control": spoiled, "killed": killed, "killed between": killed_between,
}  # fmt: skip
#: those that an engine's own connector is put through, too
COMPARED = ("sequential", "in turn", "decode leaves between", "never fetched", "too late", "killed between")
