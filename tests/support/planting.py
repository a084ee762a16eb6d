"""Planting: another text in a function's place, as a fault that somebody could write."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest

#: they are not evaluated, as in every module
ANNOTATIONS = annotations.compiler_flag


def plant(patch: pytest.MonkeyPatch, owner: type[Any], name: str, old: str, new: str) -> None:
    """Have the method `name` of `owner` say `new` where it says `old`, once."""
    function = inspect.getattr_static(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(old) == 1, f"{owner.__name__}.{name} says {old!r} {text.count(old)} times"
    module = sys.modules[owner.__module__]
    scope: dict[str, Any] = {}
    code = compile(text.replace(old, new), f"<{owner.__name__}.{name}, changed>", "exec", ANNOTATIONS, True)
    exec(code, module.__dict__, scope)  # noqa: S102  # the project's own text, with one change
    patch.setattr(owner, name, scope[name])
