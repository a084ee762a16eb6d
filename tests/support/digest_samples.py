"""Digest samples: functions in every syntax whose tree or names differ between interpreters.

Run as a program it prints their texts: that is how another interpreter is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from kvproto.verify.framework.digest_code import CodeWriter, SourceTexts

LIMIT = 3
NAMES = ("é", "'", '"', "\\", "\n")


def strings(v: Any) -> str:
    """Pieces of every kind."""
    return "a" f"b{v!r:>{LIMIT}}" "" f"{v}{'c'}" f"{v:}" f"{v=}" f"{{}}{v['k']:.{v.n}f}é\n" "\t"  # fmt: skip  # noqa: ISC001


def matched(v: Any) -> Any:
    match v:
        case [1, *rest] | {"k": int(), **rest}:
            return rest
        case str() as name if name in NAMES:
            return name
        case None | True:
            return ...
    return -1, 1_000, 1e300 * 10, 3j, b"\x00"


def scoped(v: Any) -> Any:
    LIMIT = [each for each in v if (last := each)]  # noqa: N806  # a local one, here and in what is within
    first = {NAMES for NAMES in NAMES}  # noqa: C416  # the last of the three is the global one
    return LIMIT, last, first, {k: NAMES for k in v}, (lambda NAMES: NAMES)(v)  # noqa: C420, N803, PLC3002


def nested(v: Any, *more: Any, key: Callable[..., Any] | None = None, at: int = LIMIT, **named: Any) -> Iterator[Any]:
    count = 0

    def inner(v: Any, at: int = at) -> Any:
        nonlocal count
        count += 1
        return v[at:LIMIT, ::2], more, named, key

    try:
        yield from (inner(each) for each in v)
    except (ValueError, KeyError) as error:
        raise RuntimeError(f"{error} of {v}") from error
    else:
        assert count, f"nothing in {v}"
    finally:
        total: int = count
        with v as held:
            del held.at
    while total:
        total -= 1 if total > LIMIT else 2


def texts() -> str:
    sources = SourceTexts()
    said = []
    for function in (strings, matched, scoped, nested):
        assert isinstance(function, FunctionType)
        writer = CodeWriter(function, lambda thing: getattr(thing, "__name__", ascii(thing)))
        said.append(writer.text(sources.tree(function)))
    return "\n".join(said)


if __name__ == "__main__":
    sys.stdout.write(texts())
