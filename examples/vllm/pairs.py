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
from examples.vllm.killing import KILLING, OF_TWO
from examples.vllm.scenarios import (
    COMPARED,
    COMPARED_ELSEWHERE,
    ENDS,
    OF_HOSTS,
    OF_HYBRIDS,
    OF_STAGES,
    OF_WINDOWS,
    SCENARIOS,
    TIMED,
)

PAIRS = ("1-2", "2-1", "2-2", "1-1", "1+2-2", "1-1x2", "2-1x2", "1x2-2", "2 stages-1", "1-2 stages", "2 stages-2",
         "hybrid 1-1", "hybrid 1-2", "hybrid 2-1", "hybrid 2-2", "alternating 2 stages-1",
         "windows 1-1", "windows 1-2", "windows 2-1", "windows 2-2", "windows 2 stages-1", "windows 1-2 stages",
         "sinks 1-2", "sinks 2-1", "sinks 2-2", "latents 1-2", "latents 2-1", "latents 2-2", "latents 2 stages-1",
         "drafted 1-1", "drafted 1-2", "drafted 2-1", "drafted 2-2", "eagle 1-2", "eagle 2-1", "eagle 2-2",
         "hosts 1-2")  # fmt: skip
#: pairs whose decode instance compiles, too
COMPILED = "1-2", "2-1x2"
#: dense pairs at which a request, or an instance, ends in all ways: how depends on the sides' ranks little
ENDED_IN_ALL_WAYS = "1-2", "2-1", "2-1x2"
#: the pair at which the engine's own connector meets clients that leave and instances that are killed, too; a thread of
#: NIXL's turns without a pause in each of its ranks, so on two cores all of it takes minutes
OWN_ENDED = "1-2"
CARRIERS = ("kvproto", "plain", "nixl")


def kind_of(pair: str) -> tuple[model.Kind, str]:
    """Return the kind of model of a pair, and its ranks: of "hybrid 1-2", "1-2"."""
    kind, _, ranks = pair.partition(" ")
    if kind == APART:
        return "dense", ranks
    return (msgspec.convert(kind, model.Kind), ranks) if kind.isalpha() else ("dense", pair)


#: by model other than the dense one: the pair that is timed without digests
FIRST_PAIRS: dict[model.Kind, str] = {kind: pair for pair in reversed(PAIRS) if (kind := kind_of(pair)[0]) != "dense"}


def wanted(pair: str, carrier: str, asked: list[str]) -> list[str]:
    """Return the scenarios that are to be run; `asked`: empty means all."""
    names = of_kvproto(pair)
    if carrier != "kvproto":
        compared = _timed(pair) if carrier == "plain" else _of_own(pair)
        names = tuple(name for name in names if name in compared)
    return [name for name in names if not asked or name in asked]


def of_kvproto(pair: str) -> tuple[str, ...]:
    """Return the scenarios of a pair that kvproto is put through."""
    if pair.startswith(APART):
        return OF_HOSTS
    if "+" in pair:
        return tuple(OF_TWO)
    if (kind := kind_of(pair)[0]) != "dense":
        of_kind = OF_WINDOWS if kind in ("windows", "sinks", "drafted", "eagle") else OF_HYBRIDS
        return of_kind + (tuple(DRAFTING) if kind == "drafted" else ())
    if "stages" in pair:
        return OF_STAGES
    others = {*DRAFTING, *(() if pair in COMPILED else COMPILING), *(() if pair in ENDED_IN_ALL_WAYS else ENDS)}
    return tuple(name for name in SCENARIOS if name not in others)


def _is_simple(pair: str) -> bool:
    """Whether its model is dense and no instance has stages: there the own connector is put through more."""
    return kind_of(pair)[0] == "dense" and "stages" not in pair and "+" not in pair


def _timed(pair: str) -> tuple[str, ...]:
    """What is timed without digests."""
    if FIRST_PAIRS.get(kind_of(pair)[0], pair) != pair:
        return ()
    return TIMED if _is_simple(pair) else ("in turn",)


def _of_own(pair: str) -> tuple[str, ...]:
    if pair.startswith(APART):
        return TIMED
    if not _is_simple(pair):
        return COMPARED_ELSEWHERE
    return (*COMPARED, *KILLING) if pair == OWN_ENDED else TIMED
