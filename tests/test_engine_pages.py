"""Copy engines carry whole pages of mapped pools: bytes, ends of pages, the choice, refusals."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.data import mapped_pages, mapped_parts
from kvproto.data.chunk_launch import ChunkLaunch, Tickets
from kvproto.data.mapped_parts import EngineLaunch, MappedEnd, MappedJoint, MappedPart, by_engines
from kvproto.io.kernels import engine_pages
from kvproto.io.kernels.base import Done, Events
from kvproto.io.kernels.crossing import Crossing, Rows
from kvproto.io.kernels.engine_pages import EnginePages, page_runs
from kvproto.io.kernels.page_stacks import PageRun
from kvproto.io.kernels.pool import KernelError
from kvproto.io.transports.base import Transport, UsageError
from kvproto.io.transports.memory import MemoryTransport
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.fake_device import FakeEvent, Mark
from kvproto.verify.testing.pair import SMALL, Pair

TOKENS, CHUNK = 45, 8


def of_ends(*slots: list[int]) -> bytes:
    """Return a decode rank's answer with these slots of each cache at the end."""
    return np.array([number for each in slots for number in (len(each), *each)], "<u4").tobytes()


class HostEngine(EnginePages):
    """The copies of a device, by the host."""

    def __init__(self, runs: Sequence[PageRun]) -> None:
        super().__init__(-1, runs, lambda *_: 0)
        self.launches = 0

    def launch(self, near: Any, far: Any, _stream: Any) -> Done:
        self.launches += 1
        for there, here, nbytes in self.copies(near, far).T.tolist():
            ctypes.memmove(there, here, nbytes)
        return Done()


class EnginePair(Pair):
    """A pair whose pools can be addressed by one another, with engines for every piece."""

    def transport(self) -> Transport:
        return MemoryTransport(self.fabric, maps=True)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[HostEngine]:
    """The engines that are made; all parts are long."""
    made = list[HostEngine]()

    def make(crossings: Sequence[Crossing], _place: int, **_: bool) -> HostEngine | None:
        runs = page_runs(crossings)
        made.extend([HostEngine(runs)] if runs else [])
        return made[-1] if runs else None

    monkeypatch.setattr(mapped_pages, "engine_pages", make)
    monkeypatch.setattr(mapped_parts, "LONG", 0)
    return made


@pytest.mark.parametrize(("prefill", "decode", "order"), [(1, 1, "NHD"), (2, 2, "HND"), (2, 1, "HND"), (1, 2, "HND")])
def test_every_byte_is_right_and_the_ends_of_pages_go_by_the_kernel(
    engines: list[HostEngine], prefill: int, decode: int, order: str
) -> None:
    sides = [replace(layout(tp, page=4), order=order) for tp in (prefill, decode)]
    with EnginePair(*sides, chunk_tokens=CHUNK, settings=replace(SMALL, route="pages")) as pair:
        rooms = [pair.open(tokens, **more) for tokens, more in (
            (TOKENS, {}), (2 * CHUNK + 3, {"prefix": CHUNK}), (3, {}), (CHUNK, {}),
        )]  # fmt: skip
        pair.finish(*rooms)
        pair.check(*rooms)
        counts = [inside(each).data.stats for each in pair.prefills]
        assert sum(each["engine"] for each in counts) == sum(each.launches for each in engines) > 0
        assert all(each["engine"] < each["mapped"] for each in counts), "three tokens are no whole page"


def test_heads_of_a_token_that_lie_apart_are_no_page(engines: list[HostEngine]) -> None:
    with EnginePair(layout(2, page=4), layout(1, page=4), chunk_tokens=CHUNK) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        pair.check(room)
        assert not engines


