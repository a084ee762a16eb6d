"""Arguments: what a command takes as a number, a list, a page size, or a place to write to."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproto.arguments import (
    one_question,
    only_with,
    only_without,
    output_file,
    output_folder,
    pages,
    positive,
    real,
    several,
    whole,
)
from kvproto.command_line import CommandLine


@pytest.mark.parametrize(
    ("read", "text", "found"),
    [
        (whole(2, 4), "2", 2), (whole(2, 4), "4", 4), (positive, "1", 1), (positive, str(1 << 28), 1 << 28),
        (real(0.5, 2.0), "0.5", 0.5), (real(0.5, 2.0), "2", 2.0), (several(whole(0, 9)), "3,1", [3, 1]),
        (pages, "16", (16, 16)), (pages, "16:64", (16, 64)), (pages, f"1:{1 << 20}", (1, 1 << 20)),
    ],
)  # fmt: skip
def test_a_text_is_what_it_says(read: Callable[[str], Any], text: str, found: Any) -> None:
    assert read(text) == found


LONG = "9" * 41


@pytest.mark.parametrize(
    ("read", "text", "why"),
    [
        (whole(2, 4), "1", "'1' is not from 2 to 4"), (whole(2, 4), "5", "'5' is not from 2 to 4"),
        (whole(2, 4), "2.0", "'2.0' is no whole number"), (whole(2, 4), LONG, f"'{LONG[:40]}...' is not from 2 to 4"),
        (whole(2, 4), LONG[:40], f"'{LONG[:40]}' is not"),
        (positive, "0", "'0' is not from 1"), (positive, str((1 << 28) + 1), "is not from 1 to 268435456"),
        (real(0.5, 2.0), "0.4", "'0.4' is not from 0.5 to 2"), (real(0.5, 2.0), "2.1", "'2.1' is not from 0.5 to 2"),
        (real(0.5, 2.0), "nan", "'nan' is not from"), (real(0.5, 2.0), "x", "'x' is no number"),
        (pages, "0", "'0' is not from 1"), (pages, f"1:{(1 << 20) + 1}", "is not from 1 to 1048576"),
    ],
)  # fmt: skip
def test_a_text_that_is_none_is_named(read: Callable[[str], Any], text: str, why: str) -> None:
    with pytest.raises(ArgumentTypeError) as told:
        read(text)
    assert why in str(told.value)


def test_a_file_or_a_folder_is_one_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, new, folder = tmp_path / "there", tmp_path / "new", tmp_path / "a" / "b"
    there.write_text("")
    assert output_file(str(there)) == there and output_file(str(new)) == new and not new.exists()
    assert output_folder(str(folder)) == folder and folder.is_dir() and output_folder(str(folder)) == folder
    asked = list[str]()
    monkeypatch.setattr(os, "access", lambda path, how: asked.append(f"{Path(path).name} {how == os.W_OK}"))
    for read, path, why in (
        (output_file, there, f"{there} cannot be written"), (output_file, new, f"{new} cannot be written"),
        (output_folder, folder, f"nothing can be written into {folder}"),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match=why):
            read(str(path))
    assert asked == ["there True", f"{tmp_path.name} True", "b True"]
    for wrong, why in ((tmp_path, "is a directory: name a file"), (tmp_path / "no" / "file", "there is no directory")):
        with pytest.raises(ArgumentTypeError, match=why):
            output_file(str(wrong))
    with pytest.raises(ArgumentTypeError, match=r"there cannot be made: File exists"):
        output_folder(str(there))


def test_options_that_do_not_go_together_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandLine(prog="kvproto fly")
    asked = Namespace(to_moon=True, back=False, now=1)
    only_with(parser, asked, "--rocket", "--back")
    only_without(parser, asked, "--rocket", "--back")
    assert one_question(parser, asked, "--back") == "" and one_question(parser, asked, "--back", "--now") == "--now"
    for check, why in (
        (lambda: only_with(parser, asked, "--rocket", "--back", "--to-moon"), "--to-moon is of --rocket"),
        (lambda: only_without(parser, asked, "--rocket", "--to-moon"), "--to-moon is not of --rocket"),
        (lambda: one_question(parser, asked, "--now", "--to-moon"),
         "--now and --to-moon ask different questions: one at a time"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            check()
        assert why in capsys.readouterr().err
