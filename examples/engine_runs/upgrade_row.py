"""UpgradeRow: counts of a fleet whose instances were replaced in one way, and what is wrong with them."""

from __future__ import annotations

import msgspec

HEAD = (
    "engine", "instances replaced by", "requests", "answered", "equal to the whole model's",
    "prompts computed by decode", "sent to another instance by the router", "failed", "longest answer, s",
    "longest time without an answer, s", "links by wire version and tables", "links closed, lost",
    "seconds that an end took", "as it must be",
)  # fmt: skip


#: seconds in which some client has an answer while one of two prefill instances is killed and away
GOES_ON_S = 60.0


class UpgradeRow(msgspec.Struct):
    """All instances replaced in one way.

    `computed`: answers whose prompt the decode instance has computed itself; `pause`: the longest time in which no
    client had an answer; `links`: those that came up meanwhile; `closed`, `lost`: links by their end; `stops`: seconds
    from SIGTERM to the end of each instance; `faults`: why requests failed.
    """

    way: str
    older: str
    newer: str
    requests: int
    answered: int
    equal: int
    computed: int
    retried: int
    failed: int
    longest: float
    pause: float
    links: dict[str, int]
    closed: int
    lost: int
    stops: list[float]
    faults: dict[str, int]
    seconds: float
    build: str
    #: whether instances of both builds say goodbye when they end
    goodbye: bool = True
    wrong: list[str] = []
    #: in front of all instances
    routers: int = 1


def judged(row: UpgradeRow) -> list[str]:
    """Why the row is not as it must be."""
    wrong = [] if row.equal == row.answered else [f"{row.answered - row.equal} answers are not the whole model's"]
    if not any("other" in kind for kind in row.links):
        wrong.append("no link of two builds came up")
    # where the older build takes over, each link that comes up has an older end
    forward = newest(row.older) < newest(row.newer)
    if len({kind.partition(",")[0] for kind in row.links}) == 1 and forward and row.way != "killed":
        wrong.append("all links work at one wire version")
    if row.way in ("drained", "scaled"):
        counts = {"requests failed": row.failed, "prompts were computed by decode": row.computed,
                  "requests were retried": row.retried, "links were lost": row.lost * row.goodbye}  # fmt: skip
        wrong += [f"{count} {what}" for what, count in counts.items() if count]
    if row.way == "killed" and row.pause > GOES_ON_S:
        wrong.append(f"no client had an answer for {row.pause:.0f} s")
    return wrong


def newest(said: str) -> int:
    """Return the newest wire version of a build, of a row's words for it: "this tree: 3 to 4"."""
    return int(said.rpartition(" ")[2])


def read(rows: bytes) -> list[UpgradeRow]:
    """Return these rows, of JSON."""
    return msgspec.json.decode(rows, type=list[UpgradeRow])


def cells(rows: bytes) -> list[tuple[str, ...]]:
    """Return the table's rows, of these as JSON, without the engine."""
    return [
        (
            f"{row.way}{f', {row.routers} routers' * (row.routers > 1)}: {row.older} → {row.newer}",
            *map(str, (row.requests, row.answered, row.equal, row.computed, row.retried)), _failed(row),
            f"{row.longest:.1f}", f"{row.pause:.1f}",
            "; ".join(f"{count} at {kind}" for kind, count in sorted(row.links.items())), f"{row.closed}, {row.lost}",
            ", ".join(f"{took:.1f}" for took in row.stops),
            f"**no**: {'; '.join(row.wrong)}" if row.wrong else "yes",
        )
        for row in read(rows)
    ]  # fmt: skip


def _failed(row: UpgradeRow) -> str:
    why = "; ".join(f"{count}: {fault}" for fault, count in row.faults.items())
    return f"{row.failed}{f' ({why})' if why else ''}".replace("|", "/")
