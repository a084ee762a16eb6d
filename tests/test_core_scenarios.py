"""Ranks fire every moving row: in stories under random trouble, and in scenes for the rare rows.

The last test counts: every row that moves or speaks has been fired by a rank in one of these ways.  What is left is
listed, with the reason why no rank can get there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from support.night import by_night
from support.stories import CHUNK_TOKENS, PAGE, QUICK, Story, layout

from kvproto.endpoint.explain import explain_link
from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Row
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.states import Cause, DGrant, DLink, DRoom, PLink, PRoom, PSend, PWrite
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.decode_grant import in_doubt
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.tables.links import YIELDS
from kvproto.rank.decode import DecodeRank
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Route, Settings
from kvproto.verify.sim.interpreter import Untaken
from kvproto.verify.sim.world import FaultChances, Side, SimulatedWorld

ROOM = 100
#: at least so many stories are told, then more until every row has been fired
STORIES = by_night(480, by_day=20)
#: first some that fire every row between them
FIRST = 121, 117, 234, 388, 30, 67, 47, 39, 101, 143, 28, 64, 104, 116, 161, 184, 291, 0, 50, 68, 74, 94, 110, 133, 272
SEEDS = tuple(dict.fromkeys((*FIRST, *range(480))))


#: the worlds of one scenario
MADE: list[SimulatedWorld] = []


def world(
    prefill: int = 1, decode: int = 1, *, heads: int = 4, settings: Settings | None = None, up: bool = True
) -> SimulatedWorld:  # fmt: skip
    """Ranks without trouble, wired up."""
    made = SimulatedWorld(
        0, layout(prefill, heads=heads), layout(decode, heads=heads, page=2 * PAGE), chunk_tokens=CHUNK_TOKENS,
        settings=settings or Settings(timing=QUICK, ring_bytes=1 << 20),
    )  # fmt: skip
    if up:
        made.calm()
    MADE.append(made)
    return made


def hear(
    at: SimulatedWorld, side: Side, index: int, body: msg.Message, *, room: int = ROOM, sender: int = 0
) -> list[Effect]:
    """This rank receives this message of the other side's rank, now; returns what it says and does."""
    node = at.nodes[side, index]
    link = node.rank.link_of[(DECODE_GROUP if side == "P" else PREFILL_GROUP), sender]
    effects = node.rank.receive(link, node.rank.links[link].epoch, room, body, at.now)
    node.interpreter.carry_out(effects, at.now)
    return effects


def state(at: SimulatedWorld, side: Side, index: int = 0, room: int = ROOM) -> object:
    return at.nodes[side, index].rank.value_of(room).state


def grant(at: SimulatedWorld, chunk: int = 0) -> object:
    return at.decode(0).grants[ROOM][chunk].state


def send(at: SimulatedWorld, chunk: int = 0) -> object:
    return at.prefill(0).sends[ROOM][chunk << 16].state


def told(effects: list[Effect]) -> list[msg.Message]:
    return [effect.body for effect in effects if isinstance(effect, do.Transmit)]


def read_all(at: SimulatedWorld) -> None:
    while at.mail:
        at.deliver(0)


def ends_well(at: SimulatedWorld) -> None:
    ends(at)
    assert {node.outcomes[ROOM] for node in at.nodes.values()} == {Cause.NONE}


def ends(at: SimulatedWorld) -> None:
    """Resume everything that hangs, and require that nothing is left."""
    at.chances = FaultChances()
    at.hurry()
    at.calm(40.0)
    assert at.idle() == []


def forward(at: SimulatedWorld) -> None:
    for index in range(at.layouts["P"].ranks):
        at.raise_event("P", index, ev.ForwardScheduled(ROOM))


# ------------------------------------------------------------------------------------- a prefill room's others
def stranger_opens(at: SimulatedWorld) -> list[Effect]:
    """A decode rank of a third group calls and opens the same room."""
    rank = DecodeRank(
        layout(1, page=2 * PAGE), 0, group=3, chunk_tokens=CHUNK_TOKENS, incarnation=99, settings=at.settings
    )
    prefill = at.prefill(0)
    link, _ = prefill.hello(rank.hello(7), at.now, b"elsewhere")
    prefill.handle(ev.WiredUp(link, 7, "wire"), at.now)
    return prefill.receive(link, prefill.links[link].epoch, ROOM, msg.Open(20, 0), at.now)


def to_await_engine(at: SimulatedWorld) -> None:
    at.open_decode(0, ROOM, 20)
    at.calm()


def to_await_peers(at: SimulatedWorld) -> None:
    at.open_prefill(0, ROOM, 20)
    at.open_decode(0, ROOM, 20)
    at.calm()


def to_await_forward(at: SimulatedWorld) -> None:
    at.open_all(ROOM, 20)
    at.calm()


def to_open(at: SimulatedWorld) -> None:
    at.open_all(ROOM, 20)
    forward(at)
    at.calm()


def to_draining(at: SimulatedWorld) -> None:
    to_open(at)
    at.chances = FaultChances(write_hangs=1.0)
    at.produce_all(ROOM, 20)
    at.calm()
    at.raise_event("P", 0, ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED))


def to_await_noted(at: SimulatedWorld) -> None:
    to_open(at)
    at.chances = FaultChances(lose=1.0)
    at.raise_event("P", 0, ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED))


def to_done(at: SimulatedWorld) -> None:
    to_open(at)
    at.produce_all(ROOM, 20)
    at.calm()


def to_failed(at: SimulatedWorld) -> None:
    hear(at, "P", 0, msg.Abort(Cause.STALLED))


def to_aborted(at: SimulatedWorld) -> None:
    hear(at, "P", 0, msg.Abort(Cause.DECODE_ABORTED))


WAYS: dict[PRoom, tuple[Callable[[SimulatedWorld], None], int]] = {
    PRoom.AWAIT_ENGINE: (to_await_engine, 1), PRoom.AWAIT_PEERS: (to_await_peers, 2),
    PRoom.AWAIT_FORWARD: (to_await_forward, 1), PRoom.OPEN: (to_open, 1), PRoom.DRAINING: (to_draining, 1),
    PRoom.AWAIT_NOTED: (to_await_noted, 1), PRoom.DONE: (to_done, 1), PRoom.FAILED: (to_failed, 1),
    PRoom.ABORTED: (to_aborted, 1),
}  # fmt: skip


def another_group(where: PRoom) -> None:
    way, decodes = WAYS[where]
    at = world(1, decodes)
    way(at)
    before = at.prefill(0).value_of(ROOM)
    assert before.state is where
    unsaid = where in (PRoom.AWAIT_ENGINE, PRoom.FAILED, PRoom.ABORTED)  # these ended before the engine has spoken
    wanted = [] if unsaid else [msg.Drained(Cause.NOT_ENTITLED)]
    assert told(stranger_opens(at)) == wanted, "until the engine has spoken it may yet be the one"
    assert at.prefill(0).value_of(ROOM) is before, "the room's own group goes on"


def disagreement() -> None:
    at = world(1, 2)
    at.open_decode(0, ROOM, 20)
    at.calm()
    at.open_decode(1, ROOM, 24)
    at.calm()
    assert state(at, "D", 0) is state(at, "D", 1) is DRoom.FAILED
    assert {node.outcomes[ROOM] for node in at.nodes.values() if node.side == "D"} == {Cause.PLAN_MISMATCH}
    at.open_prefill(0, ROOM, 20)
    at.calm()
    assert at.nodes["P", 0].outcomes[ROOM] is Cause.PLAN_MISMATCH
    ends(at)


def forgotten(where: PRoom) -> None:
    way, decodes = WAYS[where]
    at = world(1, decodes)
    way(at)
    hear(at, "P", 0, msg.Gone())
    at.calm()
    wanted = Cause.PREFILL_ABORTED if where is PRoom.DRAINING else Cause.FORGOTTEN
    assert at.nodes["P", 0].outcomes[ROOM] is wanted
    ends(at)


