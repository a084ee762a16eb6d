"""Groups that are no party to a room: whatever they say of it, honestly or not, nothing of it moves.

Two decode groups with the same rank indices are linked to one prefill rank (and two prefill groups to one decode rank).
The room belongs to the first; the second says everything there is about it.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvproto.fsm.codec import Body
from kvproto.fsm.vocabulary import Effect
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.routes import D_ROOMS, P_ROOMS, P_SENDS
from kvproto.protocol.states import Cause, DGrant, PRoom, PSend
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings

OURS = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
THEIRS = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=32, tp=1)
CHUNK_TOKENS, ROOM, TOKENS, PREFILL, MINE, OTHER = 32, 7, 64, 1, 2, 3
LEASE = Settings().timing.lease.period
SAID: dict[type[Body], Any] = {
    msg.StagingRsp: msg.StagingRsp(0, 9, 0, 0, 4096, 0, 0), msg.StagingRefused: msg.StagingRefused(0),
    msg.StagingQueued: msg.StagingQueued(0, 0, 4096),
    msg.PagesRsp: msg.PagesRsp(0, b"\1\0\0\0"), msg.ChunkAck: msg.ChunkAck(0), msg.AuxAck: msg.AuxAck(),
    msg.Open: msg.Open(TOKENS, 0), msg.Announce: msg.Announce(TOKENS), msg.Abort: msg.Abort(Cause.DECODE_ABORTED),
    msg.Noted: msg.Noted(),
    msg.Gone: msg.Gone(), msg.StagingReq: msg.StagingReq(0), msg.PagesReq: msg.PagesReq(0),
    msg.StgNotify: msg.StgNotify(0, 1), msg.Opened: msg.Opened(), msg.Aux: msg.Aux(b"foreign"),
    msg.Drained: msg.Drained(Cause.NONE),
}  # fmt: skip

CLAIMING = msg.Open | msg.Announce | msg.Abort


def hello(group: int, session: int = 1) -> msg.Hello:
    return msg.Hello(msg.VERSION, tables_digest(), session, group, 0, THEIRS, CHUNK_TOKENS, LEASE, b"")


def prefill(settings: Settings | None = None) -> tuple[PrefillRank, dict[int, int]]:
    """A prefill rank with both groups linked, and their links."""
    rank = PrefillRank(OURS, 0, group=PREFILL, chunk_tokens=CHUNK_TOKENS, incarnation=3, settings=settings)
    links = {}
    for group in (MINE, OTHER):
        links[group], _ = rank.hello(hello(group), 0.0, bytes([group]))
        rank.handle(ev.WiredUp(links[group], 1, f"wire {group}"), 0.0)
    return rank, links


def say(rank: Any, link: int, body: msg.Message, room: int = ROOM, now: float = 0.0) -> list[Effect]:
    effects: list[Effect] = rank.receive(link, rank.links[link].epoch, room, body, now)
    return effects


def kept(rank: Any) -> tuple[Any, ...]:
    """All that the rank knows of rooms."""
    names = ("rooms", "tombs", "sends", "grants", "writes", "slot_of", "space_queue", "chunk_of")
    return tuple(repr(getattr(rank, name, None)) for name in names)


def answers(effects: list[Effect]) -> list[tuple[int, msg.Message]]:
    return [(effect.link, effect.body) for effect in effects if isinstance(effect, do.Transmit)]


def at_work(stage: str) -> tuple[PrefillRank, dict[int, int]]:
    """A room of the first group, as far as `stage`."""
    rank, links = prefill()
    rank.handle(ev.EngineOpened(ROOM, TOKENS), 0.0)
    say(rank, links[MINE], msg.Open(TOKENS, 0))
    rank.handle(ev.TokensProduced(ROOM, TOKENS), 0.0)
    if stage in ("granted", "writing", "failed"):
        for chunk in range(2):
            say(rank, links[MINE], msg.StagingRsp(chunk, chunk + 1, 4096 * chunk, 0, 4096 * (chunk + 1), 0, 0))
    if stage == "writing":
        rank.handle(ev.Gathered(ROOM, 0, 0), 0.0)
        rank.handle(ev.BatchReady(ROOM, 0, 0, last=True), 0.0)
        assert rank.sends[ROOM][0].state is PSend.WRITING and rank.writes
    if stage == "failed":
        rank.handle(ev.EngineAborted(ROOM, Cause.PREFILL_ABORTED), 0.0)
        for chunk in range(2):
            rank.handle(ev.Gathered(ROOM, chunk, 0), 0.0)
        assert rank.rooms[ROOM].state is PRoom.AWAIT_NOTED
    return rank, links


@pytest.mark.parametrize("stage", ["asked", "granted", "writing", "failed"])
@pytest.mark.parametrize("body", [SAID[kind] for kind in (*P_SENDS, *P_ROOMS)], ids=lambda body: type(body).__name__)
def test_a_prefill_rank_hears_nothing_of_a_room_from_another_group(stage: str, body: msg.Message) -> None:
    rank, links = at_work(stage)
    before = kept(rank)
    effects = say(rank, links[OTHER], body)
    assert kept(rank) == before
    told = [(links[OTHER], msg.Drained(Cause.NOT_ENTITLED))] if isinstance(body, CLAIMING) else []
    assert answers(effects) == told and len(effects) == len(told), "it is told at most that the room is not its own"
    say(rank, links[MINE], body)
    changes = kept(rank) != before
    heard = isinstance(body, (msg.Gone, msg.Noted if stage == "failed" else msg.Abort))
    assert changes or not heard, "from its own group the same word counts"


@pytest.mark.parametrize("body", [SAID[kind] for kind in D_ROOMS], ids=lambda body: type(body).__name__)
def test_a_decode_rank_hears_nothing_of_a_room_from_another_group(body: msg.Message) -> None:
    rank = DecodeRank(
        THEIRS, 0, group=MINE, chunk_tokens=CHUNK_TOKENS, incarnation=5, settings=Settings(ring_bytes=1 << 20)
    )
    plan = Plan(OURS, THEIRS, CHUNK_TOKENS)
    links = {}
    for group in (PREFILL, OTHER):
        links[group], _ = rank.call(group, 0, plan, 0.0, f"tcp://{group}")
        session = rank.links[links[group]].session
        said = msg.Welcome(msg.VERSION, tables_digest(), session, group, group, 0, OURS, CHUNK_TOKENS, LEASE)
        rank.receive(links[group], 0, 0, said, 0.0)
    rank.handle(ev.RoomOpened(ROOM, rank.terms(PREFILL, plan), TOKENS, 0), 0.0)
    say(rank, links[PREFILL], msg.Opened())
    say(rank, links[PREFILL], msg.StagingReq(0))
    assert rank.grants[ROOM][0].state is DGrant.FILLING
    before = kept(rank)
    effects = say(rank, links[OTHER], body)
    assert kept(rank) == before
    told = {msg.Opened: [], msg.Drained: [(links[OTHER], msg.Noted())]}.get(type(body), [(links[OTHER], msg.Gone())])
    assert answers(effects) == told and len(effects) == len(told), "it is told that the room is not its own"


def test_a_second_group_that_opens_a_live_id_and_gives_it_up_leaves_the_first_one_s_room_alone() -> None:
    """An honest collision: the second is refused, its engine gives up, and neither ends the first's room."""
    rank, links = at_work("granted")
    for body in (SAID[msg.Open], SAID[msg.Abort], SAID[msg.Noted]):
        say(rank, links[OTHER], body)
    rank.handle(ev.AuxProvided(ROOM), 0.0)
    for chunk in range(2):
        rank.handle(ev.Gathered(ROOM, chunk, 0), 0.0)
        rank.handle(ev.BatchReady(ROOM, chunk, 0, last=True), 0.0)
        rank.handle(ev.BatchCompleted(ROOM, chunk, 0), 0.0)
        say(rank, links[MINE], msg.ChunkAck(chunk))
    effects = say(rank, links[MINE], msg.AuxAck())
    assert do.AnnounceOutcome(ROOM, Cause.NONE) in effects and not rank.sends and not rank._groups


