"""The loop by itself: the order and amount of work in a pass, and the sleep after it.

Party, control plane and clock are scripts; the loop between them is the real one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal
from threading import get_ident
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvproto.errors import EndpointError
from kvproto.fsm.vocabulary import Effect, Event
from kvproto.loop.answer import Answer
from kvproto.loop.event_loop import (
    DEAF,
    DEAF_S,
    EVERY,
    FAST,
    HELD_S,
    LIMIT,
    LOOK_S,
    PASS_S,
    PERIOD,
    REST_S,
    SLOW,
    STILL_S,
    EventLoop,
    Handlers,
)
from kvproto.loop.loop_thread import LONGEST_WAIT

NEVER = float("inf")


class Said(Effect, frozen=True):
    """An effect of this number."""

    number: int


class Happened(Event, frozen=True):
    """An event of this number."""

    number: int


class Script:
    """Party, control plane, clock and a source in one: requests are recorded, answers are set."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.answers: dict[int, list[Effect]] = {}
        self.next_deadline = NEVER
        self.outboxes = SimpleNamespace(held=False, due_in=NEVER)
        self.frames: list[tuple[Any, bytes]] = []
        self.time, self.reals, self.asked = 100.0, 0.0, 0
        #: what each look at the running clock costs
        self.cost = 0.0
        #: seconds until timers may end
        self.stood = 0.0
        self.moves, self.works = deque[bool](), False
        #: what would wake the loop, and whether its sleep ends before its time
        self.rests: list[int] | None = None
        self.woken = False

    # the party
    def handle(self, event: Happened, now: float) -> list[Effect]:
        self.told.append(("event", event.number, now))
        return self.answers.get(event.number, [])

    def tick(self, now: float, limit: int) -> list[Effect]:
        self.told.append(("tick", now, limit))
        self.next_deadline = NEVER
        return []

    # the control plane
    def flush(self) -> None:
        self.told.append("flush")

    def receive(self, most: int) -> list[tuple[Any, bytes]]:
        found, self.frames = self.frames[:most], self.frames[most:]
        return found

    def wake(self) -> None:
        self.told.append("wake")

    def wait(self, seconds: float, more: Sequence[int] = ()) -> bool:
        self.told.append(("wait", seconds, more) if more else ("wait", seconds))
        return self.woken

    # the clock
    def now(self) -> float:
        return self.time

    def again(self) -> float:
        self.asked += 1
        return self.time + self.asked / 8

    def real(self) -> float:
        self.reals += self.cost
        return self.reals

    def allow(self, seconds: float) -> None:
        self.told.append(("allow", seconds))

    def awake(self) -> float:
        return self.stood

    # a source
    def poll(self) -> bool:
        self.told.append("source")
        if self.moves and self.moves[0] is None:
            raise OSError("planted")
        return bool(self.moves) and self.moves.popleft()

    def busy(self) -> bool:
        return self.works

    def alarms(self) -> list[int] | None:
        self.told.append("alarms")
        return self.rests


class ToldLoop(EventLoop):
    """A loop that tells what only a subclass knows."""

    script: Script

    def hear(self, peer: Any, frame: bytes) -> None:
        self.script.told.append(("frame", peer, frame))

    def fault(self, what: str, error: BaseException) -> None:
        self.script.told.append(("fault", what, str(error)))

    def failed(self, effect: Effect, error: BaseException) -> None:
        self.script.told.append(("failed", effect, str(error)))

    def passed(self) -> None:
        self.script.told.append("passed")


class Bulky:
    """Work that is dear: so many pieces of it."""

    def __init__(self, script: Script, left: int) -> None:
        self.script, self.left = script, left

    def __len__(self) -> int:
        return self.left

    def run(self) -> bool:
        self.script.told.append("bulk")
        self.left -= bool(self.left)
        return self.left >= 0 and bool(self.script.told)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def loop(script: Script) -> ToldLoop:
    made = ToldLoop(cast("Any", script), cast("Any", script), cast("Any", script))
    made.script = script
    made.second = NEVER
    return made


