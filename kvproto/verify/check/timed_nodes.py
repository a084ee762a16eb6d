"""Timed nodes: nodes in which time has numbers, with the same ranks, engines, kernels and memory.

All of a rank is kept: when timers end, how often they did, since when nothing was heard, how long a lease holds. All
times are seconds from now, so an idle hour is a circle of a few states. `("pass", seconds)` moves the clock to a moment
at which a timer is due, never beyond one; the rank's own `tick` ends what is due. Two clamps keep values few: a lease
that is over is over, and what was asked for longer ago than any lease lasts was asked for long ago.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec.structs import replace

from kvproto.fsm.timer_wheel import INFINITY
from kvproto.protocol.messages import Message
from kvproto.verify.check.decode_memory import DNode
from kvproto.verify.check.moments import dated, since
from kvproto.verify.check.node import GONE, NOW, Input, Node, RankOutput, Unrest, judge
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.nodes_prefill import PrefillNode
from kvproto.verify.check.prefill_local_steps import PNode
from kvproto.verify.check.snapshot import FAILED, UNTIMED, Forms, Frozen, freeze_decode, freeze_prefill

#: timers of one rank that may end at one moment
TOGETHER = 64
#: of a frozen rank: what comes after what an untimed one has (who was heard, when the next timer ends)
HEARD, DUE = -2, -1


def forms(now: float) -> Forms:
    """Return how values are kept at this moment, which is the beginning of time for later readers."""

    def ahead(due: float) -> float:
        return due - now

    def over(until: float) -> float:
        return until - now if until > now else -1.0 if until else 0.0

    def room(value: Any) -> Any:
        return UNTIMED.room(value) if value.state.name in FAILED else replace(value, due=ahead(value.due))

    def send(value: Any) -> Any:
        kept = UNTIMED.send(value)
        due, ends = ahead(value.due), {"lease": over(value.lease), "begin_by": over(value.begin_by)}
        asked = {"asked": since(value.asked - now), "first": since(value.first - now)}
        return replace(kept, due=due, tries=value.tries, mark=value.mark, **ends, **asked)

    def write(value: Any) -> Any:
        return replace(value, until=over(UNTIMED.write(value).until and value.until))

    def link(value: Any) -> Any:
        return replace(value, due=ahead(value.due))

    return Forms(room, send, write, link, UNTIMED.grant)


class TimedNode(Node):
    """The common part of both timed nodes; `now`: how far the clock has moved in this step."""

    now: float = NOW
    rank: Any
    interpreter: Any

    def extended(self, frozen: Frozen) -> Frozen:
        values = [value for store in self.rank.stores.values() for _, value in store.items()]
        due = min((value.due for value in values), default=INFINITY) - self.now
        return (*frozen, tuple(sorted(self.rank.heard_by)), due)

    def restore(self, frozen: Frozen) -> None:
        """Restore the values that an untimed rank lacks; its others are restored already."""
        self.rank.heard_by = set(frozen[HEARD])
        self.rank.start_timers()

    def dated(self, body: Message) -> Message:
        """The message, which says how long ago something was asked."""
        return dated(body, lambda at: since(at - self.now))

    def pass_time(self, seconds: float) -> None:
        """The clock moves to this moment, and what is due ends."""
        self.now = seconds
        for _ in range(TOGETHER):
            if self.rank.next_deadline > seconds:
                return
            self.interpreter.tick(seconds)
        judge("L4", holds=False, text=f"more than {TOGETHER} times a timer of one rank ends at one moment")

    def thaw_rank(self, frozen: Frozen) -> None:
        """Make the rank what was frozen; now is zero."""
        self.now = NOW
        cast("Any", super()).thaw_rank(frozen[:HEARD])
        self.restore(frozen)

    def drive(self, what: Input) -> None:
        """Time passes, or what happens without."""
        if what[0] == "pass":
            self.pass_time(what[1])
        else:
            cast("Any", super()).drive(what)

    def settled(self, v: Any) -> Unrest:
        """Return the unrest of rooms that the engine has opened or lost."""
        unrest: Unrest = cast("Any", super()).settled(self.begun(v))
        return unrest

    @staticmethod
    def begun(value: Any) -> Any:
        """The value as if the engine knew nothing of the rooms that it has not opened yet."""
        return value._replace(script=tuple(at or GONE for at in value.script), rank=value.rank[:HEARD])


class TimedPrefillNode(TimedNode, PrefillNode):
    """A prefill rank with its clock."""

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[PNode, list[RankOutput]]:
        """As without a clock; no timer runs."""
        value, outs = super().initial(life, script)
        return value._replace(rank=(*value.rank, (), INFINITY)), outs

    def freeze_rank(self) -> Frozen:
        return self.extended(freeze_prefill(self.rank, self.names, self.others.everyone, forms(self.now)))


class TimedDecodeNode(TimedNode, DecodeNode):
    """A decode rank with its clock."""

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[DNode, list[RankOutput]]:
        """As without a clock; its timers begin now, wherever the clock of the step before was."""
        self.now = NOW
        return super().initial(life, script)

    def freeze_rank(self) -> Frozen:
        return self.extended(freeze_decode(self.rank, self.names, self.others.everyone, forms(self.now)))
