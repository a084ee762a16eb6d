"""Two builds that do not agree refuse each other at the first message, and both name the difference."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from support import build_peer
from support.builds import build, environment, write_digest
from support.wiretap import Stranger
from test_digest import CHANGES

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.codec import decode
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.messages import VERSION, Refusal
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import noise

LAYOUT = build_peer.LAYOUT
#: a call that nobody answers is repeated for a minute, and a transfer of builds that differ fails after ten seconds
AT_ONCE = 5.0
OTHER = re.sub(r"messages:\w+", "messages:00000000", tables_digest())


def prefill_endpoint(fabric: Fabric) -> PrefillEndpoint:
    return PrefillEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 1), MemoryTransport(fabric), chunk_tokens=8)


def decode_endpoint(fabric: Fabric) -> DecodeEndpoint:
    return DecodeEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 2), MemoryTransport(fabric), chunk_tokens=8)


def refused(endpoint: DecodeEndpoint) -> str:
    """Poll until the link has been refused; why."""
    deadline = time.monotonic() + AT_ONCE
    while time.monotonic() < deadline:
        endpoint.poll()
        endpoint.wait(0.01)
        try:
            assert not endpoint.ready()
        except ConnectionError as error:
            return str(error)
    raise AssertionError(f"no answer within {AT_ONCE} s: {inside(endpoint).rank.links}")


@pytest.mark.parametrize("what", [
    "a field added", "a field of the handshake added", "the numbers before a note", "a row's timer again",
    "a guard's helper",
])  # fmt: skip
def test_another_build_is_refused_by_both_at_once(what: str, tmp_path: Path) -> None:
    old, new, part = CHANGES[what]
    folder = build(tmp_path, (old, new))
    write_digest(folder)
    command, pipe = [sys.executable, build_peer.__file__], subprocess.PIPE
    other = subprocess.Popen(command, env=environment(folder), cwd=folder, stdin=pipe, stdout=pipe, text=True)
    with other, decode_endpoint(Fabric()) as endpoint:
        assert other.stdout is not None
        endpoint.connect(LAYOUT, [other.stdout.readline().strip()])
        assert f"refused: the builds differ in {part} (" in refused(endpoint)
        told = json.loads(other.communicate(timeout=30)[0])
        assert any(f"the builds differ in {part} (" in each for each in told), told


def test_a_welcome_of_another_build_is_refused_too() -> None:
    fabric = Fabric()
    with prefill_endpoint(fabric) as prefill, decode_endpoint(fabric) as endpoint:
        inside(prefill).rank.other_build = lambda version, digest: ""  # type: ignore[method-assign]
        inside(prefill).rank.digest = OTHER
        prefill.start()
        endpoint.connect(LAYOUT, [prefill.address])
        assert "differ in messages (00000000 against" in refused(endpoint)


@pytest.mark.parametrize(
    ("version", "digest", "answer"),
    [
        (VERSION, OTHER, "the builds differ in messages (00000000 against"),
        (VERSION + 1, OTHER, f"wire version {VERSION + 1} against {VERSION}"),
        (VERSION, "0" * 16, "digest '0000000000000000' against 'layout:"),
        (VERSION, tables_digest(), ""),
    ],
)
def test_a_call_that_breaks_off_is_answered_if_its_beginning_is_another_build_s(
    version: int, digest: str, answer: str
) -> None:
    with prefill_endpoint(Fabric()) as prefill:
        stranger = Stranger(prefill.address)
        deadline, said = time.monotonic() + AT_ONCE, list[object]()
        stranger.say(msgspec.msgpack.encode((0, 0, 0, ("HELLO", version, digest, 77, "of another build"))))
        counts = inside(prefill).loop.counts
        while not (counts["malformed frames"] and (said or not answer)) and time.monotonic() < deadline:
            prefill.poll()
            said += [decode(data)[2] for _, data in stranger.control.receive(16)]
        stranger.close()
        assert counts["malformed frames"] == 1
        assert counts["calls of other builds"] == len(said) == bool(answer)
        for refusal in said:
            assert isinstance(refusal, Refusal) and refusal.session == 77 and refusal.why.startswith(answer)
        assert any(answer in report for report in prefill.reports())
        assert not inside(prefill).rank.links, "no link comes about"
