"""Stage moves: a world's moves on a stage as hypothesis rules: passes, pieces, copies, time, troubles.

Whoever drives the engines derives from `StageMoves`, puts a stage into `stage` when an example begins, and adds rules
for what engines do.  Needs hypothesis.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kvproto.verify.testing.stage import EngineStage

ANY = st.integers(0, 1 << 16)


class StageMoves(RuleBasedStateMachine):
    """All that is nobody's choice: one move of it at a time."""

    stage: EngineStage

    # --------------------------------------------------------------------------------- loops, and what moves
    @rule(which=st.lists(ANY, min_size=1, max_size=4))
    def poll(self, which: list[int]) -> None:
        """Some endpoints make a pass, in this order."""
        for index in which:
            self.stage.poll(index % len(self.stage.endpoints))

    @precondition(lambda self: self.stage.fabric.options())
    @rule(at=st.lists(ANY, min_size=1, max_size=4))
    def move(self, at: list[int]) -> None:
        for k in at:
            if options := self.stage.fabric.options():
                self.stage.fabric.take(options[k % len(options)])

    @precondition(lambda self: self.stage.late.pending)
    @rule(at=ANY)
    def copied(self, at: int) -> None:
        self.stage.late.finish(at)

    @rule(turns=st.integers(1, 6))
    def idle(self, turns: int) -> None:
        """Nobody does anything: what can move does."""
        for _ in range(turns):
            self.stage.turn()

    @rule(seconds=st.sampled_from((0.1, 0.3, 1.1)))
    def time_passes(self, seconds: float) -> None:
        """A little of it: nothing healthy minds."""
        self.stage.wait(seconds)

    @rule(seconds=st.sampled_from((3.0, 12.0, 25.0)))
    def silence(self, seconds: float) -> None:
        """A lot of it at once."""
        self.stage.wait(seconds)

    # ----------------------------------------------------------------------------------------- troubles
    @precondition(lambda self: self.stage.flying())
    @rule(at=ANY, kind=st.sampled_from(("fail", "doubt", "mute")))
    def hurt_write(self, at: int, kind: str) -> None:
        """A write fails, is in doubt, or its tag is lost."""
        flying = self.stage.flying()
        self.stage.hurt_write(*flying[at % len(flying)], kind)

    @precondition(lambda self: self.stage.late.pending)
    @rule(at=ANY)
    def hurt_copy(self, at: int) -> None:
        self.stage.hurt_copy(at)

    @rule(index=ANY)
    def stall(self, index: int) -> None:
        """A rank's transport stops, or goes on."""
        self.stage.stall(index % len(self.stage.endpoints))

    @precondition(lambda self: self.stage.post.busy())
    @rule(way=ANY, at=ANY, kind=st.sampled_from(("lose", "repeat", "hurry", "hold")))
    def hurt_frame(self, way: int, at: int, kind: str) -> None:
        """A frame is lost, comes twice, or overtakes others; or a socket is slow."""
        ways = self.stage.post.busy()
        self.stage.hurt_frame(ways[way % len(ways)], at, kind)
