"""Staging in pinned memory over a simulated port: the copies are there, and all but two of them are hidden."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from kvproto.lab.bench import pinned_simulated as sim
from kvproto.lab.cli.bench_command import main
from kvproto.layout.costs import PROFILES


def test_of_the_copies_the_first_and_the_last_are_seen() -> None:
    """Simulated time: chunks of 16 MiB, of which the first is copied before anything is on the wire."""
    size, chunk = 64, 16
    device, pinned = (sim.simulated(1, size, chunk, pinned=each) for each in (False, True))
    copy = chunk * sim.MIB / sim.HOST
    assert size * sim.MIB / PROFILES["rdma"].rate + 2 * sim.LAUNCH < device
    rounding = 1e-12
    assert device + 2 * copy - rounding <= pinned < device + 2.5 * copy < device + 2 * size / chunk * copy


def test_one_chunk_hides_nothing() -> None:
    device, pinned = (sim.simulated(1, 16, 16, pinned=each) for each in (False, True))
    assert pinned - device == pytest.approx(2 * 16 * sim.MIB / sim.HOST)


def test_the_command_prints_a_row_a_case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sim, "CASES", ((2, 8, 4),))
    assert main(["pinned", "--simulate"]) == 0
    assert "| exposed " in capsys.readouterr().out
