"""Cards of requests: what they must show, how many instances they introduce; none ends a live link."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from kvproto import ArgumentError, DecodeEndpoint, PrefillEndpoint
from kvproto.adapters.card import Card, CardError, group_of
from kvproto.adapters.card_trust import SECRET_FILE, CardTrust
from kvproto.adapters.decode_worker import DecodeWorker
from kvproto.adapters.geometry import Geometry, Shards, geometry
from kvproto.adapters.introductions import Introductions
from kvproto.adapters.prefill_worker import PrefillWorker
from kvproto.adapters.request_words import Announce, GiveBlocks, Load, OpenRoom, Promise, Ticket
from kvproto.fsm.timing import Timer
from kvproto.io.control.control import LOOPBACK
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.testing import inside

GROUP, TOKENS, PAGES, LATEST = group_of("prefill-0"), 24, tuple(range(6)), (1 << 48) - 1
#: nobody listens on the discard port of this host
NOWHERE = ("tcp://127.0.0.1:9",)
SETTINGS = Settings(
    ring_bytes=1 << 20, slot_bytes=1 << 18, timing=Timing(heartbeat=Timer(0.1, 5), call=Timer(0.05, 10, 0.2))
)


def cache() -> Geometry:
    return geometry([torch.randn(32, 4, 4, 16).to(torch.bfloat16) for _ in range(2)], "BHNC", Shards(4, 2, 1))


class Instances:
    """A prefill and a decode worker, with threads, and the true card of the prefill instance."""

    def __init__(self, trust: CardTrust | None = None) -> None:
        self.fabric, self.ours, self.theirs = Fabric(auto=True), cache(), cache()
        self.prefill = self.make_prefill(GROUP)
        self.decode = DecodeWorker(
            DecodeEndpoint(
                self.theirs.layout, 0, self.theirs.pool, MemoryTransport(self.fabric), group=group_of("decode"),
                settings=SETTINGS,
            ),
            self.theirs, trust,
        )  # fmt: skip
        self.card = self.card_of(self.prefill, GROUP)
        self.rooms = 0
        self.decode.start()

    def make_prefill(self, group: int, bind: str = LOOPBACK, chunk_tokens: int = 8) -> PrefillWorker:
        transport, held = MemoryTransport(self.fabric), self.ours
        made = PrefillEndpoint(
            held.layout, 0, held.pool, transport, chunk_tokens=chunk_tokens, group=group, settings=SETTINGS, bind=bind
        )
        worker = PrefillWorker(made, held)
        worker.start()
        return worker

    def card_of(self, prefill: PrefillWorker, group: int) -> Card:
        return Card(group, 5, self.ours.layout, 8, (prefill.endpoint.address,))

    def request(self, card: Card, *, opened: bool = True, seconds: float = 10.0) -> str:
        """The result of a request with this card; `opened`: the prefill instance has it, too."""
        self.rooms += 1
        name = str(self.rooms)
        here, there = Ticket(self.rooms, TOKENS, card.encode()), Ticket(self.rooms, TOKENS, "decode")
        self.decode.before([Announce(name, here)])
        self.decode.before([Load(name, PAGES, 0)])
        if opened:
            orders: list[Any] = [OpenRoom(name, there), GiveBlocks(name, PAGES, TOKENS)]
            self.prefill.before(orders)
            self.prefill.after(orders)
            self.prefill.before([Promise(name)])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.decode.results()
            self.prefill.results()
            if name in found.received:
                return "failed" if name in found.failed else "well"
            time.sleep(0.002)
        return "waits"

    def close(self) -> None:
        self.decode.close()
        self.prefill.close()


@pytest.fixture
def at() -> Iterator[Instances]:
    made = Instances()
    yield made
    made.close()


# ----------------------------------------------------------------------------------------------- forged cards
FORGED: dict[str, dict[str, Any]] = {
    "dead": {"addresses": NOWHERE}, "beyond loopback": {"addresses": ("tcp://203.0.113.7:4000",)},
    "nobody's name": {"addresses": ("tcp://no-such-host.invalid:4000",)}, "the same": {},
    "another instance": {"addresses": NOWHERE, "group": 99},
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_card_costs_nobody_else_a_request(at: Instances, kind: str) -> None:
    assert at.request(at.card) == "well"
    forged = replace(at.card, incarnation=LATEST, **FORGED[kind])
    for _ in range(2):
        assert at.request(forged, opened=False, seconds=0.2) in ("failed", "waits")
        assert at.request(at.card) == "well"
    links = at.decode.endpoint.links()
    assert f"prefill rank 0 of group {GROUP} is up" in links[0]
    assert "lost" not in str(at.decode.endpoint.reports())


def test_another_layout_is_refused_by_name_while_the_link_is_up(
    at: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    assert at.request(at.card) == "well"
    other = replace(at.card, incarnation=LATEST, layout=replace(at.card.layout, heads=8))
    assert at.request(other, opened=False) == "failed"
    assert "is connected with another layout or chunk size than the card's" in caplog.text
    assert at.request(at.card) == "well"


def test_a_request_of_an_instance_that_has_said_goodbye_waits_for_nobody(
    at: Instances, caplog: pytest.LogCaptureFixture
) -> None:
    """And one of its successor, which has a card of its own, is served."""

    def own() -> Card:
        return replace(at.card_of(at.prefill, GROUP), incarnation=inside(at.prefill.endpoint).rank.incarnation)

    card = own()
    assert at.request(card) == "well" and not at.decode.endpoint.has_left(GROUP, card.incarnation)
    at.prefill.close()
    wait_until(lambda: at.decode.endpoint.has_left(GROUP, card.incarnation))
    assert at.request(card, opened=False) == "failed"
    assert f"group {GROUP} has said goodbye since it gave this card" in caplog.text
    at.prefill = at.make_prefill(GROUP)
    assert own().incarnation > card.incarnation
    assert at.request(own()) == "well"
    assert not at.decode.endpoint.has_left(GROUP, card.incarnation), "its successor is there"


OTHER_LAYOUT: dict[str, dict[str, Any]] = {
    "chunk size": {"chunk_tokens": 16, "addresses": NOWHERE}, "ranks": {"addresses": 2 * NOWHERE},
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_LAYOUT)
def test_another_layout_is_refused_by_name_while_an_instance_that_has_answered_is_down(
    at: Instances, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert at.request(at.card) == "well"
    at.prefill.close()
    wait_until(lambda: not at.decode.endpoint.any_up(GROUP))
    before = at.decode.endpoint.links()[0].split(",")[0]
    held = replace(at.card.layout, tp=2) if kind == "ranks" else at.card.layout
    for _ in range(3):
        assert at.request(replace(at.card, layout=held, **OTHER_LAYOUT[kind]), opened=False) == "failed"
    assert f"group {GROUP} has answered with another layout or chunk size than the card's" in caplog.text
    assert at.decode.endpoint.links()[0].split(",")[0] == before, "it is called as before"
    at.prefill = at.make_prefill(GROUP, at.card.addresses[0])
    assert at.request(at.card) == "well"


def test_an_instance_that_comes_back_with_another_chunk_size_is_believed_when_it_refuses(at: Instances) -> None:
    assert at.request(at.card) == "well"
    at.prefill.close()
    at.prefill = at.make_prefill(GROUP, at.card.addresses[0], chunk_tokens=16)
    end = time.monotonic() + 20.0
    while at.request(replace(at.card, chunk_tokens=16), seconds=1.0) != "well":
        assert time.monotonic() < end


def wait_until(over: Callable[[], bool]) -> None:
    end = time.monotonic() + 10.0
    while not over():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_an_instance_that_comes_back_elsewhere_is_found_by_its_card(at: Instances) -> None:
    assert at.request(at.card) == "well"
    assert at.request(replace(at.card, incarnation=LATEST, addresses=NOWHERE), opened=False, seconds=0.2) == "waits"
    at.prefill.close()
    at.prefill = at.make_prefill(GROUP)
    assert at.request(at.card_of(at.prefill, GROUP)) == "well", "whatever a forged card has claimed"


@pytest.mark.parametrize("first", [False, True])
def test_a_forged_card_moves_no_call_while_the_instance_is_down(at: Instances, *, first: bool) -> None:
    """It comes while the instance restarts, or before the instance was ever called."""
    forged = replace(at.card, incarnation=LATEST, addresses=NOWHERE)
    if first:
        assert at.request(forged, opened=False, seconds=0.2) == "waits"
        assert at.request(at.card) == "well", "both addresses are called"
        return
    assert at.request(at.card) == "well"
    at.prefill.close()
    for _ in range(3):
        assert at.request(forged, opened=False, seconds=0.2) == "waits"
    assert f"{NOWHERE[0]} is tried beside it" in at.decode.endpoint.links()[0]
    at.prefill = at.make_prefill(GROUP, at.card.addresses[0])
    end = time.monotonic() + 10.0
    while not at.decode.endpoint.any_up(GROUP):
        assert time.monotonic() < end, at.decode.endpoint.links()
        time.sleep(0.002)
    assert at.request(at.card) == "well"


# -------------------------------------------------------------------------------------------------- the bound
def test_instances_without_a_link_give_way_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    at = Instances(CardTrust(instances=2))
    second = at.make_prefill(77)
    try:
        assert at.request(at.card) == "well"
        for group in range(100, 110):
            at.request(replace(at.card, group=group, addresses=NOWHERE), opened=False, seconds=0.01)
            assert [*at.decode.known.cards] == [GROUP, group], "the former one nobody has answered for"
        at.decode.known.call(at.card_of(second, 77))
        end = time.monotonic() + 10.0
        while not at.decode.endpoint.any_up(77) and time.monotonic() < end:
            time.sleep(0.002)
        assert at.request(replace(at.card, group=99, addresses=NOWHERE), opened=False) == "failed"
        assert "2 prefill instances are connected, as many as requests may introduce" in caplog.text
        assert at.request(at.card) == "well"
    finally:
        second.close()
        at.close()


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_what_is_no_bound_is_refused(count: Any) -> None:
    with pytest.raises(ArgumentError, match="card_instances is"):
        CardTrust.read(instances=count)


# ------------------------------------------------------------------------------------------------- signatures
@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "card.secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def card() -> Card:
    return Card(GROUP, 5, cache().layout, 8, ("tcp://10.1.2.3:4000",))


def test_a_signed_card_is_believed_and_no_change_of_it(secret: Path, card: Card) -> None:
    trust = CardTrust.read(str(secret))
    signed = Card.decode(trust.sign(card).encode())
    trust.check(signed)
    trust.check(Card.from_dict(json.loads(signed.encode()) | {"of a later version": 1}))
    changes = {"incarnation": 6, "addresses": NOWHERE, "group": 1, "signature": "0" * 64, "chunk_tokens": 16}
    for change in ({name: value} for name, value in changes.items()):
        with pytest.raises(CardError, match="another signature than this instance's card secret"):
            trust.check(replace(signed, **change))
    with pytest.raises(CardError, match="no signature with this instance's card secret"):
        trust.check(card)
    with pytest.raises(CardError, match="another signature"):
        CardTrust(secret=b"another of 16 bytes").check(signed)
    CardTrust().check(signed)
    assert CardTrust().sign(card) == card


def test_a_card_without_its_signature_introduces_nobody(secret: Path, card: Card) -> None:
    known = Introductions(None, CardTrust.read(str(secret)))  # type: ignore[arg-type]
    with pytest.raises(CardError, match="no signature"):
        known.call(card)
    assert not known.cards


def test_the_environment_names_the_secret_where_no_option_does(
    secret: Path, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_FILE, str(secret))
    assert CardTrust.read() == CardTrust.read(str(secret)) != CardTrust()
    assert CardTrust.read().sign(card).signature


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [(b"short", 0o600, "has 5 bytes: write 16 or more"), (b"x" * 16, 0o640, "chmod 600"), (None, 0, "No such file")],
)
def test_a_secret_file_that_cannot_be_used_is_named(tmp_path: Path, content: Any, mode: int, said: str) -> None:
    path = tmp_path / "card.secret"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ArgumentError, match=said):
        CardTrust.read(str(path))


# ----------------------------------------------------------------------------------------------- the allow-list
@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("tcp://10.1.2.3:4000", True), ("tcp://10.2.2.3:4000", False), ("tcp://[fd00::7]:4000", True),
        ("tcp://[fd01::7]:4000", False), ("tcp://prefill-0.example:4000", False), ("nowhere", False),
    ],
)  # fmt: skip
def test_addresses_have_to_be_in_a_network_that_is_listed(card: Card, address: str, *, known: bool) -> None:
    trust, named = CardTrust.read(networks=["10.1.0.0/16", "fd00::/64"]), replace(card, addresses=(address,))
    if known:
        trust.check(named)
    else:
        with pytest.raises(CardError, match="which is in none of card_networks"):
            trust.check(named)


def test_one_address_in_a_network_does_not_vouch_for_the_others(card: Card) -> None:
    known, strange = "tcp://10.1.2.3:1", "tcp://10.2.2.3:1"
    two = replace(card, layout=replace(card.layout, tp=2), addresses=(known, strange))
    with pytest.raises(CardError, match=f"names '{strange}'"):
        CardTrust.read(networks=["10.1.0.0/16"]).check(two)


@pytest.mark.parametrize("network", ["10.0.0.1/8", "everywhere", ""])
def test_what_is_no_network_is_named(network: str) -> None:
    with pytest.raises(ArgumentError, match=r"card_networks: .*write each as"):
        CardTrust.read(networks=[network])
