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


ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "transfers": [f"b'first token of {i}'" for i in range(6)],
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


def test_the_transfer_of_the_readme_runs_as_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("nixl._api")
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # the page's own
    assert capsys.readouterr().out == "True b'first token'\n"
    kv = names["kv"]
    for sent, came in zip(kv[:4], kv[4:], strict=True):
        assert torch.equal(sent[19:].flatten(0, 1)[:200], came[:13].flatten(0, 1)[:200])
