"""Pairs: instances that are run against each other, by name, and the scenarios of each.

A pair's name says its model, unless it is the dense one, and how each side is cut (`instances.Cut`): "1-2", "2-1x2",
"hybrid 2 stages-1"; "1+2-2" has two prefill instances.  "hosts 1-2" is "1-2" with each side on a host of its own.
"""

from __future__ import annotations

import msgspec

from examples.engine_runs.hosts import APART
from examples.vllm import model
from examples.vllm.compiling import COMPILING
from examples.vllm.drafting import DRAFTING
from examples.vllm.killing import OF_TWO
from examples.vllm.scenarios import COMPARED, OF_HOSTS, OF_HYBRIDS, OF_STAGES, OF_WINDOWS, SCENARIOS, TIMED

PAIRS = ("1-2", "2-1", "2-2", "1-1", "1+2-2", "1-1x2", "2-1x2", "1x2-2", "2 stages-1", "1-2 stages", "2 stages-2",
         "hybrid 1-1", "hybrid 1-2", "hybrid 2-1", "hybrid 2-2", "alternating 2 stages-1",
         "windows 1-1", "windows 1-2", "windows 2-1", "windows 2-2", "windows 2 stages-1", "windows 1-2 stages",
         "sinks 1-2", "sinks 2-1", "latents 2 stages-1", "drafted 1-1", "drafted 1-2", "drafted 2-1", "eagle 1-2",
         "eagle 2-1", "hosts 1-2")  # fmt: skip
#: pairs whose decode instance compiles, too
COMPILED = "1-2", "2-1x2"
CARRIERS = ("kvproto", "plain", "nixl")


def kind_of(pair: str) -> tuple[model.Kind, str]:
    """Return the kind of model of a pair, and its ranks: of "hybrid 1-2", "1-2"."""
    kind, _, ranks = pair.partition(" ")
    if kind == APART:
        return "dense", ranks
    return (msgspec.convert(kind, model.Kind), ranks) if kind.isalpha() else ("dense", pair)


def wanted(pair: str, carrier: str, asked: list[str]) -> list[str]:
    """Return the scenarios that are to be run; `asked`: empty means all."""
    every = tuple(name for name in SCENARIOS if name not in DRAFTING and (name not in COMPILING or pair in COMPILED))
    all_of = {"kvproto": every, "plain": TIMED, "nixl": COMPARED}[carrier]
    if (kind := kind_of(pair)[0]) != "dense":
        mine: tuple[str, ...] = OF_WINDOWS if kind in ("windows", "sinks", "drafted", "eagle") else OF_HYBRIDS
        mine += tuple(DRAFTING) if kind == "drafted" else ()
        all_of = mine if carrier == "kvproto" else ()
    elif "stages" in pair:
        all_of = OF_STAGES if carrier == "kvproto" else ()
    if pair.startswith(APART):
        all_of = {"kvproto": OF_HOSTS, "plain": TIMED, "nixl": TIMED}[carrier]
    if "+" in pair:
        all_of = tuple(OF_TWO) if carrier == "kvproto" else ()
    return [name for name in all_of if not asked or name in asked]
