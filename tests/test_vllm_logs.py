"""Records of kvproto in vLLM's log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from kvproto.adapters.vllm.logs import show_logs


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """Loggers as vLLM leaves them in its processes: a handler of its own logger, none of the root's."""
    ours, vllm, handler = logging.getLogger("kvproto"), logging.getLogger("vllm"), Kept()
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(vllm, "handlers", [handler])
    rooms = logging.getLogger("kvproto.rooms")
    levels = ours.level, vllm.level
    ours.setLevel(logging.NOTSET)
    vllm.setLevel(logging.INFO)
    yield handler
    ours.setLevel(levels[0])
    vllm.setLevel(levels[1])
    rooms.setLevel(logging.NOTSET)


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Take the root logger's handlers away, once pytest has put its own there."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_kvproto_s_records_appear_once_where_vllm_s_do_from_its_level_on(
    theirs: Kept, no_root: Callable[[], None]
) -> None:
    no_root()
    log = logging.getLogger("kvproto.links")
    log.warning("lost")
    show_logs()
    show_logs()
    log.warning("told")
    log.info("told, too")
    log.debug("too fine")
    assert theirs.said == ["told", "told, too"]


@pytest.mark.parametrize(("level", "said"), [(logging.INFO, ["failed"]), (logging.DEBUG, ["done", "failed"])])
def test_a_line_for_each_request_that_went_well_appears_at_vllm_s_finest_level_alone(
    theirs: Kept, no_root: Callable[[], None], level: int, said: list[str]
) -> None:
    no_root()
    logging.getLogger("vllm").setLevel(level)
    show_logs()
    log = logging.getLogger("kvproto.rooms")
    log.info("done")
    log.warning("failed")
    assert theirs.said == said


@pytest.mark.parametrize("whose", ["kvproto", ""])
def test_an_operator_s_own_handlers_are_left_alone(theirs: Kept, no_root: Callable[[], None], whose: str) -> None:
    no_root()
    own = Kept()
    logging.getLogger(whose).handlers.append(own)
    show_logs()
    logging.getLogger("kvproto.rooms").warning("told")
    assert (theirs.said, own.said) == ([], ["told"])


def test_a_level_that_was_set_stays(theirs: Kept, no_root: Callable[[], None]) -> None:
    no_root()
    logging.getLogger("kvproto").setLevel(logging.ERROR)
    show_logs()
    logging.getLogger("kvproto.rooms").warning("told")
    assert theirs.said == []
