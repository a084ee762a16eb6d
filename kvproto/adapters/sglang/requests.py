"""Requests on one rank, as SGLang sees them: the common part of senders and receivers.

SGLang's calls become events of the request's table (`tables`), the table's effects become calls of the endpoint, and
`poll` returns the state.  Nothing blocks: a later poll has what is not there yet.

Tokens here are whole pages.  SGLang names pages and not tokens, and the two instances may have pages of different
sizes, so a room is as long as the prompt is in units that are whole pages of both sides; what a side's own pages lack
of that is its page 0, which SGLang keeps for what nobody reads.  The recurrent state of a hybrid model is the one after
the last token; SGLang names its slot, or the pages of the last window (`windows`), with the last pages at prefill, and
with all pages at decode.

Requests with one `bootstrap_room` are lives of one room (`room_lives`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import lcm
from typing import Any, ClassVar

from kvproto.adapters.sglang import tables as t
from kvproto.adapters.sglang.manager import Manager, log
from kvproto.errors import ArgumentError, KvprotoError
from kvproto.fsm.table import Output
from kvproto.fsm.vocabulary import Event, Report
from kvproto.room import Outcome, Room


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
            self.room = Room(bootstrap_room or 0, mgr.lives.next(bootstrap_room or 0))
        except ArgumentError as error:  # the number is a client's
            self.why = f"bootstrap_room: {error}"
            self.hear(t.Unmet())

    def hear(self, event: Event) -> None:
        """A step of the table, and what comes of it; what the endpoint refuses fails the request."""
        self.value, effects = self.kv_mgr.machine.step(self.value, event, time.monotonic())
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Output) -> None:
        if isinstance(effect, Report):
            log.warning("%s: %s: %s", self.room, effect.what, effect.why)
        elif isinstance(effect, t.Abort):
            self.endpoint.abort(self.room)
        elif isinstance(effect, t.SayLate):
            self.why = "the other side was not there within SGLang's timeout for it (bootstrap, or waiting)"

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
        if ending is None or not self.endpoint.pool.ends:  # a pipeline stage may have no layer with such
            return {}
        layout, window = self.kv_mgr.layout, self.kv_mgr.instance.window
        if window is None or layout.state is None or not layout.state.window:
            return {"slot": ending[0]}
        return {"window": window.pages(ending, self.prefix, end, self.tokens, layout.page_size)}

    def open(self, pages: Sequence[int], ending: tuple[int, ...] | None = None, end: int = 0, **more: Any) -> None:
        """Open the room; what the endpoint refuses fails the request, on the other side, too."""
        try:
            self.endpoint.open(self.room, self.tokens, pages, **more, **self.lent(ending, end))
        except KvprotoError as error:
            self.why = str(error)
            if self.turned_away():
                return  # the endpoint says when it is over
            self.hear(t.Ended(well=False))
            self.hear(t.Released())
        else:  # not before: until then the room may be another request's
            self.kv_mgr.tasks[self.room] = self

    def turned_away(self) -> bool:
        """Tell the other side that it cannot be opened here; whether the endpoint has it until then.

        A room that is in `Manager.tasks` is another request's, and is left alone.
        """
        raise NotImplementedError

    def end(self, outcome: Outcome) -> None:
        self.why = self.why or outcome.reason
        self.hear(t.Ended(outcome.ok))

    def poll(self) -> int:
        """SGLang's KVPoll of this rank: never lower than before, but for 0, which is final."""
        self.kv_mgr.advance()
        self.look_around()
        if time.monotonic() >= self.value.due:
            self.hear(t.TimerFired())
        return self.polls[self.value.state]

    def look_around(self) -> None:
        raise NotImplementedError

    def give_up(self, why: str) -> None:
        self.why = self.why or why
        self.hear(t.GivenUp())

    def abort(self) -> None:
        self.give_up("aborted by SGLang")

    def clear(self) -> None:
        self.give_up("ended by SGLang")

    def failure_exception(self) -> None:
        """Raise SGLang's error, with the reason; where another rank has failed, this one gives up."""
        elsewhere = not self.why
        self.give_up("it has failed on another rank")
        raise type(self.kv_mgr).failure(self.bootstrap_room, self.why, elsewhere)
