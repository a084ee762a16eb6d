"""Whatever arrives: no frame stops a loop, and none changes a room that it is not about."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import zmq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.stories import layout
from support.strategies import damaged, frames, messages
from support.wiretap import Stranger, Tap

from kvproto.protocol import messages as msg
from kvproto.protocol.codec import MAX_FRAME, decode, encode
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.trace.stories import HeardEntry, log_of

SLOW = settings(
    max_examples=25, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
AT = st.integers(0, 200)
VICTIM = Room(77)


@contextlib.contextmanager
def tapped() -> Iterator[tuple[Pair, Tap, Stranger]]:
    with Pair(layout(2), layout(1), chunk_tokens=8, pages=64) as pair:
        stranger = Stranger(pair.prefills[0].address)
        try:
            pair.pump(stranger.heard)
            yield pair, Tap(pair), stranger
        finally:
            stranger.close()


def unharmed(pair: Pair, *rooms: Room) -> None:
    """These rooms succeed, every byte is right, nothing is left, and a new room works."""
    after = pair.open(20)
    pair.finish(*rooms, after)
    assert all(pair.causes(room) == {Cause.NONE} for room in (*rooms, after))
    pair.check(*rooms, after)
    for endpoint in pair.endpoints:
        inside(endpoint).rank.rooms.pop(VICTIM.key, None)  # a frame about it may have opened it, as any decode rank may
    pair.rest()


def called(pair: Pair, session: int) -> bool:
    """The first prefill rank has heard a call of this session."""
    said = [entry.body for entry in log_of(inside(pair.prefills[0]).rank).entries if isinstance(entry, HeardEntry)]
    return any(isinstance(body, msg.Hello) and body.session == session for body in said)


def about_others(body: msg.Message) -> bool:
    """No message that ends a link, moves a watermark or opens another: those concern every room of a link."""
    return not isinstance(body, msg.Hello | msg.Welcome | msg.Refusal | msg.Reset | msg.Goodbye | msg.Watermark)


noise_steps = st.lists(
    st.one_of(
        st.tuples(st.just("stranger"), damaged()),
        st.tuples(st.just("stranger"), frames().map(lambda frame: encode(*frame))),
        st.tuples(st.just("damaged"), damaged()),
        st.tuples(st.just("damaged"), st.binary(max_size=64)),
        st.tuples(st.just("repeat"), AT),
        st.tuples(st.just("other room"), messages().filter(about_others)),
        st.tuples(st.just("pass"), st.just(0)),
    ),
    min_size=4, max_size=30,
)  # fmt: skip


@SLOW
@given(noise_steps, AT)
def test_frames_of_every_kind_leave_a_room_alone(steps: list[tuple[str, object]], at: int) -> None:
    with tapped() as (pair, tap, stranger):
        room = pair.open(30)
        for count, (kind, what) in enumerate(steps):
            where = (at + count) % len(pair.endpoints)
            loop = inside(pair.endpoints[where]).loop
            peer = next(iter(loop.connections.peer_of.values()))
            if kind == "stranger":
                assert isinstance(what, bytes)
                stranger.say(what)
            elif kind == "damaged":
                assert isinstance(what, bytes)
                tap.say(where, peer, what)
            elif kind == "repeat":
                tap.repeat(int(str(what)))
            elif kind == "other room":
                epoch = next(iter(loop.rank.links.values())).epoch
                key = 0 if isinstance(what, msg.LinkBody) else VICTIM.key
                tap.say(where, peer, encode(epoch, key, what))  # type: ignore[arg-type]
            pair.turn()
            if count == len(steps) // 2:
                pair.produce(room, 15, aux=None)
        unharmed(pair, room)


@SLOW
@given(st.lists(AT, max_size=40), st.integers(0, 3))
def test_frames_that_come_again_and_late_change_nothing(which: list[int], pause: int) -> None:
    with tapped() as (pair, tap, _):
        first, second = pair.open(30), pair.open(20, prefix=4)
        pair.produce(first, 15, aux=None)
        for at in which:
            tap.repeat(at)
            for _ in range(pause):
                pair.turn()
        unharmed(pair, first, second)


def test_a_stranger_that_repeats_a_call_does_not_take_the_link_over() -> None:
    with tapped() as (pair, _, stranger):
        rank = inside(pair.decodes[0]).rank
        hello = rank.hello(rank.links[1].session)
        room = pair.open(20)
        stranger.say(encode(0, 0, hello))
        pair.pump(lambda: called(pair, hello.session))
        assert inside(pair.prefills[0]).loop.connections.peer_of[1] in inside(pair.prefills[0]).loop.connections.link_at
        unharmed(pair, room)


@pytest.mark.parametrize("session", [0, 1])
def test_a_call_of_an_earlier_life_does_not_end_the_link(session: int) -> None:
    with tapped() as (pair, _, stranger):
        room = pair.open(20)
        stranger.say(encode(0, 0, inside(pair.decodes[0]).rank.hello(session)))
        pair.pump(lambda: called(pair, session))
        assert {value.state for value in inside(pair.prefills[0]).rank.links.values()} == {PLink.UP}
        unharmed(pair, room)


def test_another_incarnations_call_that_does_not_fit_does_not_end_the_link() -> None:
    """A call of the link's own incarnation does: its caller has left the link."""
    with tapped() as (pair, _, stranger):
        rank = inside(pair.decodes[0]).rank
        hello = rank.hello(rank.links[1].session + (1 << 16))
        wrong = replace(hello, version=msg.OLDEST - 1, oldest=0)
        room = pair.open(20)
        stranger.say(encode(0, 0, wrong))
        pair.pump(lambda: called(pair, wrong.session))
        assert {value.state for value in inside(pair.prefills[0]).rank.links.values()} == {PLink.UP}
        unharmed(pair, room)