@pytest.mark.parametrize("where", [PRoom.AWAIT_PEERS, PRoom.AWAIT_FORWARD])
def test_a_peer_of_which_nothing_was_asked_has_nothing_to_forget(where: PRoom) -> None:
    way, decodes = WAYS[where]
    at = world(1, decodes)
    way(at)
    said = hear(at, "P", 0, msg.Gone())
    assert [effect.why for effect in said if isinstance(effect, Report)] == ["nothing was asked"]
    assert state(at, "P") is where


def forgotten_when_all_is_written() -> None:
    """A decode rank without an open chunk may have succeeded; its forgetting then ends no room."""
    at = world()
    to_open(at)
    at.produce_all(ROOM, 20)
    while at.prefill(0).unsent(ROOM, 0):
        if at.mail:
            at.deliver(0)
        else:
            at.finish(at.jobs[0])
    hear(at, "P", 0, msg.Gone())
    assert state(at, "P") is PRoom.OPEN and at.prefill(0).sends[ROOM]
    at.calm()
    assert state(at, "P") is PRoom.DONE
    ends(at)


def noted_by_forgetting(decodes: int, cause: str) -> None:
    at = world(1, decodes)
    to_open(at)
    at.chances = FaultChances(lose=1.0)
    aborted = cause == "engine"
    event: Event = ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED) if aborted else ev.RoomFailed(ROOM, Cause.STALLED)
    at.raise_event("P", 0, event)
    for sender in range(decodes):
        assert state(at, "P") is PRoom.AWAIT_NOTED
        hear(at, "P", 0, msg.Gone(), sender=sender)
    assert state(at, "P") is (PRoom.ABORTED if aborted else PRoom.FAILED)


def opened_again_while_draining() -> None:
    at = world()
    to_draining(at)
    hear(at, "P", 0, msg.Open(20, 0))
    assert state(at, "P") is PRoom.DRAINING
    ends(at)


def lost_while_draining() -> None:
    at = world()
    to_draining(at)
    at.raise_event("P", 0, ev.TransportLost(1))
    assert ROOM not in at.nodes["P", 0].released
    at.hurry()
    at.calm()
    assert state(at, "P") is PRoom.ABORTED and ROOM in at.nodes["P", 0].released
    ends(at)


def forgotten_while_it_writes() -> None:
    """A link that is lost while a write through it hangs is not forgotten before that has ended."""
    at = world()
    to_draining(at)
    at.raise_event("P", 0, ev.TransportLost(1))
    at.mail.clear()
    prefill = at.prefill(0)
    effects = prefill.hello(replace(at.decode(0).hello(1 << 40), oldest=99, version=99), at.now, b"its place")[1]
    (refusal,) = [each for each in effects if isinstance(each, do.RefuseCall)]
    assert "99" in refusal.why and "upgrade" in refusal.why
    at.now += QUICK.forget.period + 1.0
    for _ in range(4):
        prefill.tick(at.now)
    assert prefill.links[1].state is PLink.LOST and prefill.writes
    ends(at)


# ------------------------------------------------------------------------------------------------- sends
def kv_after_the_lease() -> None:
    """Pages that are known before the KV may be used as long as their lease holds."""
    at = world(settings=Settings(timing=QUICK, route="pages"))
    to_open(at)
    assert send(at) is PSend.AWAIT_PAGES_KV
    at.now += QUICK.lease.period + 0.5
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 20))
    assert send(at) is PSend.AWAIT_PAGES, "nothing is posted on a lease that is over"
    at.raise_event("P", 0, ev.AuxProvided(ROOM))
    ends_well(at)


def gather_fails_too_late() -> None:
    at = world()
    to_open(at)
    at.chances = FaultChances(gather_hangs=1.0)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 20))
    at.calm()
    at.raise_event("P", 0, ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED))
    for job in at.jobs:
        if isinstance(job.event, ev.Gathered):
            job.event = ev.GatherFailed(ROOM, job.event.chunk, 0)
    assert send(at) is PSend.DRAINING
    ends(at)


def taken_back_while_it_gathers(route: Route = "cost") -> None:
    """The gather outlasts its lease, its KV is withdrawn: the send leaves the ring, or requests it again."""
    at = world(settings=Settings(timing=QUICK, ring_bytes=1 << 20, route=route))
    to_open(at)
    at.chances = FaultChances(gather_hangs=1.0)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, CHUNK_TOKENS))
    at.calm()
    assert send(at) is PSend.GATHERING
    at.raise_event("P", 0, ev.TokensWithdrawn(ROOM, 0))
    at.now += QUICK.lease.period
    at.finish(next(job for job in at.jobs if isinstance(job.event, ev.Gathered)))
    assert send(at) is TAKEN_FROM_RING[route]
    at.produce_all(ROOM, 20)
    ends_well(at)


def taken_back_while_it_gathers_from_a_closed_pool() -> None:
    taken_back_while_it_gathers("staged")


def a_writer_whose_kv_never_comes() -> None:
    """Its fellow waits for as long as a forward may take, and then goes over pages."""
    at = world(2, 1, settings=Settings(timing=replace(QUICK, fan_in_retry=Timer(0.5, 3))))
    to_open(at)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 20))
    at.calm(1.0)
    assert grant(at) is DGrant.AWAIT_WRITERS and send(at) is PSend.AWAIT_WRITERS and not at.decode(0).chunk_of
    at.calm(2.0)
    value = at.decode(0).grants[ROOM][0]
    assert value.state is DGrant.AWAIT_WRITERS and value.by_pages == value.arrived == 0b01
    at.raise_event("P", 0, ev.AuxProvided(ROOM))
    at.raise_event("P", 1, ev.TokensProduced(ROOM, 20))
    ends_well(at)


# ------------------------------------------------------------------------------------------------- writes
TAKEN, DEFERRED, REFUSED = None, ev.BatchDeferred, ev.BatchRefused
KEY = (ROOM, 0, 0)
READY, OK, SETTLED = ev.BatchReady(*KEY, last=False), ev.BatchCompleted(*KEY), ev.BatchSettled(*KEY)
BAD, DOUBT = ev.BatchFailed(*KEY, settled=True), ev.BatchFailed(*KEY, settled=False)
#: what the transport says to each batch; then what is seen together, pass by pass, until the write is over
WRITES: dict[str, tuple[list[type[Untaken] | None], list[tuple[Event, ...]]]] = {
    "a batch fails, another completes": ([TAKEN, TAKEN, DEFERRED], [(BAD,), (OK,)]),
    "deferred when another has failed": ([TAKEN, TAKEN, DEFERRED, DEFERRED], [(READY, BAD), (OK,)]),
    "deferred when another is in doubt": ([TAKEN, DEFERRED, DEFERRED], [(READY, DOUBT), (SETTLED,)]),
    "deferred when all others have ended": ([TAKEN, DEFERRED, DEFERRED], [(READY, DOUBT, SETTLED)]),
    "refused when another has failed": ([TAKEN, TAKEN, DEFERRED, REFUSED], [(READY, BAD), (OK,)]),
    "refused when the other has failed": ([TAKEN, DEFERRED, REFUSED], [(READY, BAD)]),
    "refused when another is in doubt": ([TAKEN, DEFERRED, REFUSED], [(READY, DOUBT), (SETTLED,)]),
    "refused when all others have ended": ([TAKEN, DEFERRED, REFUSED], [(READY, DOUBT, SETTLED)]),
    "in doubt, and the last one fails": ([TAKEN, TAKEN, DEFERRED], [(DOUBT,), (SETTLED,), (BAD,)]),
}


def over_pages(said: list[type[Untaken] | None]) -> SimulatedWorld:
    """A write of four batches over pages, of which the transport says this."""
    at = world(settings=Settings(timing=QUICK, route="pages"))
    node, answers = at.nodes["P", 0], iter(said)
    to_open(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "prepare", lambda write: 4)
        patch.setattr(node, "post", lambda write: next(answers))
        at.raise_event("P", 0, ev.TokensProduced(ROOM, CHUNK_TOKENS))
        at.calm()
    assert at.prefill(0).writes[ROOM, 0].flying == said.index(DEFERRED)
    return at


