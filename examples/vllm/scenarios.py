"""What is done to prefill and decode instances, and what has to come of it.

A scenario asks, kills, gives up; it returns what was answered beside what had to be, and how rooms may end.  After each
one all instances have to give back every block, and what the ranks recorded is judged (`examples.vllm.judging`).
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
WELL = ("NONE",)
#: how a room may end that the one, or the other, instance's request has left
LEFT_P, LEFT_D = ("PREFILL_ABORTED",), ("NONE", "DECODE_ABORTED", "PEERS_MISSING")


class Setting(msgspec.Struct):
    """The instances, the prompts and their answers; `remake` makes one anew that was killed, of the same name."""

    prefills: list[Instance]
    decode: Instance
    prompts: list[Tokens]
    answers: list[Tokens]
    out: Path
    ttl: float
    wait: float
    remake: Callable[[Instance], Instance]

    @property
    def prefill(self) -> Instance:
        """The one that most scenarios are about."""
        return self.prefills[0]

    @property
    def instances(self) -> list[Instance]:
        """All."""
        return [*self.prefills, self.decode]

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
        ours, theirs = params_for(prefill.card)
        first, then = await asyncio.gather(
            prefill.ask(self.prompts[at], 1, ours), self.decode.ask(self.prompts[at], model.ANSWER, theirs)
        )
        return then, 1e3 * (then.first - first.over)

    async def replace(self, killed: Instance) -> None:
        """Another one is in its place."""
        made = await asyncio.to_thread(self.remake, killed)
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
    want: list[Tokens]
    lags: list[float] = msgspec.field(default_factory=list)
    #: tokens of a prompt that the decode instance has computed itself, at most; None: all, as it must be
    computed: int | None = None
    note: str = ""
    #: the answers have to be wrong; an instance was killed
    control: bool = False
    killed: bool = False
    #: how rooms may end
    causes: tuple[str, ...] = WELL


Scenario = Callable[[Setting], Awaitable[Found]]


def _found(s: Setting, which: list[int], carried: list[tuple[Answer, float]]) -> Found:
    computed = max(len(s.prompts[at]) - answer.cached for at, (answer, _) in zip(which, carried, strict=True))
    answers = [answer.tokens for answer, _ in carried]
    return Found(answers, [s.answers[at] for at in which], [lag for _, lag in carried], computed)


async def _many(s: Setting, carry: Callable[[int], Awaitable[tuple[Answer, float]]], which: list[int]) -> Found:
    return _found(s, which, await asyncio.gather(*[carry(at) for at in which]))


def _together(*parts: Found) -> Found:
    """One after the other, as one."""
    lists = ([each for part in parts for each in getattr(part, name)] for name in ("got", "want", "lags"))
    return Found(*lists, computed=max(part.computed or 0 for part in parts))


async def sequential(s: Setting) -> Found:
    """8 prompts of 5 to 333 tokens, prefill in chunks of 64; the decode instance is asked afterwards."""
    return await _many(s, s.one_after_another, list(range(8)))


async def at_once(s: Setting) -> Found:
    """The same; both instances are asked at once."""
    return await _many(s, s.at_once, list(range(8)))


async def in_turn(s: Setting) -> Found:
    """The same, one request at a time, one instance after the other: what the hand-over takes."""
    return _found(s, list(range(8)), [await s.one_after_another(at) for at in range(8)])


async def load(s: Setting) -> Found:
    """32 requests at once."""
    return await _many(s, s.at_once, list(range(8)) * 4)


async def prefix(s: Setting) -> Found:
    """Prompts that begin like others that both instances, or the decode instance, have in their caches."""
    await s.one_after_another(3)
    await s.decode.ask(s.prompts[4][:224], 1)
    return _together(await _many(s, s.at_once, [8, 9]), await _many(s, s.one_after_another, [3]))


async def preempted(s: Setting) -> Found:
    """The prefill instance takes the blocks of a prompt away when it is half computed, and computes it anew."""
    await s.prefill.free()
    taken, opened = s.prefill.recorded("Withdraw"), s.prefill.recorded("OpenRoom")
    asked = asyncio.create_task(_many(s, s.at_once, [LONG]))
    await s.prefill.until("OpenRoom", opened)
    await s.prefill.engine.reset_prefix_cache(reset_running_requests=True)
    found = await asked
    return msgspec.structs.replace(found, note=f"{s.prefill.recorded('Withdraw') - taken} times")


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
    return Found([], [], causes=("DECODE_ABORTED",))


async def decode_leaves_midway(s: Setting) -> Found:
    """The client leaves the decode instance at eight moments of a prompt's computation and transfer."""
    for moment in range(8):
        ours, theirs = params_for(s.prefill.card)
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
    ours, theirs = params_for(s.prefill.card)
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
    _, theirs = params_for(s.prefill.card)
    begun = time.perf_counter()
    answer = await s.decode.ask(s.prompts[LONG], model.ANSWER, theirs)
    note = f"answered {answer.over - begun:.1f} s later, `wait` is {s.wait:g} s"
    return Found([answer.tokens], [s.answers[LONG]], causes=("NEVER_OPENED",), note=note)


