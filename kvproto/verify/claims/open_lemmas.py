"""Open lemmas: statements without a proof, by name, and the tests and bounded worlds that check them."""

from __future__ import annotations

from typing import NamedTuple


class OpenLemma(NamedTuple):
    """`worlds`: patterns of names of the checker's worlds in which it is judged."""

    name: str
    says: str
    instead: str
    worlds: tuple[str, ...] = ()


OPEN = (
    OpenLemma(
        "messages_by_key",
        "A message about a room, generation and chunk reaches that machine alone, and only from a party to the room "
        "(S9).  (What routes make of it, whom they hear and what keys tell apart is proved; that a store finds its "
        "machine by the key, and that a rank knows whose a room is, is code.)",
        "tests of stores and ranks; worlds with two rooms, with several groups, and with ids in use again",
        ("groups-.*", "2p2d-2x2-.*", "reuse", "reuse-tells", "deep-reuse-crash"),
    ),
    OpenLemma(
        "ended_rooms_stay_ended",
        "A room that has told a decode rank that it has drained, and is forgotten by its prefill rank, is not begun "
        "anew by an OPEN of that decode rank: what was said before comes before, or meets the tombstone.  (Links keep "
        "the order within an epoch; tombstones outlive what is under way.)",
        "assumed between the rooms (`no_open_comes_after_the_end`); worlds that forget one tombstone of two at once. "
        "(Where messages overtake each other as well, it does not hold, and a test shows what comes of that.)",
        ("deep-tombstone-.*", "timed-forgotten"),
    ),
    OpenLemma(
        "shared_things",
        "What sends share at a prefill rank (credits, slots, permits) is one send's at a time; what is given up goes "
        "to who waits.  (Of one send: proved, S4 and L3 of prefill_send.)",
        "tests of the queues; worlds in which rooms share one slot, one credit, one permit",
        ("deep-slot.*", "one-slot", "queue", "credit.*", "permit.*", "turn.*", "2p2d-2x2-.*"),
    ),
    OpenLemma(
        "everything_ends",
        "Whatever waits goes on or ends (L1 to L5).  (Proved is what each step owes to it, and that a room at work "
        "gets its time anew for what gets on alone, of which there is so much: chunks are granted and opened once, "
        "land and end once.  So a room that does not get on ends.  Open is that rooms get on where nothing fails, and "
        "that what drains is answered.)",
        "both questions of liveness are asked of the whole graph of every world that keeps it; the timed worlds have "
        "bounds in seconds",
        ("2p2d-2x2-.*", "2p1d-2x2-.*", "1p2d-2x2-.*", "timed-.*"),
    ),
    OpenLemma(
        "handlers",
        "Effects are carried out as they say: a region is reserved as `Ring` does, a window opens one send a chunk and "
        "decode rank, the transport answers each batch once, and `notified` only when all bytes are in place.",
        "tests of loop against the interpreter; the transports' contract tests; the handlers' own worlds",
    ),
)  # fmt: skip
