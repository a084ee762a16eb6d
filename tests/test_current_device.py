"""A rank's work runs on the rank's device, and leaves its caller's current device as it was.

Without a GPU two things can be shown: that the endpoints enter and leave the boundary in every call and on every
thread of theirs (over a current device that is only a number), and that the source asks for nothing outside of it.
`test_devices_gpu.py` shows the same with real devices.
"""

from __future__ import annotations

import ast
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kvproto.io.kernels import compiled, triton
from kvproto.io.kernels import current_device as module
from kvproto.io.kernels.current_device import SAME, keep_device, use_device
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import Transport
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

OURS = 1
PACKAGE = Path(__file__).parent.parent / "kvproto"


class Devices(threading.local):
    """The current device of each thread, which begins with the first one."""

    current = 0


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Devices:
    made = Devices()

    @contextmanager
    def on(place: int) -> Iterator[None]:
        before, made.current = made.current, place
        try:
            yield
        finally:
            made.current = before

    monkeypatch.setattr(module, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: setattr(made, "current", place))
    return made


def test_a_device_is_current_for_a_block_and_the_callers_afterwards(devices: Devices) -> None:
    with use_device(OURS):
        assert devices.current == OURS and use_device(OURS) is SAME
    assert devices.current == 0
    with pytest.raises(ZeroDivisionError), use_device(OURS):
        raise ZeroDivisionError
    assert devices.current == 0 and use_device(-1) is SAME, "a CPU has no current device"
    keep_device(-1)
    assert devices.current == 0
    keep_device(OURS)
    assert devices.current == OURS
    with use_device(0):
        assert devices.current == 0, "the first device is one, too"
    assert devices.current == OURS
    keep_device(0)
    assert devices.current == 0


# ------------------------------------------------------------------------------- the endpoints' calls and threads
class Watched(MemoryTransport):
    """Notes on which device it is called."""

    seen: Counter[tuple[str, int]]
    devices: Devices
    ours: int

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("register", "endpoint", "connect", "warm", "poll", "close"):
            return found

        def call(*given: Any, **more: Any) -> Any:
            Watched.seen[name, Watched.devices.current] += 1
            return found(*given, **more)

        return call


class WatchedKernels(TorchKernels):
    """The same of what compiles."""

    def prepare(self, *given: Any, **more: Any) -> None:
        Watched.seen["prepare", Watched.devices.current] += 1
        super().prepare(*given, **more)


class OnADevice(Pair):
    """A pair whose pools claim to be on a GPU; prefill is known by its host's name, looked up on a thread."""

    def transport(self) -> Transport:
        return Watched(self.fabric)

    def connect(self, index: int) -> None:
        named = [each.address.replace("127.0.0.1", "localhost") for each in self.prefills]
        self.decodes[index].connect(self.plan.prefill, named)


