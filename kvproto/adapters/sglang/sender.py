"""Sender: a request on a prefill rank, as SGLang sees it.

With pipeline stages SGLang decides on the first stage which requests begin, and asks none of the others: their ranks
need not serve the same decode ranks.  So each rank of a later stage posts its answer for the rank of the first stage
that has its place (SGLang's `PPConsensusStore`), and that one's answer is the lowest of all.
"""

from __future__ import annotations

from typing import Any

import torch

from kvproto.adapters.sglang import tables as t
from kvproto.adapters.sglang.manager import REMEDY, Manager
from kvproto.adapters.sglang.requests import Request, padded
from kvproto.errors import ArgumentError
from kvproto.fsm.table import Output
from kvproto.fsm.vocabulary import Event
from kvproto.room import Caller


class Sender(Request):
    """A request on a prefill rank."""

    polls = t.POLL
    #: of a prefix that SGLang sends before the forward: the event after which it is in the pages
    _early_send_wait_event: Any = None
    caller: Caller | None = None

    def __init__(
        self, mgr: Manager, bootstrap_addr: str, bootstrap_room: int,
        req_has_disagg_prefill_dp_rank: bool = False,  # noqa: FBT001, FBT002  # SGLang's signature
    ) -> None:  # fmt: skip
        """`req_has_disagg_prefill_dp_rank`: the decode instance is told which dp rank has the request."""
        super().__init__(mgr, bootstrap_addr, bootstrap_room)
        if mgr.instance.data_parallel > 1 and self.value.state in t.EARLY:
            self._place(told=req_has_disagg_prefill_dp_rank)

    def _place(self, *, told: bool) -> None:
        """Report the room if a decode instance cannot know its place, and fail if one will await it elsewhere."""
        mine, computed = self.kv_mgr.instance, self.bootstrap_room % self.kv_mgr.instance.data_parallel
        strays = not told and mine.by_room and computed != mine.dp_rank
        if self.kv_mgr.reporter is not None:
            self.kv_mgr.reporter.add(self.bootstrap_room, at_once=not mine.by_room or strays)
        if strays:
            self._stray(computed)

    def _stray(self, dp_rank: int) -> None:
        mine = self.kv_mgr.instance.dp_rank
        self.why = f"the decode instance awaits the room at data-parallel rank {dp_rank}, not at {mine}: {REMEDY}"
        self.hear(t.Unmet())

    def hear(self, event: Event) -> None:
        """A step of the table; a room that is open, or over, is reported no more."""
        super().hear(event)
        if self.value.state not in t.EARLY and self.kv_mgr.reporter is not None:
            self.kv_mgr.reporter.forget(self.bootstrap_room)

    def look_around(self) -> None:
        """Whether a decode instance waits for the room, or does so no longer, or at another dp rank."""
        if self.value.state not in t.EARLY:
            return
        reporter = self.kv_mgr.reporter
        if reporter is not None and (elsewhere := reporter.elsewhere(self.bootstrap_room)) is not None:
            self._stray(elsewhere)
            return
        self.caller = self.endpoint.caller(self.room) or self.caller
        if self.caller is not None and self.caller.cause:
            self.why = f"the decode instance has given it up: {self.caller.cause.name}"
            self.hear(t.Unmet())
        elif self.caller is not None:
            self.hear(t.Met())

    @property
    def key(self) -> str:
        """Its name among what stages post."""
        return f"{self.room.id}/{self.room.gen}"

    def post(self) -> None:
        """Tell the first stage what this later one would answer; called until the sender is started, or over."""
        board, said = self.kv_mgr.board, self.poll()
        if self.kv_mgr.instance.stage and board.get(self.key) != said:
            board[self.key] = said

    def poll_pp_consensus(self) -> int:
        """The lowest answer of all stages; on the first stage."""
        said = [self.poll()]
        if self.kv_mgr.board is not None:
            _, *later = self.kv_mgr.board.collect(self.key)
            said += [t.BOOTSTRAPPING if each is None else each for each in later]
        return min(said)

    def _withdraw(self) -> None:
        """Take back what was posted, since the first stage has heard it."""
        if self.kv_mgr.instance.stage:
            self.kv_mgr.board.pop(self.key)

    def pop_decode_prefix_len(self) -> int:
        """Tokens that the decode instance has already."""
        return self.caller.prefix if self.caller is not None else 0

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        """So many pages will be sent, and this row of the metadata."""
        self.aux_index = -1 if aux_index is None else aux_index
        self._withdraw()
        self.hear(t.Started(int(num_kv_indices)))

    def clear(self) -> None:
        """SGLang has ended the request here."""
        self._withdraw()
        super().clear()

    def failure_exception(self) -> None:
        """Raise SGLang's error, with the reason."""
        self._withdraw()
        super().failure_exception()

    def scheduled(self) -> None:
        """A forward of the request comes next, on the stream that is the current one."""
        if self.kv_mgr.instance.stages and self.endpoint.pool.device.type == "cuda":
            self.kv_mgr.forwards = torch.cuda.current_stream(self.endpoint.pool.device)
        self.hear(t.Scheduled())

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:  # noqa: FBT001  # SGLang's signature
        """The last one has the metadata, pages or none."""
        return num_pages > 0 or last_chunk

    def get_max_transfer_tokens(self) -> int | None:
        """Any number: a room has chunks of its own."""
        return None

    def mark_prefill_complete(self) -> None:
        """Decode gives pages before the prompt is computed."""

    def send(self, kv_indices: Any, state_indices: Any = None, _num_kv_tokens: int | None = None, **_: Any) -> None:
        """The KV of the request's next pages is computed, or will be when what was launched has run."""
        pages = tuple(int(page) for page in kv_indices)
        last = self.value.given + len(pages) >= self.value.total
        self.hear(t.Given(pages, last, self.ending(state_indices)))

    def carry_out(self, effect: Output) -> None:
        page, mine = self.kv_mgr.layout.page_size, self.endpoint
        if isinstance(effect, t.OpenRoom):
            assert self.caller is not None
            self.prefix = self.caller.prefix
            self.tokens = padded(self.prefix + self.value.total * page, page, self.caller.page_size)
            if self.tokens < self.caller.tokens:
                self._reject(self.caller.tokens)
            else:
                self.open([0] * (self.prefix // page), group=self.caller.group)
        elif isinstance(effect, t.Prefetch):
            mine.prefetch(self.room)
        elif isinstance(effect, t.HandOver):
            self._hand_over(effect)
        elif isinstance(effect, t.Refuse):
            self._refuse()
        else:
            super().carry_out(effect)

    def _hand_over(self, effect: t.HandOver) -> None:
        page, mine = self.kv_mgr.layout.page_size, self.endpoint
        end = self.prefix + self.value.given * page
        upto = self.tokens if effect.last else end
        try:
            more = self.lent(effect.ending, end)
        except ArgumentError as error:
            self.give_up(str(error))
            return
        pages = [*effect.pages, *[0] * -(-(upto - end) // page)]
        if effect.last:  # first: the loop that the next call wakes takes the interpreter, and this thread waits for it
            mine.aux(self.room, self.kv_mgr.aux.read(self.aux_index))
        mine.produced(self.room, upto, self._event(), pages=pages, **more)

    def turned_away(self) -> bool:
        """A refusal waits for decode, whenever it asks."""
        self._refuse(why=self.why)
        return False

    def _refuse(self, **why: str) -> None:
        """Refuse the room, which this request has not opened."""
        if self.room not in self.kv_mgr.tasks:  # one that is there is another request's, and would be aborted
            self.endpoint.refuse(self.room, **why)

    def _reject(self, wanted: int) -> None:
        """A request that SGLang has rejected: a stub of the prompt goes through its queues to the end."""
        self.why = f"SGLang has rejected the request here: it computes {self.tokens} tokens of a prompt of {wanted}"
        self._refuse(why=self.why)
        self.hear(t.Ended(well=False))
        self.hear(t.Released())

    def _event(self) -> Any:
        event, self._early_send_wait_event = self._early_send_wait_event, None
        if event is None and self.endpoint.pool.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            # with stages SGLang hands over what it has launched on another stream than it is in then
            event.record(self.kv_mgr.forwards or torch.cuda.current_stream(self.endpoint.pool.device))
        return event

    def get_transfer_metric(self) -> Any:
        """Bytes that were sent of this rank's cache."""
        nbytes = self.value.given * sum(self.kv_mgr.kv_args.kv_item_lens)
        return type(self.kv_mgr).metric(transfer_total_bytes=nbytes)