async def prefill_leaves_midway(s: Setting) -> Found:
    """The client leaves the prefill instance while the prompt is computed; decode computes it itself."""
    ours, theirs = params_for(s.prefill.card)
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
        found = await _many(s, s.at_once, list(range(8)))
    finally:
        (s.out / "spoil").unlink()
    return msgspec.structs.replace(found, control=True)


async def killed(s: Setting) -> Found:
    """The prefill instance is killed while the decode instance waits, and replaced by one of the same name."""
    _, theirs = params_for(s.prefill.card)
    waits = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.5)
    return await _after_kill(s, waits)


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
    found = await _many(s, s.at_once, [0, LONG])
    note = f"answered {took:.1f} s after the kill; then 2 requests by the instance that replaced it"
    got, want = [answer.tokens, *found.got], [s.answers[LONG], *found.want]
    return Found(got, want, killed=True, causes=("NONE", "LINK_LOST", "NO_ANSWER"), note=note)


async def decode_killed(s: Setting) -> Found:
    """The decode instance is killed while its prompt is computed, and replaced by one of the same name."""
    await s.prefill.free()
    ours, theirs = params_for(s.prefill.card)
    opened = s.prefill.recorded("OpenRoom")
    gone = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    ahead = asyncio.create_task(s.prefill.ask(s.prompts[LONG], 1, ours))
    await s.prefill.until("OpenRoom", opened)
    begun = time.perf_counter()
    s.decode.kill()
    await asyncio.gather(ahead, gone, return_exceptions=True)
    await s.prefill.free(120.0)
    note = f"prefill's blocks free {time.perf_counter() - begun:.1f} s after the kill"
    await s.replace(s.decode)
    found = await _many(s, s.at_once, [0, LONG])
    return msgspec.structs.replace(found, killed=True, causes=("NONE", "LINK_LOST", "PEERS_MISSING"), note=note)


async def two_prefills(s: Setting) -> Found:
    """24 requests at once, every other one by another prefill instance, of another tensor parallelism."""
    which, many = list(range(8)) * 3, len(s.prefills)
    carried = await asyncio.gather(*[s.at_once_by(at, s.prefills[n % many]) for n, at in enumerate(which)])
    return _found(s, which, carried)


async def one_of_two_killed(s: Setting) -> Found:
    """One of the prefill instances is killed while decode waits for it; the other one goes on, and it is replaced."""
    _, theirs = params_for(s.prefill.card)
    waits = asyncio.create_task(s.decode.ask(s.prompts[LONG], model.ANSWER, theirs))
    await asyncio.sleep(1.5)
    s.prefill.kill()
    others = await asyncio.gather(*[s.at_once_by(at, s.prefills[1]) for at in range(1, 7)])
    answer = await waits
    await s.replace(s.prefill)
    again = await s.at_once(0)
    found = _found(s, [*range(1, 7), 0], [*others, again])
    got, want = [answer.tokens, *found.got], [s.answers[LONG], *found.want]
    return Found(got, want, found.lags, killed=True, causes=("NONE", "LINK_LOST", "NO_ANSWER"))


SCENARIOS: dict[str, Scenario] = {
    "sequential": sequential, "in turn": in_turn, "at once": at_once, "prefix hits": prefix, "32 at once": load,
    "preempted": preempted, "decode leaves first": decode_leaves_first, "decode leaves midway": decode_leaves_midway,
    "decode leaves between": decode_leaves_between, "prefill leaves early": prefill_leaves_early,
    "prefill leaves midway": prefill_leaves_midway, "prefill never asked": prefill_never_asked,
    "never fetched": never_fetched, "too late": too_late, "control": spoiled, "killed": killed,
    "killed between": killed_between, "decode killed": decode_killed,
}  # fmt: skip
#: of a pair with two prefill instances
OF_TWO: dict[str, Scenario] = {"two prefills": two_prefills, "one of two killed": one_of_two_killed}
#: those that an engine's own connector is put through, too; and those that are timed
COMPARED = (
    "sequential", "in turn", "32 at once", "decode leaves between", "never fetched", "too late", "killed between",
)  # fmt: skip
TIMED = ("sequential", "in turn", "32 at once")
