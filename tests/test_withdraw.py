"""Preemption: a prefill engine takes pages back while their room is under way, and gives others later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.stories import layout

from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Event, State
from kvproto.io.transports.fabric import Fabric
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause, PSend
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send, reads_withdrawn
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

TOKENS, CHUNK_TOKENS = 45, 8


@pytest.fixture(params=["cost", "pages", "staged"], ids=["staged", "over pages", "closed"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, slots=1, route=request.param)
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=settings) as made:
        yield made


def moved(pair: Pair, room: Room, upto: int) -> list[int]:
    """Compute the KV behind `upto` tokens once more in other pages; the former ones are free now."""
    table = pair.tables[room][0]
    old = table[-(-upto // pair.plan.prefill.page_size) :]
    new = [pair.free.pop() for _ in old]
    for prefill in pair.prefills:
        for tensor in (*prefill.pool.k, *prefill.pool.v):
            tensor[new] = tensor[old]
            tensor[old] = 7
    return new


@pytest.mark.parametrize(("computed", "upto"), [(45, 0), (40, 16), (20, 20), (24, 7), (0, 0)])
@pytest.mark.parametrize("turns", [0, 1, 2, 4, 50])
def test_the_kv_comes_from_where_it_was_computed_last(pair: Pair, computed: int, upto: int, turns: int) -> None:
    room = pair.name(TOKENS)
    pair.open_decode(room)
    for prefill in pair.prefills:
        prefill.open(room, TOKENS, pair.tables[room][0])
        prefill.prefetch(room)
    for _ in range(3):
        pair.turn()
    for prefill in pair.prefills:
        prefill.produced(room, computed)
    for _ in range(turns):
        pair.turn()
    for prefill in pair.prefills:
        prefill.withdraw(room, upto)
    pair.pump(lambda: all(prefill.withdrawn(room) for prefill in pair.prefills))
    pages = moved(pair, room, upto)
    for prefill in pair.prefills:
        prefill.produced(room, TOKENS, pages=pages)
        prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.NONE}
    pair.check(room)


def test_what_is_withdrawn_before_the_loop_has_heard_of_it_is_told_to_nobody(pair: Pair) -> None:
    room, event = pair.open(TOKENS), SimpleNamespace(query=lambda: True)
    prefill, (_, loop, entries, _) = pair.prefills[0], inside(pair.prefills[0])
    pair.pump(lambda: prefill.opened_by_all(room))
    prefill.produced(room, TOKENS, event)
    prefill.withdraw(room, CHUNK_TOKENS)
    told = list[int]()
    for _ in range(20):
        pair.turn()
        work = loop.rank.rooms[room.key].work
        told.append(work.produced if work is not None else 0)
    assert max(told) <= CHUNK_TOKENS
    entry, value = entries[room.key], loop.rank.rooms[room.key]
    prefill._announce(room.key, replace(entry), TOKENS, 1, entry.taken)
    assert loop.rank.rooms[room.key] is value, "what was said of a former room of that name is not told either"
    assert not entry.computed
    assert entry.marks == [(CHUNK_TOKENS, prefill.pool.layers, event)], "KV computed anew is not there with that event"


@pytest.mark.parametrize("ends", ["its decode engine", "its own engine"])
def test_pages_that_are_withdrawn_stay_so_when_the_room_fails_over_a_staged_write(ends: str) -> None:
    """A slot is read, not the pages: an engine that was told so may give others before the write ends."""
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, fabric=Fabric()) as pair:
        room, prefill, rank = pair.open(CHUNK_TOKENS), pair.prefills[0], inside(pair.prefills[0]).rank
        prefill.produced(room, CHUNK_TOKENS)

        def states() -> set[State]:
            return {send.state for send in rank.sends.get(room.key, {}).values()}

        pair.pump(lambda: bool(pair.fabric.options()) and PSend.WRITING in states())
        prefill.withdraw(room, 0)
        pair.pump(lambda: prefill.withdrawn(room))
        (prefill if ends == "its own engine" else pair.decodes[0]).abort(room)
        pair.pump(lambda: PSend.DRAINING in states())
        assert prefill.withdrawn(room)
        prefill.produced(room, CHUNK_TOKENS, pages=[pair.free.pop() for _ in pair.tables[room][0]])
        pair.fabric.auto = True
        pair.pump(lambda: pair.over(room))


def test_nothing_is_withdrawn_before_all_sends_have_heard_of_all_of_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is on another thread, so it asks at any moment of the loop's."""
    room, prefill, said = pair.open(TOKENS), pair.prefills[0], list[bool]()
    rank, reads, happen = inside(prefill).rank, PSendValue(PSend.GATHERING, kv=True), prefill._happen
    pair.pump(lambda: prefill.opened_by_all(room))

    def look(event: Event) -> None:
        said.append(prefill.withdrawn(room))
        happen(event)
        said.append(prefill.withdrawn(room))

    monkeypatch.setattr(prefill, "_happen", look)
    prefill.withdraw(room, CHUNK_TOKENS)
    prefill.withdraw(room, 0)
    prefill.poll()
    assert said == [False] * 4 and prefill.withdrawn(room), "the second is over when that has been heard, too"

    class Sends(dict[int, Any]):
        def get(self, key: int, default: Any = None) -> Any:
            found = dict(super().get(key, default))
            monkeypatch.setattr(rank, "sends", {})
            prefill.poll()
            return found

    monkeypatch.setattr(rank, "sends", Sends({room.key: {0: reads}}))
    prefill.withdraw(room, 0)
    assert not prefill.withdrawn(room), "they had not heard of it when they were looked at"


