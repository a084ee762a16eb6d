"""An engine's view: calls, outcomes, states in words; one room's trouble stays its own."""

from __future__ import annotations

import gc
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Never

import pytest
from support.stories import layout

from kvproto.endpoint.endpoint import Endpoint
from kvproto.errors import ArgumentError
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Effect
from kvproto.io.clock import ManualClock
from kvproto.io.control.control import Peer, Sent
from kvproto.io.control.outbox import Outboxes
from kvproto.io.control.sockets import ControlSocket
from kvproto.io.transports.fabric import Fabric
from kvproto.loop.event_loop import LIMIT
from kvproto.loop.own_thread import SWITCH_S
from kvproto.protocol import effects as do
from kvproto.protocol.codec import encode
from kvproto.protocol.messages import ChunkAck
from kvproto.protocol.states import Cause, PLink, PWrite
from kvproto.protocol.timing import Timing
from kvproto.room import Room, Status
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

ENDS = {"P": 0, "D": -1}


def boom(*_: object, **__: object) -> Never:
    raise RuntimeError("planted")


# ------------------------------------------------------------------------------- outcomes, status, release
def test_status_rises_and_stays(pair: Pair) -> None:
    room = pair.name(30)
    seen: dict[Endpoint, list[Status]] = {endpoint: [] for endpoint in pair.endpoints}

    def look() -> bool:
        for endpoint, states in seen.items():
            if room.key in inside(endpoint).entries or states:
                states.append(endpoint.status(room))
        return pair.over(room)

    pair.open_decode(room)
    pair.pump(lambda: look() or len(seen[pair.decodes[0]]) > 20)
    pair.open_prefill(room)
    pair.produce(room, 15, aux=None)
    pair.pump(lambda: look() or seen[pair.decodes[0]][-1] is Status.TRANSFERRING)
    pair.produce(room)
    pair.pump(look)
    for _ in range(3):
        look()
    for states in seen.values():
        assert states == sorted(states) and states[-1] is Status.SUCCESS


@pytest.mark.parametrize("by", ["P", "D"])
def test_a_failure_stays_a_failure_also_after_the_release(pair: Pair, by: str) -> None:
    room = pair.open(30)
    pair.produce(room, 15, aux=None)
    for _ in range(5):
        pair.turn()
    pair.endpoints[ENDS[by]].abort(room)

    def failed() -> bool:
        for endpoint in pair.endpoints:
            work = inside(endpoint).rank.value_of(room.key).work
            if work is not None and work.cause:
                assert endpoint.status(room) is Status.FAILED
        return pair.over(room)

    pair.pump(failed)
    for _ in range(20):
        pair.turn()
        assert {endpoint.status(room) for endpoint in pair.endpoints} == {Status.FAILED}
    assert pair.causes(room) == {Cause.PREFILL_ABORTED if by == "P" else Cause.DECODE_ABORTED}
    pair.rest()


def test_calls_about_rooms_that_are_over_are_harmless(pair: Pair) -> None:
    good, bad = pair.open(20), pair.open(20)
    pair.prefills[0].abort(bad)
    pair.finish(good, bad)
    for room in (good, bad):
        for prefill in pair.prefills:
            prefill.produced(room, 20)
            prefill.aux(room, b"again")
            prefill.prefetch(room)
        for endpoint in pair.endpoints:
            endpoint.abort(room)
    pair.settle()
    pair.check(good)
    assert pair.decodes[0].status(good) is Status.SUCCESS and pair.decodes[0].status(bad) is Status.FAILED
    assert not any(endpoint.reports() for endpoint in pair.endpoints), "nothing was even refused"


@pytest.mark.parametrize("when", ["open", "over"])
def test_a_room_is_opened_once_and_a_new_gen_is_another_room(pair: Pair, when: str) -> None:
    room = pair.open(20)
    if when == "over":
        pair.finish(room)
    ours, theirs, tokens, _ = pair.tables[room]
    with pytest.raises(ValueError, match=r"Room\(id=1, gen=0\).*new gen"):
        pair.prefills[0].open(room, tokens, ours)
    with pytest.raises(ValueError, match=r"Room\(id=1, gen=0\).*new gen"):
        pair.decodes[0].open(room, tokens, theirs)
    again = pair.open(20, room_id=room.id, gen=1)
    pair.finish(*((room, again) if when == "open" else (again,)))
    pair.check(room, again)


