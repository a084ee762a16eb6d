"""Every Python block of a page can be pasted, is a marked fragment, or is in the file it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvproto

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}", match[1])
    for path in PAGES
    for text in [path.read_text()]
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]
FRAGMENT, FILE = "# a fragment: ", re.compile(r"# ([\w/]+\.py)\n")


def test_a_block_that_is_no_fragment_defines_every_name_that_it_uses(tmp_path: Path) -> None:
    whole = {place: code for place, code in BLOCKS if not code.startswith(FRAGMENT) and not FILE.match(code)}
    assert len(whole) >= 4, "the pages are found"
    for number, (place, code) in enumerate(whole.items()):
        (tmp_path / f"block_{number}.py").write_text(f"# {place}\n{code}")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select", "F821,E9", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{dict(enumerate(whole))}"


@pytest.mark.parametrize(("place", "code"), BLOCKS, ids=[place for place, _ in BLOCKS])
def test_a_block_of_a_file_is_in_it(place: str, code: str) -> None:
    named = FILE.match(code)
    if named is None or not (path := ROOT / named[1]).exists():
        return  # no file of the repository: a page may have its reader write one
    said = [line.strip() for line in path.read_text().splitlines()]
    wanted = [line.strip() for line in code.splitlines()[1:] if line.strip() and line.strip() != "..."]
    lacking = [line for line in wanted if line not in said]
    assert not lacking, f"{place}: {path.name} has no such line: {lacking}"


def test_settings_and_timers_that_a_page_names_are_there() -> None:
    kinds: dict[str, type] = {"Settings": kvproto.Settings, "Timing": kvproto.Timing}
    pages = [(path.name, path.read_text()) for path in PAGES if path.name != "CHANGELOG.md"]
    named = [(name, *each) for name, text in pages for each in re.findall(r"\b(Settings|Timing)\.([a-z]\w*)", text)]
    assert len(named) > 30
    assert [each for each in named if not hasattr(kinds[each[1]], each[2])] == []
