"""The search in C meets the same states as the one in Python, and tells the same counterexamples.

What is planted in its source, in its loop and in its symmetry, is noticed by the same comparison.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.cli import main
from kvproto.verify.check.config import Budget, Config
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.check.native import answers, build, library, native_search
from kvproto.verify.check.native.native_search import EnginesDisagreeError
from kvproto.verify.check.new_rooms import NewRoomSearch
from kvproto.verify.check.search import Engine, NativeNewRoomSearch, NativeRankSearch, RankSearch, check
from kvproto.verify.check.small_worlds import AT_ONCE
from kvproto.verify.framework.search import Search
from kvproto.verify.framework.table_patching import TablePatch

COMPILER = library.compiler()
pytestmark = pytest.mark.skipif(COMPILER is None and not os.environ.get("CI"), reason="there is no C compiler")

AT_ONCE_WORLD = Config(ring=1, chunks=1, engine=AT_ONCE, swift=True)
WORLDS = {
    **{
        name: replace(CONFIGS[name], limit=20_000)
        for name in ("two-slots-tells", "abort-link-tells", "kernel-duplicate-tells", "unordered", "death",
                     "groups-cross", "1p2d-2x2-r2-calm", "2p1d-2x2-r2-duplicate")
    },
    **{
        f"two rooms, {kind}": replace(AT_ONCE_WORLD, rooms=2, budget=Budget(**{kind: 1}))
        for kind in ("link", "crash", "drop", "abort")
    },
    "three rooms": replace(AT_ONCE_WORLD, rooms=3),
}  # fmt: skip
#: a mutant for each way in which a search ends with a violation: in a step, of a pair, stuck, for ever, in a circle
BROKEN = ("dummy-always-true", "read-before-produced", "lost-response", "req-before-registration", "rank-is-enough",
          "deferral-taxes-ready", "stale-subscriber", "early-answer-kept-aside", "success-forgotten")  # fmt: skip


def found(search: Search) -> dict[str, Any]:
    """Return all that both engines have to find."""
    result = search.result
    paths = [search._path(at) for at in (len(search.order) - 1, len(search.order) // 2)] if search.order else []
    return {
        "states": list(search.order), "transitions": result.transitions, "depth": result.depth, "ended": result.ended,
        "sights": result.sights, "rows": result.rows, "at rest": search.rests, "paths": paths,
        "violations": [each if isinstance(each, tuple) else each.jsonl() for each in result.violations],
    }  # fmt: skip


def differences(config: Config, native: type[RankSearch] = NativeRankSearch) -> list[str]:
    """The names of all that the two engines find otherwise."""
    search = native("world", config)
    search.run()
    mine, theirs = found(search), by_python(config)
    search.close()
    return [name for name in theirs if mine[name] != theirs[name]]


@cache
def by_python(config: Config) -> dict[str, Any]:
    search = RankSearch("world", config)
    search.run()
    return found(search)


@pytest.mark.parametrize("name", WORLDS)
def test_both_engines_meet_the_same_states_in_the_same_order(name: str) -> None:
    assert differences(WORLDS[name]) == []


def test_both_engines_search_the_same_new_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[type, dict[str, Any]]] = []
    run = NewRoomSearch.run

    def noted(self: NewRoomSearch) -> Any:
        result = run(self)
        runs.append((type(self), found(self)))
        return result

    monkeypatch.setattr(NewRoomSearch, "run", noted)
    for searched in (RankSearch, NativeRankSearch):
        searched("world", replace(AT_ONCE_WORLD, budget=Budget(link=1, crash=1))).run()
    assert [kind for kind, _ in runs] == [NewRoomSearch, NativeNewRoomSearch]
    assert runs[0][1] == runs[1][1] and runs[0][1]["states"]


@pytest.mark.parametrize("name", BROKEN)
def test_both_engines_tell_the_same_counterexample(name: str) -> None:
    assert told(name, "native") == told(name, "python")
    assert told(name, "python")[0]


@cache
def told(name: str, engine: Engine) -> tuple[Any, ...]:
    """The counterexamples of a mutant, and how far the search for them went."""
    mutation = MUTANTS[name]
    with TablePatch() as bench:
        mutation.apply(bench)
        result = check("", CONFIGS[mutation.world], engine=engine)
    return [tale.jsonl() for tale in result.violations], result.states, result.transitions, result.depth


# ------------------------------------------------------------------------------------------- planted in C
PLANTED = {
    "numbers lose their second byte": (
        "abort-link-tells", "memory.c", "to[1] = (uint8_t)(number >> 8);", "to[1] = 0;"),
    "a part that grows leaves states as they were": (
        "abort-link-tells", "memory.c", "        pack(states, state, states->bytes + at * states->size);\n", ""),
    "what is too wide is cut off": (
        "abort-link-tells", "memory.c", "lost |= number >> 8 * width;", ""),
    "the ends of links are all alike": (
        "abort-link-tells", "answers.c", "(uint64_t)prefill << 24 | decode;", "0;"),
    "a message is not taken from its wire": (
        "two-slots-tells", "steps.c", "    now[wire] = offer->wire;\n    Outcome", "    Outcome"),
    "a step that breaks a property goes on": (
        "read-before-produced", "steps.c", "if (s->outcomes[which].verdict != FINE) longjmp(leave, FAULTY);", ""),
    "what is paid costs nothing": (
        "abort-link-tells", "steps.c", "    now[s->last] = left;\n    take(s, now, deed", "    take(s, now, deed"),
    "a timer needs no quiet link": (
        "abort-link-tells", "steps.c", "if (!(noisy & s->choices[i].links))", "if (1)"),
    "a long timer ends while others are at work": (
        "abort-link-tells", "steps.c", "!(moving || noisy) && (untold", "(moving || 1) && (untold"),
    "the last in turn goes first": (
        "1p2d-2x2-r2-calm", "hasty.c", "[i].rank < turns->at[first].rank", "[i].rank > turns->at[first].rank"),
    "a level is forgotten": (
        "two-slots-tells", "search.c", "s->depth++; ", ""),
    "timers count as work": (
        "abort-link-tells", "search.c", "kind == TIMER ? TIMER_EDGE : 0", "0"),
    "everything reaches an end": (
        "success-forgotten", "graph.c", "if (reached[s->edges.at[i] & ~TIMER_EDGE]) ", ""),
    "no circle is found": (
        "deferral-taxes-ready", "graph.c", "if (incoming[at] != NONE) found", "if (0) found"),
    "nothing is stuck": (
        "dummy-always-true", "search.c", "if (stuck && !rests(s, state)) return STUCK;", ""),
    "symmetry: wires keep their rooms": (
        "two rooms, drop", "search.c", "other[at] = exchanged(s, swap, at, state[at]);",
        "other[at] = at < s->rules.nodes ? exchanged(s, swap, at, state[at]) : state[at];"),
    "symmetry: the greatest is kept": (
        "two rooms, drop", "search.c", "if (before(other, best, s->parts))", "if (before(best, other, s->parts))"),
    "symmetry: the first part alone decides": (
        "two rooms, drop", "search.c", "first > best[0]", "first >= best[0]"),
    "symmetry: one exchange of several": (
        "three rooms", "search.c", "swap < s->rules.swaps; swap++) {\n        N first",
        "swap < 1; swap++) {\n        N first"),
}  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the world in which a fault, planted in the source of the search, has to be noticed."""
    world, file, was, becomes = PLANTED[request.param]
    folder = Path(library.__file__).parent
    for name in build.SOURCES:
        text = (folder / name).read_text()
        assert name != file or text.count(was) >= 1, f"{file} has no {was!r}"
        (tmp_path / name).write_text(text.replace(was, becomes) if name == file else text)
    made = tmp_path / "planted.so"
    assert COMPILER is not None
    subprocess.run([*build.command(COMPILER, tmp_path, made), "-O0", "-w"], check=True)
    monkeypatch.setattr(native_search, "library", lambda: library.declared(ctypes.CDLL(str(made))))
    return world