def test_the_end_of_a_link_ends_the_rooms_of_its_own_group_only() -> None:
    rank, links = at_work("granted")
    before = kept(rank)
    rank.handle(ev.TransportLost(links[OTHER]), 0.0)
    assert kept(rank) == before
    rank.handle(ev.TransportLost(links[MINE]), 0.0)
    assert kept(rank) != before


def test_a_slot_that_is_given_when_its_send_is_stopped_is_nobody_s_for_no_moment() -> None:
    """One slot; a failed write frees it in the pass in which the sends that queue for it are stopped."""
    rank, links = prefill(Settings(slots=1, route="staged"))  # there is no way over pages to retry it
    for room in (1, 2, 3):
        rank.handle(ev.EngineOpened(room, 32), 0.0)
        say(rank, links[MINE], msg.Open(32, 0), room)
        rank.handle(ev.TokensProduced(room, 32), 0.0)
        say(rank, links[MINE], msg.StagingRsp(0, room, 4096 * room, 0, 4096 * room + 4096, 0, 0), room)
    rank.handle(ev.Gathered(1, 0, 0), 0.0)
    rank.handle(ev.BatchReady(1, 0, 0, last=True), 0.0)
    assert len(rank.slot_queue) == 2
    late = LEASE + 1.0
    stops = [ev.EngineAborted(room, Cause.PREFILL_ABORTED) for room in (2, 3)]
    for step in (ev.BatchFailed(1, 0, 0, settled=True), *stops):
        rank.handle(step, late)
        held = {key for key, _ in rank.slot_of.items()}
        sends = {(room, at >> 16, at & 0xFFFF) for room, parts in rank.sends.items() for at in parts}
        assert held <= sends, "a slot belongs to a send that is over"
    assert not rank.sends and rank.free_slots == [0] and not rank.slot_of


