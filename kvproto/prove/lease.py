"""Leases, and the time after which a lost link's other end is taken for quiet.

The lease of what was granted is worked out by the send's own rows (`take_grant`, `keep_pages`), on terms.  What is
posted is posted within it (prefill_write: S4), and lands within the longest write.

* `lost-link`: if the answer was sent after the request from which the lease runs, and before the link was lost,
  everything has landed when lease and write have passed since the loss.
* `overrun`: if it was sent after an earlier request instead (`lease_outlasts_answers` is the assumption that it is
  not), what is posted lands too late by less than the time from the loss to the later request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend as S
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.timing import Timing
from kvproto.prove.proof import PairProof
from kvproto.prove.ring import Lemma, Question, prove
from kvproto.prove.steps import Pair, machine_of, subjects, walk
from kvproto.prove.values import Maker

NAME = "lease"
#: where an answer with a lease is taken
TAKEN = (
    Pair(S.AWAIT_GRANT, ev.StagingGranted), Pair(S.AWAIT_TURN, ev.StagingGranted),
    Pair(S.AWAIT_PAGES, ev.PagesGranted), Pair(S.AWAIT_PERMIT, ev.PagesGranted),
)  # fmt: skip
LOSS, POSTED, LANDED, QUIET, WRITE = z3.Reals("loss posted landed quiet write")


def _granted() -> Iterator[tuple[Any, list[Any], Any]]:
    """Each way in which a send takes an answer: when it asked, what is known, and when its lease ends."""
    machine = machine_of(prefill_send, Timing())
    for pair in TAKEN:
        for value, event in subjects(Maker(), prefill_send, pair):
            for way in walk(machine, value, event):
                if way.after.state is S.AWAIT_CREDIT or way.after.lease is value.lease:
                    continue  # it asks anew, and takes nothing
                lease = event.lease.term
                posts = [POSTED < way.after.lease.term, LANDED <= POSTED + WRITE, QUIET >= LOSS + lease + WRITE]
                yield value.asked.term, [*way.conditions, *posts, lease > 0, WRITE > 0], lease


def lost_link() -> Iterator[Question]:
    """What was granted by an answer to its own request has landed when a lost link counts as quiet."""
    answered = z3.Real("answered")
    for asked, known, _ in _granted():
        yield Question([*known, asked <= answered, answered <= LOSS], LANDED < QUIET)


def overrun() -> Iterator[Question]:
    """What was granted by an older answer lands too late by less than the time from the loss to the request."""
    for asked, known, _ in _granted():
        yield Question([*known, asked > LOSS], LANDED < QUIET + (asked - LOSS))


LEMMAS: tuple[Lemma, ...] = (("S4", "lost-link", lost_link), ("S4", "overrun", overrun))


def proofs() -> Iterator[PairProof]:
    """Both lemmas."""
    return prove(NAME, LEMMAS)
