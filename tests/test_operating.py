"""An operator's view: the numbers are right and cost the loop nothing, and docs/operating.md works."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml  # type: ignore[import-untyped]
import zmq
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from support.stories import layout

from kvproto import MetricsExporter
from kvproto.cli import COMMANDS, main
from kvproto.cli.top_command import Ranks, ValueNumbers, read, screen
from kvproto.endpoint.endpoint import Endpoint
from kvproto.errors import EndpointError
from kvproto.fsm.vocabulary import State
from kvproto.io.clock import ManualClock
from kvproto.io.control.gate import CROWDING, HASTY, STRANGE, UNLISTED
from kvproto.io.control.unread import ENDLESS
from kvproto.layout.costs import NO_ROUTE, Costs
from kvproto.metrics import metrics, snapshots
from kvproto.metrics.metrics import FORMER_NAMES, METRICS, Measured, measure
from kvproto.observe.durations import PASS_BOUNDS, ROOM_BOUNDS, Durations
from kvproto.observe.grant_ages import GrantAges
from kvproto.protocol import effects as do
from kvproto.protocol import states
from kvproto.protocol.events import QueueOverflowed
from kvproto.protocol.ring import Ring
from kvproto.protocol.states import DGrant
from kvproto.protocol.timing import Timing
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import PATIENT, SMALL, Pair

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "operating.md").read_text()
RULES = yaml.safe_load((ROOT / "docs" / "prometheus.rules.yml").read_text())["groups"][0]["rules"]
#: what a name may have behind it where it is served
SUFFIX = re.compile(r"_(total|bucket|count|sum)$")
SERVED = {*METRICS, "kvproto_up", "kvproto_snapshot_age_seconds"}
FORMER = {*FORMER_NAMES.values()}


def numbers(*endpoints: Endpoint) -> list[ValueNumbers]:
    """The served page of these endpoints, each its own; they are this thread's."""
    found = []
    for endpoint in endpoints:
        told: ValueNumbers = {}
        for family in MetricsExporter(endpoint).collect():
            for sample in family.samples:
                rest = tuple(value for name, value in sample.labels.items() if name not in ("side", "group", "rank"))
                told[sample.name.removeprefix("kvproto_"), rest] = sample.value
        found.append(told)
    return found


# --------------------------------------------------------------------------------------------- the numbers
def test_rooms_outcomes_and_parts_are_counted(pair: Pair) -> None:
    done, aborted, waiting = pair.open(20), pair.open(20), pair.open(20)
    pair.decodes[0].abort(aborted)
    pair.finish(done)
    pair.pump(lambda: pair.over(aborted))
    pair.settle()
    prefill, decode = numbers(pair.prefills[0], pair.decodes[0])
    for told, endpoint in ((prefill, pair.prefills[0]), (decode, pair.decodes[0])):
        assert told["rooms", ("OPEN",)] == 1 == told["open_rooms", ()]
        assert told["outcomes_total", ("NONE",)] == 1 == told["outcomes_total", ("DECODE_ABORTED",)]
        assert told["room_seconds_count", ("open",)] == 2 == told["room_seconds_count", ("release",)]
        assert 0 < told["pass_seconds_count", ()] <= inside(endpoint).loop.turns
    assert prefill["room_seconds_count", ("transfer",)] == 1
    assert prefill["parts_total", ("staged",)] == 3 and prefill["parts_total", ("pages",)] == 0
    assert prefill["sends", ("AWAIT_KV",)] == 3
    assert prefill["links", ("UP",)] == 1 and decode["links", ("UP",)] == 2
    assert prefill["messages_received_total", ("AUX_ACK",)] == 1 == decode["messages_sent_total", ("AUX_ACK",)]
    assert pair.prefills[0].rooms() == {"OPEN": [waiting]} == pair.decodes[0].rooms()


def test_connections_that_are_turned_away_are_counted(pair: Pair) -> None:
    prefill = pair.prefills[0]
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        public, secret = zmq.curve_keypair()
        stranger.set(zmq.CURVE_PUBLICKEY, public)
        stranger.set(zmq.CURVE_SECRETKEY, secret)
        stranger.set(zmq.CURVE_SERVERKEY, public)
        stranger.connect(prefill.address)
        pair.pump(lambda: prefill.metrics().get(STRANGE, 0) > 0)
    (told,) = numbers(prefill)
    assert told["anomalies_total", (STRANGE,)] == prefill.metrics()[STRANGE]
    alarm = next(rule["expr"] for rule in RULES if rule.get("alert") == "KvprotoStrangers")
    words = re.search(r'what=~"([^"]*)"', alarm)
    assert words and all(
        re.fullmatch(words[1], what) for what in (STRANGE, UNLISTED, HASTY, CROWDING, ENDLESS, "messages of strangers")
    )


