"""A scripted engine, and everything that it may do: where the request tables are searched.

One scheduler with a few blocks, and ranks whose endpoints do what endpoints may do, at any moment: a room ends, well or
not, and is released some time after.  Orders and reports are on their way for as long as they like, in their order.  A
prompt has two tokens (or three), and a block holds one.

    reuse     no block is freed, or given to another request, while the transfer may still touch it
    order     the endpoint is asked for nothing of a room that it has forgotten
    report    each rank reports a request once, and only one that the scheduler waits for
    landing   what is reported is not touched any more
    blocks    in the end every block is free, and nothing is kept of anybody
    told      in the end whoever waits at the other side was told, also of a request that never had blocks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from kvproto.adapters.request_events import (
    Allocated,
    Arrived,
    CarryOut,
    Finished,
    Forget,
    FreeBlocks,
    HandOver,
    Preempted,
    Renew,
    Resume,
    RoomEnded,
    RoomReleased,
    Scheduled,
)
from kvproto.adapters.request_parties import Side, everyone, rank, scheduler
from kvproto.adapters.request_words import (
    SCHEDULER,
    Announce,
    GiveBlocks,
    GiveUp,
    Load,
    OpenRoom,
    Order,
    P,
    Skip,
    Ticket,
    Withdraw,
)
from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.verify.framework.scenario import ApplicationCall, Chances, Scenario, View

WAITS, RUNS, HELD, OVER = "waits", "runs", "held", "over"


class Job(msgspec.Struct, frozen=True):
    """A request in its engine: its blocks, its computed tokens, and whether it may be preempted."""

    name: str
    at: str = ""
    blocks: tuple[int, ...] = ()
    done: int = 0
    fresh: bool = True
    #: it got blocks
    served: bool = False


class Engine(msgspec.Struct, frozen=True):
    """The scheduler's engine; `fault`: what must not happen."""

    jobs: tuple[Job, ...]
    fault: tuple[str, str] | None = None


class Place(msgspec.Struct, frozen=True):
    """A room at a rank's endpoint: the blocks that the transfer may touch, and what it was told."""

    name: str
    at: str = ""
    blocks: tuple[int, ...] = ()
    upto: int = 0
    told: int = 0
    #: the other side was told that it is given up
    refused: bool = False


class Rank(msgspec.Struct, frozen=True):
    """The rooms at an endpoint."""

    places: tuple[Place, ...]
    fault: tuple[str, str] | None = None


