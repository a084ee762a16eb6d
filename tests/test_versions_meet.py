"""Two builds that meet: tables may differ, versions and agreements must have one in common."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support import build_peer
from support.builds import Edit, build, environment, write_digest
from support.wiretap import Stranger
from test_digest import CHANGES

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.codec import decode
from kvproto.protocol.messages import OLDEST, VERSION, Refusal
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import noise

LAYOUT = build_peer.LAYOUT
#: a call that nobody answers is repeated for a minute, and a transfer of builds that differ fails after ten seconds
AT_ONCE = 5.0
#: for a link to come up, on a machine with other work
PATIENCE = 60.0


def prefill_endpoint(fabric: Fabric) -> PrefillEndpoint:
    return PrefillEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 1), MemoryTransport(fabric), chunk_tokens=8)


def decode_endpoint(fabric: Fabric) -> DecodeEndpoint:
    return DecodeEndpoint(LAYOUT, 0, noise(LAYOUT, 0, 8, 2), MemoryTransport(fabric), chunk_tokens=8)


#: a build that has a wire version more, with a field more in STAGING_REQ
NEWER = (
    ("code speaks\nVERSION = 3\n", "code speaks\nVERSION = 4\n"),
    (
        "    asked: Moment = 0.0\n\n\nclass StagingRsp",
        "    asked: Moment = 0.0\n    soon: bool = False\n\n\nclass StagingRsp",
    ),
)
ALONE = ("speaks none as new is refused\nOLDEST = 3\n", "speaks none as new is refused\nOLDEST = 4\n")
TAG, RAISED = CHANGES["the numbers before a note"][:2], ('    "notification": 1,\n', '    "notification": 2,\n')
#: by what the other build, of the prefill rank, is: how it differs, and what is told of its link
WORKS = {
    "a row's timer again": ((CHANGES["a row's timer again"][:2],), "decode_room"),
    "a newer version with a field more": (NEWER, "messages"),
}
REFUSED = {
    "a newer version alone": ((*NEWER, ALONE), "the decode rank speaks 3, the prefill rank 4: upgrade the decode rank"),
    "another notification": (
        (TAG, RAISED),
        "notification has version 1 on the decode rank, 2 on the prefill rank: upgrade the",
    ),
}


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


@pytest.fixture
def other(tmp_path: Path, edits: tuple[Edit, ...]) -> Iterator[subprocess.Popen[str]]:
    """A prefill rank of a build with these changes, in a process of its own."""
    folder, pipe = build(tmp_path, *edits), subprocess.PIPE
    write_digest(folder)
    command = [sys.executable, build_peer.__file__]
    with subprocess.Popen(command, env=environment(folder), cwd=folder, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(("edits", "part"), WORKS.values(), ids=WORKS)
def test_builds_whose_tables_differ_work_together_and_both_say_in_what_they_differ(
    other: subprocess.Popen[str], part: str
) -> None:
    with decode_endpoint(Fabric()) as endpoint:
        endpoint.connect(LAYOUT, [address_of(other)])
        deadline = time.monotonic() + PATIENCE
        while not endpoint.ready() and time.monotonic() < deadline:
            endpoint.poll()
            endpoint.wait(0.01)
        (link,) = endpoint.links()
        assert f"it works at wire version {VERSION}, and the builds differ in " in link and part in link
        (theirs,) = json.loads(other.communicate(timeout=30)[0])["links"]
        assert f"it works at wire version {VERSION}, and the builds differ in " in theirs and part in theirs


@pytest.mark.parametrize(("edits", "why"), REFUSED.values(), ids=REFUSED)
def test_builds_that_cannot_work_together_are_refused_by_both_at_once(other: subprocess.Popen[str], why: str) -> None:
    with decode_endpoint(Fabric()) as endpoint:
        endpoint.connect(LAYOUT, [address_of(other)])
        assert why in (said := refused(endpoint))
        told = json.loads(other.communicate(timeout=30)[0])["refused"]
        assert any(sentence in said for sentence in told if sentence), (told, said)


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (VERSION + 1, f"no common wire version: the decode rank speaks {VERSION + 1}, the prefill rank {VERSION}: "),
        (OLDEST - 1, f"no common wire version: the decode rank speaks {OLDEST - 1}, the prefill rank {VERSION}: "),
        (VERSION, ""),
    ],
)  # fmt: skip
def test_a_call_that_breaks_off_is_answered_if_its_beginning_is_another_build_s(version: int, answer: str) -> None:
    with prefill_endpoint(Fabric()) as prefill:
        stranger = Stranger(prefill.address)
        deadline, said = time.monotonic() + AT_ONCE, list[object]()
        stranger.say(msgspec.msgpack.encode((0, 0, 0, ("HELLO", version, "layout:0", 77, "of another build"))))
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
