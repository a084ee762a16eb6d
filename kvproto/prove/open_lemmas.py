"""What no proof here says, by name, and what is done instead.

`lease_outlasts_answers` is the one that matters most.  A decode rank that has lost a link waits for as long as a
lease and the longest write before it counts the other end as quiet.  What that end may yet post, it posts within its
own lease, which runs from the sending of the request (`asked`).  If every answer it accepts was sent for *that*
request or a later one, then `asked` lies before the answer, the answer before the loss, and with `until = asked +
lease`

    last byte  <=  until + write  =  asked + lease + write  <=  loss + lease + write.

An answer does not say which request it answers.  A send asks anew (a new `asked`) when it has waited long in the
ring's queue (`waited_long`), for pages in place of a region, and for pages whose lease runs out (`AWAIT_PERMIT`); an
answer to the request before that is sent before the loss and heard after the new request then gives `until = asked +
lease` with `asked > loss`: the lease overruns by `asked - loss`.  For that the prefill rank has to send the new
request after the decode rank has lost the link, and has to hear the old answer after it, on a link that it still
counts as up: so the answer was under way for longer than from the loss to the new request, and the overrun is less
than that delay.  Where the control plane keeps the order of a connection and a delay is below the lease that is left,
nothing of it can happen; it is bounded by the delay in any case.

What would close it: STAGING_REQ and PAGES_REQ carry how often the send has asked anew, their answers echo it, and a
send accepts the answer to its latest request alone. PAGES_RSP and an answer to a request that finds its region are
said in the step in which the request is heard, so an echo costs a field. A region that comes later (`tell_grant`) is
told to all who wait in one effect, and each of them counts for himself; it would have to be told as the answer to a
first request, and who has asked anew would take it from his next repetition alone, which is a `patience` later. That
is a field in four messages, a guard in the rows on StagingGranted and PagesGranted in each state of a send that
waits, and another wire version. It is not done: nothing that is kept of a room grows by it, but the order of a
connection gives the same as long as a delay is below the lease that is left.
"""

from __future__ import annotations

#: name, what it says, what is done instead
OPEN: tuple[tuple[str, str, str], ...] = (
    (
        "`lease_outlasts_answers`",
        "An answer that a send accepts was sent after the request from which its lease runs; clocks run alike. "
        "Then what is posted on a lost link has landed when the decode rank counts it as quiet "
        "(`lost-link` proves the arithmetic). An answer does not say which request it answers: one that is "
        "under way for longer than from the loss of the link to the next request lets the lease overrun by less than "
        "its delay.",
        "bounded worlds with late leases and lost links (`kvproto check`: `late`, `link`); answers are sent at once "
        "and a connection keeps their order. A number in the request, echoed in the answer, would close it (below)",
    ),
    (
        "`messages_by_key`",
        "A message about a room, generation and chunk reaches that machine alone, and only from a party to the room "
        "(S9).",
        "routes are data (lint), bounded worlds with two rooms, foreign groups and ids in use again",
    ),
    (
        "`one_send_a_chunk`",
        "A prefill room opens a chunk's send to a decode rank once: windows do not overlap. (`counts_its_sends` counts "
        "them; that no chunk is in two windows is not proved.)",
        "bounded worlds (S2); hypothesis",
    ),
    (
        "`one_grant_a_chunk_ever`",
        "A chunk whose grant has closed is not granted again. (While it is granted, and once it has landed: proved, S2 "
        "of decode_room; a grant closes only when its room has failed, after which the room grants nothing.)",
        "bounded worlds (S2, S4)",
    ),
    (
        "`success_of_both_ends`",
        "Decode's success implies that every write of every prefill rank has completed (S6, across ranks). "
        "(`lands_when_in_place` proves it of each part of each chunk.)",
        "bounded worlds of 2 x 2 ranks (S6)",
    ),
    (
        "`handlers`",
        "Effects are carried out as they say: a region is reserved as `Ring` does, a slot is one send's, the transport "
        "answers each batch once, and `notified` only when all bytes are in place.",
        "tests of loop against the interpreter; the transports' contract tests",
    ),
)
