"""Pack: all that SGLang needs on a GPU machine without a network, as one archive.

    python -m examples.sglang.pack .engines/gpu/site.tar.xz          # make engines-gpu-pack

It is made on a machine that reaches a package index.  The packages of `gpu/requirements.txt` are fetched for the GPU
machine's Python and unpacked beside one another, without what they ask for: that machine has PyTorch with CUDA, Triton,
transformers, and what these need.  Left out is what is large and never loaded here: SGLang's own servers in Rust, its
models of images, tests, and NIXL's expert parallelism.  Archive and repository together stay under 64 MB.
`examples.sglang.on_gpus` unpacks it there.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

LIST = Path(__file__).parent / "gpu" / "requirements.txt"
LEFT_OUT = (
    "bin", "include", "share", "nixl_cu13.scripts", "nixl_ep_cu13", "sglang/benchmark", "sglang/multimodal_gen",
    "sglang/test", "sglang/srt/rust_extensions/*.so", "zstandard/_cffi*.so",
)  # fmt: skip
#: of manylinux: pip takes a wheel of exactly these names
TAGS = [f"manylinux{year}_x86_64" for year in ("1", "2010", "2014")]
TAGS += [f"manylinux_2_{minor}_x86_64" for minor in (5, 12, 17, 24, 26, 27, 28, 31, 34, 35)]
#: of xz: higher makes it hardly smaller, and takes minutes
PRESET: Final = 3


def fetch(folder: Path, python: str) -> None:
    """Unpack the packages there; CalledProcessError: pip has said why not."""
    platforms = [word for tag in TAGS for word in ("--platform", tag)]
    subprocess.run(  # noqa: S603  # our own words
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps", "--no-compile",
         "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms,
         "--target", str(folder), "-r", str(LIST)],
        check=True,
    )  # fmt: skip


def kept(name: str) -> bool:
    """Whether this file or folder travels."""
    return not any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT)


def pack(folder: Path, archive: Path) -> None:
    """Write the archive; what is left out takes all inside it along."""

    def travels(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if kept(member.name.removeprefix("./")) else None

    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".new")
    with tarfile.open(unfinished, "w:xz", preset=PRESET) as file:
        file.add(folder, ".", filter=travels)
    unfinished.rename(archive)


def main() -> None:
    """Fetch and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="what to write")
    parser.add_argument("--python", default="3.12", help="the GPU machine's")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        fetch(Path(temporary), asked.python)
        pack(Path(temporary), asked.archive)
    print(f"{asked.archive}: {asked.archive.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
