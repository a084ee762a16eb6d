"""Several live decode instances under one (group, rank): the first keeps its link, others are refused.

The reproduction: three instances with one group name took the link from each other in turn, and half of the rooms
never ended.  Everything here is the product's own: endpoints with threads, ZeroMQ sockets, bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_foreign_groups import MINE, hello, prefill, say
from test_rank_links import decode

from kvproto import DecodeEndpoint, Layout, Pool, PrefillEndpoint, Room
from kvproto.errors import LinkError
from kvproto.fsm.vocabulary import Effect
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import PLink
from kvproto.protocol.tables.links import prefill_link
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.framework.table_patching import TablePatch

HELD = Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
GROUP, TOKENS, LIMIT = 11, 32, 30.0


def pool() -> Pool:
    made = [torch.zeros(64, 4, 2, 8, dtype=torch.bfloat16) for _ in range(2)]
    return Pool(made[:1], made[1:], "NHD", 4)


@pytest.fixture
def instances() -> Iterator[tuple[PrefillEndpoint, list[DecodeEndpoint]]]:
    """A prefill rank and three decode instances of one name, with threads of their own."""
    fabric = Fabric(auto=True)
    prefill = PrefillEndpoint(HELD, 0, pool(), MemoryTransport(fabric), chunk_tokens=16)
    decodes = [DecodeEndpoint(HELD, 0, pool(), MemoryTransport(fabric), chunk_tokens=16, group=GROUP) for _ in range(3)]
    for each in (prefill, *decodes):
        each.start()
    yield prefill, decodes
    for each in (prefill, *decodes):
        each.close()


def fate(decode: DecodeEndpoint) -> str:
    """ "up" when the instance is connected, or the sentence of its refusal."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            if decode.ready():
                return "up"
        except LinkError as error:
            return str(error)
        time.sleep(0.005)
    return "neither"


def carry(prefill: PrefillEndpoint, decode: DecodeEndpoint, number: int) -> bool:
    """Move one room to this instance; whether it ended well there."""
    room, pages = Room(number), list(range(8))
    decode.open(room, TOKENS, pages)
    prefill.open(room, TOKENS, pages, group=GROUP)
    prefill.produced(room, TOKENS)
    prefill.aux(room, b"t")
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        prefill.finished(), prefill.released()
        if done := decode.finished():
            return [each.ok for each in done] == [True]
        time.sleep(0.005)
    return False


def test_the_first_of_three_live_instances_keeps_its_name(
    instances: tuple[PrefillEndpoint, list[DecodeEndpoint]], caplog: pytest.LogCaptureFixture
) -> None:
    prefill, (first, *others) = instances
    caplog.set_level(logging.WARNING)
    first.connect(HELD, [prefill.address])
    assert fate(first) == "up"
    for other in others:
        other.connect(HELD, [prefill.address])
    for other in others:
        said = fate(other)
        assert f"decode rank 0 of group {GROUP} is connected already" in said and "a group of its own" in said
        assert "is connected already" in other.links()[0]
    assert all(carry(prefill, first, 100 + n) for n in range(4))
    assert "a second live instance calls under this name" in prefill.links()[0]
    assert any("is connected already" in record.message for record in caplog.records)
    assert not any("is lost" in record.message for record in caplog.records)
    assert prefill.metrics()["calls under a name that is taken"] >= len(others)


# ------------------------------------------------------------------------------------------ on the ranks alone
#: an incarnation after that of `hello`
LATER = 9


def called_by_a_later_life() -> tuple[PrefillRank, int, list[msg.WatermarkReq]]:
    """A rank whose link is called by another incarnation of its peer; the link, and what its own is asked."""
    rank, links = prefill()
    _, effects = rank.hello(hello(MINE, session=LATER << 16), 0.0, b"elsewhere")
    asked = [each.body for each in effects if isinstance(each, do.Transmit) and isinstance(each.body, msg.WatermarkReq)]
    return rank, links[MINE], asked


def refused(effects: list[Effect]) -> list[int]:
    """The sessions of calls that are refused."""
    return [each.session for each in effects if isinstance(each, do.RefuseCall)]


def late_watermark() -> tuple[list[int], PLink]:
    """A dead incarnation's watermark comes after the later one's call: the refused ones, and the link."""
    rank, link, _ = called_by_a_later_life()
    told = list(say(rank, link, msg.Watermark(0, 64)))
    for beat in range(1, 5):
        told += rank.tick(1.1 * beat)
    return refused(told), PLink(rank.links[link].state)


def test_a_watermark_that_a_dead_incarnation_has_told_refuses_nobody() -> None:
    assert late_watermark() == ([], PLink.LOST), "the later incarnation has the name"
    with TablePatch() as bench:

        def any_watermark(v: Any, e: ev.WatermarkSeen, now: float) -> bool:
            return bool(v.doubted)

        rows = bench.rows(prefill_link, PLink.UP, ev.WatermarkSeen, "rivalled_higher")
        bench.change(prefill_link, rows, when=any_watermark)
        assert late_watermark() == ([LATER << 16], PLink.UP), "planted: it refuses a rank that has started anew"


def test_the_answer_to_the_question_refuses_the_caller_within_one_exchange() -> None:
    rank, link, (asked,) = called_by_a_later_life()
    assert asked.nonce == LATER << 16
    _, (again,) = rank.hello(hello(MINE, session=LATER << 16), 0.5, b"elsewhere")
    assert isinstance(again, do.Transmit) and again.body == asked, "the question may have been lost"
    assert refused(say(rank, link, msg.Watermark(0, 64, asked.nonce + 1))) == [], "an earlier call's"
    assert refused(say(rank, link, msg.Watermark(0, 64, asked.nonce))) == [LATER << 16]


@pytest.mark.parametrize(("stands", "beats"), [(False, 6), (True, 61)])
def test_an_earlier_incarnation_has_the_name_when_the_later_one_s_link_is_lost(*, stands: bool, beats: int) -> None:
    """Its calls may be late frames: none of them is answered while the link is up, however silent."""
    rank, links = prefill()
    link, earlier = links[MINE], hello(MINE, session=rank.links[links[MINE]].session - 1)
    rank.stands = lambda _link: stands
    beat = 0
    while rank.links[link].state is PLink.UP:
        assert rank.hello(earlier, 1.1 * beat, b"elsewhere") == (link, [])
        beat += 1
        rank.tick(1.1 * beat)
    assert (rank.links[link].state, beat) == (PLink.LOST, beats)
    _, effects = rank.hello(earlier, 1.1 * beat, b"elsewhere")
    assert do.Connect in map(type, effects)


def test_a_decode_rank_answers_with_the_nonce_of_the_question() -> None:
    rank = decode()
    (told,) = say(rank, 1, msg.WatermarkReq(77))
    assert isinstance(told, do.Transmit) and told.body == msg.Watermark(*rank.ring.mark, 77)


def test_a_second_instance_has_the_name_when_the_first_has_ended(
    instances: tuple[PrefillEndpoint, list[DecodeEndpoint]],
) -> None:
    prefill, (first, second, _) = instances
    first.connect(HELD, [prefill.address])
    assert fate(first) == "up"
    first.close()
    second.connect(HELD, [prefill.address])
    assert fate(second) == "up" and carry(prefill, second, 7)
