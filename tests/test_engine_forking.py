"""Engines whose processes are forked on a CPU: what alters them, without an engine."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from examples.engine_runs.guide import GUIDES

#: stands in for vLLM's platform and for the modules that its processes import
PLATFORM = """\
import os
class CpuPlatform:
    @classmethod
    def check_and_update_config(cls, config):
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        config.append("adapted")
"""
#: what a worker waits for its next message with
CONDITION = """\
class SpinCondition:
    def __init__(self, is_reader, busy_loop_s=1):
        self.busy_loop_s = busy_loop_s

    def wait(self, timeout_ms=None):
        return timeout_ms
"""
ASKED = """\
import os, sys
from vllm.platforms.cpu import CpuPlatform
seen = []
CpuPlatform.check_and_update_config(seen)
print(seen, os.environ["VLLM_WORKER_MULTIPROC_METHOD"], "vllm.v1.worker.cpu_worker" in sys.modules)
from vllm.distributed.device_communicators.shm_broadcast import SpinCondition
print(SpinCondition(True).busy_loop_s, [SpinCondition(True).wait(timeout_ms=each) for each in (None, 5000, 7)])
"""


def test_vllm_forks_where_the_guide_s_environment_is_a_process_s_own(tmp_path: Path) -> None:
    texts = {"platforms/cpu": PLATFORM, "distributed/device_communicators/shm_broadcast": CONDITION}
    for name in (*texts, "v1/engine/core", "v1/worker/cpu_worker", "v1/executor/multiproc_executor"):
        file = tmp_path / "vllm" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts.get(name, ""))
    path = os.pathsep.join([GUIDES["vllm"].environment["PYTHONPATH"], str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path, "VLLM_WORKER_MULTIPROC_METHOD": ""}
    ran = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "['adapted'] fork True\n0.001 [20, 20, 7]\n"


def test_sglang_forks_once_it_has_set_up_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(GUIDES["sglang"].environment["PYTHONPATH"])))
    forking, engine, methods = import_module("forking"), ModuleType("engine"), list[str]()
    monkeypatch.setattr(multiprocessing, "set_start_method", lambda method, **_: methods.append(method))
    for name in forking.IMPORTED:
        monkeypatch.setitem(sys.modules, f"sglang.srt.{name}", ModuleType(name))
    vars(engine)[forking.SETTING] = lambda args: methods.append(f"set up for {args}")
    forking.patch(engine)
    vars(engine)[forking.SETTING]("these")
    assert methods == ["set up for these", "fork"]
