"""The inspector: one page that needs nothing else, and that shows in a browser what the trace says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvproto.cli import main as kvproto_main
from kvproto.cli.inspect_command import main
from kvproto.draw.scenes import SCENES
from kvproto.fsm.inspect.page import page
from kvproto.protocol.tables import TABLES
from kvproto.trace import Log, StepEntry, lines, merge
from kvproto.trace.telling import TELLING

LOGS = next(scene for scene in SCENES if scene.name == "abort").logs()
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def written(path: Path, logs: list[Log]) -> Path:
    (path / "t.jsonl").write_text("".join(line + "\n" for log in logs for line in lines(log)))
    assert main([str(path / "t.jsonl"), "--out", str(path / "t.html")]) == 0
    return path / "t.html"


def test_the_page_asks_nobody_for_anything() -> None:
    html = page(LOGS, "a trace", TELLING, "kvproto")
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"^\s*//.*$", "", html, flags=re.MULTILINE)))
    assert addresses <= {"http://www.w3.org"}
    assert not re.search(r"<(?:link|img|iframe)|\bsrc=|@import|url\(|fetch\(|XMLHttp", html)


def test_the_page_has_every_picture_and_the_whole_story() -> None:
    html = page(LOGS, "a trace", TELLING, "kvproto")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["moments"]) == len(merge(LOGS))
    assert data["differences"] == []
    assert {m["machine"] for m in data["moments"] if m["kind"] == "step"} <= {table.name for table in TABLES}
    for table in TABLES:
        assert f'id="{table.name}.{table.initial.name}"' in html


def test_a_hostile_text_stays_text() -> None:
    html = page(LOGS, "</script><script>alert(1)</script>", TELLING, "kvproto")
    assert "<script>alert" not in html


def test_a_file_that_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.jsonl").write_text("nonsense\n")
    assert kvproto_main(["inspect", str(tmp_path / "t.jsonl")]) == 2
    assert "t.jsonl:1" in capsys.readouterr().err


class Page(HTMLParser):
    """What the browser made of it: classes and ids, and the text of what has the id or class that is asked for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[set[str], dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found.append((set((given.get("class") or "").split()), given))

    def having(self, *classes: str) -> list[dict[str, str | None]]:
        return [given for have, given in self.found if set(classes) <= have]


def browse(path: Path, at: int) -> Page:
    """The page after its script has run, offline, at one moment."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
               f"--user-data-dir={path.parent / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
               f"file://{path}#{at}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return Page(done.stdout)


@needs_browser
def test_a_browser_lights_the_state_the_row_and_the_cause(tmp_path: Path) -> None:
    story = merge(LOGS)
    at = next(m.index for m in story if isinstance(m.entry, StepEntry) and type(m.entry.event).__name__ == "AbortAsked")
    seen = browse(written(tmp_path, LOGS), at)
    (picture,) = seen.having("picture", "shown")
    assert picture["data-machine"] == "prefill_room"
    assert [each["id"] for each in seen.having("box", "now")] == ["prefill_room.DRAINING"]
    assert [each["id"] for each in seen.having("box", "from")] == ["prefill_room.OPEN"]
    entry = story[at].entry
    assert isinstance(entry, StepEntry)
    (edge,) = seen.having("edge", "lit")
    assert str(entry.row) in (edge["data-rows"] or "").split()
    assert [each["data-index"] for each in seen.having("moment", "lit")] == [str(at)]
    assert [each["data-index"] for each in seen.having("moment", "because")] == [str(story[at].cause)]
    assert len(seen.having("track")) == 6  # two rooms, two sends, a write, a grant
    assert seen.having("slice", "lit")


@needs_browser
def test_a_browser_shows_where_a_doctored_trace_leaves_the_tables(tmp_path: Path) -> None:
    log = LOGS[0]
    place = next(i for i, e in enumerate(log.entries) if isinstance(e, StepEntry) and e.target == "DRAINING")
    step = log.entries[place]
    assert isinstance(step, StepEntry)
    changed = Log(log.head, [*log.entries[:place], replace(step, target="FAILED"), *log.entries[place + 1 :]])
    seen = browse(written(tmp_path, [changed, *LOGS[1:]]), 0)
    (shown,) = (given for _, given in seen.found if given.get("id") == "differences")
    assert "hidden" not in shown
