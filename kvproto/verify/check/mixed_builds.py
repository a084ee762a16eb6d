"""Mixed builds: worlds in which the ranks of one side are of another build, and may come back.

The other build's ranks, tables and nodes run as they are.  Their values stay in their own form; what leaves them and
what reaches them is translated field by field (`other_build`).  This build judges what both ends of a link show
together; what a node shows alone is judged by the node's own build.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.config import Config
from kvproto.verify.check.node import Move, Node, RankOutput, Unrest, Violation
from kvproto.verify.check.other_build import OTHER, OtherBuild, UnknownError, beside
from kvproto.verify.check.state_encoding import DEAD
from kvproto.verify.check.step_wording import named
from kvproto.verify.check.story import RankTale, plain
from kvproto.verify.check.successors import Explorer
from kvproto.verify.framework import search
from kvproto.verify.framework.search import Progress, Result

SideName = Literal["prefill", "decode"]
NODES = {"prefill": "verify.check.nodes_prefill.PrefillNode", "decode": "verify.check.nodes_decode.DecodeNode"}


class Mix(NamedTuple):
    """The ranks that are of the other build: one side's, in their first life or in all later ones."""

    side: SideName
    first: bool

    def __str__(self) -> str:
        lives = "and come back as this one" if self.first else "once they come back"
        return f"{self.side} ranks are of the other build {lives}"


def mixes(config: Config) -> list[Mix]:
    """Return the mixes of a world; where nobody comes back, there is no later life."""
    lives = (True, False) if config.restart and config.budget.crash else (True,)
    sides: tuple[SideName, ...] = ("prefill", "decode")
    return [Mix(side, first) for side in sides for first in lives]


class MixedNode:
    """A node of this build and one of the other at the same place; the life says which of them it is."""

    def __init__(self, ours: Node, theirs: Any, build: OtherBuild, *, first: bool) -> None:
        """`first`: the other build is the first life's, else that of all later ones."""
        self.ours, self.theirs, self.build, self.first = ours, theirs, build, first
        self._broken = build.get("verify.check.node.Violation")

    def __getattr__(self, name: str) -> Any:
        """Return what both builds have alike: names, peers, sides."""
        return getattr(self.ours, name)

    def _of(self, life: int) -> Any:
        return self.theirs if (life == 0) is self.first else self.ours

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[Any, list[RankOutput]]:
        node = self._of(life)
        value, outs = node.initial(life, script)
        return value, self._sent(outs, node)

    def step(self, value: Any, what: Any) -> tuple[Any, list[RankOutput]]:
        """The next value, and what leaves the node.  Raises `Violation`."""
        node = self._of(value.life)
        if node is self.ours:
            return self.ours.step(value, what)  # type: ignore[no-any-return]
        try:
            new, outs = node.step(value, self.build.theirs(what))
        except self._broken as fault:
            raise Violation(fault.name, fault.text) from None
        return new, self._sent(outs, node)

    def _sent(self, outs: list[RankOutput], node: Any) -> list[RankOutput]:
        if node is self.ours:
            return outs
        found = []
        for out in outs:
            try:
                found.append(self.build.ours(out))
            except UnknownError:
                if out[0] != "send":
                    raise
                # the receiver counts and drops a message that it does not know
        return found

    def moves(self, value: Any) -> list[Move]:
        """List what can happen here without a message; inputs stay in the form of the build that takes them."""
        return list(self._of(value.life).moves(value))

    def sights(self, value: Any) -> set[str]:
        """Name what is worth having seen of the value."""
        return set(self._of(value.life).sights(value))

    def settled(self, value: Any) -> Unrest:
        """Why the node is not at rest; None if it is."""
        found: Unrest = self._of(value.life).settled(value)
        return found

    def gone(self, value: Any) -> tuple[int, ...]:
        """Return the knowledge of the next life's engine."""
        lost: tuple[int, ...] = self._of(value.life).gone(value)
        return lost


class MixedExplorer(Explorer):
    """A world of two builds."""

    def __init__(self, config: Config, build: OtherBuild, mix: Mix) -> None:
        """ArgumentError: such a world cannot be mixed."""
        if config.timed or config.hasty:
            raise ArgumentError("worlds in which time has numbers, or a fixed order, are searched with one build")
        super().__init__(config)
        self.build = build
        self.swaps, self.swapped = [], []  # of an exchange of rooms this build knows its own form alone
        theirs, made = build.config(config), build.get(NODES[mix.side])
        side: list[Any] = self.prefills if mix.side == "prefill" else self.decodes
        for index, ours in enumerate(side):
            side[index] = MixedNode(ours, made(theirs, index), build, first=mix.first)
        self.nodes = [*self.prefills, *self.decodes]

    def judged(self, value: Any) -> Any:
        """Return a node's value in this build's form."""
        return value if value[0] is DEAD else self.build.ours(value)


class MixedSearch(search.Search):
    """One run over one world of two builds."""

    def __init__(self, name: str, config: Config, build: OtherBuild, mix: Mix, *, memory: int) -> None:
        """`memory`: MiB of this process at which the search gives up."""
        self.config = config
        super().__init__(f"{name}: {mix}", config, MixedExplorer(config, build, mix), memory=memory)

    def tale(self, name: str, text: str, events: list[Any]) -> RankTale:
        build: OtherBuild = self.space.build  # type: ignore[attr-defined]
        ours = [each._replace(what=build.ours(each.what)) for each in events]
        return RankTale(name, named(self.config, text), self.config, [plain(each) for each in ours], ours)


def check_beside(
    name: str, config: Config, folder: Path, mix: Mix, *, memory: int = 12_000,
    report: Callable[[Progress], None] | None = None,
) -> Result:  # fmt: skip
    with beside(folder, OTHER):
        return search.run(MixedSearch(name, config, OtherBuild(), mix, memory=memory), report)