def test_what_the_ring_holds_and_what_is_in_doubt() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(2), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        decode, room = pair.decodes[0], pair.open(20)
        for prefill in pair.prefills:
            inside(prefill).loop.handlers[do.LaunchGather] = lambda _: None  # it never ends
            prefill.produced(room, 20)
        pair.pump(lambda: len(inside(decode).rank.ring.live) == 3)
        (told,) = numbers(decode)
        size = sum(region.end - region.offset for region in inside(decode).rank.ring.live.values())
        assert told["ring_bytes", ("used",)] == size == told["ring_lag_bytes", ()]
        assert told["ring_bytes", ("size",)] == pair.settings.ring_bytes
        assert told["ring_bytes", ("quarantined",)] == told["ring_bytes", ("promised",)] == 0
        for _ in range(4):
            clock.advance(1.0)
            pair.pump(lambda: not pair.turn())
        (told,) = numbers(decode)
        assert 2.0 <= told["oldest_grant_seconds", ()] <= 4.0
        rank, loop, _, _ = inside(decode)
        loop.raise_event(QueueOverflowed(1))
        loop.submit([])
        (told,) = numbers(decode)
        assert told["ring_bytes", ("quarantined",)] == size and told["links", ("AWAIT_RETURN",)] == 1
        assert told["outcomes_total", ("LINK_LOST",)] == 1 and rank.rooms


def test_ends_of_timers_tell_repeats_and_fallbacks_their_reason() -> None:
    clock = ManualClock(100.0)
    with Pair(layout(2), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        prefill = pair.prefills[0]
        ring = inside(pair.decodes[0]).rank.ring
        while ring.reserve(ring.size // 4) is not None:
            pass
        room = pair.open(8)
        pair.produce(room)
        for _ in range(90):
            clock.advance(0.1)
            pair.settle()
        pair.pump(lambda: ("D", 0, room) in pair.outcomes)
        (told,) = numbers(prefill)
    ends = {labels[1:]: count for (name, labels), count in told.items()
            if name == "timer_ends_total" and labels[0] == "sends"}  # fmt: skip
    assert ends["AWAIT_TURN", "AWAIT_TURN"] == Timing().queue_retry.tries and ends["AWAIT_TURN", "AWAIT_PAGES"] == 1
    assert told["parts_total", ("pages",)] == 1 and told["parts_total", ("staged",)] == 0
    assert fallbacks(told) == {("AWAIT_TURN", "TimerFired"): 1}


def fallbacks(told: dict[Any, float]) -> dict[tuple[str, ...], float]:
    """By state and event."""
    return {labels: count for (name, labels), count in told.items() if name == "staging_fallbacks_total"}


def test_a_fallback_is_told_with_its_reason() -> None:
    settings = replace(PATIENT, ring_bytes=1)
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=settings) as pair:
        room, first = pair.open(20), pair.prefills[0]
        first.produced(room, 20)
        # It has asked before the other writer has: its chunks are denied while they wait for that one.
        sends = inside(first).rank.sends
        pair.pump(lambda: [each.state.name for each in sends.get(room.key, {}).values()].count("AWAIT_WRITERS") == 3)
        pair.finish(room)
        (told,) = numbers(pair.prefills[0])
    assert fallbacks(told) == {("AWAIT_WRITERS", "StagingDenied"): 3}
    assert "staging fallbacks AWAIT_WRITERS StagingDenied 3" in screen({("prefill", "1", "0"): told}, {}, 2.0)


def test_what_is_never_staged_is_told_apart() -> None:
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=replace(SMALL, route="pages")) as pair:
        pair.finish(pair.open(20))
        (told,) = numbers(pair.prefills[0])
    assert fallbacks(told) == {("NEW", "SendOpened"): 3}


def test_the_age_of_the_oldest_region_is_right_to_a_second() -> None:
    ring = Ring(1000)
    ages, given = GrantAges(ring), dict[int, float]()
    for second in range(200):
        ages.look(second)
        if second % 7 == 0:
            region = ring.reserve(10)
            assert region is not None
            given[region.grant] = second + 0.5
        if second % 11 == 10 and given:
            oldest = min(given)
            ring.free(oldest)
            del given[oldest]
        true = second + 0.9 - given[min(given)] if given else 0.0
        assert true - 1.0 <= ages.oldest(second + 0.9) <= true + 1e-9
        assert len(ages._looks) <= 1 + len(given)


