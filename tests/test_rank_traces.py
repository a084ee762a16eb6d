"""Rank traces: the words for rooms, secrets, ranks, machines, messages and lines of charts."""

from __future__ import annotations

from typing import Any

import pytest

from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import PlainError
from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry
from kvproto.fsm.telling import Message, Moment
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Event, Report
from kvproto.observe.rank_traces import RankTelling
from kvproto.observe.written import RankLogHead, hidden, hidden_from, room_from
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import room_key
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.states import Cause
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.draw.stage import SceneRanks, SceneStage

TELLING = RankTelling()
ROOM, FIRST = room_key(7, 2), room_key(7, 0)
TIMER = ev.TimerFired(ROOM, 3, 1, 5)


def head(side: Any, index: int, group: int = 1, timing: Timing = Timing(), **links: Any) -> RankLogHead:  # noqa: B008
    return RankLogHead(side, group, index, "digest", timing, whole=True, **{"links": {}, **links})


def step(machine: str, event: Event, source: str = "A", target: str = "B", **more: Any) -> StepEntry:
    return StepEntry(2, 1.0, machine, ("key",), event, source, target, 0, (), **more)


def message(name: str, *fields: tuple[str, object], subject: int | None = ROOM) -> Message:
    return Message("P0", "D0", subject, name, fields)


# ------------------------------------------------------------------------------------- rooms and secrets
@pytest.mark.parametrize(
    ("text", "room", "gen"),
    [("7.2", 7, 2), ("0.0", 0, 0), (f"{2**64 - 1}.{2**32 - 1}", 2**64 - 1, 2**32 - 1), ("0" * 19 + "7.2", 7, 2),
     ("7." + "0" * 19 + "2", 7, 2)],
)  # fmt: skip
def test_a_room_is_read_as_it_is_written(text: str, room: int, gen: int) -> None:
    assert room_from(text, "here") == room_key(room, gen)


@pytest.mark.parametrize(
    "text",
    ["", "7", "7.", ".2", "x.2", "7.x", "7.2.0", "1_0.2", "7.1_0", "-7.2", "٣.2", "7.٣", f"{2**64}.0", f"0.{2**32}",
     "0" * 20 + "7.2", "7." + "0" * 20 + "2", 7.2e99, None],
)  # fmt: skip
def test_what_is_no_room_is_refused(text: object) -> None:
    with pytest.raises(PlainError, match=r"^here: .* is no room; write ROOM\.GEN$"):
        room_from(text, "here")


def test_people_leave_out_the_first_generation() -> None:
    assert TELLING.subject_from("7") == FIRST and TELLING.subject_from("7.2") == ROOM
    assert TELLING.subject_name(ROOM) == "7.2" and TELLING.subject_title(ROOM) == "room 7 gen 2"
    with pytest.raises(PlainError, match=r"^--room: 'x\.0' is no room"):
        TELLING.subject_from("x")


def test_a_secret_is_written_as_a_digest_of_its_own() -> None:
    assert hidden(b"") == "" and len(hidden(b"a")) == 32 and len({hidden(b"a"), hidden(b"b")}) == 2
    assert hidden_from(hidden(b"a"), "here") == bytes.fromhex(hidden(b"a"))
    for wrong in ("xy", 5, None):
        with pytest.raises(PlainError, match=f"^here: '{wrong}' is no digest of a secret$"):
            hidden_from(wrong, "here")


# ------------------------------------------------------------------------------------ what there is to tell
def test_names_of_the_vocabulary_are_those_of_the_tables_and_the_wire() -> None:
    telling = RankTelling()
    assert telling.tables == {table.name: table for table in TABLES} and telling.timing is Timing
    assert telling.body is Body and telling.digest() == tables_digest()
    assert telling.events["EngineOpened"] is ev.EngineOpened and telling.effects["DeliverAux"] is do.DeliverAux
    assert telling.messages["OPEN"] is msg.Open and not {*telling.messages} & {*telling.events, *telling.effects}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("chunk", -2, 1 << 24), ("peer", -1, 1 << 20), ("tokens", 0, 1 << 28), ("prefix", 0, 1 << 28),
     ("row", 0, 1 << 16)],
)  # fmt: skip
def test_numbers_that_are_places_have_bounds(name: str, least: int, most: int) -> None:
    for number in (least, most):
        assert TELLING.json.value(int, number, name, "here") == number
    for number in (least - 1, most + 1):
        with pytest.raises(PlainError, match=f"^here: {number} is out of bounds$"):
            TELLING.json.value(int, number, name, "here")


@pytest.mark.parametrize(
    ("event", "source"),
    [(ev.EngineOpened, "engine"), (ev.Gathered, "kernel"), (ev.BatchReady, "transport"),
     (ev.DialFailed, "control plane"), (ev.TimerFired, "timer")],
)  # fmt: skip
def test_events_from_outside_have_a_source_by_name(event: type[Event], source: str) -> None:
    assert [name for name, events in TELLING.sources.items() if event in events] == [source]