def test_a_part_by_pages_that_nobody_agreed_to_is_no_part() -> None:
    """While the region is awaited there is no grant, and 0 agrees to nothing: only its holder may."""
    rank = DecodeRank(
        THEIRS, 0, group=MINE, chunk_tokens=CHUNK_TOKENS, incarnation=5, settings=Settings(ring_bytes=1 << 20)
    )
    two = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=2)
    plan = Plan(two, THEIRS, CHUNK_TOKENS)
    for index in range(2):
        link, _ = rank.call(PREFILL, index, plan, 0.0, "tcp://p")
        said = msg.Welcome(
            msg.VERSION, tables_digest(), rank.links[link].session, 1, PREFILL, index, two, CHUNK_TOKENS, LEASE
        )
        rank.receive(link, 0, 0, said, 0.0)
    rank.handle(ev.RoomOpened(ROOM, rank.terms(PREFILL, plan), CHUNK_TOKENS, 0), 0.0)
    rank.ring.reserve(rank.ring.size)
    for _ in range(rank.ring.ahead):
        rank.ring.reserve(rank.ring.size)
    say(rank, 1, msg.StagingReq(0))
    say(rank, 2, msg.StagingReq(0))
    assert rank.grants[ROOM][0].state is DGrant.AWAIT_SPACE
    effects = say(rank, 1, msg.StgNotify(0, 0))
    assert rank.grants[ROOM][0].arrived == 0 and not answers(effects), "nobody agreed to pages"
    say(rank, 1, msg.PagesReq(0))
    effects = say(rank, 1, msg.StgNotify(0, 0))
    assert rank.grants[ROOM][0].arrived == 1 and answers(effects) == [(1, msg.ChunkAck(0))]