def test_a_short_part_goes_by_engines_only_beside_a_forward(
    engines: list[HostEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_parts, "LONG", 1 << 40)
    settings = replace(SMALL, route="pages")
    with EnginePair(layout(1, page=4), layout(1, page=4), chunk_tokens=CHUNK, settings=settings) as pair:
        data, forward = inside(pair.prefills[0]).data, FakeEvent()
        forward.mark = Mark()
        rooms = list[Room]()
        for runs, engine in ((None, 0), (forward, 2), (None, 0)):
            data.streams.forward, before = runs, engines[0].launches
            rooms.append(pair.open(CHUNK + 5))
            pair.finish(rooms[-1])
            assert engines[0].launches - before == engine
        pair.check(*rooms)


def test_pages_are_read_by_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_parts, "LONG", 1)
    near, far = (np.zeros((9, 16), np.uint8) for _ in range(2))
    near[:] = np.arange(1, 10, dtype=np.uint8)[:, None]
    engine = HostEngine([PageRun(near.ctypes.data, far.ctypes.data, 16, 16, 16)])
    part = MappedPart(cast("Any", None), (), 9, 1, {}, engine)
    entry = cast("Any", SimpleNamespace(pages=np.array([5, 2, 7], np.int64), table=None))
    launch = part.bind(entry, (np.array([6, 1, 8], "<u4").tobytes(), b""), 0, 3, cast("Any", None), cast("Any", None))
    entry.pages[:] = 8, 1, 6  # others come before the launch
    assert launch(None, None).done()
    assert far[:, 0].tolist() == [0, 2, 0, 0, 0, 0, 9, 0, 7]


class Kernel:
    """A copy that notes the cells it is bound to, and what its launches are given."""

    def __init__(self) -> None:
        self.bound, self.asked = list[Any](), list[Any]()

    def bind(self, *about: Any) -> Any:
        self.bound.append(about)
        return self

    def __call__(self, *about: Any) -> Done:
        self.asked.append(about)
        return Done()


@pytest.mark.parametrize(("long", "apart", "always"), [
    (48, None, True), (48, True, True), (48, False, False), (49, None, False), (49, True, False),
])  # fmt: skip
def test_whole_pages_of_so_many_bytes_always_go_by_engines_to_another_device(
    monkeypatch: pytest.MonkeyPatch, long: int, apart: bool | None, always: bool
) -> None:
    """Three pages of 16 bytes; else, and to the same device, a part goes by the kernel where all is idle."""
    monkeypatch.setattr(mapped_parts, "LONG", long)
    kernel: Any = Kernel()
    part = MappedPart(kernel, (), 9, 1, {}, HostEngine([PageRun(0, 0, 16, 16, 16)]), apart=apart)
    entry = cast("Any", SimpleNamespace(pages=np.array([5, 2, 7, 1]), table="table"))
    streams = cast("Any", SimpleNamespace(place_peer=lambda pages: pages))
    there = np.array([6, 1, 8], "<u4").tobytes()
    launch = part.bind(entry, (there, b""), 1, 3, streams, cast("Any", None))
    assert isinstance(launch, EngineLaunch) and list(launch.near) == [2, 7, 1]
    assert launch.whole is (None if always else kernel) and launch.chosen is always
    assert kernel.bound == ([] if always else [("table", there, 1, 3)])


