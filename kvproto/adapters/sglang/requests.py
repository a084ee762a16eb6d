"""Requests on one rank, as SGLang sees them: a sender at prefill, a receiver at decode.

SGLang's calls become events of the request's table (`tables`), the table's effects become calls of the endpoint, and
`poll` returns the state.  Nothing blocks: a later poll has what is not there yet.

Tokens here are whole pages.  SGLang names pages and not tokens, and the two instances may have pages of different
sizes, so a room is as long as the prompt is in units that are whole pages of both sides; what a side's own pages lack
of that is its page 0, which SGLang keeps for what nobody reads.  The recurrent state of a hybrid model is the one after
the last token; SGLang names its slot, or the pages of the last window (`windows`), with the last pages at prefill, and
with all pages at decode.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import lcm
from typing import Any, ClassVar

import torch

from kvproto.adapters.card import Card
from kvproto.adapters.sglang import tables as t
from kvproto.adapters.sglang.manager import REMEDY, Manager, log
from kvproto.errors import ArgumentError, KvprotoError
from kvproto.fsm.table import Output
from kvproto.fsm.vocabulary import Event, Report
from kvproto.room import Caller, Outcome, Room


def padded(tokens: int, *pages: int) -> int:
    """As many tokens, rounded up to whole pages of all these sizes."""
    unit = lcm(*pages)
    return -(-tokens // unit) * unit


class Request:
    """The common part of a sender and a receiver: one request on one rank."""

    polls: ClassVar[dict[Any, int]]

    def __init__(self, mgr: Manager, bootstrap_addr: str, bootstrap_room: int, *_: Any, **__: Any) -> None:
        self.kv_mgr, self.bootstrap_addr, self.bootstrap_room = mgr, bootstrap_addr, bootstrap_room
        self.room, self.endpoint, self.value = Room(0), mgr.endpoint, mgr.machine.initial
        #: why it has failed; the row of its metadata; tokens that decode had before, and of the whole room
        self.why, self.aux_index, self.prefix, self.tokens = "", -1, 0, 0
        self.hear(t.Made())
        try:
            self.room = Room(bootstrap_room or 0)
        except ArgumentError as error:  # the number is a client's
            self.why = f"bootstrap_room: {error}"
            self.hear(t.Unmet())

    @property
    def taken(self) -> bool:
        """Whether the room is open for another request with the same number, whose matter it is."""
        return self.kv_mgr.tasks.get(self.bootstrap_room, self) is not self

    def hear(self, event: Event) -> None:
        """A step of the table, and what comes of it; what the endpoint refuses fails the request."""
        self.value, effects = self.kv_mgr.machine.step(self.value, event, time.monotonic())
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Output) -> None:
        """Carry out the effects of both tables."""
        if isinstance(effect, Report):
            log.warning("%s: %s: %s", self.room, effect.what, effect.why)
        elif isinstance(effect, t.Abort):
            self.endpoint.abort(self.room)

    def ending(self, state_indices: Any) -> tuple[int, ...] | None:
        """Return the slot of the state, or the window's pages, of what SGLang names for each kind."""
        if state_indices is None or (last := self.kv_mgr.layout.state) is None:
            return None
        kinds = [kind.value for kind in self.kv_mgr.kv_args.state_types]
        return tuple(int(each) for each in state_indices[kinds.index("swa" if last.window else "mamba")])

    def lent(self, ending: tuple[int, ...] | None, end: int) -> dict[str, Any]:
        """Return the room's slot or window.  ArgumentError: it is of another form.

        `end`: the token at which SGLang's own pages end.
        """
        if ending is None:
            return {}
        layout, window = self.kv_mgr.layout, self.kv_mgr.instance.window
        if window is None or layout.state is None or not layout.state.window:
            return {"slot": ending[0]}
        return {"window": window.pages(ending, self.prefix, end, self.tokens, layout.page_size)}

    def open(self, pages: Sequence[int], ending: tuple[int, ...] | None = None, end: int = 0, **more: Any) -> None:
        """Open the room; what the endpoint refuses fails the request, on the other side, too."""
        try:
            if self.kv_mgr.tasks.setdefault(self.bootstrap_room, self) is not self:
                raise ArgumentError(f"{self.room} is in use: two requests have the same bootstrap_room")
            self.endpoint.open(self.room, self.tokens, pages, **more, **self.lent(ending, end))
        except KvprotoError as error:
            self.why = str(error)
            if not self.taken and self.turned_away():
                return  # the endpoint says when it is over
            self.hear(t.Ended(well=False))
            self.hear(t.Released())

    def turned_away(self) -> bool:
        """Tell the other side that it cannot be opened here; whether the endpoint has it until then."""
        raise NotImplementedError

    def end(self, outcome: Outcome) -> None:
        """The room has its outcome."""
        self.why = self.why or outcome.reason
        self.hear(t.Ended(outcome.ok))

    def poll(self) -> int:
        """SGLang's KVPoll of this rank: never lower than before, but for 0, which is final."""
        self.kv_mgr.advance()
        self.look_around()
        if time.monotonic() >= self.value.due:
            self.why = "the other side was not there within SGLang's timeout for it (bootstrap, or waiting)"
            self.hear(t.TimerFired())
        return self.polls[self.value.state]

    def look_around(self) -> None:
        """Whether the other side is there."""
        raise NotImplementedError

    poll_pp_consensus = poll

    def give_up(self, why: str) -> None:
        """SGLang gives it up."""
        self.why = self.why or why
        self.hear(t.GivenUp())

    def abort(self) -> None:
        """SGLang aborts the request."""
        self.give_up("aborted by SGLang")

    def clear(self) -> None:
        """SGLang has ended the request here."""
        self.give_up("ended by SGLang")

    def failure_exception(self) -> None:
        """Raise SGLang's error, with the reason; where another rank has failed, this one gives up."""
        elsewhere = not self.why
        self.give_up("it has failed on another rank")
        raise type(self.kv_mgr).failure(self.bootstrap_room, self.why, elsewhere)


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

    def pop_decode_prefix_len(self) -> int:
        """Tokens that the decode instance has already."""
        return self.caller.prefix if self.caller is not None else 0

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        """So many pages will be sent, and this row of the metadata."""
        self.aux_index = -1 if aux_index is None else aux_index
        self.hear(t.Started(int(num_kv_indices)))

    def scheduled(self) -> None:
        """A forward of the request comes next."""
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
        """As the table says."""
        page, mine = self.kv_mgr.layout.page_size, self.endpoint
        if isinstance(effect, t.OpenRoom):
            assert self.caller is not None
            self.prefix = self.caller.prefix
            self.tokens = padded(self.prefix + self.value.total * page, page, self.caller.page_size)
            if self.tokens < self.caller.tokens and not self.taken:
                self._reject(self.caller.tokens)
            else:
                self.open([0] * (self.prefix // page), group=self.caller.group)
        elif isinstance(effect, t.Prefetch):
            mine.prefetch(self.room)
        elif isinstance(effect, t.HandOver):
            self._hand_over(effect)
        elif isinstance(effect, t.Refuse):
            if not self.taken:
                mine.refuse(self.room)
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
        mine.produced(self.room, upto, self._event(), pages=pages, **more)
        if effect.last:
            mine.aux(self.room, self.kv_mgr.aux.read(self.aux_index))

    def turned_away(self) -> bool:
        """A refusal waits for decode, whenever it asks."""
        del self.kv_mgr.tasks[self.bootstrap_room]
        self.endpoint.refuse(self.room, why=self.why)
        return False

    def _reject(self, wanted: int) -> None:
        """A request that SGLang has rejected: a stub of the prompt goes through its queues to the end."""
        self.why = f"SGLang has rejected the request here: it computes {self.tokens} tokens of a prompt of {wanted}"
        self.endpoint.refuse(self.room, why=self.why)
        self.hear(t.Ended(well=False))
        self.hear(t.Released())

    def _event(self) -> Any:
        event, self._early_send_wait_event = self._early_send_wait_event, None
        if event is None and self.endpoint.pool.device.type == "cuda":
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self.endpoint.pool.device))
        return event

    def get_transfer_metric(self) -> Any:
        """Bytes that were sent of this rank's cache."""
        nbytes = self.value.given * sum(self.kv_mgr.kv_args.kv_item_lens)
        return type(self.kv_mgr).metric(transfer_total_bytes=nbytes)


