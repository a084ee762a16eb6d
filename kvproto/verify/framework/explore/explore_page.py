"""Explore page: the inspector's page, whose events are chosen by its reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from kvproto.verify.framework.explore.exploration import Exploration, Recorder
from kvproto.verify.framework.inspect.page import page_of


def explore_page(
    world: Exploration, protocol: str, *, limit: int, way: Iterable[Any] = (), choices: Sequence[int] = (),
    command: str = "kvproto explore",
) -> tuple[str, int, bool]:
    """Record the world and return its page, how many states are in it, and whether these are all.

    `limit`: states at which the recording ends; `way`: the steps of a counterexample, or `choices`: the numbers of the
    steps that lead to the state at which the page opens; `command`: with `--way` it records what lies beyond.
    """
    recorder = Recorder(world)
    graph = recorder.record(limit=limit, way=way, choices=choices)
    whole = all(steps is not None for steps in recorder.next)
    graph |= {"world": world.name, "about": world.about, "headings": world.headings, "command": command}
    data = {
        "title": world.name, "parties": world.parties, "moments": [], "beside": None, "difference": None,
        "follow": 0.0, "differences": [], "graph": graph,
    }  # fmt: skip
    script = (files("kvproto.verify.framework.explore") / "explore.js").read_text()
    return page_of(data, world.telling, protocol, script), len(recorder.states), whole
