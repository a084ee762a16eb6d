"""On GPUs: real instances of SGLang, with KV carried by kvproto and by SGLang's own NIXL backend.

    python -m examples.sglang.on_gpus --table examples/results/sglang_gpu.json          # make engines-gpu
    python -m examples.sglang.on_gpus --only 1:1                                        # these pairs alone

It wants a Python with PyTorch for CUDA, Triton and transformers, and the archive of `examples.sglang.pack`, which it
unpacks once; no network.  Models are drawn on the spot.  Prefill has the first GPUs and decode the last: on two, a pair
of one rank each has a GPU each, and ranks of different instances share one.  Where an instance has more ranks than
there are GPUs, they share these, and their collectives go over the host.  All pairs start at once, and stand still
until it is their turn, so times are those of one pair alone.  SGLang runs without its compiled kernels
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
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).parents[2]
ARCHIVE = TOP / ".engines" / "gpu" / "site.tar.xz"
#: prompts are as many times as long as on a CPU, and as many rounds of them are asked one after another
SCALE, ROUNDS = 8, 2
#: pairs whose times are compared, and by which backends; and those that kvproto alone carries.  What plays first is
#: slower, whoever carries it, so the times with digests come first, which are compared with none.
PAIRS, BACKENDS = ("1:1", "1:2", "2:1"), ("kvproto", "plain", "nixl")
OURS = (
    "2:1x2", "mla 1:2", "hybrid 2:1x2", "hybrid 1:1", "hybrid 2:1", "hybrid 1:2", "windows 1:2", "windows 2:1",
    "eagle 1:1", "eagle 2:1",
)  # fmt: skip
SCENARIOS = ("seq", "many", "control", "idle")


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


def chosen(pairs: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return those of the pairs that are asked for, in the order in which they are."""
    return [pair for pair in only or pairs if pair in pairs]


def main() -> int:
    """Run the rows; 0: each of kvproto's was as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, default=ARCHIVE, help="of examples.sglang.pack")
    parser.add_argument("--table", type=Path, help="where the rows go, as JSON")
    parser.add_argument("--only", nargs="+", default=[], help="these pairs alone, in this order")
    parser.add_argument("--scale", type=int, default=SCALE, help="how much longer prompts are than on a CPU")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, help="by these backends alone")
    parser.add_argument("--keep", type=Path, default=ARCHIVE.with_name("runs"), help="a folder for models and logs")
    parser.add_argument("--ahead", type=int, default=7, help="how many pairs start at once, beside one")
    asked = parser.parse_args()
    import torch

    if not (gpus := torch.cuda.device_count()):
        print("no GPU is here that PyTorch can use: on a CPU, make engines-sglang", file=sys.stderr)
        return 1
    site = unpack(asked.archive)
    environment = os.environ | {"PYTHONPATH": f"{TOP}{os.pathsep}{site}"}
    pairs, ours = (chosen(group, asked.only) for group in (PAIRS, OURS))
    for pair in {*asked.only} - {*pairs, *ours}:
        print(f"{pair}: left out, since it is unknown", file=sys.stderr)
    words = ["--device", "cuda", "--gpus", str(gpus), "--scale", str(asked.scale), "--rounds", str(ROUNDS), "--paused",
             "--coarse", "--ahead", str(asked.ahead), "--keep", str(asked.keep), "--scenarios", *SCENARIOS]
    words += ["--pairs", *pairs, "--ours", *ours, "--backends", *asked.backends]
    words += ["--table", str(asked.table)] if asked.table else []
    return subprocess.run([sys.executable, "-m", "examples.sglang.run", *words], env=environment).returncode  # noqa: S603, PLW1510


if __name__ == "__main__":
    sys.exit(main())
