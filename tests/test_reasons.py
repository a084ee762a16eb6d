"""Why a room failed, in words: the sentence where it happened, whose cause it was everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_rank_links import prefill

from kvproto import Outcome, Room, Timer, Timing
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.endpoint.reasons import ABOUT, WORDS, reason
from kvproto.io.transports.fabric import Fabric
from kvproto.observe.logs import LONGEST
from kvproto.protocol import effects as do
from kvproto.protocol.events import QueueOverflowed, RoomFailed
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair
from kvproto.verify.testing.pools import noise


def reasons(pair: Pair, room: Room) -> dict[str, str]:
    """The reason that every engine was given for the room, once all have one."""
    pair.pump(lambda: pair.over(room))
    return {f"{side}{rank}": outcome.reason for (side, rank, name), outcome in pair.outcomes.items() if name == room}


def under_way(pair: Pair, room: Room) -> None:
    """Every rank takes part."""
    ranks = [inside(endpoint).rank for endpoint in pair.endpoints]
    pair.pump(lambda: all(value is not None and value.state.name == "OPEN" for value in map(value_of(room), ranks)))


def value_of(room: Room) -> Callable[[Rank], Any]:
    """Looks up the room's value on a rank."""
    return lambda rank: rank.value_of(room.key)


def boom(*_: object, **__: object) -> None:
    raise RuntimeError("planted")


def test_every_cause_has_words() -> None:
    assert WORDS.keys() == set(Cause) - {Cause.NONE}
    assert ABOUT.keys() <= WORDS.keys()


def test_what_succeeds_has_no_reason(pair: Pair) -> None:
    room = pair.open(30)
    pair.finish(room)
    assert set(reasons(pair, room).values()) == {""}
    assert Outcome(room, Cause.NONE).reason == ""


def test_what_is_known_counts_for_its_own_cause_alone_and_no_cause_lacks_words() -> None:
    rank, known = prefill(), (Cause.KERNEL_FAILED, "known")
    told = {cause: reason(rank, do.AnnounceOutcome(11, cause, 1), known) for cause in Cause}
    assert told[Cause.NONE] == "" and told[Cause.KERNEL_FAILED] == "known"
    assert told[Cause.WRITE_FAILED] == "the write to decode rank 1 failed or did not end in time"
    assert told[Cause.STALLED] == WORDS[Cause.STALLED]


@pytest.mark.parametrize("cause", [
    Cause.NO_ANSWER, Cause.LINK_LOST, Cause.REFUSED, Cause.PLAN_MISMATCH, Cause.WRITE_FAILED, Cause.KERNEL_FAILED,
    Cause.FORGOTTEN, Cause.CLOSED,
])  # fmt: skip
def test_the_rank_that_it_was_about_is_named(cause: Cause) -> None:
    told = reason(prefill(), do.AnnounceOutcome(11, cause, 1), None, tokens=30)
    assert "decode rank 1" in told and told != WORDS[cause]
    assert reason(prefill(), do.AnnounceOutcome(11, cause), None) == WORDS[cause]  # nobody knows which


def test_a_missing_link_is_named_where_it_may_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproto.endpoint.reasons.unlinked", lambda *_: "decode rank 3")
    told = {cause for cause in Cause if "decode rank 3" in reason(prefill(), do.AnnounceOutcome(11, cause), None)}
    assert told == {Cause.NO_ANSWER, Cause.PEERS_MISSING, Cause.STALLED}


def test_what_another_rank_has_told_is_not_explained_by_what_went_wrong_here() -> None:
    told = do.AnnounceOutcome(11, Cause.KERNEL_FAILED, 1, told=True)
    said = f"decode rank 1 said: {WORDS[Cause.KERNEL_FAILED]}"
    assert reason(prefill(), told, (Cause.KERNEL_FAILED, "a gather of ours")) == said


def test_an_abort_is_told_as_the_engine_s_that_gave_up(pair: Pair) -> None:
    room = pair.open(30)
    under_way(pair, room)
    pair.prefills[0].abort(room)
    why = WORDS[Cause.PREFILL_ABORTED]
    assert reasons(pair, room) == {"P0": why, "D0": f"prefill rank 0 said: {why}", "P1": f"prefill rank 0 said: {why}"}


def test_a_write_that_fails_has_the_transport_s_sentence_on_its_own_rank() -> None:
    fabric, pages = Fabric(), replace(SMALL, route="pages")
    with Pair(layout(2), layout(1), chunk_tokens=8, fabric=fabric, settings=pages) as pair:
        room = pair.open(8)
        pair.prefills[0].produced(room, 8)
        writer = inside(pair.prefills[0]).data
        pair.pump(lambda: bool(writer.writes.flying))
        fabric.fail(writer.transport.instance, next(iter(writer.writes.flying)))
        fabric.auto = True
        told = reasons(pair, room)
    assert told["P0"] == f"write of room {room.id}, chunk 0 for decode rank 0: backend: failed by the schedule"
    assert told["D0"] == told["P1"] == f"prefill rank 0 said: {told['P0']}"


