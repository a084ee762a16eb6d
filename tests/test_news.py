"""The descriptor of an engine's news: readable from `set` to `clear`, closed with its object."""

from __future__ import annotations

import os
import select
import threading

import pytest

from kvproto.endpoint.news import News


def readable(news: News) -> bool:
    return bool(select.select([news], [], [], 0)[0])


def test_the_descriptor_stays_the_same_neither_blocks_nor_is_inherited_and_ends_with_its_object() -> None:
    news = News()
    fd = news.fileno()
    assert news.fileno() == fd and not os.get_blocking(fd) and not os.get_inheritable(fd)
    del news
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("first", ["the descriptor", "the news"])
def test_the_descriptor_is_readable_from_set_to_clear(first: str) -> None:
    news = News()
    if first == "the descriptor":
        assert not readable(news)
    news.clear()
    for _ in range(2):
        for _ in range(3):
            news.set()
        assert readable(news) and news.is_set()
        news.clear()
        assert not readable(news) and not news.is_set()
        news.clear()  # nothing was written


def test_the_descriptor_may_be_the_first_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a standard input gives out number 0."""
    done, news = list[tuple[str, int]](), News()
    numbers = iter([0])
    monkeypatch.setattr(os, "eventfd", lambda *_: next(numbers))
    monkeypatch.setattr(os, "eventfd_write", lambda fd, _: done.append(("write", fd)))
    monkeypatch.setattr(os, "eventfd_read", lambda fd: done.append(("read", fd)))
    monkeypatch.setattr(os, "close", lambda fd: done.append(("close", fd)))
    assert news.fileno() == 0 == news.fileno()
    news.set()
    news.clear()
    del news
    assert done == [("write", 0), ("read", 0), ("close", 0)]


@pytest.mark.parametrize(
    ("timeout", "slept"), [(None, None), (0.5, 0.5), (-1.0, 0.0), (float("inf"), threading.TIMEOUT_MAX)]
)
def test_a_sleep_is_as_long_as_threads_can(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None, slept: float | None
) -> None:
    news, asked = News(), list[float | None]()
    monkeypatch.setattr(news, "wait", asked.append)
    news.sleep(timeout)
    assert asked == [slept]