@pytest.mark.parametrize("name", [Room(0), Room((1 << 64) - 1, (1 << 32) - 1)])
def test_the_first_and_the_last_name_are_names(pair: Pair, name: Room) -> None:
    room = pair.open(30, room_id=name.id, gen=name.gen)
    pair.finish(room)
    pair.check(room)
    assert pair.causes(room) == {Cause.NONE}
    pair.rest()


# ------------------------------------------------------------------------------------- faults stay in a room
@pytest.mark.parametrize(
    ("side", "where", "names"),
    [("P", "kernels", ["gather_parts"]), ("D", "kernels", ["scatter"]),
     ("P", "transport", ["write_many", "post", "write_pages"])],
)  # fmt: skip
def test_what_raises_ends_its_own_room(
    pair: Pair, side: str, where: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair.open(20), pair.open(20)
    endpoint: Any = pair.endpoints[ENDS[side]]
    with monkeypatch.context() as patch:
        for each, name in product(pair.prefills if side == "P" else pair.decodes, names):
            patch.setattr(getattr(inside(each).data, where), name, boom)
        pair.produce(first)
        pair.pump(lambda: pair.over(first))
    assert pair.outcomes["D", 0, first].cause in (Cause.KERNEL_FAILED, Cause.WRITE_FAILED)
    if side == "P":
        assert pair.outcomes["P", 0, first].cause is pair.outcomes["D", 0, first].cause
    assert any("planted" in text for text in endpoint.reports())
    pair.finish(second)
    assert pair.causes(second) == {Cause.NONE}
    pair.rest()
    pair.check(second)


def test_a_staged_write_that_cannot_be_made_goes_over_pages(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    room, endpoint = pair.open(20), pair.prefills[0]
    monkeypatch.setattr(inside(endpoint).data.prepared_writes, "_make", boom)
    pair.finish(room)
    assert pair.causes(room) == {Cause.NONE} and any("planted" in text for text in endpoint.reports())
    pair.check(room)
    pair.rest()


class Spoilt:
    """The ticket of a copy that has failed by the time it is asked."""

    def done(self) -> bool:
        boom()


@pytest.mark.parametrize(("side", "name"), [("P", "gather_parts"), ("D", "scatter")])
def test_a_copy_that_has_failed_when_it_is_first_asked_ends_its_room_and_holds_nothing(
    pair: Pair, side: str, name: str
) -> None:
    first, second = pair.open(20), pair.open(20)
    endpoint = pair.endpoints[ENDS[side]]
    kernels = inside(endpoint).data.kernels
    kept = getattr(kernels, name)
    setattr(kernels, name, lambda *_, **__: Spoilt())
    pair.produce(first)
    pair.pump(lambda: pair.over(first))
    setattr(kernels, name, kept)
    assert pair.outcomes["D", 0, first].cause is Cause.KERNEL_FAILED
    assert endpoint.metrics().get("faults", 0) == 0
    pair.finish(second)
    assert pair.causes(second) == {Cause.NONE}
    pair.rest()


@pytest.mark.parametrize(("side", "effect"), [("P", do.TransmitAux), ("D", do.TransmitPages), ("D", do.DeliverAux)])
def test_a_handler_that_raises_ends_its_own_room(side: str, effect: type[Effect]) -> None:
    settings = Settings(ring_bytes=1 << 20, route="pages" if effect is do.TransmitPages else "cost")
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=settings) as pair:
        first = pair.open(20)
        loop = inside(pair.endpoints[0 if side == "P" else -1]).loop
        kept, loop.handlers[effect] = loop.handlers[effect], boom
        pair.produce(first)
        pair.pump(lambda: pair.over(first))
        loop.handlers[effect] = kept
        assert pair.outcomes["D", 0, first].cause is Cause.KERNEL_FAILED
        second = pair.open(20)
        pair.finish(second)
        assert pair.causes(second) == {Cause.NONE}
        pair.rest()


def test_a_source_that_raises_does_not_stop_the_loop(pair: Pair) -> None:
    room = pair.open(20)
    data = inside(pair.prefills[0]).data
    kept, data.poll = data.poll, boom  # type: ignore[method-assign]
    for _ in range(5):
        pair.turn()
    data.poll = kept  # type: ignore[method-assign]
    assert any("planted" in text for text in pair.prefills[0].reports())
    pair.finish(room)


# -------------------------------------------------------------------------------------------------- queues
def narrowed(pair: Pair, patch: pytest.MonkeyPatch) -> tuple[list[bytes], Callable[[], None]]:
    """The first prefill rank's sockets take nothing until it is called: what they took."""
    control, post, taken = inside(pair.prefills[0]).loop.control, ControlSocket.post, list[bytes]()
    narrow = set(control._sockets.values())

    def posted(socket: ControlSocket, name: bytes, frames: Sequence[bytes]) -> Sent:
        if socket in narrow:
            return Sent.FULL
        if socket in control._sockets.values():
            taken.extend(frames)
        return post(socket, name, frames)

    patch.setattr(ControlSocket, "post", posted)
    return taken, narrow.clear


def test_what_a_peer_has_no_room_for_is_tried_again_in_order_and_nothing_is_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = inside(pair.prefills[0]).loop.control
    sent, widen = narrowed(pair, monkeypatch)
    send, offered = control.send, list[bytes]()

    def heard(peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
        offered.append(data)
        return send(peer, data, urgent=urgent, later=later)

    control.send = heard  # type: ignore[method-assign]
    room = pair.open(30)
    pair.produce(room)
    pair.pump(lambda: bool(control.outboxes))
    assert offered and not sent
    widen()
    pair.pump(lambda: pair.over(room))
    assert sent == offered and not control.outboxes and not control.counts.lost
    pair.check(room)


@pytest.mark.parametrize("bounds", [(3, 1 << 20), (100, 3 * len(encode(1, 1, ChunkAck(0))))], ids=["frames", "bytes"])
def test_an_outbox_beyond_its_bound_is_a_lost_link(pair: Pair, bounds: tuple[int, int]) -> None:
    rank, loop, _, _ = inside(pair.prefills[0])
    control, peer = loop.control, loop.connections.peer_of[1]
    control.outboxes = Outboxes(lambda peer, data: Sent.FULL, control.counts, *bounds, 1 << 20)
    for chunk in range(3):
        loop.connections.send(1, 1, 1, ChunkAck(chunk))
    assert control.outboxes.depth(peer)[0] == 3
    loop.submit([])
    assert rank.links[1].state is PLink.UP
    loop.connections.send(1, 1, 1, ChunkAck(3))
    assert not control.outboxes and loop.counts["queue full"] == 1 and control.counts.lost == 3
    loop.submit([])
    assert rank.links[1].state is not PLink.UP


# --------------------------------------------------------------------------------------- passes and sleeping
def test_a_pass_reads_a_bounded_number_of_frames(pair: Pair) -> None:
    sender, receiver = inside(pair.decodes[0]).loop, inside(pair.prefills[0]).loop
    peer = sender.connections.peer_of[1]
    for _ in range(2 * LIMIT):
        assert sender.control.send(peer, b"\0") is Sent.TAKEN
    deadline = time.monotonic() + 5
    while receiver.counts["malformed frames"] < 2 * LIMIT and time.monotonic() < deadline:
        before = receiver.counts["malformed frames"]
        sender.control.receive(1)
        pair.prefills[0].poll()
        assert receiver.counts["malformed frames"] - before <= LIMIT
    assert receiver.counts["malformed frames"] == 2 * LIMIT


def test_a_loop_of_its_own_does_not_wait_5_ms_for_every_turn(pair: Pair) -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(5e-3)
        pair.prefills[0].start(switch_interval=math.inf)
        assert sys.getswitchinterval() == pytest.approx(5e-3), "it was told to leave it alone"
        pair.prefills[1].start()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        inside(pair.prefills[1]).loop.stop()
        assert sys.getswitchinterval() == pytest.approx(5e-3), "put back when the last has stopped"
        pair.prefills[1].start()
        sys.setswitchinterval(SWITCH_S / 2)
        pair.decodes[0].start()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S / 2), "shorter already"
        pair.close()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S / 2), "somebody else's, and left alone"
    finally:
        sys.setswitchinterval(before)