@pytest.fixture(params=[0, OURS], ids=["first", "second"])
def pair(devices: Devices, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnADevice]:
    Watched.seen, Watched.devices, Watched.ours = Counter(), devices, request.param
    devices.current = 1 - Watched.ours
    monkeypatch.setattr("kvproto.endpoint.validation.pick_kernels", lambda _pool: WatchedKernels())
    monkeypatch.setattr("kvproto.endpoint.endpoint.pick_kernels", lambda _pool: WatchedKernels())
    monkeypatch.setattr("kvproto.verify.testing.pair.noise", numbered)
    form = Layout(layers=1, heads=1, k_dim=4, v_dim=4, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
    made = OnADevice(form, form, chunk_tokens=4, ready=False)
    try:
        yield made
    finally:
        made.close()


def numbered(*given: Any) -> Any:
    pool = noise(*given)
    pool.gpu = Watched.ours
    return pool


def test_every_call_and_every_thread_of_an_endpoint_works_on_the_pools_device(
    pair: OnADevice, devices: Devices
) -> None:
    pair.pump(lambda: all(each.ready() for each in pair.decodes))
    assert "3 layer groups: kernels are compiled for" in inside(pair.prefills[0]).rank.unprepared(3)

    def digest(*_: object) -> dict[Any, int]:
        Watched.seen["digest", devices.current] += 1
        return {}

    pair.prefills[0]._digesting = cast("Any", SimpleNamespace(read=digest, of_pages=digest))
    pair.open_prefill(room := pair.name(4))
    assert pair.prefills[0].digests(room) == {}
    assert devices.current == 1 - Watched.ours, "what the caller had"
    turns = [inside(each).loop.turns for each in pair.endpoints]
    for each in pair.endpoints:
        each.start()
    until = time.monotonic() + 10
    while any(inside(each).loop.turns < turn + 3 for each, turn in zip(pair.endpoints, turns, strict=True)):
        assert time.monotonic() < until
        for each in pair.endpoints:
            inside(each).loop.control.wake()
        time.sleep(0.001)
    for each in pair.endpoints:
        each.close()
    assert devices.current == 1 - Watched.ours
    on = {name: {place for known, place in Watched.seen if known == name} for name, _ in Watched.seen}
    names = "register", "endpoint", "connect", "warm", "poll", "close", "prepare", "digest"
    assert on == {name: {Watched.ours} for name in names}


# ------------------------------------------------------------------------------------ what is kept of each device
def test_one_kernels_object_keeps_streams_and_events_of_each_device_apart(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    class Event:
        device = -1

        def record(self, stream: Any) -> None:
            assert self.device in (-1, stream.place), "an event belongs to the device that it was first recorded on"
            self.device = stream.place
            marked.append(stream.place)

        def query(self) -> bool:
            return True

    def stream(place: int) -> Any:
        return SimpleNamespace(place=place, cuda_stream=0)

    launched, marked = list[tuple[int, int]](), list[int]()
    monkeypatch.setattr(triton, "INTERPRETED", False)
    monkeypatch.setattr("kvproto.io.kernels.base._new_event", Event)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _place: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    kernels = triton.TritonKernels()
    for place in (0, 1, 0, 1):
        ticket = kernels.launch(place, [lambda handle: launched.append((devices.current, handle))], None, None)
        assert ticket.done()
    assert launched == [(0, 0), (1, 0), (0, 0), (1, 0)] and marked == [0, 1, 0, 1] and devices.current == 0


class HalfLoaded:
    """A shared Triton kernel: the first request for `run` loads it, while the second finds it empty."""

    packed_metadata = "packed"

    def __init__(self, place: int) -> None:
        self.place = place
        self.function: str | None = None
        self._run: Any = None

    @property
    def run(self) -> Any:
        if self._run is None:
            self._run = lambda *given: given[4]
            time.sleep(0.05)
            self.function = f"function of {self.place}"
        return self._run


class Jit:
    """A function that Triton compiles: for the device that is current, once."""

    def __init__(self, devices: Devices) -> None:
        self._devices, self._kernels = devices, dict[int, HalfLoaded]()

    def warmup(self, *_: Any, **__: Any) -> HalfLoaded:
        return self._kernels.setdefault(self._devices.current, HalfLoaded(self._devices.current))


@pytest.mark.parametrize("places", [(0, 1, 0, 1), (1, 1, 1, 1)], ids=str)
def test_a_kernel_is_compiled_for_its_device_and_whole_whoever_asks_at_once(
    places: tuple[int, ...], devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(compiled, "INTERPRETED", False)
    function, found = Jit(devices), list[tuple[int, Any]]()
    all_there = threading.Barrier(len(places))

    def compile_one(place: int) -> None:
        all_there.wait(10)
        found.append((place, compiled.compile_kernel(place, function, 3, (7, 8), 4)))

    threads = [threading.Thread(target=compile_one, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    told = [(place, closure(launch)) for place, launch in found]
    assert told == [(place, f"function of {place}") for place, _ in told] and len(told) == len(places)


def closure(launch: Any) -> Any:
    """The function that a launcher launches."""
    cells = dict(zip(launch.__code__.co_freevars, launch.__closure__, strict=True))
    return cells["compiled"].cell_contents


def test_a_launch_gives_the_kernel_its_grid_stream_and_numbers(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[Any]()
    kernel = SimpleNamespace(run=lambda *given: calls.append(given), function="f", packed_metadata="p")

    def warmup(*given: int, **how: Any) -> Any:
        calls.append((devices.current, given, how))
        return kernel

    monkeypatch.setattr(compiled, "INTERPRETED", False)
    compiled.compile_kernel(OURS, SimpleNamespace(warmup=warmup), 2, (7, 8), 4)(3, 2, 1, 99, 11, 12)
    assert calls == [
        (OURS, (0, 0, 7, 8), {"grid": (1, 1, 1), "num_warps": 4}),
        (3, 2, 1, 99, "f", "p", None, None, None, 11, 12, 7, 8),
    ]


# ---------------------------------------------------------------------------------------------------- the source
#: caches of a whole process, in what works on devices; none may hold what belongs to one device
PROCESS_CACHES = {
    "device_alarm._close_function": "a function of the C library",
    "engine_pages._driver_queue": "a function of the driver",
    "held_calls._driver": "a library",
    "host_copies._driver": "a library", "device_maps.cuda_driver": "a library", "device_maps.this_host": "a name",
    "torch._within": "tensors of the host",
}  # fmt: skip
#: the driver's calls that are made without `on_device` or `use_device` around them in the same function
OUTSIDE = {
    "device_alarm.close_behind": "called by `set`, within",
    "copy_engine.EngineCopy.done": "an event is asked for and freed on any thread",
    "copy_engine.CopyEngine._queued": "called by `start`, within",
    "device_maps.DeviceMaps._open": "called by `open`, within",
    "device_maps.allocation": "called within", "device_maps.on_device": "is that boundary",
    "device_maps.uuid_of": "asks for a device's name by its number",
    "held_calls.drained": "a stream is asked for on any thread", "held_calls.passed": "and so is an event",
    "host_buffer.HostBuffer.__init__": "locks for the device that is current, and remembers it",
}  # fmt: skip
#: where a raw stream is taken to be launched on, or asked for
RAW_STREAMS = {
    "held_calls.drained",
    "device_alarm.close_behind", "engine_pages.EnginePages.launch", "triton.TritonKernels.launch",
    "host_copies.copy_bytes", "peer_tables.PeerTables.place",
}  # fmt: skip


def functions(folder: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(file.class.function, its tree) of every function in a folder of the package."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node, inside_of in walk(ast.parse(path.read_text()), path.stem):
            yield inside_of, node


def walk(tree: ast.AST, name: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, f"{name}.{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from walk(node, f"{name}.{node.name}")


def calls_in(tree: ast.AST, *, bounded: bool = False) -> Iterator[tuple[str, ast.Call, bool]]:
    """(name, call, whether it is within the boundary) of each call."""
    for node in ast.iter_child_nodes(tree):
        within = bounded
        if isinstance(node, ast.With):
            within |= any(name_of(item.context_expr) in ("use_device", "on_device") for item in node.items)
        if isinstance(node, ast.Call):
            yield name_of(node), node, bounded
        yield from calls_in(node, bounded=within)


def name_of(node: ast.AST) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


OURS_RUN = ("data", "endpoint", "loop", "metrics", "observe")
DATA = [found for folder in ("io", *OURS_RUN) for found in functions(folder)]
WORKING = [*DATA, *functions("adapters")]


def test_no_cache_of_the_process_holds_what_belongs_to_a_device() -> None:
    found = {name for name, tree in DATA for each in tree.decorator_list if name_of(each) in ("cache", "lru_cache")}
    assert found == set(PROCESS_CACHES)


def test_kernels_are_compiled_and_launched_in_one_place_each_on_their_device() -> None:
    warmed = [(name, bounded) for name, tree in WORKING for called, _, bounded in calls_in(tree) if called == "warmup"]
    assert warmed == [("compiled.compile_kernel", True)]
    raw = {name for name, tree in WORKING for node in ast.walk(tree)
           if isinstance(node, ast.Attribute) and node.attr == "cuda_stream"}  # fmt: skip
    assert raw == RAW_STREAMS
    (launch,) = (tree for name, tree in DATA if name == "triton.TritonKernels.launch")
    assert [bounded for called, call, bounded in calls_in(launch) if "cuda_stream" in ast.dump(call)] == [True]


def test_the_drivers_own_calls_are_made_on_their_device() -> None:
    outside = {
        name for name, tree in DATA for called, _, bounded in calls_in(tree)
        if re.match("cu(da)?[A-Z]", called) and not bounded
    }  # fmt: skip
    assert outside == set(OUTSIDE)


def test_nobody_asks_for_the_stream_of_whatever_device_is_current() -> None:
    """torch's own calls follow their tensor or stream; without one they take the caller's device."""
    asks = ("current_stream", "default_stream", "synchronize", "Stream", "record")
    found = {
        (name, called) for name, tree in WORKING for called, call, _ in calls_in(tree)
        if called in asks and not call.args and "cuda" in ast.dump(tree if called == "record" else call)
    }  # fmt: skip
    assert not found


def test_a_helper_thread_of_an_endpoint_begins_with_its_device() -> None:
    pools = [
        call
        for folder in OURS_RUN
        for _, tree in functions(folder)
        for called, call, _ in calls_in(tree)
        if called == "ThreadPoolExecutor"
    ]
    assert len(pools) == 2 and all({"initializer"} <= {each.arg for each in call.keywords} for call in pools)
