"""Search: the framework's search of a configuration's packed world, and of new rooms after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from kvproto.verify.check.config import Config
from kvproto.verify.check.explorers import explorer
from kvproto.verify.check.native.library import missing
from kvproto.verify.check.native.native_search import NativeSearch
from kvproto.verify.check.new_rooms import NewRoomSearch, SearchCut, first_failure, rests
from kvproto.verify.check.step_wording import named
from kvproto.verify.check.story import RankTale, plain
from kvproto.verify.framework import search
from kvproto.verify.framework.search import LOOK, MEGABYTE, Progress, Result, label, to_stderr

Engine = Literal["native", "python"]
__all__ = ["LOOK", "MEGABYTE", "Progress", "RankSearch", "Result", "check", "label", "to_stderr"]


class RankSearch(search.Search):
    """One run over one configuration."""

    #: how new rooms are searched
    NEW_ROOMS: ClassVar[type[NewRoomSearch]] = NewRoomSearch

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
            met = rests(self.world, self.order, self.rests)
            failed = first_failure(self.config, met, memory=self.memory, searched=self.NEW_ROOMS)
        except SearchCut as cut:
            self.result.ended = cut.ended
            return
        if failed is not None:
            place, name, text = failed
            self._violate(name, text, place)

    def tale(self, name: str, text: str, events: list[Any]) -> RankTale:
        return RankTale(name, named(self.config, text), self.config, [plain(event) for event in events], events)


class NativeNewRoomSearch(NewRoomSearch, NativeSearch):
    """The search for new rooms in C."""


class NativeRankSearch(RankSearch, NativeSearch):
    """One run over one configuration, in C."""

    NEW_ROOMS = NativeNewRoomSearch


def check(
    name: str, config: Config, *, memory: int = 12_000, report: Callable[[Progress], None] | None = None,
    engine: Engine | None = None,
) -> Result:  # fmt: skip
    """Search one configuration: in C if there is a compiler, and always in Python if it has a clock."""
    native = not config.timed and (engine == "native" or (engine is None and missing() is None))
    searched = (NativeRankSearch if native else RankSearch)(name, config, memory=memory)
    searched.result.engine = "native" if native else "python"
    return search.run(searched, report)