def of(script: Script, kind: str) -> list[Any]:
    """The records of this kind."""
    return [each for each in script.told if each == kind or (isinstance(each, tuple) and each[0] == kind)]


# ------------------------------------------------------------------------------------------------- effects
def test_handlers_are_as_many_as_the_effects(loop: ToldLoop) -> None:
    heard = list[Said]()
    cases: list[tuple[Handlers, set[type[Said]]]] = [({}, {Said}), ({Said: heard.append}, set())]
    for handlers, effects in cases:
        with pytest.raises(TypeError, match=r"^handlers and effects differ by Said$"):
            loop.install(handlers, effects)
    assert not loop.handlers
    loop.install({Said: heard.append}, {Said})
    loop.submit([Said(1)])
    assert heard == [Said(1)]


def test_effects_are_carried_out_in_order_and_what_they_raise_follows_each_at_its_time(
    loop: ToldLoop, script: Script
) -> None:
    def handler(effect: Said) -> None:
        script.told.append(effect.number)
        if effect.number == 1:
            loop.raise_event(Happened(7))
            loop.raise_event(Happened(8))

    loop.handlers[Said] = handler
    script.answers[7] = [Said(3)]
    loop.submit([Said(1), Said(2)])
    assert script.told == [1, 2, ("event", 7, 100.125), 3, ("event", 8, 100.25)]
    assert loop.now == 100.25


def test_what_is_late_is_done_once_when_no_event_is_left_and_may_raise_more(loop: ToldLoop, script: Script) -> None:
    def late() -> None:
        script.told.append("late")
        loop.raise_event(Happened(2))

    def broken() -> None:
        raise ZeroDivisionError

    loop.at_end += [late, broken]
    loop.raise_event(Happened(1))
    loop.submit([])
    assert [each if isinstance(each, str) else cast("Any", each)[:2] for each in script.told] == [
        ("event", 1), "late", ("fault", "what was put off"), ("event", 2),
    ]  # fmt: skip
    assert not loop.at_end and loop.counts["faults"] == 1


def test_a_fault_of_a_handler_is_told_and_the_next_effect_carried_out(loop: ToldLoop, script: Script) -> None:
    def handler(effect: Said) -> None:
        if effect.number == 1:
            raise ValueError("planted")
        script.told.append(effect.number)

    loop.submit([Said(5)])
    loop.handlers[Said] = handler
    loop.submit([Said(1), Said(2)])
    assert script.told == [
        ("fault", str(Said(5)), "no handler carries it out"), ("fault", str(Said(1)), "planted"),
        ("failed", Said(1), "planted"), 2,
    ]  # fmt: skip
    assert loop.counts["faults"] == 2


def test_settle_does_what_was_raised_and_nothing_else(loop: ToldLoop, script: Script) -> None:
    loop.at_end.append(lambda: script.told.append("late"))
    loop.settle()
    assert not script.told
    loop.raise_event(Happened(1))
    loop.settle()
    assert script.told == [("event", 1, 100.125), "late"]


# ------------------------------------------------------------------------------------------------- a pass
def test_a_pass_takes_calls_sources_frames_timers_and_bulk_in_this_order(loop: ToldLoop, script: Script) -> None:
    loop.claim()
    loop.sources.append(cast("Any", script))
    loop.background.append(Bulky(script, 1))
    loop.call(lambda: script.told.append("call"))
    loop.call(Happened(3))
    script.frames, script.next_deadline = [("peer", b"x")], 100.0
    script.outboxes.held = True
    loop.second = 100.0
    assert loop.poll() and loop.turns == 1
    assert script.told == [
        "call", ("event", 3, 100.25), "source", ("frame", "peer", b"x"), ("tick", 100.25, LIMIT),
        "flush", "bulk", "flush", "passed",
    ]  # fmt: skip
    assert loop.second == 100.25 + PERIOD


