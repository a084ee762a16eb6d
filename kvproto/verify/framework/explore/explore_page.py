"""Explore page: the inspector's page, whose events are chosen by its reader."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from kvproto.verify.framework.explore.exploration import Exploration, Recorder
from kvproto.verify.framework.inspect.page import page_of


def explore_page(world: Exploration, protocol: str, *, limit: int, way: Iterable[Any] = ()) -> tuple[str, int, bool]:
    """Record the world and return its page, how many states are in it, and whether these are all.

    `limit`: states at which the recording ends; `way`: the steps of a counterexample, at whose end the page opens.
    """
    recorder = Recorder(world)
    data = {
        "title": world.name, "parties": world.parties, "moments": [], "beside": None, "difference": None,
        "follow": 0.0, "differences": [], "graph": recorder.record(limit=limit, way=way),
    }  # fmt: skip
    script = (files("kvproto.verify.framework.explore") / "explore.js").read_text()
    whole = all(steps is not None for steps in recorder.next)
    return page_of(data, world.telling, protocol, script), len(recorder.states), whole
