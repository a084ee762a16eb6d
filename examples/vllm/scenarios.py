"""What is done to a prefill and a decode instance, and what has to come of it.

A scenario asks, takes away, gives up; it returns what was answered beside what had to be, and how rooms may end.  After
each one all instances have to give back every block, and what the ranks recorded is judged (`examples.vllm.judging`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from examples.vllm import model
from examples.vllm.compiling import COMPILING
from examples.vllm.drafting import DRAFTING
from examples.vllm.killing import KILLING
from examples.vllm.setting import LONG, Found, Scenario, Setting, for_decode, found_of, many, together

#: how a room may end that the one, or the other, instance's request has left
LEFT_P, LEFT_D = ("PREFILL_ABORTED",), ("NONE", "DECODE_ABORTED", "PEERS_MISSING")


async def sequential(s: Setting) -> Found:
    """8 prompts of 5 to 333 tokens, prefill in chunks of 64; the decode instance is asked afterwards."""
    return await many(s, s.one_after_another, list(range(8)))


async def at_once(s: Setting) -> Found:
    """The same; both instances are asked at once."""
    return await many(s, s.at_once, list(range(8)))


async def in_turn(s: Setting) -> Found:
    """The same, one request at a time, one instance after the other: what the hand-over takes."""
    return found_of(s, list(range(8)), [await s.one_after_another(at) for at in range(8)])


async def load(s: Setting) -> Found:
    """32 requests at once."""
    return await many(s, s.at_once, list(range(8)) * 4)


async def prefix(s: Setting) -> Found:
    """Prompts that begin like others that both instances, or the decode instance, have in their caches."""
    await s.one_after_another(3)
    await s.decode.ask(s.prompts[4][:224], 1)
    return together(await many(s, s.at_once, [8, 9]), await many(s, s.one_after_another, [3]))


async def preempted(s: Setting) -> Found:
    """The prefill instance takes the blocks of a prompt away when it is half computed, and computes it anew."""
    await s.prefill.free()
    taken, opened = s.prefill.recorded("Withdraw"), s.prefill.recorded("OpenRoom")
    asked = asyncio.create_task(many(s, s.at_once, [LONG]))
    await s.prefill.until("OpenRoom", opened)
    await s.prefill.engine.reset_prefix_cache(reset_running_requests=True)
    found = await asked
    return msgspec.structs.replace(found, note=f"taken away {s.prefill.recorded('Withdraw') - taken} times")


async def _leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def decode_leaves_first(s: Setting) -> Found:
    """The client leaves while the decode instance waits; the prefill instance is asked afterwards."""
    ours, theirs = s.prefill.hand_over()
    task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.0)
    await _leave(task)
    await s.prefill.ask(s.prompts[LONG], 1, ours)
    return Found([], [], causes=("DECODE_ABORTED",))


async def decode_leaves_midway(s: Setting) -> Found:
    """The client leaves the decode instance at eight moments of a prompt's computation and transfer."""
    for moment in range(8):
        ours, theirs = s.prefill.hand_over()
        ahead = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
        task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
        await asyncio.sleep(0.05 * moment)
        await _leave(task)
        await ahead
    return Found([], [], causes=LEFT_D)


async def decode_leaves_between(s: Setting) -> Found:
    """The client leaves the decode instance at four moments after the prefill instance has answered."""
    for moment in (0.0, 0.01, 0.05, 0.2):
        first = await s.prefill.ask(s.prompts[LONG], 1, {"do_remote_decode": True})
        task = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, for_decode(first)))
        await asyncio.sleep(moment)
        await _leave(task)
    return Found([], [], causes=LEFT_D)


async def prefill_leaves_early(s: Setting) -> Found:
    """The client leaves the prefill instance before the prompt has blocks there; decode computes it itself."""
    ours, theirs = s.prefill.hand_over()
    then = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    others = [asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1)) for _ in range(8)]
    arrived, opened = s.prefill.recorded("arrived"), s.prefill.recorded("OpenRoom")
    task = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
    await s.prefill.until("arrived", arrived + len(others))  # it stands in the queue, behind the others
    begun = time.perf_counter()
    await _leave(task)
    answer = await then
    await asyncio.gather(*others)
    early = "" if s.prefill.recorded("OpenRoom") == opened else ": it had blocks"
    note = f"answered {answer.over - begun:.1f} s later{early}"
    return Found([answer.tokens], [s.answers[LONG]], causes=LEFT_P, note=note)