@pytest.mark.parametrize("planted", PLANTED, indirect=True)
def test_a_fault_of_the_search_in_c_is_noticed(planted: str) -> None:
    assert noticed(planted)


def noticed(planted: str) -> bool:
    """Whether a world or a mutant comes out otherwise, or a way cannot be walked again in Python."""
    try:
        if planted in WORLDS:
            return differences(WORLDS[planted]) != []
        return told.__wrapped__(planted, "native") != told(planted, "python")
    except (EnginesDisagreeError, LookupError):
        return True


def test_what_python_does_not_find_broken_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers.Answers, "_settled", lambda *_: [0])
    with pytest.raises(EnginesDisagreeError, match="the one in Python does not"):
        NativeRankSearch("world", CONFIGS["smoke"]).run()


def test_what_an_answer_raises_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NativeRankSearch, "NEW_ROOMS", NativeNewRoomSearch)
    search = NativeRankSearch("world", CONFIGS["smoke"])
    monkeypatch.setattr(search.world, "couple", interrupted)
    assert search.run().ended == "interrupted"


def test_a_search_stops_at_its_limit() -> None:
    config = replace(CONFIGS["link"], limit=5_000)
    assert differences(config) == [] and by_python(config)["ended"] == "limit"


def test_a_state_takes_48_bytes_at_most() -> None:
    search = NativeRankSearch("", replace(CONFIGS["2p1d-2rooms-calm"], limit=20_000))
    search.run()
    assert len(search.order) >= 20_000
    assert search._c.search_bytes(search._search) <= 48 * len(search.order)


