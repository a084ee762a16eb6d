"""The explorer: a world's graph on one page, and in a browser what may happen next."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.night import by_night
from test_inspect import BROWSER, Page, needs_browser

from kvproto.cli import main
from kvproto.verify.check.checker import CHECKER
from kvproto.verify.framework.explore.exploration import KINDS, Recorder
from kvproto.verify.framework.explore.explore_page import explore_page
from kvproto.verify.trace.rank_stories import TELLING

ROOT = Path(__file__).parent.parent


STRANGE = ["groups-in-death", "timed-slow", "timed-one-name"]
WORLDS = [*CHECKER.worlds()]


@cache
def smoke() -> tuple[str, int, bool]:
    return explore_page(CHECKER.explored("smoke", TELLING), "kvproto", limit=5000)


def graph(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])["graph"]
    return data


def browse(path: Path, word: str, width: int = 1500) -> Page:
    """The page after its script has run, offline, at this address."""
    return visit(f"file://{path}{word}", path.parent, width)


def visit(address: str, folder: Path, width: int = 1500) -> Page:
    """The page at this address after its script has run, with no network but this machine's."""
    nowhere = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--host-resolver-rules={nowhere}",
               f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", f"--window-size={width},900",
               "--dump-dom", address]  # fmt: skip
    return Page(subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout)


def written(path: Path, html: str) -> Path:
    path.write_text(html)
    return path


# ----------------------------------------------------------------------------------------------- the recording
def test_a_world_that_is_recorded_to_its_end_has_the_states_and_steps_of_its_search() -> None:
    html, states, whole = smoke()
    counts, found = tomllib.loads((ROOT / "spec" / "counts.toml").read_text())["smoke"], graph(html)
    assert whole and states == counts["states"] == len(found["states"]) == len(found["next"])
    assert sum(map(len, found["next"])) == counts["transitions"]
    assert {step[1] for steps in found["next"] for step in steps} <= set(KINDS)
    assert not found["unrest"] and not any(step[4] for steps in found["next"] for step in steps)


@pytest.mark.parametrize("name", by_night(WORLDS, by_day=[*STRANGE, *WORLDS[7::80]]))
def test_every_world_can_be_explored(name: str) -> None:
    """Slow things, and a crash in a world of several groups, once ended in a traceback."""
    recorder = Recorder(CHECKER.explored(name, TELLING))
    found = recorder.record(limit=30)
    assert found["next"][0] and len(found["states"]) > 1


def test_the_page_asks_nobody_for_anything() -> None:
    html, *_ = smoke()
    assert set(re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"//.*$", "", html, flags=re.MULTILINE))) <= {"http:"}
    assert not re.search(r"<(?:link|img|iframe)|\bsrc=|@import|url\(|fetch\(|XMLHttp", html)


def test_beyond_the_limit_a_state_has_no_steps() -> None:
    recorded = Recorder(CHECKER.explored("smoke", TELLING)).record(limit=40)
    assert 40 <= len(recorded["states"]) < 60
    assert None in recorded["next"] and recorded["next"][0]


def test_ranks_of_several_groups_have_the_world_s_names_in_what_is_told() -> None:
    """The ranks of each group begin at 0: a message of P1's group was drawn as one of P0's."""
    found = Recorder(CHECKER.explored("groups-cross", TELLING)).record(limit=150)
    told = set[tuple[str, str]]()
    for step in (step for steps in found["next"] for step in steps or () if step[2] is not None):
        parts = [found["parts"][part] for part in found["states"][step[2]]]
        mail = {(each["from"], each["to"]) for part in parts for each in part.get("mail", ())}
        sent = {(each["party"], each["peer"]) for each in found["told"][step[3]] if each["kind"] == "sent"}
        assert sent <= mail
        told |= sent
    assert {("D0", "P0"), ("D1", "P1")} <= told
    assert {each["who"] for list_ in found["told"] for each in list_ if each["kind"] == "step"} >= {"send 0 to D1"}


