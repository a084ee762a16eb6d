"""NIXL's import: which of its wheels, and what stands in the environment before it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvproto.io.transports import nixl_load
from kvproto.io.transports.base import BackendUnavailable


class Machine:
    """The installed distributions, the modules that exist, and the environment."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.environ, self.installed, self.imported = dict[str, str](), {"nixl", "nixl_cu12"}, list[str]()
        self.device, self.infiniband = place / "nvidiactl", place / "infiniband"
        spec = SimpleNamespace(find_spec=lambda name: name if name in self.installed else None)
        patch.setattr(nixl_load, "os", SimpleNamespace(environ=self.environ))
        patch.setattr(nixl_load, "importlib", SimpleNamespace(import_module=self.load, util=spec))
        patch.setattr(nixl_load, "_INFINIBAND", self.infiniband)
        patch.setattr(nixl_load, "_NVIDIA", self.device)
        patch.delitem(sys.modules, "nixl", raising=False)

    def load(self, name: str) -> str:
        package = name.partition(".")[0]
        if package not in self.installed:
            raise ImportError(f"no {package}")
        assert self.environ, "it reads the environment when it is imported"
        self.imported.append(name)
        return name


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    level = logging.getLogger("nixl").level
    yield Machine(tmp_path, monkeypatch)
    logging.getLogger("nixl").setLevel(level)


def test_both_halves_are_of_one_wheel(machine: Machine) -> None:
    assert nixl_load.load() == ("nixl_cu12._api", "nixl_cu12._bindings")
    machine.installed.add("nixl_cu13")
    assert nixl_load.load() == ("nixl_cu13._api", "nixl_cu13._bindings")


def test_where_a_device_is_or_nixl_was_imported_it_says_which_wheel(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    machine.device.touch()
    assert nixl_load.load()[0] == "nixl._api"
    machine.device.unlink()
    assert nixl_load.load()[0] == "nixl_cu12._api"
    monkeypatch.setitem(sys.modules, "nixl", SimpleNamespace())
    assert nixl_load.load()[0] == "nixl._api"
    machine.installed.discard("nixl")
    assert nixl_load.load()[0] == "nixl_cu12._api"


def test_what_is_not_installed_is_unavailable(machine: Machine) -> None:
    machine.installed.clear()
    with pytest.raises(BackendUnavailable, match="no nixl"):
        nixl_load.load()


def test_it_is_quiet_unless_somebody_has_said_how_loud(machine: Machine) -> None:
    logging.getLogger("nixl").setLevel(logging.INFO)
    machine.environ["NIXL_LOG_LEVEL"] = "TRACE"
    nixl_load.load()
    assert machine.environ["NIXL_LOG_LEVEL"] == "TRACE" and logging.getLogger("nixl").level == logging.INFO
    del machine.environ["NIXL_LOG_LEVEL"]
    nixl_load.load()
    assert machine.environ["NIXL_LOG_LEVEL"] == "WARN" and logging.getLogger("nixl").level == logging.WARNING


def test_ucx_does_without_infiniband_where_there_is_none(machine: Machine) -> None:
    nixl_load.load()
    assert machine.environ.pop("UCX_MODULES") == "^ib"
    machine.infiniband.mkdir()
    nixl_load.load()
    assert machine.environ.pop("UCX_MODULES") == "^ib", "a folder without a device in it"
    machine.environ["UCX_MODULES"] = "cma"
    nixl_load.load()
    assert machine.environ.pop("UCX_MODULES") == "cma"
    (machine.infiniband / "mlx5_0").touch()
    nixl_load.load()
    assert "UCX_MODULES" not in machine.environ
