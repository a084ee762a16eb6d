"""Witness programs Spin and Rumur as functions: a model's text goes in, the finding comes out."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

SPEC = Path(__file__).parent.parent.parent / "spec"
WORDS = {"x86_64": ["-mcx16"]}  # Rumur's verifier exchanges two words at a time


class Spun(NamedTuple):
    """Spin's verdict; `error` is the first, in Spin's words."""

    stored: int
    transitions: int
    errors: int
    error: str


class Rumoured(NamedTuple):
    """Rumur's verdict; `error` is empty if there was none."""

    states: int
    fired: int
    covers: dict[str, int]
    error: str


def need(*programs: str) -> None:
    """Skip the test where a program is missing; on a build machine that is a failure."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"missing: {', '.join(missing)} (.ci/run installs them)")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})")


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode in (0, 1), f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def spin(text: str) -> Spun:
    """Search this Promela to the end, without any reduction."""
    need("spin", "gcc")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.pml").write_text(text)
        said = _run(folder, "spin", "-a", "model.pml")
        assert (Path(folder) / "pan.c").exists(), said
        _run(folder, "gcc", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=2048", "-o", "pan", "pan.c")
        said = _run(folder, "./pan", "-m10000", "-w22")
    assert "max search depth too small" not in said, said
    numbers = [re.search(rf"(\d+) {what}", said) for what in ("states, stored", "transitions")]
    errors = re.search(r"errors: (\d+)", said)
    assert errors is not None and all(numbers), said
    stored, transitions = (int(found[1]) for found in numbers if found)
    first = re.search(r"pan:\d+: (.*)", said)
    return Spun(stored, transitions, int(errors[1]), first[1] if first else "")


def model(name: str, constants: Mapping[str, int], kinds: Container[str] | None = None) -> str:
    """A hand-written model, with some of its constants changed.

    `kinds`: the only ones of its covers of which there is a state; of the others an invariant says that there is none.
    (Rumur counts a cover without a state as an error, and after an error it does not look at liveness.)
    """
    text = (SPEC / "murphi" / name).read_text()
    for constant, value in constants.items():
        text, n = re.subn(rf"^(  {constant}): \d+;", rf"\1: {value};", text, flags=re.MULTILINE)
        assert n == 1, f"{name} has no constant {constant}"
    for kind in re.findall(r'^cover "(.*?)"', text, flags=re.MULTILINE):
        if kinds is not None and kind not in kinds:
            text = re.sub(rf'(?ms)^cover "{kind}" (.*?);', rf'invariant "never {kind}" !(\1);', text)
    return text


def bare(text: str) -> str:
    return re.sub(r'(?ms)^cover ".*?" .*?;\n', "", text)


def changed(text: str, old: str, new: str) -> str:
    """The model with one passage changed, which must be there exactly once."""
    assert text.count(old) == 1, f"{text.count(old)} places: {old}"
    return text.replace(old, new)


def rumur(text: str, *options: str) -> Rumoured:
    """Search this Murphi model to the end."""
    need("rumur", "gcc")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.m").write_text(text)
        asked = ["--threads", "1", "--deadlock-detection", "off", "--counterexample-trace", "off"]
        asked += ["--output-format", "machine-readable", *options]
        _run(folder, "rumur", *asked, "--output", "model.c", "model.m")
        _run(folder, "gcc", "-O1", "-w", *WORDS.get(platform.machine(), []), "-o", "model", "model.c", "-pthread")
        root = ET.fromstring(_run(folder, "./model"))  # noqa: S314 it is what our own program prints
    summary = root.find("summary")
    assert summary is not None
    covers = {found.attrib["message"]: int(found.attrib["count"]) for found in root.iter("cover_result")}
    errors = [found.findtext("message", "").strip() for found in root.iter("error")]
    assert all(covers.values()), f"covers without a state keep Rumur from looking at liveness: {covers}"
    assert len(errors) == int(summary.attrib["errors"]), summary.attrib
    return Rumoured(int(summary.attrib["states"]), int(summary.attrib["rules_fired"]), covers, "; ".join(errors))
