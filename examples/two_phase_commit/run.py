"""Two-phase commit between processes, one of which is killed: `python -m examples.two_phase_commit.run [FOLDER]`.

The coordinator dies when its decision to commit is in its log and nobody has heard of it.  The participants wait; the
coordinator is started again, reads its log, and all commit.  Exit code 0: they did.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvproto.cli.ending import ended

PARTIES = 3
LIMIT = 30.0


def addresses() -> list[str]:
    """An address on this machine for each party."""
    sockets = [socket.socket() for _ in range(PARTIES)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return found


def run(folder: Path) -> int:
    """Play it; the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "die").touch()
    where = addresses()

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "examples.two_phase_commit.node", str(number), str(folder), *where]
        return subprocess.Popen(command)  # noqa: S603  # our own program

    parties = [start(number) for number in range(PARTIES)]
    try:
        killed = parties[0].wait(LIMIT)
        print(f"the coordinator is dead: {signal.Signals(-killed).name}; its log: {(folder / 'C.log').read_text()!r}")
        time.sleep(1.0)
        told = sorted(path.name for path in folder.glob("*.outcome"))
        print(f"the participants wait: outcomes so far: {told or 'none'}")
        parties[0] = start(0)
        codes = [party.wait(LIMIT) for party in parties]
    finally:
        for party in parties:
            party.kill()
    outcomes = {path.stem: path.read_text() for path in sorted(folder.glob("*.outcome"))}
    print(f"it was started again: {outcomes}")
    return 0 if codes == [0] * PARTIES and not told and set(outcomes.values()) == {"commit"} else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made)
        raise SystemExit(ended("two_phase_commit", lambda: run(place)))
