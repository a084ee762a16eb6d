"""Process group: processes of ranks that start together, fail together and never outlive their parent.

* **Start.** Ranks are forked from a server that has loaded what they share (`warm`: torch, for the demonstration also
  transformers) and has started no thread, so a rank costs milliseconds and its memory is shared until written.
* **Talk.** One pipe a rank, messages `(kind, data)`. The parent waits on all pipes and all process ends at once.
* **Fail.** An exception in a rank travels to the parent with its traceback; a rank that dies without a word is noticed
  by its end. The first cause is what is reported: a rank whose peer is gone fails too, a moment later, in some
  collective, and that is noise. Then every rank is killed; what they held was theirs alone.
* **No orphans.** Each rank has a thread that does nothing but wait for the parent's end, and then ends the process,
  also when its main thread is in a collective or in a transport. A rank leaves by `os._exit`, as forked processes
  should: some transports do not survive the interpreter's own teardown.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from kvproto.errors import KvprotoError

ORPHANED = 70  # exit code of a rank whose parent is gone
#: what every fork server loads, behind what the first group asks for; a process has one server
WARM = ["kvproto.lab.warm_ranks"]
SETTLE_S = 0.3  # after a failure: how long to listen for an earlier cause before choosing one


def _environment() -> dict[str, str]:
    env = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env |= {"GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    env |= {"TORCH_CPP_LOG_LEVEL": "FATAL", "NIXL_LOG_LEVEL": "WARN"}  # what matters arrives as a traceback
    if not any(Path("/sys/class").glob("infiniband/*")):
        env["UCX_MODULES"] = os.environ.get("UCX_MODULES", "^ib")  # without such a device it crashes when unloaded
    package = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return env


# ---- a rank's side ------------------------------------------------------------------------------------------------


class ParentPipe:
    """A rank's end of the pipe to the parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tell(self, kind: str, data: Any = None) -> None:
        self._connection.send((kind, data))

    def hear(self, kind: str) -> Any:
        """Wait for the parent's next message and give its data; RuntimeError if it is not of this kind."""
        got, data = self.listen()
        if got != kind:
            raise RuntimeError(f"the parent sent {got!r} where {kind!r} was due")
        return data

    def listen(self) -> tuple[str, Any]:
        """Wait for the parent's next message, whatever its kind."""
        kind, data = self._connection.recv()
        return kind, data

    def waiting(self) -> bool:
        """Whether `hear` would return at once."""
        return self._connection.poll()

    def fileno(self) -> int:
        """For who waits for several things."""
        return self._connection.fileno()