def a_write(case: str) -> None:
    said, passes = WRITES[case]
    at = over_pages(said[: said.index(DEFERRED) + 1])
    node, answers = at.nodes["P", 0], iter(said[said.index(DEFERRED) + 1 :])
    for events in passes:
        assert (ROOM, 0) in at.prefill(0).writes and ROOM not in node.released
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node, "post", lambda write: next(answers))
            node.interpreter.handle(events[0], at.now, *events[1:])
    assert (ROOM, 0) not in at.prefill(0).writes and not node.interpreter.unposted
    ends(at)
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.WRITE_FAILED


def a_lease_that_ends_between_two_batches() -> None:
    at = over_pages([TAKEN, DEFERRED])
    node = at.nodes["P", 0]
    at.now += QUICK.lease.period
    node.interpreter.handle(READY, at.now)
    assert at.prefill(0).writes[ROOM, 0].state is PWrite.ENDING, "nothing more is posted"
    node.interpreter.handle(OK, at.now)
    ends(at)


def a_lease_that_ends_when_a_batch_has_landed() -> None:
    at = over_pages([TAKEN, DEFERRED])
    node = at.nodes["P", 0]
    node.interpreter.handle(OK, at.now)
    at.now += QUICK.lease.period
    node.interpreter.handle(READY, at.now)
    ends(at)
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.WRITE_FAILED


def fails_after_it_was_confirmed() -> None:
    """A staged write lands and tells of it, the decode rank confirms the part, and then the write fails."""
    at = world()
    at.prefill(0).native_notify = True
    to_open(at)
    at.chances = FaultChances(write_hangs=1.0)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, CHUNK_TOKENS))
    at.calm()
    assert send(at) is PSend.WRITING
    job = next(job for job in at.jobs if isinstance(job.event, ev.BatchCompleted))
    job.event = BAD
    at.finish(job)  # it lands
    read_all(at)
    assert at.prefill(0).sends[ROOM][0].acked
    at.finish(next(job for job in at.jobs if job.event is BAD))
    assert 0 not in at.prefill(0).sends[ROOM], "it is done"
    at.chances = FaultChances()
    at.produce_all(ROOM, 20)
    ends_well(at)


def fails_in_a_closed_pool() -> None:
    """A failed staged write is not retried where there is no way over pages."""
    at = world(settings=Settings(timing=QUICK, ring_bytes=1 << 20, route="staged"))
    to_open(at)
    at.chances = FaultChances(write_fails=1.0)
    at.produce_all(ROOM, 20)
    at.calm()
    ends(at)
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.WRITE_FAILED


def a_lease_that_ends_before_the_first_batch(route: Route, withdrawn: str) -> None:
    at = world(settings=Settings(timing=QUICK, route=route))
    node = at.nodes["P", 0]
    to_open(at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node, "post", lambda write: DEFERRED)
        at.raise_event("P", 0, ev.TokensProduced(ROOM, CHUNK_TOKENS))
        at.calm()
    pages = route == "pages"
    begun = PSend.WRITING_PAGES if pages else PSend.WRITING
    assert send(at) is begun and not at.prefill(0).writes[ROOM, 0].flying
    if withdrawn:
        at.raise_event("P", 0, ev.TokensWithdrawn(ROOM, 0))
    at.now += QUICK.lease.period
    node.interpreter.handle(READY, at.now)
    again = TAKEN_FROM_RING[route] if withdrawn else PSend.AWAIT_PAGES if pages else PSend.AWAIT_GRANT
    assert (ROOM, 0) not in at.prefill(0).writes and send(at) is again, "it asks anew"
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 20))
    at.raise_event("P", 0, ev.AuxProvided(ROOM))
    ends_well(at)


# ------------------------------------------------------------------------------------------------- links
def misfit_calls() -> None:
    at = world(up=False)
    rank, prefill = at.decode(0), at.prefill(0)

    def call(session: int, *, fits: bool) -> object:
        said = rank.hello(session)
        effects = prefill.hello(said if fits else replace(said, version=99, oldest=99), at.now)[1]
        if not fits:
            said_no = [effect.why for effect in effects if isinstance(effect, do.SayRefusal)]
            spoken = f"the decode rank speaks 99, the prefill rank {msg.VERSION}"
            assert said_no == [f"no common wire version: {spoken}: upgrade the prefill rank"]
        return prefill.links[1].state

    assert call(1, fits=False) is PLink.REFUSED
    assert call(2, fits=False) is PLink.REFUSED, "it is told again"
    beat = prefill.receive(1, 5, 0, msg.Heartbeat(), at.now)
    assert beat == [do.SayReset(b"", 5)]
    assert call(3, fits=True) is PLink.AWAIT_WIRE_UP
    assert call(4, fits=False) is PLink.REFUSED
    assert call(5, fits=True) is PLink.AWAIT_WIRE_UP
    prefill.handle(ev.WireFailed(1, 5, "no wire"), at.now)
    assert prefill.links[1].state is PLink.LOST
    assert call(6, fits=False) is PLink.REFUSED
    at.mail.clear()
    at.now += QUICK.forget.period + 1
    prefill.tick(at.now)
    assert not prefill.links and not prefill.peers and not prefill.link_of, "it is forgotten"


def misfit_answers() -> None:
    at = world(up=False)
    rank = at.decode(0)

    def answer() -> None:
        value = rank.links[1]
        good = at.prefill(0).welcome(value.session, 77)
        rank.receive(1, 77, 0, replace(good, chunk_tokens=99), at.now)

    def where() -> DLink:
        return DLink(rank.links[1].state)

    answer()
    assert where() is DLink.REFUSED and "chunks of 99 tokens" in rank.links[1].why
    at.call(0)
    at.calm()
    assert where() is DLink.UP, "the engine may call again"
    at.raise_event("D", 0, ev.QueueOverflowed(1))
    answer()
    assert where() is DLink.REFUSED


def wires_that_come_late() -> None:
    at = world(up=False)
    prefill, node = at.prefill(0), at.nodes["P", 0]
    wires = node.interpreter.wires

    def call(session: int, *, fits: bool = True) -> None:
        said = at.decode(0).hello(session)
        node.interpreter.hear(b"D0", 0, 0, said if fits else replace(said, version=99, oldest=99), at.now)

    def wired(session: int) -> PLink:
        at.raise_event("P", 0, ev.WiredUp(1, session, f"wire {session}"))
        return PLink(prefill.links[1].state)

    call(1)
    assert wired(1) is PLink.UP and wires == {1: "wire 1"}
    call(2)
    call(2)
    assert prefill.links[1].state is PLink.AWAIT_WIRE_UP and wires == {1: "wire 1"}, "kept until there is another"
    at.raise_event("P", 0, ev.TransportLost(1))
    assert wires == {} and wired(1) is PLink.AWAIT_WIRE_UP and wires == {}
    assert wired(2) is PLink.UP and wires == {1: "wire 2"}
    at.raise_event("P", 0, ev.QueueOverflowed(1))
    assert wires == {1: "wire 2"}, "what is written may still get there"
    at.raise_event("P", 0, ev.TransportLost(1))
    call(3, fits=False)
    at.raise_event("P", 0, ev.TransportLost(1))
    assert wired(2) is PLink.REFUSED and wires == {}
    at.jobs.clear()
    at.mail.clear()
    at.pass_time(QUICK.forget.period + 1.0)
    assert not prefill.links and not node.interpreter.place_of
    at.raise_event("P", 0, ev.WiredUp(1, 3, "wire 3"))
    assert not prefill.links and wires == {}


