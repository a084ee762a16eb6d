"""The export: the protocol as one JSON document, for tools and languages that do not read Python.

It says all that the tables say: states, events, effects, rows in their order, messages with types and bounds, timers
with defaults, enums with numbers.  Guards and changes are named, with their sentence and, as `python`, their exact
expression.  Where a row stands (file and line) is left out, so that the document changes only when the protocol
does.  `schema` describes its shape in JSON Schema; both are kept in `spec/`, and a test fails when they are stale.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

import msgspec

from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import hints
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import Effect, Event, Internal
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects, events, messages
from kvproto.protocol.states import Cause
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import DERIVED, Timing
from kvproto.verify.claims.protocol_digest import computed_digest
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.draw.wire_tables import field_sentence
from kvproto.verify.framework.draw.describe import comments, kind_of, members, sentence
from kvproto.verify.framework.draw.source import expression, helpers, used
from kvproto.verify.framework.draw.tables import concrete, value_fields

Json = dict[str, Any]
FORMAT = 1


def spec() -> Json:
    """The whole protocol."""
    timing = Timing()
    return {
        "format": FORMAT,
        "protocol": {"name": "kvproto", "wire_version": messages.VERSION, "digest": computed_digest()},
        "bounds": {"MAX_AUX": messages.MAX_AUX, "MAX_PAGES": messages.MAX_PAGES, "MAX_ENDPOINT": messages.MAX_ENDPOINT,
                   "AUX_CHUNK": messages.AUX_CHUNK},
        "enums": {cls.__name__: _enum(cls) for cls in (Cause,)},
        "structs": {cls.__name__: _fields(cls) for cls in (events.Terms, Layout, Placement, Strides)},
        "messages": [_message(talk.name, talk.sender, talk.body) for talk in TALK],
        "events": [{"name": cls.__name__, "machine": cls.machine, "doc": sentence(cls), "fields": _fields(cls)}
                   for cls in concrete(events, Event)],
        "effects": [{"name": cls.__name__, "internal": issubclass(cls, Internal), "doc": sentence(cls),
                     "fields": _fields(cls)} for cls in concrete(effects, Effect)],
        "timers": [_timer(name, timing) for name in (*Timing.__struct_fields__, *DERIVED)],
        "machines": [_machine(table) for table in TABLES],
    }  # fmt: skip


def _enum(cls: type[IntEnum]) -> list[Json]:
    said = members(cls)
    return [{"number": int(member), "name": member.name, "doc": said[member.name]} for member in cls]


def _fields(cls: type) -> list[Json]:
    said = comments(cls)
    return [{"name": name, "type": kind_of(hint), "doc": said.get(name, "")} for name, hint in hints(cls).items()]


def _message(name: str, sender: str, body: type[Body]) -> Json:
    fields = [{"name": field, "type": kind_of(hint), "doc": field_sentence(body, field), **_bounds(hint)}
              for field, hint in hints(body).items()]  # fmt: skip
    return {"name": name, "sender": sender, "doc": sentence(body), "fields": fields}


def _bounds(hint: object) -> Json:
    info = msgspec.inspect.type_info(hint)
    if isinstance(info, msgspec.inspect.IntType):
        top = info.le if info.lt is None else info.lt - 1
        return {key: value for key, value in (("min", info.ge), ("max", top)) if value is not None}
    if isinstance(info, msgspec.inspect.BytesType | msgspec.inspect.StrType) and info.max_length is not None:
        return {"max_length": info.max_length}
    return {}


def _timer(name: str, timing: Timing) -> Json:
    timer = timing.named(name)
    return {"name": name, "period": timer.period, "tries": timer.tries, "doc": comments(Timing).get(name, "")}


def _machine(table: Table[Any]) -> Json:
    said = members(table.states)
    guards, lets, acts = used(table)
    return {
        "name": table.name,
        "initial": table.initial.name,
        "final": [state.name for state in table.final],
        "tombstones": table.tombstones,
        "states": [{"number": int(s), "name": s.name, "doc": said[s.name], "timer": table.timers.get(s)}
                   for s in table.states],
        "events": [event.__name__ for event in table.events],
        "value": [{"name": name, "type": kind, "doc": doc} for name, kind, doc in value_fields(table)],
        "guards": [_function(each) for each in guards],
        "changes": [_function(each) for each in lets],
        "effects": [_function(each) for each in acts],
        "helpers": [_function(each) for each in helpers([*guards, *lets, *acts])],
        "rows": [_row(row) for row in table.rows],
    }  # fmt: skip


def _function(function: Any) -> Json:
    return {"name": function.__name__, "doc": sentence(function), "python": expression(function)}


def _row(row: Row) -> Json:
    said: Json = {
        "verb": row.verb, "from": row.source.name, "event": row.event.__name__, "to": row.target.name,
        "when": row.when.__name__ if row.when else None, "let": row.let.__name__ if row.let else None,
        "do": [each.__name__ for each in row.do], "again": row.again,
    }  # fmt: skip
    return {**said, "why": row.why} if row.why else said


def schema() -> Json:
    """The JSON Schema of `spec()`."""
    text, number, flag, nothing = {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}
    maybe = {"anyOf": [text, nothing]}
    field = _object({"name": text, "type": text}, doc=text, min=number, max=number, max_length=number)
    function = _object({"name": text, "doc": text, "python": text})
    row = _object(
        {"verb": {"enum": ["row", "ignore", "refuse"]}, "from": text, "event": text, "to": text, "when": maybe,
         "let": maybe, "do": _list(text), "again": flag},
        why=text,
    )  # fmt: skip
    state = _object({"number": number, "name": text, "doc": text, "timer": maybe})
    machine = _object(
        {"name": text, "initial": text, "final": _list(text), "tombstones": flag, "states": _list(state),
         "events": _list(text), "value": _list(field), "guards": _list(function), "changes": _list(function),
         "effects": _list(function), "helpers": _list(function), "rows": _list(row)},
    )  # fmt: skip
    member = _object({"number": number, "name": text, "doc": text})
    whole = _object(
        {"format": {"const": FORMAT}, "protocol": _object({"name": text, "wire_version": number, "digest": text}),
         "bounds": {"type": "object", "additionalProperties": number},
         "enums": {"type": "object", "additionalProperties": _list(member)},
         "structs": {"type": "object", "additionalProperties": _list(field)},
         "messages": _list(_object({"name": text, "sender": text, "doc": text, "fields": _list(field)})),
         "events": _list(_object({"name": text, "machine": text, "doc": text, "fields": _list(field)})),
         "effects": _list(_object({"name": text, "internal": flag, "doc": text, "fields": _list(field)})),
         "timers": _list(_object({"name": text, "period": number, "tries": number, "doc": text})),
         "machines": _list(machine)},
    )  # fmt: skip
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kvproto", **whole}


def _object(required: Json, **optional: Json) -> Json:
    return {"type": "object", "properties": {**required, **optional}, "required": list(required),
            "additionalProperties": False}  # fmt: skip


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def text(document: Json) -> str:
    """The document as it is written to a file."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