class Receiver(Request):
    """A request on a decode rank."""

    polls = t.POLL_RECEIVER
    require_staging, supports_host_destination, conclude_state = False, False, None
    #: SGLang counts its prefill ranks' acknowledgements; here one release is all
    bootstrap_infos = (None,)
    card: Card | None = None
    #: where the prefill instance has the request; None: SGLang has not found out
    dp_rank: int | None = None

    @property
    def abort_notified(self) -> bool:
        """Whether something may still land in the pages."""
        return self.kv_mgr.tasks.get(self.bootstrap_room) is self

    def ensure_abort_notified(self, *, force_arm: bool = False) -> None:
        """The request is given up here, too."""
        del force_arm
        self.give_up("it has failed on another rank")

    def init(self, prefill_dp_rank: int) -> None:
        """The prefill instance is known, and at which of its data-parallel ranks the request is."""
        self.dp_rank = prefill_dp_rank
        self.look_around()

    def look_around(self) -> None:
        """Whether the prefill instance is there."""
        if self.dp_rank is None or self.value.state is not t.R.AWAIT_LINKS:
            return
        try:
            self.card = self.kv_mgr.reached(self.bootstrap_addr, self.dp_rank)
            if self.card is not None:
                self.hear(t.Met())
        except KvprotoError as error:
            self.why = str(error)
            self.hear(t.Unmet())

    def send_metadata(
        self, kv_indices: Any, aux_index: int | None = None, state_indices: Any = None,
        decode_prefix_len: int | None = None, _destination: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        """There are pages: for what follows the prefix, which is there."""
        self.aux_index, self.prefix = -1 if aux_index is None else aux_index, decode_prefix_len or 0
        self.hear(t.Given(tuple(int(page) for page in kv_indices), ending=self.ending(state_indices)))

    def carry_out(self, effect: Output) -> None:
        """As the table says."""
        if isinstance(effect, t.OpenRoom):
            self._open(list(effect.pages), effect.ending)
        elif isinstance(effect, t.Decline):
            # As page 0 is, slot 0 is SGLang's for what nobody reads, and so is page 0 of windows.
            self._open([0], None if self.kv_mgr.layout.state is None else (0,))
            if self.kv_mgr.tasks.get(self.bootstrap_room) is self:
                self.endpoint.abort(self.room)
        else:
            super().carry_out(effect)

    def _open(self, pages: list[int], ending: tuple[int, ...] | None) -> None:
        """The room is whole units long, and its prefix too: what lies between is rewritten, in page 0."""
        assert self.card is not None
        page, sizes = self.kv_mgr.layout.page_size, (self.kv_mgr.layout.page_size, self.card.layout.page_size)
        table = [*[0] * (self.prefix // page), *pages]
        end = len(table) * page
        self.tokens = padded(end, *sizes)
        table += [0] * ((self.tokens - end) // page)
        prefix = self.prefix // lcm(*sizes) * lcm(*sizes)
        self.open(table, ending, end, prefix=prefix, group=self.card.group)

    def turned_away(self) -> bool:
        """The room is announced and given up, which prefill hears."""
        assert self.card is not None
        try:
            self.endpoint.announce(self.room, self.tokens, group=self.card.group)
            self.endpoint.abort(self.room)
        except KvprotoError:  # it is not a room at all
            del self.kv_mgr.tasks[self.bootstrap_room]
            return False
        return True

    def end(self, outcome: Outcome) -> None:
        """The room has its outcome; of one that succeeded, the metadata is put where SGLang looks for it."""
        try:
            if outcome.ok:
                self.kv_mgr.aux.write(self.aux_index, outcome.aux)
        except ArgumentError as error:
            self.why = str(error)
            self.hear(t.Ended(well=False))
        else:
            super().end(outcome)
