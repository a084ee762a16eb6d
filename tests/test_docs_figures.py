"""Figures that stand in prose: how long commands take is said alike wherever it is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvproto.verify.check.configs import SUITES
from kvproto.verify.cli.check_command import EPILOG
from kvproto.verify.draw.checked_worlds import golden

ROOT = Path(__file__).parent.parent


def said(page: str) -> str:
    """A page as one line."""
    return " ".join((ROOT / page).read_text().split())


@pytest.mark.parametrize(("suite", "told"), [
    ("standard", "eight minutes on two cores"), ("two-by-two", "five minutes on two cores"),
])  # fmt: skip
def test_how_long_the_large_suites_take_is_said_alike_everywhere(suite: str, told: str) -> None:
    for page in ("CONTRIBUTING.md", "docs/checker.md"):
        assert suite in said(page) and said(page).count(told) == 1, page
    (line,) = (line for line in EPILOG.splitlines() if f"kvproto check {suite}" in line)
    assert told in line


def test_the_large_worlds_that_were_timed_are_those_of_the_suite() -> None:
    large = {name: each for name, each in golden().items() if name.startswith("2p2d-2x2-")}
    states = sum(each["states"] for each in large.values())
    assert large.keys() == set(SUITES["two-by-two"])
    assert f"the {len(large)} worlds of two by two ranks with two rooms of two chunks" in said("docs/checker.md")
    assert f"chunks (`2p2d-2x2-…`), {states / 1e6:.1f} million states" in said("docs/checker.md")


def test_every_extra_that_is_to_be_installed_is_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [(path.name, each) for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
             for found in re.findall(r"pip\s+install '(?:kvproto|\.)\[([^\]…]+)\]'", path.read_text())
             for each in found.split(",")]  # fmt: skip
    assert ("README.md", "nixl") in named and [each for each in named if each[1] not in extras] == []


def test_a_key_file_that_a_page_names_is_called_as_the_command_calls_it() -> None:
    pytest.importorskip("zmq")
    from kvproto.io.control.keys import PUBLIC, SECRET

    for page in ("sglang", "security", "embedding", "guide", "operating"):
        for name in re.findall(r"/etc/kvproto/([\w.]+)", said(f"docs/{page}.md")):
            assert name.endswith((SECRET, PUBLIC)), (page, name)


def test_the_page_has_the_figures_of_the_kill_table() -> None:
    table = (ROOT / "spec" / "code-kill-table.md").read_text()
    rows = re.findall(r"^\| (\S+)" + r" \| (\d+)" * 6 + r" \|$", table, re.MULTILINE)
    *files, (name, *sums) = [(name, *map(int, counts)) for name, *counts in rows]
    assert name == "all" and sums == [sum(counts) for counts in list(zip(*files, strict=True))[1:]]
    assert all(tried == killed + explained + left for _, tried, killed, explained, left, *_ in files)
    assert all(older <= killed + left for _, _, killed, _, left, _, older in files)
    tried, killed, explained, left, untried, older = sums
    assert f"{older} of them, in {sum(each[-1] > 0 for each in files)} files" in table
    told = f"Of {tried:,} mutants of {len(files)} files tests kill {killed:,}, {explained} have a reason"
    assert f"{told} and {left} are left; {untried:,} were not tried" in said("docs/checker.md")


def test_the_pages_have_the_figures_of_the_mutants_of_the_tables() -> None:
    head, *rows = re.findall(r"^\|(.+)\|$", (ROOT / "spec" / "table-kill-table.md").read_text(), re.MULTILINE)
    every = next(row for row in rows if row.startswith(" all "))
    by = dict(zip([each.strip() for each in head.split("|")], [each.strip() for each in every.split("|")], strict=True))
    n = {name: int(count) for name, count in by.items() if name != "operator"}
    told = (f"of {n['mutants']:,} the lint notices {n['lint']}, proofs {n['proof']:,}, the small worlds "
            f"{n['world'] + n['timed']}, tests {n['test']}; {n['equal']} are equal, {n['agreed']} to all who "
            f"keep to the protocol, {n['explained']} have a reason")  # fmt: skip
    assert n["survive"] == 0 and told in said("docs/checker.md")


def test_how_many_mutants_there_are_is_said_to_the_hundred() -> None:
    table = (ROOT / "spec" / "code-kill-table.md").read_text()
    (every,) = re.findall(r"^Made by .*: (\d+) mutants", table, re.MULTILINE)
    assert f"# of some {int(every) // 100 * 100:,}" in said("docs/checker.md")


PRETEND = """
import sys
import pytest, torch
torch.cuda.is_available = lambda: True
torch.cuda.mem_get_info = lambda *_: (1 << 40, 1 << 40)
sys.exit(pytest.main(["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/test_kernels_gpu.py"]))
"""


def test_the_page_of_commands_says_how_many_tests_the_kernels_have_on_a_gpu() -> None:
    for each in ("torch", "triton"):
        pytest.importorskip(each)
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", PRETEND], cwd=ROOT, env=env, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    (count,) = re.findall(r"^(\d+) tests collected", done.stdout, re.MULTILINE) or [done.stdout + done.stderr]
    assert f"tests/test_kernels_gpu.py # {count} tests" in said("docs/commands.md")
