"""Faults: strike ranks and cables as the plan says, and take each fault back.

A rank that was killed is started anew when its time is over, as another life under the same name: a prefill rank on
another port, to which its cables are led (`kill-and-move`: the cables have other ports, too, so that decode ranks have
to be told). The faults of an episode are over when all links are up again, on both sides in the same epoch, for longer
than a heartbeat.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable

from kvproto.lab.process_group import ProcessGroup, Program
from kvproto.lab.torture.fleet import DECODE_RANKS, GROUP_OF, NAMES, PREFILL, PREFILL_RANKS, CableName
from kvproto.lab.torture.plan import Episode, Strike, TorturePlan

PROXY = "proxy"
#: links are looked at so often, and have to be well so many times in a row
LOOK_S, LOOKS = 0.15, 3
ENDLESS = float("inf")


class Siege:
    """The ranks' processes and the proxy, and what is being done to them."""

    def __init__(self, crew: ProcessGroup, plan: TorturePlan, program: Callable[[str, int], Program]) -> None:
        self.crew, self.plan, self.program = crew, plan, program
        self.lives = dict.fromkeys((*PREFILL_RANKS, *DECODE_RANKS), 1)
        self.alive: set[str] = set()  # ranks that have said that they are here
        self.starting = set(self.lives)
        self.ports: dict[CableName, int] = {}
        self.struck: Counter[str] = Counter()
        #: seconds in which a rank was stopped on purpose
        self.stops: list[tuple[str, float, float]] = []
        self._moved: set[str] = set()
        self._coming: list[tuple[float, Strike]] = []
        self._going: list[tuple[float, Strike]] = []
        self._seen: dict[str, dict[tuple[int, int], int]] = {}
        self._well = 0
        self._asked = 0.0

    # ------------------------------------------------------------------------------------------ being told
    def here(self, name: str, address: str) -> None:
        self.starting.discard(name)
        self.alive.add(name)
        if name in PREFILL_RANKS:
            self.crew.tell(PROXY, "lead", (name, int(address.rpartition(":")[2])))
            if name in self._moved:
                self._moved.discard(name)
                self.crew.tell(PROXY, "move", (name,))
        elif self.ports:
            self._connect([name])

    def ported(self, ports: dict[CableName, int]) -> None:
        self.ports = ports
        self._connect([name for name in DECODE_RANKS if name in self.alive])

    def _connect(self, names: list[str]) -> None:
        for name in names:
            addresses = {
                group: [f"tcp://127.0.0.1:{self.ports.get((name, p), 9)}" for p in NAMES[group]] for group in PREFILL
            }
            self.crew.tell(name, "connect", (addresses,))

    # --------------------------------------------------------------------------------------------- striking
    def begin(self, episode: Episode) -> None:
        self._coming = [(time.monotonic() + strike.after, strike) for strike in episode.strikes]
        self._well = 0

    def step(self) -> list[Strike]:
        """Do what is due; the faults that strike now."""
        now = time.monotonic()
        fresh = [strike for due, strike in self._coming if due <= now]
        self._coming = [entry for entry in self._coming if entry[0] > now]
        for strike in fresh:
            self.struck[strike.kind] += 1
            self._strike(strike)
            self._going.append((now + strike.seconds, strike))
        for entry in [entry for entry in self._going if entry[0] <= now]:
            self._going.remove(entry)
            self._take_back(entry[1])
        return fresh

    def _strike(self, strike: Strike) -> None:
        name = strike.target
        match strike.kind:
            case "kill" | "kill-and-move":
                self.alive.discard(name)
                self.starting.add(name)
                self.crew.end(name)
            case "stop" | "pause":
                os.kill(self.crew.pids[name], signal.SIGSTOP)
                self.stops.append((name, time.monotonic(), ENDLESS))
            case "jump":
                self.crew.tell(name, "jump", (strike.amount,))
            case _:
                self.crew.tell(PROXY, "suffer", (tuple(name.split(">")), strike))

    def _take_back(self, strike: Strike) -> None:
        name = strike.target
        match strike.kind:
            case "kill" | "kill-and-move":
                self.lives[name] += 1
                if strike.kind == "kill-and-move":
                    self._moved.add(name)
                self.crew.start(self.program(name, self.lives[name]))
            case "stop" | "pause":
                os.kill(self.crew.pids[name], signal.SIGCONT)
                self.stops = [(who, begin, time.monotonic() if who == name and end == ENDLESS else end)
                              for who, begin, end in self.stops]  # fmt: skip
            case "jump":
                pass
            case _:
                self.crew.tell(PROXY, "suffer", (tuple(name.split(">")), None))

    def stopped(self, name: str, begin: float, end: float) -> bool:
        return any(who == name and first < end and begin < last for who, first, last in self.stops)

    # ---------------------------------------------------------------------------------------------- healing
    def well(self) -> bool:
        """Whether nothing strikes any more, and all links have been up for a while; asks, and never waits."""
        if self._coming or self._going or self.starting:
            self._well = 0
        elif time.monotonic() > self._asked + LOOK_S:
            self._asked = time.monotonic()
            self._well = self._well + 1 if self._agree() else 0
            self._seen = {}
            self.crew.tell(self.alive, "links", ())
        return self._well > LOOKS

    def links(self, name: str, epochs: dict[tuple[int, int], int]) -> None:
        self._seen[name] = epochs

    def down(self) -> list[str]:
        """The cables that are not up, or not in the same epoch, for a reader."""
        return [f"{d}>{p}" for d, p in self.plan.fleet.cables() if not self._up(d, p)]

    def _agree(self) -> bool:
        return not self.down()

    def _up(self, d: str, p: str) -> bool:
        ours, theirs = (self._seen.get(a, {}).get(GROUP_OF[b]) for a, b in ((d, p), (p, d)))
        return ours is not None and ours == theirs