def _terminated(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
    os._exit(ORPHANED)


def _rank(connection: Connection, target: str, args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts everybody; the parent decides
    faulthandler.register(signal.SIGUSR1)  # who asks sees where it stands
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(_environment())
    try:
        module, _, function = target.partition(":")
        getattr(importlib.import_module(module), function)(ParentPipe(connection), *args)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        connection.send(("failed", (time.monotonic(), traceback.format_exc())))
        os._exit(1)
    connection.send(("ended", None))


# ---- the parent's side --------------------------------------------------------------------------------------------


def fork_server(warm: str) -> ForkServerContext:
    """Start the process's fork server if it has none, with `warm` loaded; what makes processes of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([warm, *WARM])
    with patch.dict(os.environ, _environment()):
        multiprocessing.forkserver.ensure_running()
    return context


@dataclass(frozen=True)
class Program:
    """One process: its name, "module:function" to call with a `ParentPipe` and `args` (all picklable)."""

    name: str
    target: str
    args: tuple[Any, ...] = ()


class RankError(KvprotoError, RuntimeError):
    """A process of the crew ended before its time: `name`, and why (a traceback, or how it died)."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} failed: {why}")
        self.name, self.why = name, why


class ProcessGroup:
    """A set of processes, as a context: on leaving it every one of them has ended, whatever happened.

    A SIGTERM that nobody handles leaves the context, too: a rank that is stopped would not notice that its parent ends.
    """

    def __init__(self, programs: Sequence[Program] = (), *, warm: str = "kvproto.lab.demo.rank_program") -> None:
        self._context = fork_server(warm)
        self._pipes: dict[str, Connection] = {}
        self._ends: dict[str, Any] = {}
        self._over: set[str] = set()
        for program in programs:
            self.start(program)

    def start(self, program: Program) -> None:
        """One more process, or one that was ended anew."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_rank, args=(theirs, program.target, program.args), name=program.name, daemon=True
        )
        self._pipes[program.name], self._ends[program.name] = ours, process
        process.start()
        theirs.close()

    def end(self, name: str) -> None:
        """Kill this one, and hear no more of it."""
        process = self._ends.pop(name)
        process.kill()
        process.join()
        process.close()
        self._pipes.pop(name).close()
        self._over.discard(name)

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._ends.items()}

    def tell(self, names: str | Iterable[str], kind: str, data: Any = None) -> None:
        for name in (names,) if isinstance(names, str) else names:
            try:
                self._pipes[name].send((kind, data))
            except OSError:
                self._fail({})  # its end, or the cause of it, is there to be read

    def collect(
        self, kind: str, names: Iterable[str], timeout_s: float,
        other: Callable[[str, str, Any], None] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Wait until each of `names` has sent a message of `kind`; give their data.

        Other messages go to `other(name, kind, data)` as they come. RankError as soon as any process fails;
        TimeoutError, naming who is silent, after `timeout_s`.
        """
        due, found = set(names), dict[str, Any]()
        deadline = time.monotonic() + timeout_s
        while due:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no {kind!r} from {', '.join(sorted(due))} within {timeout_s:g} s")
            for name, got, data in self.listen(left):
                if got == kind and name in due:
                    due.remove(name)
                    found[name] = data
                elif other is not None and got != "ended":
                    other(name, got, data)
            if silent := due & self._over:
                raise RankError(min(silent), f"it ended without a word of {kind!r}")
        return found

    def finish(self, timeout_s: float = 10.0) -> None:
        """Wait for every process to return from its program; RankError or TimeoutError otherwise."""
        self.collect("ended", set(self._ends) - self._over, timeout_s)
        for name, process in self._ends.items():
            process.join(timeout_s)
            if process.exitcode != 0:
                raise RankError(name, _died(process.exitcode))

    def kill(self) -> None:
        """End what still runs, at once, and wait until it has ended."""
        for process in self._ends.values():
            if process.exitcode is None:
                process.kill()
        for process in self._ends.values():
            process.join()
        for pipe in self._pipes.values():
            pipe.close()

    def __enter__(self) -> Self:
        alone = threading.current_thread() is threading.main_thread()
        self._handles = alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._handles:
            signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
        if self._handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def listen(self, timeout_s: float) -> list[tuple[str, str, Any]]:
        """Return messages (name, kind, data), at least one before the timeout.  RankError: a failure."""
        live = {self._pipes[n]: n for n in self._ends if n not in self._over}
        ends = {self._ends[n].sentinel: n for n in live.values()}
        ready = wait([*live, *ends], timeout_s)
        came, failed = list[tuple[str, str, Any]](), dict[str, tuple[float, str]]()
        for source in ready:
            name = live.get(source) or ends[source]  # type: ignore[call-overload]
            for kind, data in self._drain(name):
                came.append((name, kind, data))
                if kind == "failed":
                    failed[name] = data
                elif kind == "ended":
                    self._over.add(name)
            if source in ends and name not in self._over and name not in failed:
                self._ends[name].join()
                failed[name] = (0.0, _died(self._ends[name].exitcode))
        if failed:
            self._fail(failed)
        return came

    def _drain(self, name: str) -> Iterator[tuple[str, Any]]:
        with contextlib.suppress(EOFError, ConnectionResetError):
            while self._pipes[name].poll():
                yield self._pipes[name].recv()

    def _fail(self, failed: dict[str, tuple[float, str]]) -> None:
        """Raise RankError for the first cause: who died without a word, else whose exception is the earliest."""
        until = time.monotonic() + SETTLE_S
        while (left := until - time.monotonic()) > 0:
            rest = {self._ends[n].sentinel: n for n in self._ends if n not in failed and n not in self._over}
            for sentinel in wait(list(rest), left):
                name = rest[sentinel]
                said = dict(self._drain(name))
                if "ended" in said:
                    self._over.add(name)
                else:
                    self._ends[name].join()
                    failed[name] = said.get("failed", (0.0, _died(self._ends[name].exitcode)))
        name = min(failed, key=lambda n: failed[n][0]) if failed else "a process"
        raise RankError(name, failed[name][1] if failed else "its pipe is closed")


def _died(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
