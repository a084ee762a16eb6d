"""The base of all kernels: the calls of gather and scatter, their checks, and the ticket of a launch.

A staged part is `[K of each of its layers | V of each]`, each `[token, head, dim]`, dense. What is checked at each
call is what can be known on the host: the device, the types, the sizes. What cannot be checked without waiting for
the device are the page numbers in a table that lives on it. A kernel trusts them, as every paged kernel of an engine
does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from kvproto.io.held_calls import passed
from kvproto.io.kernels.crossing import Crossing, Launch, Most, PagesCopy, all_of_them
from kvproto.io.kernels.digest import wrong_table
from kvproto.io.kernels.pool import KernelError, Pool, Side, SliceCopy, need
from kvproto.io.ticket import Ticket
from kvproto.layout.plan import Share

__all__ = [
    "Done", "EventTicket", "Events", "KernelError", "Kernels", "Launch", "Pool", "Side", "SliceCopy", "StagedPart",
    "Ticket", "check_call", "need", "on_stream",
]  # fmt: skip


class Done:
    """The ticket of work that was over when the call returned."""

    def done(self) -> bool:
        return True


class EventTicket:
    """The ticket of work on a CUDA stream; its event returns to its pool once it is seen done."""

    __slots__ = ("_event", "_spare")

    def __init__(self, event: Any, spare: list[Any]) -> None:
        self._event, self._spare = event, spare

    def done(self) -> bool:
        event = self._event
        if event is None:
            return True
        if not passed(event):
            return False
        self._event = None
        self._spare.append(event)
        return True

    def lead(self, stream: Any) -> None:
        """Make later work on this stream wait for this work; the ticket is spent, its event free."""
        event, self._event = self._event, None
        if event is not None:
            stream.wait_event(event)
            self._spare.append(event)


class Events:
    """The events of one device, pooled: making one costs more than recording it. Of one thread."""

    def __init__(self) -> None:
        self._spare: list[Any] = []

    def ticket(self, stream: Any) -> EventTicket:
        """A ticket for all that is queued on this stream so far."""
        event: Any = self._spare.pop() if self._spare else _new_event()
        event.record(stream)
        return EventTicket(event, self._spare)


_new_event: Callable[[], Any] = torch.cuda.Event


def check_call(
    pool: Pool, cut: SliceCopy, table: torch.Tensor, first: int, tokens: int, outs: Sequence[torch.Tensor],
    digest: torch.Tensor | None,
) -> None:  # fmt: skip
    """The checks of every call: all that can be known without looking into device memory."""
    near = table.get_device() == pool.gpu
    if table.dtype is not torch.int64 or table.dim() != 1 or not near or not table.is_contiguous():
        raise KernelError(
            f"the page table must be dense 1-D int64 on {pool.device}, "
            f"not {table.dim()}-D {table.dtype} on {table.device}"
        )
    if tokens < 1 or first < 0 or first + tokens > table.numel() * pool.page_size:
        raise KernelError(
            f"tokens {first}..{first + tokens - 1} of a table of {table.numel()} pages of {pool.page_size} tokens"
        )
    for buffer, width in zip(outs, cut.token_bytes, strict=True):
        if buffer.dtype is not torch.uint8 or buffer.dim() != 1 or buffer.numel() != width * tokens:
            raise KernelError(
                f"a part of {width * tokens} bytes needs a 1-D uint8 view of that size, "
                f"not {tuple(buffer.shape)} of {buffer.dtype}"
            )
        if not buffer.is_contiguous():
            raise KernelError(f"a staged part must be dense; its stride is {buffer.stride(0)}")
        if buffer.get_device() != pool.gpu and not buffer.is_pinned():
            raise KernelError(f"staging on {buffer.device} is not reachable from a pool on {pool.device}")
    wrong = wrong_table(digest, cut.entries, pool) if digest is not None else None
    if wrong is not None:
        raise KernelError(wrong)


def on_stream(stream: Any) -> AbstractContextManager[Any]:
    """Run this block's work on the stream; None: on the caller's current one."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


StagedPart = tuple[Share, torch.Tensor]
"""A share and the uint8 view of its staged bytes."""


class Kernels(Protocol):
    """Gather and scatter. `table` holds the room's page numbers, `first` is the token the cell starts at.

    One thread gathers and scatters. Neither call waits for the device. Work goes to `stream`, by default the
    caller's current one, after `after` if an event is given. Tables and buffers must stay as they are until the
    ticket is done. With `digest`, a table for these shares, the digests of what was moved are added to it
    (`kvproto.io.kernels.digest`). Who derives from it need not gather single shares apart.
    """

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        """Prepare calls with all or some of these shares: checks, pointer tables, compiled kernels.

        `digests`: also the kernels of calls that want digests.

        This waits for the device, and may take seconds, so any thread may call it while another one gathers and
        scatters: neither undoes what the other has made. Kernels are compiled for parts at multiples of 16 bytes;
        the first call with others compiles again.
        """
        ...

    def prepare_joint(self, side: Side, chunk: Sequence[tuple[Pool, Sequence[Share]]]) -> None:  # noqa: ARG002
        """Prepare that calls of these pools, each with all of these shares, are joined (`join`).

        They have been prepared one by one, by the same thread."""
        return  # not abstract: kernels that join nothing prepare nothing

    def gather(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, share: Share, out: torch.Tensor,
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        """Copy a share of tokens [first, first + tokens) from the pages into `out`."""
        return self.gather_parts(pool, table, first, tokens, ((share, out),), stream=stream, after=after, digest=digest)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        """The same for several destinations at once."""
        ...

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        """Copy staged parts into the pages: those heads, layers and tokens, and nothing else."""
        ...

    def bind(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart]
    ) -> Launch:  # fmt: skip
        """`gather_parts` or `scatter` of these, checked and made ready now, to be launched later."""
        move = self.gather_parts if side == "gather" else self.scatter
        return lambda stream, after: move(pool, table, first, tokens, parts, stream=stream, after=after)

    def join(self, launches: Sequence[Launch]) -> Launch | None:  # noqa: ARG002
        """Join launches that `bind` has made into a cheaper one; None: they cannot be joined.

        Its ticket is that of all of them.  If it raises, none was launched."""
        return None

    def cross(
        self, pool: Pool, crossings: Sequence[Crossing], most: Most = all_of_them  # noqa: ARG002
    ) -> PagesCopy | None:  # fmt: skip
        """A copy straight into a peer's pages, where they are mapped here; None: these kernels have none.

        `most` is asked at each launch.
        This may take seconds, as `prepare` may, and any thread may call it."""
        return None