def called_elsewhere() -> None:
    """While a link is down another address is called beside its own; the first that answers has it."""
    at = world()
    rank, node = at.decode(0), at.nodes["D", 0]
    places = node.interpreter.place_of

    def call(address: str, *, anew: bool = False) -> DLink:
        if anew:
            at.raise_event("D", 0, ev.CallAsked(1, 0, address, anew=True))
        else:
            _, effects = rank.call(PREFILL_GROUP, 0, at.plan, at.now, address)
            node.interpreter.carry_out(effects, at.now)
        return where()

    def where() -> DLink:
        return DLink(rank.links[1].state)

    def cannot() -> tuple[DLink, str]:
        at.raise_event("D", 0, ev.DialFailed(1, "no such place"))
        return where(), rank.links[1].why

    assert call("gone", anew=True) is DLink.AWAIT_RETURN, "on other terms it is called anew"
    assert call("nowhere") is DLink.AWAIT_RETURN and places == {1: b"gone", -1: b"nowhere"}
    assert cannot() == (DLink.AWAIT_RETURN, "no such place")
    at.pass_time(QUICK.return_.period)
    node.interpreter.hear(b"nowhere", 0, 0, msg.Refusal(rank.links[1].session, "not here"), at.now)
    assert places == {1: b"gone"}, "whoever is there has refused"
    assert call("elsewhere", anew=True) is DLink.AWAIT_RETURN and rank.links[1].why == ""
    assert call("P0") is DLink.AWAIT_RETURN
    at.calm(QUICK.call.period * 2)
    assert where() is DLink.UP and places == {1: b"P0"} and rank.links[1].address == "P0"
    call("elsewhere", anew=True)
    at.calm(QUICK.return_.period * (QUICK.return_.tries + 2))
    assert call("nowhere") is DLink.AWAIT_WELCOME, "nothing of the lost link can land any more"
    assert cannot() == (DLink.AWAIT_WELCOME, "no such place")
    at.pass_time(QUICK.call.period * 2)
    node.interpreter.hear(b"nowhere", 0, 0, msg.Refusal(rank.links[1].session, "not here"), at.now)
    assert call("gone", anew=True) is DLink.AWAIT_WELCOME and call("P0") is DLink.AWAIT_WELCOME
    at.calm(QUICK.call.period * 2)
    assert where() is DLink.UP and places == {1: b"P0"}
    at.raise_event("D", 0, ev.QueueOverflowed(1))
    for _ in range(2):
        node.interpreter.hear(b"P0", 0, 0, msg.Refusal(rank.links[1].session, "not now"), at.now)
        assert where() is DLink.AWAIT_RETURN and rank.links[1].why == "not now", "it may not be who wrote"


def let_go_of() -> None:
    """An engine lets go of a group and wants it back in any state of the link; its rooms end."""
    at = world()
    rank, node, room = at.decode(0), at.nodes["D", 0], iter(range(ROOM, ROOM + 20))

    def leave() -> None:
        node.interpreter.carry_out(rank.leave(PREFILL_GROUP, at.now), at.now)

    def latest() -> int:
        return rank.next_link - 1

    def opened() -> Cause:
        at.open_decode(0, key := next(room), 20)
        value = rank.value_of(key)
        return Cause.NONE if value.work is None else Cause(value.work.cause)

    for begin in ("up", "await return", "await welcome"):
        if begin == "await return":
            at.raise_event("D", 0, ev.QueueOverflowed(1))
            at.mail.clear()
        elif begin == "await welcome":
            at.mail.clear()
            at.pass_time(QUICK.return_.period)
            while rank.links[1].state is DLink.AWAIT_RETURN:
                at.pass_time(QUICK.return_.period)
            at.mail.clear()
        assert opened() is Cause.NONE
        leave()
        assert not any(value.state is DRoom.AWAIT_PEERS for value in rank.rooms.values())
        assert opened() is Cause.DISCONNECTED
        at.call(0)
        assert not rank.links[1].leaving and opened() is Cause.NONE, begin
    leave()
    at.calm(10.0)
    assert not rank.rooms and not rank.links and not rank.peers and not node.interpreter.place_of

    at.call(0)
    at.calm()
    at.open_all(key := next(room), 20)
    leave()
    assert rank.links[latest()].state is DLink.UP and rank.rooms, "it stays until its rooms have drained"
    at.calm(QUICK.heartbeat.period * 2)
    assert not rank.rooms and not rank.links and at.prefill(0).links[1].state is PLink.LOST
    assert at.prefill(0).tombs[key].work.cause is Cause.DISCONNECTED

    for how in ("leave", "wait"):
        at.call(0)
        node.interpreter.hear(b"P0", 0, 0, msg.Refusal(rank.links[latest()].session, "no"), at.now)
        assert {value.state for value in rank.links.values()} == {DLink.REFUSED}
        if how == "leave":
            leave()
        at.mail.clear()
        at.pass_time(QUICK.forget.period + 1.0 if how == "wait" else 0.0)
        assert not rank.links
    ends(at)


def tried_elsewhere() -> None:
    """A link that is up tries other addresses, and gives way to a later incarnation that answers."""
    at = world()
    rank, node = at.decode(0), at.nodes["D", 0]
    places, beat = node.interpreter.place_of, QUICK.heartbeat

    def call(address: str) -> bytes:
        _, effects = rank.call(PREFILL_GROUP, 0, at.plan, at.now, address)
        node.interpreter.carry_out(effects, at.now)
        return places[-1]

    def answer(epoch: int) -> DLink:
        said = at.prefill(0).welcome(rank.links[1].session, epoch)
        node.interpreter.hear(places[-1], 0, 0, said, at.now)
        return DLink(rank.links[1].state)

    assert call("nowhere") == b"nowhere" and places[1] == b"P0"
    at.calm(beat.period * (beat.tries + 3))
    assert places == {1: b"P0"}, "it was called long enough"
    assert call("strange") == b"strange"
    node.interpreter.hear(b"strange", 0, 0, msg.Refusal(rank.links[1].session, "not here"), at.now)
    assert places == {1: b"P0"}, "whoever is there has refused"
    assert call("later") == b"later"
    at.calm(beat.period)
    later = rank.links[1].epoch + (1 << 16)
    assert answer(later) is DLink.UP and rank.links[1].answered, "the link's own was heard"
    for _ in range(YIELDS + 1):
        node.interpreter.handle(rank._link_timer(1, beat.tries + 1), at.now)
    assert answer(rank.links[1].epoch) is DLink.UP, "the same incarnation"
    assert answer(later) is DLink.AWAIT_RETURN and places == {1: b"later"}


def two_lives_of_one_name() -> None:
    """A second incarnation calls: refused while the first one answers, accepted after it fell silent."""
    at = world()
    rank, prefill = at.decode(0), at.prefill(0)
    other = (rank.incarnation + 1) << 16
    refused: list[tuple[bytes, int]] = []

    def call() -> None:
        at.nodes["P", 0].interpreter.hear(b"other", 0, 0, rank.hello(other), at.now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, "mail_to", lambda place, *_: None)
        call()
        for mark in (prefill.links[1].mark_round + 1, 0):
            told = msg.Watermark(mark, 0, other)
            effects = prefill.receive(1, prefill.links[1].epoch, 0, told, at.now)
            refused += [(e.place, e.session) for e in effects if isinstance(e, do.RefuseCall)]
            call()
        assert refused == [(b"other", other)] * 2 and prefill.links[1].state is PLink.UP
        assert "second live instance" in explain_link(prefill, 1)
        states = []
        for _ in range(3):
            at.nodes["P", 0].interpreter.handle(ev.TimerFired(0, ev.ROOM_CHUNK, 1, 5), at.now)
            states.append(prefill.links[1].state.name)
        assert states == ["UP", "UP", "LOST"]
    ends(at)


def a_room_of_nobody_s_link() -> None:
    """A room of a group that was never called is over at once; strangers are told to call."""
    at = world()
    rank = at.decode(0)
    at.nodes["D", 0].opened.add(ROOM)
    at.raise_event("D", 0, ev.RoomOpened(ROOM, rank.terms(9, at.plan), 20, 0))
    assert state(at, "D") is DRoom.FAILED and ROOM in at.nodes["D", 0].released
    assert at.decode(0).tombs[ROOM].work.cause is Cause.REFUSED
    said: list[tuple[bytes, int, msg.Message]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, "mail_to", lambda place, sender, epoch, room, body: said.append((place, epoch, body)))
        at.nodes["D", 0].interpreter.hear(b"nobody", 77, 0, msg.Heartbeat(), at.now)
    assert said == [(b"nobody", 77, msg.Reset())]
    ends(at)


