"""Processes of the demonstration end well, or fail together with the first cause and the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproto.lab.process_group import ORPHANED, WARM, ParentPipe, ProcessGroup, Program, RankError

HERE = "test_demo_model_group"


def works(line: ParentPipe, factor: int) -> None:
    line.tell("note", "started")
    line.tell("product", factor * line.hear("number"))


def raises(line: ParentPipe, after: str) -> None:
    line.hear(after)
    raise ZeroDivisionError("on purpose")


def waits_for_a_peer(line: ParentPipe, store: Path, rank: int) -> None:
    """Rank 0 fails; rank 1 is in a collective with it by then."""
    import torch

    from kvproto.lab.demo.comm import Comm

    comm = Comm(store, rank, tp=2, pp=1)
    comm.gather(torch.zeros(1, 1, 1))
    line.tell("joined")
    if rank == 0:
        line.hear("fail")
        raise ZeroDivisionError("on purpose")
    comm.gather(torch.zeros(1, 1, 1))


def sleeps(line: ParentPipe) -> None:
    line.tell("pid", os.getpid())
    time.sleep(600)


def leaves(line: ParentPipe, code: int) -> None:
    os._exit(code)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_messages_go_both_ways_and_all_end_well() -> None:
    notes: list[tuple[str, str, Any]] = []
    with ProcessGroup([Program(f"w{n}", f"{HERE}:works", (n,)) for n in (2, 3)]) as crew:
        crew.tell(["w2", "w3"], "number", 7)
        found = crew.collect("product", ["w2", "w3"], 30, lambda *note: notes.append(note))
        crew.finish()
        pids = crew.pids
    assert found == {"w2": 14, "w3": 21}
    assert sorted(notes) == [("w2", "note", "started"), ("w3", "note", "started")]
    assert all(gone(pid) for pid in pids.values())


def test_an_exception_arrives_with_its_traceback_and_ends_all() -> None:
    with ProcessGroup([Program("bad", f"{HERE}:raises", ("go",)), Program("idle", f"{HERE}:sleeps")]) as crew:
        crew.collect("pid", ["idle"], 30)
        crew.tell("bad", "go")
        with pytest.raises(RankError, match="on purpose") as caught:
            crew.collect("never", ["idle"], 30)
        pids = crew.pids
    assert caught.value.name == "bad" and "ZeroDivisionError" in caught.value.why and "in raises" in caught.value.why
    assert all(gone(pid) for pid in pids.values())


def test_the_first_cause_is_named_not_its_consequence(tmp_path: Path) -> None:
    """The peer's collective fails as well; who waits in it does not delay the end."""
    pytest.importorskip("torch")
    ranks = [Program(f"r{r}", f"{HERE}:waits_for_a_peer", (tmp_path / "store", r)) for r in (0, 1)]
    with ProcessGroup(ranks) as crew:
        crew.collect("joined", ["r0", "r1"], 30)
        crew.tell("r0", "fail")
        with pytest.raises(RankError, match="on purpose"):
            crew.finish(30)
        pids = crew.pids
    assert all(gone(pid) for pid in pids.values())


def test_a_killed_rank_is_noticed_and_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ranks = [Program(f"r{r}", f"{HERE}:waits_for_a_peer", (tmp_path / "store", r)) for r in (0, 1)]
    with ProcessGroup(ranks) as crew:
        crew.collect("joined", ["r0", "r1"], 30)
        os.kill(crew.pids["r0"], signal.SIGKILL)
        with pytest.raises(RankError, match="r0 failed: killed by SIGKILL"):
            crew.finish(30)


@pytest.mark.parametrize("code", [0, 3])
def test_leaving_without_a_word_is_a_failure(code: int) -> None:
    with (
        ProcessGroup([Program("x", f"{HERE}:leaves", (code,))]) as crew,
        pytest.raises(RankError, match=f"exit code {code}"),
    ):
        crew.finish()


def test_a_message_out_of_turn_and_an_unknown_program_fail() -> None:
    with ProcessGroup([Program("x", f"{HERE}:works", (1,))]) as crew:
        crew.tell("x", "letter")
        with pytest.raises(RankError, match="'letter' where 'number' was due"):
            crew.finish()
    with ProcessGroup([Program("x", "kvproto.lab.demo:nothing")]) as crew, pytest.raises(RankError, match="nothing"):
        crew.finish()


def test_ending_without_the_awaited_word_is_a_failure() -> None:
    with ProcessGroup([Program("x", f"{HERE}:works", (1,))]) as crew:
        crew.tell("x", "number", 2)
        with pytest.raises(RankError, match="without a word of 'quotient'"):
            crew.collect("quotient", ["x"], 30)


def test_silence_is_named() -> None:
    with (
        ProcessGroup([Program("idle", f"{HERE}:sleeps")]) as crew,
        pytest.raises(TimeoutError, match="no 'word' from idle"),
    ):
        crew.collect("word", ["idle"], 0.2)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_no_rank_outlives_the_parent(sign: int) -> None:
    here = Path(__file__)
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(here.parents[1]), str(here.parent)))}
    parent = subprocess.Popen([sys.executable, here], stdout=subprocess.PIPE, text=True, env=env)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and not any(gone(pid) for pid in pids)
    parent.send_signal(sign)
    parent.wait()
    assert eventually(lambda: all(gone(pid) for pid in pids))
    parent.stdout.close()


def test_a_rank_that_is_stopped_does_not_outlive_a_parent_that_is_terminated() -> None:
    here = Path(__file__)
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(here.parents[1]), str(here.parent)))}
    parent = subprocess.Popen([sys.executable, here], stdout=subprocess.PIPE, text=True, env=env)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    os.kill(pids[0], signal.SIGSTOP)
    parent.terminate()
    assert parent.wait(30) == 128 + signal.SIGTERM and all(gone(pid) for pid in pids)
    parent.stdout.close()


def test_who_handles_its_own_termination_keeps_it() -> None:
    own, before = (lambda *_: None), signal.getsignal(signal.SIGTERM)
    for handler in (signal.SIG_DFL, own):
        signal.signal(signal.SIGTERM, handler)
        with ProcessGroup([]):
            assert (signal.getsignal(signal.SIGTERM) is own) is (handler is own)
        assert signal.getsignal(signal.SIGTERM) is handler
    signal.signal(signal.SIGTERM, before)


def test_the_parent_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, kvproto.lab.process_group, kvproto.lab.demo.job, kvproto.lab.demo.verify;"  # all of the parent
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0
    assert ORPHANED not in (0, 1), "told apart from success and from an exception"


if __name__ == "__main__":
    with ProcessGroup([Program(name, f"{HERE}:sleeps") for name in "ab"], warm="kvproto.lab.process_group") as _crew:
        print(*_crew.collect("pid", "ab", 60).values(), flush=True)
        time.sleep(600)


def test_what_a_fork_server_loads_can_be_loaded() -> None:
    """A fork server passes over a module that cannot be imported, and each rank then loads for itself."""
    names = ", ".join(["kvproto.lab.torture.rank", *WARM])  # in a process: they set torch's threads, and freeze objects
    code = f"import {names}; print('all', flush=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "all\n", done.stderr
