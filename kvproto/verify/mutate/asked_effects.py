"""Left-out effects that the tests were asked about and nobody noticed: `spec/table-asked.toml`.

    "decode_grant: QUARANTINED RoomDrained - free" = { row = "to FREE: tell_drained, free", why = "it is asked again" }

Most reasons (`left_out.toml`) say that an effect comes later, or not in the checker's worlds.  A world has no time, so
nobody knows whether it costs a timer.  An effect counts as explained only when lint, proofs and all tests were asked
about it: in this run, or as this file has it, which a run with --record writes.  What was recorded of a row counts as
long as the row is the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from kvproto.verify.mutate.table_operators import TableMutant

FILE = Path("spec/table-asked.toml")
HEAD = """\
# Left-out effects that no test noticed: the row as it was then, and why nobody has to notice.  Made by
# `kvproto mutate --tables --record`; a reason may be said better by hand.

"""


class AskedEffect(msgspec.Struct, frozen=True):
    """The row as it was when the tests were asked, and why nobody has to notice."""

    row: str
    why: str


def load(root: Path) -> dict[str, AskedEffect]:
    """By the mutant's name."""
    text = (root / FILE).read_text() if (root / FILE).exists() else ""
    return msgspec.convert(tomllib.loads(text), dict[str, AskedEffect])


def text_of(mutant: TableMutant) -> str:
    """The row in words: where it leads, and its effects."""
    row = mutant.row
    return f"to {row.target.name}: {', '.join(each.__name__ for each in row.do)}" if row is not None else ""


def is_fresh(asked: Mapping[str, AskedEffect], mutant: TableMutant) -> bool:
    """Whether the tests were asked about it, with the row as it is."""
    return mutant.name in asked and asked[mutant.name].row == text_of(mutant)


def write(root: Path, asked: Mapping[str, AskedEffect], mutants: Iterable[TableMutant]) -> None:
    """Keep those that are fresh."""
    fresh = sorted(each.name for each in mutants if is_fresh(asked, each))

    def text(words: str) -> str:
        return msgspec.json.encode(words).decode()

    lines = [f"{text(name)} = {{ row = {text(asked[name].row)}, why = {text(asked[name].why)} }}\n" for name in fresh]
    (root / FILE).write_text(HEAD + "".join(lines))
