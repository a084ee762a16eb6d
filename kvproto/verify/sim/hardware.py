"""Hardware: streams and ports as FIFO queues; they decide how long gathers, writes and scatters take.

Each rank has one stream for its gathers or scatters, and one port to the network. A stream and a port do one thing
after the other, first come first served. A write passes the port of its writer and that of its reader; the second one
begins as soon as bytes arrive, so two idle ports cost the time of one. A reader's port that is busy with another write
holds up this one, but not the writer's port, which goes on with its next write.

The durations are those of `kvproto.layout.costs`, the same figures that ranks choose their routes by: a launch and a
copy for each kernel, one piece and a rate for a staged write, many pieces for a write over pages.
"""

from __future__ import annotations

from collections import defaultdict

from kvproto.layout.costs import Costs, page_form
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.verify.sim.interpreter import Write


class Queues:
    """The streams and ports of all ranks, by name: when each has done what it was given so far."""

    def __init__(self, costs: Costs) -> None:
        """Begin with everything idle; `costs`: of a link, and of a kernel."""
        self.costs = costs
        self._free_at: dict[str, float] = {}
        #: seconds that each was busy
        self.busy = defaultdict[str, float](float)

    def take(self, name: str, at: float, seconds: float) -> float:
        """Queue work of `seconds` that arrives at this time under this name; return when it is done."""
        end = max(at, self._free_at.get(name, 0.0)) + seconds
        self._free_at[name] = end
        self.busy[name] += seconds
        return end

    def kernel(self, rank: str, at: float, nbytes: int) -> float:
        """Launch a gather or a scatter of so many bytes on this rank's stream; return when it ends."""
        return self.take(f"{rank} stream", at, self.costs.launch + nbytes / self.costs.copy)

    def write_seconds(self, nbytes: int, pieces: int) -> float:
        """How long a write of so many bytes takes: staged in one piece, over pages in many."""
        costs = self.costs
        if pieces == 1:
            return costs.piece + nbytes / costs.rate
        return max(nbytes / costs.rate, pieces * costs.piece + nbytes / costs.piece_rate)


def amount(plan: Plan, write: Write) -> tuple[int, int]:
    """Bytes of a write, and in how many pieces it goes."""
    part, tokens = write.to.part, write.to.cut.tokens
    return part.nbytes, page_form(plan, part.share).pieces(tokens, 0) if isinstance(write, do.PreparePages) else 1
