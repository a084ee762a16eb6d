"""Pipeline rank: a process with a GPU (or without), a pool, and the endpoint that engines hold.

It does what it is told, one command after the other, and polls its endpoint while nobody says anything. What is right
does not come from the library: the truth is noise from a seed, the same in every process, laid into the prefill
pools and looked for in the decode pools by plain indexing. Before every transfer the decode pools are filled with a
marker, so that a byte that was never written is seen, and so is one that had no business being written.

The clock is the machine's monotonic one, which is the same for all processes of a host.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import torch

from kvproto.data.staging_buffers import Kind
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.transports.base import Completed
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.regions import bulk
from kvproto.lab.bench.bare import DECODE, PagesThere, await_tags, begin_at, receive, send, store
from kvproto.lab.bench.held_forward import HeldForward
from kvproto.lab.bench.indexed_pages import IndexedPages
from kvproto.lab.bench.pools import MARKER, empty_pool, mark, seeded_bytes
from kvproto.layout.cut import Cut, chunks
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import AUX_CHUNK, StgNotify
from kvproto.protocol.states import PSend
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing import inside

LONGEST_S = 60.0
#: fewer cores than processes that poll without end may need
CROWDED = len(os.sched_getaffinity(0)) < 16
#: rooms of one forward, after which an engine polls
FORWARD = 8
Moment = tuple[str, int, float]


class EndpointForm(msgspec.Struct, frozen=True):
    prefill: Layout
    decode: Layout
    chunk_tokens: int
    settings: Settings
    pages: int  # of 16 tokens, in each pool
    staging: Kind = "device"
    max_descs: int = 0
    maps: bool = False
    packed: bool = False

    @property
    def plan(self) -> Plan:
        return Plan(self.prefill, self.decode, self.chunk_tokens)


class PipelineRank:
    """A rank: its pool, its endpoint, the rooms under way."""

    def __init__(self, side: str, index: int, device: str) -> None:
        self.side, self.index, self.device = side, index, torch.device(device)
        self.endpoint: Any = None
        self.form: EndpointForm
        self.pool: Pool | None = None
        self.tables: dict[int, torch.Tensor] = {}
        self.log: list[Moment] = []
        self.source: Any = None
        self._lists: IndexedPages | None = None
        #: by name: endpoints that are set aside, each with its form, its log, and the source of its bulk writes
        self._aside: dict[str, tuple[Any, EndpointForm, list[Moment], Any]] = {}
        self._of: tuple[Layout, bool] | None = None
        self._filled: tuple[Any, ...] = ()
        self._held: HeldForward | None = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    # --------------------------------------------------------------------------------------------- making
    def make(self, form: EndpointForm) -> str:
        """A new endpoint; returns a prefill rank's address."""
        self._end_one()
        self.form, self.log = form, []
        layout = form.prefill if self.side == "P" else form.decode
        wanted = layout, form.packed
        if self.pool is None or self._of != wanted or self.pool.pages * self.pool.page_size < form.pages * 16:
            self.pool, self._filled, self._of = None, (), wanted
            self._let_go()
            pages = form.pages * 16 // layout.page_size
            self.pool = empty_pool(layout, self.index, pages, self.device, packed=form.packed)
        transport = NixlTransport(maps=form.maps)
        if form.max_descs:
            transport.caps = msgspec.structs.replace(transport.caps, max_descs=form.max_descs)
        make: Callable[..., Any] = PrefillEndpoint if self.side == "P" else DecodeEndpoint
        self.endpoint = make(
            layout,
            self.index,
            self.pool,
            transport,
            chunk_tokens=form.chunk_tokens,
            settings=form.settings,
            staging=form.staging,
        )
        _watch(self.endpoint, self.log)
        gc.collect()
        gc.freeze()  # as engines do: what is there now stays
        return str(self.endpoint.address) if self.side == "P" else ""

    def connect(self, addresses: list[str]) -> None:
        self.endpoint.connect(self.form.prefill, addresses)
        self._until(self.endpoint.ready)

    def idle(self) -> None:
        for endpoint in (self.endpoint, *(each for each, *_ in self._aside.values())):
            if endpoint is not None:
                endpoint.poll()
        give_way()

    def set_aside(self, name: str) -> None:
        """Put the endpoint aside under this name: another may be made beside it, over the same pool."""
        self._aside[name] = self.endpoint, self.form, self.log, self.source
        self.endpoint = self.source = self._lists = None

    def take_up(self, name: str) -> None:
        """Go on with the endpoint of this name."""
        self.endpoint, self.form, self.log, self.source = self._aside.pop(name)
        self._lists = None

    def end(self) -> None:
        self.drop()

    def drop(self) -> None:
        """End the endpoint, and those that are set aside."""
        self._end_one()
        for name in list(self._aside):
            self.take_up(name)
            self._end_one()

    def _end_one(self) -> None:
        if self.endpoint is not None:
            self.endpoint.close()
            self.endpoint = self.source = self._lists = None
            self._let_go()

    def _let_go(self) -> None:
        """Free what nobody holds, also of what was frozen: pools and rings are large."""
        gc.unfreeze()
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # ------------------------------------------------------------------------------------------ the bytes
    def fill(self, rooms: list[int], tokens: int, fresh: bool = False) -> None:
        """Lay these rooms' truth into random pages (of a `fresh` cache: into successive ones), or mark all.

        What lies there already stays.
        """
        assert self.pool is not None
        wanted = rooms, tokens, fresh
        if self._filled == wanted:
            return
        self._filled = wanted
        size = self.pool.page_size
        used = -(-tokens // size)
        order = torch.arange(self.pool.pages) if fresh else torch.randperm(self.pool.pages)
        spread = order[: used * len(rooms)].tolist()
        self.tables = {room: torch.tensor(spread[i * used : i * used + used]) for i, room in enumerate(rooms)}
        if self.side == "P":
            for room in rooms:
                for place, truth in self._places(room, tokens):
                    place(truth)
        self.mark()

    def mark(self) -> None:
        assert self.pool is not None
        if self.side == "D":
            mark(self.pool)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def right(self, rooms: list[int], tokens: int) -> bool:
        """Whether a decode pool holds the truth of these rooms, and the marker in all other pages."""
        assert self.pool is not None
        found = [place(None).eq(truth).all() for room in rooms for place, truth in self._places(room, tokens)]
        free = torch.ones(self.pool.pages, dtype=torch.bool)
        free[torch.cat([self.tables[room] for room in rooms])] = False
        rest = free.nonzero().flatten().to(self.device)
        found += [tensor.view(torch.uint8)[rest].eq(MARKER).all() for tensor in (*self.pool.k, *self.pool.v)]
        return bool(torch.stack(found).all())

    def _places(self, room: int, tokens: int) -> Any:
        """Return for each layer's K and V a function that stores or reads the room's pages, and the truth."""
        pool, layout = self.pool, self.form.prefill if self.side == "P" else self.form.decode
        assert pool is not None
        first, heads = layout.heads_of(self.index)
        table = self.tables[room].to(self.device)
        token = torch.arange(tokens, device=self.device)
        page, slot = table[token // pool.page_size], token % pool.page_size
        for kind, tensors in enumerate((pool.k, pool.v)):
            for layer, tensor in enumerate(tensors):
                raw = tensor.view(torch.uint8)
                raw = raw if layout.order == "NHD" else raw.transpose(1, 2)
                seed = (room << 10) + 2 * layer + kind
                truth = seeded_bytes((tokens, layout.heads, raw.shape[3]), seed, self.device)[:, first : first + heads]

                def place(new: torch.Tensor | None, raw: torch.Tensor = raw) -> torch.Tensor:
                    if new is not None:
                        raw[page, slot] = new
                    return raw[page, slot]

                yield place, truth

    # --------------------------------------------------------------------------------------- the transfer
    def open(self, rooms: list[tuple[int, int]], tokens: int) -> None:
        """Open the rooms (id, gen); a prefill rank then asks for its grants until it has what it can have."""
        for room, gen in rooms:
            self.endpoint.open(Room(room, gen), tokens, self.tables[room])
        if self.side == "P":
            self.prefetch([Room(room, gen) for room, gen in rooms])

    def prefetch(self, rooms: list[Room]) -> None:
        """Say that the forwards of these rooms are scheduled, until all is there that can be had before."""
        for room in rooms:
            self.endpoint.prefetch(room)
        self._until(lambda: all(self._asked(room.key) for room in rooms))

    def _asked(self, key: int) -> bool:
        sends = inside(self.endpoint).rank.sends.get(key, {})
        waits = PSend.AWAIT_GRANT, PSend.AWAIT_PAGES
        return bool(sends) and all(v.state not in waits or at >> 16 == AUX_CHUNK for at, v in sends.items())

    def go(
        self, rooms: list[tuple[int, int]], tokens: int, at: float, forward: bool = False
    ) -> tuple[float, float, list[Moment]]:  # fmt: skip
        """Have all computed at the moment `at`, poll until the rooms are over; return (begin, end, log).

        They are reported then, or before, as their `forward` is launched.
        """
        endpoint, left, names = self.endpoint, len(rooms), [Room(*room) for room in rooms]
        self.log.clear()
        if forward and self.side == "P":
            self._held = self._held or HeldForward(self.device)
            event = self._held.begin()
            for name in names:
                endpoint.produced(name, tokens, event)
            begin = begin_at(endpoint, at)
            self._held.end()
            endpoint.poll()
            for name in names:  # the tokens are sampled from what the forward computes last
                endpoint.aux(name, b"token")
        else:
            begin = begin_at(endpoint, at)
            for number, name in enumerate(names if self.side == "P" else (), 1):
                endpoint.produced(name, tokens)
                endpoint.aux(name, b"token")
                if not number % FORWARD:
                    endpoint.poll()
        while left:
            endpoint.poll()
            for outcome in endpoint.finished():
                left -= 1
                if not outcome.ok:
                    reports = endpoint.reports()
                    raise RuntimeError(f"{self.side}{self.index}: {outcome.room} failed: {outcome.cause}; {reports}")
            give_way()
            if time.perf_counter() > begin + LONGEST_S:
                raise TimeoutError("\n".join(map(endpoint.explain, names)))
        end = time.perf_counter()
        gone = [0]
        self._until(lambda: _count(gone, endpoint.released()) >= len(rooms))
        return begin, end, list(self.log)

    def pages_of(self, room: int) -> list[int]:
        return [int(page) for page in self.tables[room]]

    def bare(self, rooms: list[int], tokens: int, at: float, there: dict[int, PagesThere]) -> tuple[float, float]:
        """The rooms by hand, from the moment `at`: (begin, end); `there`: their pages, by room, if mapped.

        Where they are not it is one room.
        """
        plan, (table, *others) = self.form.plan, [self.tables[room].to(self.device) for room in rooms]
        if there and self.side == "P":
            return store(self.endpoint, plan, [*zip((table, *others), there.values(), strict=True)], tokens, at)
        if there:
            tags = len(rooms) * chunks(tokens, 0, plan.chunk_tokens) * len(plan.writers(self.index))
            return await_tags(self.endpoint, tags)
        assert not others
        if self.side == "P":
            return send(self.endpoint, plan, table, tokens, at)
        return receive(self.endpoint, plan, table, tokens)

    def by_index(self, room: int, at: float, there: PagesThere) -> tuple[float, float]:
        """The room's pages by NIXL's own lists and indices, from the moment `at`: (begin, end)."""
        if self.side == "D":
            return await_tags(self.endpoint, 1)
        if self._lists is None or self._lists.endpoint is not self.endpoint:
            self._lists = IndexedPages(self.endpoint, self.form.packed)
        return self._lists.write(self.pages_of(room), there, at)

    def bulk(self, tokens: int, at: float) -> tuple[float, float]:
        """One write of all the bytes that this rank owes each reader, with nothing before and after it."""
        rank, data = inside(self.endpoint).rank, inside(self.endpoint).data
        plan, transport = self.form.plan, data.transport
        parts = [plan.part(self.index, share.reader, Cut(0, tokens)) for share in plan.duties(self.index)]
        most = max(part.nbytes for part in parts)
        if self.source is None or self.source[0].numel() < most:
            buffer, host = seeded_bytes((most,), 1, self.device), None
            if self.form.staging == "pinned" and buffer.is_cuda:
                host = HostBuffer(len(buffer), page_locked=True, twin=buffer)
            wire = buffer if host is None else host.bytes.copy_(buffer)
            self.source = buffer, self.registered(wire), host
        wanted = []
        for part in parts:
            peer = data.link_peer[rank.link_of[DECODE, part.share.reader]]
            descs = bulk(0, part.offset, part.nbytes)
            wanted.append((peer, self.source[1], transport.remote(peer, 0), descs, b""))
        return self.write_all(wanted, at)

    def registered(self, wire: torch.Tensor) -> Any:
        """Register memory of which bulk writes are made; its region."""
        kind: Literal["VRAM", "DRAM"] = "VRAM" if wire.is_cuda else "DRAM"
        transport = inside(self.endpoint).data.transport
        return transport.register(wire.data_ptr(), len(wire), kind, max(wire.get_device(), 0))

    def write_all(self, wanted: list[tuple[Any, ...]], at: float) -> tuple[float, float]:
        """Make these writes at once, from the moment `at`; (begin, when all are over)."""
        transport = inside(self.endpoint).data.transport
        begin = begin_at(self.endpoint, at)
        live = {transport.write(*each) for each in wanted}
        while live:
            live -= {event.handle for event in transport.poll() if isinstance(event, Completed)}
            give_way()
        return begin, time.perf_counter()

    def stats(self) -> dict[str, Any]:
        loop = inside(self.endpoint).loop
        return {**inside(self.endpoint).data.stats, "counts": dict(loop.counts), "reports": list(loop.reports)[-3:]}

    def _until(self, over: Callable[[], bool]) -> None:
        limit = time.perf_counter() + LONGEST_S
        while not over():
            self.endpoint.poll()
            give_way()
            if time.perf_counter() > limit:
                raise TimeoutError(f"{self.side}{self.index}: {self.endpoint.reports()}")


def give_way() -> None:
    """Let another process of a crowded machine go on."""
    if CROWDED:
        os.sched_yield()  # a sleep of nothing lasts as long as the timer may lag, 50 us


def _count(total: list[int], new: list[Any]) -> int:
    total[0] += len(new)
    return total[0]


def _watch(endpoint: Any, log: list[Moment]) -> None:
    """Write down when gathers, writes and scatters begin and are seen to end."""
    parts: Any = inside(endpoint)
    rank, loop, kernels, now = parts.rank, parts.loop, parts.data.kernels, time.perf_counter

    def timed(name: str, call: Callable[..., Any], chunk: Callable[..., int]) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            log.append((f"{name} begins", chunk(*args), now()))
            answer = call(*args, **named)
            log.append((name, chunk(*args), now()))
            return answer

        return called

    def watched(side: str, pool: Any, table: Any, first: int, *rest: Any) -> Any:
        launch = bind(side, pool, table, first, *rest)
        return timed("gather", launch, lambda *_: first // rank.chunk_tokens) if side == "gather" else launch

    for name, effect in (("post", do.PostBatch), ("scatter", do.LaunchScatter)):
        if effect in loop.handlers:
            loop.handlers[effect] = timed(name, loop.handlers[effect], lambda each: each.chunk)
    bind, kernels.bind = kernels.bind, watched
    raised, receive = loop.raise_event, rank.receive

    def received(link: int, epoch: int, room: int, body: Any, *rest: Any) -> Any:
        if isinstance(body, StgNotify):
            log.append(("StgNotify", body.chunk, now()))
        return receive(link, epoch, room, body, *rest)

    rank.receive = received

    def raise_event(event: Any) -> None:
        if isinstance(event, ev.Gathered | ev.BatchCompleted | ev.Scattered):
            log.append((type(event).__name__, event.chunk, now()))
        raised(event)

    loop.raise_event = raise_event