def declined() -> None:
    """The prefill engine says no: to a room of nobody's, to one that a decode rank has opened, to its own."""
    at = world()
    for room in (ROOM, ROOM + 1, ROOM + 2):
        if room != ROOM:
            at.open_decode(0, room, 20)
            at.calm()
        if room == ROOM + 2:
            at.open_prefill(0, room, 20)
        at.raise_event("P", 0, ev.EngineRefused(room, Cause.DECLINED))
        assert state(at, "P", room=room) in (PRoom.ABORTED, PRoom.AWAIT_NOTED)
        if room == ROOM:
            at.open_decode(0, room, 20)
        at.calm()
        assert at.nodes["D", 0].outcomes[room] is Cause.DECLINED and room in at.nodes["D", 0].released
        at.raise_event("P", 0, ev.EngineRefused(room, Cause.DECLINED))
        at.nodes["P", 0].opened.discard(room)
    for room, there in ((ROOM + 3, PRoom.AWAIT_PEERS), (ROOM + 4, PRoom.OPEN)):
        at.open_prefill(0, room, 20)
        if there is PRoom.OPEN:
            at.open_decode(0, room, 20)
            at.raise_event("P", 0, ev.ForwardScheduled(room))
            at.calm()
        assert state(at, "P", room=room) is there
        at.raise_event("P", 0, ev.EngineRefused(room, Cause.DECLINED))
        assert at.nodes["P", 0].outcomes[room] is Cause.DECLINED
    hear(at, "P", 0, msg.Announce(20), room=ROOM + 5)
    at.raise_event("P", 0, ev.EngineRefused(ROOM + 5, Cause.DECLINED))
    assert ROOM + 5 not in at.nodes["P", 0].released, "its engine has given it nothing"


def announced() -> None:
    """A decode rank says that it will open rooms: what prefill ranks make of it, in each state of theirs."""
    at = world()
    terms = at.decode(0).terms(PREFILL_GROUP, at.plan)
    for room in range(ROOM + 1, ROOM + 4):
        at.raise_event("D", 0, ev.RoomAnnounced(room, terms, 20))
        at.nodes["D", 0].opened.add(room)
    at.calm()
    assert state(at, "P", room=ROOM + 1) is PRoom.AWAIT_ENGINE and not at.prefill(0).rooms[ROOM + 1].peers
    at.open_prefill(0, ROOM + 1, 20)
    at.raise_event("D", 0, ev.RoomRenewed(ROOM + 1))
    at.raise_event("D", 0, ev.RoomRenewed(ROOM + 2))
    at.calm()
    assert state(at, "P", room=ROOM + 1) is PRoom.AWAIT_PEERS
    at.raise_event("D", 0, ev.RoomOpened(ROOM + 1, terms, 20, 0))
    at.calm()
    assert state(at, "P", room=ROOM + 1) is PRoom.AWAIT_FORWARD
    for room in (ROOM + 2, ROOM + 3):
        hear(at, "P", 0, msg.Announce(24), room=room)
    at.calm()
    assert at.nodes["D", 0].outcomes[ROOM + 2] is Cause.PLAN_MISMATCH and ROOM + 2 in at.nodes["D", 0].released
    assert [effect.body for effect in hear(at, "P", 0, msg.Announce(20), room=ROOM + 2)] == [  # type: ignore[attr-defined]
        msg.Drained(Cause.PLAN_MISMATCH)
    ]
    at.open_prefill(0, ROOM + 4, 20)
    hear(at, "P", 0, msg.Announce(24), room=ROOM + 4)
    assert at.nodes["P", 0].outcomes[ROOM + 4] is Cause.PLAN_MISMATCH
    hear(at, "P", 0, msg.Announce(20), room=ROOM + 4)
    rank = at.prefill(0)
    failed = rank.rooms[ROOM + 4]
    rank.rooms[ROOM + 4] = replace(failed, state=PRoom.DRAINING, due=float("inf"), work=replace(failed.work, live=1))
    rank.handle(ev.PeerAnnounced(ROOM + 4, 0, rank.rooms[ROOM + 4].terms, 20), at.now)
    rank.rooms[ROOM + 4] = failed
    for event in (ev.EngineAborted(0, Cause.DECODE_ABORTED), ev.RoomFailed(0, Cause.KERNEL_FAILED)):
        room = 200 + len(at.nodes["D", 0].opened)
        at.nodes["D", 0].opened.add(room)
        at.raise_event("D", 0, ev.RoomAnnounced(room, terms, 20))
        at.raise_event("D", 0, replace(event, room=room))
        at.calm()
        assert room in at.nodes["D", 0].released
    at.raise_event("P", 0, ev.EngineRefused(400, Cause.DECLINED))
    assert [effect.body for effect in hear(at, "P", 0, msg.Announce(20), room=400)] == [  # type: ignore[attr-defined]
        msg.Drained(Cause.DECLINED)
    ]
    at.nodes["D", 0].opened |= {300, 301}
    at.raise_event("D", 0, ev.RoomAnnounced(300, terms, 20))
    at.raise_event("D", 0, TimerFired(300, ROOM_CHUNK, 0, 1))
    assert at.nodes["D", 0].outcomes[300] is Cause.STALLED
    at.raise_event("D", 0, ev.RoomAnnounced(301, terms, 20))
    at.raise_event("D", 0, ev.QueueOverflowed(1))
    assert at.nodes["D", 0].outcomes[301] is Cause.LINK_LOST and 301 in at.nodes["D", 0].released
    at.raise_event("D", 0, ev.RoomAnnounced(302, terms, 20))
    at.mail.clear()
    at.calm(2.0)
    assert state(at, "P", room=302) is PRoom.AWAIT_ENGINE, "told when the link came up"


def taken_back(*, closed: bool = False) -> None:
    """The engine takes KV back while a send is wherever it may be, and computes it once more."""
    at = world()
    for room, there in ((ROOM + 1, PRoom.AWAIT_PEERS), (ROOM + 2, PRoom.AWAIT_FORWARD)):
        at.open_prefill(0, room, 20)
        if there is PRoom.AWAIT_FORWARD:
            at.open_decode(0, room, 20)
            at.calm()
        assert state(at, "P", room=room) is there
        at.raise_event("P", 0, ev.TokensWithdrawn(room, 0))
    to_open(at)
    rank, now = at.prefill(0), at.now
    waiting = rank.sends[ROOM][0]
    assert waiting.state is PSend.AWAIT_KV
    for where, then in TAKEN_BACK.items():
        rank.sends[ROOM][0] = replace(waiting, state=where, kv=True, closed=closed)
        rank.rooms[ROOM] = replace(rank.rooms[ROOM], work=replace(rank.rooms[ROOM].work, produced=CHUNK_TOKENS))
        rank.handle(ev.TokensWithdrawn(ROOM, 0), now)
        taken = rank.sends[ROOM][0]
        assert taken.state is (PSend.AWAIT_KV if closed and where in ON_RING else then) and not taken.kv
        assert rank.rooms[ROOM].work.produced == 0
        rank.handle(ev.KvProduced(ROOM, 0, 0), now)
        assert rank.sends[ROOM][0].kv
        for effect in (do.LeaveQueue(ROOM, 0, 0), do.FreeCredit(ROOM, 0, 0)):
            rank.inner[type(effect)](effect)


def taken_back_of_a_closed_pool() -> None:
    taken_back(closed=True)


#: states of a send that has asked for the ring, and does not read its KV
ON_RING = (PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK, PSend.AWAIT_SLOT)
#: where a send is whose KV was taken back while it was read for the ring, by route
TAKEN_FROM_RING = {"cost": PSend.AWAIT_PAGES, "pages": PSend.AWAIT_PAGES, "staged": PSend.AWAIT_KV}
#: where a send may be with its KV -> where it is when that is taken back
TAKEN_BACK = {S: S for S in (PSend.AWAIT_PAGES, PSend.GATHERING, PSend.WRITING, PSend.WRITING_PAGES)}
TAKEN_BACK |= dict.fromkeys(ON_RING, PSend.AWAIT_PAGES)
TAKEN_BACK |= {PSend.AWAIT_CREDIT: PSend.AWAIT_KV, PSend.AWAIT_PERMIT: PSend.AWAIT_PAGES_KV}


