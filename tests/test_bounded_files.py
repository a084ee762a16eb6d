"""Bounded files: a file as long as its bound is read, any other is refused by name and place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproto.fsm import bounded_files
from kvproto.fsm.bounded_files import FileError, decoded, document, json_value, lines_of, text_of


class Node(msgspec.Struct):
    """A type without a depth of its own."""

    child: Node | None = None


def test_a_text_is_as_long_as_its_bound_at_most(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"abcd")
    assert text_of(path, most=4) == "abcd"
    with pytest.raises(FileError, match=rf"^{path}: longer than 3 bytes: this is no such file$"):
        text_of(path, most=3)
    path.write_bytes(b"ab\xff")
    with pytest.raises(FileError, match=rf"^{path}: no text: byte 2 is not UTF-8$"):
        text_of(path)


def test_a_line_is_as_long_as_its_bound_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "LONGEST_LINE", 4)
    path = tmp_path / "t"
    path.write_bytes(b"abc\n\nabcd")
    assert list(lines_of(path)) == [b"abc\n", b"\n", b"abcd"]
    path.write_bytes(b"abc\nabcd\n")
    with pytest.raises(FileError, match=rf"^{path}: a line longer than 4 bytes: this is no such file$"):
        list(lines_of(path))


def test_the_bounds_hold_a_long_trace_and_no_memory_that_matters() -> None:
    assert 1 << 24 <= bounded_files.LONGEST_LINE < bounded_files.MOST_BYTES <= 1 << 28


def test_a_document_is_json_whatever_it_says(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"a": [1]}')
    assert document(path) == {"a": [1]}
    path.write_text("{")
    with pytest.raises(FileError, match=rf"^{path}: Input data was truncated"):
        document(path)


@pytest.mark.parametrize(
    ("text", "says"), [("", "truncated"), (b'"\xff"', "decode byte 0xff"), ("[" * 100_000, "nested too deeply$")]
)
def test_what_is_no_json_is_refused_with_its_place(text: str | bytes, says: str) -> None:
    with pytest.raises(FileError, match=f"^here: .*{says}"):
        json_value(text, "here")


def test_plain_data_that_does_not_fit_its_type_is_refused_with_its_place() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"child": deep}
    assert decoded("here", {"child": {}}, Node) == Node(Node())
    with pytest.raises(FileError, match=r"^here: Expected `object \| null`, got `int` - at `\$\.child`$"):
        decoded("here", json.loads('{"child": 1}'), Node)
    with pytest.raises(FileError, match=r"^here: nested too deeply$"):
        decoded("here", deep, Node)
    while deep:  # level by level: freed as one, it is as deep again
        deep = deep["child"]
