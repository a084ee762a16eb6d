"""`make packages`: the wheel and the source archive, installed with each extra where nothing else is.

Each pair of an interpreter and an extra gets an environment of its own: the wheel with that extra, by the package index
as anybody has it; then `kvproto --version`, the page that `kvproto` alone shows, and one command or import that needs
what the extra brings.  The archive of sources is installed once for each interpreter.  Minutes, and gigabytes where an
extra brings torch: so it is not part of `make test`.  What an extra pins is what its users get, not what `make` pins.

    make packages ARGS='--extras core,control,metrics --pythons python3.12,python3.13 --dist dist'
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: the extra, and the words after `python -m kvproto`, or a line of code, that need what it brings
TRIALS: dict[str, list[str] | str] = {
    "core": ["lint"],
    "control": ["keys", "pair"],
    "nixl": ["doctor"],
    "mooncake-cpu": ["doctor"],
    "gpu": "from kvproto.io.kernels.torch import TorchKernels; import triton",
    "metrics": "from kvproto import MetricsExporter",
    "completion": ["completion", "bash"],
    "otel": "from kvproto import RoomSpans",
    "prove": ["prove", "decode_link"],
    "router": "import kvproto.adapters.vllm.router",
    "bench": ["bench", "step", "--rooms", "60", "--quick"],
    "demo": ["demo", "--help"],
    "docs": "import sphinx, furo, myst_parser",
}


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """The command's standard output.  RuntimeError: it ends otherwise."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=plain, capture_output=True, text=True, check=False)
    if done.returncode != code:
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}\n{said}")
    return done.stdout


def environment(python: str, folder: Path) -> Path:
    """A fresh one; its interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


def install(inside: Path, *what: str | Path, cwd: Path) -> None:
    """By the index, as anybody would."""
    run(inside, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *what, cwd=cwd)


def packages(folder: Path, dist: Path) -> tuple[Path, Path]:
    """The wheel and the archive of sources, built in an environment that has the build backend alone."""
    inside = environment(sys.executable, folder / "builder")
    install(inside, "build", cwd=folder)
    run(inside, "-m", "build", "--outdir", dist, ROOT, cwd=folder)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def tried(python: str, package: Path, extra: str) -> str:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        inside = environment(python, folder / "env")
        install(inside, package if extra == "core" else f"{package}[{extra}]", cwd=folder)
        kvproto, trial = folder / "env" / "bin" / "kvproto", TRIALS[extra]
        version = run(kvproto, "--version", cwd=folder).splitlines()[0]
        run(kvproto, cwd=folder, code=2)  # it was not told what to do
        words: list[str | Path] = [inside, "-c", trial] if isinstance(trial, str) else [kvproto, *trial]
        run(*words, cwd=folder)
        return version


def main() -> int:
    """All pairs; 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="make packages", description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", default=",".join(TRIALS), help="which, by commas (default: all)")
    parser.add_argument("--pythons", default=sys.executable, help="interpreters, by commas (default: this one)")
    parser.add_argument("--dist", type=Path, metavar="FOLDER", help="keep wheel and archive here, where none are")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        wheel, sdist = packages(Path(made), (options.dist or Path(made) / "dist").absolute())
        for python in options.pythons.split(","):
            for package, extra in [*((wheel, extra) for extra in options.extras.split(",")), (sdist, "core")]:
                begun = time.monotonic()
                try:
                    said = tried(python, package, extra)
                except RuntimeError as error:
                    failed, said = failed + 1, f"FAILED\n{error}"
                print(f"{python}  {package.suffix}  {extra}: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