@pytest.mark.parametrize(("first", "tokens", "edges", "whole", "placed"), [
    (2, 8, [(0, 2, 2), (2, 8, 2)], (1, 2), True),  # both ends of the chunk lie within a page
    (2, 6, [(0, 2, 2)], (1, 2), True), (4, 6, [(2, 8, 2)], (1, 2), True),
    (0, 8, [], (0, 2), False), (1, 8, [(0, 1, 3), (2, 8, 1)], (1, 2), True),
])  # fmt: skip
def test_ends_of_pages_go_by_the_kernel_with_the_pages_that_they_are_in(
    monkeypatch: pytest.MonkeyPatch, first: int, tokens: int, edges: Any, whole: tuple[int, int], placed: bool
) -> None:  # fmt: skip
    """Pages of four tokens; `edges`: (of the pages there, the first that is given, first token, tokens)."""
    monkeypatch.setattr(mapped_parts, "LONG", 16)
    here, there = np.array([5, 2, 7], np.int64), np.array([6, 1, 8], "<u4")
    given, bound = there[first // 4 :], list[Any]()

    def bind(table: str, pages: Any, *cell: int) -> Any:
        bound.append((int(np.frombuffer(pages, "<u4")[0]), *cell))
        return lambda *about: bound.append(about)

    def place(pages: bytes) -> Any:
        sent.append(pages)
        return np.frombuffer(pages, np.uint8)

    sent = list[bytes]()
    streams = cast("Any", SimpleNamespace(place_peer=place))
    part = MappedPart(cast("Any", SimpleNamespace(bind=bind)), (), 9, 4, {}, HostEngine([PageRun(0, 0, 16, 16, 16)]))
    entry = cast("Any", SimpleNamespace(pages=here, table="table"))
    launch = part.bind(entry, (given.tobytes(), b""), first, tokens, streams, cast("Any", None))
    assert isinstance(launch, EngineLaunch) and launch.whole is None
    assert bound == [(there[at], *cell) for at, *cell in edges] and sent == [given.tobytes()] * placed
    for edge in launch.edges:
        edge("stream", "after")
    assert bound[len(edges) :] == [("stream", "after")] * len(edges)
    assert (list(launch.near), launch.far.tolist()) == (here[slice(*whole)].tolist(), there[slice(*whole)].tolist())


@pytest.mark.parametrize("percent", [100, 20], ids=["on an idle device", "beside a forward"])
def test_rows_that_engines_leave_go_by_the_kernel_at_the_same_time(percent: int) -> None:
    kernel, rest, told = Kernel(), Kernel(), list[Any]()

    class Engine(HostEngine):
        def launch(self, near: Any, far: Any, stream: Any) -> Any:
            told.append((stream, list(near), list(far), list(rest.asked)))
            return SimpleNamespace(done=lambda: ended)

    engine: Any = Engine([PageRun(0, 0, 0, 16, 16)])
    part = MappedPart(cast("Any", kernel), (), 9, 1, {}, engine, cast("Any", rest), lambda: percent, None, True)
    apart = SimpleNamespace(wait_event=told.append)
    streams = cast("Any", SimpleNamespace(place_peer=lambda pages: pages, next_copy=lambda: apart))
    here, there = np.array([5]), np.array([6], "<u4").tobytes()
    launch, ended = part.bind_rows(cast("Any", "table"), here, there, 0, 1, streams), False
    ticket = launch("stream", "after")
    assert told == ["after", (apart, [5], [6], [])], "engines begin first, on a stream of their own"
    assert rest.bound == [("table", there, 0, 1)] and rest.asked == [("stream", "after")] and not kernel.bound
    assert not ticket.done()
    ended = True
    assert ticket.done()


@pytest.mark.parametrize("apart", [None, False])
def test_rows_that_engines_leave_go_with_the_others_on_the_same_device_unless_a_forward_is_beside(
    apart: bool | None,
) -> None:
    kernel, rest, busy = Kernel(), Kernel(), 100
    engine: Any = HostEngine([PageRun(0, 0, 0, 16, 16)])
    part = MappedPart(cast("Any", kernel), (), 9, 1, {}, engine, cast("Any", rest), lambda: busy, None, apart)
    streams = cast("Any", SimpleNamespace(place_peer=lambda pages: pages, next_copy=lambda: None))
    here, there = np.array([5]), np.array([6], "<u4").tobytes()
    launch = part.bind_rows(cast("Any", "table"), here, there, 0, 1, streams)
    launch("stream", None)
    assert kernel.asked == [("stream", None)] and not rest.asked
    busy = 20
    launch("stream", None)
    assert len(kernel.asked) == 1 and rest.bound == [("table", there, 0, 1)] and rest.asked == [("stream", None)]


def test_kernels_of_a_chunk_are_one_launch_behind_what_engines_are_given() -> None:
    """Engines carry rows of two caches, of one always and of one beside a forward, and none of the tokens."""
    told, busy = list[Any](), 100

    class Told(Kernel):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __call__(self, *_: Any) -> Any:
            told.append(self.name)
            return Done()

    class Engine(HostEngine):
        def launch(self, _near: Any, far: Any, _stream: Any) -> Any:
            told.append(f"engine {int(far[0])}")
            return Done()

    def join(launches: Any) -> Any:
        return Told(" and ".join(each.name for each in launches))

    def part(name: str, *, apart: bool | None, engine: Any = None, join: Any = join) -> MappedPart:
        rest: Any = Told(f"rest of {name}") if engine is not None else None
        return MappedPart(cast("Any", Told(name)), (), 9, 1, {}, engine, rest, lambda: busy, None, apart, join)

    run, aside = [PageRun(0, 0, 16, 16, 16)], SimpleNamespace()
    streams: Any = SimpleNamespace(place_peer=lambda pages: pages, next_copy=lambda: aside)
    pool: Any = SimpleNamespace(ends=[SimpleNamespace(slots="slots")] * 2)
    entry: Any = SimpleNamespace(pages=np.array([1, 2]), table="table", ends=((3,), (4,)), end_tables=(None, None))
    far = np.array([7, 8], "<u4").tobytes(), of_ends([5], [6])
    ends = [part("state", apart=True, engine=Engine(run)), part("other", apart=None, engine=Engine(run))]
    tokens = part("tokens", apart=True)
    both = MappedJoint(tokens, MappedEnd(((0, 0, ends[0]), (1, 1, ends[1])), (), {}), (), {})
    launch: Any = both.bind(entry, far, 0, 2, streams, pool)
    launch("stream", None)
    assert told == ["engine 5", "other", "rest of state and tokens"]
    busy = 20
    launch("stream", None)
    assert told[3:] == ["engine 5", "engine 6", "rest of other", "rest of state and tokens"]
    assert by_engines(launch) and [each.asides for each in launch.launches[:2]] == [(aside,)] * 2
    # Kernels that cannot be joined follow one another.
    alone = MappedJoint(part("tokens", apart=True, join=lambda _: None), MappedEnd(((0, 0, ends[0]),), (), {}), (), {})
    told.clear()
    launch = alone.bind(entry, (far[0], of_ends([5])), 0, 2, streams, pool)
    launch("stream", None)
    assert told == ["engine 5", "rest of state", "tokens"]
    launch = MappedEnd(((0, 0, tokens),), (), {}).bind(entry, far, 0, 2, streams, pool)
    assert launch is cast("Any", tokens.copy), "one is no chunk"


@pytest.mark.parametrize(("apart", "stacked"), [(True, True), (True, False), (None, True), (False, True)])
def test_rows_that_are_one_copy_go_by_engines_to_another_device_however_short_they_are(
    apart: bool | None, stacked: bool
) -> None:
    kernel, aside = Kernel(), SimpleNamespace()
    engine: Any = HostEngine([PageRun(0, 0, 16, 16, 16)])
    engine.stacks = (SimpleNamespace(),) * stacked
    part = MappedPart(cast("Any", kernel), (), 9, 1, {}, engine, apart=apart)
    streams = cast("Any", SimpleNamespace(place_peer=lambda pages: pages, next_copy=lambda: aside))
    here, there = np.array([5]), np.array([6], "<u4").tobytes()
    launch: Any = part.bind_rows(cast("Any", "table"), here, there, 0, 1, streams)
    assert launch.chosen is (apart is True and stacked) and bool(kernel.bound) is not launch.chosen
    assert launch.aside is (aside if stacked else None) and not launch.edges


def test_tokens_of_no_whole_page_go_by_the_kernel_alone() -> None:
    kernel: Any = Kernel()
    part = MappedPart(kernel, (), 9, 4, {}, HostEngine([PageRun(0, 0, 16, 16, 16)]))
    entry = cast("Any", SimpleNamespace(pages=np.array([5, 2]), table="table"))
    streams = cast("Any", SimpleNamespace(place_peer=lambda pages: pages))
    launch: Any = part.bind(entry, (np.array([6, 1], "<u4").tobytes(), b""), 1, 6, streams, cast("Any", None))
    assert launch is kernel
    assert [cell for _, _, *cell in kernel.bound] == [[1, 6]]


def test_what_the_kernel_carries_whole_is_launched_as_it_was_asked() -> None:
    pages, kernel = np.array([], np.int64), Kernel()
    launch = EngineLaunch(cast("Any", None), pages, pages, (), kernel, lambda: 100)
    launch("stream", "after")
    assert kernel.asked == [("stream", "after")] and launch.asides == ()


def test_a_chunk_goes_by_engines_where_some_launch_of_it_does() -> None:
    pages, kernel = np.array([], np.int64), Kernel()
    percent = 100
    none: Any = None
    launches: Any = [EngineLaunch(none, pages, pages, (), whole, lambda: percent) for whole in (kernel, None)]
    assert [by_engines(each) for each in (kernel, *launches)] == [False, False, True]
    assert by_engines(ChunkLaunch([kernel, launches[1]])) and not by_engines(ChunkLaunch([kernel, launches[0]]))
    percent = 20
    assert by_engines(ChunkLaunch([kernel, launches[0]]))


def test_a_peer_s_page_numbers_keep_more_than_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_parts, "LONG", 1)
    engine, there = HostEngine([PageRun(0, 0, 16, 16, 16)]), [69_999, 3, 65_540]
    part = MappedPart(cast("Any", None), (), 70_000, 1, {}, engine)
    entry = cast("Any", SimpleNamespace(pages=np.array([65_537, 66_000, 2]), table=None))
    launch = part.bind(entry, (np.array(there, "<u4").tobytes(), b""), 0, 3, cast("Any", None), cast("Any", None))
    assert isinstance(launch, EngineLaunch)
    assert (launch.far.tolist(), list(launch.near), launch.edges) == (there, [65_537, 66_000, 2], ())
    with pytest.raises(UsageError, match="page 70000 of a peer whose regions hold 70000"):
        part.check(np.array([3, 70_000], "<u4").tobytes(), 0, 2)


