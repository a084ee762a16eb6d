"""Caches result: the outcome of a run with several caches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from kvproto.lab.demo.caches_job import CachesRun


@dataclass
class CachesResult:
    """`wrong`: what contradicts a good run; `controls`: by name, [found, planted].

    `moved`: bytes that P's ranks have sent; `parts`: by part, the rows that were compared on D, and their bytes.
    """

    run: CachesRun
    wrong: list[str] = field(default_factory=list)
    controls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    parts: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    tokens: int = 0
    moved: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.wrong
