"""Lint printable: names every function of a table's rows, and every field, that C cannot say.

These are errors, each with the file and line of the expression that is at fault:

* `unprintable`: a row's function that C cannot say.  It is more than `return`, assignments, `if`, `assert` and `raise`;
* `unprintable`: a row's function that C cannot say.  It is more than `return`, assignments, `if`, `assert`, `raise`;
  into something that has no type.

The rows run in Python whether or not C can say them.
"""

from __future__ import annotations

from typing import Any

from kvproto.fsm.table import Table
from kvproto.verify.framework.lint import Finding
from kvproto.verify.framework.native.c_code import unprintable


def lint_printable(table: Table[Any]) -> list[Finding]:
    """Return each such error once, with a row that it is in."""
    found: dict[tuple[str, str], Finding] = {}
    for row, where, why in unprintable(table):
        text = f"{why} ({row})" if row is not None else why
        found.setdefault((where, why), Finding(table.name, "unprintable", where, text))
    return list(found.values())
