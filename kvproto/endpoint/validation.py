"""Validation of the arguments of both endpoints, at construction and when a room is opened."""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.room_entry import NO_PAGES, NO_TABLE, HostPages, RoomEntry, as_table, need_pages
from kvproto.endpoint.last_rows import Slots, need_last_rows
from kvproto.errors import ArgumentError, Step, failures, run_all
from kvproto.io.control.control import Control
from kvproto.io.control.keys import Keys
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.observe.logs import SECURITY
from kvproto.protocol.codec import MAX_FRAME
from kvproto.protocol.messages import MAX_LAYER_GROUPS, MAX_SECRET
from kvproto.protocol.timing import Timing

#: version, trace id, parent id, flags: W3C Trace Context
TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


#: what a message can say of a room's tokens (u32)
MOST_TOKENS = (1 << 32) - 1
#: the longest time that an engine may give a room: a month
LONGEST_S = 31 * 86400.0


def new_incarnation() -> int:
    """Return a number (u48) above those of earlier incarnations: milliseconds since 2020, and the process."""
    milliseconds = time.time_ns() // 1_000_000 - 1_577_836_800_000
    return (milliseconds & (1 << 40) - 1) << 8 | os.getpid() & 0xFF


def need_incarnation(told: int | None) -> int:
    """Return this incarnation's number, a new one for None; ArgumentError unless it has 48 bits."""
    number = new_incarnation() if told is None else operator.index(told)
    if not 0 < number < 1 << 48:
        raise ArgumentError(f"incarnation {number}: a life's number has 48 bits, no sign, and is not 0")
    return number


def pick_kernels(pool: Pool) -> Kernels:
    """Triton on a GPU, torch on the CPU."""
    if pool.device.type == "cuda":
        from kvproto.io.kernels.triton import TritonKernels

        return TritonKernels()
    from kvproto.io.kernels.torch import TorchKernels

    return TorchKernels()


def check_pool(layout: Layout, index: int, pool: Pool, chunk_tokens: int | None) -> None:
    """Raise ArgumentError unless the pool is this rank's share and chunk_tokens is whole pages."""
    if layout.named or pool.of is not None:
        need_caches(layout, index, pool)
        need_chunk_tokens(layout, chunk_tokens)
        return
    _, heads = layout.heads_of(index)
    _, layers = layout.layers_of(index)
    told = (layers, heads, layout.k_dim, layout.v_dim, layout.page_size, layout.itemsize, layout.order)
    dims = pool.k[0].shape[3], pool.v[0].shape[3] if pool.v else 0
    found = (pool.layers, pool.heads, *dims, pool.page_size, pool.itemsize, pool.order)
    if told != found:
        names = "(layers, heads, K dim, V dim, page size, element bytes, order)"
        raise ArgumentError(f"the layout gives rank {index} {names} = {told}, the pool has {found}")
    named = getattr(torch, layout.dtype, None)
    if isinstance(named, torch.dtype) and pool.dtype not in (named, torch.uint8):
        raise ArgumentError(
            f"the layout's elements are {layout.dtype}, the pool's {pool.dtype}: both sides compare that name, so it "
            "must be the pool's own (raw bytes, torch.uint8, may have any)"
        )
    need_chunk_tokens(layout, chunk_tokens)


def need_caches(layout: Layout, index: int, pool: Pool) -> None:
    """ArgumentError unless the pool was made for this rank of this layout of named caches."""
    if pool.of is None:
        raise ArgumentError("the layout names its caches, and the pool is one of K and V: make a CachePool")
    if pool.of != (layout, index):
        raise ArgumentError(f"the pool is of rank {pool.of[1]} of {pool.of[0]}: make it for rank {index} of the layout")


def need_chunk_tokens(layout: Layout, chunk_tokens: int | None) -> None:
    """LayoutError unless chunks of so many tokens are whole pages; None: not known yet."""
    if chunk_tokens is not None:
        Plan(layout, layout, chunk_tokens)