@pytest.mark.parametrize(("bounds", "first", "last"), [(PASS_BOUNDS, 1e-5, 3.0), (ROOM_BOUNDS, 1e-3, 300.0)])
def test_bounds_of_a_histogram_rise_threefold(bounds: tuple[float, ...], first: float, last: float) -> None:
    assert (bounds[0], bounds[-1]) == (first, last)
    assert all(2.9 < above / below < 3.4 for below, above in pairwise(bounds))


def test_a_histogram_counts_what_was_not_longer() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        durations.note(seconds)
    assert durations.buckets() == [("0.1", 2.0), ("1.0", 3.0), ("+Inf", 4.0)]
    assert durations.total == pytest.approx(7.65)
    kept = durations.copy()
    durations.note(0.05)
    assert kept.buckets() == [("0.1", 2.0), ("1.0", 3.0), ("+Inf", 4.0)] and kept.total == pytest.approx(7.65)


# ---------------------------------------------------------------------------------------------- what it costs
def test_nothing_is_measured_until_somebody_asks(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Endpoint]()

    def noted(endpoint: Endpoint) -> Iterator[Measured]:
        asked.append(endpoint)
        return measure(endpoint)

    monkeypatch.setattr(snapshots, "measure", noted)
    exporter = MetricsExporter(*pair.endpoints)
    exporter.serve()
    pair.finish(pair.open(20))
    exporter.close()
    assert not asked
    list(exporter.collect())
    assert asked == pair.endpoints


