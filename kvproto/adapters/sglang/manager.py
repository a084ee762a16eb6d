"""The manager of SGLang's KV: one for each rank, with its endpoint and the called instances.

The endpoint's loop has a thread of its own, and SGLang's scheduler never waits for it: it polls, and `advance` passes
the outcomes of rooms to their requests (`requests`).  A decode rank finds a prefill instance by its card (`bootstrap`),
and fetches the card again while a link is not up, because an instance that restarts listens elsewhere.

This file imports nothing of SGLang: `install` gives the class its base and SGLang's types.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kvproto.adapters.card import Card, data_parallel_group, group_of
from kvproto.adapters.introductions import Introductions
from kvproto.adapters.judging import judged
from kvproto.adapters.sglang import tables as t
from kvproto.adapters.sglang.bootstrap import Cards, announce, ask, signature_of
from kvproto.adapters.sglang.bootstrap_ranks import Rank
from kvproto.adapters.sglang.lacking_cards import Source
from kvproto.adapters.sglang.options import Options
from kvproto.adapters.sglang.pools import AuxRows, Instance, layout_of, pool_of
from kvproto.adapters.sglang.room_lives import RoomLives
from kvproto.adapters.sglang.room_reporter import RoomReporter
from kvproto.adapters.stage_caches import Exchange, on_all_stages
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.endpoint.validation import new_incarnation
from kvproto.errors import ArgumentError, LinkError, NotFoundError
from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Table
from kvproto.fsm.timing import Timer
from kvproto.io.transports.base import Transport
from kvproto.layout.sharding import Layout
from kvproto.protocol.messages import MAX_AUX
from kvproto.protocol.timing import Timing
from kvproto.room import Room

if TYPE_CHECKING:
    from kvproto.adapters.sglang.requests import Request

log = logging.getLogger("kvproto.sglang")
#: seconds that a scheduler waits for a card that it asks for for the first time
GLANCE = 0.02
REMEDY = (
    "have the router send routed_dp_rank to prefill and the same number as disagg_prefill_dp_rank to decode, or set "
    "SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK=1 on both sides"
)


class Prefill(NamedTuple):
    """A prefill instance, as SGLang's decode scheduler asks for it."""

    dp_size: int
    follow_bootstrap_room: bool


def close_at_exit(endpoint: PrefillEndpoint | DecodeEndpoint) -> None:
    """Have peers told goodbye when the process ends, since SGLang tells a backend nothing of its end."""
    weak = weakref.ref(endpoint)
    atexit.register(lambda: None if (made := weak()) is None else made.close())


