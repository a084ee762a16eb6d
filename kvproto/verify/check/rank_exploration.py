"""Rank exploration: a world of ranks to click through; each step is told by its rank's trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from kvproto.fsm.records import StepEntry
from kvproto.observe.written import RankLogHead
from kvproto.verify.check.config import KINDS as FAULT_KINDS
from kvproto.verify.check.config import Config
from kvproto.verify.check.explorers import explorer
from kvproto.verify.check.node import Input, Violation
from kvproto.verify.check.state_encoding import DEAD, MASK, WorldEvent
from kvproto.verify.check.step_wording import actors, body, phrase, reader, room
from kvproto.verify.framework.explore.exploration import Exploration, Json, budget
from kvproto.verify.framework.search import FAULT, TIMER
from kvproto.verify.trace.rank_stories import TELLING, RankStories

HEARD = frozenset({"message", "hello", "notified", "wrote"})
ENGINE = frozenset({
    "engine", "open", "announce", "renew", "leave", "address", "name", "close", "refuse", "dismiss", "abort",
})  # fmt: skip


class WorldNames(RankStories):
    """Tells a rank's traces by the world's names: there no two groups' ranks have the same number."""

    def __init__(self, config: Config, node: Any) -> None:
        super().__init__()
        self.config, self.node = config, node

    def peers(self, head: RankLogHead, names: Mapping[Any, str]) -> dict[int, str]:
        return {link: f"{'D' if head.side == 'prefill' else 'P'}{link - 1}" for link in head.links}

    def machine(self, step: StepEntry) -> str:
        """A send's decode rank is a member of the room's group."""
        said, event = super().machine(step), cast("Any", step.event)
        if step.machine.partition("_")[2] not in {"send", "write"}:
            return said
        return f"{said.rpartition(' ')[0]} {reader(self.config, self.node.names.place[event.room], event.peer)}"


