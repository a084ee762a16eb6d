"""The digest: what two builds must have in common to work together, part by part.

Two ranks name it when they meet, and where it differs each refuses the other at once, by the names of the parts.  It
covers all that the protocol says in code: how heads, layers and tokens are cut and where parts and rows lie (`layout`);
the ring and its watermark (`ring`); what timers mean, not how long they are (`timing`); frames, messages with
their fields, bounds and enums, and what is judged of them (`messages`); what a write carries (`notification`);
events and effects (`vocabulary`); which event a message becomes, and whom nobody hears (`routes`); each table with its
rows, timers, guards, changes, effects and their helpers.

It does not cover what no text of these parts reaches: what a rank does beside its tables and routes, what a step means
(`fsm.machine`), how transports and kernels do their work, the order of bytes inside a part that kernels gather.
`VERSION` counts up when one of those changes its meaning.

What lets two builds refuse each other must be the same in all builds: the frame, REFUSAL, and the beginning of HELLO,
up to the session (`codec.Call`).  The rest of HELLO, and every other message, may change: a call that cannot be read to
its end is refused by what its beginning says.

Made on first use, in about 130 ms, and kept; `protocol_texts` gives what is hashed, to lay two builds side by side.
"""

from __future__ import annotations

from functools import cache

from kvproto.fsm import vocabulary
from kvproto.fsm.digest_text import DigestTexts, digest, routes_say, table_says
from kvproto.fsm.table import Value
from kvproto.layout.byte_runs import descriptors
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, cell, chunks
from kvproto.protocol import effects, events
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.messages import AUX_CHUNK, VERSION
from kvproto.protocol.notification import make_tag, read_tag
from kvproto.protocol.ring import Ring, usable
from kvproto.protocol.routes import decode_routes, prefill_routes
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing


def protocol_texts() -> dict[str, str]:
    """The text of each part, by its name.  Raises DigestError: something has no text, or no source is installed."""
    texts = DigestTexts()
    said = {
        "layout": (Layout, Plan, cell, chunks, descriptors),
        "ring": (usable, Ring),
        "timing": (
            Timing.__struct_fields__, Timing.return_, Timing.welcome_, Timing.idle_, Timing.named,
        ),
        "messages": (VERSION, AUX_CHUNK, encode, decode),
        "notification": (make_tag, read_tag),
        "vocabulary": (Value, *_kinds(vocabulary, events, effects)),
        "routes": (*routes_say(prefill_routes), *routes_say(decode_routes)),
    }
    parts = {name: texts.part(name, roots) for name, roots in said.items()}
    return parts | {table.name: texts.part(table.name, table_says(table)) for table in TABLES}


def _kinds(*modules: object) -> dict[type, None]:
    """Every event and effect that these modules name."""
    things = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return dict.fromkeys(each for each in things if issubclass(each, vocabulary.Event | vocabulary.Effect))


@cache
def tables_digest() -> str:
    """The digest of this build, `part:hash` each.  Raises DigestError."""
    return digest(protocol_texts())