# ------------------------------------------------------------------------------------------- which engine
def test_what_needs_a_clock_is_searched_in_python() -> None:
    assert check("", CONFIGS["timed-no-aux"]).engine == "python"
    assert check("", CONFIGS["smoke"]).engine == "native"


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KVPROTO_NATIVE", "0")
    assert main(["check", "smoke", "--json"]) == 0
    assert [run["engine"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["python"]
    assert main(["check", "smoke", "--engine", "native"]) == 2
    assert "KVPROTO_NATIVE=0" in capsys.readouterr().err


def test_without_a_compiler_the_search_in_python_has_the_same_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_it = check("", CONFIGS["smoke"])
    library.library.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    without = check("", CONFIGS["smoke"])
    assert (with_it.engine, without.engine) == ("native", "python")
    assert (with_it.states, with_it.transitions, with_it.depth) == (without.states, without.transitions, without.depth)
    assert main(["check", "smoke", "--engine", "native"]) == 2
    assert "install gcc" in capsys.readouterr().err


def test_worlds_of_other_protocols_have_one_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--tables", "examples.two_phase_commit.parties:PROTOCOL", "--engine", "native"]) == 2
    assert "in Python alone" in capsys.readouterr().err


def test_a_compiled_search_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library.library.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        assert library.missing() is None
        library.library.cache_clear()
        monkeypatch.setattr(library, "compiler", lambda: None)  # the second time it is there
    (kept,) = (tmp_path / "kvproto").iterdir()
    assert kept.suffix == ".so"


def test_an_interrupt_on_the_way_into_an_answer_ends_the_search_well() -> None:
    search = NativeRankSearch("smoke", CONFIGS["smoke"])
    asked = 0

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        nonlocal asked
        if event == "call" and frame.f_code is answers.Answers.answer.__code__:
            asked += 1
            if asked == 20:
                signal.raise_signal(signal.SIGINT)  # before the first line: no `except` of the answer sees it

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setprofile(interrupt)
    try:
        result = search.run()
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, handler)
    assert (asked, result.ended, result.violations) == (20, "interrupted", [])
