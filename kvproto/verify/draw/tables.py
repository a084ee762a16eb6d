"""Tables of the protocol as Markdown: messages' senders, an engine's choices, conditions outside
tables.
"""

from __future__ import annotations

import msgspec

from kvproto.fsm.plain_json import hints
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.claims.not_in_tables import NOT_IN_TABLES
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.framework.draw.describe import comments, kind_of, sentence
from kvproto.verify.framework.draw.tables import table_md


def messages_md() -> str:
    lines = []
    for talk in TALK:
        own = {field.name: field for field in msgspec.structs.fields(talk.body)}
        fields = ", ".join(f"`{name}` {kind_of(hint)}{_left_out(own[name])}" for name, hint in hints(talk.body).items())
        lines.append((f"`{talk.name}`", talk.sender, fields or "nothing", sentence(talk.body), talk.answer))
    return table_md(("message", "sent by", "fields, in order", "meaning", "answered with"), lines)


def _left_out(field: msgspec.structs.FieldInfo) -> str:
    """Return the default of an absent field; empty if the field is required."""
    said = {None: "none", b"": "empty"}.get(field.default, field.default)
    return "" if field.required else f" ({said} if left out)"


def settings_md() -> str:
    """Return the settings that an engine may choose for a rank, with defaults."""
    said = comments(Settings)
    lines = [(f"`{f.name}`", "" if isinstance(f.default, Timing) else str(f.default), said.get(f.name, ""))
             for f in msgspec.structs.fields(Settings) if f.name != "timing"]  # fmt: skip
    return table_md(("setting", "default", "meaning"), lines)


def not_in_tables_md() -> str:
    """Return the decisions beside tables and routes, with reasons and tests."""
    return table_md(("what", "why it decides nothing of the protocol", "tested in"),
                    [(entry.name, entry.why, f"`{entry.test}`") for entry in NOT_IN_TABLES])  # fmt: skip
