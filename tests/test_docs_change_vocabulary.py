"""docs/change_vocabulary.md is true: its edits are made in a copy, its commands print what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.pages import commands, compare, edit, run

from kvproto.fsm.codec import Body
from kvproto.fsm.vocabulary import Event
from kvproto.verify.claims.kv import KV
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.cli.lint_command import main as lint_help
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.framework.lint import Finding
from kvproto.verify.framework.lint_vocabulary import lint_vocabulary
from kvproto.verify.trace.rank_stories import TELLING

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "change_vocabulary.md").read_text()


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    for folder in ("kvproto", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"^`([\w/.]+)`(?=[:,])|```(diff|console)\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert sum(kind == "console" for _, kind, _ in blocks) == 5
    file = tmp_path
    for name, kind, content in blocks:
        if name:
            file = tmp_path / name
        elif kind == "diff":
            edit(content, file)
        for command, shown in commands(content) if kind == "console" else ():
            compare(shown, run(command, tmp_path))


def test_every_place_is_there_and_every_word_of_the_lint_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    table = PAGE.partition("## The places")[2]
    for path in re.findall(r"`((?:kvproto|tests)/[\w/.]+)`", table):
        assert (ROOT / path).is_file(), path
    with pytest.raises(SystemExit):
        lint_help(["--help"])
    said = capsys.readouterr().out
    for words in re.findall(r"lint: (.*?) \|", table):
        assert all(f"\n  {word} " in said for word in re.findall(r"`([\w-]+)`", words)), words


# ------------------------------------------------------------------------------- the lint of a vocabulary
class Shout(Body, tag="SHOUT", frozen=True):
    """Nobody hears it."""


class Mute(Body, tag="MUTE", frozen=True):
    """"""


class Idle(Event, frozen=True):
    """Nobody raises it."""


def found(messages: dict[str, type[Any]], events: list[type[Any]], said: tuple[type[Any], ...]) -> list[Finding]:
    return lint_vocabulary(messages, events, SOURCES, said)


def test_what_is_dark_is_found() -> None:
    messages, events, said = TELLING.messages, list(TELLING.events.values()), tuple(talk.body for talk in TALK)
    assert found(messages, events, said) == []
    dark = found({**messages, "SHOUT": Shout, "MUTE": Mute}, [*events, Idle], (*said, Shout, Mute))
    assert [(each.kind, each.text.split()[-1] if each.kind == "unused" else each.text.split()[3]) for each in dark] == [
        ("unheard", "SHOUT"), ("unheard", "MUTE"), ("unsaid", "says"), ("unused", "it")
    ]  # fmt: skip
    assert all(re.match(r".*test_docs_change_vocabulary\.py:\d+$", each.where) for each in dark)
    assert [each.kind for each in found(messages, events, said[1:])] == ["unsaid"]
    assert replace(KV, exchanges="").lint([]) == KV.lint([]) == []


#: messages of which no scene tells, since it is about what goes wrong or runs short elsewhere
UNPLAYED = {
    "REFUSAL", "RESET", "ANNOUNCE", "GONE", "WATERMARK_REQ", "GOODBYE",
}  # fmt: skip


def test_every_message_is_in_a_scene_or_named_as_one_that_is_not() -> None:
    from kvproto.verify.draw.scenes import SCENES

    played = {str(type(copy.body).__struct_config__.tag) for scene in SCENES for copy in scene.play().carried}
    assert played | UNPLAYED == {talk.name for talk in TALK} and not played & UNPLAYED
