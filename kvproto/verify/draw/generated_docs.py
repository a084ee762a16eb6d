"""Everything that is generated and kept in the repository: parts of pages, and all of spec/'s export.

In PROTOCOL.md and docs/checker.md prose is written by hand; between a line `<!-- generated: NAME -->` and the next
`<!-- end -->` stands what `PARTS[NAME]`, or `COUNTED[NAME]`, gives.  `kvproto draw --write` brings everything up to
date; `--check`, and a test, say what is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kvproto.errors import KvprotoError
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects, events
from kvproto.protocol.events import Terms
from kvproto.protocol.routes import decode_routes, prefill_routes
from kvproto.protocol.states import Cause
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.draw.checked_worlds import checked_worlds_md, deep_ones_md, deep_worlds_md, timed_worlds_md
from kvproto.verify.draw.export import schema, spec, text
from kvproto.verify.draw.properties import hazards_md, properties_md
from kvproto.verify.draw.ring_example import ring_md
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.draw.tables import messages_md, not_in_tables_md, settings_md
from kvproto.verify.draw.whole_worlds import whole_world_md
from kvproto.verify.draw.wire_tables import description_md, fields_md, regions_md, release_times_md
from kvproto.verify.framework.draw.diagram import sketch
from kvproto.verify.framework.draw.mermaid import mermaid
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.draw.svg import svg
from kvproto.verify.framework.draw.tables import (
    effects_md,
    events_md,
    facts_md,
    functions_md,
    members_md,
    routes_md,
    rows_md,
    states_md,
    struct_md,
    timers_md,
    value_md,
)
from kvproto.verify.trace.rank_stories import TELLING

ROOT = Path(__file__).parents[3]
PROTOCOL = "PROTOCOL.md"
CHECKER = "docs/checker.md"
MARK = re.compile(r"<!-- generated: ([a-z _]+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


class DocsError(KvprotoError, ValueError):
    """A page names a part that there is not, or lacks one; the sentence says which."""


def scene_chart(scene: Scene) -> str:
    return scene.chart(TELLING, states=scene.name in {"abort", "lost"})


def _fenced(code: str) -> str:
    return f"```mermaid\n{code}```\n"


def _parts() -> dict[str, Callable[[], str]]:
    parts: dict[str, Callable[[], str]] = {
        "messages": messages_md, "timers": lambda: timers_md(TABLES, Timing()), "settings": settings_md,
        "events": lambda: events_md(events), "effects": lambda: effects_md(effects), "properties": properties_md,
        "hazards": hazards_md, "causes": lambda: members_md(Cause),
        "routes prefill": lambda: routes_md(prefill_routes), "routes decode": lambda: routes_md(decode_routes),
        "facts": lambda: "\n".join(facts_md(fact) for fact in decode_routes.facts), "beside": not_in_tables_md,
        "ring": ring_md, "terms": lambda: struct_md(Terms), "layout": lambda: struct_md(Layout),
        "placement": lambda: struct_md(Placement), "strides": lambda: struct_md(Strides), "fields": fields_md,
        "release times": release_times_md, "description": description_md, "regions": regions_md,
    }  # fmt: skip
    for table in TABLES:
        parts[f"diagram {table.name}"] = lambda table=table: _fenced(mermaid(sketch(table)))  # type: ignore[misc]
        parts[f"states {table.name}"] = lambda table=table: states_md(table)  # type: ignore[misc]
        parts[f"value {table.name}"] = lambda table=table: value_md(table)  # type: ignore[misc]
        parts[f"rows {table.name}"] = lambda table=table: rows_md(table)  # type: ignore[misc]
        parts[f"functions {table.name}"] = lambda table=table: functions_md(table)  # type: ignore[misc]
    for scene in SCENES:
        parts[f"scene {scene.name}"] = lambda scene=scene: _fenced(scene_chart(scene))  # type: ignore[misc]
    return parts


PARTS = _parts()
#: of docs/checker.md: what is counted in worlds
COUNTED: dict[str, Callable[[], str]] = {
    "checked worlds": checked_worlds_md, "timed worlds": timed_worlds_md, "deep worlds": deep_worlds_md,
    "deep worlds one by one": deep_ones_md, "whole world": whole_world_md,
}  # fmt: skip


def filled(page: str, name: str = PROTOCOL, parts: Mapping[str, Callable[[], str]] = PARTS) -> str:
    """The page of this name with every generated part as it should be.  Raises `DocsError`."""
    missing = set(parts) - {part for part, _ in MARK.findall(page)}
    if missing:
        raise DocsError(f"{name} lacks the generated parts {', '.join(sorted(missing))}: add their marks")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in parts:
            raise DocsError(f"{name} asks for {match[1]!r}; there is no such part")
        return f"<!-- generated: {match[1]} -->\n{parts[match[1]]()}<!-- end -->\n"

    return MARK.sub(fill, page)


def files() -> Iterator[tuple[str, str]]:
    """(path, content) of every file that is generated, wholly or in part."""
    page = ROOT / PROTOCOL
    if not page.exists():
        raise DocsError(f"{page} is not there: generated files belong to a checkout, not to an installation")
    yield PROTOCOL, filled(page.read_text())
    yield CHECKER, filled((ROOT / CHECKER).read_text(), CHECKER, COUNTED)
    yield "spec/kvproto.json", text(spec())
    yield "spec/kvproto.schema.json", text(schema())
    for table in TABLES:
        yield f"spec/diagrams/{table.name}.svg", svg(sketch(table))
        yield f"spec/diagrams/{table.name}.mmd", mermaid(sketch(table))
    for scene in SCENES:
        yield f"spec/diagrams/scene_{scene.name}.mmd", scene_chart(scene)


def stale() -> list[str]:
    return [path for path, content in files() if not (ROOT / path).exists() or (ROOT / path).read_text() != content]


def write() -> list[str]:
    """Bring them up to date; returns those that were not."""
    done = []
    for path, content in files():
        file = ROOT / path
        if not file.exists() or file.read_text() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            done.append(path)
    return done
