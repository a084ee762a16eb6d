"""A stage: real ranks, a clock that is turned by hand, and a network that does what the scene says.

The ranks are the ones that run in engines; the stage only carries out their effects: messages take a while, kernels and
writes take a while, and all of it happens in the order of one clock, so that a scene is the same every time.  What
is drawn from it (sequence charts, sample traces) is therefore what the tables do, not what somebody thinks they do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, cell
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.settings import Settings

#: seconds that things take on the stage
MESSAGE, KERNEL, WRITE, CONNECT = 50e-6, 100e-6, 400e-6, 200e-6
GRID, PAGE = 64, 16


class Cast(msgspec.Struct, frozen=True):
    """Who is on stage: ranks of each side, and what they are set to."""

    prefill: int = 1
    decode: int = 1
    heads: int = 4
    settings: Settings = Settings()

    def layout(self, side: str) -> Layout:
        """The layout of one side; the two keep their pages in different orders, so that one pair, too, must stage."""
        return Layout(
            layers=2, heads=self.heads, k_dim=16, v_dim=16, itemsize=2, dtype="bfloat16", page_size=PAGE,
            tp=self.prefill if side == "P" else self.decode, order="NHD" if side == "P" else "HND",
        )  # fmt: skip


class Stage:
    """Ranks, links and the clock; `lose` says of a message (sender, receiver, body) whether it is lost."""

    def __init__(self, cast: Cast, *, lose: Callable[[str, str, msg.Message], bool] = lambda *_: False) -> None:
        """The decode ranks call at once; `run` lets things happen."""
        self.now = 0.0
        self.cast = cast
        self.lose = lose
        self.plan = Plan(cast.layout("P"), cast.layout("D"), GRID)
        self.ranks: dict[str, Rank] = {}
        self.past: list[Rank] = []
        self.dead: set[str] = set()
        self.outcomes: dict[tuple[str, int], object] = {}
        self.reports: list[Report] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for i in range(cast.prefill):
            self.start_prefill(i, incarnation=1)
        for i in range(cast.decode):
            name = f"D{i}"
            rank = DecodeRank(cast.layout("D"), i, group=2, grid=GRID, incarnation=1, settings=cast.settings)
            self.ranks[name] = rank
            for peer in self.plan.linked_to(i):
                _, effects = rank.call(1, peer, self.plan, self.now)
                self._perform(name, effects)

    def start_prefill(self, index: int, *, incarnation: int) -> None:
        """A prefill rank (re)starts: all that it knew is gone."""
        layout = self.cast.layout("P")
        if f"P{index}" in self.ranks:
            self.past.append(self.ranks[f"P{index}"])
        self.ranks[f"P{index}"] = PrefillRank(
            layout, index, group=1, grid=GRID, incarnation=incarnation, settings=self.cast.settings
        )
        self.dead.discard(f"P{index}")

    def terms(self, name: str) -> ev.Terms:
        """What a decode rank has to do with the prefill group."""
        rank = self.ranks[name]
        assert isinstance(rank, DecodeRank)
        return rank.terms(1, self.plan)

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Have something happen `delay` seconds from now."""
        self._count += 1
        heappush(self._agenda, (self.now + delay, self._count, action))

    def tell(self, name: str, event: Event, delay: float = 0.0) -> None:
        """An event of a rank, `delay` seconds from now."""
        self.at(delay, lambda: self._handle(name, event))

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + seconds
        while True:
            timers = [(rank.next_deadline, name) for name, rank in self.ranks.items() if name not in self.dead]
            due, name = min(timers, default=(end, ""))
            after = self._agenda[0][0] if self._agenda else end
            if min(due, after) >= end:
                break
            self.now = max(self.now, min(due, after))
            if due < after:
                self._perform(name, self.ranks[name].tick(self.now))
            else:
                heappop(self._agenda)[2]()
        self.now = end

    # ------------------------------------------------------------------------------ what effects come to
    def _handle(self, name: str, event: Event) -> None:
        if name not in self.dead:
            self._perform(name, self.ranks[name].handle(event, self.now))

    def _perform(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            self._one(name, effect)

    def _one(self, name: str, effect: Effect) -> None:
        rank = self.ranks[name]
        match effect:
            case do.SayHello(link, session) if isinstance(rank, DecodeRank):
                self._post(name, link, 0, 0, rank.hello(session))
            case do.SayWelcome(link, session, epoch) if isinstance(rank, PrefillRank):
                self._post(name, link, 0, 0, rank.welcome(session, epoch))
            case do.SayRefusal(link, session, why):
                self._post(name, link, 0, 0, msg.Refusal(session, why))
            case do.Connect(link, session):
                self.tell(name, ev.WiredUp(link, session), CONNECT)
            case do.Transmit(link, epoch, room, body):
                self._post(name, link, epoch, room, body)
            case do.TransmitAux(link, epoch, room):
                self._post(name, link, epoch, room, msg.Aux(b"aux row"))
            case do.TransmitPages(link, epoch, room, chunk):
                self._post(name, link, epoch, room, msg.PagesRsp(chunk, self._pages(rank, room, chunk)))
            case _:
                self._work(name, effect)

    def _work(self, name: str, effect: Effect) -> None:
        match effect:
            case do.LaunchGather(room, chunk, peer):
                self.tell(name, ev.Gathered(room, chunk, peer), KERNEL)
            case do.PostWrite(room, chunk, peer) | do.PostPages(room, chunk, peer):
                self.tell(name, ev.WriteCompleted(room, chunk, peer), WRITE)
            case do.LaunchScatter(room, chunk):
                self.tell(name, ev.Scattered(room, chunk), KERNEL)
            case do.AnnounceOutcome(room, cause):
                self.outcomes[name, room] = cause
            case Report():
                self.reports.append(effect)

    def _pages(self, rank: Rank, room: int, chunk: int) -> bytes:
        value = rank.value_of(room)
        first, count = cell(chunk, value.tokens, value.prefix, GRID)
        return b"".join(page.to_bytes(4, "little") for page in range(first // PAGE, -(-(first + count) // PAGE)))

    def _post(self, name: str, link: int, epoch: int, room: int, body: msg.Message) -> None:
        peer = self.ranks[name].peers[link]
        other = f"{'D' if name[0] == 'P' else 'P'}{peer.rank}"
        if not self.lose(name, other, body):
            self.at(MESSAGE, lambda: self._deliver(name, other, epoch, room, body))

    def _deliver(self, name: str, other: str, epoch: int, room: int, body: msg.Message) -> None:
        if other in self.dead:
            return
        sender, rank = self.ranks[name], self.ranks[other]
        if isinstance(body, msg.Hello):
            assert isinstance(rank, PrefillRank)
            _, effects = rank.hello(body, self.now)
        else:
            link = rank.link_of.get((sender.group, sender.index), 0)
            effects = rank.receive(link, epoch, room, body, self.now)
        self._perform(other, effects)
