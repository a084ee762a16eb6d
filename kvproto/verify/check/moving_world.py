"""Moving world: a timed world in which a prefill rank that starts anew listens at another address.

Its former address is dead: what is on its way there when it starts anew is lost, and so is everything that is sent
there later.  What its former life has sent may still arrive.  The engine of each decode rank learns of the new address,
and names it (`name`) at once or later: a directory takes its time.  It takes as long as a dead peer needs to be noticed
at most.  A decode rank that starts anew calls where the first life was, and learns of the last one in the same way.

An address is a rank's name and its life (`P0`, `P0@1`).  A decode rank's message goes by way of the prefill rank that
it is meant for (`arrived at`), which alone knows whether it still listens there.  Where a message comes from follows
from its epoch, whose upper bits are the sender's incarnation, as in production.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kvproto.protocol.messages import Message
from kvproto.verify.check.decode_memory import DNode
from kvproto.verify.check.network import TO_PREFILL
from kvproto.verify.check.node import NOW, Input, Move, RankOutput, put
from kvproto.verify.check.nodes_decode import DecodeNode
from kvproto.verify.check.nodes_prefill import PrefillNode
from kvproto.verify.check.prefill_local_steps import PNode
from kvproto.verify.check.state_encoding import DEAD, BudgetState, Op
from kvproto.verify.check.timed_nodes import TimedDecodeNode, TimedPrefillNode
from kvproto.verify.check.timed_world import TimedExplorer

#: an epoch's bits below its incarnation
LIFE = 16


def address(p: int, life: int) -> str:
    """Return where this life of the prefill rank listens."""
    return f"P{p}@{life}" if life else f"P{p}"


class MovingPrefillNode(TimedPrefillNode):
    """A prefill rank each of whose lives has an address of its own."""

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[PNode, list[RankOutput]]:
        """As without addresses; a later life is known by its own to every decode rank's engine."""
        value, outs = super().initial(life, script)
        return value, [*outs, *(("moved", d, life) for d in self.peers if life)]

    def step(self, v: PNode, what: Input) -> tuple[PNode, list[RankOutput]]:
        """Take in what is sent to this life's address, and nothing else."""
        match what:
            case "arrived at", d, life, message:
                return v, [("arrives", d, message)] if life == v.life else []
            case "asked where", d:
                return v, [("is at", d, v.life)]
        return super().step(v, what)


class MovingDecodeNode(TimedDecodeNode):
    """A decode rank whose engine is told where prefill ranks are."""

    def initial(self, life: int = 0, script: tuple[int, ...] = ()) -> tuple[DNode, list[RankOutput]]:
        """As without addresses: it calls where first lives were; its engine learns where the last ones are."""
        value, outs = super().initial(life, script)
        news = (0,) * self.others.everyone
        return value._replace(news=news), [*outs, *(("asks where", p) for p in self.peers)]

    def moves(self, v: DNode) -> list[Move]:
        """And its engine names an address that it has learnt of. Only beats of a link end a trial."""
        named = [Move("plain", "", p, -1, ("name", p)) for p in self.peers if v.news[p]]
        return [*(move for move in super().moves(v) if move.input[0] != "tried"), *named]

    def step(self, v: DNode, what: Input) -> tuple[DNode, list[RankOutput]]:
        """Its engine may learn of an address; the rest is as ever."""
        if what[0] == "moved":
            return v._replace(news=put(v.news, what[1], what[2])), []
        return super().step(v, what)

    def drive(self, what: Input) -> None:
        """The engine names an address, or what happens without."""
        if what[0] != "name":
            super().drive(what)
            return
        p, v = what[1], self.current
        self.current = v._replace(news=put(v.news, p, 0))
        self.rank.next_link = p + 1
        who = self.others.group(p), self.others.member(p)
        _, effects = self.rank.call(*who, self.plan, NOW, address(p, v.news[p]))
        self.interpreter.carry_out(effects, NOW)

    def deliver(self, place: bytes, epoch: int, room: int, body: Message) -> None:
        """Send a message to an address; whether somebody listens there is not known here."""
        home, _, life = place.partition(b"@")
        super().deliver(home, epoch, room, body)
        _, p, message = self.outs.pop()
        self.outs.append(("says", p, int(life or 0), message))

    def _thaw_links(self, life: int) -> None:
        """And the addresses that are tried beside links."""
        super()._thaw_links(life)
        for link, value in self.rank.links.items():
            if value.beside:
                self.interpreter.bind(-link, value.beside.encode())

    def origin(self, p: int, epoch: int) -> bytes:
        """Return where the life listens that has given this epoch."""
        return address(p, max(0, (epoch >> LIFE) - 1)).encode()


class MovingExplorer(TimedExplorer):
    """A timed world whose prefill ranks come back elsewhere."""

    PREFILL: ClassVar[type[PrefillNode]] = MovingPrefillNode
    DECODE: ClassVar[type[DecodeNode]] = MovingDecodeNode
    LATER: ClassVar[frozenset[str]] = TimedExplorer.LATER | {"name"}

    def deeds(self, at: int, out: RankOutput) -> tuple[tuple[int, Input], ...]:
        """Return what becomes of an address, and of what is sent to one."""
        kind, other, me = out[0], out[1], self.index(at)
        if kind == "says":
            return ((other, ("arrived at", me, *out[2:])),)
        if kind == "asks where":
            return ((other, ("asked where", me)),)
        told = self.first_decode + other, ("moved", me, *out[2:])
        if kind == "is at":
            return (told,)
        if kind == "moved":
            return (self.link_at[me, other], ("wipe", TO_PREFILL)), told
        return super().deeds(at, out)

    def _ops(self, at: int, outs: list[RankOutput]) -> tuple[Op, ...]:
        ops: list[Op] = []
        for out in outs:
            if out[0] == "arrives":
                shift = self.shifts[self.link_at[self.index(at), out[1]]]
                ops.append((shift, TO_PREFILL, self.messages(out[2])))
            else:
                ops += super()._ops(at, [out])
        return tuple(ops)

    def _new_epoch(self, numbers: list[int], i: int) -> int:
        """The least epoch of this incarnation that nobody of this link remembers."""
        at, used = self.ends[i][1], self._epochs(numbers, i)
        value = self.parts[at].values[numbers[at]]
        life: int = value[1] if value[0] is DEAD else value.life
        first = life + 1 << LIFE
        return next(epoch for epoch in range(first + 1, first + len(used) + 2) if epoch not in used)

    def _overdue(self, values: list[Any], spent: BudgetState) -> bool:
        late = spent.hurt >= self.bounds.away
        return super()._overdue(values, spent) or (late and any(any(v.news) for v in values if isinstance(v, DNode)))
