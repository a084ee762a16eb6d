"""Bootstrap ranks: the prefill ranks that a bootstrap server knows, and who may change that.

The port of a bootstrap server is open to whoever reaches it, and two instances may be given one port by mistake.  So a
rank that lives keeps its place, and its instance the server.

An instance with data-parallel attention has several groups of ranks.  Each is a group of the protocol with a card of
its own; a card is given when every rank of every group has announced itself.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec.structs import replace

from kvproto.adapters.card import MAX_DATA_PARALLEL, Card, data_parallel_group
from kvproto.adapters.card_trust import CardTrust
from kvproto.errors import ArgumentError
from kvproto.fsm.codec import UNREADABLE
from kvproto.layout.sharding import Layout

#: seconds for which a rank keeps its place after it was heard
LIVES_S = 6.0
REMEDY = "give each prefill instance a --disaggregation-bootstrap-port of its own; one that starts anew is heard soon"


class Rank(msgspec.Struct, frozen=True):
    """A prefill rank, as it announces itself; `group`: the instance's; `rank`: its place in its dp rank."""

    rank: int
    address: str
    group: int
    incarnation: int
    layout: Layout
    chunk_tokens: int
    dp_rank: int = 0
    data_parallel: int = 1
    #: whether a room is at dp rank room % data_parallel
    by_room: bool = True
    #: what the server has answered to the first announcement; empty: nothing yet
    nonce: Annotated[str, msgspec.Meta(max_length=64)] = ""


class TakenError(ArgumentError):
    """The server's ranks live, and this one is not of them, or has not their word."""


class Entry(msgspec.Struct):
    """A rank, the nonce that it was given when it registered first, and when it was heard last."""

    rank: Rank
    nonce: str
    heard: float


class Ranks:
    """The ranks of one prefill instance that have announced themselves; any thread.

    While a rank announces itself (`LIVES_S`), its place changes only for who shows the nonce that this server has given
    it, and none of another group, layout or chunk size is taken beside it.  A place that was not heard of for longer is
    free, so an instance that starts anew has it then.
    """

    def __init__(self, trust: CardTrust | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`trust`: what signs the card, and what announcements must be signed with, if it has a secret."""
        self.trust, self._clock = trust or CardTrust(), clock
        #: by (dp rank, rank)
        self._known: dict[tuple[int, int], Entry] = {}
        self._lock = threading.Lock()

    def put(self, body: bytes, signature: str = "") -> str:
        """Register a rank, or renew its place; return its nonce.

        Raises: ArgumentError: this is no rank, or not signed.  TakenError: it is not of the instance that lives.
        """
        self.need_signed(body, signature)
        try:
            rank = msgspec.json.decode(body, type=Rank)
        except UNREADABLE as error:  # a ValueError: the layout's own
            raise ArgumentError(f"this is no prefill rank: {error}") from error
        if not 0 <= rank.rank < rank.layout.ranks:
            raise ArgumentError(f"rank {rank.rank} of {rank.layout.ranks}")
        if not 0 <= rank.dp_rank < rank.data_parallel <= MAX_DATA_PARALLEL:
            raise ArgumentError(f"data-parallel rank {rank.dp_rank} of {rank.data_parallel}")
        with self._lock:
            return self._take(rank, self._clock())

    def need_signed(self, body: bytes, signature: str) -> None:
        """Raise ArgumentError unless this signs the body, or there is no secret."""
        if not self.trust.signed(body, signature):
            raise ArgumentError("the announcement is not signed with this instance's card secret: "
                                "give all of its processes the same secret file")  # fmt: skip

    def _take(self, rank: Rank, now: float) -> str:
        live = {index: entry for index, entry in self._known.items() if now - entry.heard < LIVES_S}
        place = rank.dp_rank, rank.rank
        own = live.pop(place, None)
        if own is not None and not hmac.compare_digest(own.nonce.encode(), rank.nonce.encode()):
            whose = f"prefill rank {rank.rank} of group {own.rank.group}"
            raise TakenError(f"{whose} is registered here and lives: {REMEDY}")
        for entry in live.values():
            if _kind(entry.rank) != _kind(rank):
                group = entry.rank.group
                raise TakenError(f"group {group} is registered here and lives, as another instance or layout: {REMEDY}")
        if any(_kind(entry.rank) != _kind(rank) for entry in self._known.values()):
            self._known.clear()  # the instance has started with other options
        nonce = own.nonce if own is not None else secrets.token_hex(16)
        self._known[place] = Entry(replace(rank, nonce=""), nonce, now)
        return nonce

    def card(self, dp_rank: int = 0) -> Card | None:
        """Return the card of a data-parallel rank, signed if there is a secret; None: some rank is missing.

        Raises: ArgumentError: the instance has no such data-parallel rank.
        """
        with self._lock:
            ranks = [self._known[place].rank for place in sorted(self._known)]
        if not ranks or len(ranks) < ranks[0].layout.ranks * ranks[0].data_parallel:
            return None
        one, mine = ranks[0], [rank for rank in ranks if rank.dp_rank == dp_rank]
        if not mine:
            raise ArgumentError(f"data-parallel rank {dp_rank}: this instance has {one.data_parallel}, counted from 0")
        group = data_parallel_group(one.group, dp_rank, one.data_parallel)
        incarnation, addresses = max(rank.incarnation for rank in mine), tuple(rank.address for rank in mine)
        card = Card(group, incarnation, one.layout, one.chunk_tokens, addresses, data_parallel=one.data_parallel,
                    by_room=one.by_room)  # fmt: skip
        return self.trust.sign(card)


def _kind(rank: Rank) -> tuple[int, Layout, int, int, bool]:
    """The facts that all ranks of one instance share."""
    return rank.group, rank.layout, rank.chunk_tokens, rank.data_parallel, rank.by_room
