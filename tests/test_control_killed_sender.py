"""A peer that is killed while its bundles are read costs the link, and never the reader's process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
import zmq

from kvproto.io.control.bundle import BUNDLE
from kvproto.io.control.control import LOOPBACK, Control

SPAWN = multiprocessing.get_context("spawn")
PATIENCE, FRAME = 30.0, b"x" * 41


def flood(pipe: Connection) -> None:
    """Send whole bundles to the first peer that calls, until killed."""
    control = Control(LOOPBACK)
    pipe.send(control.address)
    while not (came := control.receive(1)):
        control.wait(PATIENCE)
    while True:
        taken = [control.send(came[0][0], FRAME, later=True) for _ in range(BUNDLE)]
        control.flush()
        if not all(taken):
            time.sleep(0.001)


def flood_parts(pipe: Connection) -> None:
    """Do the same as a build before bundles, with a part for each frame."""
    router = zmq.Context().socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)
    router.set(zmq.SNDHWM, 64)
    router.bind("tcp://127.0.0.1:*")
    pipe.send(bytes(router.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode())
    name = router.recv_multipart()[0]
    while True:
        try:
            router.send(name, zmq.SNDMORE | zmq.NOBLOCK)
            for _ in range(BUNDLE - 1):
                router.send(FRAME, zmq.SNDMORE)
            router.send(FRAME)
        except zmq.Again:
            time.sleep(0.001)


def read(pipe: Connection, address: str) -> None:
    """Read slowly until the connection is gone, and nothing more comes."""
    control = Control()
    peer = control.connect(address)
    control.send(peer, b"hello")
    frames, begun, end = 0, False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        came = len(control.receive(BUNDLE))
        frames += came
        if frames > BUNDLE and not begun:
            begun = True
            pipe.send("reads")
        if begun and not came and not control.stands(peer):
            break
        time.sleep(0.0005)
    pipe.send(frames)


@pytest.mark.parametrize("sends", [flood, flood_parts], ids=["bundles", "parts of an earlier build"])
def test_a_reader_outlives_a_peer_that_is_killed_in_the_middle_of_a_flood(sends: Callable[[Connection], None]) -> None:
    for _ in range(2):
        there, theirs = SPAWN.Pipe()
        sender = SPAWN.Process(target=sends, args=(theirs,), daemon=True)
        sender.start()
        assert there.poll(PATIENCE)
        pipe, ours = SPAWN.Pipe()
        reader = SPAWN.Process(target=read, args=(ours, there.recv()), daemon=True)
        reader.start()
        assert pipe.poll(PATIENCE) and pipe.recv() == "reads"
        time.sleep(0.3)
        sender.kill()
        sender.join(PATIENCE)
        reader.join(PATIENCE)
        assert reader.exitcode == 0, "libzmq has ended the reading process"
        assert pipe.recv() > BUNDLE
