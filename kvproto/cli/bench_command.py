"""`kvproto bench NAME`: what the parts reach on a machine, beside what the machine reaches.

Each benchmark is a module with `main(argv)`, imported only when it is asked for. All take `--json` and `--help`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproto.cli.console import note, say
from kvproto.cli.ending import WELL, WRONG, run

#: name -> (module, what it measures)
BENCHES: dict[str, tuple[str, str]] = {
    "step": ("kvproto.bench.step", "the compiled step with many rooms live, beside pytransitions"),
    "conformance": ("kvproto.bench.conformance", "what a rank that is judged as it runs pays, and what its judge does"),
    "control": ("kvproto.bench.control", "what the protocol costs a room: latencies, rooms a second, idle loops"),
    "overload": ("kvproto.bench.overload", "what load does: ten times what fits, and small rooms beside a huge one"),
    "churn": ("kvproto.bench.churn", "what instances cost that have come and gone: a pass, memory"),
    "transport": ("kvproto.bench.transport", "what a transport moves in one piece and in many"),
    "kernels": ("kvproto.bench.kernels", "gather and scatter on a GPU, beside a device-to-device copy"),
    "pinned": ("kvproto.bench.pinned", "staging in pinned host memory, beside plain host copies"),
    "pipeline": ("kvproto.bench.pipeline", "gather, write, scatter between GPUs, beside NIXL's own bulk write"),
    "route": ("kvproto.bench.route", "what the ring takes and what pages take, and which of the two is chosen"),
    "layers": ("kvproto.bench.layers", "how long after a forward its KV has arrived, by layer groups"),
    "grid": ("kvproto.bench.grid", "prompt lengths, pages, batches: staged beside descriptors beside bulk"),
    "suggest": ("kvproto.bench.pieces", "how large a chunk should be, from what `pipeline --what pieces` measured"),
    "trace": ("kvproto.bench.trace", "a trace of requests in simulated time: latencies, with prefetch and without"),
    "figures": ("kvproto.bench.figures", "results as tables in Markdown, or as a plot"),
}


EXAMPLES = """
examples:
  kvproto bench step --quick                                          an event, beside pytransitions: no GPU, a minute
  kvproto bench pipeline --cpu --pairs tiny                           every part once, to see that it works
  kvproto bench pipeline --what goals --maps --seconds 120 --json a   rooms between two GPUs as endpoints carry them
  kvproto bench grid --maps --prompts 8,32 --batches 1,8 --json b     prompts beside descriptors beside one bulk write
  kvproto bench figures --results mine.json --add a b                 what was written, as tables

Tables go to standard output, progress to standard error. `--json FILE` is written anew after each case, so a run that
is cut has lost one at most, and `--seconds` ends most of them in time. Exit code 1: bytes were wrong, or rooms failed.
"""


def usage() -> str:
    """What there is to ask for."""
    width = max(map(len, BENCHES))
    lines = [f"  {name:<{width}}  {what}" for name, (_, what) in BENCHES.items()]
    head = ["usage: kvproto bench NAME [ARGUMENT ...]", "", "Measures on this machine. There are:", ""]
    return "\n".join([*head, *lines, "", "kvproto bench NAME --help explains one.", EXAMPLES.rstrip()])


def main(argv: Sequence[str]) -> int:
    """The entry point; returns the exit code."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        say(usage())
        return WELL if argv else WRONG
    name, *rest = argv
    if name not in BENCHES:
        note(f"{usage()}\n\nkvproto bench: there is no benchmark {name[:40]!r}")
        return WRONG
    return run(BENCHES[name][0], rest, extras="bench")
