"""The examples run as a reader would run them, and say what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zmq")

from kvproto import Fabric, Layout, MemoryTransport

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "ten_lines": ["aux=b'the first token'", "Cause.NONE"],
    "scheduler": ["prefill: request 5: PREFILL_ABORTED", *(f"decode rank {i}: 11 requests arrived" for i in (0, 1))],
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES} == set(SAYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path) -> None:
    pytest.importorskip("nixl._api")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=90, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in SAYS[path.stem]:
        assert text in done.stdout


def test_the_ten_lines_of_the_readme_carry_a_room(capsys: pytest.CaptureFixture[str]) -> None:
    """As they stand there, on pools and pages such as an engine has, and without NIXL."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    fabric, made = Fabric(auto=True), list[MemoryTransport]()
    layout = Layout(layers=2, heads=2, k_dim=16, v_dim=16, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
    k_p, v_p, k_d, v_d = ([torch.randn(16, 16, 2, 16).to(torch.bfloat16) for _ in range(2)] for _ in range(4))
    here, there = list(range(13)), list(range(15, 2, -1))

    def transport() -> MemoryTransport:
        made.append(MemoryTransport(fabric))
        return made[-1]

    names: dict[str, Any] = {"layout_p": layout, "layout_d": layout, "prefill_pages": here, "decode_pages": there}
    names |= {"k_p": k_p, "v_p": v_p, "k_d": k_d, "v_d": v_d, "NixlTransport": transport}
    lines = code.replace("NixlTransport, ", "", 1)
    assert "import NixlTransport" not in lines and len(lines.split("\n\n")[1].splitlines()) <= 12
    exec(lines, names)  # noqa: S102  # the page's own
    names["decode"].close(), names["prefill"].close()
    assert len(made) == 2 and capsys.readouterr().out == "True b'first token'\n"
    for sent, came in zip([*k_p, *v_p], [*k_d, *v_d], strict=True):
        assert torch.equal(sent[here].flatten(0, 1)[:200], came[there].flatten(0, 1)[:200])
