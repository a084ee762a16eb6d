"""A message becomes a machine's event: every field in its place, with the sender's rank.

No two numbers of a message are alike here, and the sender is the second rank of its group: so whatever is exchanged for
something else shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from test_foreign_groups import answers
from test_rank_links import CHUNK_TOKENS, FIRST, TOKENS, decode, open_rooms, prefill, say, welcome

from kvproto.fsm.vocabulary import Event
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim
from kvproto.protocol.routes import ALL, TO_DECODE, TO_PREFILL
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank

ROOM, LINK, PEER, EPOCH = 11, 2, 1, 102
TRACE, SECRET = b"00-trace", b"word"
LEASE = 30.0
#: a call makes a link, and is looked at with links
CALLS = (msg.Hello, msg.Heartbeat, msg.Reset)


def told(rank: Rank, link: int, body: msg.Message, room: int = 0, *, epoch: int | None = None) -> list[Event]:
    """The events that this message becomes, and nothing of what they cause."""
    found: list[Event] = []
    for kind in list(rank._route):
        rank.take(kind, lambda event, _now: found.append(event))
    say(rank, link, body, room, epoch=epoch)
    return found


def to_prefill(rank: Rank) -> list[tuple[msg.Message, int, Sequence[Event]]]:
    """Messages about the link and the room, and what they are to become."""
    terms = rank.peers[LINK].terms
    assert terms is not None
    claim, finer = Claim(FIRST, SECRET), replace(terms, layer_groups=2)
    return [
        (msg.Watermark(3, 5), 0, [ev.WatermarkSeen(LINK, 3, 5)]),
        (
            msg.StagingRsp(3, 20, 30, 4, 50, 6, 7, 8.0, queued=True), ROOM,
            [
                ev.StagingGranted(ROOM, 3, PEER, 20, 30, 4, 50, usable=True, lease=LEASE, asked=8.0, queued=True),
                ev.WatermarkSeen(LINK, 6, 7),
            ],
        ),
        (msg.StagingQueued(3, 6, 7), ROOM, [ev.StagingDeferred(ROOM, 3, PEER), ev.WatermarkSeen(LINK, 6, 7)]),
        (msg.StagingRefused(3), ROOM, [ev.StagingDenied(ROOM, 3, PEER)]),
        (msg.PagesRsp(3, b"page", 8.0), ROOM, [ev.PagesGranted(ROOM, 3, PEER, b"page", LEASE, 8.0)]),
        (msg.ChunkAck(3), ROOM, [ev.ChunkAcked(ROOM, 3, PEER)]),
        (msg.AuxAck(), ROOM, [ev.ChunkAcked(ROOM, msg.AUX_CHUNK, PEER)]),
        (
            msg.Open(40, 4, SECRET, TRACE, 9, 2, again=True), 31,
            [ev.PeerOpened(31, PEER, finer, 40, 4, claim, TRACE, 9, again=True)],
        ),
        (msg.Announce(40, SECRET, TRACE), 31, [ev.PeerAnnounced(31, PEER, terms, 40, claim)]),
        (msg.Abort(Cause.REFUSED, SECRET), 31, [ev.AbortAsked(31, PEER, terms, Cause.REFUSED, claim)]),
        (msg.Noted(), ROOM, [ev.PeerNoted(ROOM, PEER)]),
        (msg.Gone(), ROOM, [ev.PeerForgot(ROOM, PEER, unsent=False)]),
        (msg.Goodbye(quiet=True), 0, [ev.GoodbyeReceived(LINK, rank.links[LINK].epoch, quiet=True)]),
    ]  # fmt: skip


def to_decode(rank: Rank) -> list[tuple[msg.Message, int, Sequence[Event]]]:
    """The same: chunk 0 has a grant, and chunk 3 has none."""
    terms = rank.peers[LINK].terms
    assert terms is not None
    fits = welcome(rank, LINK, FIRST, PEER, session=77, epoch=88)  # type: ignore[arg-type]
    came = 8.0, LINK, rank.links[LINK].epoch, rank.cut_of(ROOM, 3)  # type: ignore[attr-defined]
    build = ev.PeerBuild(msg.VERSION, fits.digest)
    return [
        (fits, 0, [ev.WelcomeReceived(LINK, 77, 88, "", build)]),
        (
            replace(fits, chunk_tokens=CHUNK_TOKENS + 1),
            0,
            [ev.WelcomeReceived(LINK, 77, 88, "chunks of 17 tokens against 16", build)],
        ),
        (msg.Refusal(77, "no"), 0, [ev.RefusalReceived(LINK, 77, "no")]),
        (msg.WatermarkReq(), 0, [ev.WatermarkAsked(LINK)]),
        (msg.StagingReq(0, 8.0), ROOM, [ev.StagingRequested(ROOM, 0, PEER, terms.writes, 8.0)]),
        (msg.StagingReq(3, 8.0), ROOM, [ev.ChunkRequested(ROOM, 3, PEER, False, *came)]),
        (msg.PagesReq(0, 8.0), ROOM, [ev.PagesRequested(ROOM, 0, PEER, terms.writes, *came[:3])]),
        (msg.PagesReq(3, 8.0), ROOM, [ev.ChunkRequested(ROOM, 3, PEER, True, *came)]),
        (msg.StgNotify(0, 20), ROOM, [ev.PartArrived(ROOM, 0, PEER, 20)]),
        (msg.StgNotify(3, 20), ROOM, [ev.ChunkNotified(ROOM, 3, PEER)]),
        (msg.Opened(), ROOM, [ev.PeerReady(ROOM, PEER)]),
        (msg.Aux(b"data", TRACE), ROOM, [ev.AuxLanded(ROOM, PEER, b"data", TRACE)]),
        (msg.Drained(Cause.REFUSED), ROOM, [ev.PeerDrained(ROOM, PEER, Cause.REFUSED)]),
        (msg.Goodbye(quiet=False), 0, [ev.GoodbyeReceived(LINK, rank.links[LINK].epoch, quiet=False)]),
    ]


def made(side: str) -> tuple[Rank, list[tuple[msg.Message, int, Sequence[Event]]]]:
    rank: Rank = prefill() if side == "prefill" else decode()
    open_rooms(rank)
    if side == "decode":
        say(rank, LINK, msg.StagingReq(0), ROOM)
    rank.links[LINK] = replace(rank.links[LINK], **({"mark_round": 3} if side == "prefill" else {}))
    return rank, to_prefill(rank) if side == "prefill" else to_decode(rank)


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_message_is_heard_as_it_was_said(side: str) -> None:
    rank, said = made(side)
    for body, room, events in said:
        assert told(rank, LINK, body, room, epoch=0 if isinstance(body, msg.Welcome | msg.Refusal) else None) == events
    every = TO_PREFILL if side == "prefill" else TO_DECODE
    assert {type(body) for body, _, _ in said} | {*CALLS} == {*every, *CALLS} and {*every} < {*ALL}


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_beats_and_resets_name_their_epoch_whichever_it_is(side: str) -> None:
    rank, _ = made(side)
    assert told(rank, LINK, msg.Heartbeat(), epoch=5) == [ev.HeartbeatReceived(LINK, 5, b"")]
    assert told(rank, LINK, msg.Reset(), epoch=5) == [ev.ResetReceived(LINK, 5)]
    found: list[Any] = []
    rank.take(ev.HeartbeatReceived, lambda event, _now: found.append(event))
    rank.receive(0, 5, 0, msg.Heartbeat(), 0.0, b"somewhere")
    rank.receive(99, 5, 0, msg.Heartbeat(), 0.0, b"somewhere")
    assert found == [ev.HeartbeatReceived(0, 5, b"somewhere")] * 2, "a stranger's is known by its place"


def test_a_caller_that_heard_of_no_epoch_takes_its_call_back() -> None:
    rank, _ = made("prefill")
    assert told(rank, LINK, msg.Goodbye(quiet=True, session=77), epoch=0) == [ev.CallTakenBack(LINK, 77)]


@pytest.mark.parametrize(
    ("round_", "said", "seen", "usable"),
    [
        (0, (0, 0), (0, 0), True), (1, (0, 63), (0, 63), False), (1, (0, 64), (0, 0), True),
        (1, (0, 0), (0, 64), True), (1, (1, 0), (0, 0), True), (2, (0, 64), (1, 0), False), (2, (0, 0), (1, 64), True),
    ],
)  # fmt: skip
def test_a_region_is_usable_by_the_higher_of_the_watermark_said_and_the_one_seen(
    round_: int, said: tuple[int, int], seen: tuple[int, int], usable: bool
) -> None:
    rank, _ = made("prefill")
    rank.links[LINK] = replace(rank.links[LINK], mark_round=seen[0], mark_tail=seen[1])
    (granted, _) = told(rank, LINK, msg.StagingRsp(0, 1, 0, round_, 64, *said), ROOM)
    assert isinstance(granted, ev.StagingGranted) and granted.usable == usable


def test_a_room_that_is_cut_finer_than_its_shares_is_not_opened() -> None:
    rank = prefill()
    plan = rank.peers[1].plan
    assert plan is not None
    assert answers(say(rank, 1, msg.Open(TOKENS, 0, layer_groups=plan.fewest_layers), 31)) == [(1, msg.Opened())]
    finer = msg.Open(TOKENS, 0, layer_groups=plan.fewest_layers + 1)
    assert not say(rank, 1, finer, 31), "it has opened the room, and something may be in flight"
    blame = msg.Blame("prefill", 0, "3 layer groups: the smallest share has 2 layers")
    assert answers(say(rank, 2, finer, 31)) == [(2, msg.Drained(Cause.REFUSED, blame))], "its neighbour has not"
    say(rank, 2, msg.Open(TOKENS, 0, layer_groups=plan.fewest_layers), 31)
    assert not say(rank, 2, finer, 31)
    assert answers(say(rank, 1, finer, 32)) == [(1, msg.Drained(Cause.REFUSED, blame))]
    assert 32 not in rank.rooms and rank.counts["rooms cut too finely"] == 4
