"""Coverage as a file: counts of several kinds, each under its name ("": of no particular one).

What is read is counted on with the tables as they are now, so a count of a row or a route that there is not is refused:
it was taken with other tables, or by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kvproto.fsm.bounded_files import decoded, document
from kvproto.fsm.errors import KvprotoError
from kvproto.verify.framework.trace.coverage import Collector, Counted

FORMAT = 2
Times = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Place = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class CountsInFile(msgspec.Struct):
    """What `Collector.dump` says, as a file has it."""

    rows: list[tuple[str, Place, Times]]
    pairs: list[tuple[str, Place, Place, Times]]
    routes: list[tuple[str, Place, Times]]


KindsInFile = Annotated[dict[str, CountsInFile], msgspec.Meta(min_length=1)]


class CoverageError(KvprotoError, ValueError):
    """A coverage file that cannot be read."""


def undump(data: dict[str, Any], of: Counted) -> Collector:
    """The counts that `dump` gave."""
    made = Collector(of)
    made.rows.update({(name, row): n for name, row, n in data["rows"]})
    made.pairs.update({(name, first, second): n for name, first, second, n in data["pairs"]})
    made.routes.update({(name, route): n for name, route, n in data["routes"]})
    return made


def save(kinds: Mapping[str, Collector], path: Path) -> None:
    """Write counts, each under the name of its kind ("": of no particular one)."""
    path.write_text(json.dumps({"format": FORMAT, "kinds": {kind: each.dump() for kind, each in kinds.items()}}))


def load(path: Path, of: Counted) -> dict[str, Collector]:
    """Read counts from a file, by kind.  Raises `CoverageError`."""
    try:
        data = document(path)
        found = data.get("format") if isinstance(data, dict) else None
        if found != FORMAT:
            raise CoverageError(f"coverage of format {str(found)[:40]}; this version reads format {FORMAT}")
        kinds = decoded("kinds", data.get("kinds"), KindsInFile)
        return {kind: _known(undump(msgspec.structs.asdict(said), of), kind) for kind, said in kinds.items()}
    except (OSError, ValueError) as error:
        raise CoverageError(f"{path}: no coverage can be read: {error}") from error


def _known(counts: Collector, kind: str) -> Collector:
    """Counts of rows and routes that there are; CoverageError names one of another protocol, or of other tables."""
    rows = {(table.name, row.index) for table in counts.of.tables for row in table.rows}
    routes = {(each.name, route.index) for each in counts.of.routes for route in each.routes}
    halves = {(name, row) for name, *pair in counts.pairs for row in pair}
    strange = (counts.rows.keys() | halves) - rows | counts.routes.keys() - routes
    if strange:
        name, index = min(strange)
        raise CoverageError(f"kinds.{kind}: {name[:80]!r} has no row or route {index}: counted with other tables")
    return counts
