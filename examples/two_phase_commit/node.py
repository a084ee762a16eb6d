"""One party as a process of its own: `python -m examples.two_phase_commit.node NUMBER FOLDER ADDRESS ...`.

Its log is a file, written through to the disk before anything that follows from it is said.  The coordinator begins
transaction 1 when it starts for the first time; with a file `FOLDER/die` it kills itself as soon as its decision is in
the log, before anybody has heard of it.  A party ends when it has heard how the transaction ended and nobody has asked
it for a while; it then leaves its trace.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Literal

from examples.two_phase_commit.parties import WORDS, Participant, make
from examples.two_phase_commit.protocol import COORDINATOR, Announce, Begun, Message, Recovered, WriteLog
from kvproto.fsm.bounded_files import decoded, json_value, lines_of
from kvproto.fsm.records import save
from kvproto.loop.party_loop import PartyLoop

#: seconds for which a party that is done still answers
LINGER = 1.5
TXN = 1
#: what its log may hold
WORD: Any = Literal["promise", "commit", "abort"]


class Node:
    """A party, its loop and its log."""

    def __init__(self, number: int, folder: Path, addresses: list[str]) -> None:
        names = {i: "C" if i == COORDINATOR else f"P{i}" for i in range(len(addresses))}
        self.party, self.folder = make(number, names), folder
        self.log = folder / f"{self.party.name}.log"
        self.outcome: bool | None = None
        self.loop = PartyLoop(
            self.party, dict(enumerate(addresses)), Message, {WriteLog: self.write_log, Announce: self.announce}
        )  # fmt: skip

    def run(self) -> None:
        """From the log, or from the beginning, to the end."""
        self.recover()
        last = self.loop.clock.now()
        while self.outcome is None or self.loop.clock.now() - last < LINGER:
            if self.loop.poll():
                last = self.loop.clock.now()
            self.loop.wait(0.1)
        save(self.party, self.folder / f"{self.party.name}.jsonl", WORDS)
        self.loop.close()

    def recover(self) -> None:
        """What the log says goes on; without a log the coordinator begins, and participants have their changes."""
        lines = lines_of(self.log) if self.log.exists() else ()
        words = [decoded(str(self.log), json_value(line, str(self.log)), WORD) for line in lines]
        if words:
            self.loop.submit(self.party.handle(Recovered(TXN, words[-1]), self.loop.now))
        elif isinstance(self.party, Participant):
            self.party.at_hand = frozenset({TXN})
        else:
            members = sum(1 << number for number in self.party.peers)
            self.loop.submit(self.party.handle(Begun(TXN, members), self.loop.now))

    def write_log(self, effect: WriteLog) -> None:
        """Append, and wait for the disk."""
        with self.log.open("a") as file:
            file.write(json.dumps(effect.word) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self.party.number == COORDINATOR and (self.folder / "die").exists():
            (self.folder / "die").unlink()
            save(self.party, self.folder / "C-first-life.jsonl", WORDS)
            os.kill(os.getpid(), signal.SIGKILL)

    def announce(self, effect: Announce) -> None:
        """The application is told."""
        self.outcome = effect.commit
        (self.folder / f"{self.party.name}.outcome").write_text("commit" if effect.commit else "abort")


if __name__ == "__main__":
    Node(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).run()
