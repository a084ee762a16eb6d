"""Two hosts with addresses of their own: rooms go over TCP with keys, and a cable is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fleet import GROUPS, until
from support.host_pair import ADDRESSES, HostPair, possible

pytest.importorskip("torch")

from kvproto.io.control.keys import make_pair

TOKENS = 333
#: pages of a room on the decode rank; the prefill rank has two for each
PAGES = 11


@pytest.fixture(params=["nixl", "mooncake"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostPair]:
    if not possible():
        pytest.skip("no network namespaces here: they need root, and iproute2")
    pytest.importorskip("nixl._api" if request.param == "nixl" else "mooncake.engine")
    with HostPair(request.param, make_pair(tmp_path, "hosts")[0]) as made:
        address = made.ask("P1", "address")
        assert address.startswith(f"tcp://{ADDRESSES['P1']}:")
        made.ask("D1", "connect", {GROUPS["P1"]: address})
        until(lambda: made.ask("D1", "ready", [GROUPS["P1"]]), "the link", 10.0)
        yield made


def pages(number: int) -> tuple[list[int], list[int]]:
    """A room's pages on either side, which differ."""
    theirs = [number * PAGES + at for at in range(PAGES)][::-1]
    return [2 * page + half for page in theirs for half in (1, 0)], theirs


def opened(hosts: HostPair, number: int) -> None:
    ours, theirs = pages(number)
    hosts.ask("D1", "open", number, TOKENS, theirs, GROUPS["P1"])
    hosts.ask("P1", "open", number, TOKENS, ours, GROUPS["D1"])


def produced(hosts: HostPair, number: int) -> None:
    hosts.ask("P1", "call", "produced", number, TOKENS)
    hosts.ask("P1", "call", "aux", number, b"first token")


def cause(hosts: HostPair, side: str, number: int, seconds: float) -> Any:
    """How the room ended here, once it is released."""
    return until(lambda: hosts.ask(side, "told", number), f"room {number} on {side}", seconds)[0]


def carried(hosts: HostPair, *numbers: int) -> None:
    """These rooms go, and every byte is right."""
    for number in numbers:
        opened(hosts, number)
    for number in numbers:
        produced(hosts, number)
    for number in numbers:
        assert {cause(hosts, side, number, 20.0) for side in ADDRESSES} == {"NONE"}
        assert hosts.ask("D1", "equal", *pages(number), TOKENS)


def rests(hosts: HostPair) -> None:
    until(lambda: [hosts.ask(side, "left") for side in ADDRESSES] == [[], []], "nothing to be left")


def test_rooms_go_from_host_to_host(hosts: HostPair) -> None:
    carried(hosts, 1, 2, 3)
    rests(hosts)


def test_a_cable_that_is_cut_ends_its_rooms_and_serves_again_when_it_is_mended(hosts: HostPair) -> None:
    carried(hosts, 1)
    opened(hosts, 2)
    hosts.cut()
    produced(hosts, 2)
    assert "NONE" not in {cause(hosts, side, 2, 30.0) for side in ADDRESSES}
    rests(hosts)
    hosts.mend()
    until(lambda: hosts.ask("D1", "ready", [GROUPS["P1"]]), "the link", 30.0)
    carried(hosts, 3, 0)
