"""Builds of different age: the version they work at, what they pass over, what they refuse."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.stories import layout

from kvproto.errors import ArgumentError
from kvproto.io.control.control import Peer, Sent
from kvproto.protocol import messages as msg
from kvproto.protocol.versions import AGREEMENTS, ANNOUNCE, Build, build_of, common, fault
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

OWN = Build()
NEWER = Build(
    newest=msg.VERSION + 1, agreements=f"{OWN.agreements} later:1", capabilities=f"{OWN.capabilities} later",
    digest=re.sub(r"prefill_send:\w+", "prefill_send:00000000", OWN.digest),
)  # fmt: skip


def builds(*spoken: tuple[int, int]) -> list[Build]:
    return [Build(oldest, newest) for oldest, newest in spoken]


# ------------------------------------------------------------------------------------- what is worked out
@pytest.mark.parametrize(
    ("own", "theirs", "at"),
    [((3, 3), (3, 3), 3), ((3, 5), (3, 4), 4), ((3, 5), (4, 9), 5), ((3, 5), (1, 3), 3), ((3, 5), (1, 2), 0),
     ((3, 5), (6, 9), 0), ((3, 5), (5, 5), 5)],
)  # fmt: skip
def test_a_pair_works_at_the_highest_version_that_both_speak(
    own: tuple[int, int], theirs: tuple[int, int], at: int
) -> None:
    ours, others = builds(own, theirs)
    assert common(ours, others) == common(others, ours) == at
    assert (fault(ours, others, "decode", "prefill") == "") == (at > 0)


def test_both_sides_name_the_same_side_to_be_upgraded() -> None:
    old, new = builds((3, 4), (5, 6))
    assert fault(old, new, "prefill", "decode") == (
        "no common wire version: the decode rank speaks 5 to 6, the prefill rank 3 to 4: upgrade the prefill rank"
    )
    assert fault(new, old, "decode", "prefill") == (
        "no common wire version: the prefill rank speaks 3 to 4, the decode rank 5 to 6: upgrade the prefill rank"
    )


@pytest.mark.parametrize(("oldest", "newest"), [(0, 0), (0, msg.OLDEST - 1), (1, msg.OLDEST - 1), (9, 3)])
def test_no_peer_can_have_a_build_work_below_its_oldest_version(oldest: int, newest: int) -> None:
    theirs = Build(oldest, newest)
    assert common(OWN, theirs) in (0, *range(msg.OLDEST, msg.VERSION + 1))
    assert fault(OWN, theirs, "prefill", "decode")


@pytest.mark.parametrize(
    ("said", "told"),
    [("", ""), ("ring:1", ""), ("later:1", ""), (OWN.agreements, ""),
     ("ring:2", "the agreement ring has version 2 on the decode rank, 1 on the prefill rank: upgrade the prefill rank"),
     ("ring:0", "the agreement ring has version 0 on the decode rank, 1 on the prefill rank: upgrade the decode rank"),
     ("later:2", "agreement later has version 2 on the decode rank"), ("ring:²", "that is no version"),
     ("ring:٣", "that is no version"),
     ("ring", "has version  on the decode rank, 1 on the prefill rank: that is no version")],
)  # fmt: skip
def test_an_agreement_that_differs_is_refused_by_name(said: str, told: str) -> None:
    why = fault(OWN, Build(agreements=said), "prefill", "decode")
    assert told in why and bool(told) == bool(why)


@pytest.mark.parametrize(("oldest", "least"), [(0, 7), (5, 5)])
def test_a_peer_that_does_not_name_its_oldest_version_speaks_its_newest_alone(oldest: int, least: int) -> None:
    said = SimpleNamespace(oldest=oldest, version=7, agreements="ring:1", capabilities="announce", digest="d")
    assert build_of(said) == Build(least, 7, "ring:1", "announce", "d")


def test_a_flood_of_words_makes_a_sentence_that_a_refusal_can_carry() -> None:
    for words in (" ".join(f"a{number}:2" for number in range(140)), f"a:{'9' * 1000}", f"{'n' * 1000}:2"):
        why = fault(OWN, Build(agreements=words[:1024]), "prefill", "decode")
        assert why and len(why) <= 1024


# ---------------------------------------------------------------------------- pairs of which one is newer
class Newer(Pair):
    """A pair with a newer build on one side, which adds fields to messages and sends unknown ones."""

    def __init__(self, side: str, build: Build) -> None:
        super().__init__(layout(2), layout(1), chunk_tokens=8, ready=False)
        self.added = 0
        for endpoint in self.prefills if side == "prefill" else self.decodes:
            inside(endpoint).rank.build = build
            self._extend(inside(endpoint).loop.control)

    def _extend(self, control: Any) -> None:
        send = control.send

        def extended(peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
            epoch, room, gen, body = msgspec.msgpack.decode(data)
            self.added += 1
            hint = [epoch, room, gen, ["LATER_HINT", self.added, {"at": [1.5, b"more"]}]]
            send(peer, msgspec.msgpack.encode(hint), urgent=urgent, later=later)
            data = msgspec.msgpack.encode([epoch, room, gen, [*body, {"of": "a later version"}]])
            taken: Sent = send(peer, data, urgent=urgent, later=later)
            return taken

        control.send = extended


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_newer_peer_works_with_this_build_and_what_is_new_is_passed_over(
    side: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kvproto.links")
    with Newer(side, NEWER) as pair:
        pair.pump(lambda: all(decode.ready() for decode in pair.decodes))
        rooms = [pair.open(30), pair.open(20, prefix=8)]
        for room in rooms:
            pair.finish(room)
        pair.check(*rooms)
        ours = pair.prefills if side == "decode" else pair.decodes
        for endpoint in ours:
            it = inside(endpoint)
            assert {value.build.version for value in it.rank.links.values()} == {msg.VERSION}
            assert it.loop.counts["messages of newer builds"] > 0 and not it.loop.counts["malformed frames"]
            told = endpoint.links()
            assert all(f"it works at wire version {msg.VERSION}, and the builds differ in prefill_send (" in each
                       for each in told)  # fmt: skip
        assert "the builds differ in prefill_send (" in caplog.text
        measured = [(each.labels, each.value) for each in numbers(ours[0]) if each.name == "kvproto_links_by_build"]
        assert measured == [((str(msg.VERSION), "other"), len(pair.decodes if side == "decode" else pair.prefills))]


def numbers(endpoint: Any) -> list[Any]:
    from kvproto.metrics.metrics import measure

    return list(measure(endpoint))


@pytest.mark.parametrize(
    ("build", "why"),
    [(Build(msg.VERSION + 1, msg.VERSION + 2), "no common wire version: "),
     (Build(agreements=OWN.agreements.replace("layout:1", "layout:2")), "the agreement layout has version ")],
)  # fmt: skip
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_peer_that_cannot_be_worked_with_is_refused_on_both_sides(side: str, build: Build, why: str) -> None:
    with Newer(side, build) as pair:
        pair.pump(lambda: all(value.why for each in pair.endpoints for value in inside(each).rank.links.values())
                  and len(inside(pair.prefills[0]).rank.links) > 0)  # fmt: skip
        older = "decode" if side == "prefill" else "prefill"
        for endpoint in pair.endpoints:
            for value in inside(endpoint).rank.links.values():
                assert value.why.startswith(why) and value.why.endswith(f"upgrade the {older} rank"), value.why
        with pytest.raises(ConnectionError, match=why):
            pair.decodes[0].ready()


# ----------------------------------------------------------------------------------------- capabilities
def test_what_a_peer_lacks_is_refused_by_name_at_the_call_that_needs_it() -> None:
    with Newer("prefill", Build(capabilities="later")) as pair:
        pair.pump(lambda: all(decode.ready() for decode in pair.decodes))
        with pytest.raises(
            ArgumentError, match=f"announce: prefill rank 0 of group 1 .* cannot {ANNOUNCE}: upgrade it"
        ):
            pair.decodes[0].announce(Room(99), 30)
        room = pair.open(30)
        pair.finish(room)
        pair.check(room)


def test_agreements_and_capabilities_are_words() -> None:
    for name in (*AGREEMENTS, *OWN.capabilities.split()):
        assert re.fullmatch(r"[a-z_]{2,40}", name)
    assert len(OWN.agreements) <= 1024 and len(OWN.capabilities) <= 1024
