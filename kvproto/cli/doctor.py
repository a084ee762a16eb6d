"""Doctor, `kvproto doctor`: reports what works on this machine, and the remedy for what does not.

Each part is tried in a process of its own, because it may crash, hang or change the process that loads it (a native
library at exit, for instance).  To try means to use: a transport makes its endpoint, a device computes a sum; an import
is not enough.  Checking, drawing and tracing the protocol need none of these parts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine

PATIENCE = 60.0
END = "\nimport os, sys; sys.stdout.flush(); os._exit(0)\n"


class TrialResult(msgspec.Struct, frozen=True):
    """One thing that was tried; `why` and `remedy` are empty where it works."""

    area: str
    name: str
    works: bool
    said: str
    remedy: str = ""


class Trial(msgspec.Struct, frozen=True):
    """Python code that prints one line if all is well, and raises otherwise."""

    area: str
    name: str
    code: str
    remedy: str


TRIALS: tuple[Trial, ...] = (
    Trial("core", "msgspec", "import msgspec; print(msgspec.__version__)", "pip install msgspec"),
    Trial("core", "tables", """
from kvproto.verify.framework.lint import lint, lint_edge
from kvproto.verify.claims.sources import SOURCES
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.protocol.digest import tables_digest
from kvproto.verify.framework.digest_text import shortened
found = [str(f) for t in TABLES for f in lint(t, Timing(), SOURCES)] + [str(f) for f in lint_edge(SOURCES)]
assert not found, found[0]
print(sum(len(t.rows) for t in TABLES), "rows, digest", shortened(tables_digest()))
""", "kvproto lint shows where"),
    Trial("transport", "control plane (zmq)", """
import zmq
socket = zmq.Context().socket(zmq.ROUTER)
port = socket.bind_to_random_port("tcp://127.0.0.1")
print("pyzmq", zmq.__version__ + ", libzmq", zmq.zmq_version() + ", bound a port")
""", "pip install 'kvproto[control]'"),
    Trial("transport", "memory", """
from kvproto.io.transports import memory
print("writes within one process, for tests")
""", "pip install 'kvproto[nixl]' (it needs numpy)"),
    Trial("transport", "nixl", """
from kvproto.io.transports.nixl_load import load
api, _ = load()
agent = api.nixl_agent("doctor", api.nixl_agent_config(backends=["UCX"]))
print("an agent with UCX;", len(agent.get_agent_metadata()), "bytes of metadata")
""", "pip install 'kvproto[nixl]'; behind a machine without InfiniBand set UCX_MODULES=^ib"),
    Trial("transport", "mooncake", """
from mooncake.engine import TransferEngine
engine = TransferEngine()
code = engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
assert code == 0, f"initialize returned {code}"
print("a TCP engine")
""", "pip install 'kvproto[mooncake-cpu]'; apt-get install libnuma1 libibverbs1 libcurl4"),
    Trial("device", "torch", """
import torch
print(torch.__version__, "CUDA", torch.version.cuda or "(a CPU build)", "sum", int(torch.arange(4).sum()))
""", "pip install 'kvproto[gpu]'"),
    Trial("device", "GPU", """
import torch
assert torch.cuda.is_available(), "torch sees no CUDA device"
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
torch.ones(8, device="cuda").sum().item()
print(", ".join(names))
""", "needs an NVIDIA driver and a CUDA build of torch; the CPU kernels work without"),
    Trial("device", "triton", """
import triton
print(triton.__version__)
""", "pip install triton (Linux); the torch kernels work without"),
    Trial("library", "search in C", """
from kvproto.verify.check.native.library import missing, origin
why = missing()
assert why is None, why
print(f"kvproto check --engine native, the default, {origin()}")
""", "apt-get install gcc libc6-dev; kvproto check searches in Python without, with the same results"),
    Trial("library", "transformers", "import transformers; print(transformers.__version__)",
          "pip install 'kvproto[demo]'"),
)  # fmt: skip
PROGRAMS = (
    ("spin", ("-V",), "apt-get install spin (checks the generated Promela)"),
    ("rumur", ("--version",), "apt-get install rumur (checks the hand-written model)"),
    ("gcc", ("--version",), "apt-get install gcc (Spin compiles its verifiers)"),
)


def examine() -> Iterator[TrialResult]:
    """Try everything, a few at a time, in a fixed order."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield TrialResult("core", "python", True, version)  # an older one does not get here
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(attempt, TRIALS)
    for name, version_flags, remedy in PROGRAMS:
        yield _program(name, version_flags, remedy)
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0  # noqa: PTH112, S108 - its free space
    yield TrialResult("machine", "shared memory", free >= 1 << 26, f"{free >> 20} MiB free in /dev/shm",
                  "give the container more: docker run --shm-size=1g")  # fmt: skip


def known() -> list[str]:
    return ["python", *(trial.name for trial in TRIALS), *(name for name, *_ in PROGRAMS), "shared memory"]


def attempt(trial: Trial) -> TrialResult:
    """Try one thing in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", trial.code.strip() + END], capture_output=True, text=True, timeout=PATIENCE,
            check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return TrialResult(trial.area, trial.name, False, f"no answer within {PATIENCE:g} s", trial.remedy)
    if done.returncode == 0 and done.stdout.strip():
        return TrialResult(trial.area, trial.name, True, done.stdout.strip().splitlines()[-1])
    return TrialResult(trial.area, trial.name, False, _why(done), trial.remedy)


def _why(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"the process died of signal {-done.returncode}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}, and not a word"


def _program(name: str, flags: tuple[str, ...], remedy: str) -> TrialResult:
    path = shutil.which(name)
    if path is None:
        return TrialResult("program", name, False, "not found", remedy)
    try:
        done = subprocess.run([path, *flags], capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return TrialResult("program", name, False, str(error), remedy)
    said = (done.stdout + done.stderr).strip().splitlines()
    return TrialResult("program", name, True, said[0] if said else path)


def main(argv: list[str]) -> int:
    """Exit code 0: the core works (the rest is optional); with `--need`, also each thing that is named."""
    parser = CommandLine(
        prog="kvproto doctor", description="Say what works here, and for what does not: why, and the remedy.",
        epilog="Example: kvproto doctor --need nixl --need GPU    (exit code 1 unless both work)",
    )  # fmt: skip
    parser.add_argument("--need", action="append", default=[], metavar="NAME", help="fail unless this works, too")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    args = parser.parse_args(argv)
    if unknown := set(args.need).difference(names := known()):
        parser.error(f"--need: there is nothing of the name {min(unknown)!r} to be tried: {', '.join(names)}")
    found = []
    for finding in examine():
        found.append(finding)
        if not args.json:
            _show(finding)
    if args.json:
        say(json.dumps(msgspec.to_builtins(found), indent=1))
    works = {finding.name for finding in found if finding.works}
    needed = {finding.name for finding in found if finding.area == "core"} | set(args.need)
    for name in sorted(needed - works):
        note(f"needed, and does not work: {name}")
    return FOUND if needed - works else WELL


def _show(finding: TrialResult) -> None:
    mark = "works" if finding.works else "  -  "
    say(f"{mark}  {finding.area:<9}  {finding.name:<20} {finding.said}")
    if not finding.works:
        say(f"{'':<18} {'':<20} remedy: {finding.remedy}")
