"""`kvproto bench`: what the parts reach on this machine, beside what the machine itself reaches.

Each benchmark measures both sides in one run and prints the ratio; `--json` gives one object for tools.  None of them
is a test: what they print depends on the machine and on who else uses it.
"""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {
    "step": ("kvproto.bench.step", "one event of a rank with 100,000 rooms, beside pytransitions"),
    "control": ("kvproto.bench.control", "from produced to posted, from notification to scatter, over loopback"),
    "kernels": ("kvproto.bench.kernels", "gather and scatter on a GPU, beside a device copy"),
    "pipeline": ("kvproto.bench.pipeline", "gather, write, scatter between two processes, beside one bulk write"),
}  # fmt: skip


def usage() -> str:
    """What there is to measure."""
    lines = [f"  {name:<9} {what}" for name, (_, what) in BENCHMARKS.items()]
    return "\n".join(["usage: kvproto bench BENCHMARK [ARGUMENT ...]", "", *lines, "",
                      "kvproto bench BENCHMARK --help explains one."])  # fmt: skip


def main(argv: list[str]) -> int:
    """Run one benchmark; returns its exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(usage())
        return 0 if argv else 2
    name, *rest = argv
    if name not in BENCHMARKS:
        if not name.startswith("-"):
            sys.stderr.write(f"kvproto bench: there is no benchmark {name!r}\n\n{usage()}\n")
            return 2
        sys.stderr.write(f"kvproto bench: name the benchmark first\n\n{usage()}\n")
        raise SystemExit(2)
    code: int | None = importlib.import_module(BENCHMARKS[name][0]).main(rest)
    return code or 0
