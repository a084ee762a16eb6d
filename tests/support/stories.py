"""Stories: whole transfers under random trouble, from which the scenario tests' schedules are made."""

from __future__ import annotations

from random import Random

import msgspec

from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Event
from kvproto.layout.sharding import Layout
from kvproto.protocol import events as ev
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.sim.world import FaultChances, Side, SimulatedWorld

CHUNK_TOKENS, PAGE = 8, 4
#: short, so that every timer ends in a story
QUICK = Timing(
    resend=Timer(0.25, 4, 1.0), grant_retry=Timer(0.25, 3), queue_retry=Timer(0.25, 2), call=Timer(0.5, 8),
    engine=Timer(4.0), bootstrap=Timer(4.0), stall=Timer(12.0), lease=Timer(2.0), write=Timer(3.0), kernel=Timer(3.0),
    connect_timeout=Timer(2.0),
    heartbeat=Timer(1.0, 4), silence=Timer(4.0), forget=Timer(15.0),
)  # fmt: skip
SHAPES = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4), (8, 2), (2, 8))


def layout(tp: int, *, heads: int = 4, page: int = PAGE) -> Layout:
    return Layout(layers=2, heads=heads, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=page, tp=tp)


def chances(random: Random) -> FaultChances:
    """One story in three has no trouble of the network; each other trouble is rare in most stories."""

    def rare(value: float) -> float:
        return value if random.random() < 0.2 else 0.0

    bad = random.random() < 0.66
    return FaultChances(
        lose=random.choice((0.0, 0.02, 0.15)) * bad, repeat=random.choice((0.0, 0.1)) * bad,
        reorder=random.choice((0.0, 0.5)) * bad, gather_fails=rare(0.05), write_fails=rare(0.05),
        doubt=random.choice((0.0, 0.7)), told=0.5, write_hangs=rare(0.1), gather_hangs=rare(0.1),
        scatter_fails=rare(0.1), write_unmade=rare(0.05), write_waits=rare(0.2), write_refused=rare(0.05),
        batches=random.choice((1, 3)),
        together=random.choice((0.0, 0.3)),
        wire_fails=rare(0.3), wait=random.choice((0.02, 0.1, 0.3)),
    )  # fmt: skip


#: a transport that takes some batches, loses some, and is not sure of others
ROUGH = FaultChances(
    gather_fails=0.05, write_fails=0.35, doubt=0.5, told=0.5, write_hangs=0.1, write_waits=0.3, write_refused=0.15,
    batches=4, together=0.5, wait=0.1,
)  # fmt: skip


class Story:
    """A world, the calls its engines still have to make, and the accidents that still have to happen."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed ^ 0x5EED)
        tp, rough = random.choice(SHAPES), random.random() < 0.25
        settings = Settings(
            timing=QUICK, ring_bytes=random.choice((256, 1024, 2048, 1 << 20)), slots=random.choice((1, 2)),
            window=random.choice((1, 2, 4)), ring_rounds_ahead=random.choice((1, 2)),
            route="pages" if random.random() < (0.7 if rough else 0.3) else "cost",
            tombstones=random.choice((2, 64)), unclaimed_rooms=random.choice((1, 64)),
            max_unanswered_requests=random.choice((1, 2, 64)), page_writes=random.choice((1, 8)),
        )  # fmt: skip
        self.world = SimulatedWorld(
            seed, layout(tp[0]), layout(tp[1]), chunk_tokens=CHUNK_TOKENS, settings=settings,
            chances=ROUGH if rough else chances(random), native_notify=random.random() < 0.5,
        )  # fmt: skip
        self.rooms = [room_key(100 + k, 0) for k in range(random.choice((1, 2, 4)))]
        self.calls: list[list[tuple[Side, int, Event]]] = []
        self.pace = random.choice((0.05, 0.3, 0.8))
        self.trouble = random.random() < 0.5
        for room in self.rooms:
            self._plan(room)

    def _plan(self, room: int) -> None:
        random, world = self.random, self.world
        tokens = random.choice((3, 8, 20, 37))
        prefix = random.choice((0, 0, PAGE, tokens)) if tokens > PAGE else 0
        lazy, late, confused = random.random() < 0.1, random.random() < 0.2, random.random() < 0.06
        for index in range(world.layouts["P"].ranks):
            if lazy and random.random() < 0.5:
                continue
            said = tokens + confused * random.choice((0, 1))
            begin: list[Event] = [ev.EngineOpened(room, said)]
            begin += [ev.ForwardScheduled(room)] if random.random() < 0.8 else []
            work: list[Event] = [ev.TokensProduced(room, n) for n in (tokens // 3, tokens // 2, tokens) if n]
            work.insert(random.randrange(len(work) + 1), ev.AuxProvided(room))
            if late and random.random() < 0.5:
                work = work[: random.randrange(len(work))]
            calls = begin + work
            if random.random() < 0.1:
                calls.insert(random.randrange(1, len(calls) + 1), ev.EngineAborted(room, Cause.PREFILL_ABORTED))
            self.calls.append([("P", index, event) for event in calls])
        for index in range(world.layouts["D"].ranks):
            if lazy and random.random() < 0.5:
                continue
            terms = world.decode(index).terms(1, world.plan)
            opened: list[Event] = [ev.RoomOpened(room, terms, tokens, prefix)]
            if random.random() < 0.1:
                opened.append(ev.EngineAborted(room, Cause.DECODE_ABORTED))
            self.calls.append([("D", index, event) for event in opened])

    def act(self) -> None:
        """One call of an engine, or one accident, or whatever the world does next."""
        random, world = self.random, self.world
        if self.calls and random.random() < self.pace:
            calls = random.choice(self.calls)
            side, index, event = calls.pop(0)
            if not calls:
                self.calls.remove(calls)
            node = world.nodes[side, index]
            if isinstance(event, ev.EngineOpened | ev.RoomOpened):
                node.opened.add(event.room)
            if msgspec.structs.asdict(event)["room"] in node.opened:
                world.raise_event(side, index, event)
        elif self.trouble and random.random() < 0.004:
            self._accident()
        else:
            world.step()

    def _accident(self) -> None:
        random, world = self.random, self.world
        side, index = random.choice(list(world.nodes))
        rank = world.nodes[side, index].rank
        match random.choice(("restart", "cut", "reset", "hurry", "silence")):
            case "restart":
                world.start(side, index)
                if side == "D":
                    world.call(index)
            case "cut" if rank.links:
                cut = random.choice((ev.TransportLost, ev.QueueOverflowed)) if side == "P" else ev.QueueOverflowed
                world.raise_event(side, index, cut(random.choice(list(rank.links))))
            case "reset" if rank.links:
                link = random.choice(list(rank.links))
                world.raise_event(side, index, ev.ResetReceived(link, rank.links[link].epoch))
            case "hurry":
                world.hurry()
            case "silence":
                world.pass_time(random.choice((2.0, 8.0, 20.0)))

    def over(self) -> bool:
        """Every engine has made its calls and has been told everything."""
        return not self.calls and all(self.world.settled(room) for room in self.rooms)

    def tell(self) -> SimulatedWorld:
        """The whole story: to its end, then until nothing is left anywhere."""
        world = self.world
        for _ in range(100_000):
            if self.over():
                break
            self.act()
            if self.random.random() < 0.001:
                world.hurry()
        else:
            raise AssertionError(f"seed {world.seed}: not over at {world.now:.1f} s: {world.idle()}")
        world.chances = FaultChances()
        world.hurry()
        world.run(lambda: not world.idle())
        return world
