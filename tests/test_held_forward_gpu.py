"""Forwards of a benchmark that end when it says so, on a GPU: not before, and each by itself."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.lab.bench.held_forward import HeldForward


def test_a_forward_is_over_when_it_is_said_and_not_before() -> None:
    held = HeldForward(torch.device("cuda", 0))
    for _ in range(3):
        event = held.begin()
        time.sleep(0.01)
        assert not event.query()
        held.end()
        event.synchronize()