def test_what_is_kept_need_not_be_produced_again(pair: Pair) -> None:
    room = pair.open(TOKENS)
    pair.pump(lambda: all(prefill.opened_by_all(room) for prefill in pair.prefills))
    for prefill in pair.prefills:
        prefill.produced(room, TOKENS)
        prefill.withdraw(room, TOKENS)  # of what is said and not yet announced, nothing is taken back
        prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.NONE}
    pair.check(room)


def test_pages_that_are_still_read_are_not_replaced(pair: Pair) -> None:
    room = pair.open(TOKENS)
    prefill, ours = pair.prefills[0], pair.tables[room][0]
    prefill.produced(room, TOKENS)
    prefill.withdraw(room, 0)
    assert not prefill.withdrawn(room), "the loop has not heard of it"
    with pytest.raises(ArgumentError, match="still reads pages that were withdrawn"):
        prefill.produced(room, TOKENS, pages=ours)
    with pytest.raises(ArgumentError, match="46 tokens stay of 45"):
        prefill.withdraw(room, TOKENS + 1)
    with pytest.raises(ArgumentError, match="8 tokens need 2 pages of 4, the table has 0"):
        prefill.produced(room, 8)
    pair.pump(lambda: prefill.withdrawn(room))
    prefill.abort(room)
    pair.pump(lambda: ("P", 0, room) in pair.outcomes and pair.releases["P", 0, room] == 1)
    prefill.withdraw(room, 0)  # too late, and no mistake
    assert prefill.withdrawn(room)
    with pytest.raises(NotFoundError):
        prefill.withdraw(Room(99), 0)


def test_pages_that_a_write_reads_are_back_when_it_has_ended() -> None:
    fabric = Fabric()  # nothing moves until it is told to
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, route="pages")
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, settings=settings, fabric=fabric) as pair:
        room, prefill = pair.open(TOKENS), pair.prefills[0]
        prefill.produced(room, TOKENS)
        pair.pump(lambda: bool(inside(prefill).data.writes.flying))
        prefill.withdraw(room, 0)
        for _ in range(5):
            pair.turn()
        assert not prefill.withdrawn(room), "the write reads them"
        pair.pump(lambda: fabric.run() >= 0 and prefill.withdrawn(room))


