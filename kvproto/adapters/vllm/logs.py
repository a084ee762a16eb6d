"""Logs of kvproto in vLLM's log, whose handlers are those of vLLM's own logger alone."""

from __future__ import annotations

import logging


def show_logs() -> None:
    """Give vLLM's handlers and level to kvproto's logger, unless it, or the root logger, has handlers."""
    ours, theirs = logging.getLogger("kvproto"), logging.getLogger("vllm")
    if logging.getLogger().handlers or any(type(each) is not logging.NullHandler for each in ours.handlers):
        return
    for handler in theirs.handlers:
        ours.addHandler(handler)
    if ours.level != logging.NOTSET:
        return
    ours.setLevel(theirs.level)
    rooms = logging.getLogger("kvproto.rooms")
    if rooms.level == logging.NOTSET and theirs.level >= logging.INFO:
        rooms.setLevel(logging.WARNING)  # a line for each request and rank that went well would be most of the log
