"""Notes that travel with writes, and the rule that keeps the control plane from repeating them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from msgspec.structs import replace

from kvproto.fsm.codec import WireError
from kvproto.fsm.timing import Timer
from kvproto.io.transports.base import PeerId
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MAX_TAG
from kvproto.layout.sharding import Layout
from kvproto.protocol.codec import encode
from kvproto.protocol.events import room_key
from kvproto.protocol.messages import Aux, ChunkAck, StgNotify
from kvproto.protocol.notification import MAX_NOTES, Note, make_tag, read_tag
from kvproto.protocol.versions import ANNOUNCE, AUX_NOTES
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import PATIENT, Pair


def layout(tp: int) -> Layout:
    return Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=tp)


@pytest.fixture(params=[True, False])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """On a transport that carries notes, and on one that does not."""
    fabric = Fabric(auto=True, native_notify=request.param)
    with Pair(layout(2), layout(1), chunk_tokens=32, fabric=fabric, settings=PATIENT) as made:
        yield made


def test_a_note_says_who_where_and_what() -> None:
    key = room_key((1 << 64) - 1, 9)
    said = (key, Aux(b"row", b"trace")), (key, StgNotify(3, 17)), (0, StgNotify(0, 18))
    notes: list[Note] = [(7 << 16, room, body) for room, body in said]
    assert read_tag(make_tag((1 << 64) - 1, 5, notes)) == (((1 << 64) - 1, 5), notes)


NOTE = 1, room_key(1, 0), StgNotify(0, 1)
NO_TAGS = {
    "empty": b"", "short": b"short", "zeros": bytes(40), "another message": bytes(12) + encode(1, 1, ChunkAck(0)),
    "no list": bytes(12) + encode(*NOTE), "none": make_tag(1, 0, []),
    "too many": make_tag(1, 0, [NOTE] * (MAX_NOTES + 1)),
    "one bad": make_tag(1, 0, [NOTE, (1, 1, ChunkAck(0))]),  # type: ignore[list-item]
}  # fmt: skip


@pytest.mark.parametrize("tag", NO_TAGS.values(), ids=NO_TAGS)
def test_what_is_no_note_is_refused(tag: bytes) -> None:
    with pytest.raises(WireError):
        read_tag(tag)


def by_messages(pair: Pair) -> list[Any]:
    """Collect the messages that prefill ranks put on their links from now on."""
    sent: list[Any] = []
    for endpoint in pair.prefills:
        send = inside(endpoint).loop.connections.send

        def counted(link: int, epoch: int, room: int, body: Any, send: Any = send) -> None:
            sent.append(body)
            send(link, epoch, room, body)

        inside(endpoint).loop.connections.send = counted  # type: ignore[method-assign]
    return sent


def test_a_part_is_notified_once_by_its_write_or_by_a_message(pair: Pair) -> None:
    sent = by_messages(pair)
    room = pair.open(tokens=100)
    pair.finish(room)
    pair.check(room)
    by_message = sum(isinstance(body, StgNotify) for body in sent)
    writes = sum(inside(endpoint).data.stats["writes"] for endpoint in pair.prefills)
    assert writes == 8
    assert by_message == (0 if pair.fabric.native_notify else writes)
    assert not any(endpoint.reports() for endpoint in pair.endpoints)


def test_an_answer_that_overtakes_the_end_of_its_write_is_remembered(pair: Pair) -> None:
    """The tag may be there before the sender has seen its write end; the answer is a row like any other."""
    if not pair.fabric.native_notify:
        pytest.skip("nothing overtakes")
    prefill, early = pair.prefills[0], list[str]()
    rank, _, _, data = inside(prefill)
    handle = rank.receive

    def heard(link: int, epoch: int, room: int, body: Any, *rest: Any) -> Any:
        if isinstance(body, ChunkAck):
            early.append(rank.sends[room][body.chunk << 16].state.name)
        return handle(link, epoch, room, body, *rest)

    rank.receive = heard  # type: ignore[method-assign, assignment]
    poll = data.transport.poll
    held: list[Any] = []

    def late() -> list[Any]:
        held.extend(poll())
        if len(held) < 40:
            held.append(None)
            return []
        events = [event for event in held if event is not None]
        held.clear()
        return events

    data.transport.poll = late  # type: ignore[method-assign]
    room = pair.open(tokens=100)
    pair.finish(room)
    pair.check(room)
    assert not prefill.reports()
    assert "WRITING" in early, "no answer came before its write had ended"


def test_a_tag_of_somebody_else_is_counted(pair: Pair) -> None:
    rank, loop, _, data = inside(pair.decodes[0])
    data._arrived(b"nonsense")
    data._arrived(make_tag(99, 0, [NOTE]))
    assert loop.counts["malformed notes"] == 1
    assert rank.counts["messages of strangers"] == 1


#: no region is asked for; what was not confirmed is said again late, or soon
PAGES = replace(PATIENT, route="pages")
QUICK = replace(PAGES, timing=replace(PAGES.timing, resend=Timer(0.2, 10)))
#: the row, what the decode rank can read, whether the transport takes a tag alone; and the row's messages
ROWS = {
    "with the last note": (b"row", AUX_NOTES, True, 0), "too large for a tag": (bytes(MAX_TAG), AUX_NOTES, True, 1),
    "to a build that does not read it there": (b"row", ANNOUNCE, True, 1),
    "a transport that takes no tag alone": (b"row", AUX_NOTES, False, 1),
}  # fmt: skip


class Written(Pair):
    """One room, whose aux row is given while its last part is being written."""

    def __init__(self, settings: Settings, tells: Callable[[PeerId, bytes], bool] | None) -> None:
        """`tells`: how the transport takes a tag alone (None: as the fabric does)."""
        super().__init__(layout(1), layout(1), chunk_tokens=32, settings=settings)
        self.sent, transport = by_messages(self), inside(self.prefills[0]).data.transport
        of_the_fabric: Callable[[PeerId, bytes], bool] = partial(self.fabric.tell, transport.instance)
        transport.tell = tells or of_the_fabric  # type: ignore[assignment, method-assign]

    def move(self, row: bytes) -> None:
        self.fabric.auto = False
        room = self.open(tokens=100)
        self.produce(room, aux=None)
        self.pump(lambda: len(inside(self.prefills[0]).data.writes.flying) == 4)
        self.prefills[0].aux(room, row)
        self.turn()
        self.fabric.auto = True
        self.pump(lambda: self.over(room))
        self.check(room)
        assert self.outcomes["D", 0, room].aux == row


@pytest.mark.parametrize(("row", "reads", "takes", "messages"), ROWS.values(), ids=ROWS)
def test_an_aux_row_goes_with_the_last_note_where_it_can(row: bytes, reads: str, takes: bool, messages: int) -> None:
    with Written(PAGES, None if takes else lambda *_: False) as pair:
        links = inside(pair.prefills[0]).rank.links
        for link, value in list(links.items()):
            links[link] = replace(value, build=replace(value.build, capabilities=reads))
        pair.move(row)
        assert sum(isinstance(body, Aux) for body in pair.sent) == messages


def test_an_aux_row_that_is_lost_with_its_note_is_sent_by_a_timer() -> None:
    with Written(QUICK, lambda *_: True) as pair:
        pair.move(b"row")
        assert Aux(b"row") in pair.sent
