"""Engine pair: a scripted prefill and a scripted decode instance, which take their steps in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

#: what happens in a story, and a number that says to whom, or how long a prompt is
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "prefill", "decode", "turn", "abort P", "abort D", "preempt"]), st.integers(0, 40)
    ), min_size=5, max_size=30,
)  # fmt: skip


class EnginePair:
    """Two instances whose requests have one name, with /P and /D behind it."""

    prefill: Any
    decode: Any
    #: the forward of the prefill instance
    compute: Any
    #: seconds that anything may take
    patience = 60.0

    def turn(self) -> None:
        self.prefill.step(self.compute)
        self.decode.step()

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + self.patience
        while not done():
            self.turn()
            time.sleep(1e-3)
            assert time.monotonic() < end, self.explain()

    def explain(self) -> list[str]:
        """Say for what the instances wait, as far as they can."""
        return []

    def carried(self, name: str) -> None:
        """The request comes to run at the decode instance, with the KV that the other one computed."""
        self.until(lambda: f"{name}/D" in self.decode.resumed)
        assert self.decode.resumed[f"{name}/D"] is False


def happen(pair: Any, ask: Callable[[int], str], steps: Iterable[tuple[str, int]]) -> None:
    """Have a story happen; `ask` makes a request from a number."""
    names: list[str] = []
    for what, number in steps:
        name = names[number % len(names)] if names else ""
        match what:
            case "ask":
                names.append(ask(number))
            case "prefill":
                pair.prefill.step(pair.compute)
            case "decode":
                pair.decode.step()
            case "turn":
                pair.turn()
            case "abort P":
                pair.prefill.abort(f"{name}/P")
            case "abort D":
                pair.decode.abort(f"{name}/D")
            case "preempt":
                pair.prefill.preempt(f"{name}/P")