def test_pages_in_a_row_on_both_sides_are_one_copy_where_nothing_lies_between() -> None:
    near, far = np.array([4, 5, 6, 8, 9]), np.array([1, 2, 7, 8, 9])
    for step, copies in ((16, [(4, 1, 2), (6, 7, 1), (8, 8, 2)]), (32, [*zip(near, far, [1] * 5, strict=True)])):
        engine = EnginePages(0, [PageRun(1000, 2000, 16, step, step)], lambda *_: 0)
        wanted = [(2000 + there * step, 1000 + here * step, 16 * pages) for here, there, pages in copies]
        assert engine.copies(near, far).T.tolist() == [list(each) for each in wanted]
    two = EnginePages(0, [PageRun(0, 0, 8, 32, 64), PageRun(16, 8, 16, 32, 64)], lambda *_: 0)
    for some in (near[:2], (3,)):
        assert two.copies(some, far[: len(some)]).flags.c_contiguous, "as the driver reads them"
    assert two.copies(near[:2], far[:2]).T.tolist() == [[64, 128, 8], [72, 144, 16], [128, 160, 8], [136, 176, 16]]


def test_rows_that_adjoin_are_one_run_and_forms_that_differ_are_none() -> None:
    rows = Rows(1024, 128, 64, 2)
    planes = ((0, 5000), (256, 5256), (768, 5768), (512, 9000))
    assert page_runs([Crossing(64, 2, rows, rows, planes)]) == [
        PageRun(0, 5000, 512, 1024, 1024), PageRun(512, 9000, 256, 1024, 1024), PageRun(768, 5768, 256, 1024, 1024),
    ]  # fmt: skip
    wider = Rows(4096, 128, 64, 2)
    assert page_runs([Crossing(64, 2, rows, wider, ((0, 0), (256, 256)))]) == [PageRun(0, 0, 512, 1024, 4096)]
    by_head = Rows(1024, 64, 128, 2)
    assert page_runs([Crossing(64, 2, by_head, by_head, ((0, 0),))]) == [PageRun(0, 0, 256, 1024, 1024)]
    apart = Rows(1024, 256, 64, 2)
    for near, far in ((rows, by_head), (rows, Rows(1024, 128, 64, 4)), (apart, apart)):
        assert page_runs([Crossing(64, 2, rows, rows, planes), Crossing(64, 2, near, far, ((0, 0),))]) == []


