"""Setup: builds the wheel for every machine, or with `KVPROTO_BUILD_NATIVE=1` one for machines of this kind.

The latter has the search of `kvproto check` compiled.  All else is in pyproject.toml.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path("kvproto", "verify", "check", "native")


class PlatformDistribution(Distribution):
    """Has a file that is not for every machine."""

    def has_ext_modules(self) -> bool:
        """Say so in the words of setuptools."""
        return True


class CompiledSearch(build_py):
    """Copies the modules, and puts the compiled search beside its source."""

    def run(self) -> None:
        """As without; a compiler that is missing ends it."""
        super().run()
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise SystemExit("KVPROTO_BUILD_NATIVE=1 needs a C compiler: install gcc, or leave the variable out")
        build = runpy.run_path(str(NATIVE / "build.py"))
        command = build["command"](compiler, NATIVE, Path(self.build_lib, NATIVE, build["file_name"](NATIVE)))
        print("the search in C:", *command, flush=True)  # noqa: T201  # for who builds with `--verbose`
        subprocess.run(command, check=True)  # noqa: S603  # our own source


class PlatformWheel(bdist_wheel):
    """A wheel of one kind of machine and any Python: the search is no extension module."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, its interface, and the machine."""
        return "py3", "none", super().get_tag()[2]


if os.environ.get("KVPROTO_BUILD_NATIVE") == "1":
    setup(distclass=PlatformDistribution, cmdclass={"build_py": CompiledSearch, "bdist_wheel": PlatformWheel})
else:
    setup()
