"""The tests page's examples run as they stand, and a missing library is named with its installation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvproto.verify.testing
from kvproto.verify.sim.member import FaultChances

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text()
CODE: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def said(code: str) -> str:
    """The output of a process of its own, which must succeed."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(*modules: str) -> str:
    """Code that begins a process in which these are not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"


def shown(word: str) -> str:
    (code,) = (each for each in CODE if word in each)
    return code


def test_the_world_in_lists_runs_with_the_core_alone() -> None:
    said(without("torch", "zmq", "numpy", "nixl", "hypothesis") + shown("SimulatedWorld("))


def test_a_pair_runs_as_it_is_shown() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("zmq")
    said(shown("with Pair("))


@pytest.mark.parametrize(
    ("name", "missing", "extras"),
    [("EngineStage", "torch", "nixl,gpu"), ("Pair", "zmq", "nixl,gpu"), ("TransportContract", "pytest", "nixl,test")],
)  # fmt: skip
def test_a_missing_library_is_told_with_what_installs_it(name: str, missing: str, extras: str) -> None:
    code = f"""
import kvproto.verify.testing
from kvproto.errors import MissingExtraError
try:
    kvproto.verify.testing.{name}
except MissingExtraError as error:
    print(error)
"""
    told = said(without(missing) + code)
    assert told == (
        f"kvproto.verify.testing.{name} needs {missing}, which is not installed: pip install 'kvproto[{extras}]'\n"
    )  # fmt: skip


def test_every_name_is_there_and_on_the_page() -> None:
    for name in kvproto.verify.testing.__all__:
        assert getattr(kvproto.verify.testing, name) is not None
        assert name in PAGE or name == "Inside", name


def test_the_menu_of_faults_is_whole() -> None:
    menu = PAGE[PAGE.index("## The menu of faults") : PAGE.index("## Real endpoints")]
    assert {name for name in FaultChances.__struct_fields__ if f"`{name}`" not in menu} == {"batches"}


def test_what_is_shown_can_be_read_and_imported() -> None:
    for code in CODE:
        compile(code, "docs/testing.md", "exec")
        for line in re.findall(r"^from kvproto[\w.]* import .*$", code, re.MULTILINE):
            exec(line, {})  # noqa: S102  # the page's own imports
