"""Lint of a protocol's vocabulary: messages and events, whether or not a table or route names them.

Tables and routes are judged by what is in them (`lint`); what was written down and then forgotten is in none of them,
and no row is at fault:

* `unheard`: a message that no route takes to a machine, or answers;
* `unused`: an event that no table takes and that nothing raises;
* `unsaid`: a message without a sentence of what it says, or, where a protocol lists who says what, one that is missing;
* `keyless`: an event of a table, or a message, without the key of its machine as its first field.  Traces and stories
  take the key from there, unless a protocol's `Telling` knows better: then nothing is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from kvproto.fsm import vocabulary
from kvproto.fsm.telling import Telling
from kvproto.verify.framework.lint import Finding
from kvproto.verify.framework.sources import Sources


def lint_vocabulary(
    messages: Mapping[str, type[Any]], events: Iterable[type[Any]], sources: Sources, said: Iterable[type[Any]] | None
) -> list[Finding]:  # fmt: skip
    """List every such error. `said`: the messages with a listed sender; None: there is no such list."""
    heard = {body for routes in sources.routes for route in routes.routes if route.to for body in route.messages}
    listed = None if said is None else set(said)
    found = []
    for name, body in messages.items():
        if body not in heard:
            found.append(_finding(body, "unheard", f"no route takes {name} to anybody"))
        if not inspect.cleandoc(body.__doc__ or "") or (listed is not None and body not in listed):
            found.append(_finding(body, "unsaid", f"nothing tells who says {name}, or what it means"))
    known = {event for table in sources.tables for event in table.events} | set(sources.homeless())
    found += [
        _finding(event, "unused", f"no table takes {event.__name__}, and nothing raises it") for event in events
        if event not in known and not event.__subclasses__() and event.__module__ != vocabulary.__name__
    ]  # fmt: skip
    return found


def lint_keys(telling: Telling) -> list[Finding]:
    """List the events and messages whose first field is not the key by which the rest of their table goes."""
    found, keys = [], set[str]()
    asked = type(telling).key_of is Telling.key_of
    for table in telling.tables.values() if asked else ():
        firsts = [event.__struct_fields__[:1] for event in table.events if event.__struct_fields__]
        (key,) = max(firsts, key=firsts.count) if firsts else ("",)
        keys.add(key)
        found += [
            _finding(event, "keyless", f"the first field of {event.__name__} must be the key of a {table.name}")
            for event in table.events if event.__struct_fields__[:1] != (key,)
        ]  # fmt: skip
    if not asked or type(telling).subject_of_body is not Telling.subject_of_body:
        return found
    remedy = "must be the key of a machine, or Telling.subject_of_body say what it is about"
    return found + [
        _finding(body, "keyless", f"the first field of {name} {remedy}") for name, body in telling.messages.items()
        if not {*body.__struct_fields__[:1]} & keys
    ]  # fmt: skip


def _finding(cls: type[Any], kind: str, text: str) -> Finding:
    where = f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    return Finding(cls.__module__.rpartition(".")[2], kind, where, text)