def test_a_loop_of_its_own_has_its_cores_and_a_frozen_heap_while_it_runs(pair: Pair) -> None:
    first, second, core = pair.prefills[0], pair.decodes[0], min(os.sched_getaffinity(0))
    gc.unfreeze()  # what earlier tests have frozen
    before, seen = gc.get_freeze_count(), list[set[int]]()
    with pytest.raises(ArgumentError, match="may run on"):
        first.start(cores=[10_000])
    first.start(freeze=True, cores=[core])
    second.start(freeze=True)
    assert gc.get_freeze_count() > before == 0
    for endpoint in (first, second):
        inside(endpoint).loop.call(lambda: seen.append(os.sched_getaffinity(0)))
        deadline = time.monotonic() + 5
        while not seen and time.monotonic() < deadline:
            time.sleep(1e-3)
        assert seen.pop() == ({core} if endpoint is first else os.sched_getaffinity(0))
    inside(first).loop.stop()
    assert gc.get_freeze_count(), "the other one runs"
    inside(second).loop.stop()
    assert not gc.get_freeze_count()


def test_loops_on_threads_of_their_own(pair: Pair) -> None:
    before = threading.active_count()
    pair.start()
    assert threading.active_count() >= before + len(pair.endpoints)
    with pytest.raises(RuntimeError, match="runs already"):
        pair.prefills[0].start()
    rooms = [pair.open(20) for _ in range(3)]
    bad = pair.open(20)
    pair.decodes[0].abort(bad)
    for room in rooms:
        pair.produce(room)
    deadline = time.monotonic() + 10
    while not pair.over(*rooms, bad) and time.monotonic() < deadline:
        assert all(text for text in pair.explain())
        pair.collect()
        time.sleep(1e-3)
    assert pair.over(*rooms, bad)
    pair.check(*rooms)
    pair.close()
    pair.close()
    deadline = time.monotonic() + 5
    while any(t.name.startswith("kvproto-") for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("kvproto-")]


