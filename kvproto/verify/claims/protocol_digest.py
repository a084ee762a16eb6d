"""Protocol digest: the texts of this build's tables and source, whose hashes a peer is told.

They give what can differ between two builds, part by part: how heads, layers and tokens are cut and where parts and
rows lie (`layout`); the ring and its watermark (`ring`); what timers mean, not how long they are (`timing`); frames,
messages with their fields, bounds and enums, and what is judged of them (`messages`); what a write carries
(`notification`); events and effects (`vocabulary`); which event a message becomes, and whom nobody hears (`routes`);
each table with its rows, timers, guards, changes, effects and their helpers.

They do not cover what no text of these parts reaches: what a rank does beside its tables and routes, what a step means
(`fsm.machine`), how transports and kernels do their work, the order of bytes inside a part that kernels gather.  What
both ends must mean alike has a version of its own: `agreements`.

Ranks do not compute the digest: the hashes are a generated file, `kvproto/protocol/digest_parts.py`, which `make digest`
writes and a test compares with the texts.  To lay two builds side by side, compare their `protocol_texts`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvproto.fsm import vocabulary
from kvproto.fsm.table import Value
from kvproto.layout.byte_runs import descriptors
from kvproto.layout.cut import chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects, events
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.messages import AUX_CHUNK, VERSION
from kvproto.protocol.notification import make_tag, read_tag
from kvproto.protocol.ring import Ring, usable
from kvproto.protocol.routes import decode_routes, prefill_routes
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, shortened, table_says

#: the generated file, from the package's folder
FILE = "protocol/digest_parts.py"
HEAD = '''"""Digest parts: a hash each.  Generated: `make digest` writes this file; a stale one fails a test."""

from __future__ import annotations

PARTS = {
'''


def protocol_texts() -> dict[str, str]:
    """Return the text of each part, by its name.

    Raises DigestError: something has no text, or no source is installed.
    """
    texts = DigestTexts()
    said = {
        "layout": (Layout, Plan, cut_at, chunks, descriptors),
        "ring": (usable, Ring),
        "timing": (
            Timing.__struct_fields__,
            Timing.return_,
            Timing.welcome_,
            Timing.idle_,
            Timing.named,
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


def computed_digest() -> str:
    """The digest of the tables and the source as they are.  Raises DigestError."""
    return digest(protocol_texts())


def digest_file() -> str:
    """The generated file as it ought to be.  Raises DigestError."""
    return file_of({name: shortened(text) for name, text in protocol_texts().items()})


def file_of(hashes: Mapping[str, str]) -> str:
    """The generated file of these hashes by part: a line a part."""
    return HEAD + "".join(f'    "{name}": "{digits}",\n' for name, digits in hashes.items()) + "}\n"
