"""What the ranks of both sides have recorded, compared; a scenario's row, and whether it is as it must be.

A room counts where both sides say that it ended well.  Of such a room

* every block that lies in the decode instance's cache has to be the prefill instance's, bit by bit (`caches`);
* every part that was gathered and scattered has to have the same digest at both ends (`digests`).  A part that went
  over pages after it was gathered has one at the prefill side alone: that is wrong unless so much went over pages.

A room of which the other side has said nothing is wrong, too, unless its process was killed in between.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec

Kind = Literal["digests", "sums"]
#: in the place of a digest or a checksum that two ranks of a side do not agree on: none is negative
UNLIKE = -1
HEAD = (
    "| pair | carried by | scenario | tokens of the whole model | computed by decode | rooms: outcomes "
    "| digests: compared, differ | blocks in both caches: compared, differ "
    "| ms from the prefill answer to the first token: median, longest | posts: staged + over pages | blocks back "
    "| as it must be | |"
)


class Row(msgspec.Struct, omit_defaults=True):
    """A scenario's outcome; `lags`: median and longest milliseconds; `posts`: of prefill ranks, by their way, or of
    vLLM's own connector, with descriptors; `computed`: tokens of a prompt that decode has computed, at most; `wrong`:
    why it is not as it must be; `build`: the kvproto it was run with; `ties`: answers that leave the whole model's
    where another token is as likely."""

    pair: str
    carrier: str
    scenario: str
    equal: int
    asked: int
    computed: int | None
    back: bool
    wrong: list[str]
    outcomes: dict[str, int]
    digests: tuple[int, int]
    sums: tuple[int, int]
    posts: dict[str, int]
    lags: list[float]
    seconds: float
    note: str
    build: str = ""
    ties: int = 0

    @property
    def good(self) -> bool:
        """As it must be."""
        return not self.wrong

    def line(self) -> str:
        """As a line of the table."""
        tokens = f"{self.equal} of {self.asked}" if self.asked else "-"
        tokens += f", {self.ties} at a tie" if self.ties else ""
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items())) or "-"
        lags = ", ".join(f"{lag:.0f}" for lag in self.lags) or "-"
        both = [f"{pair[0]}, {pair[1]}" if self.carrier == "kvproto" else "-" for pair in (self.digests, self.sums)]
        posts = f"{self.posts.get('staged', 0)} + {self.posts.get('pages', 0)}" if "staged" in self.posts else "-"
        posts = f"{self.posts['posts']}, of {self.posts['descriptors']} descriptors" if "posts" in self.posts else posts
        computed = "-" if self.computed is None else str(self.computed)
        back = "yes" if self.back else "**no**"
        good = "yes" if self.good else f"**no**: {'; '.join(self.wrong)}"
        cells = self.pair, self.carrier, self.scenario, tokens, computed, outcomes, *both, lags, posts, back, good
        return f"| {' | '.join(cells)} | {self.note} |"


class Seen(msgspec.Struct):
    """Of the rooms of one scenario: outcomes by side and cause, comparisons, posts, and what is wrong."""

    outcomes: Counter[str]
    posts: Counter[str]
    digests: tuple[int, int] = (0, 0)
    sums: tuple[int, int] = (0, 0)
    wrong: list[str] = []
    over_pages: int = 0


class Room(msgspec.Struct):
    """By side: its ranks' causes, digests and checksums of one room."""

    causes: dict[str, set[str]]
    digests: dict[str, dict[str, int]]
    sums: dict[str, dict[str, int]]

    def well(self, side: str) -> bool:
        """All of the side's ranks that have said how it ended, say so."""
        return self.causes[side] == {"NONE"}

    def add(self, kind: Kind, side: str, found: dict[str, int]) -> None:
        """Take what one rank has; of latents each rank of a side has all, and they must be alike."""
        made: dict[str, int] = getattr(self, kind)[side]
        made.update({at: value if made.get(at, value) == value else UNLIKE for at, value in found.items()})


