"""The handlers' worlds: every order of what they wait for, and what each wait is good for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.night import by_night
from support.planting import plant

from kvproto.data.decode_data import DecodeData
from kvproto.data.gathers import Gathers
from kvproto.data.joint_launches import JointLaunches
from kvproto.data.prefill_data import PrefillData
from kvproto.data.prefill_wires import PrefillWires
from kvproto.data.room_entry import RoomEntry
from kvproto.data.staged_writes import PreparedWrites
from kvproto.data.writes import RankWrites
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.base import PeerGone
from kvproto.loop.connector import WireUp
from kvproto.protocol.states import PLink
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.handler_stage import HandlerStage
from kvproto.verify.testing.handler_worlds import LARGE, WORLDS, Exploration
from kvproto.verify.testing.stage import TIMING


class Planted(NamedTuple):
    """A fault: where, what the text says, what it would say; the world that sees it, and what that says."""

    owner: type[Any]
    method: str
    old: str
    new: str
    world: str
    said: str


PREPARED_WRITES = "the transport has the prepared writes"
FAULTS: dict[str, Planted] = {
    "a gather does not wait for the forward": Planted(
        Gathers, "_launch", "entry.after(cut.first + cut.tokens, made.layers)", "None", "waits",
        "reads KV before its forward"),
    "a gather does not wait for its page table": Planted(
        Gathers, "_launch", "self.staging.streams.await_table(entry)", "pass", "waits", "reads a page table"),
    "a withdrawal keeps the event of a forward that has not come": Planted(
        PrefillEndpoint, "withdraw", "min(entry.full, upto)", "upto", "withdrawn",
        "reads KV before its forward|reads a page table"),
    "the newest event is kept for all KV, whenever it is computed": Planted(
        RoomEntry, "forget_marks", "(upto, layers,", "(1 << 62, layers,", "withdrawn-two-chunks", "wrong bytes"),
    "what waits for another forward is launched with others": Planted(
        JointLaunches, "go", "asked[end][2] is not asked[begin][2]", "False", "together",
        "reads KV before its forward"),
    "small ones are not launched at the end of their pass": Planted(
        JointLaunches, "go", "asked, self.aside =", "return; asked, self.aside =", "together", ""),
    "a scatter does not wait for its page table": Planted(
        DecodeData, "_scatter", "self.streams.await_table(entry)", "pass", "two-slots",
        "a scatter .* reads a page table"),
    "a write over pages does not wait for the forward": Planted(
        PrefillData, "prepare_pages", "peer, made, after, (", "peer, made, None, (", "over-pages", "wrong bytes"),
    "a store does not wait for the tables of pages": Planted(
        PrefillData, "_store", "self.streams.next_store()", "self.streams.stores[0]", "mapped",
        "reads a page table|wrong bytes"),
    "a gather is told over while it runs": Planted(
        JointLaunches, "over", "if not", "if self.kind.what != 'gather' and not", "waits",
        "wrong bytes|before its forward"),
    "a scatter is told over while it runs": Planted(
        JointLaunches, "over", "if not", "if self.kind.what != 'scatter' and not", "two-slots", "wrong bytes"),
    "gathers are asked in any order": Planted(
        Gathers, "_look", "self._going.popleft()", "self._going.pop()", "two-slots", ""),
    "a gather that was put off is forgotten": Planted(
        Gathers, "ask", "self.launches.ask(", "(lambda *_, **__: None)(", "two-slots", ""),
    "any prepared write of the slot is taken": Planted(
        PreparedWrites, "take", "and kept[0] == self._mark(effect)", "", "given-up", ""),
    "a prepared write that is not taken is leaked": Planted(
        PreparedWrites, "take", "self.transport.drop(kept[1].prepared)", "pass", "given-up", PREPARED_WRITES),
    "a slot's former prepared write is leaked": Planted(
        PreparedWrites, "ready", "self._drop(effect.slot)", "pass", "given-up", PREPARED_WRITES),
    "prepared writes to a peer that is left are leaked": Planted(
        PreparedWrites, "leave", "self._drop(slot)", "self._kept.pop(slot)", "failures", PREPARED_WRITES),
    "a lost transport is not told": Planted(
        PrefillWires, "_lost", "self.loop.raise_event(ev.TransportLost(link))", "pass", "failures", "link is still up"),
    "a write in doubt is told as over": Planted(
        RankWrites, "hear", "if event.quiescent:", "if True:", "failures", "forgotten a write|not over after"),
    "a doubt is settled at once": Planted(
        RankWrites, "_settled", "if not self.transport.quiescent(handle):", "if False:", "failures", "still moves"),
    "a doubt is never settled": Planted(
        RankWrites, "hear", "self.doubtful.append(event.handle)", "pass", "failures", "not over after|left over"),
    "the end of a write is not heard": Planted(
        PrefillData, "poll", "partial(self.writes.hear, event)", "bool", "two-slots", ""),
    "a write ends with its first batch": Planted(
        RankWrites, "post_batch", "if left.batches:", "if False:", "over-pages", ""),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "counts"),
    [("waits", (248, 345, 2)), ("two-slots", (187, 257, 2)), ("failures", (171, 186, 38)),
     ("over-pages", (84, 185, 4)), ("one-ahead", (187, 257, 2)), ("pass-by-pass", (111, 134, 1)),
     ("mapped", (76, 83, 6)), ("mapped-two-chunks", (32, 29, 4)), ("together", (77, 64, 8)),
     ("withdrawn", (169, 260, 2)), ("withdrawn-mapped", (94, 144, 2)),
     *by_night([("withdrawn-two-chunks", (1023, 1833, 3))], by_day=[])],
)  # fmt: skip
def test_every_order_of_a_small_world_is_gone_through(name: str, counts: tuple[int, int, int]) -> None:
    found = Exploration(name, (WORLDS | LARGE)[name]).run()
    assert not found.breach, found.breach
    assert (found.situations, found.walks, found.ends) == counts
    page = Path(__file__).parent.parent / "docs" / "checker.md"
    assert f"| `{name}` | {found.situations:,} | {found.walks:,} |" in page.read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, method, old, new, world, said = FAULTS[fault]
    plant(monkeypatch, owner, method, old, new)
    breach = Exploration(world, (WORLDS | LARGE)[world]).run().breach
    assert breach
    assert re.search(said, breach), breach


@pytest.fixture
def stage() -> Iterator[HandlerStage]:
    made = HandlerStage(slots=1)
    yield made
    made.close()


def test_a_device_is_given_its_gathers_without_the_end_of_a_pass() -> None:
    stage = HandlerStage(slots=2, ahead=1)
    inside(stage.prefills[0]).loop.background.clear()
    room = stage.begin(2, at_once=True, paged=True)
    stage.settled()
    assert stage.outcomes["D", 0, room].ok and stage.end()
    stage.close()


def test_a_scatter_that_is_ready_does_not_wait_for_the_end_of_a_pass() -> None:
    stage = HandlerStage(slots=1)
    inside(stage.decodes[0]).loop.background.clear()
    room = stage.begin(1, at_once=True, paged=True)
    stage.settled()
    assert stage.outcomes["D", 0, room].ok and stage.end()
    stage.close()


def test_tables_are_on_their_way_when_their_room_is_opened() -> None:
    stage = HandlerStage(slots=1)
    room = stage.opened(1, paged=True)
    for endpoint in stage.endpoints:
        entry = inside(endpoint).entries[room.key]
        endpoint.poll()
        stage.device.idle()
        assert entry.table.tolist() == entry.pages.tolist() != []
    stage.close()


def waits_for_nobody(stage: HandlerStage, patch: pytest.MonkeyPatch, error: Exception) -> bool:
    """Whether a rank whose transport cannot be wired up goes on waiting for the answer of who tried it."""
    tried, transport = [], inside(stage.prefills[0]).data.transport

    def refuse(endpoint: bytes) -> None:
        tried.append(endpoint)
        raise error

    patch.setattr(transport, "connect", refuse)
    stage.cut(0)
    waited = False
    for _ in range(4):
        stage.clock.advance(TIMING.call.period)
        stage.settled()
        waited |= PLink.AWAIT_WIRE_UP in {link.state for link in inside(stage.prefills[0]).rank.links.values()}
    assert tried
    return waited


@pytest.mark.parametrize("error", [PeerGone("planted"), RuntimeError("a library's own")])
def test_a_wire_up_that_fails_is_told_and_the_link_comes_back(
    stage: HandlerStage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        assert not waits_for_nobody(stage, patch, error)
    (link,) = inside(stage.decodes[0]).rank.links.values()
    assert str(error) in link.why
    stage.connect(0)
    stage.settled()
    assert stage.end()
    room = stage.begin(1, at_once=True, paged=True)
    stage.settled()
    assert stage.outcomes["D", 0, room].ok


@pytest.mark.parametrize(
    ("owner", "method", "old"),
    [(WireUp, "_connect", 'self._answer(WireFailed(link, session, f"{error.kind}: {error}"), peer)'),
     (PrefillEndpoint, "_wired", "self._loop.call(tell)")],
    ids=["the fault is swallowed", "the answer is thrown away"],
)  # fmt: skip
def test_a_wire_up_that_is_not_told_is_seen(
    stage: HandlerStage, monkeypatch: pytest.MonkeyPatch, owner: type[Any], method: str, old: str
) -> None:
    plant(monkeypatch, owner, method, old, "pass")
    stage.prefills[0]._wire_up._answer = stage.prefills[0]._wired
    assert waits_for_nobody(stage, monkeypatch, PeerGone("planted"))
