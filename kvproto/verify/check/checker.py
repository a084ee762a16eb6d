"""Checker: the worlds of the transfer that can be searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.config import Config
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.mixed_builds import check_beside, mixes
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.check.native.library import missing
from kvproto.verify.check.search import Engine, check
from kvproto.verify.check.story import walk
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.search import Progress, Result
from kvproto.verify.framework.story import Counterexample, ReplayedWay

if TYPE_CHECKING:
    from kvproto.fsm.telling import Telling
    from kvproto.verify.framework.explore.exploration import Exploration


def _ranks(config: Config) -> str:
    """`2Px1D`, or `2·1Px1D` where two groups of one rank each are on the prefill side."""
    sides = zip("PD", config.sides, strict=True)
    return "x".join(f"{f'{side.groups}·' if side.groups > 1 else ''}{side.ranks}{name}" for name, side in sides)


class RankChecker(Checker):
    """Worlds of ranks."""

    suites = SUITES
    engines: ClassVar = ("native", "python")
    planted = MUTANTS

    def worlds(self) -> Mapping[str, str]:
        """How many ranks, of which groups, and what is special."""
        return {name: f"{_ranks(c)}  {c.about or 'see docs/checker.md'}" for name, c in CONFIGS.items()}

    def check_engine(self, engine: str) -> None:
        """`native` needs a compiler."""
        why = missing() if engine == "native" else None
        if why is not None:
            raise ArgumentError(f"--engine native: {why}")

    def search(
        self, name: str, *, limit: int | None, memory: int, report: Callable[[Progress], None] | None,
        engine: Engine | None = None,
    ) -> Result:  # fmt: skip
        config = CONFIGS[name] if limit is None else replace(CONFIGS[name], limit=limit)
        return check(name, config, memory=memory, report=report, engine=engine)

    def beside(
        self, name: str, folder: Path, *, limit: int | None, memory: int, report: Callable[[Progress], None] | None
    ) -> Iterator[Result]:  # fmt: skip
        """Search one configuration with the build in this folder on either side, in first and in later lives."""
        config = CONFIGS[name] if limit is None else replace(CONFIGS[name], limit=limit)
        for mix in mixes(config):
            yield check_beside(name, config, folder, mix, memory=memory, report=report)

    def explored(self, name: str, telling: Telling) -> Exploration:
        (known,) = self.named(name)
        return _explored(known, CONFIGS[known])

    def explored_way(self, once: Counterexample, telling: Telling) -> Exploration:
        return _explored("counterexample", once.config)

    def walk(self, text: str) -> ReplayedWay:
        return walk(text)


def _explored(name: str, config: Config) -> Exploration:
    from kvproto.verify.check.rank_exploration import RankExploration  # it needs the pictures, which a search does not

    return RankExploration(name, config)


CHECKER = RankChecker()