def test_a_loop_that_nobody_polls_has_its_last_numbers_told_and_is_asked_once(pair: Pair) -> None:
    decode = pair.decodes[0]
    exporter = MetricsExporter(decode, timeout=0.2)
    list(exporter.collect())
    time.sleep(0.05)
    served = list[Any]()
    threads = [threading.Thread(target=lambda: served.append(list(exporter.collect()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside(decode).loop.backlog[0] == 1, "four asked, and it has one thing to do"
    for families in served:
        (age,) = next(family.samples for family in families if family.name == "kvproto_snapshot_age_seconds")
        assert age.value >= 0.05
    decode.poll()
    assert inside(decode).loop.backlog[0] == 0


def test_a_loop_that_has_told_its_numbers_is_asked_anew_by_whoever_asks_next(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, rank = list[Any](), SimpleNamespace(side="decode", group=2, index=0)

    def call(what: Any) -> None:
        calls.append(what)
        what()

    loop = SimpleNamespace(check=lambda: None, mine=False, call=call, attempt=lambda _, action: action())
    monkeypatch.setattr(snapshots, "measure", lambda _: [Measured("calls", (), len(calls))])
    source = snapshots.Snapshots(cast("Any", SimpleNamespace(_rank=rank, _loop=loop)))
    told = [source.take(5.0) for _ in range(3)]
    assert [(runs, snapshot and snapshot.measured[0].value) for runs, snapshot in told] == [
        (True, 1), (True, 2), (True, 3),
    ]  # fmt: skip


def test_an_exporter_ends_its_server_once() -> None:
    told, exporter = list[str](), MetricsExporter()
    exporter.close()
    exporter._server = SimpleNamespace(
        shutdown=lambda: told.append("shutdown"), server_close=lambda: told.append("server_close")
    )
    exporter.close()
    exporter.close()
    assert told == ["shutdown", "server_close"]


def test_of_an_endpoint_without_numbers_only_that_it_is_down_is_told(pair: Pair) -> None:
    first, second = pair.prefills[0], pair.decodes[0]
    exporter = MetricsExporter(first, second)
    first.close()
    up, age, *_ = exporter.collect()
    assert [sample.value for sample in up.samples] == [0.0, 1.0]
    assert [sample.labels["side"] for sample in age.samples] == ["decode"]


def test_a_loop_that_does_not_run_is_not_asked() -> None:
    def check() -> None:
        raise EndpointError("closed")

    endpoint = SimpleNamespace(
        _rank=SimpleNamespace(side="decode", group=2, index=0), _loop=SimpleNamespace(check=check, mine=True)
    )
    assert snapshots.Snapshots(cast("Any", endpoint)).take(5.0) == (False, None)


def test_links_are_counted_by_the_version_that_both_speak_and_whether_the_builds_are_the_same() -> None:
    def link(state: str, version: int, digest: str) -> Any:
        return SimpleNamespace(state=state, build=SimpleNamespace(version=version, digest=digest))

    links = [link("UP", 3, "ours"), link("UP", 3, "theirs"), link("UP", 3, "theirs"), link("LOST", 4, "ours")]
    rank = SimpleNamespace(UP="UP", build=SimpleNamespace(digest="ours"), links=dict(enumerate(links)))
    assert metrics._by_build(rank) == {("3", "same"): 1, ("3", "other"): 2}


def test_what_a_loop_and_both_kinds_of_ranks_have_counted_is_told_under_its_own_name() -> None:
    rank = cast("Any", SimpleNamespace(peers={}, sends={}, entered={(State, "A", "B", "C"): 4}, slot_of={1: 2},
                                       free_slots=[3, 4], slot_queue=[5], credit_queues={1: [1, 2], 2: [3]},
                                       permit_queue=[1, 2], watch={1: [1], 2: [2, 3]}))  # fmt: skip
    stats = {"writes": 1, "pages": 2, "direct": 3, "mapped": 4}
    data = SimpleNamespace(stats=stats, writes=SimpleNamespace(unposted=[1], written={"staged": 5}))
    assert {each[:2]: each.value for each in metrics._prefill(rank, data)} == {
        ("kvproto_bytes", ("staged",)): 5,
        ("kvproto_parts", ("staged",)): 1, ("kvproto_parts", ("pages",)): 2, ("kvproto_parts", ("direct",)): 3,
        ("kvproto_parts", ("mapped",)): 4, ("kvproto_staging_fallbacks", ("A", "B")): 4,
        ("kvproto_slots", ("held",)): 1,
        ("kvproto_slots", ("free",)): 2, ("kvproto_slot_queue", ()): 1, ("kvproto_credit_queue", ()): 3,
        ("kvproto_permit_queue", ()): 2, ("kvproto_watermark_waits", ()): 3, ("kvproto_unposted_writes", ()): 1,
    }  # fmt: skip
    outboxes = SimpleNamespace(waiting=lambda: (5, 600))
    loop = SimpleNamespace(
        connections=SimpleNamespace(said={}), heard={}, control=SimpleNamespace(outboxes=outboxes), backlog=(7, 8),
        passes=Durations(()),
    )  # fmt: skip
    told = [each for each in metrics._loop(loop) if each.name != "kvproto_pass_seconds"]
    assert told == [
        ("kvproto_outbox", ("frames",), 5), ("kvproto_outbox", ("bytes",), 600),
        ("kvproto_inbox", ("calls",), 7), ("kvproto_inbox", ("frames",), 8),
    ]  # fmt: skip


def test_what_a_rank_its_loop_and_its_gate_count_is_all_told(pair: Pair) -> None:
    rank, loop, _, _ = inside(pair.decodes[0])
    rank.counts["of the rank"], loop.counts["of the loop"], loop.control.counts.away["of the gate"] = 1, 2, 3
    (told,) = numbers(pair.decodes[0])
    assert [told["anomalies_total", (f"of the {what}",)] for what in ("rank", "loop", "gate")] == [1, 2, 3]


def test_a_route_that_there_is_not_has_no_seconds() -> None:
    estimates = {1: SimpleNamespace(staged=0.25, way="slices", pages=NO_ROUTE)}
    rank = cast("Any", SimpleNamespace(
        link_costs=lambda to: to.costs or Costs(piece=0.5, rate=2.0**29), peers={
            1: SimpleNamespace(group=2, rank=0, estimates=estimates, plan=None),
            2: SimpleNamespace(group=1, rank=3, estimates={}, plan=7, costs=None),
            3: SimpleNamespace(group=3, rank=1, estimates={}, plan=7, costs=Costs(1.5, 2.0, 2.0**28, 0.25, 2**29, 4.0)),
        },
    ))  # fmt: skip
    assert list(metrics._estimates(rank)) == [
        *(("kvproto_cost_seconds", ("1", "3", of), cost)
          for of, cost in (("piece", 0.5), ("launch", 3e-4), ("message", 2e-4), ("gib", 2), ("gib_in_pieces", 0),
                           ("gib_copied", 2.0**30 / 2e12))),
        ("kvproto_route_seconds", ("2", "0", "staged"), 0.25),
        *(("kvproto_cost_seconds", ("3", "1", of), cost)
          for of, cost in (("piece", 1.5), ("launch", 0.25), ("message", 4.0), ("gib", 2.0**29),
                           ("gib_in_pieces", 4.0), ("gib_copied", 2.0))),
    ]  # fmt: skip


def test_a_ring_s_bytes_by_what_has_become_of_its_regions() -> None:
    given = SimpleNamespace(grant=1, state=DGrant.FILLING)
    quarantined, gone = (SimpleNamespace(grant=grant, state=DGrant.QUARANTINED) for grant in (3, 9))
    spans = {1: (0, 100), 2: (100, 150), 3: (150, 157), 4: (157, 160)}
    live = {grant: SimpleNamespace(grant=grant, offset=a, end=b) for grant, (a, b) in spans.items()}
    ring = SimpleNamespace(live=live, freed={4}, blocked={2}, size=1000, mark=(3, 400), round=5, head=30)
    rank = cast("Any", SimpleNamespace(grants={1: {1: quarantined, 2: given, 3: gone}}, ring=ring, space_queue=[1, 2]))
    ages, loop = SimpleNamespace(oldest=lambda now: now / 2), SimpleNamespace(now=9.0)
    endpoint = SimpleNamespace(_ages=ages, _loop=loop, _data=SimpleNamespace(moved={"pages": 8}))
    told = {each[:2]: each.value for each in metrics._decode(rank, endpoint) if each.name != "kvproto_grants"}
    assert told == {
        ("kvproto_bytes", ("pages",)): 8,
        ("kvproto_ring_bytes", ("size",)): 1000, ("kvproto_ring_bytes", ("used",)): 107,
        ("kvproto_ring_bytes", ("promised",)): 50, ("kvproto_ring_bytes", ("quarantined",)): 7,
        ("kvproto_ring_lag_bytes", ()): 1630, ("kvproto_oldest_grant_seconds", ()): 4.5, ("kvproto_space_queue", ()): 2,
    }  # fmt: skip


def test_an_endpoint_that_was_closed_is_down(pair: Pair) -> None:
    decode = pair.decodes[0]
    exporter = MetricsExporter(decode)
    (up, *_) = exporter.collect()
    assert [sample.value for sample in up.samples] == [1.0]
    decode.close()
    (up, *_) = exporter.collect()
    assert [sample.value for sample in up.samples] == [0.0]


# ------------------------------------------------------------------------------------------------ kvproto top
def test_top_shows_running_ranks(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    room = pair.open(20)
    pair.finish(room)
    pair.open(20)
    pair.start()
    exporter = MetricsExporter(*pair.endpoints)
    url = f"http://127.0.0.1:{exporter.serve()}/metrics"
    try:
        assert main(["top", url, "--once"]) == 0
        former = read(url)
        text = capsys.readouterr().out
        assert main(["top", url, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
    finally:
        exporter.close()
    assert [(each["side"], each["group"], each["rank"]) for each in told] == [
        ("decode", "2", "0"), ("prefill", "1", "0"), ("prefill", "1", "1"),
    ]  # fmt: skip
    assert told[0]["numbers"]["outcomes_total"] == {"NONE": 1.0} and told[0]["numbers"]["up"] == 1.0
    for words in ("decode rank 0 of group 2\n", "prefill rank 1 of group 1\n", "outcomes          NONE 1\n",
                  "UP 2; most beats missed 0", "used 0 %", "held 0, free 4; queue 0", "99 % within"):  # fmt: skip
        assert words in text, text
    assert "closed" not in text and "as of" not in text
    later: Ranks = {who: {key: value + 6.0 for key, value in told.items()} for who, told in former.items()}
    assert "NONE 7 (3.0/s)" in screen(later, former, 2.0)
    assert main(["top", url, "--once"]) == 2, "nobody is there any more"
    assert "127.0.0.1" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- the page can be followed
def named(text: str) -> set[str]:
    """The metrics that a text names, as they are called without what Prometheus puts behind them."""
    names = set(re.findall(r"\bkvproto_[a-z_]+\b", text))
    return {name if name in SERVED else SUFFIX.sub("", name) for name in names}


def test_every_metric_on_the_page_is_served_and_the_other_way_round(pair: Pair) -> None:
    rules = " ".join(rule["expr"] for rule in RULES)
    assert named(PAGE) | named(rules) <= SERVED
    untold = SERVED - named(PAGE) - {"kvproto_open_rooms", "kvproto_ring_lag_bytes", "kvproto_messages_sent",
                                     "kvproto_messages_received", "kvproto_watermark_waits"}  # fmt: skip
    assert not untold
    exporter = MetricsExporter(*pair.endpoints)
    assert {family.name for family in exporter.collect()} == SERVED | FORMER


def test_what_is_served_is_prometheus_own_format(pair: Pair) -> None:
    from urllib.request import urlopen

    pair.finish(pair.open(20))
    pair.start()
    exporter = MetricsExporter(*pair.endpoints)
    with urlopen(f"http://127.0.0.1:{exporter.serve()}/metrics") as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    exporter.close()
    assert set(families) == SERVED | FORMER
    assert {"kvproto_entries", "kvproto_fallbacks", "kvproto_link_silent_beats", "kvproto_counts"} == FORMER
    for name, former in FORMER_NAMES.items():
        served = [(sample.labels, sample.value) for sample in families[name].samples]
        assert served == [(sample.labels, sample.value) for sample in families[former].samples]
    assert families["kvproto_entries"].samples and families["kvproto_link_silent_beats"].samples
    for name, metric in METRICS.items():
        for sample in families[name].samples:
            wanted = {"side", "group", "rank", *metric.labels}
            assert set(sample.labels) - {"le"} == wanted, sample


def test_the_rules_ask_for_labels_that_there_are() -> None:
    labels = {"side", "group", "rank", "le"} | {label for metric in METRICS.values() for label in metric.labels}
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        assert set(re.findall(r"(\w+)!?[=~]+\"", rule["expr"])) <= labels, rule
        for group in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            assert {word.strip() for word in group.split(",")} <= labels, rule
        assert set(re.findall(r"\bkvproto:\w+", rule["expr"])) <= recorded, rule
        assert "record" in rule or rule["annotations"]["summary"]


def test_every_state_on_the_page_is_one_of_the_tables() -> None:
    known = {state.name for kind in vars(states).values() if isinstance(kind, type) and issubclass(kind, State)
             for state in kind}  # fmt: skip
    told = set(re.findall(r"`([A-Z_]{4,})`", PAGE))
    assert told <= known
    sends = {state.name for state in states.PSend} - {"NEW", "DONE", "STOPPED", "DRAINING"}
    rooms = {state.name for kind in (states.PRoom, states.DRoom) for state in kind}
    assert sends | rooms - {"UNKNOWN", "DONE", "FAILED", "ABORTED"} <= told


def test_the_commands_on_the_page_work(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are run as they stand, on the traces of a room that failed."""
    traces = tmp_path / "traces"
    traces.mkdir()
    for endpoint in pair.endpoints:
        endpoint.trace_dir = traces
    room = pair.open(20, room_id=7)
    pair.decodes[0].abort(room)
    pair.pump(lambda: pair.over(room))
    pair.pump(lambda: sum(path.stat().st_size > 0 for path in traces.iterdir()) == len(pair.endpoints))
    pair.start()
    exporter = MetricsExporter(*pair.endpoints)
    monkeypatch.chdir(tmp_path)
    found = [line.split("#")[0] for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
             for line in block.splitlines()]  # fmt: skip
    assert len(found) == 4
    port = exporter.serve()
    try:
        for line in found:
            words = shlex.split(line.replace("9400", str(port)))
            files = {word: sorted(map(str, tmp_path.glob(word))) for word in words if "*" in word}
            argv = [each for word in words[1:] for each in files.get(word, [word])]
            assert words[0] == "kvproto" and argv[0] in COMMANDS
            if argv[0] == "top" and "--once" not in argv:
                argv.append("--once")
            assert main(argv) == 0, line
    finally:
        exporter.close()
    said = capsys.readouterr().out
    assert "OPEN tokens 20" in said and "as the tables say" in said


def test_the_python_on_the_page_works(pair: Pair) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"prefill": pair.prefills[0], "decode": pair.decodes[0]}
    exec(code.replace("9400", "0"), names)  # noqa: S102  # the page's own
    names["exporter"].close()


def test_what_a_fleet_does_without_a_stop_has_tests() -> None:
    part = PAGE.split("### What a fleet does without a stop")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 10
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(\w+)`|`make ([\w-]+)`", row)
        assert len(named) == 2, row
        for file, test, target in named:
            where, what = (ROOT / "tests" / file, f"def {test}(") if test else (ROOT / "Makefile", f"\n{target}:")
            assert what in where.read_text(), f"{where.name} has no {what}"
