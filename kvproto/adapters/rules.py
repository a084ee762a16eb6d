"""Rules of an engine's configuration: one for each field, with the sentence of its refusal.

An engine's adapter has a table of rules by "section.field". A field is one of three:

    carried      kvproto reads it, or carries whatever it says
    irrelevant   it changes nothing of the KV that moves, or counts only with something that is refused
    refused      unless it has one of the values (`off`) with which there is nothing that kvproto lacks

`fields.json` beside each table records the fields of each supported release; a test fails for a recorded field without
a rule. At an engine's start a field that no rule mentions is refused by its name if it differs from its default: a
later release has added it, and nobody has looked at what it does to the cache.

Facts that are no fields (the kinds of cache of a model, states beside the KV) are judged as fields, too: see `present`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import msgspec

from kvproto.errors import ArgumentError


class Lack(NamedTuple):
    """A thing that kvproto does not carry, and what an operator does about it."""

    what: str
    remedy: str


class Rule(NamedTuple):
    """The rule of a field; `off` and `lack` are those of a refused one."""

    verdict: Literal["carried", "irrelevant", "refused"]
    why: str = ""
    lack: Lack | None = None
    off: tuple[Any, ...] = ()


Rules = Mapping[str, Rule]
#: fields by name, with what makes their defaults
Declared = dict[str, Callable[[], Any]]

#: what both engines have and kvproto lacks; the remedies name no option, since each engine spells it in its own way
CONTEXT = Lack("context parallelism", "serve with a context-parallel size of 1, for prefill and for decode")
NODES = Lack("an instance on several nodes", "keep each instance on one node, and start more instances")
ELASTIC = Lack("ranks that join a running instance", "serve without elastic expert parallelism")
DRAFTS = Lack(
    "a draft that needs tokens, states or an instance beyond its own KV",
    "serve without a speculative algorithm on both sides",
)
WINDOWS = Lack(
    "windows in a circular buffer, windows over latents, or chunked local attention",
    "serve a model without them, or use the engine's own connector",
)
SPARSE = Lack(
    "pooled, pending or compressed keys of sparse attention",
    "serve a model without them, or use the engine's own connector",
)
SCALES = Lack(
    "a quantized cache whose scales or packed blocks lie beside its rows",
    "serve with the KV cache in the model's own type",
)
TIERS = Lack("a second tier of the KV cache (host memory, storage)", "serve without KV offloading")
SLEEP = Lack(
    "a KV pool whose memory a running engine gives away (sleep mode, the memory saver)",
    "leave it off, and restart the instance instead",
)
FORMS = Lack("a form of cache that no pool expresses", "choose the engine's usual attention backend and model class")


def carried(section: str, why: str, fields: str) -> dict[str, Rule]:
    """Make the rules of fields, whose names blanks divide, that kvproto carries."""
    return {f"{section}.{field}": Rule("carried", why) for field in fields.split()}


def irrelevant(section: str, why: str, fields: str) -> dict[str, Rule]:
    """Make the rules of fields, whose names blanks divide, that change nothing of what moves."""
    return {f"{section}.{field}": Rule("irrelevant", why) for field in fields.split()}


def refused(section: str, lack: Lack, fields: str, *off: Any) -> dict[str, Rule]:
    """Make the rules of fields (names separated by blanks) that are refused unless a value is in `off`."""
    return {f"{section}.{field}": Rule("refused", lack=lack, off=off) for field in fields.split()}


def fields_of(kind: type) -> Declared:
    """Return the public fields of a configuration's class, each with a maker of its default or of None.

    The class is a dataclass (also pydantic's), a msgspec Struct, an enumeration of facts, or has annotations alone. A
    default is made only for a field that is compared with it: an engine's factories may be costly, or fail.
    """
    found: Declared
    if dataclasses.is_dataclass(kind):
        found = {field.name: partial(_default, field) for field in dataclasses.fields(kind) if field.init}
    elif issubclass(kind, msgspec.Struct):
        # defaults are those of the last fields
        last = zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False)
        found = dict.fromkeys(kind.__struct_fields__, _nothing) | {name: partial(_made, value) for name, value in last}
    elif issubclass(kind, Enum):
        found = dict.fromkeys((member.value for member in kind), bool)
    else:
        found = {name: partial(getattr, kind, name, None) for name in getattr(kind, "__annotations__", ())}
    return {name: make for name, make in found.items() if not name.startswith("_")}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    default: Any = None if field.default is dataclasses.MISSING else field.default
    # pydantic leaves its own description of the field where the default would be
    return default.get_default(call_default_factory=True) if hasattr(default, "get_default") else default


def _made(default: Any) -> Any:
    return default.factory() if hasattr(default, "factory") else default


def _nothing() -> None:
    return None


def installed_fields(classes: Mapping[str, str]) -> list[str]:
    """Return the installed engine's fields, "section.field", by the "module:class" of each section.

    A "module:class+" is for the classes of that module that derive from the class: their names are the fields.
    """
    found = []
    for section, place in classes.items():
        module, name = place.removesuffix("+").split(":")
        scope = vars(import_module(module))
        kind = scope[name]
        heirs = [at for at, each in scope.items() if isinstance(each, type) and issubclass(each, kind) and at != name]
        found += [f"{section}.{field}" for field in (heirs if place.endswith("+") else fields_of(kind))]
    return found


def present(rules: Rules, section: str, facts: Iterable[str]) -> list[str]:
    """Judge facts that are no fields: each as a field that is true, and false by default."""
    holder = SimpleNamespace(**dict.fromkeys(facts, True))
    return refusals(rules, section, holder, dict.fromkeys(vars(holder), bool))


def refusals(rules: Rules, section: str, holder: Any, declared: Declared | None = None) -> list[str]:
    """Judge one section of a configuration.

    Args:
        rules: the engine's table.
        section: the first part of the table's names.
        holder: the object whose attributes are the fields; one that lacks a field has its default.
        declared: the fields that there are (None: those of the holder's class).

    Returns:
        For each field that cannot be carried: what it is, the field, its value and the remedy.

    """
    ours = {name.removeprefix(f"{section}."): rule for name, rule in rules.items() if name.startswith(f"{section}.")}
    found = []
    for field, rule in ours.items():
        if rule.lack and (value := _plain(getattr(holder, field, rule.off[0]))) not in rule.off:
            found.append(f"{rule.lack.what} ({section}.{field}={value}): {rule.lack.remedy}")
    known = fields_of(type(holder)) if declared is None else declared
    for field in known.keys() - ours.keys():
        default = known[field]()
        if (value := getattr(holder, field, default)) != default:
            found.append(
                f"{section}.{field}={_plain(value)}, which no rule of this kvproto mentions: leave it at its default, "
                f"{_plain(default)}, or install a kvproto that knows it"
            )
    return found


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value


def need_carried(found: Iterable[str]) -> None:
    """Raise ArgumentError with every sentence of `refusals`, each once, if there is one."""
    if said := list(dict.fromkeys(found)):
        raise ArgumentError(f"kvproto does not carry {'; '.join(said)}")
