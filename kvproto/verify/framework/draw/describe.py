"""Describe: read the sentences beside the vocabulary's names from its source.

States, settings and timers carry their meaning in `#:` comments above them, because an Enum member or a field has
no docstring.  Diagrams, the export and PROTOCOL.md want those sentences as data, so they are read from the source
text: nothing is written twice, and nothing can disagree.  The source must be there to read; an installation
that strips it gets a clear error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

import msgspec

_NAME = re.compile(r"^    ([A-Za-z_][A-Za-z0-9_]*)\s*(?:=|:)")


@cache
def comments(cls: Any) -> dict[str, str]:
    """Name of each member or field -> the `#:` sentence above it, or beside it."""
    try:
        lines = inspect.getsource(cls).splitlines()
    except OSError as error:
        raise RuntimeError(f"the source of {cls.__name__} cannot be read: install kvproto with its sources") from error
    found: dict[str, str] = {}
    text: list[str] = []
    for line in lines:
        if line.strip().startswith("#:"):
            text.append(line.strip().removeprefix("#:").strip())
        elif match := _NAME.match(line):
            beside = line.partition("#:")[2].strip()
            if text or beside:
                found[match[1]] = " ".join([*text, beside]).strip()
            text = []
    return found


def members(cls: type[Enum]) -> dict[str, str]:
    """Every member of an Enum, in order, with its sentence ("" if it has none)."""
    said = comments(cls)
    return {member.name: said.get(member.name, "") for member in cls}


def sentence(thing: type | Callable[..., object] | None) -> str:
    """The docstring of a class or a function as one line; "" where there is none of its own."""
    doc = thing.__doc__ if thing is not None else None
    return " ".join(doc.split()) if doc else ""


def kind_of(hint: object) -> str:
    """A field's type as people write it: `u32`, `bytes <= 4096`, `Cause`, `bool`."""
    info = hint if isinstance(hint, msgspec.inspect.Type) else msgspec.inspect.type_info(hint)
    match info:
        case msgspec.inspect.IntType():
            return _integer(info)
        case msgspec.inspect.BytesType() | msgspec.inspect.StrType():
            name = "bytes" if isinstance(info, msgspec.inspect.BytesType) else "text"
            return name if info.max_length is None else f"{name}, at most {info.max_length}"
        case msgspec.inspect.BoolType():
            return "bool"
        case msgspec.inspect.FloatType():
            return "seconds"
        case msgspec.inspect.EnumType() | msgspec.inspect.StructType():
            return info.cls.__name__
        case msgspec.inspect.LiteralType():
            return " or ".join(repr(value) for value in info.values)
        case msgspec.inspect.UnionType() | msgspec.inspect.TupleType() | msgspec.inspect.VarTupleType():
            return _several(info)
        case msgspec.inspect.NoneType():
            return "none"
    return type(info).__name__.removesuffix("Type").lower()


def _several(info: msgspec.inspect.UnionType | msgspec.inspect.TupleType | msgspec.inspect.VarTupleType) -> str:
    if isinstance(info, msgspec.inspect.UnionType):
        messages = all(isinstance(each, msgspec.inspect.StructType) for each in info.types)
        return "message" if messages else " or ".join(kind_of(each) for each in info.types)
    if isinstance(info, msgspec.inspect.TupleType):
        return f"({', '.join(kind_of(each) for each in info.item_types)})"
    return f"list of {kind_of(info.item_type)}" + (f", at most {info.max_length}" if info.max_length else "")


def _integer(info: msgspec.inspect.IntType) -> str:
    top = info.le if info.le is not None else None if info.lt is None else info.lt - 1
    least = info.ge if info.ge is not None else None if info.gt is None else info.gt + 1
    if least is not None and top is not None:
        bits = top.bit_length()
        return f"u{bits}" if not least and top == (1 << bits) - 1 else f"{least} to {top}"
    if least in (0, 1):
        return "u64" if least == 0 else "u64, not 0"
    return "int"
