"""Group worlds: several groups side by side, each with rooms, links, epochs and grants of its own.

`in`: two prefill groups serve one decode group, whose ring both want; `out`: one prefill group serves two decode
groups, and both want its slot; `cross`: two and two, everyone linked to everyone, and the two rooms have one id.  What
happens to one group is no excuse for a room of another: that may not fail (S9), so it has to succeed (L1), and is seen
to (`must`).
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.small_worlds import AT_ONCE

#: what has to be seen where one group is out of luck
GO_ON = ("success after another group's failure",)
BOTH = ("success here", "failure here")
ROOMS = Config(rooms=2, chunks=1, ring=1, engine=AT_ONCE)
IN = replace(ROOMS, prefill_groups=2, about="two prefill groups serve one decode group")
OUT = replace(ROOMS, decode_groups=2, about="one prefill group serves two decode groups")
CROSS = replace(IN, decode_groups=2, about="two groups a side, two rooms of one id")
SHAPES = {"in": IN, "out": OUT, "cross": CROSS}
FAULTS = {
    "drop": (Budget(drop=1), "any one message is lost"),
    "link": (Budget(link=1), "a link of one is lost"),
    "leave": (Budget(leave=1), "a decode engine lets go of one"),
    "death": (Budget(crash=1), "a rank of one dies for good"),
}


def _worlds() -> dict[str, Config]:
    """Every shape, calm and with each fault; kernels and writes take time only where nothing goes wrong."""
    found = {f"groups-{shape}": world for shape, world in SHAPES.items()}
    for shape, world in SHAPES.items():
        for fault, (budget, about) in FAULTS.items():
            must = () if fault == "drop" else BOTH if shape == "cross" else GO_ON
            found[f"groups-{shape}-{fault}"] = replace(
                world, swift=True, restart=fault != "death", budget=budget, must=must, about=f"{world.about}; {about}"
            )
    return found


GROUPS: dict[str, Config] = _worlds() | {
    "groups-out-link": replace(
        OUT, budget=Budget(link=1), must=GO_ON, about="one of two decode groups loses its link, writes take time"
    ),
    "groups-in-duplicate": replace(
        IN, swift=True, net="unordered", budget=Budget(duplicate=1), about="messages of two groups overtake each other"
    ),
    "groups-in-reuse": replace(
        IN, rooms=1, lives=2, swift=True, budget=Budget(link=1), must=GO_ON,
        about="an id is used again by another group",
    ),
    "groups-out-lease": replace(
        OUT, wired=False, misfit="lease", about="one of two decode groups has other leases, and is refused"
    ),
    "groups-out-claim": replace(
        OUT, misfit="claim", budget=Budget(abort=1), about="two decode groups ask for one room; it is the first one's"
    ),
    "groups-out-claim-drop": replace(
        OUT, misfit="claim", swift=True, budget=Budget(drop=1), about="they do, and any one message is lost"
    ),
    "groups-out-anyone": replace(
        OUT, rooms=1, misfit="anyone", budget=Budget(abort=1), must=BOTH,
        about="two decode groups ask for one room, which is for whoever asks first; an engine may give it up",
    ),
    "groups-out-anyone-announce": replace(
        OUT, rooms=1, misfit="anyone", announce=True, swift=True, must=BOTH,
        about="they may announce it before they open it",
    ),
    "groups-out-anyone-drop": replace(
        OUT, rooms=1, misfit="anyone", swift=True, must=BOTH, budget=Budget(drop=1),
        about="they ask, and any one message is lost",
    ),
    "groups-in-crash": replace(
        IN, swift=True, budget=Budget(crash=1), must=GO_ON, about="a rank of one of two groups dies, and comes back"
    ),
    "groups-out-crash": replace(
        OUT, swift=True, budget=Budget(crash=1), must=GO_ON, about="a rank of one of two groups dies, and comes back"
    ),
}  # fmt: skip

#: two processes that send each other KV: each has a prefill and a decode rank, which end and return together
WAYS = replace(CROSS, both_ways=True, about="two processes, rooms both ways")
BOTH_WAYS: dict[str, Config] = {
    "both-ways-calm": WAYS,
    "both-ways-chunks": replace(WAYS, chunks=2, engine=Config().engine, about="rooms of two chunks, a ring for one"),
    "both-ways-rooms": replace(WAYS, rooms=4, about="two rooms each way, a ring for one"),
} | {
    f"both-ways-{fault}": replace(WAYS, budget=budget, about=f"{WAYS.about}; {about}", **more)
    for fault, budget, about, more in (
        ("abort", Budget(abort=1), "an engine gives one up", {"must": BOTH}),
        ("write", Budget(write=1), "a write of one direction fails", {}),
        ("doubt", Budget(doubt=1), "a write of one direction is in doubt", {}),
        ("drop", Budget(drop=1), "any one message is lost", {"swift": True}),
        ("duplicate", Budget(duplicate=1), "messages come twice, in any order", {"swift": True, "net": "unordered"}),
        ("link", Budget(link=1), "the link of one direction is lost", {"swift": True, "must": BOTH}),
        ("leave", Budget(leave=1), "a decode engine lets go of the other process", {"swift": True, "must": BOTH}),
        ("close", Budget(close=1), "a process says goodbye in both roles", {"swift": True}),
        ("crash", Budget(crash=1), "a process ends and returns, in both roles", {"swift": True}),
        ("death", Budget(crash=1), "a process ends for good", {"swift": True, "restart": False}),
    )
}  # fmt: skip