def test_short_pieces_and_hosts_without_a_device_have_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(1 << 20, 128, 64, 4096)
    for nbytes, place, found in ((0, 0, True), (1, 0, False), (0, -1, False)):
        monkeypatch.setattr(engine_pages, "LEAST", (1 << 19) + nbytes)
        monkeypatch.setattr(engine_pages, "_driver_queue", lambda: lambda *_: 0)
        assert bool(engine_pages.engine_pages([Crossing(64, 2, rows, rows, ((0, 0),))], place)) is found
    monkeypatch.setattr(engine_pages, "_driver_queue", lambda: None)
    assert engine_pages.engine_pages([Crossing(64, 2, rows, rows, ((0, 0),))], 0) is None


def test_rows_of_slots_that_are_one_copy_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, asked = Rows(512, 128, 64, 4), list[Any]()
    left: list[PageRun] = []

    def stacked(runs: list[PageRun], place: int) -> Any:
        asked.append((len(runs), place))
        return [SimpleNamespace(nbytes=1 << 20)], left

    monkeypatch.setattr(engine_pages, "_driver_queue", lambda: lambda *_: 0)
    monkeypatch.setattr(engine_pages, "device_stacks", stacked)
    some = [Crossing(64, 2, rows, rows, ((0, 0), (4096, 4096)))]
    assert engine_pages.engine_pages(some, 2) is None and not asked, "launches of many pages take each run by itself"
    made = engine_pages.engine_pages(some, 2, slots=True)
    assert made is not None and (made.page_bytes, asked) == (1 << 20, [(2, 2)])
    left.append(PageRun(0, 0, engine_pages.LEAST - 1, 1 << 20, 1 << 20))
    assert engine_pages.engine_pages(some, 2, slots=True) is None
    left[0] = replace(left[0], nbytes=engine_pages.LEAST)
    made = engine_pages.engine_pages(some, 2, slots=True)
    assert made is not None and made.page_bytes == (1 << 20) + engine_pages.LEAST
    assert engine_pages.engine_pages([], 2, slots=True) is None and len(asked) == 3, "of nothing there is no stack"


