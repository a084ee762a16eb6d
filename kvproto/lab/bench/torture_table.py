"""What many runs of `kvproto torture` found, as one table: a row a carrier, and one for strangers at the door.

`figures` of such a run is a list of what `kvproto torture --json` and `--attack --json` print, a document a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from kvproto.lab.bench.tables import markdown

Amount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(max_length=256)]


class TortureRow(msgspec.Struct):
    """What a table names of a torture, or of an attack: the one has a seed, the other has attacks."""

    carrier: Name
    rooms: Amount
    found: list[str]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    seed: Amount | None = None
    undisturbed: Amount = 0
    faults: Amount = 0
    hits: Amount = 0
    judged: Amount = 0
    starved: Amount = 0
    attacks: dict[Name, Amount] | None = None


HEAD = ("over", "seeds", "rooms", "of them undisturbed", "faults", "frames hit", "steps judged", "found")


def torture(rows: Sequence[Mapping[str, Any]]) -> str:
    """Seeds of one carrier in one row; below them, a sentence an attack."""
    checked = [msgspec.convert(row, TortureRow) for row in rows]
    tortures = [row for row in checked if row.attacks is None]
    cells = [
        _row(over, [r for r in tortures if r.carrier == over]) for over in dict.fromkeys(r.carrier for r in tortures)
    ]
    return "\n\n".join(
        [markdown(HEAD, cells)] * bool(cells) + [_attack(row) for row in checked if row.attacks is not None]
    )


def _row(over: str, rows: Sequence[TortureRow]) -> list[str]:
    sums = [sum(getattr(row, name) for row in rows) for name in ("rooms", "undisturbed", "faults", "hits", "judged")]
    return [over, ", ".join(str(row.seed) for row in rows), *(f"{n:,}" for n in sums), _found(rows)]


def _attack(row: TortureRow) -> str:
    attacks = row.attacks or {}
    kinds = "; ".join(f"{count:,} with {kind}" for kind, count in attacks.items())
    return (
        f"Strangers at the door for {row.seconds / 60:.0f} minutes over {row.carrier}: "
        f"{sum(attacks.values()):,} attacks ({kinds}) beside {row.rooms:,} rooms; found: {_found([row])}."
    )


def _found(rows: Sequence[TortureRow]) -> str:
    found = sum(len(row.found) for row in rows)
    starved = sum(row.starved for row in rows)
    return f"{found or 'nothing'}{f' ({starved} rooms on a starved machine)' if starved else ''}"