@pytest.mark.parametrize("what", ["call", "source", "frame", "timer", "bulk"])
def test_each_of_them_alone_is_something_that_happens(loop: ToldLoop, script: Script, what: str) -> None:
    loop.sources.append(cast("Any", script))
    assert not loop.poll() and not sum(loop.passes.counts)
    pace = loop._pace
    assert pace == FAST * 1.5
    if what == "call":
        loop.call(lambda: None)
    elif what == "source":
        script.moves.append(True)
    elif what == "frame":
        script.frames = [("peer", b"")]
    elif what == "timer":
        script.next_deadline = 100.0
    else:
        loop.background.append(Bulky(script, 1))
    assert loop.poll() and loop._pace == FAST and sum(loop.passes.counts) == 1


def test_an_idle_loop_that_can_receive_nothing_ends_soon(
    loop: ToldLoop, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "receive", lambda _most: 1 // 0)
    for _ in range(DEAF):
        loop.poll()
        assert loop.due <= DEAF_S, "no frame ends its sleep, and no timer is near"
    with pytest.raises(ZeroDivisionError):
        loop.poll()
    monkeypatch.undo()
    assert not loop.poll() and loop.due == NEVER


def test_its_first_pass_is_told_and_then_one_a_second(loop: ToldLoop, script: Script) -> None:
    made = ToldLoop(cast("Any", script), cast("Any", script), cast("Any", script))
    made.script = script
    for script.time in (100.0, 100.0 + PERIOD / 2, 100.0 + PERIOD):
        made.poll()
    assert script.told == ["passed", "passed"]


def test_nothing_is_let_go_where_nothing_is_held_and_no_timer_before_its_time(loop: ToldLoop, script: Script) -> None:
    script.next_deadline, loop.second = 100.5, 100.5
    assert not loop.poll() and not script.told
    for _ in range(20):
        loop.poll()
    assert loop._pace == SLOW


def test_an_event_that_a_source_raises_is_handled_before_the_next_source(loop: ToldLoop, script: Script) -> None:
    class Raising(Script):
        def poll(self) -> bool:
            loop.raise_event(Happened(1))
            return False

    script.moves.append(cast("Any", None))
    loop.sources += [cast("Any", Raising()), cast("Any", script)]
    assert not loop.poll()
    assert script.told == [("event", 1, 100.125), "source", ("fault", "Script", "planted")]


def test_a_call_that_raises_is_told_and_what_it_raised_is_handled(loop: ToldLoop, script: Script) -> None:
    def wrong() -> None:
        loop.raise_event(Happened(1))
        raise ValueError("planted")

    loop.call(wrong)
    assert loop.poll()
    assert script.told == [("fault", "a call of the engine", "planted"), ("event", 1, 100.25)]
    assert loop.backlog == (0, 0)


#: by part of a pass, in their order: what its fault is called
PARTS = {
    "call": "a call of the engine", "source": "Script", "frame": "a frame from peer", "flush": "sending",
    "bulk": "Bulky", "passed": "what is done once a second",
}  # fmt: skip


@pytest.mark.parametrize("what", PARTS)
def test_whatever_raises_in_a_pass_is_told_and_the_rest_of_the_pass_is_done(
    loop: ToldLoop, script: Script, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    bulk = Bulky(script, 1)
    owners: dict[str, tuple[object, str]] = {
        "source": (script, "poll"), "frame": (loop, "hear"), "flush": (script, "flush"), "bulk": (bulk, "run"),
        "passed": (loop, "passed"),
    }  # fmt: skip

    def fail(*_: object) -> None:
        script.told.append(what)
        raise OSError("planted")

    if what in owners:
        monkeypatch.setattr(*owners[what], fail)
    loop.call(fail if what == "call" else lambda: script.told.append("call"))
    loop.sources.append(cast("Any", script))
    loop.background.append(bulk)
    script.frames, script.outboxes.held, loop.second = [("peer", b"x")], True, 100.0
    assert loop.poll()
    found = [each if isinstance(each, str) else cast("Any", each)[:2] for each in script.told]
    done = ["frame" if each == ("frame", "peer") else each for each in found if each != ("fault", PARTS[what])]
    assert done == [*PARTS][:5] + ["flush"] * (what != "bulk") + ["passed"]
    assert len(found) - len(done) == done.count(what) == loop.counts["faults"]


# ------------------------------------------------------------------------------------------------- bounds
def test_a_pass_takes_so_many_calls_and_frames_and_the_next_one_the_rest(loop: ToldLoop, script: Script) -> None:
    for _ in range(LIMIT + 2):
        loop.call(lambda: script.told.append("call"))
    script.frames = [("peer", b"")] * (LIMIT + 3)
    loop.poll()
    assert len(of(script, "call")) == len(of(script, "frame")) == LIMIT
    assert loop.backlog == (2, 0) and len(script.frames) == 3
    loop.poll()
    assert len(of(script, "call")) == LIMIT + 2 and len(of(script, "frame")) == LIMIT + 3


@pytest.mark.parametrize("what", ["call", "frame"])
def test_a_long_pass_looks_at_its_sources_and_ends_early(loop: ToldLoop, script: Script, what: str) -> None:
    """The clock is looked at once when a pass begins, and once after `EVERY` - 1 of them."""
    loop.sources.append(cast("Any", script))
    script.cost = PASS_S * 1.5
    if what == "call":
        for _ in range(2 * EVERY):
            loop.call(lambda: script.told.append("call"))
    else:
        script.frames = [("peer", b"")] * (2 * EVERY)
    assert loop.poll()
    assert len(of(script, what)) == EVERY - 1
    assert len(of(script, "source")) == 2 and "flush" in script.told
    assert loop.backlog == ((EVERY + 1, 0) if what == "call" else (0, EVERY + 1)) and loop.due == 0


def test_frames_that_wait_count_among_those_of_the_next_pass(loop: ToldLoop, script: Script) -> None:
    script.cost, script.frames = PASS_S * 1.5, [("peer", b"")] * (LIMIT + 9)
    loop.poll()
    assert loop.backlog == (0, LIMIT - EVERY + 1)
    loop.poll()
    assert len(script.frames) == 9 - EVERY + 1 and loop.backlog == (0, LIMIT - EVERY + 1)


def test_frames_that_wait_are_heard_before_those_that_came_later(loop: ToldLoop, script: Script) -> None:
    sent = [("peer", bytes([number])) for number in range(2 * EVERY)]
    script.cost, script.frames = PASS_S * 1.5, sent[: EVERY + 1]
    loop.poll()
    script.frames = sent[EVERY + 1 :]
    while loop.backlog != (0, 0):
        loop.poll()
    assert script.told and of(script, "frame") == [("frame", *each) for each in sent]


def test_what_is_said_leaves_in_the_middle_of_a_pass_when_it_has_been_held_too_long(
    loop: ToldLoop, script: Script
) -> None:
    script.cost, script.reals = HELD_S * 0.75, 50.0
    for _ in range(4 * EVERY):
        loop.call(lambda: script.told.append("call"))
    loop.poll()
    assert len(of(script, "call")) == 4 * EVERY
    assert len(of(script, "flush")) == 2, "at every second look"


def test_what_has_been_held_for_just_its_time_is_held_on(loop: ToldLoop, script: Script) -> None:
    script.cost = HELD_S
    for turns, flushes in ((EVERY, 0), (2 * EVERY, 1)):
        for _ in range(turns):
            loop.call(lambda: None)
        loop.poll()
        assert len(of(script, "flush")) == flushes


@pytest.mark.parametrize(("cost", "turns", "looks"), [(1.0, 1, 0), (1.0, 2, 1), (0.75, 3, 1), (0.75, 4, 2)])
def test_sources_are_looked_at_in_between_when_what_is_cheap_has_taken_longer_than_a_look_is_worth(
    loop: ToldLoop, script: Script, cost: float, turns: int, looks: int
) -> None:
    loop.sources.append(cast("Any", script))
    script.cost = LOOK_S * cost
    for _ in range(turns * EVERY):
        loop.call(lambda: None)
    loop.poll()
    assert len(of(script, "source")) == looks + 1, "and once when the calls are done"


def test_a_pass_that_takes_just_its_time_goes_on(loop: ToldLoop, script: Script) -> None:
    script.cost = PASS_S
    for _ in range(EVERY):
        loop.call(lambda: script.told.append("call"))
    loop.poll()
    assert len(of(script, "call")) == EVERY


# ------------------------------------------------------------------------------------------------- sleeping
def test_it_sleeps_until_the_first_of_timer_and_outbox_and_shortly_while_something_is_in_flight(
    loop: ToldLoop, script: Script
) -> None:
    loop.sources.append(cast("Any", script))
    loop.poll()
    assert loop.due == NEVER
    script.next_deadline, script.outboxes.due_in = 102.5, 4.0
    assert loop.due == 2.5
    script.outboxes.due_in = 0.5
    assert loop.due == 0.5
    script.works = True
    assert loop.due == loop._pace
    script.next_deadline = 99.0
    assert loop.due == 0


def test_no_timer_ends_before_a_process_that_was_stopped_has_gone_on_for_a_moment(
    loop: ToldLoop, script: Script
) -> None:
    script.next_deadline, script.stood = 99.0, 0.25
    loop.poll()
    assert not of(script, "tick") and loop.due == 0.25
    script.stood = 0.0
    loop.poll()
    assert len(of(script, "tick")) == 1


@pytest.mark.parametrize("what", ["call", "frame", "bulk"])
def test_it_does_not_sleep_on_what_waits(loop: ToldLoop, script: Script, what: str) -> None:
    loop.poll()
    assert loop.due > 0
    if what == "call":
        loop.call(Happened(1))
    elif what == "frame":
        loop._arrived.append((cast("Any", "peer"), b""))
    else:
        loop.background += [Bulky(script, 0), Bulky(script, 1)]
    assert loop.due == 0
    loop.wait()
    assert not of(script, "wait")


def test_a_wait_is_no_longer_than_it_may_be(loop: ToldLoop, script: Script) -> None:
    loop.poll()
    loop.wait()
    loop.wait(0.25)
    script.next_deadline = 100.125
    loop.wait(0.25)
    times = [LONGEST_WAIT, 0.25, 0.125]
    assert script.told == [told for time in times for told in (("allow", time), ("wait", time))]


def test_a_call_wakes_the_loop_of_another_thread_alone(loop: ToldLoop, script: Script) -> None:
    loop.call(Happened(1))
    loop.poll()
    script.told.clear()
    loop.call(Happened(2))
    assert not script.told
    loop._owner = (loop._owner or 0) + 1
    loop.call(Happened(3))
    assert script.told == ["wake"]


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_a_loop_that_is_over_takes_no_call(loop: ToldLoop, how: str) -> None:
    setattr(loop, how, True if how == "closed" else ValueError("planted"))
    with pytest.raises(EndpointError):
        loop.call(Happened(1))
    assert loop.backlog == (0, 0)


def test_another_thread_s_loop_is_not_polled(loop: ToldLoop) -> None:
    loop.poll()
    loop._owner = (loop._owner or 0) + 1
    for asked in cast("list[Callable[[], object]]", [loop.poll, loop.wait]):
        with pytest.raises(EndpointError):
            asked()


@pytest.mark.parametrize(
    ("cost", "held", "flushes"), [(LOOK_S * 1.5, True, 1), (LOOK_S, True, 0), (LOOK_S * 1.5, False, 0)]
)
def test_what_calls_said_leaves_before_the_sources_are_looked_at_if_they_took_their_time(
    loop: ToldLoop, script: Script, cost: float, held: bool, flushes: int
) -> None:
    loop.sources.append(cast("Any", script))
    script.cost, script.outboxes.held = cost, held
    loop.call(lambda: script.told.append("call"))
    loop.poll()
    told = script.told[: script.told.index("source")]
    assert told == ["call"] + ["flush"] * flushes


def stand_still(loop: ToldLoop, script: Script) -> None:
    """Pass until nothing has moved for so long that the sources are asked for alarms."""
    script.works = True
    for _ in range(10):
        loop.poll()
    script.reals += STILL_S * 1.1
    loop.poll()
    script.told.clear()


@pytest.mark.parametrize(("rests", "sleep"), [(None, (SLOW,)), ([], (REST_S,)), ([5, 7], (REST_S, [5, 7]))])
def test_a_loop_that_stands_still_sleeps_until_its_sources_wake_it(
    loop: ToldLoop, script: Script, rests: list[int] | None, sleep: tuple[object, ...]
) -> None:
    loop.sources.append(cast("Any", script))
    script.rests = rests
    stand_still(loop, script)
    loop.wait()
    assert script.told == ["alarms", ("allow", sleep[0]), ("wait", *sleep)]


def test_a_bell_ends_every_sleep(loop: ToldLoop, script: Script) -> None:
    loop.bells = [9]
    loop.sources.append(cast("Any", script))
    loop.wait()
    assert script.told[-1] == ("wait", LONGEST_WAIT, [9])
    script.rests = [5]
    stand_still(loop, script)
    loop.wait()
    assert script.told[-1] == ("wait", REST_S, [9, 5])


def test_sources_are_not_asked_for_alarms_before_or_while_they_have_nothing_to_do(
    loop: ToldLoop, script: Script
) -> None:
    loop.sources.append(cast("Any", script))
    script.works, script.rests = True, []
    script.moves.append(True)
    for _ in range(10):
        loop.poll()
    script.told.clear()
    loop.wait()
    assert script.told == [("allow", SLOW), ("wait", SLOW)], "it has just moved"
    script.works, script.reals = False, script.reals + 2 * STILL_S
    loop.poll()
    script.told.clear()
    loop.wait()
    assert script.told == [("allow", LONGEST_WAIT), ("wait", LONGEST_WAIT)]


def test_only_a_loop_that_has_slowed_down_and_moved_long_ago_asks_for_alarms(loop: ToldLoop, script: Script) -> None:
    loop.sources.append(cast("Any", script))
    script.rests, script.works = [5], True
    for _ in range(10):
        loop.poll()
    script.reals = STILL_S
    loop.poll()
    assert loop.rest(LONGEST_WAIT) == (SLOW, None), "just so long is not long enough"
    script.reals = 1000.0
    script.moves.append(True)
    loop.poll()
    for _ in range(10):
        loop.poll()
    assert loop.rest(LONGEST_WAIT) == (SLOW, None), "it has moved a moment ago"
    script.moves.append(True)
    loop.poll()
    script.reals += 2 * STILL_S
    loop.poll()
    sleep, alarms = loop.rest(LONGEST_WAIT)
    assert sleep < SLOW and alarms is None, "one long pass is no rest"


def test_who_was_woken_while_a_source_is_polled_goes_on_as_slowly(loop: ToldLoop, script: Script) -> None:
    loop.sources.append(cast("Any", script))
    script.woken = True
    stand_still(loop, script)
    loop.wait()
    loop.poll()
    assert loop.rest(LONGEST_WAIT)[0] == SLOW


@pytest.mark.parametrize("woken", [False, True])
def test_a_loop_that_was_woken_from_its_rest_looks_fast(loop: ToldLoop, script: Script, woken: bool) -> None:
    loop.sources.append(cast("Any", script))
    script.rests, script.woken = [5], woken
    stand_still(loop, script)
    loop.wait()
    loop.poll()
    script.told.clear()
    loop.wait()
    assert script.told[-1] == (("wait", pytest.approx(FAST * 1.5)) if woken else ("wait", REST_S, [5]))


def test_one_source_that_has_to_be_polled_keeps_the_loop_from_its_rest(loop: ToldLoop, script: Script) -> None:
    other = Script()
    other.works = True
    loop.sources += [cast("Any", script), cast("Any", other)]
    script.rests = [5]
    stand_still(loop, script)
    loop.wait()
    assert script.told[-1] == ("wait", SLOW)


def heard(script: Script, what: str) -> list[object]:
    return [each for each in script.told if isinstance(each, tuple) and each[0] == what]


def planted(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_on_its_own_thread_what_is_asked_is_done_at_once(loop: ToldLoop) -> None:
    assert loop.ask(lambda: 5) == 5
    assert loop._owner == get_ident(), "the first to ask is its thread"
    assert loop.ask(lambda: 6) == 6
    with pytest.raises(ValueError, match="planted"):
        loop.ask(planted(ValueError("planted")))
    assert loop.backlog == (0, 0)


def test_another_thread_s_question_is_answered_by_the_next_pass(loop: ToldLoop, script: Script) -> None:
    loop.poll()
    with ThreadPoolExecutor(1) as other:
        for action in (get_ident, planted(SystemExit("planted"))):
            answer = other.submit(loop.ask, action)
            while "wake" not in script.told:
                time.sleep(0)
            script.told.clear()
            loop.poll()
            if action is get_ident:
                assert answer.result(30) == get_ident()
            else:
                with pytest.raises(SystemExit, match="planted"):
                    answer.result(30)
    assert not heard(script, "fault"), "it is the caller's"


def test_who_is_interrupted_waits_for_an_action_that_has_begun(
    loop: ToldLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let, waits, wait = Signal(), Signal(), list[float](), Answer.wait

    def action() -> None:
        begun.set()
        let.wait(30)

    def waited(answer: Answer, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 1:
            own.submit(loop.poll)
            begun.wait(30)
            raise KeyboardInterrupt("planted")
        let.set()
        return wait(answer, seconds)

    monkeypatch.setattr(Answer, "wait", waited)
    with ThreadPoolExecutor(1) as own:
        own.submit(loop.poll).result(30)
        with pytest.raises(KeyboardInterrupt, match="planted"):
            loop.ask(action)
        over = let.is_set()
        let.set()
    assert over and waits == [LONGEST_WAIT] * 2, "the next call sees its effect"


def test_who_waits_for_an_answer_is_told_when_the_loop_is_over(
    loop: ToldLoop, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproto.loop.event_loop.LONGEST_WAIT", 0.001)
    loop.poll()
    with ThreadPoolExecutor(1) as other:
        answer = other.submit(loop.ask, get_ident)
        while "wake" not in script.told:
            time.sleep(0)
        loop.closed = True
        with pytest.raises(EndpointError):
            answer.result(30)


def test_of_what_asks_the_process_to_end_the_first_is_raised_once(loop: ToldLoop) -> None:
    for error in (ValueError("none of these"), SystemExit("first"), KeyboardInterrupt("second")):
        loop.hold(error)
    with pytest.raises(SystemExit, match="first"):
        loop.poll()
    loop.poll()


def test_what_ends_a_sleep_ends_the_wait(loop: ToldLoop, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> bool:
        raise KeyboardInterrupt("planted")

    monkeypatch.setattr(script, "wait", wait)
    with pytest.raises(KeyboardInterrupt, match="planted"):
        loop.wait()


def test_a_broken_loop_is_not_polled_on_its_own_thread(loop: ToldLoop) -> None:
    loop.poll()
    loop.broken = ValueError("planted")
    with pytest.raises(EndpointError):
        loop.poll()


def test_what_the_last_of_a_pass_raises_is_handled_in_it(loop: ToldLoop, script: Script) -> None:
    class Raising(Bulky):
        def run(self) -> bool:
            loop.raise_event(Happened(3))
            return False

    loop.background.append(cast("Any", Raising(script, 0)))
    loop.poll()
    assert heard(script, "event") == [("event", 3, 100.125)]


def test_what_a_call_raises_is_handled_before_the_next_call(loop: ToldLoop, script: Script) -> None:
    loop.call(lambda: loop.raise_event(Happened(3)))
    loop.call(lambda: script.told.append("second"))
    loop.poll()
    assert script.told[0] in heard(script, "event") and script.told[1] == "second"


def test_the_last_passes_are_done_until_nothing_goes_on(loop: ToldLoop, script: Script) -> None:
    left = [True, True, True, False]
    loop.linger(lambda: left.pop(0), 5.0)
    assert (left, loop.turns) == ([], 3)
    assert heard(script, "wait") == [("wait", SLOW)] * 3
    loop.linger(lambda: True, -1.0)
    assert loop.turns == 3, "its time was over"
