"""On GPUs: real instances of SGLang, with KV carried by kvproto and by SGLang's own NIXL backend.

    python -m examples.sglang.on_gpus --table examples/results/sglang_gpu.json          # make engines-gpu
    python -m examples.sglang.on_gpus --only 1:1                                        # these pairs alone

It wants a Python with PyTorch for CUDA, Triton and transformers, and the archive of `examples.sglang.pack`, which it
unpacks once; no network.  Models are drawn on the spot.  Prefill has the first GPUs and decode the last: on two, a pair
of one rank each has a GPU each, and ranks of different instances share one.  SGLang runs without its compiled kernels
(`gpu/gpu_device.py`): how fast a forward is says nothing of it, what happens between the last KV and the first step of
decode is what is measured.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
ARCHIVE = TOP / ".engines" / "gpu" / "site.tar.xz"
#: prompts are as many times as long as on a CPU
SCALE = 8


class Rows(NamedTuple):
    """Pairs, by which backends, and what they do."""

    pairs: tuple[str, ...]
    backends: tuple[str, ...]
    scenarios: tuple[str, ...]


ROWS = (
    Rows(("1:1", "2:1", "1:2"), ("kvproto", "plain", "nixl"), ("seq", "many", "control", "idle")),
    Rows(("2:1x2", "mla 1:2"), ("kvproto",), ("seq", "control", "idle")),
)


def unpack(archive: Path) -> Path:
    """Unpack the archive into a folder beside it, with the metadata by which SGLang finds kvproto."""
    site = archive.with_name("site")
    if (site / ".made").exists():
        return site
    with tarfile.open(archive) as file:
        file.extractall(site, filter="data")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    about = site / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [f"[{group}]\n" + "\n".join(f"{name} = {place}" for name, place in entries.items())
              for group, entries in project["entry-points"].items()]  # fmt: skip
    (about / "entry_points.txt").write_text("\n".join(points) + "\n")
    compileall.compile_dir(site, quiet=2, workers=0)  # every process of an instance would do it
    (site / ".made").touch()
    return site


def fitting(rows: Rows, gpus: int, only: list[str]) -> tuple[str, ...]:
    """Return the pairs that are asked for and fit the GPUs: ranks of one instance share none."""
    return tuple(pair for pair in rows.pairs if (not only or pair in only) and ranks_of(pair) <= gpus)


def ranks_of(pair: str) -> int:
    """Return the ranks of the pair's larger side."""
    sides = [side.split("x") for side in pair.rpartition(" ")[2].split(":")]
    return max(int(tp) * int((more or ["1"])[0]) for tp, *more in sides)


def main() -> int:
    """Run the rows; 0: each of kvproto's was as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, default=ARCHIVE, help="of examples.sglang.pack")
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--only", nargs="+", default=[], help="these pairs alone")
    parser.add_argument("--backends", nargs="+", default=[], help="these backends alone")
    parser.add_argument("--keep", type=Path, default=ARCHIVE.with_name("runs"), help="a folder for models and logs")
    parser.add_argument("--ahead", type=int, default=2, help="pairs that start while an earlier one runs")
    asked = parser.parse_args()
    import torch

    if not (gpus := torch.cuda.device_count()):
        print("no GPU is here that PyTorch can use: on a CPU, make engines-sglang", file=sys.stderr)
        return 1
    site, failed = unpack(asked.archive), 0
    environment = os.environ | {"PYTHONPATH": f"{TOP}{os.pathsep}{site}"}
    for rows in ROWS:
        pairs = fitting(rows, gpus, asked.only)
        for pair in set(rows.pairs) - {*pairs} - ({*rows.pairs} - {*asked.only} if asked.only else set()):
            print(f"{pair}: left out, since its ranks need more than {gpus} GPU", file=sys.stderr)
        backends = [name for name in rows.backends if not asked.backends or name in asked.backends]
        if not pairs or not backends:
            continue
        words = ["--pairs", *pairs, "--backends", *backends, "--scenarios", *rows.scenarios, "--device", "cuda",
                 "--gpus", str(gpus), "--scale", str(SCALE), "--ahead", str(asked.ahead), "--keep", str(asked.keep)]
        words += ["--table", str(asked.table)] if asked.table else []
        failed |= subprocess.run([sys.executable, "-m", "examples.sglang.run", *words], env=environment).returncode  # noqa: S603, PLW1510
    return failed


if __name__ == "__main__":
    sys.exit(main())