# ---------------------------------------------------------------------------------------- the decode side
def fails_before_all_have_confirmed() -> None:
    at = world(2, 1, heads=1)
    at.chances = FaultChances(scatter_fails=1.0)
    at.open_all(ROOM, 20)
    at.mail = [parcel for parcel in at.mail if (parcel.side, parcel.to) != ("P", 1)]
    forward(at)
    at.produce_all(ROOM, 20)
    at.calm()
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.KERNEL_FAILED
    ends(at)


def dies_with_nothing_to_write() -> None:
    """A whole prefill group dies, and only the rank that was told where to write is waited for."""
    at = world(2, 1, settings=Settings(timing=QUICK, route="pages"))
    at.open_all(ROOM, 20)
    at.mail = [parcel for parcel in at.mail if (parcel.side, parcel.to) != ("P", 1)]
    forward(at)
    read_all(at)
    rank = at.decode(0)
    assert {in_doubt(grant) for grant in rank.grants[ROOM].values()} == {0b01}
    for writer in (1, 0):
        at.raise_event("D", 0, ev.QueueOverflowed(rank.link_of[1, writer]))
        at.mail.clear()
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.LINK_LOST and rank.rooms[ROOM].peers == 0b01
    assert ROOM not in at.nodes["D", 0].released
    ends(at)


def scattering(at: SimulatedWorld, chunks: int) -> None:
    """So many chunks of the room are being scattered, and no more happens."""
    to_open(at)
    at.produce_all(ROOM, chunks * CHUNK_TOKENS)
    for _ in range(1000):
        scatters = [job for job in at.jobs if isinstance(job.event, ev.Scattered)]
        if len(scatters) == chunks:
            return
        if at.mail:
            at.deliver(0)
        else:
            at.finish(next(job for job in at.jobs if job not in scatters))
    raise AssertionError("nothing was scattered")


def finish_scatters(at: SimulatedWorld) -> None:
    for job in [job for job in at.jobs if isinstance(job.event, ev.Scattered)]:
        at.finish(job)


def landed_while_draining() -> None:
    at = world()
    scattering(at, 2)
    at.raise_event("D", 0, ev.EngineAborted(ROOM, Cause.DECODE_ABORTED))
    finish_scatters(at)
    assert state(at, "D") is DRoom.DRAINING
    ends(at)


def landed_while_settling() -> None:
    at = world()
    scattering(at, 2)
    at.raise_event("D", 0, ev.EngineAborted(ROOM, Cause.DECODE_ABORTED))
    read_all(at)
    assert state(at, "D") is DRoom.SETTLING, "everybody has drained, two scatters still read the ring"
    for body in (msg.StagingReq(2), msg.StgNotify(2, 1), msg.Aux(b"late"), msg.Drained(Cause.DECODE_ABORTED)):
        said = hear(at, "D", 0, body)
        wanted = msg.Noted() if isinstance(body, msg.Drained) else msg.Abort(Cause.DECODE_ABORTED)
        assert told(said) == [wanted]
    assert ROOM not in at.nodes["D", 0].released
    finish_scatters(at)
    assert state(at, "D") is DRoom.ABORTED and ROOM in at.nodes["D", 0].released
    hear(at, "D", 0, msg.StgNotify(2, 1))
    ends(at)


def failed_while_settling() -> None:
    at = world()
    scattering(at, 1)
    at.raise_event("D", 0, ev.RoomFailed(ROOM, Cause.KERNEL_FAILED))
    read_all(at)
    finish_scatters(at)
    assert state(at, "D") is DRoom.FAILED
    ends(at)


def without_aux(ends_by: Any) -> None:
    """Every chunk is in place, and the aux row alone is missing; None: it never comes."""
    aux = Timer(2.0, 2)
    at = world(settings=Settings(timing=replace(QUICK, aux=aux), ring_bytes=1 << 20))
    to_open(at)
    at.produce_all(ROOM, 20, aux=False)
    at.calm()
    assert state(at, "D") is DRoom.AWAIT_AUX
    if ends_by is None:
        at.calm(aux.period * (aux.tries + 1) + 1.0)
    else:
        at.raise_event("P" if ends_by.cause is Cause.PREFILL_ABORTED else "D", 0, ends_by)
    at.calm()
    assert at.nodes["D", 0].outcomes[ROOM] is (ends_by.cause if ends_by else Cause.AUX_MISSING)
    ends(at)


#: what ends a room whose aux row alone is missing; None: time
ENDS_WITHOUT_AUX: tuple[Any, ...] = (
    None, ev.EngineAborted(ROOM, Cause.DECODE_ABORTED), ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED),
    ev.RoomFailed(ROOM, Cause.KERNEL_FAILED), ev.LinkWentDown(ROOM, 0, Cause.LINK_LOST),
)  # fmt: skip


def confirmed_when_all_but_aux_is_there() -> None:
    """A prefill rank without a duty confirms the room when the aux row alone is missing."""
    at = world(2, 1, heads=1)
    at.open_all(ROOM, 20)
    at.mail = [parcel for parcel in at.mail if (parcel.side, parcel.to) != ("P", 1)]
    forward(at)
    at.produce_all(ROOM, 20, aux=False)
    at.calm()
    assert state(at, "D") is DRoom.AWAIT_PEERS
    assert told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]
    at.calm(2 * QUICK.call.period)
    assert state(at, "D") is DRoom.AWAIT_AUX
    assert told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]
    at.produce_all(ROOM, 20)
    ends(at)
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.NONE


def words_about_nobody() -> None:
    """Messages about unknown rooms are dropped: finished rooms had all, and opened ones are not reopened."""
    at, gone = world(), msg.Gone()
    answers = (
        (msg.Aux(b"row"), msg.AuxAck()), (msg.StgNotify(2, 1), msg.ChunkAck(2)),
        (msg.StagingReq(0), gone), (msg.PagesReq(0), gone),
    )  # fmt: skip
    for body, answer in answers:
        assert told(hear(at, "D", 0, body, room=999)) == [answer]
    assert not hear(at, "P", 0, msg.Open(20, 0, again=True), room=999) and not at.prefill(0).rooms
    assert told(hear(at, "D", 0, msg.Drained(Cause.STALLED), room=999)) == [msg.Noted()]


def of_two_writers(*said: tuple[int, msg.Message]) -> SimulatedWorld:
    """A decode rank gets these messages from the writers of its rooms, all of whose chunks are granted."""
    at = world(2, 1)
    to_open(at)
    for sender, body in said:
        hear(at, "D", 0, body, sender=sender)
    return at


def scattered_before_the_rest_comes() -> None:
    """One writer stages, the other gives the region up: the scatter frees it before the other's part."""
    at = of_two_writers((0, msg.StagingReq(0)), (1, msg.StagingReq(0)), (0, msg.StgNotify(0, 1)))
    assert grant(at) is DGrant.FILLING
    hear(at, "D", 0, msg.PagesReq(0), sender=1)
    assert grant(at) is DGrant.SCATTERING and at.decode(0).held(ROOM) > 0
    (scatter,) = [job for job in at.jobs if isinstance(job.event, ev.Scattered)]
    assert [type(effect) for effect in hear(at, "D", 0, msg.PagesReq(0), sender=1)] == [do.TransmitPages], "once more"
    at.finish(scatter)
    assert grant(at) is DGrant.FILLING_PAGES and at.decode(0).held(ROOM) == 0 and not at.decode(0).ring.live
    assert told(hear(at, "D", 0, msg.StagingReq(0))) == [], "a late request of the one whose part is there"
    assert told(hear(at, "D", 0, msg.StgNotify(0, 1))) == [msg.ChunkAck(0)]
    assert told(hear(at, "D", 0, msg.StgNotify(0, 0), sender=1)) == [msg.ChunkAck(0)]
    assert at.decode(0).rooms[ROOM].work.done == 1


