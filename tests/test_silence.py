"""A peer that misses beats while its process lives keeps its link: its engine compiles, for example.

The kernel acknowledges for it meanwhile, so the connection stands.  A process that is killed loses it, and its link, as
soon as ever (`test_faults_processes`); a loop that never runs again is given up after `Timing.silence`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.endpoint.endpoint import SILENCES, Endpoint
from kvproto.fsm.timing import Timer
from kvproto.io.control.control import LOOPBACK, Control, Peer
from kvproto.protocol.states import DLink, PLink
from kvproto.protocol.timing import Timing
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

CHUNK_TOKENS, TOKENS = 8, 20
BEATS = Timer(0.05, 4)
#: seconds after which beats that are missed would end a link
MISSED = BEATS.period * (BEATS.tries + 1)
UP = (PLink.UP, DLink.UP)
LIMIT = 60.0


def pair_of(silence: float) -> Pair:
    """Two ranks that beat fast, and bear so many seconds without beats of one that lives."""
    timing = Timing(heartbeat=BEATS, silence=Timer(silence))
    return Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, settings=replace(SMALL, timing=timing))


def drive(ends: Sequence[Endpoint], done: Callable[[], bool]) -> None:
    """Poll these alone until that is so."""
    end = time.monotonic() + LIMIT
    while not done():
        for each in ends:
            each.poll()
        time.sleep(1e-3)
        assert time.monotonic() < end


@pytest.mark.parametrize("prefill_is_silent", [True, False])
def test_a_room_goes_on_after_a_loop_did_not_run_for_longer_than_beats_may_be_missed(prefill_is_silent: bool) -> None:
    with pair_of(60.0) as pair:
        room = pair.open(TOKENS)
        pair.pump(lambda: pair.prefills[0].opened_by_all(room))
        awake = [pair.decodes[0] if prefill_is_silent else pair.prefills[0]]
        until = time.monotonic() + 3 * MISSED
        drive(awake, lambda: time.monotonic() > until)
        assert inside(awake[0]).rank.links[1].state in UP and awake[0].metrics()[SILENCES] == 1
        pair.finish(room)
        pair.check(room)
        assert not awake[0].reports()


@pytest.mark.parametrize("prefill_is_silent", [True, False])
def test_a_loop_that_does_not_run_again_is_given_up_after_a_bounded_silence(prefill_is_silent: bool) -> None:
    with pair_of(2 * MISSED) as pair:
        awake = pair.decodes[0] if prefill_is_silent else pair.prefills[0]
        drive([awake], lambda: inside(awake).rank.links[1].state not in UP)
        assert awake.metrics()[SILENCES] == 1 and any("is lost" in each for each in awake.reports())


# ------------------------------------------------------------------------------------- what a connection tells
def holding(pipe: Connection, seconds: float) -> None:
    """Runs in a process of its own: connect, say a word, and hold Python's lock."""
    control = Control()
    peer = control.connect(pipe.recv())
    control.send(peer, b"here")
    while not control.receive(1):
        control.wait(0.01)
    pipe.send("held")
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))
    pipe.recv()


def stands_for(control: Control, peer: Peer, seconds: float) -> bool:
    """Whether the peer stands throughout that time, as frames are sent to it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        control.send(peer, b"beat")
        control.receive(8)
        if not control.stands(peer):
            return False
        time.sleep(0.01)
    return True


def test_a_process_that_holds_the_lock_stands_and_one_that_is_killed_does_not() -> None:
    control = Control(LOOPBACK, answer_s=0.5)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=holding, args=(theirs, LIMIT), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process shows
    try:
        ours.send(control.address)
        end, got = time.monotonic() + LIMIT, list[tuple[Peer, bytes]]()
        while not got:
            got = control.receive(1)
            assert time.monotonic() < end
        peer = got[0][0]
        control.send(peer, b"answer")
        while not ours.poll(0.01):
            control.receive(1)
            assert time.monotonic() < end
        assert ours.recv() == "held"
        assert stands_for(control, peer, 1.5), "its kernel acknowledges"
        process.kill()
        assert not stands_for(control, peer, LIMIT)
    finally:
        process.kill()
        control.close()


def test_a_connection_that_we_have_dialled_stands_until_its_other_end_goes() -> None:
    listener, dialler = Control(LOOPBACK), Control()
    try:
        assert listener.address is not None
        peer = dialler.connect(listener.address)
        assert not dialler.stands(peer)
        end = time.monotonic() + LIMIT
        while not dialler.stands(peer):
            listener.receive(1), dialler.receive(1)
            assert time.monotonic() < end
        listener.close()
        while dialler.stands(peer):
            dialler.receive(1)
            assert time.monotonic() < end
        dialler.disconnect(peer)
        assert not dialler.stands(peer)
    finally:
        listener.close()
        dialler.close()
