"""The examples run as a reader would run them, and say what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

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