def test_a_frame_that_is_too_long_costs_its_sender_the_connection() -> None:
    with tapped() as (pair, _, _):
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(pair.prefills[0].address)
            socket.send(bytes(MAX_FRAME + 1))
            room = pair.open(20)
            unharmed(pair, room)
        assert inside(pair.prefills[0]).loop.counts["malformed frames"] == 0, "it never became a frame"


def test_a_prefix_beyond_the_prompt_is_refused_where_it_arrives() -> None:
    with tapped() as (pair, tap, _):
        loop = inside(pair.decodes[0]).loop
        pair.prefills[0].open(VICTIM, 5, [0, 1])
        raw = encode(loop.rank.links[1].epoch, VICTIM.key, msg.Open(5, 5)).replace(b"\x05\x05", b"\x05\x09")
        tap.say(2, loop.connections.peer_of[1], raw)
        pair.pump(lambda: inside(pair.prefills[0]).loop.counts["malformed frames"] == 1)
        pair.prefills[0].prefetch(VICTIM)
        room = pair.open(20)
        pair.finish(room)
        assert pair.causes(room) == {Cause.NONE}


@pytest.mark.parametrize("side", ["P", "D"])
def test_an_end_without_a_cause_never_reads_as_success(side: str) -> None:
    with tapped() as (pair, tap, _):
        room = pair.open(20)
        pair.pump(lambda: inside(pair.decodes[0]).rank.value_of(room.key) is not None)
        pair.pump(lambda: inside(pair.decodes[0]).rank.value_of(room.key).state.name == "OPEN")
        index, body = (2, msg.Abort(Cause.NONE)) if side == "P" else (0, msg.Drained(Cause.NONE))
        loop = inside(pair.endpoints[index]).loop
        link = next(iter(loop.connections.peer_of))
        tap.say(index, loop.connections.peer_of[link], encode(loop.rank.links[link].epoch, room.key, body))
        pair.settle()
        assert not pair.outcomes, "nobody has been told that it is over"
        unharmed(pair, room)


def test_frames_of_an_unknown_peer_are_answered_with_a_reset_and_counted() -> None:
    with tapped() as (pair, _, stranger):
        got: list[bytes] = []

        def answered() -> bool:
            stranger.control.send(stranger.peer, encode(9, 0, msg.Heartbeat()))
            stranger.control.send(stranger.peer, encode(9, VICTIM.key, msg.StagingRsp(0, 1, 0, 0, 64, 0, 0)))
            got.extend(data for _, data in stranger.control.receive(16))
            return bool(got)

        pair.pump(answered)
        assert decode(got[-1])[2] == msg.Reset()
        pair.pump(lambda: inside(pair.prefills[0]).rank.counts["messages of strangers"] > 0)
        assert {v.state for v in inside(pair.decodes[0]).rank.links.values()} == {DLink.UP}