def test_rooms_and_secrets_have_forms_of_their_own() -> None:
    assert TELLING.json.plain(ROOM, "room") == "7.2" and TELLING.json.plain(b"a", "secret") == hidden(b"a")


# --------------------------------------------------------------------------------------------------- ranks
def test_a_log_begins_with_its_rank_and_where_its_links_lead() -> None:
    stage = SceneStage(SceneRanks())
    stage.run(1e-3)
    prefill: Any
    decode: Any
    prefill, decode = stage.ranks.values()
    timing, digest = prefill.settings.timing, tables_digest()
    for native in (False, True):
        prefill.native_notify = native
        ours, theirs = (TELLING.head_of(rank, whole=native) for rank in (prefill, decode))
        assert ours == RankLogHead("prefill", prefill.group, 0, digest, timing, native, {1: (decode.group, 0)}, native)
        assert theirs == RankLogHead("decode", decode.group, 0, digest, timing, native, {1: (prefill.group, 0)})


def test_ranks_are_told_apart_by_group_only_where_a_side_has_several() -> None:
    one = [head("prefill", 0), head("decode", 1, group=2)]
    assert TELLING.names(iter(one)) == {("prefill", 1, 0): "P0", ("decode", 2, 1): "D1"}
    more = [*one, head("decode", 1, group=3)]
    assert TELLING.names(more) == {("prefill", 1, 0): "P0", ("decode", 2, 1): "D1@2", ("decode", 3, 1): "D1@3"}
    assert [each.routes for each in one] == ["prefill", "decode"]


def test_links_lead_to_ranks_of_the_other_side() -> None:
    names = {("prefill", 1, 0): "P0", ("decode", 2, 1): "D1@2"}
    assert TELLING.peers(head("prefill", 0, links={1: (2, 1), 2: (3, 0)}), names) == {1: "D1@2", 2: "D0"}
    assert TELLING.peers(head("decode", 1, group=2, links={1: (1, 0)}), names) == {1: "P0"}


def test_a_message_is_no_longer_under_way_than_a_link_is_silent() -> None:
    timing = Timing(heartbeat=Timer(period=2.0, tries=5))
    assert TELLING.longest_flight(head("prefill", 0, timing=timing)) == 10.0


def test_prefill_ranks_come_first_each_with_its_title() -> None:
    assert sorted(["D1", "P1", "D0", "P0"], key=TELLING.column) == ["P0", "P1", "D0", "D1"]
    assert [TELLING.title(each) for each in ("P0", "D12")] == ["prefill rank 0", "decode rank 12"]


# ------------------------------------------------------------------------------------------------ machines
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_fast_key_has_the_fields_of_a_key(table: Any) -> None:
    key: Any = TELLING.key_getter(table)(TIMER)
    fields = {"room": (ROOM,), "link": (1,), "grant": (ROOM, 3)}
    expected = fields.get(table.name.partition("_")[2], (ROOM, 3, 1))
    assert TELLING.key_of(table, TIMER) == expected and (key if isinstance(key, tuple) else (key,)) == expected


@pytest.mark.parametrize(
    ("machine", "event", "part", "name", "track"),
    [
        ("prefill_room", TIMER, None, "room", "room 7.2"),
        ("decode_room", ev.SendFinished(FIRST, 3, 1), None, "room", "room 7"),
        ("prefill_send", ev.SendStopped(ROOM, 3, 1), 3, "send 3 to D1", "room 7.2 chunk 3 to D1"),
        ("prefill_send", ev.SendStopped(FIRST, AUX_CHUNK, 1), "aux", "send aux to D1", "room 7 aux to D1"),
        ("prefill_write", TIMER, 3, "write 3 to D1", "room 7.2 chunk 3 to D1 (write)"),
        ("decode_grant", TIMER, 3, "grant 3", "room 7.2 chunk 3"),
        ("prefill_link", TIMER, None, "link 1", "link 1"),
    ],
)
def test_a_machine_is_named_by_its_part_and_its_peer(
    machine: str, event: Event, part: object, name: str, track: str
) -> None:
    moved = step(machine, event)
    link = machine.endswith("link")
    assert TELLING.part_of(moved) == part and TELLING.machine(moved) == name and TELLING.track(moved) == track
    assert TELLING.background(moved) is link
    assert TELLING.subject_of(moved) == (None if link else event.room)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ messages
@pytest.mark.parametrize(
    ("body", "room", "subject"),
    [(msg.Heartbeat(), 0, None), (msg.Watermark(1, 2), 0, None), (msg.Watermark(1, 2), ROOM, ROOM),
     (msg.ChunkAck(3), ROOM, ROOM), (msg.ChunkAck(3), 0, 0)],
)  # fmt: skip
def test_a_message_of_a_link_is_about_a_room_only_where_it_names_one(
    body: Any, room: int, subject: int | None
) -> None:  # fmt: skip
    heard, effect = HeardEntry(2, 1.0, (4, 9, room), body), do.Transmit(4, 9, room, body)
    assert TELLING.heard(heard) == (4, subject, body)
    assert TELLING.left(effect) == (4, subject, *TELLING.spoken(body))
    assert TELLING.era(heard) == TELLING.era(SentEntry(2, effect)) == (9, room > 0)


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (do.TransmitAux(4, 9, ROOM), (4, ROOM, "AUX", ())),
        (do.SayHello(4, 11), (4, None, "HELLO", (("session", 11),))),
        (do.SayWelcome(4, 11, 9), (4, None, "WELCOME", (("session", 11),))),
        (do.SayRefusal(4, 11, "why"), (4, None, "REFUSAL", (("session", 11),))),
        (do.DeliverAux(ROOM, b"x"), None), (do.Dial(4, "there"), None),
    ],
)  # fmt: skip
def test_messages_that_handlers_make_are_told_by_their_effects(effect: Any, told: object) -> None:
    assert TELLING.left(effect) == told