def test_nobody_hears_that_pages_are_back_before_the_sends_know_that_they_were_taken(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, prefill, seen = pair.open(TOKENS), pair.prefills[0], list[bool]()
    happen = prefill._happen

    def looked(event: Event) -> None:
        seen.append(prefill.withdrawn(room))  # as another thread may at this moment
        happen(event)

    pair.turn()
    monkeypatch.setattr(prefill, "_happen", looked)
    prefill.withdraw(room, 20)
    prefill._loop.call(lambda: seen.append(prefill.withdrawn(room)))
    prefill.withdraw(room, 8)
    assert not prefill.withdrawn(room)
    pair.turn()
    assert seen == [False, False, False], "nor after the first time of two"
    assert prefill.withdrawn(room)


STAYS = {S: S for S in (PSend.AWAIT_PAGES, PSend.GATHERING, PSend.WRITING, PSend.WRITING_PAGES)}
TO = ev.Target(1, 9)
WAITS = {PSend.AWAIT_CREDIT: PSend.AWAIT_KV, PSend.AWAIT_PERMIT: PSend.AWAIT_PAGES_KV}
ON_THE_RING = (PSend.AWAIT_GRANT, PSend.AWAIT_WRITERS, PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK, PSend.AWAIT_SLOT)


@pytest.mark.parametrize("state", ON_THE_RING)
def test_a_send_whose_kv_is_taken_back_gives_the_ring_up_at_once(state: PSend) -> None:
    machine = Machine(prefill_send, Timing())
    value = PSendValue(state, to=TO, kv=True, asked=1.0, lease=100.0, grant=3, tries=2)
    taken, effects = machine.step(value, ev.KvWithdrawn(7, 0, 0), 2.0)
    assert (taken.state, taken.kv, taken.grant, taken.tries) == (PSend.AWAIT_PAGES, False, 0, 0)
    assert do.Transmit(1, 9, 7, msg.PagesReq(0, 2.0)) in effects
    again, _ = machine.step(taken, ev.KvProduced(7, 0, 0), 3.0)
    assert again.kv and again.state is PSend.AWAIT_PAGES


@pytest.mark.parametrize("state", [*ON_THE_RING, PSend.GATHERING, PSend.WRITING])
def test_a_send_of_a_closed_pool_comes_back_to_the_ring(state: PSend) -> None:
    machine = Machine(prefill_send, Timing())
    value = PSendValue(state, to=TO, kv=True, asked=1.0, first=1.0, lease=2.5, grant=3, slot=0, tries=2, closed=True)
    taken, effects = machine.step(value, ev.KvWithdrawn(7, 0, 0), 2.0)
    if state is PSend.GATHERING:
        taken, effects = machine.step(taken, ev.Gathered(7, 0, 0), 3.0)
    elif state is PSend.WRITING:
        taken, effects = machine.step(taken, ev.WriteLapsed(7, 0, 0), 3.0)
    assert (taken.state, taken.kv, taken.grant, taken.slot, taken.tries) == (PSend.AWAIT_KV, False, 0, -1, 0)
    assert not any(isinstance(effect, do.Transmit) for effect in effects), "nothing is given up that was asked for"
    late, _ = machine.step(taken, ev.StagingDenied(7, 0, 0), 3.0)
    assert late == taken, "what is refused meanwhile is refused again"
    asks, _ = machine.step(taken, ev.KvProduced(7, 0, 0), 4.0)
    again, effects = machine.step(asks, ev.CreditTaken(7, 0, 0), 5.0)
    assert again.state is PSend.AWAIT_GRANT and do.Transmit(1, 9, 7, msg.StagingReq(0, 5.0)) in effects


@pytest.mark.parametrize(("state", "then"), [*STAYS.items(), *WAITS.items()])
def test_a_send_that_waits_with_its_kv_waits_for_it_again(state: PSend, then: PSend) -> None:
    machine = Machine(prefill_send, Timing())
    value = PSendValue(state, kv=True, asked=1.0, lease=100.0, begin_by=50.0)
    taken, _ = machine.step(value, ev.KvWithdrawn(7, 0, 0), 2.0)
    assert taken.state is then and not taken.kv
    assert reads_withdrawn(taken) == (state in (PSend.GATHERING, PSend.WRITING_PAGES))
    again, _ = machine.step(taken, ev.KvProduced(7, 0, 0), 3.0)
    assert again.kv and not reads_withdrawn(again) and again.state is state
