"""What is known to go wrong, in a line each; and how it is looked for.

A case is searched three times: in the protocol as it is, where a property has to break; with the case's mend alone,
where the same world has to be searched to its end, or to a bound; and with every mend, asked for every property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from examples.others.sglang_staging import parties as sglang
from examples.others.sglang_staging import worlds as sglang_worlds
from examples.others.vllm_push import parties as vllm
from examples.others.vllm_push import worlds as vllm_worlds
from kvproto.fsm.table import Row, Table
from kvproto.verify.framework.scenario import Scenario
from kvproto.verify.framework.search import Result
from kvproto.verify.framework.world_tale import WorldChecker

SGLANG = {
    "R1": "one of two decode ranks is not ready: the chunk is tried again as a whole, and the other is written again",
    "R2": "as R1, when the region has another owner: bytes of one request in another's KV",
    "R3": "a worker stops at the first decode rank that is not ready: two prefill ranks wait for one another",
    "R4": "a writer's own request comes after the chunk was scattered: a region that nobody frees",
    "R5": "messages are counted, not writers: a scatter with a part missing",
    "R6": "staging is off at decode: the request ends its listener thread",
    "R7": "a request comes while the room is taken down: it ends the listener thread",
    "R8": "optimistic prefill asks when only some decode ranks are known, and never the others",
    "R9": "a chunk that is too large puts its decode rank on a black list: healthy rooms fail",
    "R10": "a failed write ends the worker thread",
    "R11": "Success at the last chunk, although an earlier one is deferred",
    "R12": "as R11, and decode gives up: no acknowledgement, release after 30 s, and the chunk is still written",
    "R13": "prefill gives up and tells nobody",
    "R14": "decode dies before it has answered: prefill waits for ever",
    "R15": "a room's id is used again while an old chunk is queued: it is sent as the new room's",
    "R16": "a request is lost: the hole reads as scattered, and decode is done without the chunk",
    "R17": "an abort before the room is there is acknowledged and forgotten: the room then starts",
}
VLLM = {
    "C1": "decode gives up after PUSH_REG: its blocks are free, and the write still comes",
    "C3": "a partial prefix hit is cut at the front: prefix blocks are written into the suffix",
    "L1": "prefill gives up or dies: decode's watchdog only logs",
    "S2": "the handshake with one decode engine holds up the writes to all others",
    "V5": "the lease ends during the handshake: the write is read from blocks that others have (none of the four)",
}


class System(msgspec.Struct, frozen=True):
    """A system: its cases, worlds, mends and tables."""

    name: str
    cases: Mapping[str, str]
    worlds: Mapping[str, Callable[..., Scenario]]
    mends: Mapping[str, frozenset[str]]
    beyond: Mapping[str, tuple[tuple[str, ...], str]]
    properties: tuple[str, ...]
    tables: Callable[[frozenset[str]], list[Table[Any]]]
    every: frozenset[str]


def _flat(mends: frozenset[str]) -> list[Table[Any]]:
    return [table for side in sglang.tables(mends) for table in side]


def _system(name: str, cases: Mapping[str, str], module: ModuleType, tables: Any) -> System:
    return System(name, cases, module.WORLDS, module.MENDS, module.EXCEPT, module.PROPERTIES, tables, module.EVERY)


SYSTEMS = (
    _system("SGLang 0.5.23, staging", SGLANG, sglang_worlds, _flat),
    _system("vLLM, NIXL push", VLLM, vllm_worlds, lambda mends: list(vllm.tables(mends))),
)


def search(
    system: System, case: str, mends: frozenset[str] = frozenset(), limit: int = 500_000, *, whole: bool = False
) -> Result:
    """Search a case's world with these mends; `whole`: ask for every property that makes sense there."""
    left = system.beyond.get(case, ((), ""))[0]
    asks = tuple(name for name in system.properties if name not in left) if whole else ()

    def make() -> Scenario:
        scenario = system.worlds[case](mends, asks)
        scenario.chances = replace(scenario.chances, limit=limit)
        return scenario

    return WorldChecker({case: make}).search(case, limit=None, memory=6_000, report=None)


def rows_of_mend(system: System, case: str) -> tuple[list[Row], list[Row]]:
    """The rows that the mend takes away, and those that it has instead."""
    before, after = (
        {(table.name, str(row), row.why): row for table in system.tables(mends) for row in table.rows}
        for mends in (frozenset[str](), system.mends[case])
    )
    return [row for key, row in before.items() if key not in after], [
        row for key, row in after.items() if key not in before
    ]
