"""The peer endpoint: one rank that sends KV and takes KV, as vLLM's `kv_both` does.

    peer = PeerEndpoint(layout, 0, pool, transport, chunk_tokens=512, group=3)
    peer.decode.connect(layout, [other.address], group=other_group)   # takes KV from there
    peer.prefill.open(room, tokens, pages, group=other_group)         # sends KV there
    peer.start()                                                      # one thread for both

`prefill` and `decode` are endpoints of their own with all their calls, and no room, link or setting in common.  They
share the pool, which is registered once, the transport, and the loop's thread.  So those calls that drive or close an
endpoint act on both, whichever is called.  Why it is so, and what the engine owes: docs/design/both_directions.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from kvproto.call_arguments import checked
from kvproto.data.pool_memory import PoolMemory, steps_back
from kvproto.data.staging_buffers import Kind
from kvproto.data.transport_roles import transport_roles
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.news import News
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.endpoint.validation import make_control, need_group, need_incarnation, undone_if_it_fails
from kvproto.io.clock import Clock
from kvproto.io.control.control import LOOPBACK, Control
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.transports.base import Transport
from kvproto.layout.sharding import Layout
from kvproto.loop.joined_loops import JoinedLoops
from kvproto.loop.own_thread import SWITCH_S, OwnThread
from kvproto.settings import Settings

#: why a role does not detach
STAYS = (
    "a peer endpoint keeps its pool until it is closed: a detach would end the transport's instance over which its "
    "other role writes; an engine that detaches has a PrefillEndpoint and a DecodeEndpoint, each with its own transport"
)


class _PrefillRole(PrefillEndpoint):
    """The prefill role, whose pool the decode role has opened, and whose control plane listens already."""

    def __init__(self, opened: PoolMemory, listens: Control, *args: Any, **named: Any) -> None:
        self._opened, self._listens = opened, listens
        super().__init__(*args, **named)


class PeerEndpoint:
    """One rank of an engine in both roles."""

    #: the role that sends KV, and the one that takes it
    prefill: PrefillEndpoint
    decode: DecodeEndpoint

    @checked
    def __init__(
        self, layout: Layout, index: int, pool: Pool, transport: Transport, *, chunk_tokens: int, group: int,
        bind: str = LOOPBACK, settings: Settings | None = None, kernels: Kernels | None = None,
        clock: Clock | None = None, incarnation: int | None = None, staging: Kind = "device", digests: bool = False,
        keys: Keys | str | Path | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        """Allocate slots and ring, register them and the pool, and listen for ranks that take KV from here.

        Args:
            layout: the group's layout, in both roles
            index: this rank in its group
            pool: this rank's share of the KV cache
            transport: a transport of its own, which closes with the endpoint
            chunk_tokens: tokens of a chunk, whole pages of both sides; `decode.connect` may name another
            group: the engine instance's number (u64), in both roles
            bind: the control plane's address, for ranks that take KV from here
            settings: sizes in bytes, timers in seconds, for both roles
            kernels: default: the pool's own
            clock: default: each role's usual one
            incarnation: the number of this start (u48), above those of its earlier ones (default: by the clock)
            staging: "device", or "pinned" for a transport that cannot reach a GPU's memory
            digests: keep digests of the moved KV, see `Endpoint.digests`
            keys: the secret file of this process (`kvproto keys`), needed beyond loopback
            insecure: allow addresses beyond loopback without keys

        Raises:
            ArgumentError: the pool is not this rank's share of the layout, or a file is no key
            ControlError: the address is not available, or is beyond loopback and there are no keys

        """
        named: dict[str, Any] = {
            "chunk_tokens": chunk_tokens, "group": need_group(group), "settings": settings, "kernels": kernels,
            "clock": clock, "incarnation": need_incarnation(incarnation), "staging": staging, "digests": digests,
            "keys": Keys.load(keys) if isinstance(keys, str | Path) else keys, "insecure": insecure,
        }  # fmt: skip
        sends, takes = transport_roles(transport)
        # Before the decode role asks for the transport's description: then no other endpoint may have the transport,
        # and a caller whose port is taken could not repeat this call with another port.
        control = make_control(bind, named["keys"], (settings or Settings()).timing, insecure=insecure)
        with undone_if_it_fails(("the control plane", control.close)) as undo:
            # First, since peers know the regions of the ring and the pool by number, and the slots are behind them.
            self.decode = DecodeEndpoint(layout, index, pool, takes, **named)
            opened = self.decode._data.memory  # noqa: SLF001  # the role of this rank
            undo += [*steps_back(transport, opened.regions), ("the decode role", self.decode.close)]
            self.prefill = _PrefillRole(opened, control, layout, index, pool, sends, **named)
        self._name = f"kvproto-{type(self).__name__}-{index}"
        # The decode role first: how long its poll of the transport takes says whether bytes are coming.
        roles = {"its decode role": self.decode, "its prefill role": self.prefill}
        loops = {name: role._loop for name, role in roles.items()}  # noqa: SLF001
        self._loop, self._alarm = JoinedLoops(loops, ("the transport", transport.close)), News()
        self._loop.ended, self._news = self._alarm.set, [role._news for role in roles.values()]  # noqa: SLF001
        for role, news in zip(roles.values(), self._news, strict=True):
            news.common = self._alarm
            role._attachment.stays = STAYS  # noqa: SLF001

    @property
    def address(self) -> str:
        """The address that ranks connect to which take KV from here."""
        return self.prefill.address

    # ------------------------------------------------------------------------------------ for both roles
    def poll(self) -> bool:
        """One bounded pass of each role; whether anything happened."""
        return self.prefill.poll()

    def wait(self, timeout: float = 1.0) -> None:
        """Sleep until one of the roles may have something to do, `timeout` seconds at most."""
        self.prefill.wait(timeout)

    @checked
    def start(
        self, switch_interval: float = SWITCH_S, *, freeze: bool = False, cores: Iterable[int] | None = None
    ) -> None:  # fmt: skip
        """Run both roles on one thread of their own; the arguments are those of `Endpoint.start`."""
        asks = OwnThread(switch_interval, freeze=freeze, cores=cores, gpu=self.prefill.pool.gpu)
        self._loop.run(self._name, asks)

    def adopt(self) -> None:
        """Poll from the calling thread from now on; the one that did so before must have stopped."""
        self.prefill.adopt()

    @property
    def next_deadline(self) -> float:
        """Seconds from the last `poll` until the next one is due, if nothing arrives before; infinity: never."""
        return self.prefill.next_deadline

    @checked
    def wait_news(self, timeout: float | None = None) -> bool:
        """Block until either role has news to take, if the loop has its own thread.

        `timeout` in seconds; false if it passed, or the endpoint was closed.
        """
        return self._alarm.wait(self._loop, lambda: any(self._news), timeout)

    def fileno(self) -> int:
        """Return a descriptor that is readable while `wait_news` would not block, for `select` or asyncio."""
        return self._alarm.fileno()

    @property
    def closed(self) -> bool:
        """Whether `close` was called.  Any thread."""
        return self._loop.closed

    def close(self) -> None:
        """Give up the rooms of both roles that are not over, stop, and release everything.

        No other thread may be polling.  EndpointError: all of it was tried, and something failed.
        """
        self.prefill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