def test_copies_go_in_batches_and_what_was_queued_before_a_refusal_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, told = list[list[list[int]]](), list[Any]()

    def queue(copies: Any, first: int, end: int, stream: int) -> int:
        given.append(copies[:, first:end].tolist())
        return 0 if len(given) % 3 else 700 + stream

    stream = SimpleNamespace(cuda_stream=7, synchronize=lambda: told.append("waited"), wait_event=told.append)
    monkeypatch.setattr(engine_pages, "TOGETHER", 2)
    monkeypatch.setattr(Events, "ticket", lambda _, on: ("ticket", on))
    engine = EnginePages(-1, [PageRun(0, 0, 8, 16, 16)], queue)
    near, far = np.arange(4), np.arange(4)[::-1]
    launch = EngineLaunch(engine, near, far, (lambda *on: told.append(on),), None, lambda: 100)  # type: ignore[arg-type]
    assert isinstance(launch(stream, None), Tickets) and told == [(stream, None)]
    assert given == [[[48, 32], [0, 16], [8, 8]], [[16, 0], [32, 48], [8, 8]]]
    with pytest.raises(KernelError, match="CUresult 707"):
        launch(stream, "after")
    assert told[1:] == ["after", "waited", "waited"]
    whole = EngineLaunch(engine, near[:1], far[:1], (), None, lambda: 100)
    ticket: Any = whole(stream, None)
    assert ticket == ("ticket", stream), "one launch has a ticket of its own"


