"""Other systems' protocols: the search finds every fault known of them, and none in their mends."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.night import night_alone
from support.pages import commands, compare, run

from examples.others import report
from examples.others.known import SYSTEMS, System, rows_of_mend, search
from examples.others.sglang_staging import parties as sglang
from examples.others.sglang_staging.decode import Ring, may_be_written
from examples.others.vllm_push import parties as vllm

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "check_your_connector.md").read_text()
#: the property that breaks, and in how many steps: a change of meaning is seen in review
BREAKS = {
    "R1": ("S2", 7), "R2": ("S12", 12), "R3": ("L1", 12), "R4": ("L1", 17), "R5": ("S3", 6), "R6": ("S10", 3),
    "R7": ("S10", 4), "R8": ("L1", 9), "R9": ("S9", 8), "R10": ("S10", 5), "R11": ("S6", 4), "R12": ("S12", 15),
    "R13": ("L1", 2), "R14": ("L1", 4), "R15": ("S12", 10), "R16": ("S5", 7), "R17": ("S4", 5),
    "C1": ("S1", 6), "C3": ("S12", 5), "L1": ("L1", 2), "S2": ("L3", 6), "V5": ("S4", 5),
}  # fmt: skip
CASES = [(system, case) for system in SYSTEMS for case in system.cases]
#: states up to which mended worlds are searched here; those that are larger than that
BOUND, LARGE = 6_000, {"R3", "R12", "R17"}
by_night_alone = night_alone("a million states")
each_case = pytest.mark.parametrize(("system", "case"), CASES, ids=[case for _, case in CASES])


@each_case
def test_what_is_known_is_found(system: System, case: str) -> None:
    (tale,) = search(system, case).violations
    assert (tale.property, len(tale.events)) == BREAKS[case]
    assert tale.story().count("\n") == len(tale.events), "a line a step, and what is wrong"


@each_case
def test_it_is_gone_with_its_mend(system: System, case: str) -> None:
    result = search(system, case, system.mends[case], BOUND)
    assert result.ended == ("limit" if case in LARGE else "exhausted")
    assert not result.violations


def test_every_mend_is_rows() -> None:
    for system, case in CASES:
        away, instead = rows_of_mend(system, case)
        assert away or instead, case


@by_night_alone
@each_case
def test_with_every_mend_nothing_is_left(system: System, case: str) -> None:
    result = search(system, case, system.every, 300_000, whole=True)
    assert result.ended == ("limit" if case == "R3" else "exhausted")


@by_night_alone
@pytest.mark.parametrize("case", ["R12", "R17"])
def test_with_its_mend_a_large_world_is_searched_to_its_end(case: str) -> None:
    system = SYSTEMS[0]
    assert search(system, case, system.mends[case], 300_000).ended == "exhausted"


def test_the_tables_have_no_error_but_what_only_mends_reach() -> None:
    assert not sglang.PROTOCOL.lint([])
    assert not vllm.MENDED.lint([])
    assert [(each.kind, each.text) for each in vllm.PROTOCOL.lint([])] == [("unreachable", "HELD")]
    assert [(each.kind, each.text) for each in sglang.MENDED.lint([])] == [("unreachable", "DEAD")]


def test_the_ring_gives_at_once_and_the_writer_waits() -> None:
    ring = Ring(4).assign((1, 0), 3).assign((2, 0), 2)
    first, second = ring.region((1, 0)), ring.region((2, 0))
    assert first is not None
    assert second is not None
    assert may_be_written(first, (0, 0))
    assert not may_be_written(second, ring.watermark), "where the first still is"
    assert may_be_written(second, ring.free((1, 0)).watermark)
    assert ring.free((1, 0)).free((2, 0)).watermark == (2, 0), "an empty ring begins anew"


def test_the_report_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["R1", "C3", "--bound", "3000", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["case"], first["broken"], first["mended"]) == ("R1", "S2", "exhausted")
    assert second["rows_away"] != second["rows_instead"]
    assert report.main(["C3"]) == 0
    assert "1 of 1 found" in capsys.readouterr().out


def test_the_report_fails_when_something_known_is_not_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    system = SYSTEMS[1]
    mended = {name: lambda _mends=frozenset(), asks=(), make=make: make(system.every, asks)
              for name, make in system.worlds.items()}  # fmt: skip
    monkeypatch.setattr(report, "SYSTEMS", (replace(system, worlds=mended),))
    assert report.main(["C3"]) == 1
    assert "**not found**" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- the page
def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    shown = [each for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for each in commands(block)]
    assert len(shown) >= 5
    for command, lines in shown:
        if command.startswith("python"):
            done = subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False)  # fmt: skip
            printed = done.stdout
        else:
            printed = run(command, tmp_path, ROOT)
        compare([line for line in lines if line != "…"], printed)


def test_the_code_of_the_page_stands_in_the_files_that_it_names() -> None:
    blocks = re.findall(r"```python\n# (examples/\S+)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 4
    for name, block in blocks:
        lines = {line.strip() for line in (ROOT / name).read_text().splitlines()}
        for line in block.splitlines():
            assert line.strip() in lines or line.strip() == "...", f"{name}: {line}"


def test_the_results_have_every_case() -> None:
    text = (ROOT / "examples" / "results" / "others.md").read_text()
    assert all(f"| {case} |" in text and f"### {case}: " in text for _, case in CASES)
    assert "**" not in text.split("## The stories")[0], "nothing is missing, nothing broken"
