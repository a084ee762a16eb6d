"""Timed worlds, by name.  The small ones are searched with every change; the others on demand."""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.group_worlds import GO_ON

TIMED = Config(timed=True, ring=1, chunks=1, engine=("open+schedule+finish+aux",))
#: a forward is scheduled, and ends later
FORWARD = ("open+schedule", "finish+aux")
ONE_NAME = replace(TIMED, decode_groups=2, wired=False, misfit="name")
TIMED_SMALL: dict[str, Config] = {
    "timed-idle": replace(TIMED, rooms=2, chunks=2, about="idle minutes, and two rooms one after the other"),
    "timed-hello": replace(
        TIMED, rooms=2, wired=False, budget=Budget(drop=1), about="any one message is lost, the first call among them"
    ),
    "timed-drop": replace(TIMED, rooms=2, budget=Budget(drop=1), about="any one message is lost"),
    "timed-slow": replace(TIMED, budget=Budget(slow=2), about="two things come after the next timers have ended"),
    "timed-wait": replace(
        TIMED, rooms=2, ring=1, ahead=0, chunks=3, window=3, budget=Budget(drop=1), about="chunks wait for space"
    ),
    "timed-two-groups": replace(
        TIMED, layers=3, layer_groups=2, ring=3, chunks=2, window=3, budget=Budget(drop=1),
        about="chunks of two sizes wait for a ring of one cell",
    ),
    "timed-faults": replace(TIMED, rooms=2, budget=Budget(write=1, kernel=1), about="a write and a kernel fail"),
    "timed-alone": replace(TIMED, engine=(), budget=Budget(drop=1), about="the prefill engine never opens the room"),
    "timed-stalled": replace(TIMED, engine=("open+schedule",), about="the prefill engine never computes anything"),
    "timed-no-aux": replace(TIMED, engine=("open+schedule+finish",), about="the aux row never comes"),
    "timed-pace": replace(
        TIMED, ring=2, chunks=2, engine=("open+schedule", "produce", "produce+aux"), pace=200,
        about="the prefill engine takes longer for a room than `stall`, and never as long for a part of it",
    ),
    "timed-ready": replace(
        TIMED, rooms=2, ahead=0, engine=FORWARD, pace=40, abreast=True,
        about="a room that is ready has the ring at once, while another room's forward takes longer than a lease",
    ),
    "timed-groups-in-ready": replace(
        TIMED, prefill_groups=2, rooms=2, ahead=0, engine=FORWARD, pace=40, abreast=True,
        about="so it is where the other room is another prefill group's",
    ),
    "timed-fan-in": replace(TIMED, prefills=2, budget=Budget(drop=1), about="two writers, and any one message is lost"),
    "timed-groups-in": replace(
        TIMED, prefill_groups=2, rooms=2, budget=Budget(drop=1), about="two prefill groups, and any one message is lost"
    ),
    "timed-groups-out": replace(
        TIMED, decode_groups=2, rooms=2, budget=Budget(drop=1), about="two decode groups, and any one message is lost"
    ),
    "timed-one-name": replace(
        ONE_NAME, budget=Budget(slow=1), must=("success here", "failure here", "a name that is taken"),
        about="two live decode instances have one name: the second is refused within a second, and the first goes on",
    ),
    "timed-one-name-drop": replace(
        ONE_NAME, budget=Budget(drop=1), must=("success here", "failure here", "a name that is taken"),
        about="they have, and any one message is lost: the second is refused when it has called once more",
    ),
    "timed-silence": replace(
        TIMED, silence=58, stands=True, budget=Budget(slow=1), never=("failure here",),
        about="a peer whose connection stands is silent for nearly as long as it may be, and no room fails",
    ),
    "timed-late-pages": replace(
        TIMED, route="pages", silence=58, stands=True, budget=Budget(slow=1), never=("failure here",),
        about="pages are named when more than half of their lease is over: they are asked for once more, and written",
    ),
    "timed-fan-out": replace(TIMED, decodes=2, budget=Budget(drop=1), about="two readers, and any one message is lost"),
}
TIMED_LARGE: dict[str, Config] = {
    "timed-drops": replace(TIMED, rooms=2, budget=Budget(drop=2), about="any two messages are lost"),
    "timed-duplicate": replace(
        TIMED, rooms=2, budget=Budget(duplicate=1, slow=1), about="a message comes twice, something is slow"
    ),
    "timed-unordered": replace(
        TIMED, net="unordered", budget=Budget(duplicate=1, slow=1, drop=1), about="and messages overtake each other"
    ),
    "timed-pages": replace(
        TIMED, rooms=2, route="pages", budget=Budget(drop=1, slow=1), about="nothing is staged; one lost, one slow"
    ),
    "timed-abort": replace(
        TIMED, rooms=2, budget=Budget(abort=1, drop=1), about="an engine gives up, a message is lost"
    ),
    "timed-forgotten": replace(
        TIMED, prefills=2, heads=1, rooms=2, tombstones=1, engine=("open", "schedule+finish+aux"), pace=90,
        about="a rank that has nothing to write forgets a room that is still asked after",
    ),
    "timed-link": replace(TIMED, rooms=2, budget=Budget(link=1), about="a link is lost, and a new room succeeds"),
    "timed-groups-in-link": replace(
        TIMED, prefill_groups=2, rooms=2, budget=Budget(link=1), must=GO_ON,
        about="a prefill group's link is lost, and the other's room, opened at any moment, succeeds",
    ),
    "timed-groups-out-link": replace(
        TIMED, decode_groups=2, rooms=2, budget=Budget(link=1), must=GO_ON,
        about="a decode group's link is lost, and the other's room, opened at any moment, succeeds",
    ),
    "timed-address-link": replace(
        TIMED, budget=Budget(address=1, link=1),
        about="a link is lost, and the engine is made to name an address where nobody is: it comes up all the same",
    ),
    "timed-link-drop": replace(TIMED, budget=Budget(link=1, drop=1), about="a link is lost, and a message"),
    "timed-death": replace(TIMED, restart=False, budget=Budget(crash=1), about="a rank dies for good"),
    "timed-silent-death": replace(
        TIMED, stands=True, restart=False, budget=Budget(crash=1),
        about="a rank dies for good, and the connection to it stands: a proxy holds it",
    ),
    "timed-return": replace(TIMED, rooms=2, budget=Budget(crash=1), about="a rank dies and comes back"),
    "timed-moves": replace(
        TIMED, moves=True, budget=Budget(crash=1), about="a prefill rank dies and comes back at another address"
    ),
    "timed-moves-drop": replace(
        TIMED, moves=True, budget=Budget(crash=1, drop=1), about="it does, and any one message is lost"
    ),
    "timed-stale": replace(
        TIMED, net="unordered", budget=Budget(crash=1, slow=1),
        about="it comes back, and what was said before it is slow",
    ),
}