def confirmed_when_its_pages_are_asked_for() -> None:
    """Both writes fail, one after its notification. That one is confirmed wherever the chunk is, and a
    late notification of the other counts for nothing.
    """
    at = of_two_writers((0, msg.StagingReq(0)), (1, msg.StagingReq(0)), (0, msg.StgNotify(0, 1)))
    for where in (DGrant.FILLING, DGrant.SCATTERING, DGrant.FILLING_PAGES):
        assert grant(at) is where
        assert told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]
        if where is DGrant.FILLING:
            hear(at, "D", 0, msg.PagesReq(0), sender=1)
        else:
            assert told(hear(at, "D", 0, msg.StgNotify(0, 1), sender=1)) == []
        if where is DGrant.SCATTERING:
            at.finish(next(job for job in at.jobs if isinstance(job.event, ev.Scattered)))
    assert at.decode(0).rooms[ROOM].work is None or not at.decode(0).rooms[ROOM].work.done
    hear(at, "D", 0, msg.StgNotify(0, 0), sender=1)
    assert at.decode(0).rooms[ROOM].work.done == 1
    assert told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]


def comes_while_the_rest_is_scattered() -> None:
    """A part over pages may arrive while the staged part is scattered."""
    at = of_two_writers((0, msg.StagingReq(0)), (1, msg.StagingReq(0)), (1, msg.PagesReq(0)))
    assert told(hear(at, "D", 0, msg.StagingReq(0), sender=1)) == [msg.StagingRefused(0)], "it has given it up"
    hear(at, "D", 0, msg.StgNotify(0, 1))
    assert grant(at) is DGrant.SCATTERING
    assert told(hear(at, "D", 0, msg.StgNotify(0, 0), sender=1)) == [msg.ChunkAck(0)]
    at.finish(next(job for job in at.jobs if isinstance(job.event, ev.Scattered)))
    assert at.decode(0).rooms[ROOM].work.done == 1


def failed_while_the_rest_is_awaited() -> None:
    """The room fails while its staged part is scattered, and before the other part has come."""
    at = of_two_writers((0, msg.StagingReq(0)), (1, msg.PagesReq(0)), (0, msg.StgNotify(0, 1)))
    assert grant(at) is DGrant.SCATTERING
    at.raise_event("D", 0, ev.EngineAborted(ROOM, Cause.DECODE_ABORTED))
    at.finish(next(job for job in at.jobs if isinstance(job.event, ev.Scattered)))
    assert not at.decode(0).grants and not at.decode(0).ring.live
    ends(at)


def given_up_before_all_have_asked() -> None:
    """Both writers give the ring up, one after the other, before a region was reserved."""
    at = of_two_writers((0, msg.StagingReq(0)), (0, msg.PagesReq(0)))
    assert grant(at) is DGrant.AWAIT_WRITERS
    assert told(hear(at, "D", 0, msg.StagingReq(0))) == [msg.StagingRefused(0)]
    assert told(hear(at, "D", 0, msg.StgNotify(0, 0))) == [msg.ChunkAck(0)]
    grants = at.decode(0).grants[ROOM]
    waits = grants[0]
    for where in (DGrant.AWAIT_SPACE, DGrant.AWAIT_WRITERS):
        grants[0] = replace(waits, state=where)
        assert told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]
    hear(at, "D", 0, msg.PagesReq(0), sender=1)
    assert grant(at) is DGrant.FILLING_PAGES and not at.decode(0).ring.live


def gives_up_while_the_ring_is_full() -> None:
    settings = Settings(timing=QUICK, ring_bytes=2048, ring_rounds_ahead=1)
    at = world(2, 1, settings=settings)
    ring = at.decode(0).ring
    while ring.reserve(1024) is not None:
        pass
    at.open_all(ROOM, 8)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 8))
    at.calm()
    assert grant(at) is DGrant.AWAIT_WRITERS and send(at) is PSend.AWAIT_WRITERS
    at.raise_event("P", 1, ev.TokensProduced(ROOM, 8))
    at.calm()
    assert grant(at) is DGrant.AWAIT_SPACE and send(at) is PSend.AWAIT_TURN
    hear(at, "D", 0, msg.PagesReq(0))
    assert told(hear(at, "D", 0, msg.StagingReq(0))) == [msg.StagingRefused(0)]
    assert told(hear(at, "D", 0, msg.StgNotify(0, 0))) == [msg.ChunkAck(0)]
    assert grant(at) is DGrant.AWAIT_SPACE
    hear(at, "D", 0, msg.PagesReq(0), sender=1)
    assert grant(at) is DGrant.FILLING_PAGES and not at.decode(0).space_queue, "it queues no more"


def in_the_queue(answer: msg.Message, then: PSend) -> None:
    """A request waits its turn, and is answered at last."""
    at = world(settings=Settings(timing=QUICK, ring_bytes=2048, ring_rounds_ahead=1))
    ring = at.decode(0).ring
    while ring.reserve(1024) is not None:
        pass
    at.open_all(ROOM, 8)
    at.raise_event("P", 0, ev.TokensProduced(ROOM, 8))
    at.calm()
    assert send(at) is PSend.AWAIT_TURN
    hear(at, "P", 0, answer)
    assert send(at) is then


def claimed_by_another(state_of: PRoom) -> None:
    """A decode rank with a wrong secret opens or aborts the room before the engine has opened it."""
    way, _ = WAYS[state_of]
    at = world()
    way(at)
    assert state(at, "P") is state_of
    at.raise_event("P", 0, ev.EngineOpened(ROOM, 20, ev.Claim(DECODE_GROUP, b"secret")))
    assert state(at, "P") is PRoom.AWAIT_PEERS and ROOM not in at.nodes["P", 0].outcomes
    hear(at, "P", 0, msg.Open(20, 0, b"secret"))
    assert state(at, "P") is PRoom.AWAIT_FORWARD
    if state_of is PRoom.AWAIT_ENGINE:
        at.calm()
        assert at.nodes["D", 0].outcomes[ROOM] is Cause.NOT_ENTITLED, "it is told at once"


def granted_in_its_turn() -> None:
    in_the_queue(msg.StagingRsp(0, 9, 0, 0, 1024, 0, 0), PSend.GATHERING)


def denied_in_its_turn() -> None:
    in_the_queue(msg.StagingRefused(0), PSend.AWAIT_PAGES)


def not_entitled_and_not_told() -> None:
    """Answers about a room of another decode rank are lost; its owner gets them by asking."""
    at = world()
    to_await_engine(at)
    assert state(at, "D") is DRoom.OPEN
    at.raise_event("P", 0, ev.EngineOpened(ROOM, 20, ev.Claim(DECODE_GROUP, b"secret")))
    assert [parcel.body for parcel in at.mail] == [msg.Drained(Cause.NOT_ENTITLED)]
    at.mail.clear()
    at.calm(QUICK.idle_.period - 1.0)
    assert ROOM not in at.nodes["D", 0].outcomes
    at.calm(2.0)
    assert at.nodes["D", 0].outcomes[ROOM] is Cause.NOT_ENTITLED
    ends(at)


def fails_after_it_has_told() -> None:
    """Staged writes fail, then their notifications come: parts requested as pages are confirmed."""
    at = world()
    at.prefill(0).native_notify = True
    to_open(at)
    at.produce_all(ROOM, 20)
    while not at.jobs:
        at.deliver(0)
    at.chances = FaultChances(write_fails=1.0, told=1.0)
    while at.jobs:
        at.finish(at.jobs[0])
    assert send(at) is PSend.AWAIT_PAGES and at.prefill(0).sends[ROOM][0].told
    at.chances = FaultChances()
    at.calm()
    assert state(at, "D") is DRoom.DONE and told(hear(at, "D", 0, msg.PagesReq(0))) == [msg.ChunkAck(0)]
    ends_well(at)


def silent_but_there() -> None:
    """Peers miss heartbeats on live connections: links stay up until the silence is too long."""
    at = world(settings=Settings(timing=replace(QUICK, silence=Timer(60.0))))
    links = [at.prefill(0).links, at.decode(0).links]
    for stands, states in ((True, [PLink.UP, DLink.UP]), (False, [PLink.LOST, DLink.AWAIT_RETURN])):
        for node in at.nodes.values():
            node.rank.stands = {1: stands}.__getitem__
        for _ in range(QUICK.heartbeat.tries + 3 if stands else 1):
            at.pass_time(QUICK.heartbeat.period + 0.1)
            at.mail.clear()
        assert [each[1].state for each in links] == states


