"""The prefill engine's endpoint.

The order of calls for a room: `open` with pages for all of its tokens, `prefetch` when the forward is scheduled,
`produced` as tokens come to be in the pages, `aux` with the aux row, in any order that suits the engine; then
`finished` and `released` tell the rest.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

from kvproto.engine.connector import WireUp
from kvproto.engine.endpoint import Endpoint
from kvproto.engine.prefill_effects import PrefillData
from kvproto.engine.room import Room
from kvproto.engine.room_entry import RoomEntry
from kvproto.engine.staging_buffers import Kind
from kvproto.engine.validation import check_pool, make_control, need_room, need_secret, new_incarnation
from kvproto.errors import ArgumentError
from kvproto.fsm.vocabulary import Event
from kvproto.io.clock import Clock, MonotonicClock
from kvproto.io.control.control import LOOPBACK
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.transports.base import Transport
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.messages import MAX_AUX
from kvproto.protocol.states import Cause
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.settings import DECODE_GROUP, PREFILL_GROUP, Settings


class PrefillEndpoint(Endpoint):
    """One prefill rank of an engine."""

    _rank: PrefillRank
    _data: PrefillData
    _abort_cause = Cause.PREFILL_ABORTED

    def __init__(
        self, layout: Layout, index: int, pool: Pool, transport: Transport, *, grid: int, group: int = PREFILL_GROUP,
        bind: str = LOOPBACK, settings: Settings | None = None, kernels: Kernels | None = None,
        clock: Clock | None = None, incarnation: int | None = None, staging: Kind = "device", digests: bool = False,
        keys: Keys | str | Path | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        """`index`: this rank in its group; `grid`: tokens a chunk, whole pages of both sides; `group`: the engine
        instance's number (u64); `bind`: where the control plane listens; `staging`: where the slots are, "pinned" for
        a transport that cannot reach a GPU's memory; `digests`: keep those of what is moved, see `digests`; `keys`: the
        secret file of this process (`kvproto keys`), needed beyond loopback unless `insecure`.

        ArgumentError: the pool is not this rank's share of the layout, or a file is no key.  ControlError: the address
        cannot be had, or is beyond loopback and there are no keys.
        """
        check_pool(layout, index, pool, grid)
        rank = PrefillRank(
            layout, index, group=group, grid=grid, incarnation=incarnation or new_incarnation(), settings=settings
        )
        super().__init__(rank, pool, make_control(bind, keys, insecure=insecure), clock or MonotonicClock())
        kernels = self._kernels(kernels, digests=digests)
        self._data = PrefillData(self._loop, rank, pool, kernels, transport, self._entries, staging)
        self._wire_up = WireUp(transport, self._wired)
        self._loop.handlers |= {
            do.Connect: self._connect, do.SayWelcome: self._say_welcome, do.SayRefusal: self._say_refusal,
            do.TransmitAux: self._send_aux,
        }  # fmt: skip

    @property
    def address(self) -> str:
        """Where decode ranks connect to."""
        assert self._loop.control.address is not None
        return self._loop.control.address

    # ------------------------------------------------------------------------------------ the engine's calls
    def open(
        self, room: Room, tokens: int, pages: Any, *, group: int = DECODE_GROUP, secret: bytes = b""
    ) -> None:  # fmt: skip
        """A prompt of `tokens` tokens, whose KV will be in these pages (page ids in token order).

        It is for the decode group of this number, whose engine shows the same `secret` (up to 64 bytes): whoever else
        opens the room is told that it is not entitled to it (`Cause.NOT_ENTITLED`).
        """
        entry = need_room(self._rank.layout, tokens, pages, self.pool, self._data.lane)
        claim = self._rank.claim(operator.index(group), need_secret(secret))
        self._enter(room, entry, lambda: ev.EngineOpened(room.key, entry.tokens, claim))

    def prefetch(self, room: Room) -> None:
        """The forward is scheduled: ask for grants now, so that they are there when the KV is."""
        if self._entry(room) is not None:
            self._do(lambda: ev.ForwardScheduled(room.key))

    def produced(self, room: Room, tokens: int, after: Any = None) -> None:
        """The KV of the first `tokens` tokens is in the pages; on a GPU, once the event `after` has passed."""
        entry = self._entry(room)
        if entry is None:
            return
        tokens = operator.index(tokens)
        if not 0 <= tokens <= entry.tokens:
            raise ArgumentError(f"{tokens} tokens produced of {entry.tokens}")
        if tokens == entry.tokens and not entry.computed:
            entry.computed = self._loop.clock.real()

        def begin() -> None:
            entry.after = after if after is not None else entry.after
            self._announce(room.key, entry, tokens, 1)

        self._loop.call(begin)

    def _announce(self, key: int, entry: RoomEntry, tokens: int, cells: int) -> None:
        """Tell the rank of a chunk, then of two, then of four, each time when a gather has ended.

        Telling it of everything takes the host longer than a gather takes the device: the first write would wait.
        """
        value = self._rank.value_of(key)
        if value is None or self._entries.get(key) is not entry:
            return
        told = value.work.produced if value.work is not None else 0
        whole = max(0, told - value.prefix) // self._rank.grid
        upto = min(tokens, value.prefix + (whole + cells) * self._rank.grid)
        self._loop.submit(self._rank.handle(ev.TokensProduced(key, upto), self._loop.now))
        if upto < tokens:
            self._data.gathers.later(lambda: self._announce(key, entry, tokens, 2 * cells))

    def aux(self, room: Room, row: bytes | bytearray | memoryview) -> None:
        """The aux row, such as the first token: it travels with the KV.  Every rank may give it; leads send it."""
        row = bytes(memoryview(row))
        if len(row) > MAX_AUX:
            raise ArgumentError(f"an aux row of {len(row)} bytes, more than {MAX_AUX}")
        entry = self._entry(room)
        if entry is None:
            return

        def event() -> Event:
            entry.aux = entry.aux if entry.aux is not None else row
            return ev.AuxProvided(room.key)

        self._do(event)

    def close(self) -> None:
        """Stop, and let go of everything."""
        self._wire_up.close()
        super().close()

    # ------------------------------------------------------------------------------------------ the loop's
    def _knows_room(self, key: int) -> bool:
        value = self._rank.value_of(key)
        return value.state.name != "AWAIT_ENGINE" and (value.work is None or value.work.owned)

    def _connect(self, effect: do.Connect) -> None:
        plan, index = effect.plan, self._rank.index
        self._data.plans[effect.link] = plan, effect.rank
        owed = [share for share in plan.duties(index) if share.reader == effect.rank]

        def prepare() -> None:
            if owed and not plan.direct(owed[0]):
                self._data.kernels.prepare(self.pool, "gather", owed)

        self._wire_up.connect(effect.link, effect.session, effect.endpoint, prepare)

    def _wired(self, event: ev.WiredUp | ev.WireFailed) -> None:
        def tell() -> None:
            if why := getattr(event, "why", ""):
                self._loop.logs.wire(self._peer_name(event.peer), why)
            self._loop.submit(self._rank.handle(event, self._loop.now))

        self._loop.call(tell)
        self._loop.control.wake()

    def _say_welcome(self, effect: do.SayWelcome) -> None:
        self._loop.connections.send(effect.link, effect.epoch, 0, self._rank.welcome(effect.session, effect.epoch))

    def _say_refusal(self, effect: do.SayRefusal) -> None:
        self._loop.connections.send(effect.link, 0, 0, msg.Refusal(effect.session, effect.why[:1024]))

    def _send_aux(self, effect: do.TransmitAux) -> None:
        row = self._entries[effect.room].aux
        self._loop.connections.send(effect.link, effect.epoch, effect.room, msg.Aux(row or b""))
