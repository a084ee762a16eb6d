"""The explorer's server: clicks reach every state of a world of any size; other pages are refused."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from support.night import by_night
from test_explore import visit
from test_inspect import Page, needs_browser

from kvproto.verify.check.checker import CHECKER
from kvproto.verify.framework.explore import explore_server
from kvproto.verify.framework.explore.exploration import Exploration, Recorder
from kvproto.verify.framework.explore.explore_server import ExploreServer
from kvproto.verify.trace.rank_stories import TELLING

ROOT = Path(__file__).parent.parent
#: far larger than a page can record
LARGE = "2p2d-2x2-r2-drop"


def made(name: str) -> Callable[[], Exploration]:
    return lambda: CHECKER.explored(name, TELLING)


@contextmanager
def served(name: str, **more: Any) -> Iterator[ExploreServer]:
    with ExploreServer(0, made(name), "kvproto", **more) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def asked(server: ExploreServer, path: str, **headers: str) -> tuple[int, bytes]:
    """The server's answer to a request for this path."""
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    link.request("GET", path, headers=headers)
    answer = link.getresponse()
    found = answer.status, answer.read()
    link.close()
    return found


def way(server: ExploreServer, text: str) -> Any:
    code, body = asked(server, f"/{server.token}/way?{text}")
    return msgspec.json.decode(body) if code == 200 else body.decode()


# ---------------------------------------------------------------------------------------------------- answers
def test_an_answer_has_what_a_whole_recording_has_of_its_way() -> None:
    choices = [0, 1, 0, 0, 0]
    recorder = Recorder(CHECKER.explored("smoke", TELLING))
    whole, part = recorder.record(limit=5000), recorder.along(choices=choices)
    assert part["way"] == choices and len(part["states"]) == 6
    for kind in ("states", "next", "parts", "phrases", "told"):
        assert part[kind] and all(whole[kind][place] == item for place, item in part[kind].items())
    steps = part["next"][next(reversed(part["states"]))]
    assert steps and all(step[0] in part["phrases"] for step in steps)


def test_a_way_leads_to_the_same_state_after_the_record_has_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the record grow without end: it has one way and what was asked since at most."""
    with served("smoke") as server:
        text, found = "", way(server, "")
        while len(found["way"]) < 12:
            text = f"{text}.0".strip(".")
            found = way(server, text)
        monkeypatch.setattr(explore_server, "MOST_STATES", 10)
        again = way(server, text)
        assert again["way"] == found["way"]
        for graph in (found, again):
            graph["seen"] = [[graph["parts"][str(part)] for part in parts] for parts in graph["states"].values()]
        assert again["seen"] == found["seen"]
        assert way(server, "1")["way"] == [1]
        assert len(server._recorder.states) < 10


def test_a_way_that_is_none_is_refused() -> None:
    wrong = {"0.77": "step 2 is 77", "0.-1": "is no way", "x": "is no way", "9" * 5000: "is no way"}
    with served("smoke") as server:
        for text, says in wrong.items():
            assert says in way(server, text)


def test_no_other_page_is_answered() -> None:
    """Without this run's token, or by another name of this machine."""
    with served("smoke") as server:
        path = urlsplit(server.url).path
        assert asked(server, path)[0] == 200
        for other in ("/", "/way?0", f"/{'x' * len(server.token)}/way?0", path.upper(), "//"):
            assert asked(server, other)[0] == 403, other
        assert asked(server, path, Host="evil.example")[0] == 403
        assert asked(server, path, Host=f"localhost:{server.server_port}")[0] == 403
        assert asked(server, f"{path}other")[0] == 404


# -------------------------------------------------------------------------------------------------- the worlds
STRANGE = ["groups-in-death", "timed-slow", "timed-one-name", LARGE]
WORLDS = [*CHECKER.worlds()]


