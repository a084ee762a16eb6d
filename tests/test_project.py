"""The project around the code: what an import loads, what is pinned, and that CI runs what people run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
HEAVY = ("torch", "triton", "transformers", "zmq", "nixl", "nixl_cu12", "nixl_cu13", "mooncake", "numpy")
# What may use them: sockets and devices, what puts them together for an engine, and what runs engines.
WITH_SIDE_EFFECTS = (
    "io", "data", "endpoint", "loop", "metrics", "lab/demo", "lab/bench", "lab/torture", "verify/testing",
    "verify/adapters/conformance.py", "verify/check/called_groups.py", "verify/check/calling.py",
    "verify/mutate", "verify/cli/mutate_command.py", "lab/warm_ranks.py",
    "layout/byte_runs_numpy.py", "lab/cli/demo_command.py",
    "adapters/geometry.py", "adapters/stage_caches.py", "adapters/worker.py", "adapters/prefill_worker.py",
    "adapters/decode_worker.py",
    "adapters/vllm", "adapters/sglang",
    "verify/cli/simulate_command.py", "verify/cli/explore_command.py", "lab/cli/torture_command.py",
    "lab/cli/fuzz_command.py", "lab/cli/faults_command.py",
)  # fmt: skip

LOADED = """
import importlib, pkgutil, sys
import kvproto
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def run(*command: str, timeout: float = 120.0) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def core_modules() -> list[str]:
    """Every module that a person who only checks or draws the protocol may import."""
    names = []
    for path in sorted((ROOT / "kvproto").rglob("*.py")):
        inside = path.relative_to(ROOT / "kvproto")
        parts = ("kvproto", *inside.with_suffix("").parts)
        if parts[-1] != "__main__" and not any(inside.is_relative_to(each) for each in WITH_SIDE_EFFECTS):
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


@pytest.mark.parametrize("modules", [[], core_modules()], ids=["kvproto", "every core module"])
def test_the_core_loads_no_device_and_no_transport(modules: list[str]) -> None:
    loaded = set(run(sys.executable, "-c", LOADED, *modules).split())
    assert "kvproto" in loaded
    assert not loaded & set(HEAVY)


def wanted(requirements: list[str]) -> set[str]:
    """Names that a list of requirements asks for, those of our own extras included."""
    names: set[str] = set()
    for requirement in requirements:
        found = re.match(r"([A-Za-z0-9_.-]+)(?:\[([a-z0-9,-]+)\])?", requirement)
        assert found is not None, requirement
        if found[1] == "kvproto":
            names |= wanted([each for extra in found[2].split(",") for each in EXTRAS[extra]])
        else:
            names.add(re.sub(r"[-_.]+", "-", found[1]).lower())
    return names


def pins() -> dict[str, str]:
    """The constraints file, by normal name."""
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_everything_that_make_installs_is_pinned() -> None:
    asked = wanted(PROJECT["project"]["dependencies"] + EXTRAS["test"] + EXTRAS["demo"])
    assert asked <= set(pins())
    assert "+" not in "".join(pins().values()), "a build's own suffix is not to be had from every index"


def test_torch_is_installed_first_and_by_its_pin() -> None:
    steps = run("make", "--dry-run", "--always-make", ".venv/.test").splitlines()
    first, *rest = [step for step in steps if "-m pip" in step]
    assert first.endswith("torch setuptools")
    assert rest
    assert all("--constraint requirements/constraints.txt" in step for step in (first, *rest))
    assert re.fullmatch(r"[0-9.]+", pins()["torch"])


def test_no_two_mooncakes_can_be_chosen_together() -> None:
    variants = {extra for extra in EXTRAS if extra.startswith("mooncake-")}
    distributions = {name for extra in variants for name in wanted(EXTRAS[extra]) if name.startswith("mooncake")}
    assert len(variants) == len(distributions) == 3
    assert variants in [{each["extra"] for each in group} for group in PROJECT["tool"]["uv"]["conflicts"]]
    for extra in EXTRAS.keys() - variants:
        assert len(distributions & wanted(EXTRAS[extra])) <= 1, extra


def test_every_rule_that_is_not_kept_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    lint = text[text.index("[tool.ruff.lint]") :]
    excluded = re.findall(r'^    "([A-Z]+[0-9]*)",(.*)$', lint, re.MULTILINE)
    assert len(excluded) > 20
    assert [rule for rule, reason in excluded if not re.match(r" +# \w.{5,}", reason)] == []
    assert PROJECT["tool"]["ruff"]["lint"]["select"] == ["ALL"]


def test_the_build_machine_runs_the_command_that_people_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().splitlines()[-1] == "make test"
    run("bash", "-n", str(script))
    steps = run("make", "--dry-run", "test")
    for tool in ("ruff", "mypy", "pytest"):
        assert tool in steps


def test_workflows_run_the_gate_and_try_the_packages_with_each_python() -> None:
    gate, packages = ((ROOT / ".github" / "workflows" / f"{name}.yml").read_text() for name in ("test", "packages"))
    assert "run: .ci/run\n" in gate and "tests/try_packages.py" in packages
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert named and f"python: {json.dumps(named)}" in packages


def test_this_version_is_in_the_changelog_and_its_licence_in_full() -> None:
    version = PROJECT["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {version}" in changes
    assert max(len(each.splitlines()) for each in re.findall(r"^- .*\n(?:  .*\n)*", changes, re.MULTILINE)) <= 3
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert "END OF TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_text()


@pytest.mark.skipif(not os.environ.get("CI"), reason="a machine of one's own need not have every backend")
@pytest.mark.parametrize("module", ["nixl._api", "mooncake.engine", "triton", "zmq"])
def test_the_build_machine_has_every_backend(module: str) -> None:
    run(sys.executable, "-c", f"import os, {module}; os._exit(0)")


@pytest.mark.skipif(not os.environ.get("CI"), reason="a machine of one's own need not have every program")
@pytest.mark.parametrize("program", ["spin", "rumur", "gcc", "chromium", "ip"])
def test_the_build_machine_has_every_program(program: str) -> None:
    assert shutil.which(program) is not None


def test_the_readme_is_read_in_five_minutes_and_says_each_figure_once() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split()) <= 1000
    assert re.search(r"^\| \| SGLang [\d.]+, .* vLLM [\d.]+, .* TensorRT-LLM \| kvproto \|$", text, re.MULTILINE)
    shown = text.partition("## Three figures")[2].partition("## ")[0]
    figures = re.findall(r"^- (.*?)(?=^- |^\[)", shown, re.MULTILINE | re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        assert "H200" in figure and re.search(r"`kvproto \w+", figure), "the machine and the command of its run"
        assert all(text.count(number) == 1 for number in re.findall(r"\d+\.\d{3,}", figure))
