"""The export of the transfer's protocol: what its tables say, and what only this protocol has.

That is its wire version, the bounds of what messages carry, and who sends each message.  Both documents are kept in
`spec/`, and a test fails when they are stale.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import Effect, Event
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects, events, messages
from kvproto.protocol.states import Cause
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import DERIVED, Timing
from kvproto.verify.claims.protocol_digest import computed_digest
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.draw.wire_tables import field_sentence
from kvproto.verify.framework.draw import export
from kvproto.verify.framework.draw.export import Json, text
from kvproto.verify.framework.draw.tables import concrete

__all__ = ["schema", "spec", "text"]


def spec() -> Json:
    timing = Timing()
    talk = [(each.name, each.sender, each.body) for each in TALK]
    return {
        "format": export.FORMAT,
        "protocol": {"name": "kvproto", "wire_version": messages.VERSION, "digest": computed_digest()},
        "bounds": {"MAX_AUX": messages.MAX_AUX, "MAX_PAGES": messages.MAX_PAGES, "MAX_ENDPOINT": messages.MAX_ENDPOINT,
                   "AUX_CHUNK": messages.AUX_CHUNK},
        "enums": {cls.__name__: export.enum(cls) for cls in (Cause,)},
        "structs": {cls.__name__: export.fields(cls) for cls in (events.Terms, Layout, Placement, Strides)},
        **export.vocabularies(talk, concrete(events, Event), concrete(effects, Effect), field_sentence),
        "timers": [export.timer(name, timing) for name in (*Timing.__struct_fields__, *DERIVED)],
        "machines": [export.machine(table) for table in TABLES],
    }  # fmt: skip


def schema() -> Json:
    return export.schema("kvproto", wire_version={"type": "number"})