class Serving(Scenario):
    """One engine: a scheduler, its ranks, requests `A`, `B` ... and blocks that are not enough for all."""

    def __init__(
        self, side: Side, chances: Chances, *, ranks: int = 1, requests: str = "A", tokens: int = 2,
        blocks: int | None = None,
    ) -> None:  # fmt: skip
        """`blocks`: as many as one request needs, if nothing else is said."""
        self.side, self.ranks, self.requests, self.tokens = side, ranks, tuple(requests), tokens
        self.blocks = tokens if blocks is None else blocks
        super().__init__(("scheduler", *(f"rank{number}" for number in range(1, ranks + 1))), chances)

    def around(self, number: int) -> Engine | Rank:
        """Nobody has asked for anything."""
        if number == SCHEDULER:
            return Engine(tuple(map(Job, self.requests)))
        return Rank(tuple(map(Place, self.requests)))

    def start(self, number: int, around: Engine | Rank, life: int, now: float) -> tuple[Member, list[Effect]]:
        made = rank(self.side, number, self.ranks) if number else scheduler(self.side, self.ranks)
        return made, []

    # --------------------------------------------------------------------------------- what the engine does
    def calls(self, number: int, around: Engine | Rank) -> Iterable[ApplicationCall]:
        """Yield the possible next calls of the engine, or of a rank's endpoint."""
        if isinstance(around, Rank):
            yield from self._endpoint(around)
            return
        for job in around.jobs:
            for word, after, event in self._engine(around, job):
                jobs = tuple(after if each.name == job.name else each for each in around.jobs)
                yield ApplicationCall(f"{word} {job.name}", replace(around, jobs=jobs), event)

    def _engine(self, engine: Engine, job: Job) -> Iterator[tuple[str, Job, Event]]:
        name = job.name
        if not job.at:
            ticket = Ticket(self.requests.index(name), self.tokens)
            yield "accept", replace(job, at=WAITS), Arrived(name, ticket, everyone(self.ranks))
            yield "end, which hands nothing over,", replace(job, at=HELD, served=True), Finished(name, well=True)
        if job.at in (WAITS, RUNS):
            yield "give up", replace(job, at=HELD), Finished(name, well=False)
            yield from (self._prefill if self.side == "prefill" else self._decode)(engine, job)

    def _prefill(self, engine: Engine, job: Job) -> Iterator[tuple[str, Job, Event]]:
        name, free = job.name, self._free(engine)
        for count in range(1, min(self.tokens - job.done, len(free)) + 1):
            blocks = (*job.blocks, *free[:count])
            after = replace(job, at=RUNS, blocks=blocks, done=job.done + count, served=True)
            yield f"schedule {count} of", after, Scheduled(name, after.blocks, after.done)
        if job.blocks and job.fresh:
            yield "preempt", replace(job, at=WAITS, blocks=(), done=0, fresh=False), Preempted(name)
        if job.done == self.tokens:
            yield "end", replace(job, at=HELD), Finished(name, well=True)

    def _decode(self, engine: Engine, job: Job) -> Iterator[tuple[str, Job, Event]]:
        name, free = job.name, self._free(engine)
        if job.at == WAITS and not job.blocks and len(free) >= self.tokens:
            for prefix in (0, self.tokens):
                after = replace(
                    job, blocks=free[: self.tokens], served=prefix < self.tokens, at=WAITS if prefix == 0 else RUNS
                )
                yield f"allocate (prefix {prefix})", after, Allocated(name, after.blocks, prefix)
        if job.at == RUNS:
            yield "end", replace(job, at=HELD), Finished(name, well=True)

    def _free(self, engine: Engine) -> tuple[int, ...]:
        taken = {block for job in engine.jobs for block in job.blocks}
        return tuple(block for block in range(self.blocks) if block not in taken)

    def _endpoint(self, around: Rank) -> Iterator[ApplicationCall]:
        for place in around.places:
            name = place.name
            if place.at in ("open", "stopping"):
                ended = self._with(around, replace(place, at="ended"))
                yield ApplicationCall(f"(endpoint) {name} fails", ended, RoomEnded(name, well=False))
                if place.at == "open" and place.upto == self.tokens:
                    yield ApplicationCall(f"(endpoint) {name} is carried", ended, RoomEnded(name, well=True))
            if place.at == "ended":
                gone = self._with(around, replace(place, at="released", blocks=()))
                yield ApplicationCall(f"(endpoint) {name} is released", gone, RoomReleased(name))

    # ----------------------------------------------------------------------------------- what comes of it
    def act(self, number: int, around: Engine | Rank, effect: Effect) -> tuple[Engine | Rank, None]:
        """The engine frees, hands over, runs; the endpoint does what it is ordered to."""
        if isinstance(around, Engine):
            return self._decide(around, effect), None
        name = effect.request  # type: ignore[attr-defined]  # all of them have it
        place = next(each for each in around.places if each.name == name)
        if isinstance(effect, Forget):
            if effect.told and place.blocks:
                return replace(around, fault=("landing", f"{name} is reported, and {place.blocks} are touched")), None
            return self._with(around, replace(place, told=place.told + effect.told)), None
        if isinstance(effect, Renew):
            fault = ("order", f"{name} is announced again, and released") if place.at == "released" else around.fault
            return replace(around, fault=fault), None
        assert isinstance(effect, CarryOut)
        return self._carry_out(around, place, effect.order), None

    def _decide(self, engine: Engine, effect: Effect) -> Engine:
        name = effect.request  # type: ignore[attr-defined]  # all of them have it
        (job,) = (each for each in engine.jobs if each.name == name)
        if isinstance(effect, FreeBlocks):
            if job.at != HELD:
                return replace(engine, fault=("report", f"the blocks of {name} are freed, which has not ended"))
            job = replace(job, at=OVER, blocks=())
        elif isinstance(effect, Resume):
            job = replace(job, at=RUNS)
        else:
            assert isinstance(effect, HandOver)
        return replace(engine, jobs=tuple(job if each.name == name else each for each in engine.jobs))

    def _carry_out(self, around: Rank, place: Place, order: Order) -> Rank:
        if place.at == "released":
            return replace(around, fault=("order", f"of {place.name}, which is released: {order}"))
        match order:
            case OpenRoom() | Announce():
                return self._with(around, replace(place, at="open"))
            case GiveBlocks(blocks=blocks, upto=upto):
                place = replace(place, blocks=(*place.blocks, *blocks), upto=upto)
            case Load(blocks=blocks):
                place = replace(place, blocks=blocks, upto=self.tokens)
            case Withdraw():
                return self._with(around, replace(place, blocks=(), upto=0))
            case GiveUp():
                at = "stopping" if place.at == "open" else place.at
                return self._with(around, replace(place, at=at, refused=True))
            case Skip():
                return self._with(around, replace(place, upto=self.tokens))
        for other in around.places:
            if other.name != place.name and set(other.blocks) & set(place.blocks):
                both = f"{place.name} gets blocks {place.blocks} while {other.name} is moved from or to {other.blocks}"
                return replace(around, fault=("reuse", both))
        return self._with(around, place)

    @staticmethod
    def _with(around: Rank, place: Place) -> Rank:
        return replace(around, places=tuple(place if each.name == place.name else each for each in around.places))

    # ------------------------------------------------------------------------------------ what has to hold
    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """A fault that was noted; a report twice, or before it is asked for."""
        engine: Engine = views[SCHEDULER].around
        values = (views[SCHEDULER].values or {})["requests"]
        for view in views:
            if view.around.fault is not None:
                fault: tuple[str, str] = view.around.fault
                return fault
        for view in views[1:]:
            for job, place in zip(engine.jobs, view.around.places, strict=True):
                state = getattr(values.get(job.name), "state", None)
                if place.told > 1:
                    return "report", f"{view.name} reports {job.name} a second time"
                if job.at == OVER and job.fresh and place.blocks:
                    return "reuse", f"{job.name} has freed its blocks, and {view.name} touches {place.blocks}"
                if self.side == "prefill" and place.told and state not in (P.PROMISED, P.ABORTED, None):
                    return "report", f"{view.name} reports {job.name}, for which nobody waits"
        return None

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """All that was accepted is over, here and at the ranks, and the other side knows."""
        for job in views[SCHEDULER].around.jobs:
            if job.at not in ("", OVER):
                return "blocks", f"{job.name} {job.at}, with blocks {job.blocks}"
            for view in views[1:]:
                place = next(each for each in view.around.places if each.name == job.name)
                if job.name in (view.values or {})["requests"]:
                    return "blocks", f"{view.name} keeps something of {job.name}"
                if job.at and not job.served and not place.refused and place.at != "released":
                    return "told", f"{job.name} never had blocks, and {view.name} tells nobody"
        return None

    def sights(self, views: list[View]) -> Iterable[str]:
        """A request is served, refused, given up; a room is gone before anybody asks; one is lost early."""
        jobs = views[SCHEDULER].around.jobs
        yield from (f"{job.name} served" if job.served else f"{job.name} refused" for job in jobs if job.at == OVER)
        states = {value.state.name for view in views[1:] for value in (view.values or {})["requests"].values()}
        yield from (f"a room {state}" for state in states & {"GONE", "LOST", "QUIET"})
