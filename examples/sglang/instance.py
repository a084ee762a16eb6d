"""An instance of SGLang in processes of its own, asked through a pipe.

What is asked is answered in any order: many requests are under way at a time, and any of them may be aborted.  This is
the parent's end; the child's is `serving`.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import multiprocessing
import os
import time
from functools import cache
from pathlib import Path

import msgspec
import psutil

from examples.engine_runs.hosts import Host
from examples.engine_runs.zygote import Zygote, environment
from examples.sglang.messages import Answer, Request, Start
from examples.sglang.serving import prepare, serve

HERE = Path(__file__).parent
#: seconds within which an instance serves, and answers
START_S, ANSWER_S = {"cpu": 1200.0, "cuda": 240.0}, {"cpu": 300.0, "cuda": 90.0}
#: seconds for an end of its own, after which it is killed; on GPUs others wait for their turn
END_S = {"cpu": 8.0, "cuda": 0.1}
RING_BYTES = 1 << 26


class Instance:
    """The parent's end."""

    def __init__(self, start: Start, host: Host | None = None) -> None:
        """`host`: the one on which its processes are; None: this one."""
        self.start, self.host, self.answers = start, host, {}  # type: Start, Host | None, dict[str, Answer]
        #: seconds without any answer after which none is waited for, since when, and whether that came to pass
        self.patience, self.heard, self.silent = math.inf, 0.0, False
        self._serves = False
        context = multiprocessing.get_context("spawn")
        self._line, other = context.Pipe()
        everywhere = _everywhere(start)
        args = start, everywhere | _own(start), host, other
        if start.device == "cpu":
            self.process = _zygote(frozenset(everywhere.items())).start(serve, *args)
        else:  # SGLang's import may use a GPU, and who has done so cannot be forked
            with environment(args[1]):
                spawned = context.Process(target=serve, args=args)
                spawned.start()
            self.process = psutil.Process(spawned.pid)
        other.close()

    def allow(self, patience: float) -> None:
        """Wait for answers as long as one comes in every `patience` seconds from now on."""
        self.patience, self.heard = patience, time.monotonic()

    def ready(self, limit: float | None = None) -> None:
        """Wait until it serves, so many seconds at most; RuntimeError, EOFError: it does not."""
        if self._serves:
            return
        limit = START_S[self.start.device] if limit is None else limit
        if not self._line.poll(limit) or self._line.recv() != "ready":
            raise RuntimeError(f"{self.start.side} did not start within {limit} s")
        self._serves = True

    def ask(self, request: Request) -> None:
        """Have a prompt continued."""
        self._line.send(request)

    def abort(self, rid: str) -> None:
        """Abort it."""
        self._line.send(rid)

    def wait(self, *rids: str, seconds: float | None = None) -> list[Answer]:
        """The answers; one that does not come is an error that says so."""
        seconds = ANSWER_S[self.start.device] if seconds is None else seconds
        end = time.monotonic() + seconds
        while any(rid not in self.answers for rid in rids):
            last = min(end, self.heard + self.patience)
            if (left := last - time.monotonic()) <= 0:
                self.silent |= last < end
                seconds = self.patience if self.silent else seconds
                break
            if self._line.poll(left):
                answer = self._line.recv()
                self.answers[answer.rid], self.heard = answer, time.monotonic()
        return [self.answers.pop(rid, Answer(rid, error=f"no answer within {seconds} s")) for rid in rids]

    def flush(self, tries: int) -> str:
        """Empty its caches; return why it cannot, after so many seconds: something holds pages."""
        why = ""
        for _ in range(tries):
            self._line.send("flush")
            (answer,) = self.wait("flush")
            if not (why := answer.error):
                return ""
            time.sleep(1.0)
        return why

    def _each(self, action: str) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in [self.process, *self.process.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    getattr(one, action)()

    def pause(self) -> None:
        """Stop all of its processes: an idle scheduler takes a core."""
        self._each("suspend")

    def go_on(self) -> None:
        """End the pause."""
        self._each("resume")

    def kill(self) -> None:
        """All of its processes die at once."""
        self._each("kill")
        self.process.wait()

    def close(self) -> None:
        """End it, and all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = self.process.children(recursive=True)
            with contextlib.suppress(OSError):
                self._line.send(None)
            with contextlib.suppress(psutil.TimeoutExpired):
                self.process.wait(END_S[self.start.device])
            for one in [*family, self.process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


@cache
def _zygote(everywhere: frozenset[tuple[str, str]]) -> Zygote:
    """Return the process of which instances with this environment are forked."""
    made = Zygote(prepare, dict(everywhere))
    atexit.register(made.close)
    return made


def _everywhere(start: Start) -> dict[str, str]:
    """Return the variables that SGLang's import needs, alike in all instances of a kind."""
    on_cpu = start.device == "cpu"
    folders = [*[HERE / "gpu"] * (not on_cpu), HERE / "cpu", HERE / "probe"]
    folders += [HERE / "kernels"] * ("SGLANG_USE_CPU_ENGINE" in start.environment)
    folders += map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    return {
        "HF_HUB_OFFLINE": "1", "PYTHONPATH": ":".join(map(str, folders)), "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # nothing of a forward is compiled: that takes minutes
        "MOONCAKE_PROTOCOL": "tcp", "MC_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore",
        "SGLANG_LOCAL_IP_NIC": "lo", **start.environment,
    }  # fmt: skip


def _own(start: Start) -> dict[str, str]:
    """Return the variables of this instance."""
    folder, cores = Path(start.folder), os.cpu_count() or 1
    own = {
        "SGLANG_HOST_IP": start.address, "PROBE": str(folder), "PROBE_SIDE": start.side,
        "KVPROTO_SGLANG": msgspec.json.encode({
            "digests": str(folder) if start.digests else "", "ring_bytes": RING_BYTES * start.scale, "keys": start.keys,
        }).decode(),
    }  # fmt: skip
    if start.device != "cpu":  # instances share GPUs, so that their memory is never balanced
        own |= {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
        own |= {"GPU_CROWDED": "1"} if start.crowded else {}
    elif start.ranks > 1:
        own["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(rank % cores) for rank in range(start.ranks))
    return own
