"""A room's failure names the rank on which it began, in that rank's words, on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.stories import layout

from kvproto import Room
from kvproto.endpoint.reasons import WORDS
from kvproto.io.transports.fabric import Fabric
from kvproto.loop.blames import Blames
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(1), layout(2), chunk_tokens=8) as made:
        yield made


def told(pair: Pair, room: Room) -> dict[str, str]:
    """The reason that every engine was given for the room, once all have one."""
    pair.pump(lambda: pair.over(room))
    return {f"{side}{rank}": outcome.reason for (side, rank, name), outcome in pair.outcomes.items() if name == room}


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_an_abort_names_the_rank_whose_engine_gave_up_everywhere(side: str, index: int) -> None:
    with Pair(*((layout(2), layout(1)) if side == "prefill" else (layout(1), layout(2))), chunk_tokens=8) as pair:
        room = pair.open(30)
        pair.pump(lambda: all(endpoint.rooms().get("OPEN") for endpoint in pair.endpoints))
        (pair.prefills if side == "prefill" else pair.decodes)[index].abort(room)
        found = told(pair, room)
    why = WORDS[Cause.PREFILL_ABORTED if side == "prefill" else Cause.DECODE_ABORTED]
    assert found.pop(f"{side[0].upper()}{index}") == why
    assert set(found.values()) <= {f"{side} rank {index} said: {why}"}


def test_the_sentence_of_a_failed_write_reaches_every_rank() -> None:
    fabric = Fabric()
    with Pair(layout(2), layout(1), chunk_tokens=8, fabric=fabric) as pair:
        room = pair.open(8)
        for prefill in pair.prefills:
            prefill.produced(room, 8)
        writer = inside(pair.prefills[1]).data
        for _ in ("staged", "over pages"):
            pair.pump(lambda: bool(writer.writes.flying))
            fabric.fail(writer.transport.instance, next(iter(writer.writes.flying)))
            pair.pump(lambda: not writer.writes.flying)
        fabric.auto = True
        found = told(pair, room)
        reports = [endpoint.reports() for endpoint in pair.endpoints]
    why = found.pop("P1")
    assert "failed by the schedule" in why
    assert set(found.values()) == {f"prefill rank 1 said: {why}"}
    assert all(any("failed by the schedule" in line for line in lines) for lines in reports)


def test_an_engine_that_opens_a_room_which_was_given_up_before_reads_by_whom(pair: Pair) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.pump(lambda: all(endpoint.rooms().get("AWAIT_ENGINE") for endpoint in pair.prefills))
    pair.decodes[1].abort(room)
    pair.pump(lambda: not any(endpoint.rooms() for endpoint in pair.prefills))
    pair.open_prefill(room)
    found = told(pair, room)
    assert found["P0"] == found["D0"] == f"decode rank 1 said: {WORDS[Cause.DECODE_ABORTED]}"


def test_failed_rooms_and_lost_links_are_reported_and_what_engines_wished_is_not(pair: Pair) -> None:
    wished = pair.open(30)
    pair.decodes[0].abort(wished)
    pair.pump(lambda: pair.over(wished))
    assert not any(endpoint.reports() for endpoint in pair.endpoints)
    room, prefill = pair.open(30), pair.prefills[0]
    pair.pump(lambda: bool(prefill.rooms().get("OPEN")))
    link = next(iter(inside(prefill).rank.links))
    inside(prefill).data._lost(inside(prefill).data.link_peer[link])
    pair.pump(lambda: pair.over(room))
    assert any("is lost" in line for line in prefill.reports())
    lost = inside(prefill).rank.peers[link].rank  # either decode rank may have called first
    why = f"room {room.id} failed: the link to decode rank {lost} was lost"
    assert any(why in line for line in prefill.reports())


def test_the_first_blame_counts_for_its_own_cause_and_few_are_kept(pair: Pair) -> None:
    rank = inside(pair.prefills[0]).rank
    link, blames = next(iter(rank.links)), Blames(rank)
    peer: Any = rank.peers[link].rank
    body = msg.Abort(Cause.STALLED, b"", msg.Blame("prefill", 7, "a\nline"))
    assert blames.take(link, 1, body) == msg.Abort(Cause.STALLED)
    blames.fail(1, Cause.STALLED, "later")
    assert blames.find(1, Cause.STALLED) == msg.Blame("prefill", 7, "a line") and not blames.find(1, Cause.LINK_LOST)
    assert blames.take(link, 2, msg.Drained(Cause.STALLED)) == msg.Drained(Cause.STALLED)
    assert blames.find(2, Cause.STALLED) == msg.Blame("decode", peer)
    assert blames.put(1, msg.Drained(Cause.STALLED)).blame == msg.Blame("prefill", 7, "a line")  # type: ignore[union-attr]
    assert blames.put(1, msg.Drained(Cause.LINK_LOST)) == msg.Drained(Cause.LINK_LOST)
    assert blames.take(99, 3, msg.Drained(Cause.STALLED)) == msg.Drained(Cause.STALLED)
    assert not blames.find(3, Cause.STALLED)
    for room in range(10, 10 + rank.settings.tombstones):
        blames.fail(room, Cause.STALLED, "")
    assert not blames.find(1, Cause.STALLED) and blames.find(10, Cause.STALLED)
