"""Every time that a module of the running code names lies between two bounds, each for a reason.

Behaviour tests run on clocks of their own, so a constant that is off by twenty or a thousand times fails none of them:
it shows on a machine, as a loop that burns a core or an engine that waits.  The table here is by hand; a constant that
is new has no row, and says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from support import fake_vllm

from kvproto.adapters.request_events import Timing as RequestTiming
from kvproto.fsm.timing import Timer
from kvproto.protocol.timing import Timing

fake_vllm.install()  # the constants of vLLM's adapter stand in modules that import vLLM
PACKAGE = Path(__file__).parent.parent / "kvproto"
FOLDERS = (
    "adapters", "cli", "data", "endpoint", "fsm", "io", "layout", "loop", "metrics", "observe", "protocol", "rank",
)  # fmt: skip
#: names of times that do not end in _S
OTHERS = {
    "FAST", "SLOW", "PERIOD", "LONGEST_WAIT", "GLANCE", "QUANTUM", "ANSWER", "AGAIN", "BEAT", "SECONDS", "TTL",
    "WAIT", "PATIENCE",
}  # fmt: skip
#: by module and name: the least and the most, in seconds, and why
BOUNDS: dict[str, tuple[float, float, str]] = {
    "adapters.prefill_worker.WITHDRAW_S": (2.0, 30.0, "longer than a write that is in flight; an engine's step stands"),
    "adapters.prefill_worker.PAUSE_S": (1e-5, 2e-4, "an engine's step waits: a fraction of a step, and no busy loop"),
    "adapters.introductions.STANDS_S": (20.0, 120.0, "an instance restarts meanwhile; one with a new layout waits"),
    "adapters.sglang.http_server.REFUSED_S": (0.02, 0.5, "who is refused reads why; it holds a descriptor as long"),
    "adapters.sglang.manager.GLANCE": (0.005, 0.05, "an HTTP answer on a LAN; the scheduler stands meanwhile"),
    "adapters.sglang.bootstrap.ANSWER": (1.0, 15.0, "an HTTP answer of a busy process; less than a card"),
    "adapters.sglang.bootstrap.AGAIN": (0.2, 5.0, "an instance that starts is found soon, and asked no hundred times"),
    "adapters.sglang.lacking_cards.GONE_S": (6.5, 20.0, "two answers that time out; a router waits for it"),
    "adapters.sglang.bootstrap.BEAT": (0.5, 5.0, "a rank that a server has lost is known again; a request a rank"),
    "adapters.sglang.bootstrap_ranks.LIVES_S": (4.0, 15.0, "several beats; an instance that starts anew waits as long"),
    "adapters.sglang.http_server.SECONDS": (1.0, 15.0, "a request on a LAN; one that says nothing holds a descriptor"),
    "adapters.vllm.ranks.TTL": (20.0, 300.0, "a decode instance comes within it; blocks are held meanwhile"),
    "adapters.vllm.ranks.WAIT": (20.0, 300.0, "a request that is queued for its forward is no lost one"),
    "adapters.sglang.room_directory.KEPT_S": (61.0, 600.0, "longer than SGLang's own wait for a room's first message"),
    "adapters.sglang.room_directory.AWAITED_S": (2.0, 30.0, "reports are renewed meanwhile; a room sent again waits"),
    "adapters.sglang.room_reporter.LOOK_S": (0.05, 1.0, "a stray room is told within a second; reports are bundled"),
    "adapters.vllm.router.CONNECT_S": (1.0, 15.0, "a host of the same site answers at once; a client waits behind it"),
    "adapters.vllm.router.KEPT_S": (0.5, 4.0, "vLLM's server closes an idle connection after 5; a busy one stays"),
    "adapters.vllm.router.HEALTH_S": (1.0, 15.0, "a busy instance answers within it; a load balancer waits no longer"),
    "adapters.vllm.router_answers.PAUSE_S": (1.0, 30.0, "an instance restarts; its requests go elsewhere meanwhile"),
    "adapters.vllm.router_workers.LONGEST_WAIT_S": (600.0, 7200.0, "the longest answer; a call that nobody ends does"),
    "cli.doctor.PATIENCE": (20.0, 300.0, "torch is imported from a cold disk; the user waits for the slowest part"),
    "cli.top_command.PATIENCE": (1.0, 15.0, "an exporter answers at once; the operator looks at an empty screen"),
    "fsm.timer_wheel.QUANTUM": (0.004, 0.05, "timers end so much late, and as many slots a second are in the heap"),
    "loop.connector.WARM_S": (0.5, 10.0, "a wire-up of UCX; less than the wire's own timer"),
    "endpoint.prefill_endpoint.STOOD_S": (2.0, 8.0, "longer than the loop sleeps; less than a kernel may take"),
    "io.clock.GRACE_S": (0.05, 1.0, "threads that were stopped go on; timers of peers wait as long, once"),
    "endpoint.news.LONGEST_SLEEP_S": (8.64e4, 2147483.0, "an engine that sleeps a day is not woken for nothing"),
    "endpoint.decode_endpoint.STALL_S": (0.5, 3.0, "no pass takes so long: the process stood"),
    "loop.event_loop.FAST": (1e-5, 1e-4, "several looks within one write of some hundred us"),
    "loop.event_loop.SLOW": (1e-4, 1e-3, "looks at an idle device, a few per cent of a core"),
    "loop.event_loop.LOOK_S": (2e-5, 5e-4, "sources wait no longer than a launch"),
    "loop.event_loop.PASS_S": (2e-3, 2e-2, "a scheduler that polls stands for one pass"),
    "loop.event_loop.HELD_S": (1e-4, 1e-3, "what is said waits for more: less than a round trip's worth"),
    "loop.event_loop.PERIOD": (0.5, 2.0, "what is called once a second is counted a second"),
    "loop.loop_thread.LONGEST_WAIT": (0.2, 2.0, "a loop without timers looks at its sources now and then"),
    "loop.event_loop.STILL_S": (1e-3, 1e-2, "longer than a round trip; a wait that ends sooner is polled"),
    "loop.event_loop.REST_S": (2e-3, 5e-2, "a wake-up that is lost costs so much; a hundred passes a second at rest"),
    "data.write_times.SHORTEST_S": (2e-7, 1e-5, "less than any wait that is worth to be known, and more than nothing"),
    "data.decode_data.STIRS_S": (1e-5, 5e-4, "an idle transport's poll takes less, one that copies a piece more"),
    "data.prefill_wires.NUDGE_S": (2e-4, 2e-3, "less than a loop waits before it rests, and not a frame a write"),
    "loop.event_loop.DEAF_S": (0.01, 0.1, "a lack of descriptors passes; an engine hears of a deaf loop in seconds"),
    "data.launches.LAUNCH_S": (1e-4, 2e-3, "one launch on a CPU takes longer, several on a device less"),
    "loop.own_thread.SWITCH_S": (2e-5, 2e-4, "the loop waits for the interpreter's lock: far under Python's 5 ms"),
    "endpoint.endpoint.LINGER_S": (0.02, 0.5, "peers confirm within round trips; an engine that ends waits so long"),
    "endpoint.validation.LONGEST_S": (86400.0, 100 * 86400.0, "days: what fits a timer, and no mistake of units"),
    "data.writes.HOLD_S": (5e-5, 1e-3, "small writes wait for one another, and gain less than that"),
    "io.control.control.ANSWER_S": (2.0, 10.0, "a host that is gone is noticed as soon as beats are missed"),
    "io.control.control.LAST_WORD_S": (0.02, 0.5, "a frame leaves within it; nobody waits for it"),
    "io.control.gate.HANDSHAKE_S": (2.0, 10.0, "a busy peer's handshake; a stranger holds a descriptor as long"),
    "io.control.outbox.SOONEST_S": (2e-4, 5e-3, "a queue that was full for a moment"),
    "io.control.outbox.SLOWEST_S": (0.1, 1.0, "a peer that is back is spoken to within a beat"),
    "io.control.poller.LONGEST_S": (600.0, 36000.0, "one sleep; the caller asks again"),
    "io.control.unread.LOOK_S": (0.1, 0.5, "what may come meanwhile, 0.6 GB a second, is the memory's bound"),
    "io.control.unread.SOON_S": (2e-3, 0.05, "a suspect fills memory while nobody looks"),
    "io.transports.device_maps._END_S": (0.5, 5.0, "the end of a process waits for it"),
    "io.transports.nixl._WARM_TICK_S": (5e-5, 1e-3, "a wire-up takes milliseconds"),
    "io.transports.write_records._DRAIN_TICK_S": (1e-4, 2e-3, "writes end within milliseconds"),
}  # fmt: skip


def constants() -> Iterator[str]:
    """Module and name of each time that is assigned at the top of a module."""
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            for node in ast.parse(path.read_text()).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for name in (each.id for target in targets if target for each in ast.walk(target)
                             if isinstance(each, ast.Name)):  # fmt: skip
                    if name.endswith("_S") or name in OTHERS:
                        yield f"{module}.{name}"


def test_every_time_has_its_bounds() -> None:
    assert sorted(constants()) == sorted(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_time_lies_within_its_bounds(name: str) -> None:
    module, _, constant = name.rpartition(".")
    least, most, why = BOUNDS[name]
    assert least <= getattr(import_module(f"kvproto.{module}"), constant) <= most, why


def test_times_that_depend_on_each_other_keep_their_order() -> None:
    from kvproto.adapters import prefill_worker
    from kvproto.adapters.sglang import room_directory, room_reporter
    from kvproto.data import launches, prefill_wires
    from kvproto.endpoint import decode_endpoint, prefill_endpoint
    from kvproto.io.control import gate, outbox, unread
    from kvproto.loop import connector, event_loop, loop_thread

    timing = Timing()
    assert event_loop.FAST < event_loop.SLOW < event_loop.PASS_S < loop_thread.LONGEST_WAIT
    assert prefill_wires.NUDGE_S < event_loop.STILL_S < event_loop.REST_S < loop_thread.LONGEST_WAIT
    assert room_reporter.LOOK_S < room_directory.AWAITED_S < room_directory.KEPT_S
    assert event_loop.LOOK_S <= event_loop.HELD_S < event_loop.PASS_S and launches.LAUNCH_S < event_loop.PASS_S
    assert outbox.SOONEST_S < outbox.SLOWEST_S < timing.heartbeat.period
    assert unread.SOON_S < unread.LOOK_S < gate.HANDSHAKE_S
    assert timing.connect_timeout.period > connector.WARM_S and timing.write.period >= prefill_worker.WITHDRAW_S
    assert timing.heartbeat.period * timing.heartbeat.tries > decode_endpoint.STALL_S
    assert loop_thread.LONGEST_WAIT < prefill_endpoint.STOOD_S < min(timing.kernel.period, timing.write.period)
    renew = RequestTiming().renew.period
    assert 5.0 <= renew <= 30.0, "a message a request that waits for blocks"
    assert 2 * renew < min(timing.bootstrap.period, timing.engine.period, timing.stall.period), "it may be lost once"


@pytest.mark.parametrize("timing", [Timing(), Timing(silence=Timer(200.0)), Timing(resend=Timer(0.05, 3))])
def test_what_is_asked_of_a_peer_is_repeated_for_as_long_as_it_may_be_silent(timing: Timing) -> None:
    """Its process compiles, or holds Python's lock: its link lasts, so its rooms have to."""
    waits = (timing.answer_,) if timing != Timing() else (timing.answer_, timing.call, timing.aux)
    for timer in waits:
        lasts = sum(timer.after(tries) for tries in range(timer.tries + 1))
        assert timing.silence.period <= lasts < 2 * timing.silence.period


