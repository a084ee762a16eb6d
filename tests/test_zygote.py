"""Forks of a process that has imported what they run."""

from __future__ import annotations

import multiprocessing
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

import psutil

from examples.engine_runs.zygote import Zygote

MODULE, VARIABLE = "kvproto_of_a_test", "OF_THE_ZYGOTE"


def prepare() -> None:
    sys.modules[MODULE] = sys


def tell(line: Connection) -> None:
    line.send((os.getpid(), os.getppid(), MODULE in sys.modules, os.environ.get(VARIABLE)))
    with suppress(EOFError):
        line.recv()


def test_forks_begin_with_what_was_imported_in_the_environment_of_all() -> None:
    zygote, lines = Zygote(prepare, {VARIABLE: "1"}), []
    forked = []
    for _ in range(2):
        line, other = multiprocessing.Pipe()
        forked.append(zygote.start(tell, other))
        other.close()
        lines.append(line)
    told = [line.recv() for line in lines]
    assert VARIABLE not in os.environ
    assert told == [(each.pid, forked[0].ppid(), True, "1") for each in forked]
    # One ends by itself, the other is killed: either is no process any more, though this one is not their parent.
    lines[0].send(None)
    forked[1].kill()
    assert not psutil.wait_procs(forked, timeout=20)[1]
    parent = psutil.Process(told[0][1])
    zygote.close()
    parent.wait(20)


def test_what_is_forked_sees_that_its_line_ends() -> None:
    zygote = Zygote(prepare, {})
    line, other = multiprocessing.Pipe()
    process = zygote.start(tell, other)
    other.close()
    line.recv()
    line.close()
    process.wait(20)
    zygote.close()
