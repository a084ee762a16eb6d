"""Hazards that no world of the checker shows, since worlds have no load and no periods, planted here.

A behaviour is said once, as a function of the rank or the pair; a test asks it of the protocol as it is, and once more
of one in which the defect is back.  A hazard without a name here, among the mutants, or with another test, is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_disconnect import LAG, LINKS, decode, passes
from test_foreign_groups import CHUNK_TOKENS, LEASE, MINE, OURS, PREFILL, ROOM, prefill, say
from test_pages_come_back import back, dies

from kvproto.adapters.sglang.pools import Instance, layout_of
from kvproto.errors import ArgumentError
from kvproto.fsm.vocabulary import Effect
from kvproto.io.control.outbox import Counts, Outboxes
from kvproto.io.control.sockets import Peer, Sent
from kvproto.loop.blames import Blames
from kvproto.loop.connections import Connections
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode as read
from kvproto.protocol.states import DLink, PLink, PSend
from kvproto.protocol.tables.links import decode_link
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.timing import Timing
from kvproto.rank.base import Rank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.check.report import ELSEWHERE
from kvproto.verify.draw.properties import HAZARDS
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing.pair import Pair

TIMING = Timing()
#: a beat and the slot of the wheel by which its timer may end later; beats of two minutes
SECOND, BEATS = 1.1 * TIMING.heartbeat.period, 120


def test_every_hazard_is_planted_by_name() -> None:
    assert {hazard.name for hazard in HAZARDS} <= MUTANTS.keys() | ELSEWHERE.keys()
    assert not MUTANTS.keys() & ELSEWHERE.keys()


# -------------------------------------------------------------------------------------- beats-behind-bulk
def leaving() -> list[type[msg.Message]]:
    """The messages that leave, in order, when a beat is sent behind many requests to a stalled peer."""
    open_, left, peer = [False], list[type[msg.Message]](), Peer(1, b"peer")

    def post(_: Peer, frames: Sequence[bytes]) -> Sent:
        if not open_[0]:
            return Sent.FULL
        left.extend(type(read(frame)[2]) for frame in frames)
        return Sent.TAKEN

    boxes = Outboxes(post, Counts(), 1 << 10, 1 << 20, 1 << 20)
    control = SimpleNamespace(send=boxes.offer)
    links = Connections(SimpleNamespace(control=control), Counter(), lambda _: None, Blames(Mock()))
    links.bind(1, peer)
    for chunk in range(100):
        links.send(1, 9, ROOM, msg.StagingReq(chunk))
    links.send(1, 9, 0, msg.Heartbeat())
    open_[0] = True
    boxes.move(peer)
    assert len(left) == 101
    return left


def test_a_beat_does_not_queue_behind_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaving()[0] is msg.Heartbeat
    offer = Outboxes.offer

    def one_lane(boxes: Outboxes, peer: Peer, data: bytes, *, urgent: bool, later: bool) -> Sent:
        del urgent
        return offer(boxes, peer, data, later=later)

    monkeypatch.setattr(Outboxes, "offer", one_lane)
    assert leaving()[-1] is msg.Heartbeat, "planted: one queue"


def chatting() -> PLink:
    """A link by which answers come all the time, and no beat."""
    rank, links = prefill()
    for second in range(3 * TIMING.heartbeat.tries):
        rank.tick(float(second))
        if PLink(rank.links[links[MINE]].state) is PLink.UP:
            say(rank, links[MINE], msg.ChunkAck(0), now=float(second))
    return PLink(rank.links[links[MINE]].state)


def test_whatever_comes_of_the_epoch_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chatting() is PLink.UP
    monkeypatch.setattr(Rank, "_was_heard", lambda *_: False)
    assert chatting() is PLink.LOST, "planted: only beats would count, and none has come"


# -------------------------------------------------------------------------------- repeats-without-backoff
def asking() -> tuple[PrefillRank, int]:
    """A rank whose one send asks for a region, and its link."""
    rank, links = prefill(Settings(window=1))
    rank.handle(ev.EngineOpened(ROOM, CHUNK_TOKENS), 0.0)
    say(rank, links[MINE], msg.Open(CHUNK_TOKENS, 0))
    rank.handle(ev.ForwardScheduled(ROOM), 0.0)
    rank.handle(ev.TokensProduced(ROOM, CHUNK_TOKENS), 0.0)
    assert rank.sends[ROOM][0].state is PSend.AWAIT_GRANT
    return rank, links[MINE]


def periods() -> list[float]:
    """Seconds between the ends of the timer of a send that asks for a region and hears nothing."""
    rank, _ = asking()
    now, found = 0.0, list[float]()
    for _ in range(TIMING.grant_retry.tries):
        due = rank.sends[ROOM][0].due
        found.append(due - now)
        now = due
        rank.handle(rank.send_timer(ROOM, 0, TIMING.grant_retry.tries), now)
    return found


def test_who_waits_for_an_answer_asks_more_and_more_seldom() -> None:
    first, slot = TIMING.grant_retry.period, 1 / 32  # of the wheel: no timer ends early, and none later than this
    assert periods() == pytest.approx([first, 2 * first, 4 * first], abs=slot)
    with TablePatch() as bench:
        bench.patch(prefill_send, "tries", None)
        assert periods() == pytest.approx([first] * 3, abs=slot), "planted: at one pace"


# ------------------------------------------------------------------------------------------ dear-fallback
def queueing(*, rising: bool) -> list[object]:
    """The effects of a send whose KV is ready, while ten of its turns do not come."""
    rank, link = asking()
    say(rank, link, msg.StagingQueued(0, 0, 0))
    assert rank.sends[ROOM][0].state is PSend.AWAIT_TURN
    said = list[Effect]()
    for turn in range(1, 11):
        if rising:
            say(rank, link, msg.Watermark(0, 64 * turn))
        if ROOM in rank.sends and rank.sends[ROOM][0].state is PSend.AWAIT_TURN:
            said += rank.handle(rank.send_timer(ROOM, 0, TIMING.queue_retry.tries), TIMING.queue_retry.period * turn)
    return [effect.body for effect in said if isinstance(effect, do.Transmit)]


def asks_for_pages(*, rising: bool) -> bool:
    return any(isinstance(body, msg.PagesReq) for body in queueing(rising=rising))


def test_a_queue_that_moves_drives_nobody_to_the_pages() -> None:
    assert queueing(rising=True) == [msg.StagingReq(0, 0.0)] * 10, "it asks for its region, whose grant may be lost"
    assert asks_for_pages(rising=False), "a ring that stands still does"
    with TablePatch() as bench:
        bench.drop(prefill_send, bench.rows(prefill_send, PSend.AWAIT_TURN, ev.TimerFired, "moves"))
        assert asks_for_pages(rising=True), "planted: a clock alone"


# ---------------------------------------------------------------------------------------- dead-link-costs
def unanswered() -> int:
    """How many links are left of as many groups as there may be, for which nobody answers."""
    rank, plan = decode()
    for group in range(3, 3 + LINKS):
        rank.call(group, 0, plan, 0.0, "nowhere")
    passes(rank, TIMING.forget.period + LAG)
    return len(rank.links)


def test_who_left_for_good_is_not_called_for_ever() -> None:
    assert unanswered() == 0
    with TablePatch() as bench:
        bench.drop(decode_link, bench.rows(decode_link, DLink.AWAIT_WELCOME, ev.TimerFired, "unneeded"))
        assert unanswered() == LINKS, "planted: each is called on"


# ------------------------------------------------------------------------------------------ old-link-wins
def moved() -> tuple[DLink, list[str]]:
    """A prefill rank restarts elsewhere while its old link is up: the link's state, and called addresses.

    The old link is silent, and the later incarnation answers each call.
    """
    rank, plan = decode()
    link, _ = rank.call(PREFILL, 0, plan, 0.0, "there")
    welcome = msg.Welcome(
        msg.VERSION, rank.build.digest, rank.links[link].session, 1 << 16, PREFILL, 0, OURS, CHUNK_TOKENS, LEASE
    )
    rank.receive(link, 0, 0, welcome, 0.0)
    called = list(rank.call(PREFILL, 0, plan, 0.0, "elsewhere")[1])
    for beat in range(TIMING.heartbeat.tries):
        called += rank.tick(beat * SECOND)
        called += rank.receive(-link, 0, 0, replace(welcome, epoch=2 << 16), beat * SECOND)
    return DLink(rank.links[link].state), [each.address for each in called if isinstance(each, do.TakeAddress)]


def test_a_new_address_is_taken_when_a_later_incarnation_answers_there() -> None:
    assert moved() == (DLink.AWAIT_RETURN, ["elsewhere"])
    with TablePatch() as bench:
        bench.drop(decode_link, bench.rows(decode_link, DLink.UP, ev.CallAsked, None))
        bench.ignore(decode_link, DLink.UP, ev.CallAsked)
        assert moved() == (DLink.UP, []), "planted: the engine's word is not heard"


# ------------------------------------------------------------------------------------- dead-address-displaces
def misled() -> tuple[DLink, int]:
    """An engine names a dead address while the link's peer lives: state and calls after two minutes."""
    rank, plan = decode()
    link, _ = rank.call(PREFILL, 0, plan, 0.0, "there")
    welcome = msg.Welcome(
        msg.VERSION, rank.build.digest, rank.links[link].session, 1 << 16, PREFILL, 0, OURS, CHUNK_TOKENS, LEASE
    )
    rank.receive(link, 0, 0, welcome, 0.0)
    called = list(rank.call(PREFILL, 0, plan, 0.0, "nowhere")[1])
    for beat in range(1, BEATS):
        rank.receive(link, 1 << 16, 0, msg.Heartbeat(), beat * SECOND)
        called += rank.tick(beat * SECOND)
    return DLink(rank.links[link].state), sum(isinstance(each, do.TryAddress | do.SayHello) for each in called)


