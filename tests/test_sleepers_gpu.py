"""Threads that sleep, on a GPU: the decode rank's news come when the store has ended, not before."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

from kvproto.lab.bench.sleepers import NewsSleeper, StoreSleeper

#: cycles of the GPU that take some 50 ms
LONG = 10**8


def test_news_come_when_the_store_behind_the_forward_has_ended() -> None:
    here, work, stores = torch.device("cuda", 0), torch.cuda.Stream(), torch.cuda.Stream()
    source, target = torch.zeros(1, device=here), torch.zeros(1, device=here)
    torch.cuda.synchronize()

    def store(stream: Any, _after: Any) -> Any:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
            return target.copy_(source)

    prefill = StoreSleeper(here)
    decode = NewsSleeper(prefill.port)
    for turn in (1.0, 2.0):
        with decode.serving() as news:
            with prefill.serving(stores, [store]) as give, torch.cuda.stream(work):
                torch.cuda._sleep(LONG)
                source.fill_(turn)
                event = torch.cuda.Event()
                event.record(work)
                give(event)
                assert not news.is_set(), "the forward runs"
            news.sleep(10.0)
            assert news.is_set() and stores.query() and target.item() == turn
    decode.close()
    prefill.close()
