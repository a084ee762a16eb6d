"""Served rank: a control side whose endpoint has a thread, and the processor time of its rooms."""

from __future__ import annotations

import time

from kvproto.lab.bench.control_side import ControlRank

#: seconds that an engine waits for news at most
LONGEST_WAIT_S = 0.05


class ServedRank(ControlRank):
    """A control side that hands its endpoint to a thread, once nobody polls it any more."""

    served = False

    def serve(self) -> None:
        self._unwatch()
        self.endpoint.start()
        self.served = True

    def idle(self) -> None:
        """Poll, unless the thread does."""
        if self.served:
            time.sleep(1e-3)
        else:
            super().idle()

    def spend(self, rooms: int, gen: int, rate: float, begin: float) -> float:
        """Processor seconds a room, of all threads: so many rooms, `rate` a second, AT_WORK at a time at most.

        `rate` 0: as fast as they go; `begin`: when, by `time.perf_counter`.
        """
        time.sleep(max(0.0, begin - time.perf_counter()))
        spent = time.process_time()
        self.carry(rooms, gen, lambda left: self.endpoint.wait_news(min(LONGEST_WAIT_S, max(1e-4, left))), rate)
        return (time.process_time() - spent) / rooms