def goodbye_of(side: Side, *, quiet: bool = True) -> None:
    """A rank is closed in good order, and its peer hears of it; `quiet`: nothing is being written."""
    at = world()
    to_open(at)
    if not quiet:
        at.chances = FaultChances(write_hangs=1.0)
        at.produce_all(ROOM, 20)
        at.calm()
    node = at.nodes[side, 0]
    node.interpreter.carry_out(node.rank.take_leave(at.now), at.now)
    for _ in tuple(at.mail):
        at.deliver(0)
    decode = DLink.AWAIT_WELCOME if side == "P" and quiet else DLink.AWAIT_RETURN
    assert (at.prefill(0).links[1].state, at.decode(0).links[1].state) == (PLink.LOST, decode)


def takes_its_call_back(then: str) -> None:
    """A decode rank closes before its call is answered, in three states of the prefill rank."""
    at = world(up=then == "lost")
    node, links = at.nodes["D", 0], at.prefill(0).links
    if then == "lost":
        node.interpreter.carry_out(node.rank.handle(ev.QueueOverflowed(1), at.now), at.now)
    at.deliver(0)
    if then == "answered":
        at.finish(at.jobs[0])
    before = node.rank.links[1].state, links[1].state
    node.interpreter.carry_out(node.rank.take_leave(at.now), at.now)
    at.deliver(len(at.mail) - 1)
    assert (node.rank.links[1].state, links[1].state) == (before[0], PLink.LOST)


BY_HAND: list[Callable[[], None]] = [
    disagreement, opened_again_while_draining, lost_while_draining, kv_after_the_lease, gather_fails_too_late,
    misfit_calls, misfit_answers, fails_before_all_have_confirmed, landed_while_draining, landed_while_settling,
    failed_while_settling, words_about_nobody, gives_up_while_the_ring_is_full, a_lease_that_ends_between_two_batches,
    two_lives_of_one_name,
    wires_that_come_late, called_elsewhere, tried_elsewhere, let_go_of, a_room_of_nobody_s_link,
    granted_in_its_turn, denied_in_its_turn, not_entitled_and_not_told,
    dies_with_nothing_to_write, forgotten_when_all_is_written, declined, taken_back, announced,
    taken_back_while_it_gathers, taken_back_while_it_gathers_from_a_closed_pool, taken_back_of_a_closed_pool,
    a_writer_whose_kv_never_comes, scattered_before_the_rest_comes,
    comes_while_the_rest_is_scattered, failed_while_the_rest_is_awaited, given_up_before_all_have_asked,
    forgotten_while_it_writes, confirmed_when_all_but_aux_is_there, confirmed_when_its_pages_are_asked_for,
    fails_after_it_has_told, silent_but_there, partial(goodbye_of, "P"), partial(goodbye_of, "P", quiet=False),
    partial(goodbye_of, "D"), *(partial(takes_its_call_back, then) for then in ("connects", "answered", "lost")),
    a_lease_that_ends_when_a_batch_has_landed, fails_after_it_was_confirmed, fails_in_a_closed_pool,
    *(partial(without_aux, each) for each in ENDS_WITHOUT_AUX), *(partial(a_write, case) for case in WRITES),
    *(partial(a_lease_that_ends_before_the_first_batch, *each)
      for each in product(get_args(Route), ("", "withdrawn"))),
    *(partial(another_group, where) for where in WAYS),
    *(partial(claimed_by_another, where) for where in (PRoom.AWAIT_ENGINE, PRoom.FAILED, PRoom.ABORTED)),
    partial(forgotten, PRoom.OPEN), partial(forgotten, PRoom.DRAINING),
    *(partial(noted_by_forgetting, *each) for each in ((1, "engine"), (2, "engine"), (1, "stall"))),
]  # fmt: skip


def named(scenario: Any) -> str:
    if not isinstance(scenario, partial):
        return str(scenario.__name__)
    given = (type(each).__name__ if isinstance(each, Event) else getattr(each, "name", str(each))
             for each in scenario.args)  # fmt: skip
    return "-".join([scenario.func.__name__, *given, *scenario.keywords])


@pytest.mark.parametrize("scenario", BY_HAND, ids=named)
def test_by_hand(scenario: Callable[[], None]) -> None:
    scenario()


def test_the_timers_of_the_first_room_s_sends_are_its_sends_own() -> None:
    at = world()
    at.open_all(0, 20)
    at.calm()
    at.raise_event("P", 0, ev.ForwardScheduled(0))
    at.mail.clear()
    at.calm(1.0)
    assert state(at, "P", room=0) is PRoom.OPEN
    assert at.prefill(0).sends[0][0].state is PSend.AWAIT_KV, "the lost request was sent again"


def test_a_room_in_which_nothing_moves_is_asked_after_twice_and_then_stalls() -> None:
    """Progress restarts the count, and so does the last prefill rank's word that it takes part."""
    machine, idle = Machine(decode_room, QUICK), QUICK.idle_
    terms = ev.Terms(PREFILL_GROUP, everyone=1, writes=1, aux=1, chunk_tokens=CHUNK_TOKENS, window=2)
    late = ev.TimerFired(ROOM, ev.ROOM_CHUNK, 0, QUICK.call.tries)
    before = [ev.RoomOpened(ROOM, terms, 20, 0), *[late] * 5, ev.PeerReady(ROOM, 0)]
    value = machine.initial
    for event in before:
        value, _ = machine.step(value, event, 0.0)
    now, said = 0.0, []
    for moves in (True, False):
        for _ in range(idle.tries):
            now = value.due
            value, outputs = machine.step(value, ev.TimerFired(ROOM, ev.ROOM_CHUNK, 0, idle.tries), now)
            said += [output.body for output in outputs if isinstance(output, do.Send)]
        if moves:
            value, _ = machine.step(value, ev.AuxLanded(ROOM, 0, b"row"), now)
    assert said == [msg.Open(20, 0, again=True)] * 2 * idle.tries and value.state is DRoom.OPEN
    assert value.due - now == pytest.approx(idle.period, abs=0.1)
    assert idle.period * (idle.tries + 1) == QUICK.stall.period
    value, _ = machine.step(value, ev.TimerFired(ROOM, ev.ROOM_CHUNK, 0, idle.tries), value.due)
    assert value.state is DRoom.DRAINING and value.work is not None and value.work.cause is Cause.STALLED


def test_a_link_that_comes_and_goes_leaves_one_timer() -> None:
    at = world()
    for _ in range(20):
        at.raise_event("P", 0, ev.TransportLost(1))
        at.raise_event("D", 0, ev.QueueOverflowed(1))
        at.calm(2.0)
    assert {node.rank.links[1].state.name for node in at.nodes.values()} == {"UP"}
    at.pass_time(QUICK.forget.period)
    at.calm(2.0)
    for node in at.nodes.values():
        assert sum(len(slot) for slot in node.rank.stores["links"].wheel.slots.values()) == 1, node.name


@pytest.mark.parametrize("seed", [3, 1009, 20260])
def test_a_story_is_its_seed(seed: int) -> None:
    first, second = Story(seed).tell(), Story(seed).tell()
    assert first.now == second.now and first.fired == second.fired


@pytest.mark.timeout(600)
def test_every_moving_row_is_fired_by_ranks() -> None:
    fired = set[Row]()
    for scenario in BY_HAND:
        MADE.clear()
        scenario()
        fired |= {row for at in MADE for row in at.rows()}
    missing = {row for table in TABLES for row in table.rows if row.verb == "row"} - fired
    for told, seed in enumerate(SEEDS):
        if told >= STORIES and not missing:
            break
        missing -= Story(seed).tell().rows()
    assert not missing, "\n".join(f"{row.where} {row}" for row in missing)


def test_the_layouts_here_stage_their_chunks() -> None:
    """Else half of the rows above would not mean what they seem to mean."""
    assert isinstance(layout(2), Layout) and CHUNK_TOKENS % PAGE == 0
    for at in (world(), world(2, 1), world(1, 2), world(2, 1, heads=1)):
        assert not any(at.plan.direct(share) for share in at.plan.shares)
