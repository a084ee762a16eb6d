"""The log: which logger says what, that nobody can flood it, and that nothing is installed on it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from support.stories import layout
from support.wiretap import Stranger, Tap

from kvproto.io.clock import ManualClock
from kvproto.loop.event_loop import PERIOD
from kvproto.observe.logs import BURST, KEPT, KINDS, LONGEST, LimitedLogger, Logs, Writer, short
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.events import QueueOverflowed, room_key
from kvproto.protocol.states import Cause
from kvproto.settings import PREFILL_GROUP
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "kvproto"):
        yield caplog


@pytest.fixture
def logs() -> Logs:
    return Logs("prefill rank 0", Counter())


def lines(said: pytest.LogCaptureFixture, subject: str) -> list[tuple[str, str]]:
    """(level, text) of what one logger was told."""
    return [(each.levelname, each.message) for each in said.records if each.name == f"kvproto.{subject}"]


# ------------------------------------------------------------------------------------------------ what is said
def test_links_and_rooms_that_do_well_are_told_once_each(said: pytest.LogCaptureFixture) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        room = pair.open(30)
        pair.finish(room)
        up = f"is up; it works at wire version {msg.VERSION}"
        ups = [("INFO", f"{side}: link 1 to rank 0 of group {group} {up}") for side, group in
               (("prefill rank 0", 2), ("decode rank 0", 1))]  # fmt: skip
        assert lines(said, "links") == ups
        assert sorted(lines(said, "rooms")) == [
            ("INFO", f"decode rank 0: room {room.id} is done"), ("INFO", f"prefill rank 0: room {room.id} is done"),
        ]  # fmt: skip
    assert {each.name for each in said.records} == {"kvproto.links", "kvproto.rooms"}


def test_a_loss_and_what_it_ends_are_warnings_an_abort_is_not(said: pytest.LogCaptureFixture) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        decode, aborted, room = pair.decodes[0], pair.open(30), pair.open(30)
        decode.abort(aborted)
        pair.pump(lambda: pair.over(aborted))
        rank, loop, _, _ = inside(decode)
        loop.raise_event(QueueOverflowed(rank.link_of[PREFILL_GROUP, 0]))
        loop.submit([])
        pair.pump(lambda: ("D", 0, room) in pair.outcomes)
    assert ("WARNING", "decode rank 0: link 1 to rank 0 of group 1 is lost") in lines(said, "links")
    rooms = dict(text.split(" failed: ") for _, text in lines(said, "rooms") if text.startswith("decode"))
    assert rooms == {
        f"decode rank 0: room {aborted.id}": "the decode engine gave the room up",
        f"decode rank 0: room {room.id}": "the link to prefill rank 0 was lost",
    }  # fmt: skip
    levels = {text.split()[4]: level for level, text in lines(said, "rooms") if text.startswith("decode")}
    assert levels == {str(aborted.id): "INFO", str(room.id): "WARNING"}


def test_a_transport_that_does_not_connect_is_told(said: pytest.LogCaptureFixture) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as pair:
        transport = inside(pair.prefills[0]).data.transport
        kept = transport.connect

        def refuse(endpoint: bytes) -> None:
            raise OSError("planted")

        transport.connect = refuse  # type: ignore[method-assign, assignment]
        pair.pump(lambda: bool(lines(said, "transport")))
        transport.connect = kept  # type: ignore[method-assign]
    why = "the transport does not connect to link 1 to rank 0 of group 2: OSError: planted"
    assert lines(said, "transport")[0] == ("WARNING", f"prefill rank 0: {why}")


def test_a_handler_s_fault_has_a_traceback_once_a_kind(logs: Logs, said: pytest.LogCaptureFixture) -> None:
    for error in (RuntimeError("one"), RuntimeError("two"), OSError("three")):
        logs.fault("Dial(link=1, address='')", error)
    traced = [bool(each.exc_info) for each in said.records]
    assert traced == [True, False, True]
    assert {level for level, _ in lines(said, "loop")} == {"ERROR"}
    assert [text.rpartition(": ")[2] for text in logs.reports] == ["one", "two", "three"]


def test_every_sentence_word_for_word_with_its_logger_and_level(logs: Logs, said: pytest.LogCaptureFixture) -> None:
    blamed = list[tuple[int, Cause, str]]()
    logs.blame = lambda *what: blamed.append(what)
    told = list[str]()
    logs.reported = told.append
    key, error = room_key(31, 2), OSError("planted")
    logs.frame("rank 1", "no frame")
    logs.stranger("link 4")
    logs.link("link 1", "")
    logs.link("link 1", "lost")
    logs.untaken("link 2", "tcp://a", "refused")
    logs.pool("attached")
    logs.staged("rank 2", "re-sliced")
    logs.small_ring("group 2", 64, 48, "")
    logs.small_ring("group 2", 64, 48, "no way")
    logs.unmapped("rank 3", "another host")
    logs.left("link 5")
    logs.wire("rank 4", "no route")
    logs.part("write", (key, 6, 7), Cause.WRITE_FAILED, "broken")
    logs.part("scatter", (key, 8), Cause.KERNEL_FAILED, "torn")
    logs.fault("Dial(link=1)", error)
    logs.room(key, Cause.NONE, "")
    logs.room(key, Cause.STALLED, "nothing moved")
    logs.room(key, Cause.DECODE_ABORTED, "given up")
    write = "write of room 31 (gen 2), chunk 6 for decode rank 7: broken"
    scatter = "scatter of room 31 (gen 2), chunk 8: torn"
    fault, small = "Dial(link=1): OSError: planted", "a whole chunk of group 2 takes 64 bytes, the ring has 48"
    assert [(each.name.removeprefix("kvproto."), each.levelname, each.message) for each in said.records] == [
        (subject, level, f"prefill rank 0: {text}") for subject, level, text in (
            ("frames", "WARNING", "rank 1: no frame"),
            ("frames", "WARNING", "a message from link 4, to which no link is bound"),
            ("links", "INFO", "link 1 is up"),
            ("links", "WARNING", "link 1 is lost"),
            ("links", "WARNING", "link 2 stays as it is: tcp://a was tried beside it: refused"),
            ("links", "INFO", "the pool is attached"),
            ("links", "INFO", "rank 2: staged route: re-sliced"),
            ("links", "WARNING", f"{small} (Settings.ring_bytes): it is written page to page"),
            ("links", "WARNING", f"{small} (Settings.ring_bytes): it fails, since no way"),
            ("links", "INFO", "the memory of rank 3 is not mapped here: another host"),
            ("links", "INFO", "link 5 is forgotten: the engine has disconnected it"),
            ("transport", "WARNING", "the transport does not connect to rank 4: no route"),
            ("transport", "WARNING", write),
            ("transport", "WARNING", scatter),
            ("loop", "ERROR", fault),
            ("rooms", "INFO", "room 31 (gen 2) is done"),
            ("rooms", "WARNING", "room 31 (gen 2) failed: nothing moved"),
            ("rooms", "INFO", "room 31 (gen 2) failed: given up"),
        )
    ]  # fmt: skip
    assert list(logs.reports) == told == [
            "rank 1: no frame", "link 1 is lost", "link 2 stays as it is: tcp://a was tried: refused", write, scatter,
            fault, "room 31 (gen 2) failed: nothing moved",
        ]  # fmt: skip
    assert blamed == [(key, Cause.WRITE_FAILED, write), (key, Cause.KERNEL_FAILED, scatter)]


def test_a_log_handler_that_raises_loses_its_line_and_that_is_told() -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left")

    lost, writer, full = list[BaseException](), Writer(), Full()
    limited = LimitedLogger("links", writer)
    assert limited.write is writer and isinstance(LimitedLogger("links").write, Writer)
    limited.log.addHandler(full)
    try:
        limited.say(logging.WARNING, "nobody listens")
        writer.lost = lost.append
        limited.say(logging.WARNING, "somebody listens")
    finally:
        limited.log.removeHandler(full)
    assert [str(error) for error in lost] == ["no space left"]


def test_a_peer_s_words_forge_no_line(logs: Logs, said: pytest.LogCaptureFixture) -> None:
    forged = "no\r\n2026 ERROR kvproto.loop: \x1b[2J\u2028forged"
    logs.link("link 1", f"refused: {forged}")
    logs.frame(f"frame from {forged}", forged)
    logs.wire("link 1", forged)
    logs.room(room_key(1, 0), Cause.REFUSED, forged)
    logs.fault(forged, ValueError(forged))
    assert len(said.records) == 5 and all(each.getMessage().isprintable() for each in said.records)
    assert all(each.isprintable() for each in logs.reports)


def test_what_is_counted_is_told_once_with_what_is_new_of_it(said: pytest.LogCaptureFixture) -> None:
    unheard, away = Counter({"late": 2}), Counter({"strange": 3})
    logs = Logs("prefill rank 0", unheard)
    logs.sum_up(0.0)
    logs.sum_up(1.0)
    unheard.update({"late": 5, "early": 1})
    logs.sum_up(2.0)
    assert lines(said, "frames") == [
        ("INFO", "prefill rank 0: messages dropped: 2 late"),
        ("INFO", "prefill rank 0: messages dropped: 5 late, 1 early"),
    ]  # fmt: skip
    logs.away(away, "")
    logs.away(away, "")
    away.update({"strange": 1})
    logs.away(away, "k")
    assert lines(said, "security") == [
        ("WARNING", "prefill rank 0: refused: 3 strange"),
        ("WARNING", "prefill rank 0: refused: 1 strange; last key: k"),
    ]


def test_a_reason_is_whole_or_says_that_it_is_not() -> None:
    whole, longer = "x" * LONGEST, "y" * (LONGEST + 1)
    assert short(whole) == whole and short(longer) == "y" * (LONGEST - 3) + "..."


# -------------------------------------------------------------------------------------------- nobody floods it
def test_a_flood_is_a_burst_and_then_one_line_a_second(said: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        prefill, count = pair.prefills[0], 3 * BURST
        tap = Tap(pair)
        (peer,) = inside(pair.decodes[0]).loop.connections.link_at
        seen = inside(prefill).loop.counts

        def flood() -> None:
            before = seen["malformed frames"]
            for _ in range(count):
                tap.say(1, peer, b"no frame")
            pair.pump(lambda: seen["malformed frames"] == before + count)

        for second in range(3):
            flood()
            flood()
            assert len(lines(said, "frames")) == BURST + second
            clock.advance(PERIOD)
            pair.turn()
            more = 2 * count - (BURST if not second else 0)
            assert lines(said, "frames")[-1] == ("WARNING", f"prefill rank 0: and {more} more")
        clock.advance(PERIOD)
        pair.turn()
        flood()
        assert len(lines(said, "frames")) == 2 * BURST + 3, "a quiet second, and there is a burst again"
        assert len(prefill.reports()) <= KEPT


def test_what_strangers_say_is_told_with_their_place_and_summed(said: pytest.LogCaptureFixture) -> None:
    clock, count = ManualClock(), 2 * BURST
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        stranger, unheard = Stranger(pair.prefills[0].address), inside(pair.prefills[0]).rank.counts
        pair.pump(stranger.heard)
        for _ in range(count):
            stranger.say(encode(9, 5, msg.StagingRsp(0, 1, 0, 0, 64, 0, 0)))
        pair.pump(lambda: unheard["messages of strangers"] == count)
        told = lines(said, "frames")
        assert len(told) == BURST and all("to which no link is bound" in text for _, text in told)
        clock.advance(PERIOD)
        pair.turn()
        assert lines(said, "frames")[BURST:] == [
            ("WARNING", f"prefill rank 0: and {count - BURST} more"),
            ("INFO", f"prefill rank 0: messages dropped: {count} messages of strangers"),
        ]  # fmt: skip
        stranger.close()


def test_kinds_of_faults_and_what_is_kept_of_them_are_bounded(logs: Logs) -> None:
    for number in range(2 * KEPT):
        logs.fault(f"Kind{number}(" + "x" * 10_000, RuntimeError("planted"))
        logs.part("write", (1, 0, 0), Cause.WRITE_FAILED, "y" * 10_000)
    assert 8 <= BURST <= 80 and KEPT == 256 and 16 <= KINDS <= 512, "megabytes for hours, and as few lines a second"
    assert len(logs.reports) == KEPT and len(logs._kinds) == KINDS
    assert max(map(len, logs.reports)) < 2 * LONGEST


# --------------------------------------------------------------------------------------------- what is left alone
def test_nothing_is_installed_and_what_is_switched_off_is_not_made(logs: Logs) -> None:
    above = logging.getLogger("kvproto")
    assert [type(each) for each in above.handlers] == [logging.NullHandler] and above.level == logging.NOTSET
    for subject in ("rooms", "links", "transport", "frames", "loop"):
        logger = logging.getLogger(f"kvproto.{subject}")
        assert not logger.handlers and logger.propagate and logger.level == logging.NOTSET

    class Costly:
        def __str__(self) -> str:
            raise AssertionError("nobody reads it")

    quiet = logging.getLogger("kvproto.links")
    quiet.setLevel(logging.CRITICAL)
    try:
        for _ in range(2 * BURST):
            logs.links.say(logging.WARNING, "%s", Costly())
    finally:
        quiet.setLevel(logging.NOTSET)
    assert logs.links.left == BURST and not logs.links.more


def test_the_operators_page_names_every_logger() -> None:
    from pathlib import Path

    import kvproto.observe.logs as source

    page = (Path(__file__).parent.parent / "docs/operating.md").read_text()
    assert source.__doc__ is not None
    for subject in ("rooms", "links", "transport", "frames", "security", "loop"):
        assert f"kvproto.{subject}" in source.__doc__ and f"| `kvproto.{subject}` |" in page