class Manager:
    """SGLang's KV manager.  ArgumentError: an unsupported feature, or a wrong option."""

    enable_deferred_decode_kv_release = supports_deferred_decode_kv_release = True
    mla = False  #: whether the model has latents
    supports_host_destination = supports_role_switch = enable_all_cp_ranks_for_transfer = False
    #: what SGLang says of this rank, from (server_args, mla); and what it raises for a failed request
    look: ClassVar[Callable[..., Instance]]
    #: how pipeline stages tell each other once of their caches; makes what later ones post for the first one
    exchange: ClassVar[Exchange]
    make_board: ClassVar[Callable[[], Any]]
    failure: ClassVar[Callable[..., Exception]]
    metric: ClassVar[Callable[..., Any]]

    def __init__(self, args: Any, disaggregation_mode: Any, server_args: Any, is_mla_backend: Any = None) -> None:
        self.kv_args, self.options, self.mla = args, Options.read(), (mla := bool(is_mla_backend))
        self.instance, self.prefill = type(self).look(server_args, mla=mla), disaggregation_mode.value == "prefill"
        self.layout, self.aux = self._layout(args), AuxRows(args, MAX_AUX)
        #: with stages at prefill: by room, what later stages answer to a poll
        self.board: Any = type(self).make_board() if self.prefill and self.instance.stages else None
        #: with stages on a GPU: the stream of their forwards
        self.forwards: Any = None
        #: by room: the requests whose room is not released
        self.tasks: dict[Room, Request] = {}
        self.lives = RoomLives(self.tasks)
        #: by the address of a bootstrap server: the instance for SGLang; by dp rank of it: the card that was called
        self.prefill_info_table: dict[str, Prefill] = {}
        self.cards = Cards()
        self.called: dict[Source, Card] = {}
        #: of the first rank of a prefill instance's data-parallel rank
        self.reporter: RoomReporter | None = None
        self.endpoint: Any
        self.endpoint = made = self._make(new_incarnation())
        self.known = Introductions(made, self.options.trust()) if isinstance(made, DecodeEndpoint) else None
        self.endpoint.start()
        close_at_exit(made)

    def _layout(self, args: Any) -> Layout:
        mine, mla = self.instance, self.mla
        if not mine.stages:
            return layout_of(args, mine, mla=mla)
        return on_all_stages(lambda join: layout_of(args, mine, mla=mla, join=join), type(self).exchange)

    def _make(self, incarnation: int) -> PrefillEndpoint | DecodeEndpoint:
        mine, layout, options = self.instance, self.layout, self.options
        waits = Timing(engine=Timer(mine.bootstrap), bootstrap=Timer(mine.bootstrap), stall=Timer(mine.waiting))
        named = group_of(options.name or mine.name)
        group = data_parallel_group(named, mine.dp_rank, mine.data_parallel)
        parts = layout, mine.rank, pool_of(self.kv_args, layout, mine, mla=self.mla), self.make_transport()
        choices: dict[str, Any] = {
            "group": group, "incarnation": incarnation, "settings": options.settings(waits),
            "keys": options.keys or None, "insecure": options.insecure, "digests": bool(options.digests),
        }  # fmt: skip
        if not self.prefill:
            return judged(lambda: DecodeEndpoint(*parts, **choices), wanted=options.conformance)
        chunk_tokens = options.chunk_tokens_of(layout.page_size, mine.chunk)
        choices |= {"chunk_tokens": chunk_tokens, "bind": f"tcp://{mine.host}:*"}
        endpoint = judged(lambda: PrefillEndpoint(*parts, **choices), wanted=options.conformance)
        rank = Rank(mine.rank, endpoint.address, named, incarnation, layout, chunk_tokens, mine.dp_rank,
                    mine.data_parallel, mine.by_room)  # fmt: skip
        announce(mine.bootstrap_server, rank, log, options.trust(), lambda: not endpoint.closed)
        if mine.data_parallel > 1 and mine.rank == 0:
            self.reporter = self._reporter(endpoint)
            self.reporter.start()
        return endpoint

    def _reporter(self, endpoint: PrefillEndpoint) -> RoomReporter:
        """Return what tells the bootstrap server of rooms that wait, not started."""
        mine, trust = self.instance, self.options.trust()

        def refuse(room: int, dp_rank: int) -> None:
            at = f"at data-parallel rank {dp_rank}, not at {mine.dp_rank}"
            endpoint.refuse(Room(room), why=f"the prefill instance has the request {at}: {REMEDY}")

        return RoomReporter(
            mine.dp_rank,
            lambda body: ask(mine.bootstrap_server, "POST", "/register_dp_rank", body, signature_of(body, trust)),
            lambda: (room.id for room in endpoint.rooms().get("AWAIT_ENGINE", ())),
            refuse, lambda: not endpoint.closed,
        )  # fmt: skip

    def make_transport(self) -> Transport:
        return self.options.make_transport(self.instance.host)

    def register_to_bootstrap(self) -> None:
        """A prefill rank announces itself when it is made."""

    @cached_property
    def machine(self) -> Machine[t.Request]:
        """The table of this side's requests, made fast."""
        table: Table[t.Request] = t.sender if self.prefill else t.receiver
        return Machine(table, t.Timing(Timer(self.instance.bootstrap), Timer(self.instance.waiting)))

    def advance(self) -> None:
        """Tell the requests what has become of their rooms.  EndpointError: the endpoint's loop has broken."""
        for outcome in self.endpoint.finished():
            place = self.instance.dp_rank * self.instance.ranks + self.instance.rank
            self.options.keep_digests(self.endpoint, outcome, f"{'PD'[not self.prefill]}{place}")
            if (request := self.tasks.get(outcome.room)) is not None:
                request.end(outcome)
        for room in self.endpoint.released():
            # an error here would end SGLang's scheduler: a room without a request is passed over
            if (request := self.tasks.pop(room, None)) is not None:
                request.hear(t.Released())

    # ------------------------------------------------------------------------------- what decode asks of it
    def try_ensure_parallel_info(self, bootstrap_addr: str) -> bool:
        """Whether the card of this prefill instance is here; else it is on its way."""
        if isinstance(card := self.cards.get(bootstrap_addr, wait=GLANCE), Card):
            self.prefill_info_table[bootstrap_addr] = Prefill(card.data_parallel, card.by_room)
        return bootstrap_addr in self.prefill_info_table

    def reached(self, address: str, dp_rank: int) -> Card | None:
        """This prefill instance, if all links to it are up; KvprotoError says why they will not be soon."""
        source = address, dp_rank
        self.try_ensure_parallel_info(address)  # an instance that starts anew may have other data-parallel ranks
        if not 0 <= dp_rank < (known := self.prefill_info_table[address].dp_size):
            raise ArgumentError(f"the prefill instance at {address} has {known} data-parallel ranks, counted from 0: "
                                f"there is no {dp_rank}; correct the request's disagg_prefill_dp_rank")  # fmt: skip
        card, called = self.cards.get(address, dp_rank, again=True), self.called.get(source)
        try:
            if isinstance(card, Card) and (card != called or not self.endpoint.leads_to(card.addresses, card.group)):
                assert self.known is not None
                self.known.call(card)
                called = self.called[source] = card
            if called is not None and self.endpoint.ready(called.group, called.addresses):
                return called
        except (LinkError, NotFoundError):
            self.called.pop(source, None)  # the next request calls anew
            raise
        if (why := self.cards.gone(*source)) and not (called is not None and self.endpoint.any_up(called.group)):
            raise NotFoundError(f"the prefill instance at {address} is gone: {why}")
        return None

    def is_abort_release_safe(self, room: int, _required_acks: int = 0) -> bool:
        """Whether nothing can land in the pages of a request that has failed, nor of others with its number."""
        self.advance()
        return all(each.id != room for each in self.tasks)

    @cached_property
    def _questions(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "kvproto-questions")

    def _ensure_prefill_recompute_executor(self) -> ThreadPoolExecutor:
        """SGLang asks a bootstrap server on it at which data-parallel rank a room is."""
        return self._questions

    def clear_deferred_abort_state(self, room: int) -> None:
        """The room's release is all there is."""

    def should_verify_kv_checksum(self, bootstrap_addr: str) -> bool:
        """SGLang's own digest is one of a rank's bytes: of another cut it says nothing."""
        return any(card.layout == self.layout for (at, _), card in self.called.items() if at == bootstrap_addr)

    def submit_prefill_recompute(self, receiver: Any, _payload: Any) -> None:
        receiver.give_up("a request that was retracted for new weights is not computed again: send it anew")
