"""Receiver: a request on a decode rank, as SGLang sees it."""

from __future__ import annotations

from math import lcm
from typing import Any

from kvproto.adapters.card import Card
from kvproto.adapters.sglang import tables as t
from kvproto.adapters.sglang.requests import Request, padded
from kvproto.errors import ArgumentError, KvprotoError
from kvproto.fsm.table import Output
from kvproto.room import Outcome


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
        return self.kv_mgr.tasks.get(self.room) is self

    def ensure_abort_notified(self, *, force_arm: bool = False) -> None:
        """The request is given up here, too."""
        del force_arm
        self.give_up("it has failed on another rank")

    def init(self, prefill_dp_rank: int) -> None:
        """The prefill instance is known, and at which of its data-parallel ranks the request is."""
        self.dp_rank = prefill_dp_rank
        self.look_around()

    def look_around(self) -> None:
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
        self.aux_index, self.prefix = -1 if aux_index is None else aux_index, decode_prefix_len or 0
        self.hear(t.Given(tuple(int(page) for page in kv_indices), ending=self.ending(state_indices)))

    def carry_out(self, effect: Output) -> None:
        if isinstance(effect, t.OpenRoom):
            self._open(list(effect.pages), effect.ending)
        elif isinstance(effect, t.Decline):
            # As page 0 is, slot 0 is SGLang's for what nobody reads, and so is page 0 of windows.
            self._open([0], None if self.kv_mgr.layout.state is None else (0,))
            if self.kv_mgr.tasks.get(self.room) is self:
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
        except KvprotoError:  # it is not a room at all, or another request's
            return False
        self.kv_mgr.tasks[self.room] = self
        self.endpoint.abort(self.room)
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