def test_an_address_where_nobody_answers_costs_a_few_calls_and_no_link() -> None:
    assert misled() == (DLink.UP, 1 + TIMING.heartbeat.tries)
    with TablePatch() as bench:
        bench.drop(decode_link, bench.rows(decode_link, DLink.UP, ev.TimerFired, "tried_long"))
        assert misled() == (DLink.UP, BEATS), "planted: it is called for ever"
    with TablePatch() as bench:
        bench.drop(decode_link, bench.rows(decode_link, DLink.UP, ev.CallAsked, None))
        (again,) = bench.rows(decode_link, DLink.UP, ev.CallAsked, "anew")
        bench.change(decode_link, [again], when=None)
        state, calls = misled()
        assert (state, calls) == (DLink.AWAIT_RETURN, BEATS), "planted: the link is dropped at once"


# ------------------------------------------------------------------------------------- doubt-without-cause
def died_untold() -> bool:
    """Whether a room's pages come back with its outcome when both untold prefill ranks die."""
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=Settings(ring_bytes=1 << 20, slot_bytes=1 << 18)) as pair:
        room = pair.name(30)
        pair.open_decode(room)
        pair.turn()
        dies(pair, 0, 1)
        return back(pair, room)


def test_who_was_told_nothing_is_not_waited_for() -> None:
    assert died_untold()
    with TablePatch() as bench:
        untold = bench.rows(decode_link, DLink.AWAIT_RETURN, ev.QuietAsked, "untold")
        bench.drop(decode_link, untold)
        assert not died_untold(), "planted: for lease and write"


# ----------------------------------------------------------------------------------------- unclaimed-cache
@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ({"state_types": (SimpleNamespace(value="mamba"),)}, "recurrent states"),
        ({"state_types": (SimpleNamespace(value="block_scale"),)}, "scales"),
    ],
)
def test_a_cache_that_cannot_be_carried_is_refused_by_name(beside: dict[str, object], named: str) -> None:
    plain = {"state_types": (), "kv_item_lens": [1024] * 4, "page_size": 16, "kv_cache_dtype_str": "bfloat16",
             "num_draft_entries": 0}  # fmt: skip
    mine = Instance("here", 1, 0, 2)
    assert layout_of(SimpleNamespace(**plain), mine, mla=False).layers == 2
    with pytest.raises(ArgumentError, match=f"does not carry .*{named}"):
        layout_of(SimpleNamespace(**(plain | beside)), mine, mla=False)
