"""The commands of the verifying wing: what proves, checks, mutates, draws, and reads traces."""

from __future__ import annotations

#: name -> (module, what it is for)
COMMANDS: dict[str, tuple[str, str]] = {
    "lint": ("kvproto.verify.cli.lint_command", "errors in the tables, with file and line"),
    "check": ("kvproto.verify.cli.check_command", "search every interleaving of a small system for a broken property"),
    "prove": (
        "kvproto.verify.cli.prove_command", "the tables' properties by induction: any ranks, rooms, chunks and runs",
    ),
    "mutate": ("kvproto.verify.cli.mutate_command", "change the code that runs, place by place: which test notices?"),
    "draw": ("kvproto.verify.cli.draw_command", "diagrams, tables and sequence charts, all made from the rows"),
    "export": ("kvproto.verify.cli.export_command", "the protocol as JSON, for other languages and tools"),
    "trace": ("kvproto.verify.cli.trace_command", "the story of a room across ranks: text, sequence chart, JSON"),
    "replay": ("kvproto.verify.cli.replay_command", "check a trace against the tables; show the first difference"),
    "explore": ("kvproto.verify.cli.world_command", "a world as a web page: choose what happens next"),
    "inspect": ("kvproto.verify.cli.inspect_command", "a trace as one web page, to step through"),
}
#: the extras that a command needs, where they are not the demonstration's
EXTRAS = {"prove": "prove", "mutate": "test"}
