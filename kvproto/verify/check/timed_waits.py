"""Timed waits: find waiters for a free resource when nothing is left to happen at a moment."""

from __future__ import annotations

from typing import Any

from kvproto.protocol.ring import usable
from kvproto.protocol.states import PSend
from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.decode_memory import DNode
from kvproto.verify.check.node import SILENT, Unrest
from kvproto.verify.check.prefill_local_steps import PNode

#: nothing goes wrong
CALM = Budget()


def idle_wait(config: Config, values: list[Any]) -> Unrest:
    """The first of these ranks' waits that nothing stands in the way of (L3, L5, S9)."""
    ends = any("aux" in word for word in config.engine)
    if ends and config.budget == CALM and (late := _ready(config, values)) is not None:
        return late
    for value in values:
        found: Unrest = None
        if isinstance(value, PNode):
            found = _sends(config, value)
        elif isinstance(value, DNode):
            found = _space(value)
        if found is not None:
            return found
    return None


def _ready(config: Config, values: list[Any]) -> Unrest:
    """A room of which every engine has said all, and that is not over although nothing went wrong.

    Messages, kernels and writes take no time here, so it may wait for no moment, however long another forward takes.
    """
    prefills = [value for value in values if isinstance(value, PNode)]
    for k, (group, _) in enumerate(config.parties):
        mine = prefills[group * config.prefills : (group + 1) * config.prefills]
        if all(v.script[k] == len(config.engine) for v in mine) and any(v.outcome[k] == SILENT for v in mine):
            return "S9", f"room {k} is ready, and waits for time to pass"
    return None


def _sends(config: Config, v: PNode) -> Unrest:
    links, sends, free, queue, watch, permits = v.rank[2], v.rank[4], v.rank[5], v.rank[7], v.rank[8], v.rank[10]
    if free and queue:
        return "L3", "a part waits for a slot, and one is free"
    for d, heap in enumerate(watch):
        link = links[d]
        mark = (link.mark_round, link.mark_tail) if link is not None else (0, 0)
        if any(usable(round_, end, mark) for round_, end, *_ in heap):
            return "L3", "a part waits for a watermark that was seen"
    states = [send.state for _, parts in sends for _, send in parts]
    if states.count(PSend.AWAIT_PERMIT) and len(permits) < config.page_writes:
        return "L3", "a part waits to be let write, and nobody writes"
    asked = states.count(PSend.AWAIT_GRANT)
    if states.count(PSend.AWAIT_CREDIT) and not asked:
        return "L3", "a part waits to ask, and nobody asks"
    return None


def _space(v: DNode) -> Unrest:
    regions, queue = v.rank[5], v.rank[6]
    return ("L5", "a chunk waits for space, and nothing holds any") if queue and not regions else None
