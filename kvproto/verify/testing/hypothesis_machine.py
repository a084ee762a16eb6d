"""A hypothesis state machine over a real pair of groups: engines that do whatever they like, and a world that does too.

    from kvproto.verify.testing.hypothesis_machine import TransferMachine
    TestTransfer = TransferMachine.TestCase

Rules are what engines call and what a network, a device and a clock may do, one move each; `idle` lets everything that
can move do so.  After each step the stage is judged (`kvproto.verify.testing.judge`); at the end everything is drained:
rooms that nothing has disturbed must have succeeded, all must be over, nothing may be left.  The endpoints are the real
ones on real control sockets; the schedule of frames, pieces, copies and time is hypothesis's, so examples shrink and
repeat.

To try an engine of one's own, derive from the machine and make the stage in `make`.  Needs hypothesis.
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, invariant, multiple, rule

from kvproto.io.control.control import Control, Peer
from kvproto.layout.sharding import Layout
from kvproto.protocol.codec import MAX_FRAME, encode
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.stage import TIMING, EngineStage
from kvproto.verify.testing.stage_moves import ANY, StageMoves
from kvproto.verify.testing.strategies import damaged, frames
from kvproto.verify.testing.task import Side

CHUNK_TOKENS = 8
MOST_ROOMS = 8


def model(tp: int, page: int = 4, order: Any = "NHD", *, v_dim: int = 2) -> Layout:
    """A small model on so many ranks."""
    return Layout(
        layers=2, heads=2, k_dim=4, v_dim=v_dim, itemsize=2, dtype="bfloat16", page_size=page, tp=tp, order=order
    )


#: fan-in, fan-out, replicas, pages that differ, page to page, pipeline stages
SHAPES: tuple[tuple[Layout, Layout], ...] = (
    (model(2), model(1)), (model(1), model(2, 8)), (model(1, order="HND"), model(1, 8)), (model(1), model(1)),
    (model(2, v_dim=0), model(1, 8, v_dim=0)), (model(4), model(1)),
)  # fmt: skip
#: bytes: never full, one or two chunks of one destination, less than a chunk
RINGS = (1 << 16, 1024, 768, 256)


class TransferMachine(StageMoves):
    """Two groups, at most `MOST_ROOMS` rooms, and everything that may happen to them."""

    rooms: Bundle[Room] = Bundle("rooms")
    shapes: ClassVar[tuple[tuple[Layout, Layout], ...]] = SHAPES
    outside: Control | None = None
    door: Peer
    diligent: bool
    #: what is being handled outside; at the end something else means that a step has failed
    handled: BaseException | None = None

    def make(self, prefill: Layout, decode: Layout, settings: Settings, piece: int, *, tags: bool) -> EngineStage:
        """The stage of one example."""
        return EngineStage(prefill, decode, chunk_tokens=CHUNK_TOKENS, settings=settings, piece=piece, tags=tags)

    @initialize(
        data=st.data(), ring=st.sampled_from(RINGS), slots=st.integers(1, 2), piece=st.sampled_from((0, 64)), seed=ANY,
        diligent=st.sampled_from((True, True, False)), tags=st.booleans(),
    )  # fmt: skip
    def begin(
        self, data: st.DataObject, ring: int, slots: int, piece: int, seed: int, *, diligent: bool, tags: bool
    ) -> None:  # fmt: skip
        """Two groups are connected.  `seed`: of what is left to `idle`; `diligent`: engines finish in the end what
        they have begun."""
        shape = data.draw(st.sampled_from(self.shapes), "shape")
        settings = Settings(timing=TIMING, ring_bytes=ring, slots=slots, window=2)
        self.stage = self.make(*shape, settings, piece, tags=tags)
        self.stage.random, self.diligent, self.handled = Random(seed), diligent, sys.exc_info()[1]

    # ----------------------------------------------------------------------------------------- engines
    @rule(target=rooms, tokens=st.integers(1, 30), prefix=st.sampled_from((0, 0, 8, 16)),
          who=st.sampled_from(("both", "both", "P", "D", "nobody")))  # fmt: skip
    def open(self, tokens: int, prefix: int, who: str) -> Any:
        """A new room, opened by both groups, by one, or by nobody yet."""
        return self._new(tokens, prefix, who)

    @rule(target=rooms, room=rooms, tokens=st.integers(1, 30), who=st.sampled_from(("both", "P", "D")))
    def again(self, room: Room, tokens: int, who: str) -> Any:
        """A new gen of an id that is in use, or was."""
        gen = 1 + max(known.gen for known in self.stage.tasks if known.id == room.id)
        return self._new(tokens, 0, who, room_id=room.id, gen=gen)

    def _new(self, tokens: int, prefix: int, who: str, **name: int) -> Any:
        stage = self.stage
        if len(stage.tasks) >= MOST_ROOMS or not stage.fits(tokens):
            return multiple()
        room = stage.name(tokens, prefix=min(prefix, tokens // 8 * 8), **name)
        if who in {"both", "D"}:
            stage.open_decode(room)
        if who in {"both", "P"}:
            stage.open_prefill(room)
        return room

    @rule(room=rooms, side=st.sampled_from(("P", "D")), index=ANY)
    def open_one(self, room: Room, side: Side, index: int) -> None:
        """One engine that has not opened a room does."""
        if side == "P":
            self.stage.open_prefill(room, [index % len(self.stage.prefills)])
        else:
            self.stage.open_decode(room, [index % len(self.stage.decodes)])

    @rule(room=rooms, index=ANY)
    def announce(self, room: Room, index: int) -> None:
        """A decode engine says that it will open a room, or says so once more."""
        self.stage.announce(room, index % len(self.stage.decodes))

    @rule(room=rooms, index=ANY, part=st.sampled_from((0.0, 0.4, 0.8)))
    def withdraw(self, room: Room, index: int, part: float) -> None:
        """A prefill engine takes pages back, and will compute what was in them once more."""
        upto = int(self.stage.tasks[room].tokens * part)
        self.stage.withdraw(room, index % len(self.stage.prefills), upto)

    @rule(room=rooms)
    def schedule(self, room: Room) -> None:
        """The forward is scheduled."""
        self.stage.prefetch(room)

    @rule(room=rooms, part=st.sampled_from((1.0, 1.0, 0.5, 0.3)), aux=st.sampled_from((b"aux", None)),
          layers=st.sampled_from((None, None, 1)))  # fmt: skip
    def produce(self, room: Room, part: float, aux: bytes | None, layers: int | None) -> None:
        """So much of the prompt is computed, on every prefill rank that has the room, in all layers or the first."""
        self.stage.produce(room, int(self.stage.tasks[room].tokens * part), aux=aux, layers=layers)

    @rule(room=rooms, side=st.sampled_from(("P", "D")), index=ANY)
    def abort(self, room: Room, side: Side, index: int) -> None:
        """One engine gives a room up."""
        group = self.stage.prefills if side == "P" else self.stage.decodes
        self.stage.abort(room, side, index % len(group))

    @rule(room=rooms, index=ANY)
    def refuse(self, room: Room, index: int) -> None:
        """A prefill engine says no to a room, whether or not it has opened it."""
        self.stage.refuse(room, index % len(self.stage.prefills))

    # ----------------------------------------------------------------------------------------- strangers
    @rule(frame=st.one_of(damaged(), frames().map(lambda parts: encode(*parts))))
    def intrude(self, frame: bytes) -> None:
        """Somebody who is of no group sends a prefill rank whatever he likes."""
        if self.outside is None:
            self.outside = Control(None, max_frame=MAX_FRAME, max_bytes=4 * MAX_FRAME)
            self.door = self.outside.connect(self.stage.prefills[0].address)
            self.stage.stranger(self.outside)
        self.outside.send(self.door, frame)

    # -------------------------------------------------------------------------------------------- judged
    @invariant()
    def judged(self) -> None:
        """Every invariant of the stage."""
        self.stage.judge()

    def teardown(self) -> None:
        """Everything comes to its end, unless the example was broken off."""
        stage: EngineStage | None = getattr(self, "stage", None)
        if stage is None:
            return
        try:
            if sys.exc_info()[1] is self.handled:
                if self.diligent:
                    stage.complete()
                stage.drain()
        finally:
            stage.close()
            if self.outside is not None:
                self.outside.close()
