"""Write times: what the transfers to each peer have taken, and what its link costs by that.

A profile (`kvproto.layout.costs`) says what a link of its kind costs; this one, between these hosts, may cost something
else.  A time in which writes to a peer were in flight without a gap is one observation: so many pieces and bytes took
so many seconds.  So writes that overlap are not counted twice, and a link that others use, too, is a slow one.

Each route has two figures, of a piece and of a byte.  An observation multiplies both by a part of what it took longer
than they say, each by its share of the time, in the logarithm: so they stay above 0, a link that is a hundred times
slower is as soon known as a faster one, and one stall is soon forgotten (`ONCE`).  It also brings the figures of the
other route a little nearer to the profile.  So a route that is not taken costs after a while what its profile says, and
is tried again; what is taken corrects itself with every room.

The ring has two more lines.  A gather with no other beside it, and no forward before it, tells what a launch and a
copied byte cost here; a scatter is taken to cost as much.  From its end until its write is posted is the wait for its
region: short where regions are granted beforehand, and long where the ring is busy.

Profiles that cost nothing are not corrected: nobody knows such a link, and a simulation has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log

from kvproto.io.transports.base import PeerId
from kvproto.layout.costs import LONGEST, Costs

#: the part of an observation's error that is corrected at once, and the largest error that one is believed: e^2
GAIN, ONCE = 0.3, 2.0
#: what an observation leaves of what was learned of the other route
OTHER = 0.995
#: writes that end an observation while others are in flight
MOST = 16
#: how far from its profile a figure is at most: e^7 times more or less
FAR = 7.0
#: seconds of what was there when it was looked at
SHORTEST_S = 1e-6
#: relative change of a figure that counts as another cost
NEW = 0.1
#: routes that are observed: through the peer's ring, and into its pages piece by piece
STAGED, PAGES = "staged", "pages"
#: what else is observed of the ring: gathers, and waits for a region
LAUNCH, MESSAGE = "launch", "message"
#: `NEW` of launches and messages, whose times scatter more: each change has all estimates made anew
SCATTERS = {LAUNCH: 0.3, MESSAGE: 0.3}


class TwoCosts:
    """The seconds of a piece (or of a call) and of a byte, by a profile and by what was observed."""

    def __init__(self, piece: float, byte: float) -> None:
        """`byte`: 0 where bytes cost nothing beside their pieces; it stays 0."""
        self._profile = piece, byte
        #: logarithms of what each figure is, as a multiple of the profile's
        self._logs = 0.0, 0.0

    def observe(self, pieces: int, nbytes: int, seconds: float) -> None:
        piece, byte = self.figures
        first, second = pieces * piece, nbytes * byte
        step = GAIN * _within(log(seconds / (first + second)), ONCE) * (first + second) / (first**2 + second**2)
        self._logs = _within(self._logs[0] + step * first, FAR), _within(self._logs[1] + step * second, FAR)

    def fade(self) -> None:
        """Go back a little to the profile."""
        self._logs = self._logs[0] * OTHER, self._logs[1] * OTHER

    @property
    def figures(self) -> tuple[float, float]:
        """(seconds of a piece, seconds of a byte)."""
        (piece, byte), (more, most) = self._profile, self._logs
        return piece * exp(more), byte * exp(most)


@dataclass(slots=True)
class _Peer:
    profile: Costs
    told: Costs
    lines: dict[str, TwoCosts]
    #: writes in flight, since when, by which route (empty: by several, or one failed), and what has ended since
    flying: int = 0
    since: float = 0.0
    route: str = ""
    ended: list[int] = field(default_factory=lambda: [0, 0, 0])


class WriteTimes:
    """The times of a rank's writes, by peer; the loop's thread."""

    def __init__(self, now: Callable[[], float], changed: Callable[[PeerId, Costs], None]) -> None:
        """`now`: seconds of a clock that never goes back; `changed`: called with a link's new costs."""
        self._now, self._changed = now, changed
        self._peers: dict[PeerId, _Peer] = {}

    def begin(self, peer: PeerId, profile: Costs) -> Costs:
        """Observe the writes to a peer; return what its link costs, as far as is known."""
        known = self._peers.get(peer)
        if known is not None and known.profile == profile:
            return known.told
        self._peers.pop(peer, None)
        if profile.piece > 0 and isfinite(profile.rate):
            lines = {
                STAGED: TwoCosts(profile.piece, 1 / profile.rate),
                PAGES: TwoCosts(profile.piece, 1 / profile.piece_rate),
                LAUNCH: TwoCosts(profile.launch, 1 / profile.copy), MESSAGE: TwoCosts(profile.message, 0.0),
            }  # fmt: skip
            self._peers[peer] = _Peer(profile, profile, lines)
        return profile

    def forget(self, peer: PeerId) -> None:
        self._peers.pop(peer, None)

    def posted(self, peer: PeerId, route: str) -> None:
        """A write begins."""
        value = self._peers.get(peer)
        if value is None:
            return
        if not value.flying:
            value.since, value.route = self._now(), route
        elif value.route != route:
            value.route = ""
        value.flying += 1

    def over(self, peer: PeerId, pieces: int, nbytes: int, *, ok: bool) -> None:
        """A write has ended, or failed."""
        value = self._peers.get(peer)
        if value is None or not value.flying:  # it began before it was observed
            return
        value.flying -= 1
        value.route = value.route if ok else ""
        value.ended = [value.ended[0] + 1, value.ended[1] + pieces, value.ended[2] + nbytes]
        if value.flying and value.ended[0] < MOST:
            return
        now, (_, pieces, nbytes) = self._now(), value.ended
        seconds, value.since, value.ended = now - value.since, now, [0, 0, 0]
        if value.route in (STAGED, PAGES) and pieces and seconds > 0:
            value.lines[value.route].observe(pieces, nbytes, seconds)
            for name, line in value.lines.items():
                if (name == PAGES) != (value.route == PAGES):
                    line.fade()
            self._tell(peer, value)

    def called(self, peer: PeerId, what: str, seconds: float, nbytes: int = 0) -> None:
        """A gather of so many bytes, or the wait for a region, took so long; told when its write has ended."""
        value = self._peers.get(peer)
        if value is not None and (nbytes or what == MESSAGE):
            value.lines[what].observe(1, nbytes, max(seconds, SHORTEST_S))

    def _tell(self, peer: PeerId, value: _Peer) -> None:
        lines = value.lines
        (_, byte), (piece, piece_byte) = lines[STAGED].figures, lines[PAGES].figures
        (launch, copied), (message, _) = lines[LAUNCH].figures, lines[MESSAGE].figures
        made = Costs(
            min(piece, LONGEST), 1 / byte, _rate(piece_byte), min(launch, LONGEST), _rate(copied), min(message, LONGEST)
        )
        names = made.__struct_fields__
        if any(_apart(getattr(made, name), getattr(value.told, name), SCATTERS.get(name, NEW)) for name in names):
            value.told = made
            self._changed(peer, made)


def _rate(byte: float) -> float:
    return 1 / byte if byte else inf


def _within(value: float, bound: float) -> float:
    return min(max(value, -bound), bound)


def _apart(one: float, other: float, new: float) -> bool:
    return abs(one - other) > new * min(one, other)  # of two without bound it is no number, and false