async def prefill_never_asked(s: Setting) -> Found:
    """The client leaves before the prefill instance has heard of the request; decode computes it itself."""
    _, theirs = s.prefill.hand_over()
    begun = time.perf_counter()
    answer = await s.decode.ask(s.prompts[LONG], model.ANSWER, theirs)
    note = f"answered {answer.over - begun:.1f} s later, `wait` is {s.wait:g} s"
    return Found([answer.tokens], [s.answers[LONG]], causes=("NEVER_OPENED",), note=note)


async def prefill_leaves_midway(s: Setting) -> Found:
    """The client leaves the prefill instance while the prompt is computed; decode computes it itself."""
    ours, theirs = s.prefill.hand_over()
    await s.prefill.free()
    opened = s.prefill.recorded("OpenRoom")
    then = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    task = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
    await s.prefill.until("OpenRoom", opened)
    begun = time.perf_counter()
    await _leave(task)
    answer = await then
    note = f"answered {answer.over - begun:.1f} s later"
    return Found([answer.tokens], [s.answers[LONG]], causes=LEFT_P, note=note)


async def never_fetched(s: Setting) -> Found:
    """The client leaves between the two instances: nobody fetches."""
    begun = time.perf_counter()
    await s.prefill.ask(s.prompts[2], 1, {"do_remote_decode": True})
    await s.prefill.free(s.ttl + 20)
    note = f"blocks free after {time.perf_counter() - begun:.1f} s, TTL {s.ttl:g} s"
    return Found([], [], causes=("PEERS_MISSING",), note=note)


async def too_late(s: Setting) -> Found:
    """The decode instance is asked when the prefill instance has given the KV up."""
    first = await s.prefill.ask(s.prompts[4], 1, {"do_remote_decode": True})
    await asyncio.sleep(s.ttl + 2)
    begun = time.perf_counter()
    answer = await s.decode.ask(s.prompts[4], model.ANSWER, for_decode(first))
    note = f"answered {answer.over - begun:.1f} s later"
    return Found([answer.tokens], [s.answers[4]], causes=("PEERS_MISSING",), note=note)


async def spoiled(s: Setting) -> Found:
    """Control: two heads of one layer are exchanged after each load, and the tokens have to differ."""
    (s.out / "spoil").touch()
    try:
        found = await many(s, s.at_once, list(range(8)))
    finally:
        (s.out / "spoil").unlink()
    return msgspec.structs.replace(found, control=True)


SCENARIOS: dict[str, Scenario] = {
    "sequential": sequential, "in turn": in_turn, "at once": at_once, "prefix hits": prefix, "32 at once": load,
    "preempted": preempted, "decode leaves first": decode_leaves_first, "decode leaves midway": decode_leaves_midway,
    "decode leaves between": decode_leaves_between, "prefill leaves early": prefill_leaves_early,
    "prefill leaves midway": prefill_leaves_midway, "prefill never asked": prefill_never_asked,
    "never fetched": never_fetched, "too late": too_late, "control": spoiled, **KILLING, **COMPILING, **DRAFTING,
}  # fmt: skip
#: those in which a request or an instance ends too early, but for one of each, which all dense pairs are put through
ENDS = (
    "decode leaves first", "decode leaves between", "prefill leaves early", "prefill leaves midway",
    "prefill never asked", "never fetched", "too late", "killed between", "decode killed",
)  # fmt: skip
#: those that an engine's own connector is put through, too, and those that it is at a pair with stages or with a model
#: that is not dense; those that are timed without digests
COMPARED = (
    "sequential", "in turn", "32 at once", "decode leaves between", "never fetched", "too late", "killed between",
)  # fmt: skip
COMPARED_ELSEWHERE = ("in turn", "drafts accepted", "two prefills", "one of two killed")
TIMED = ("sequential", "in turn", "32 at once")
#: those of instances with pipeline stages
OF_STAGES = (
    "sequential", "in turn", "at once", "prefix hits", "preempted", "decode leaves midway", "decode leaves between",
    "control",
)  # fmt: skip
#: those of instances on two hosts
OF_HOSTS = (
    "sequential", "in turn", "at once", "prefix hits", "32 at once", "decode leaves midway", "control",
    "killed between", "decode killed",
)  # fmt: skip
#: those of a model with windows, and of one without prefix hits: its prompts end in a state, or it has latents, with
#: which vLLM computes prompts whole on a CPU
OF_WINDOWS = ("sequential", "in turn", "at once", "prefix hits", "preempted", "control")
OF_HYBRIDS = ("sequential", "in turn", "at once", "decode leaves between", "control")
