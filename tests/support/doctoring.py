"""Doctoring: files as somebody might hand them in, cut, mixed up, with numbers that no run wrote.

`doctored` draws one change, or two, of a recorded file: of its JSON values by place, of its lines, or of its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

#: what no field expects, or hardly one
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -2, 3, 17, 2**31, 2**33, 2**63, 2**64, 2**70, -(2**70), 10**400, 10**4200,
    0.5, -0.5, 1e15, 1e300, 5e-324, "", "x", "7", "7.0", "-1", "inf", "nan", "ff", "zz", "\u0000", "\N{GRINNING FACE}",
    "9" * 5000, "7.99999999999", [], [[]], [1], [None] * 3, ["a", "b"], {},
    {"type": "Transmit"}, {"type": []}, {"type": "TimerFired"}, {"state": {}},
)  # fmt: skip
Document = list[Any]  #: the JSON values of a file, a line each


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, each in inner for place in places(each, (*at, key)))]


def get(value: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        value = value[key]
    return value


def _change(document: Document, draw: Callable[..., Any]) -> None:
    line = draw(st.integers(0, len(document) - 1))
    at = draw(st.sampled_from(places(document[line])))
    how = draw(st.sampled_from(["delete", "replace", "replace", "swap", "rename", "line gone", "line twice", "moved"]))
    if how == "line gone" and len(document) > 1:
        del document[line]
    elif how == "line twice":
        document.insert(draw(st.integers(0, len(document))), deepcopy(document[line]))
    elif how == "moved":
        document.append(document.pop(line))
    elif not at:
        document[line] = draw(st.sampled_from(STRANGE))
    else:
        holder, key = get(document[line], at[:-1]), at[-1]
        if how == "delete":
            del holder[key]
        elif how == "swap":
            other = draw(st.integers(0, len(document) - 1))
            holder[key] = deepcopy(get(document[other], draw(st.sampled_from(places(document[other])))))
        elif how == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["kind", "type", "room", "x", ""]))] = holder.pop(key)
        else:
            holder[key] = draw(st.sampled_from(STRANGE))


def _bytes(text: bytes, draw: Callable[..., Any]) -> bytes:
    how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "not UTF-8", "zeros", "nested", "digits", "spaces"]))
    at = draw(st.integers(0, len(text)))
    if how == "cut":
        return text[:at]
    inserted = {"not UTF-8": b"\xff\xfe", "zeros": bytes(64), "nested": b"[" * 100_000, "digits": b"9" * 20_000,
                "spaces": b" \n\r\t"}  # fmt: skip
    return text[:at] + inserted.get(how, b"") + text[at:]


def written(document: Document) -> bytes:
    return "".join(_dumped(value) + "\n" for value in document).encode("utf-8", "surrogatepass")


def _dumped(value: Any) -> str:
    return json.dumps(value)


@st.composite
def doctored(draw: Callable[..., Any], document: Document) -> bytes:
    """The file with something wrong, most of the time."""
    changed = deepcopy(document)
    for _ in range(draw(st.integers(0, 2))):
        _change(changed, draw)
    return _bytes(written(changed), draw)
