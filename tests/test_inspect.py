"""The inspector: one page that needs nothing else, and that shows in a browser what the trace says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.cli import main as kvproto_main
from kvproto.fsm.telling import Moment
from kvproto.protocol.tables import TABLES
from kvproto.verify.cli import inspect_command
from kvproto.verify.cli.inspect_command import main
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.inspect.page import first_difference, moment_json, page
from kvproto.verify.trace.rank_stories import TELLING
from kvproto.verify.trace.stories import Log, StepEntry, lines, load, merge

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
    """The browser's result: classes and ids, and the text of the elements that are asked for."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[set[str], dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found.append((set((given.get("class") or "").split()), given))

    def having(self, *classes: str) -> list[dict[str, str | None]]:
        return [given for have, given in self.found if set(classes) <= have]


def test_the_other_trace_parts_where_it_does_and_not_by_its_clock() -> None:
    late = [Log(log.head, [replace(e, time=e.time + 5.0) if isinstance(e, StepEntry) else e for e in log.entries])
            for log in LOGS]  # fmt: skip
    told = [moment_json(moment, TELLING) for moment in merge(LOGS)]
    assert first_difference(told, [moment_json(moment, TELLING) for moment in merge(late)]) is None
    short = [Log(log.head, log.entries[:-3]) for log in LOGS]
    (ours, theirs) = first_difference(told, [moment_json(m, TELLING) for m in merge(short)]) or (0, 0)
    assert ours > theirs > 0
    other = next(scene for scene in SCENES if scene.name == "repeated").logs()
    (ours, theirs) = first_difference(told, others := [moment_json(m, TELLING) for m in merge(other)]) or (0, 0)
    assert told[ours]["text"].startswith("STAGING_RSP") and others[theirs]["text"] == told[ours]["text"]
    assert (told[ours]["fate"], others[theirs]["fate"]) == ("", "lost")


def test_a_trace_that_grows_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "t.jsonl", tmp_path / "t.html"
    whole = [line for log in LOGS for line in lines(log)]
    file.write_text("\n".join(whole[:40]) + "\n")
    grows = iter(["\n".join(whole[:40]) + "\n" + whole[40][:30], "\n".join(whole) + "\n"])
    pages: list[str] = []

    def sleep(_seconds: float) -> None:
        pages.append(out.read_text())
        text = next(grows, None)
        if text is None:
            raise KeyboardInterrupt
        file.write_text(text)

    monkeypatch.setattr(inspect_command, "sleep", sleep)
    assert kvproto_main(["inspect", str(file), "--out", str(out), "--follow"]) == 130
    first, half, last = (len(re.findall(r'"index":', each)) for each in pages)
    assert first == half == 39 and last == sum(len(log.entries) for log in LOGS), "a half line waits a turn"
    assert f'"follow":{inspect_command.EVERY_S}' in pages[0]


def test_a_running_rank_writes_its_trace_as_it_goes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from support.stories import layout

    from kvproto.errors import ArgumentError
    from kvproto.io.clock import ManualClock
    from kvproto.verify.testing.pair import Pair

    clock = ManualClock()
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as pair:
        prefill, path = pair.prefills[0], tmp_path / "p.jsonl"
        with pytest.raises(ArgumentError, match="every 1 to 3600 seconds"):
            prefill.follow_trace(path, every=0.0)
        with pytest.raises(ArgumentError, match="there is no directory"):
            prefill.follow_trace(path.parent / "nowhere" / path.name)
        prefill.follow_trace(path, every=2.0)
        sizes = []
        for _ in range(3):
            pair.finish(pair.open(tokens=9))
            clock.advance(3.0)
            pair.pump(lambda: not any(endpoint.poll() for endpoint in pair.endpoints))
            for thread in threading.enumerate():
                if thread.daemon and "_write" in thread.name:
                    thread.join(10.0)
            sizes.append(len(load(path)[0].entries))
        assert 0 < sizes[0] < sizes[1] < sizes[2] <= 512


def browse(path: Path, at: int | str) -> Page:
    """The page after its script has run, offline; addresses number events from 1."""
    at = at + 1 if isinstance(at, int) else at
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
def test_a_browser_draws_the_sequence_and_lights_where_two_traces_part(tmp_path: Path) -> None:
    other = next(scene for scene in SCENES if scene.name == "repeated").logs()
    path = written(tmp_path, other)
    (tmp_path / "u.jsonl").write_text("".join(line + "\n" for log in LOGS for line in lines(log)))
    assert main([str(tmp_path / "t.jsonl"), "--beside", str(tmp_path / "u.jsonl"), "--out", str(path)]) == 0
    seen = browse(path, ",sequence")
    ours, theirs = first_difference([moment_json(m, TELLING) for m in merge(other)],
                                    [moment_json(m, TELLING) for m in merge(LOGS)]) or (0, 0)  # fmt: skip
    lit = seen.having("moment", "differs")
    assert len(lit) == 2 and lit[0]["data-index"] == str(ours) and theirs
    assert len(seen.having("lost")) == 1, "the answer that was lost, and no other"
    assert len(seen.having("arrow")) == sum(m["kind"] == "sent" and m["subject"] is not None
                                            for m in map(_told, merge(other)))  # fmt: skip


@needs_browser
def test_a_link_that_is_pasted_into_an_open_page_leads_to_its_event(tmp_path: Path) -> None:
    path = written(tmp_path, LOGS)
    pasted = "<script>setTimeout(() => { location.hash = '#9,sequence'; }, 100)</script>"
    path.write_text(path.read_text().replace("</body>", f"{pasted}</body>"))
    seen = browse(path, 2)
    assert [each["data-index"] for each in seen.having("moment", "lit")] == ["8"]
    assert len(seen.having("chosen")) == 1 and seen.having("chosen")[0]["data-tab"] == "sequence"


def _told(moment: Moment) -> dict[str, Any]:
    return moment_json(moment, TELLING)


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