def test_a_write_outlasts_the_silence_of_its_peer() -> None:
    """A process that is stopped takes nothing in; its link ends first, or else the write has its own time."""
    timing = Timing()
    assert timing.flight_.period - timing.write.period >= timing.silence.period
    assert timing.flight_.period < timing.stall.period, "the room does not end before its write"


def test_who_asks_more_often_than_that_keeps_its_tries() -> None:
    often = Timer(0.1, 2000)
    assert Timing(resend=often).answer_ == often


#: defaults of the protocol's timers: the least and the most period
TIMERS = {
    "resend": (0.1, 0.5), "grant_retry": (0.1, 0.5), "queue_retry": (1.0, 4.0), "call": (0.25, 1.0),
    "engine": (30.0, 120.0),
    "bootstrap": (30.0, 120.0), "stall": (120.0, 900.0), "lease": (10.0, 60.0), "write": (10.0, 60.0),
    "aux": (5.0, 60.0), "fan_in_retry": (1.0, 4.0), "silence": (30.0, 180.0),
    "kernel": (10.0, 60.0), "connect_timeout": (10.0, 60.0), "heartbeat": (0.5, 2.0), "forget": (300.0, 1800.0),
}  # fmt: skip


def test_the_timers_defaults_are_of_their_order() -> None:
    timing = Timing()
    for name, (least, most) in TIMERS.items():
        assert least <= timing.named(name).period <= most, name
    assert {*TIMERS} == {*Timing.__struct_fields__}


#: of those that end several times: the least and the most that all of them last, in seconds
TOGETHER = {
    "resend": (5.0, 40.0, "a message that was lost several times arrives; then its peer is given up"),
    "grant_retry": (1.5, 3.5, "a part that gets no region goes over pages, and has waited for nothing meanwhile"),
    "queue_retry": (5.0, 12.0, "a ring in which nothing moves; the part goes over pages"),
    "fan_in_retry": (20.0, 60.0, "another writer's forward"), "call": (30.0, 120.0, "a prefill instance that restarts"),
    "aux": (50.0, 120.0, "the forward's last step"), "heartbeat": (4.0, 15.0, "a peer that is gone"),
}  # fmt: skip


def test_what_is_tried_several_times_is_given_up_in_time() -> None:
    timing = Timing()
    assert {*TOGETHER} == {name for name in Timing.__struct_fields__ if timing.named(name).tries > 1}
    for name, (least, most, why) in TOGETHER.items():
        timer = timing.named(name)
        assert least <= sum(timer.after(times) for times in range(timer.tries + 1)) <= most, why