def need_room(
    layout: Layout, tokens: int, pages: Any, pool: Pool, streams: DeviceStreams, *, whole: bool = True,
    slot: Slots | None = None, window: Any = None,
) -> RoomEntry:  # fmt: skip
    """Make an entry with its page table on device and host; ArgumentError names what is wrong.

    Unless it has to be `whole`, the table may lack pages, and the room its slots or window, which come later.
    """
    tokens, host = operator.index(tokens), as_table(pages)
    if not 0 < tokens <= MOST_TOKENS:
        raise ArgumentError(f"a room of {tokens} tokens: a prompt has at least one, and at most {MOST_TOKENS}")
    need_pages(layout, tokens if whole else 0, host, pool.pages)
    last = slot is not None or window is not None or pool.ends  # most pools have none: a call less
    mine = need_last_rows(pool, tokens, slot, window, late=not whole) if last else ()
    # Before the table of pages is sent: the event of that one, the later, is the one that launches wait for.
    tables, sent = streams.place_ends(pool, mine) if mine else ((), None)
    given, missing = len(host), -(-tokens // layout.page_size) - len(host)
    if missing > 0:
        host = np.concatenate([host, np.zeros(missing, np.int64)])
        table, placed = streams.place(host)
        return RoomEntry(tokens, table, host, given, mine, tables, placed=placed)
    entry = RoomEntry(tokens, NO_TABLE, host, given, mine, tables, placed=sent)
    streams.put_off(entry)
    return entry


def need_more_pages(layout: Layout, entry: RoomEntry, upto: int, pages: Any, pool: Pool) -> HostPages:
    """Return the room's next pages, as many as it lacks; ArgumentError: too few for `upto` tokens."""
    upto, more = operator.index(upto), as_table(pages)
    if not 0 <= upto <= entry.tokens:
        raise ArgumentError(f"{upto} tokens produced of {entry.tokens}")
    if more is NO_PAGES and entry.given == len(entry.pages):  # as most: all came with `open`
        return more
    need_pages(layout, upto, more, pool.pages, entry.given)
    return more[: max(0, len(entry.pages) - entry.given)] if len(more) else more


def need_layers(room: object, entry: RoomEntry, upto: int, layers: int | None, held: int) -> int:
    """Return the layers whose KV of the first `upto` tokens is computed (None: all that are `held`).

    ArgumentError: the rank has not so many, or the forward that was begun before is not yet said to be over.
    """
    if layers is None:
        return held
    layers = operator.index(layers)
    if not 0 < layers <= held:
        raise ArgumentError(f"{layers} layers produced of the {held} that this rank holds")
    if layers < held and entry.ahead > entry.full and (upto, layers) < (entry.ahead, entry.layers):
        begun = f"{entry.layers} of {held} layers of the first {entry.ahead} tokens are there"
        raise ArgumentError(f"{room}: {begun}, and now {layers} of {upto}: layers and tokens only grow")
    if layers < held and upto > entry.ahead > entry.full:
        begun = f"{entry.layers} of {held} layers of the first {entry.ahead} tokens are there"
        raise ArgumentError(f"{room}: {begun}: the others come before those of token {upto}")
    return layers


def need_layer_groups(plan: Plan, groups: int) -> int:
    """ArgumentError unless every share of the plan has so many groups of layers."""
    groups, most = operator.index(groups), min(plan.fewest_layers, MAX_LAYER_GROUPS)
    if not 1 <= groups <= most:
        raise ArgumentError(f"{groups} layer groups: from 1 to {most}, the layers of the smallest share")
    return groups


def why_unprepared(groups: int, most: int) -> str:
    """Return why no kernels are compiled for so many layer groups; empty: they are."""
    if groups <= most and groups.bit_count() == 1:
        return ""
    ready = ", ".join(str(1 << each) for each in range(most.bit_length()))
    return f"{groups} layer groups: kernels are compiled for {ready}, powers of 2 up to Settings.layer_groups ({most})"


def need_seconds(within: float | None) -> float:
    """0 for None; ArgumentError unless it is a time that a room can be given."""
    if within is None:
        return 0.0
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0.0 < within < LONGEST_S:
        raise ArgumentError(f"within {within!r}: it is in seconds, more than 0 and less than {LONGEST_S:g}")
    return float(within)


def need_group(group: int) -> int:
    """ArgumentError unless it can be an engine instance's number."""
    group = operator.index(group)
    if not 0 < group < 1 << 64:
        raise ArgumentError(f"group {group}: an instance's number has 64 bits, no sign, and is not 0")
    return group


def need_secret(secret: bytes) -> bytes:
    """ArgumentError unless it can be a room's."""
    if not isinstance(secret, bytes) or len(secret) > MAX_SECRET:
        raise ArgumentError(f"a secret of type {type(secret).__name__}: it is up to {MAX_SECRET} bytes")
    return secret


def as_traceparent(text: str) -> bytes:
    """Return a traceparent's bytes; empty if malformed, since a foreign header must not fail a request."""
    return text.encode() if isinstance(text, str) and TRACEPARENT.fullmatch(text) else b""


def make_control(bind: str | None, keys: Keys | str | Path | None, timing: Timing, *, insecure: bool) -> Control:
    """Make the control plane with the codec's bound of a frame; `keys`: a pair, or its secret file."""
    keys = Keys.load(keys) if isinstance(keys, str | Path) else keys
    if insecure and keys is None:
        SECURITY.warning("insecure=True: %s without keys, beyond loopback, too", bind or "connects")
    answer_s = timing.heartbeat.period * timing.heartbeat.tries
    return Control(bind, max_frame=MAX_FRAME, keys=keys, insecure=insecure, answer_s=answer_s)


@contextmanager
def undone_if_it_fails(*first: Step) -> Iterator[list[Step]]:
    """Run these steps, and those that the block adds to the list, if it raises, so nothing is leaked.

    The newest step runs first, all of them run, and the block's own error is the one that is raised.
    """
    undo = [*first]
    try:
        yield undo
    except BaseException as error:
        failed = run_all(reversed(undo))
        if failed:
            error.add_note(f"and not all could be undone: {failures(failed)}")
        raise
