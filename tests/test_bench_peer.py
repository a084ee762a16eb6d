"""SGLang's module for the benchmark: taken alone out of a wheel, or a sentence that says why not.

The wheel here is made on the spot and has only what is asked of one; the real one is measured on a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproto.lab.bench import peer

STAGING = """
from sglang.srt.environ import HERE
from sglang.kernels.ops.memory.ptr_table import make
from sglang.srt.utils import create_device_stream, device_stream_context
from kernels_of_a_peer import JITFunction
kernel = JITFunction()
made = make(HERE)
"""


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "sglang":
            del sys.modules[name]


def wheel(directory: Path, files: dict[str, str]) -> Path:
    path = directory / "sglang-9.8.7-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return path


FILES = {
    "sglang/__init__.py": "raise RuntimeError('the whole package')",
    "sglang/srt/environ.py": "HERE = 20",
    "sglang/srt/utils/__init__.py": "raise RuntimeError('all of its helpers')",
    "sglang/kernels/__init__.py": "raise RuntimeError('all of its kernels')",
    "sglang/kernels/ops/memory/ptr_table.py": "def make(n):\n    return n + 1",
    "sglang/srt/disaggregation/common/__init__.py": "raise RuntimeError('the package above')",
    "sglang/srt/disaggregation/common/staging_buffer.py": STAGING,
}


class JITFunction:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getitem__(self, grid: object) -> object:
        return lambda *args: self.calls.append((grid, *args))


def test_one_module_is_taken_out_of_the_wheel_and_its_launches_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernels_of_a_peer", sys.modules[__name__])
    found = peer.find(str(wheel(tmp_path, FILES)))
    assert isinstance(found, peer.SglangKernels), found
    assert (found.version, found.module.made, found.kernels) == ("9.8.7", 21, ["kernel"])
    launch = found.launch(lambda: found.module.kernel[2, 3]("first", 4))
    launch()
    assert found.module.kernel.kernel.calls == 2 * [((2, 3), "first", 4)]


def test_why_there_is_none(tmp_path: Path) -> None:
    assert "neither a directory nor a wheel" in str(peer.find(str(tmp_path / "nothing.whl")))
    lacking = {name: text for name, text in FILES.items() if "ptr_table" not in name}
    assert "release 9.8.7 could not be loaded alone" in str(peer.find(str(wheel(tmp_path, lacking))))


@pytest.mark.skipif(importlib.util.find_spec("sglang") is not None, reason="it is installed here")
def test_not_installed_is_a_sentence() -> None:
    assert "--peer takes its wheel" in str(peer.find(None))