class Records:
    """What the ranks of both sides have written since the last look."""

    def __init__(self, out: Path) -> None:
        self.out, self.read = out, dict[Path, int]()
        #: by rank: requests that have begun
        self.begun = set[tuple[str, str]]()
        #: by rank and process: counted so far
        self.posts: dict[tuple[str, int], dict[str, int]] = {}

    def new(self) -> list[tuple[str, dict[str, Any]]]:
        """(instance-rank, line) of each; a line that a killed process has not written to its end is none."""
        found = []
        for path in sorted(self.out.glob("[PD]*-[0-9].jsonl")):
            lines = path.read_text().split("\n")[:-1]
            found += [(path.stem, msgspec.json.decode(line)) for line in lines[self.read.get(path, 0) :]]
            self.read[path] = len(lines)
        return found

    def judge(self, *, killed: bool = False) -> Seen:
        """Of all that is new; `killed`: an instance was killed, and may not have written how its rooms ended.

        Requests that began before the last look are left out: an idle rank writes how they ended when it next has work.
        """
        seen, rooms, before = Seen(Counter(), Counter()), dict[int, Room](), frozenset(self.begun)
        for rank, line in self.new():
            whose = rank, line.get("request", "")
            if line["event"] not in ("outcome", "released"):
                self.begun.add(whose)
                continue
            if whose in before:
                continue
            room, side = rooms.setdefault(line["room"], _room()), rank[0]
            if line["event"] == "released":
                room.add("sums", side, line["sums"])
                continue
            seen.outcomes[f"{side} {line['cause']}"] += 1
            room.causes[side].add(line["cause"])
            room.add("digests", side, line["digests"])
            if side == "P":
                seen.posts.update(self._new_posts((rank, line["pid"]), line["posts"]))
        both = [room for room in rooms.values() if room.well("P") and room.well("D")]
        alone = sum(room.well("D") and not room.well("P") for room in rooms.values())
        if alone and not killed:
            seen.wrong.append(f"{alone} rooms are there at decode, and not handed over at prefill")
        seen.digests, seen.sums = _compare(both, "digests"), _compare(both, "sums")
        seen.over_pages = sum(len(room.digests["P"].keys() - room.digests["D"].keys()) for room in both)
        self._weigh(seen, both)
        return seen

    @staticmethod
    def _weigh(seen: Seen, both: list[Room]) -> None:
        unsent = sum(len(room.digests["D"].keys() - room.digests["P"].keys()) for room in both)
        unknown = sum(len(room.sums["D"].keys() - room.sums["P"].keys()) for room in both)
        for count, what in (
            (seen.digests[1], "digests differ"), (seen.sums[1], "blocks differ"),
            (unsent, "parts were scattered that nobody gathered"), (unknown, "blocks came that nobody had"),
            (0 if seen.posts["pages"] else seen.over_pages, "parts were gathered and not scattered"),
        ):  # fmt: skip
            if count:
                seen.wrong.append(f"{count} {what}")

    def _new_posts(self, process: tuple[str, int], now: dict[str, int]) -> dict[str, int]:
        """Since its last line; a rank that has started anew is another process, and counts from zero."""
        before = self.posts.get(process, {})
        self.posts[process] = now
        return {way: count - before.get(way, 0) for way, count in now.items()}


def _room() -> Room:
    return Room({"P": set(), "D": set()}, {"P": {}, "D": {}}, {"P": {}, "D": {}})


def _compare(rooms: list[Room], kind: Kind) -> tuple[int, int]:
    """Places that both sides have, and where they differ."""
    sides = [(made["P"], made["D"]) for made in (getattr(room, kind) for room in rooms)]
    places = [(ours[at], theirs[at]) for ours, theirs in sides for at in ours.keys() & theirs.keys()]
    return len(places), sum(one != other for one, other in places)


def table(rows: list[Row]) -> str:
    """All rows."""
    return "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *(row.line() for row in rows)]) + "\n"