@pytest.mark.parametrize("version", ["_v2", ""])
def test_both_forms_of_the_driver_s_batches_are_called(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    calls = list[tuple[Any, ...]]()

    def batch(*about: Any) -> int:
        calls.append(about)
        return 5

    driver = SimpleNamespace(**{f"cuMemcpyBatchAsync{version}": batch})
    monkeypatch.setattr(engine_pages, "cuda_driver", lambda: driver)
    engine_pages._driver_queue.cache_clear()
    try:
        queue = engine_pages._driver_queue()
        rows = np.array([[1, 2, 7], [3, 4, 8], [5, 6, 9]], np.uint64)
        assert queue is not None and queue(rows, 1, 3, 9) == 5
        given = [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint64))[:2] for each in calls[0][:3]]
        assert given == [[2, 7], [4, 8], [6, 9]]
        ((*_, count, attributes, first, attributes_count, stream),) = [
            each if version else (*each[:-2], each[-1]) for each in calls
        ]  # fmt: skip
        assert (count.value, attributes_count.value, stream.value) == (2, 1, 9)
        assert attributes._obj.order == 1 and first._obj.value == 0
        monkeypatch.setattr(engine_pages, "cuda_driver", lambda: None)
        engine_pages._driver_queue.cache_clear()
        assert engine_pages._driver_queue() is None
    finally:
        engine_pages._driver_queue.cache_clear()


def test_a_room_that_is_withdrawn_or_aborted_beside_its_copies_ends_well(engines: list[HostEngine]) -> None:
    settings = replace(SMALL, route="pages")
    with EnginePair(layout(1, page=4), layout(1, page=4), chunk_tokens=CHUNK, settings=settings) as pair:
        room, other = pair.open(TOKENS), pair.open(TOKENS)
        pair.prefills[0].abort(other)
        pair.pump(lambda: pair.over(other))
        pair.finish(room)
        pair.check(room)
        pair.rest()
        assert engines[0].launches == -(-TOKENS // CHUNK)


# ------------------------------------------------------------------------------------- which pages are runs of bytes
def rows(token: int, head: int, page_size: int = 4) -> Rows:
    return Rows(page_size=page_size, token=token, head=head, page=512)


@pytest.mark.parametrize(
    ("token", "head", "heads", "page_size", "dense"),
    [(32, 8, 4, 4, True), (64, 8, 4, 4, False), (32, 16, 4, 4, False), (8, 32, 4, 4, True), (8, 64, 4, 4, False),
     (16, 32, 4, 4, False), (8, 99, 1, 4, True), (99, 8, 4, 1, True), (99, 16, 4, 1, False), (99, 99, 1, 1, True),
     (16, 8, 1, 4, False), (99, 16, 4, 2, False), (8, 16, 4, 2, True), (16, 16, 4, 2, False), (99, 16, 2, 2, False)],
)  # fmt: skip
def test_a_page_is_one_run_where_nothing_lies_between_its_rows(
    token: int, head: int, heads: int, page_size: int, dense: bool
) -> None:
    assert engine_pages._dense(rows(token, head, page_size), heads, 8) is dense


def test_engines_take_pieces_that_are_long_enough_on_a_device_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [PageRun(0, 0, engine_pages.LEAST, 1 << 20, 1 << 20), PageRun(0, 0, 1 << 20, 1 << 20, 1 << 20)]
    monkeypatch.setattr(engine_pages, "page_runs", lambda _: runs)
    monkeypatch.setattr(engine_pages, "_driver_queue", lambda: lambda *_: 0)
    made = engine_pages.engine_pages([], 0)
    assert made is not None and made.page_bytes == engine_pages.LEAST + (1 << 20)
    assert not made._joins, "one of them does not fill its step"
    assert engine_pages.engine_pages([], -1) is None
    runs[0] = PageRun(0, 0, engine_pages.LEAST - 1, 1 << 20, 1 << 20)
    assert engine_pages.engine_pages([], 0) is None
    runs.clear()
    assert engine_pages.engine_pages([], 0) is None
    runs.append(PageRun(0, 0, 1 << 20, 1 << 20, 1 << 20))
    monkeypatch.setattr(engine_pages, "_driver_queue", lambda: None)
    assert engine_pages.engine_pages([], 0) is None