def test_a_way_is_recorded_on_from_the_edge_of_a_page(tmp_path: Path) -> None:
    """A second page begins where the first one ends, by the same numbers: a world of any size is walked."""
    out = tmp_path / "w.html"
    assert main(["explore", "drop", "--limit", "60", "--out", str(out)]) == 0
    first, command = graph(out.read_text()), shlex.split(graph(out.read_text())["command"])
    way, state = list[int](), 0
    while first["next"][state] is not None:  # deeper and deeper: to a state that was not looked at
        choice, state = max(enumerate(step[2] for step in first["next"][state]), key=lambda found: found[1] or 0)
        way.append(choice)
    dotted = ".".join(map(str, way))
    assert command == ["kvproto", "explore", "drop", "--limit", "60", "--out", str(out)]
    assert main([*command[1:], "--way", dotted]) == 0
    second, again = graph(out.read_text()), 0
    assert second["way"] == way and second["command"] == shlex.join(command)
    for choice in way:
        again = second["next"][again][choice][2]
    assert second["next"][again]
    shown = [[found["parts"][part] for part in found["states"][at]] for found, at in ((first, state), (second, again))]
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("protocol", "world"), [([], ""), (["--tables", "examples.two_phase_commit.parties:PROTOCOL"], "crash")]
)
def test_what_a_search_has_kept_opens_in_a_page(
    protocol: list[str], world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "w.html"
    bug = "tells-first" if protocol else next(name for name, bug in CHECKER.planted.items() if bug.world == "two-slots")
    assert main(["check", *protocol, "--plant", bug, "--quiet", "--save", str(tmp_path)]) == 1
    (kept,) = tmp_path.glob("*.jsonl")
    assert main(["explore", str(kept), *protocol, "--plant", bug, "--limit", "60", "--out", str(out)]) == 0
    assert len(graph(out.read_text())["way"]) > 3 and kept.stem == (world or "two-slots")


def test_a_planted_bug_is_explored_at_the_property_that_it_breaks(tmp_path: Path) -> None:
    out = tmp_path / "w.html"
    bug = next(name for name, bug in CHECKER.planted.items() if bug.world == "two-slots")
    assert main(["explore", "--plant", bug, "--limit", "60", "--out", str(out)]) == 0
    found = graph(out.read_text())
    state: int | None = 0
    for choice in found["way"]:
        state = found["next"][state][choice][2]
        if state is None:
            return  # this step breaks a property
    assert found["unrest"][str(state)]


def test_a_recorded_counterexample_is_walked_as_far_as_it_can_still_happen(tmp_path: Path) -> None:
    out, file = tmp_path / "w.html", ROOT / "spec" / "counterexamples" / "late-pages-answer.jsonl"
    assert main(["explore", str(file), "--limit", "60", "--out", str(out)]) == 0
    walked = CHECKER.walk_file(file).once.events
    assert len(graph(out.read_text())["way"]) == len(walked) > 3


def test_the_world_of_another_protocol_is_explored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "w.html"
    assert main(["explore", "--tables", "examples.two_phase_commit.parties:PROTOCOL", "--out", str(out)]) == 0
    found = graph(out.read_text())
    assert {"coordinator", "participant"} <= {each["machine"] for part in found["parts"]
                                              for each in part.get("machines", ())}  # fmt: skip
    assert any(moment["kind"] == "heard" for told in found["told"] for moment in told)


@pytest.mark.parametrize(
    ("args", "said"),
    [(("quick",), "is a suite"), (("nonsense",), "no configuration"), (("smoke", "--plant", "x"), "no planted bug"),
     (("smoke", "--way", "0.77"), "step 2 is 77, and its state has")],
)
def test_what_is_no_world_is_refused_in_a_line(
    args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", *args]) == 2
    assert said in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- in a browser
@needs_browser
def test_a_browser_shows_the_state_and_what_may_happen_next(tmp_path: Path) -> None:
    html, *_ = smoke()
    found, way = graph(html), [0, 0, 0, 0]
    state: int | None = 0
    for choice in way:
        state = found["next"][state][choice][2]
    seen = browse(written(tmp_path / "w.html", html), f"#way={'.'.join(map(str, way))},sequence")
    offered = [given for _, given in seen.found if "data-choice" in given]
    assert sorted(int(str(each["data-choice"])) for each in offered) == list(range(len(found["next"][state])))
    machines = [each for number in found["states"][state] for each in found["parts"][number].get("machines", ())]
    assert len(seen.having("machine")) == len(machines) > 2
    assert seen.having("moment", "lit") and seen.having("track"), "the way is told as a trace is"
    assert len(seen.having("ring")) == 1


@needs_browser
def test_a_sequence_of_many_ranks_stays_readable_and_zooms(tmp_path: Path) -> None:
    """In 400 pixels four ranks scroll: their labels are not made smaller than 0.85 of their size."""
    html, *_ = explore_page(CHECKER.explored("groups-cross", TELLING), "kvproto", limit=150)
    widths = []
    for title in ("", "larger", "smaller"):
        press = f"document.querySelectorAll('#zoom button').forEach((b) => b.title === '{title}' && b.click())"
        path = written(tmp_path / "w.html", html.replace("</body>", f"<script>{press}</script></body>"))
        (names,) = browse(path, "#way=0.0,sequence", width=400).having("names")
        widths.append(float(str(names["width"])) / (4 * 230))
    assert widths == [0.85, 1.25, 0.8]


@needs_browser
def test_an_address_of_another_recording_is_refused(tmp_path: Path) -> None:
    html, *_ = smoke()
    seen = browse(written(tmp_path / "w.html", html), "#way=99,sequence")
    (told,) = (given for _, given in seen.found if given.get("id") == "differences")
    assert "hidden" not in told and [given for _, given in seen.found if "data-choice" in given]


@needs_browser
def test_at_the_edge_of_a_recording_the_page_has_the_command_that_goes_on(tmp_path: Path) -> None:
    html, *_ = explore_page(CHECKER.explored("smoke", TELLING), "kvproto", limit=3, command="kvproto explore smoke")
    path = written(tmp_path / "w.html", html)
    ways = ("#way=1,sequence", "")
    edge, start = ([str(given.get("title")) for _, given in browse(path, way).found] for way in ways)
    assert "kvproto explore smoke --way 1" in edge
    assert not [title for title in start if "--way" in title]


@needs_browser
def test_a_narrow_window_begins_with_what_may_happen_next(tmp_path: Path) -> None:
    html, *_ = smoke()
    seen = browse(written(tmp_path / "w.html", html), "", width=400)
    (body,) = (given for have, given in seen.found if "explores" in have)
    assert body["data-tab"] == "explore"