class RankExploration(Exploration):
    """One configuration."""

    headings: ClassVar = Exploration.headings | {
        "device": "a kernel or a write ends", "engine": "an engine calls", "fault": "a fault, from the world's budget",
    }  # fmt: skip
    telling = TELLING

    def __init__(self, name: str, config: Config) -> None:
        self.config, self.world = config, explorer(config)
        super().__init__(name, config.about, self.world)
        self.parties = actors(config)
        self._names = [WorldNames(config, node) for node in self.world.nodes]
        self._told: dict[tuple[int, int, Input], list[Json]] = {}

    # ------------------------------------------------------------------------------------------------ steps
    def phrase(self, state: Any, event: Any) -> str:
        """Word the step; a prefill engine's call by what its script has next."""
        if event.what[0] == "seen":
            return "the state itself"
        if event.what[0] in ("engine", "engine late"):
            k = event.what[1]
            word = self.config.engine[self.world.part(state, event.at).script[k]]
            event = event._replace(what=(*event.what, word.replace("+", ", ")))
        return phrase(self.config, event)

    def kind(self, event: WorldEvent) -> str:
        word = event.what[0]
        if event.kind in (FAULT, TIMER):
            return "fault" if event.kind == FAULT else "time"
        return "deliver" if word in HEARD else "engine" if word in ENGINE else "device"

    def told(self, state: Any, event: Any) -> list[Json]:
        at, what = event.at, event.what
        if at >= self.world.n or what[0] in ("crash", "restart", "slow"):
            return []
        asked = at, state >> self.world.shifts[at] & MASK, what
        if (moments := self._told.get(asked)) is None:
            moments = self._told[asked] = self._moments(*asked)
        return moments

    def _moments(self, at: int, number: int, what: Input) -> list[Json]:
        node, value = self.world.nodes[at], self.world.parts[at].values[number]
        if value[0] is DEAD:
            return []
        node.rank.trace.clear()  # a step of the memory alone leaves no trace
        try:
            node.step(value, what)
        except Violation:
            return []
        return self.of_trace(node.rank, self.parties[at], self._names[at])

    # ----------------------------------------------------------------------------------------------- states
    def parts(self, state: Any) -> list[tuple[Any, ...]]:
        return [(at, state >> shift & MASK) for at, shift in enumerate(self.world.shifts)]

    def shown(self, part: tuple[Any, ...]) -> Json:
        """A rank's machines, memory and slots; a link's messages; what may still go wrong."""
        at, number = part
        value = self.world.parts[at].values[number]
        if at < self.world.n:
            return self._rank(at, value)
        if at < self.world.last:
            p, d = self.world.pairs[at - self.world.n]
            names = f"P{p}", f"D{d}"
            ways = (*names, value.to_decode), (*names[::-1], value.to_prefill)
            mail = [{"from": a, "to": b, "said": self._message(item)} for a, b, queue in ways for item in queue]
            reports = [{"from": names[1], "to": names[0], "said": f"report: its write: {said[1]}"}
                       for said in map(self.world.messages.values.__getitem__, value.reports)]  # fmt: skip
            told = [{"from": names[0], "to": names[1], "said": f"{self._message(item)}, with the write"}
                    for item in value.notifications]  # fmt: skip
            return {"link": list(names), "mail": [*mail, *reports, *told]}
        return budget(zip(FAULT_KINDS, value.left, strict=True))

    def _message(self, item: int) -> str:
        epoch, k, said = self.world.messages.values[item]
        about = f" about {room(self.config, k)}" if k >= 0 else ""
        return body(said) + about + (f" of epoch {epoch}" if epoch else "")

    def _rank(self, at: int, value: Any) -> Json:
        name = self.parties[at]
        if value[0] is DEAD:
            return {"party": name, "dead": True, "machines": [], "facts": []}
        node: Any = self.world.nodes[at]
        prefill = at < self.world.first_decode
        if not prefill:
            node.rank, node.interpreter = node.lives[value.life]
        node.thaw_rank(value.rank)
        machines = [
            {"machine": store.table.name, "name": self._machine(node, kind, key), "state": each.state.name}
            for kind, store in node.rank.stores.items()
            for key, each in (*store.items(), *store.ended().items())
        ]
        return {
            "party": name, "dead": False, "machines": machines,
            "facts": self._slots(value) if prefill else self._memory(value),
            "ring": None if prefill else self._ring(node),
        }  # fmt: skip

    def _machine(self, node: Any, kind: str, key: Any) -> str:
        prefill = node.SIDE == 0
        if kind == "links":
            return f"link to {'D' if prefill else 'P'}{key - 1}"
        whole, piece = key if isinstance(key, tuple) else (key, None)
        k = node.names.place[whole]
        if piece is None:
            return room(self.config, k)
        chunk, member = (piece >> 16, piece & 0xFFFF) if prefill else (piece, None)
        what = f"{kind[:-1]} of {'the aux row' if chunk < 0 else f'chunk {chunk}'} of {room(self.config, k)}"
        return what if member is None else f"{what} to {reader(self.config, k, member)}"

    def _chunk(self, k: int, chunk: int) -> str:
        return f"chunk {chunk} of {room(self.config, k)}"

    def _slots(self, value: Any) -> list[list[str]]:
        return _facts({
            "last gathered into its slots": [self._chunk(*slot[:2]) if slot else "nothing" for slot in value.slots],
            "being gathered": [self._chunk(*gather[:2]) for gather in value.gathers],
            "writes posted": [f"{self._chunk(*w[:2])} to {reader(self.config, w[0], w[2])}" for w in value.posted],
        })

    def _memory(self, value: Any) -> list[list[str]]:
        return _facts({
            "writes under way": [self._write(*write) for write in value.writes],
            "being scattered": [self._chunk(*job) for job in value.scatters],
        })

    def _write(self, writer: int, k: int, chunk: int, offset: int, *rest: Any) -> str:
        into = "its pages" if offset < 0 else f"the ring at {offset}"
        return f"P{writer}: {self._chunk(k, chunk)} into {into}{', in doubt' if rest[-1] else ''}"

    def _ring(self, node: Any) -> Json:
        """The ring's size, and the regions that are promised."""
        owner = {each.grant: (key, each.state.name) for key, each in node.rank.stores["grants"].items()}
        regions = []
        for each in node.rank.ring.live.values():
            key, state = owner.get(each.grant, (None, "freed"))
            said = "" if key is None else f"{room(self.config, node.names.place[key[0]])[5:]}{key[1]}"
            regions.append({"from": each.offset, "to": each.end, "round": each.round, "said": said, "state": state})
        return {"size": node.rank.ring.size, "regions": regions, "mark": list(node.rank.ring.mark)}


def _facts(said: dict[str, list[str]]) -> list[list[str]]:
    return [[name, "; ".join(things)] for name, things in said.items() if things]
