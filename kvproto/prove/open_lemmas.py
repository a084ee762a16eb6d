"""What no proof here says, by name, and what is done instead."""

from __future__ import annotations

#: name, what it says, what is done instead
OPEN: tuple[tuple[str, str, str], ...] = (
    (
        "`messages_by_key`",
        "A message about a room, generation and chunk reaches that machine alone, and only from a party to the room "
        "(S9).",
        "whom a rank hears is looked at in every case (the ranks' edge); bounded worlds with two rooms, foreign groups "
        "and ids in use again",
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
        "`forgotten_was_success`",
        "A room that its decode rank has forgotten, and of which a prefill rank still notifies it, had success: one "
        "that fails is not over before each prefill rank has drained or is quiet (proved, S4 of decode_room), and "
        "whose link is lost is heard again in a new epoch, in which no room of the old one is alive.",
        "bounded worlds: judged between the two ends of every link (S4), with as many tombstones as rooms and with one",
    ),
    (
        "`handlers`",
        "Effects are carried out as they say: a region is reserved as `Ring` does, a slot is one send's, the transport "
        "answers each batch once, and `notified` only when all bytes are in place.",
        "tests of loop against the interpreter; the transports' contract tests",
    ),
)
