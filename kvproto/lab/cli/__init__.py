"""The commands of the laboratory: the demonstration, torture, fuzzing, and benchmarks."""

from __future__ import annotations

#: name -> (module, what it is for)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("kvproto.lab.cli.demo_command", "move a real model's KV cache between processes"),
    "torture": (
        "kvproto.lab.cli.torture_command", "engines that are killed, stopped, cut off and given up, byte by byte",
    ),
    "fuzz": (
        "kvproto.lab.cli.fuzz_command", "damaged input for everything that reads what others have written, counted",
    ),
    "faults": (
        "kvproto.lab.cli.faults_command", "each outward call of an endpoint raises, is late, or does nothing, once",
    ),
    "bench": ("kvproto.lab.cli.bench_command", "measure the step, the kernels and the transports"),
}
#: the extras that a command needs, where they are not the demonstration's
EXTRAS = {"fuzz": "nixl"}
#: name -> (module, what it measures)
BENCHES: dict[str, tuple[str, str]] = {
    "step": ("kvproto.lab.bench.step", "the compiled step with many rooms live: time, bytes, collection"),
    "control": ("kvproto.lab.bench.control", "what the protocol costs a room: latencies, rooms a second, idle loops"),
    "kernels": ("kvproto.lab.bench.kernels", "gather and scatter on a GPU, beside a device-to-device copy"),
    "pipeline": ("kvproto.lab.bench.pipeline", "gather, write, scatter between GPUs, beside NIXL's own bulk write"),
    "hybrid": ("kvproto.lab.bench.hybrid", "pages and state of a hybrid model to decode instances, beside bulk"),
    "route": ("kvproto.lab.bench.route", "what the ring takes and what pages take, and which of the two is chosen"),
    "beside": ("kvproto.lab.bench.beside", "what a transfer takes of an engine's work on the same GPUs, by route"),
    "layers": ("kvproto.lab.bench.layers", "how long after a forward its KV has arrived, by layer groups"),
    "grid": ("kvproto.lab.bench.grid", "prompt lengths, pages, batches: staged beside descriptors beside bulk"),
    "trace": ("kvproto.lab.bench.trace", "a trace of requests in simulated time: latencies, with prefetch and without"),
    "figures": ("kvproto.lab.bench.figures", "results as tables in Markdown"),
}
#: commands that have commands of their own
BELOW = {"bench": BENCHES}