def test_a_call_has_no_era_and_a_message_no_times_and_blames() -> None:
    assert TELLING.era(SentEntry(2, do.SayHello(4, 11))) == (0, False)
    assert TELLING.spoken(msg.Refusal(11, "why")) == ("REFUSAL", (("session", 11),))
    assert TELLING.spoken(msg.StagingReq(3, 1.5)) == ("STAGING_REQ", (("chunk", 3),))
    abort = msg.Abort(Cause.STALLED, b"secret", msg.Blame("prefill", 0, "why"))
    assert TELLING.spoken(abort) == ("ABORT", (("cause", Cause.STALLED),))


def test_a_message_has_the_part_that_it_names_and_stands_aside_if_it_is_about_no_room() -> None:
    assert TELLING.part_of_message(message("CHUNK_ACK", ("chunk", 3))) == 3
    assert TELLING.part_of_message(message("OPENED")) is None
    asides = [message("WATERMARK", subject=None), message("HEARTBEAT", subject=None), message("HEARTBEAT"),
              message("WATERMARK", subject=0)]  # fmt: skip
    assert [TELLING.aside(each) for each in asides] == [True, False, False, False]


# ---------------------------------------------------------------------------------------- words and charts
def test_a_message_is_a_line_and_a_region_a_sentence() -> None:
    region = msg.StagingRsp(chunk=3, grant=4, offset=64, round=1, end=96, mark_round=2, mark_tail=32)
    assert TELLING.said(message("CHUNK_ACK", ("chunk", 3))) == "CHUNK_ACK chunk 3"
    assert TELLING.said(message(*TELLING.spoken(region)[:1], *TELLING.spoken(region)[1])) == (
        "STAGING_RSP chunk 3: region 4 at 64 to 96 of round 1; watermark 2, 32"
    )


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("chunk", AUX_CHUNK, "aux"), ("chunk", 3, "chunk 3"), ("peer", -1, "peer -1"), ("ready", False, "not ready"),
     ("claim", ev.Claim(5), "for group 5"), ("cause", Cause.STALLED, "cause STALLED")],
)  # fmt: skip
def test_a_field_in_words(name: str, value: object, told: str) -> None:
    assert TELLING.field(name, value) == told


@pytest.mark.parametrize(
    ("effect", "line"),
    [
        (do.PostBatch(ROOM, 3, 1), "    P0-)D1: chunk 3: a write"),
        (do.AnnounceOutcome(ROOM, Cause.NONE), "    Note over P0: tells its engine: success"),
        (do.AnnounceOutcome(ROOM, Cause.STALLED), "    Note over P0: tells its engine: STALLED"),
        (do.AnnounceReleased(ROOM), "    Note over P0: the engine's pages are free"),
        (do.LaunchGather(ROOM, 3, 1, ev.Target(), 0, 0, 0), "    P0->>P0: gather chunk 3"),
        (Report("what", "why"), None),
    ],
)
def test_an_effect_is_a_line_of_a_chart(effect: Any, line: str | None) -> None:
    moment = Moment(0, "P0", 1.0, step("prefill_send", TIMER))
    assert list(TELLING.drawn(moment, effect, {})) == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("event", "told"),
    [(ev.WriteBegun(ROOM, 3, 1, ev.Target(), 0, 0, 0, 1.0), "one write into the ring"),
     (ev.PagesBegun(ROOM, 3, 1, ev.Target(), b"", 1.0), "many writes into the pages"), (TIMER, "a write")],
)  # fmt: skip
def test_a_write_is_drawn_with_where_it_goes(event: Event, told: str) -> None:
    memory: dict[Any, Any] = {}
    moved = step("prefill_write", event)
    moment = Moment(0, "P0", 1.0, moved)
    TELLING.remember(moment, moved, memory)
    assert list(TELLING.drawn(moment, do.PostBatch(ROOM, 3, 1), memory)) == [f"    P0-)D1: chunk 3: {told}"]


def test_a_link_is_drawn_where_it_changes() -> None:
    moment = Moment(0, "P0", 1.0, moved := step("prefill_link", TIMER, "UP", "LOST"))
    assert list(TELLING.drawn_background(moment, moved)) == ["    Note over P0: link is LOST"]
    assert not list(TELLING.drawn_background(moment, step("prefill_link", TIMER, "UP", "UP")))
