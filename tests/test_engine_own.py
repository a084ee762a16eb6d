"""vLLM's own connector has rows beside kvproto's at every pair, also where it does not start."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from examples.engine_runs.cell import of_vllm
from examples.engine_runs.table import told
from examples.vllm import own, run
from examples.vllm.instances import PORTS, side_channel
from examples.vllm.judging import Row
from examples.vllm.own import ANSWERED, OWN, THERE
from examples.vllm.pairs import PAIRS, kind_of, of_kvproto, wanted
from examples.vllm.run import Rows, in_a_process

WORKER = "(Worker pid=9) NotImplementedError: NixlConnector (pull) does not take stages | of windows."
POINTER = "RuntimeError: Engine core initialization failed. See root cause above."


def row(scenario: str = "in turn", **other: Any) -> Row:
    return msgspec.structs.replace(own.lacking("1-2", scenario, "", 1.0), **{"wrong": [], **other})


@pytest.mark.parametrize("pair", PAIRS)
def test_the_own_connector_is_played_beside_kvproto_at_each_pair(pair: str) -> None:
    ours, theirs, plain = (wanted(pair, carrier, []) for carrier in ("kvproto", OWN, "plain"))
    assert theirs and {*theirs} <= {*ours} == {*of_kvproto(pair)}
    if "+" not in pair:  # one hand-over at a time is what tells the time
        assert "in turn" in theirs
        of_kind = [each for each in PAIRS if kind_of(each)[0] == kind_of(pair)[0]]
        assert ("in turn" in plain) == (kind_of(pair)[0] == "dense" or pair == of_kind[0])  # without digests, too


def test_the_own_connector_is_aborted_killed_and_started_anew() -> None:
    ends = {"decode leaves between", "never fetched", "killed", "killed between", "decode killed"}
    assert ends <= {*wanted("1-2", OWN, [])}


def test_a_configuration_that_is_refused_is_a_row_of_each_scenario() -> None:
    said = f"0.0 {ANSWERED}\n{WORKER}\n{POINTER}\n"
    rows = own.explained([], "windows 2 stages-1", ["sequential", "in turn"], said, "", 20.0)
    why = "refused at start: NixlConnector (pull) does not take stages / of windows."
    assert [(each.scenario, each.wrong) for each in rows] == [("sequential", [why]), ("in turn", [why])]


@pytest.mark.parametrize(("late", "why"), [
    ("", "refused at start: its process ended"), ("did not start in 9 s", "did not start in 9 s"),
])  # fmt: skip
def test_a_start_without_an_error_is_a_row_too(late: str, why: str) -> None:
    (found,) = own.explained([], "1-2", ["in turn"], f"{ANSWERED}\n{POINTER}\n", late, 1.0)
    assert found.wrong == [why] and not found.good


def test_what_was_written_while_a_row_was_made_stands_in_it_if_it_is_wrong() -> None:
    said = (
        f"{ANSWERED}\n{THERE}\n1.0 1-2 nixl sequential ...\nValueError: heads differ\n2.0 | 1-2 | nixl | sequential |\n"
        "KeyError: later\n3.0 1-2 nixl in turn ...\nOSError: not told\n4.0 1-2 nixl killed ...\nKeyError: gone\n"
    )
    made = [row("sequential", wrong=["decode has computed 99 tokens"], note="once"), row("in turn")]
    found = own.explained(made, "1-2", ["sequential", "in turn", "killed", "decode killed"], said, "", 9.0)
    by = {each.scenario: each for each in found}
    assert by["sequential"].wrong == ["decode has computed 99 tokens", "heads differ"] and by["in turn"] == made[1]
    assert by["killed"].wrong == ["its process ended: gone"]
    assert by["decode killed"].wrong == ["not played: in turn had not ended well"]


def test_a_long_error_is_cut_at_a_word() -> None:
    words = own.told("ValueError: " + "word " * own.TOLD)
    assert words.endswith("word …") and len(words) <= own.TOLD + 2


def test_a_run_that_does_not_start_is_killed_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "STARTS_S", 0.2)
    monkeypatch.setattr(own, "LOOK_S", 0.02)

    def play() -> int:
        print(subprocess.Popen(["sleep", "60"]).pid, ANSWERED)
        time.sleep(60)
        return 0

    (found,) = own.run(play, "1-2", ["in turn"], tmp_path)
    assert found.wrong == ["did not start in 0 s"]
    left = int((tmp_path / f"1-2-{OWN}.log").read_text().split()[0])
    for _ in range(100):
        if not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.02)
    pytest.fail(f"{left} goes on")


def test_only_rows_of_kvproto_make_the_run_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(_pair: str, carrier: str, _names: list[str], _out: Path) -> int:
        if carrier != OWN:
            return 3
        print(ANSWERED)
        raise ValueError("no such thing")

    monkeypatch.setattr(run, "one", one)
    rows = Rows(tmp_path, "1-2", OWN)
    rows.keep(row("in turn", note="of an older run"))
    rows.keep(row("killed"))
    assert in_a_process("1-2", ["in turn"], rows, tmp_path) == 0
    assert in_a_process("1-2", ["in turn"], Rows(tmp_path, "1-2", "kvproto"), tmp_path) == 3
    kept = Rows(tmp_path, "1-2", OWN)
    assert kept.rows["in turn"].wrong == ["refused at start: no such thing"] and kept.rows["killed"].good
    assert kept.lack(["in turn", "killed", "sequential"]) == ["sequential"]  # a refusal is not asked for again


def test_its_instances_listen_where_nothing_else_does() -> None:
    side_channel.cache_clear()
    first = side_channel("P")
    assert side_channel("P") == first != side_channel("D")
    side_channel.cache_clear()
    with socket.create_server(("127.0.0.1", first + PORTS - 1)):
        assert side_channel("P") != first


def test_the_page_tells_what_the_own_connector_refuses() -> None:
    ours = row("sequential", carrier="kvproto", equal=8, asked=8, back=True)
    killed = msgspec.structs.replace(ours, scenario="decode killed", equal=2, asked=2)
    why = "refused at start: no windows"
    its = [own.lacking("1-2", name, why, 1.0) for name in ("sequential", "decode killed")]
    text = told(of_vllm(msgspec.to_builtins([ours, killed, *its])))
    whole, dead = f"**no**: {why} | 8 of 8", f"decode killed: **no**: {why} | decode killed: 2 of 2"
    assert f"| vLLM | 1 → 2 | NixlConnector | {whole} | - | - | {dead} | **no** | yes |" in text
