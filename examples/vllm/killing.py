"""Instances that are killed and replaced, and a decode instance that has two prefill instances."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import msgspec

from examples.vllm import model
from examples.vllm.instances import Answer
from examples.vllm.setting import LONG, Found, Scenario, Setting, for_decode, found_of, many

#: how a prefill rank's room may end whose decode rank is killed: once all is there, in the middle, while it writes
CUT_OFF = ("NONE", "LINK_LOST", "WRITE_FAILED")
#: seconds in which an order that a rank has carries its call to the other side; the prompt takes several times as long
CALLED_S = 0.1
#: seconds in which NixlConnector, which knows the other side, has begun to read; the prompt takes longer
READ_S = 0.02


async def _awaiting(s: Setting) -> asyncio.Task[Answer]:
    """Have decode wait for a prompt's KV; NixlConnector needs prefill's answer first, and reads."""
    if s.prefill.carrier == "nixl":
        await s.one_after_another(0)
        first = await s.prefill.ask(s.prompts[LONG], 1, {"do_remote_decode": True})
        waits = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, for_decode(first)))
        await asyncio.sleep(READ_S)
        return waits
    _, theirs = s.prefill.hand_over()
    waits = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.5)
    return waits


async def killed(s: Setting) -> Found:
    """The prefill instance is killed while the decode instance waits, and replaced by one of the same name."""
    return await _after_kill(s, await _awaiting(s))


async def killed_between(s: Setting) -> Found:
    """The prefill instance has answered and is killed; the decode instance is asked, and computes the prompt itself."""
    first = await s.prefill.ask(s.prompts[LONG], 1, {"do_remote_decode": True})
    return await _after_kill(s, s.decode.ask(s.prompts[LONG], model.ANSWER, for_decode(first)))


async def _after_kill(s: Setting, waits: Awaitable[Answer]) -> Found:
    """The prefill instance is killed; the decode instance, which waits for it, answers all the same; then another one
    is in its place, and is asked for a prompt that the decode instance has not, and for that one, which it has."""
    begun = time.perf_counter()
    s.prefill.kill()
    answer = await waits
    took = answer.over - begun
    await s.replace(s.prefill)
    found = await many(s, s.at_once, [0, LONG])
    note = f"answered {took:.1f} s after the kill; then 2 requests by the instance that replaced it"
    got, want = [answer.tokens, *found.got], [s.answers[LONG], *found.want]
    return Found(got, want, killed=True, causes=("NONE", "LINK_LOST", "NO_ANSWER"), note=note)


async def decode_killed(s: Setting) -> Found:
    """The decode instance is killed while its prompt is computed, and replaced by one of the same name.

    They know each other, and it has called: what it had asked for ends with the link.  Of a decode instance that dies
    before it has called, prefill knows nothing, and keeps the KV for its successor until the TTL.  NixlConnector's is
    killed while it reads.
    """
    if s.prefill.carrier == "nixl":
        asked = [await _awaiting(s)]
    else:
        await s.one_after_another(0)
        await s.prefill.free()
        ours, theirs = s.prefill.hand_over()
        opened, loads = s.prefill.recorded("OpenRoom"), s.decode.recorded("Load")
        gone = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
        asked = [gone, asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))]
        await s.prefill.until("OpenRoom", opened)
        await s.decode.until("Load", loads)
        await asyncio.sleep(CALLED_S)
    begun = time.perf_counter()
    s.decode.kill()
    await asyncio.gather(*asked, return_exceptions=True)
    await s.prefill.free(120.0)
    note = f"prefill's blocks free {time.perf_counter() - begun:.1f} s after the kill"
    await s.replace(s.decode)
    found = await many(s, s.at_once, [0, LONG])
    return msgspec.structs.replace(found, killed=True, causes=CUT_OFF, note=note)


async def two_prefills(s: Setting) -> Found:
    """24 requests at once, every other one by another prefill instance, of another tensor parallelism."""
    which, many = list(range(8)) * 3, len(s.prefills)
    carried = await asyncio.gather(*[s.at_once_by(at, s.prefills[n % many]) for n, at in enumerate(which)])
    return found_of(s, which, carried)


async def one_of_two_killed(s: Setting) -> Found:
    """One of the prefill instances is killed while decode waits for it; the other one goes on, and it is replaced."""
    waits = await _awaiting(s)
    s.prefill.kill()
    others = await asyncio.gather(*[s.at_once_by(at, s.prefills[1]) for at in range(1, 7)])
    answer = await waits
    await s.replace(s.prefill)
    again = await s.at_once(0)
    found = found_of(s, [*range(1, 7), 0], [*others, again])
    got, want = [answer.tokens, *found.got], [s.answers[LONG], *found.want]
    return Found(got, want, found.lags, killed=True, causes=("NONE", "LINK_LOST", "NO_ANSWER"))


#: what is killed, by name
KILLING: dict[str, Scenario] = {"killed": killed, "killed between": killed_between, "decode killed": decode_killed}
#: of a pair with two prefill instances
OF_TWO: dict[str, Scenario] = {"two prefills": two_prefills, "one of two killed": one_of_two_killed}