def test_an_address_that_is_none_is_named_and_does_not_end_a_thread(pair: Pair) -> None:
    endpoint = pair.make_decode(0)
    endpoint.start()
    endpoint.connect(pair.plan.prefill, ["not an address", pair.prefills[1].address], group=1)
    deadline = time.monotonic() + 5
    with pytest.raises(ConnectionError, match="not an address"):  # noqa: PT012  # asked until it is known
        while time.monotonic() < deadline:
            endpoint.ready()
            time.sleep(1e-3)
    thread = inside(endpoint).loop._thread
    assert thread is not None and thread.is_alive()
    endpoint.close()


def test_what_is_left_of_a_room_counts_its_writes_in_doubt() -> None:
    with Pair(layout(2), layout(1), chunk_tokens=8, fabric=Fabric()) as pair:
        room = pair.open(8)
        pair.produce(room)
        pair.pump(lambda: bool(pair.fabric.options()))
        step = pair.fabric.options()[0]
        pair.fabric.doubt(step.writer, step.handle)
        pair.pump(lambda: any(": doubts: " in text for text in pair.leaks()))
        pair.fabric.run()
        pair.fabric.auto = True
        pair.pump(lambda: pair.over(room))
        pair.rest()


# ---------------------------------------------------------------------------------------------- in words
def test_every_state_is_told_with_peer_and_time() -> None:
    clock = ManualClock(100.0)
    never = Timer(1e6)
    timing = Timing(
        resend=Timer(60.0, 4), lease=Timer(1e3), heartbeat=Timer(1e6, 3), stall=never, bootstrap=never
    )  # fmt: skip
    settings = Settings(ring_bytes=1 << 20, timing=timing)
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=settings, clock=lambda: clock, fabric=Fabric()) as pair:
        prefill, decode = pair.prefills[0], pair.decodes[0]
        said: dict[str, tuple[str, bool]] = {}

        def state(endpoint: Endpoint, room: Room) -> str:
            value = inside(endpoint).rank.value_of(room.key)
            return value.state.name if value is not None else "UNKNOWN"

        def look(endpoint: Endpoint, room: Room, *states: str) -> None:
            pair.pump(lambda: state(endpoint, room) in states)
            pair.settle()
            for _ in range(30):  # no timer is late
                clock.advance(0.1)
                endpoint.poll()
            rank, at = inside(endpoint).rank, state(endpoint, room)
            timed = at in {each.name for each in rank.ROOM.timers}  # no other state knows since when
            said[f"{rank.side[0].upper()} {at}"] = endpoint.explain(room), timed

        room = pair.name(30)
        waiting = pair.open(30)
        look(decode, waiting, "OPEN")
        pair.open_decode(room)
        look(prefill, room, "AWAIT_ENGINE")
        pair.open_prefill(room)
        look(prefill, room, "OPEN")
        look(decode, room, "OPEN")
        pair.produce(room, 15, aux=None)
        # its own write: without one, it drains nothing
        pair.pump(lambda: any(each.state is PWrite.IN_FLIGHT for each in inside(prefill).rank.writes.values()))
        prefill.abort(room)
        look(prefill, room, "DRAINING")
        pair.fabric.run()
        look(decode, room, "FAILED", "ABORTED", "DRAINING", "SETTLING")
        look(prefill, room, "FAILED", "ABORTED", "AWAIT_NOTED")
        early = pair.name(20)
        pair.open_prefill(early, [0])
        look(prefill, early, "AWAIT_PEERS")
        inside(pair.prefills[1]).loop.poll = lambda: False  # type: ignore[method-assign]  # it does not answer
        pair.open_decode(early)
        look(decode, early, "AWAIT_PEERS")
        decode.abort(early)
        look(decode, early, "DRAINING")
        del inside(pair.prefills[1]).loop.poll
        queued = pair.name(20)
        pair.open_decode(queued)
        for endpoint in pair.prefills:
            endpoint.open(queued, 20, pair.tables[queued][0])
        look(prefill, queued, "AWAIT_FORWARD")
        assert "is not known here" in decode.explain(Room(999))
    for name, (text, timed) in said.items():
        assert bool(re.search(r", since [1-9]\d*\.\d s", text)) is timed, (name, text)
        if "is over" not in text and "waits for the engine" not in text:
            assert re.search(r"(decode|prefill) (rank|group)", text), (name, text)
    assert {"P AWAIT_ENGINE", "P AWAIT_PEERS", "P AWAIT_FORWARD", "P OPEN", "P DRAINING", "D AWAIT_PEERS", "D OPEN",
            "D DRAINING"} <= said.keys(), said.keys()  # fmt: skip


# ----------------------------------------------------------------------------------------- leases and links
def test_a_connection_outlives_a_silence_and_goes_with_its_link() -> None:
    quick = Timing(heartbeat=Timer(0.05, 2), silence=Timer(0.2), forget=Timer(0.5), call=Timer(0.05, 200))
    with Pair(layout(1), layout(1), chunk_tokens=8, pages=64, settings=Settings(timing=quick)) as pair:
        prefill, (rank, _, _, data) = pair.prefills[0], inside(pair.prefills[0])
        link, peer = next(iter(data.link_peer.items()))

        def alone(state: PLink) -> None:
            end = time.monotonic() + 20
            while rank.links.get(link, rank.link_machine.initial).state is not state and time.monotonic() < end:
                prefill.wait(0.02)
                prefill.poll()

        alone(PLink.LOST)
        assert data.link_peer == {link: peer}, "it waits for its return"
        alone(PLink.NEW)
        assert not rank.links and not data.link_peer and not data.leaving
