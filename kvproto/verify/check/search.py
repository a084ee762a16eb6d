"""Search: the framework's search of a configuration's packed world, and of new rooms after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproto.verify.check.config import Config
from kvproto.verify.check.explorers import explorer
from kvproto.verify.check.new_rooms import SearchCut, first_failure, rests
from kvproto.verify.check.step_wording import named
from kvproto.verify.check.story import RankTale, plain
from kvproto.verify.framework import search
from kvproto.verify.framework.search import LOOK, MEGABYTE, Progress, Result, label, to_stderr

__all__ = ["LOOK", "MEGABYTE", "Progress", "RankSearch", "Result", "check", "label", "to_stderr"]


class RankSearch(search.Search):
    """One run over one configuration."""

    def __init__(self, name: str, config: Config, *, memory: int = 12_000) -> None:
        """`memory`: MiB of this process at which the search gives up."""
        self.config, self.world = config, explorer(config)
        super().__init__(name, config, self.world, memory=memory)

    def _judge_ends(self) -> None:
        """And after the last fault a new room succeeds."""
        super()._judge_ends()
        if self.result.violations:
            return
        try:
            failed = first_failure(self.config, rests(self.world, self.order), memory=self.memory)
        except SearchCut as cut:
            self.result.ended = cut.ended
            return
        if failed is not None:
            place, name, text = failed
            self._violate(name, text, place)

    def tale(self, name: str, text: str, events: list[Any]) -> RankTale:
        """A violation, with the names that the story uses."""
        return RankTale(name, named(self.config, text), self.config, [plain(event) for event in events], events)


def check(
    name: str, config: Config, *, memory: int = 12_000, report: Callable[[Progress], None] | None = None
) -> Result:  # fmt: skip
    """Search one configuration."""
    return search.run(RankSearch(name, config, memory=memory), report)
