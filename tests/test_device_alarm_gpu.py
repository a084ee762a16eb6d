"""A device's alarms on a GPU go off behind their event, and a wait costs no processor time."""

from __future__ import annotations

import select
import time

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.data.device_alarm import DeviceAlarm


def test_an_alarm_goes_off_behind_its_event_and_waiting_costs_nothing() -> None:
    work, event = torch.cuda.Stream(), torch.cuda.Event()
    alarm = DeviceAlarm(torch.cuda.Stream(), 0)
    with torch.cuda.stream(work):
        torch.cuda._sleep(10**9)
        event.record(work)
    found = alarm.set(event)
    assert found is not None and alarm.set(event) == found
    assert not event.query() and not select.select([found], [], [], 0)[0]
    before = time.process_time()
    assert select.select([found], [], [], 30)[0] and event.query()
    assert time.process_time() - before < 0.05, "the wait takes half a second or more"
    assert alarm.set(event) is None
    alarm.close()
