"""The distributions: a wheel with all that runs, and an archive with all that work on it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from kvproto.verify.check.native.library import compiler

ROOT = Path(__file__).parent.parent
#: what a checkout has and no archive should
OWN = (".git", ".venv", ".engines", "build", "dist", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
#: where everything belongs into the archive of sources
WHOLE = ("docs", "examples", "kvproto", "requirements", "spec", "tests")
SOURCES = """
import os, sys
from setuptools import build_meta
print(build_meta.build_sdist(sys.argv[1]))
"""


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(root: Path) -> set[str]:
    """Every file of a checkout that is somebody's work."""
    found = {path.relative_to(root) for top in WHOLE for path in (root / top).rglob("*") if path.is_file()}
    found |= {path.relative_to(root) for path in root.iterdir() if path.suffix in {".md", ".toml", ".in"}}
    return {str(path) for path in found if "__pycache__" not in path.parts and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that a build leaves nothing in the checkout and finds nothing that an older one has left."""
    copy = tmp_path_factory.mktemp("checkout") / "kvproto"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*OWN, "__pycache__", "*.egg-info"))
    return copy


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of sources, by the build backend alone: no network, and nothing but what is installed."""
    out = tmp_path_factory.mktemp("sdist")
    name = run(sys.executable, "-c", SOURCES, str(out), cwd=checkout).splitlines()[-1]
    return out / name


def built(sdist: Path, out: Path, **more: str) -> Path:
    """A wheel, made from the unpacked archive and not from the checkout."""
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    (tree,) = (each for each in out.iterdir() if each.is_dir())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    env = {name: value for name, value in os.environ.items() if name != "KVPROTO_BUILD_NATIVE"} | more
    run(*pip, "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(tree), cwd=out, env=env)
    (made,) = out.glob("kvproto-*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for every machine."""
    return built(sdist, tmp_path_factory.mktemp("wheel"))


def test_the_archive_of_sources_is_complete(sdist: Path, checkout: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert files_of(checkout) - inside == set()
    assert {"Makefile", "LICENSE", "PKG-INFO", ".ci/run"} <= inside
    assert not [name for name in inside if name.endswith(".pyc") or "__pycache__" in name]


def test_the_wheel_has_every_module_and_what_modules_read_and_nothing_else(wheel: Path, checkout: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == {name for name in files_of(checkout) if name.startswith("kvproto/")}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        said = Parser().parsestr(archive.read(path).decode())
        (entries,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert "kvproto = kvproto.cli:main" in archive.read(entries).decode()
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    assert wheel.name.endswith("-py3-none-any.whl")
    assert said["License-Expression"] == "Apache-2.0"
    assert {"nixl", "gpu", "docs", "test"} <= set(said.get_all("Provides-Extra", []))
    needed = [each for each in said.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert [each.partition(">")[0] for each in needed] == ["msgspec"]


def test_what_is_installed_from_it_runs_alone(wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(wheel, tmp_path, "zip")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import kvproto.cli; print(kvproto.__file__)"
    said = run(sys.executable, "-c", code + "; kvproto.cli.main(['lint'])", str(tmp_path), cwd=tmp_path)
    assert str(tmp_path) in said and "no errors" in said


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("engine", ["native", "python"])
def test_what_is_installed_searches_in_c_where_there_is_a_compiler(wheel: Path, tmp_path: Path, engine: str) -> None:
    """The wheel for every machine has the sources, and a process without a compiler searches in Python."""
    said = searched(wheel, tmp_path, engine, compiling=engine == "native")
    compiled = "the default, compiled on this machine"
    assert (compiled if engine == "native" else "there is no C compiler: install gcc") in said


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
def test_a_wheel_with_the_compiled_search_needs_no_compiler(sdist: Path, tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    made = built(sdist, out, KVPROTO_BUILD_NATIVE="1")
    python, interface, machine = made.stem.split("-")[2:]
    assert (python, interface) == ("py3", "none") and machine.startswith("linux_")
    with zipfile.ZipFile(made) as archive:
        assert len([name for name in archive.namelist() if name.endswith(".so")]) == 1
        (about,) = (name for name in archive.namelist() if name.endswith("/WHEEL"))
        assert b"Root-Is-Purelib: false" in archive.read(about)
    assert "the default, compiled in its wheel" in searched(made, tmp_path, "native", compiling=False)
    assert not list((tmp_path / "cache").rglob("*.so"))


def searched(wheel: Path, tmp_path: Path, engine: str, *, compiling: bool) -> str:
    """Search a world by the unpacked wheel, by this engine; returns what the doctor says of it."""
    (installed := tmp_path / "installed").mkdir()
    shutil.unpack_archive(wheel, installed, "zip")
    env = {**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("KVPROTO_NATIVE", None)
    if not compiling:
        env["PATH"] = str(tmp_path)
    ran = json.loads(run(sys.executable, "-m", "kvproto", "check", "smoke", "--json", cwd=tmp_path, env=env))["runs"]
    assert [(each["engine"], each["ended"]) for each in ran] == [(engine, "exhausted")]
    doctor = """
from kvproto.cli.doctor import TRIALS, attempt
print(next(attempt(trial) for trial in TRIALS if trial.name == "search in C"))
"""
    return run(sys.executable, "-c", doctor, cwd=tmp_path, env=env)
