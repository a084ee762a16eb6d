"""The Triton kernels, run by Triton's interpreter on CPU tensors, against the same judge as the torch reference.

The interpreter is chosen when Triton and the kernels are imported, by TRITON_INTERPRET in the environment, for the
whole process. So that this neither depends on what other tests import, nor changes how they run, the tests here run
in a process of their own: without the variable, this file is one test, which runs the file again with it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not INTERPRETED:

    def test_under_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

else:
    import torch
    from kernels_cases import (
        BASE,
        PAIRS,
        SHAPES,
        Case,
        check_gathers,
        check_scatters,
        pool_of,
        staging,
        table_of,
    )

    from kvproto.handlers.kernels.base import KernelError
    from kvproto.handlers.kernels.triton import TritonKernels, Tuning

    def kernels(**tuning: Any) -> TritonKernels:
        return TritonKernels(Tuning(**tuning))

    #: Small tiles, so that a cell of a few tokens has inner tiles, last tiles and idle lanes.
    SMALL: dict[str, Any] = {"tile": 256}
    LARGE: dict[str, Any] = {"tile": 4096}
    RUNS = [(case, SMALL) for case in PAIRS + SHAPES] + [(case, LARGE) for case in SHAPES]

    @pytest.mark.parametrize(("case", "tuning"), RUNS, ids=str)
    def test_gather(case: Case, tuning: dict[str, Any]) -> None:
        check_gathers(kernels(**tuning), case)

    @pytest.mark.parametrize(("case", "tuning"), RUNS, ids=str)
    def test_scatter(case: Case, tuning: dict[str, Any]) -> None:
        check_scatters(kernels(**tuning), case)

    @pytest.mark.parametrize("case", [BASE, SHAPES[5], SHAPES[8]], ids=str)
    def test_with_the_defaults(case: Case) -> None:
        check_gathers(kernels(), case)
        check_scatters(kernels(), case)

    @pytest.mark.parametrize("shift", [1, 2, 4, 8])
    def test_staging_at_any_byte(shift: int) -> None:
        check_gathers(kernels(tile=256), BASE, shift=shift)
        check_scatters(kernels(tile=256), BASE, shift=shift)

    def test_more_than_a_table_bears() -> None:
        """Beyond 32-bit counting a call is refused before anything is launched."""
        pool = pool_of(BASE.plan.prefill, 0, 2, 1)
        share = BASE.plan.duties(0)[0]
        table = torch.zeros(1, dtype=torch.int64).expand(2**30)
        with pytest.raises(KernelError, match="dense"):
            kernels().gather(pool, table, 0, 1, share, staging(pool.part_bytes(share, 1))[1])
        table = table_of(2, 4, 8, 1)
        with pytest.raises(KernelError, match="of a table of 2 pages"):
            kernels().gather(pool, table, 2**31, 8, share, staging(pool.part_bytes(share, 8))[1])

    def test_prepared_or_not_is_the_same() -> None:
        made = kernels(tile=256)
        pool, share = pool_of(BASE.plan.prefill, 0, 8, 1), BASE.plan.duties(0)[0]
        made.prepare(pool, "gather", [share])
        table = table_of(8, 4, 11, 1)
        outs = [staging(pool.part_bytes(share, 11))[1] for _ in range(2)]
        made.gather(pool, table, 0, 11, share, outs[0])
        kernels(tile=512).gather(pool, table, 0, 11, share, outs[1])
        assert torch.equal(*outs)
