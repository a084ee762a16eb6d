"""Wire tables: meanings of fields and times of absent pages as Markdown, from classes and formulas.

The transport's description is read from the classes that write it; they need numpy, which who draws tables may lack, so
they are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import hints
from kvproto.protocol.timing import Timing
from kvproto.verify.claims import release_times as times
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.framework.draw.describe import comments, kind_of, sentence
from kvproto.verify.framework.draw.source import expression
from kvproto.verify.framework.draw.tables import struct_md, table_md

#: in the order in which they are read: each is made of those before it
RELEASES: tuple[Callable[[Timing], float], ...] = (
    times.drains, times.noticed, times.harmless, times.answered, times.bereft, times.longest,
)  # fmt: skip


def field_sentence(body: type[Body], field: str) -> str:
    """Return a field's sentence: its own, or that of the first message with such a field."""
    own = comments(body).get(field)
    others = (comments(talk.body).get(field) for talk in TALK if field in hints(talk.body))
    return own or next((each for each in others if each), "")


def fields_md() -> str:
    where: dict[tuple[str, str], list[str]] = {}
    for talk in TALK:
        for field in hints(talk.body):
            where.setdefault((field, field_sentence(talk.body, field)), []).append(f"`{talk.name}`")
    lines = [(f"`{field}`", ", ".join(names), said) for (field, said), names in where.items()]
    return table_md(("field", "of", "meaning"), lines)


def description_md() -> str:
    """The fields of the transport's description, which `HELLO` carries as `endpoint`."""
    from kvproto.io.transports.endpoint import Header, InstanceDescription

    said = comments(Header) | comments(InstanceDescription)
    lines = [(f"`{name}`", kind_of(hint), said[name]) for name, hint in hints(InstanceDescription).items()]
    return table_md(("name", "type", "meaning"), lines)


def regions_md() -> str:
    from kvproto.io.transports.endpoint import RegionEntry

    return struct_md(RegionEntry)


def release_times_md() -> str:
    """How long it takes until pages are the engine's again, with the defaults."""
    timing = Timing()
    lines = [(f"`{f.__name__}`", sentence(f), f"`{expression(f)}`", f"{f(timing):.3g} s") for f in RELEASES]
    return table_md(("time", "of what", "exactly", "with the defaults"), lines)
