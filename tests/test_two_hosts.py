"""Two hosts with addresses of their own: rooms go over TCP with keys, and a cable is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host_pair import ADDRESSES, HostPair, possible

pytest.importorskip("torch")

from kvproto.io.control.keys import make_pair

TOKENS = 333


@pytest.fixture(params=["nixl", "mooncake"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostPair]:
    if not possible():
        pytest.skip("no network namespaces here: they need root, and iproute2")
    pytest.importorskip("nixl._api" if request.param == "nixl" else "mooncake.engine")
    secret, _ = make_pair(tmp_path, "hosts")
    with HostPair(request.param, dict.fromkeys(ADDRESSES, secret)) as made:
        address = made.ask("prefill", "address")
        assert address.startswith(f"tcp://{ADDRESSES['prefill']}:")
        assert made.ask("decode", "connect", address), made.ask("decode", "lines")
        yield made


def carried(hosts: HostPair, *numbers: int) -> None:
    """These rooms go, and every byte is right."""
    for number in numbers:
        hosts.ask("decode", "open", number, TOKENS)
        hosts.ask("prefill", "open", number, TOKENS)
    for number in numbers:
        hosts.ask("prefill", "produce", number, TOKENS)
    for number in numbers:
        for side in ("decode", "prefill"):
            end = hosts.ask(side, "ended", number, TOKENS, 20.0)
            assert (end.get("cause"), end.get("released"), end["right"]) == ("NONE", True, True), (side, end)


def test_rooms_go_from_host_to_host(hosts: HostPair) -> None:
    carried(hosts, 1, 2, 3)
    assert [hosts.ask(side, "left") for side in ADDRESSES] == [[], []]


def test_a_cable_that_is_cut_ends_its_rooms_and_serves_again_when_it_is_mended(hosts: HostPair) -> None:
    carried(hosts, 1)
    for side in ("decode", "prefill"):
        hosts.ask(side, "open", 2, TOKENS)
    hosts.cut()
    hosts.ask("prefill", "produce", 2, TOKENS)
    for side in ("decode", "prefill"):
        end = hosts.ask(side, "ended", 2, TOKENS, 30.0)
        assert end.get("cause") not in (None, "NONE") and end.get("released"), (side, end, hosts.ask(side, "lines"))
        assert not hosts.ask(side, "left"), side
    hosts.mend()
    assert hosts.ask("decode", "ready", 30.0), hosts.ask("decode", "lines")
    carried(hosts, 3, 4)