@pytest.mark.parametrize(("side", "name"), [("P0", "gather"), ("D0", "scatter")])
def test_a_kernel_that_fails_has_its_sentence_on_its_own_rank(pair: Pair, side: str, name: str) -> None:
    room, kernels = pair.open(30), inside(pair.endpoints[0 if side == "P0" else -1]).data.kernels
    setattr(kernels, f"{name}_parts" if name == "gather" else name, boom)
    pair.produce(room, 15, aux=None)
    told = reasons(pair, room)
    whom = " for decode rank 0" if name == "gather" else ""
    why = f"{name} of room {room.id}, chunk 0{whom}: RuntimeError: planted"
    assert told.pop(side) == why
    assert set(told.values()) == {f"{'prefill' if side == 'P0' else 'decode'} rank 0 said: {why}"}


def test_what_went_wrong_first_on_a_rank_is_its_reason(pair: Pair) -> None:
    room, (rank, loop, _, _) = pair.open(30), inside(pair.decodes[0])
    under_way(pair, room)
    for sentence in ("first", "second"):
        loop.logs.blame(room.key, Cause.KERNEL_FAILED, sentence)
    loop.submit(rank.handle(RoomFailed(room.key, Cause.KERNEL_FAILED), loop.now))
    assert reasons(pair, room)["D0"] == "first"


def test_a_handler_that_fails_is_named(pair: Pair) -> None:
    room, loop = pair.open(8), inside(pair.decodes[0]).loop
    loop.handlers[do.DeliverAux] = boom
    pair.produce(room)
    assert reasons(pair, room)["D0"] == "DeliverAux: RuntimeError: planted"


def test_a_lost_link_is_told_with_its_rank(pair: Pair) -> None:
    room, (rank, loop, _, _) = pair.open(30), inside(pair.decodes[0])
    under_way(pair, room)
    loop.raise_event(QueueOverflowed(rank.link_of[PREFILL_GROUP, 1]))
    loop.submit([])
    assert reasons(pair, room)["D0"] == "the link to prefill rank 1 was lost"


def test_a_refused_link_is_told_with_its_rank_and_why() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as pair:
        transport = pair.transport()
        other = PrefillEndpoint(layout(1), 0, noise(layout(1), 0, 8, 1), transport, chunk_tokens=16, group=7)
        pair.prefills.append(other)
        decode, room = pair.decodes[0], pair.name(30)
        decode.connect(layout(1), [other.address], group=7)
        decode.open(room, 30, pair.tables[room][1], group=7)
        pair.pump(lambda: ("D", 0, room) in pair.outcomes)
        assert pair.outcomes["D", 0, room].reason == "there is no link to prefill rank 0: chunks of 8 tokens against 16"


def test_two_lengths_are_told_to_both(pair: Pair) -> None:
    room = pair.name(30)
    pair.prefills[0].open(room, 20, pair.tables[room][0])
    pair.open_prefill(room, [1])
    rank = inside(pair.prefills[0]).rank
    pair.pump(lambda: rank.value_of(room.key) is not None)
    pair.open_decode(room)
    told = reasons(pair, room)
    assert told["P0"] == "decode rank 0 named another length or prefix for the room than this engine with 20 tokens"
    assert told["D0"] == f"prefill rank 0 said: {told['P0']}"


@pytest.mark.parametrize("side", ["P", "D"])
def test_a_side_that_waits_in_vain_is_told_which_link_there_is_not(side: str) -> None:
    quick = Timing(bootstrap=Timer(0.2), call=Timer(0.05, 4), resend=Timer(0.05, 4))
    with Pair(layout(1), layout(2), chunk_tokens=8, settings=Settings(ring_bytes=1 << 20, timing=quick)) as pair:
        room = pair.name(30)
        if side == "P":
            pair.open_decode(room, [0])
            pair.open_prefill(room)
        else:
            pair.prefills.pop().close()
            pair.decodes.pop().close()
            loop = inside(pair.decodes[0]).loop
            loop.raise_event(QueueOverflowed(1))
            loop.submit([])
            pair.open_decode(room)
        pair.pump(lambda: (side, 0, room) in pair.outcomes)
        reason = pair.outcomes[side, 0, room].reason
    if side == "P":
        assert reason == WORDS[Cause.PEERS_MISSING], "both links are up"
    else:
        assert reason == f"{WORDS[Cause.NO_ANSWER]}: there is no link to prefill rank 0"


def test_a_reason_is_bounded_and_goes_with_its_room(pair: Pair) -> None:
    def long(*_: object, **__: object) -> Any:
        raise RuntimeError("planted " * 1000)

    room, endpoint = pair.open(8), pair.prefills[0]
    inside(endpoint).data.kernels.bind = long  # type: ignore[method-assign]
    pair.produce(room)
    told = reasons(pair, room)
    assert len(told["P0"]) == LONGEST and told["P0"].endswith("...")
    assert not inside(endpoint).entries