@pytest.mark.parametrize("name", by_night(WORLDS, by_day=[*STRANGE, *WORLDS[7::80]]))
def test_every_world_can_be_explored(name: str) -> None:
    """Slow things, and a crash in a world of several groups, once ended in a traceback."""
    recorder = Recorder(CHECKER.explored(name, TELLING))
    found = recorder.record(limit=30)
    assert found["next"][0] and len(found["states"]) > 1


# ------------------------------------------------------------------------------------------------- the command
def test_the_command_prints_an_address_and_ends_with_an_interrupt() -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # who is ignored hands that on
    process = subprocess.Popen(
        [sys.executable, "-m", "kvproto", "explore", "smoke", "--serve"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    signal.signal(signal.SIGINT, handler)
    assert process.stdout is not None
    address = urlsplit(process.stdout.readline().split()[0])
    link = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=30)
    link.request("GET", address.path)
    assert b"<!doctype html>" in link.getresponse().read()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "kvproto explore: interrupted\n")


# ------------------------------------------------------------------------------------------------- in a browser
def offered(seen: Page) -> list[int]:
    return sorted(int(str(given["data-choice"])) for _, given in seen.found if "data-choice" in given)


def told(seen: Page) -> dict[str, str | None]:
    """The line that says what is wrong."""
    return next(given for _, given in seen.found if given.get("id") == "differences")


@needs_browser
@pytest.mark.parametrize("width", [1500, 400])
def test_a_browser_clicks_beyond_what_a_page_could_record(width: int, tmp_path: Path) -> None:
    """Thirty clicks, each on the last step that is offered and is no fault, and one back."""
    click = (
        "let left = 31; const timer = setInterval(() => {"
        " if (way.length !== 31 - left) return;"
        " const steps = [...document.querySelectorAll('#explore .steps button:not(.fault)')];"
        " if (--left) steps.pop().click();"
        " else { clearInterval(timer); takeBack(); document.body.dataset.at = way.length + ' of ' + moments.length; }"
        "}, 20)"
    )
    with served(LARGE) as server:
        server.page = server.page.replace("</body>", f"<script>{click}</script></body>")
        seen = visit(server.url, tmp_path, width)
    (body,) = (given for have, given in seen.found if "explores" in have)
    walked, moments = str(body["data-at"]).split(" of ")
    assert walked == "29" and int(moments) > 29
    assert offered(seen) and seen.having("machine") and seen.having("moment", "lit")
    assert "hidden" in told(seen)


@needs_browser
def test_an_address_with_a_way_is_asked_for(tmp_path: Path) -> None:
    with served(LARGE) as server:
        expected = way(server, "0.0.1.0")
        seen = visit(f"{server.url}#way=0.0.1.0,explore", tmp_path)
        wrong = visit(f"{server.url}#way=0.99,explore", tmp_path)
    last = next(reversed(expected["states"]))
    assert offered(seen) == [*range(len(expected["next"][last]))]
    assert "hidden" in told(seen) and "hidden" not in told(wrong)
    assert offered(wrong), "the page begins as it would without an address"


@needs_browser
def test_a_counterexample_opens_at_its_end(tmp_path: Path) -> None:
    bug = next(name for name, bug in CHECKER.planted.items() if bug.world == "two-slots")
    with CHECKER.planting(bug):
        (found,) = CHECKER.search("two-slots", limit=None, memory=4000, report=None).violations
        with served("two-slots", way=found.events) as server:
            seen = visit(server.url, tmp_path)
    assert seen.having("broken") and not offered(seen)
    assert len(seen.having("moment")) > len(found.events) / 2


@needs_browser
def test_a_server_that_has_ended_is_told_with_the_command(tmp_path: Path) -> None:
    """The next click does nothing else: what was shown stays."""
    with served("smoke", command="kvproto explore smoke --serve") as server:
        click = "window.fetch = () => Promise.reject(new TypeError()); document.querySelector('[data-choice]').click()"
        server.page = server.page.replace("</body>", f"<script>{click}</script></body>")
        seen = visit(server.url, tmp_path)
    assert "hidden" not in told(seen) and offered(seen)
