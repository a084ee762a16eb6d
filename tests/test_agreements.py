"""Agreements: code whose meaning two builds must share cannot change while its version stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.builds import build, environment
from test_digest import CHANGES

from kvproto.protocol.versions import AGREEMENTS
from kvproto.verify.claims import agreements
from kvproto.verify.cli import versions_command
from kvproto.verify.draw.generated_docs import ROOT

KEPT = json.loads((ROOT / agreements.FILE).read_text())
TELL = "import json; from kvproto.verify.claims.agreements import vectors; print(json.dumps(vectors()))"
#: what is changed (`CHANGES` of the digest's tests), and the agreements that it breaks
BREAKS = {
    "the cut of heads": {"layout"}, "the cut of tokens": {"layout"}, "where parts begin": {"layout"},
    "where rows lie": {"layout"}, "when a region is usable": {"ring"}, "the mark of an empty ring": {"ring"},
    "the numbers before a note": {"notification"}, "a timer that follows from others": {"timers"},
    "a fan-in that does not wait": {"fan_in"},
}  # fmt: skip
EDITS = {name: change[:2] for name, change in CHANGES.items()} | {
    "a fan-in that does not wait": (
        "return as_agreed(v, e, now) and not v.writers & ~v.by_pages & ~(v.arrived | 1 << e.peer)",
        "return as_agreed(v, e, now)",
    ),
}  # fmt: skip


def test_no_agreement_has_changed_while_its_version_stayed() -> None:
    assert agreements.faults(KEPT, agreements.vectors()) == []
    assert agreements.text(KEPT) == (ROOT / agreements.FILE).read_text()
    assert set(KEPT) == set(AGREEMENTS) == set(agreements.LINES)


@pytest.mark.parametrize("what", BREAKS)
def test_a_change_behind_an_agreement_is_named(what: str, tmp_path: Path) -> None:
    folder = build(tmp_path, EDITS[what])
    command = [sys.executable, "-c", TELL]
    told = subprocess.run(command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=True)
    wrong = agreements.faults(KEPT, json.loads(told.stdout))
    assert {sentence.partition(":")[0] for sentence in wrong} >= BREAKS[what]
    assert all("and the version is still 1" in sentence for sentence in wrong)


def test_only_a_new_version_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions_command, "ROOT", tmp_path)
    assert versions_command.write_agreements() == []
    path = tmp_path / agreements.FILE
    assert path.read_text() == agreements.text(KEPT)
    monkeypatch.setitem(agreements.LINES, "ring", lambda: iter(["another meaning"]))
    (refused,) = versions_command.write_agreements()
    assert refused.startswith("ring: '400: 0, 0 to 400") and path.read_text() == agreements.text(KEPT)
    monkeypatch.setitem(AGREEMENTS, "ring", 2)
    (unkept,) = agreements.faults(KEPT, agreements.vectors())
    assert unkept.startswith("ring: version 2 is not kept")
    assert versions_command.write_agreements() == []
    assert json.loads(path.read_text())["ring"] == {"version": 2, "results": ["another meaning"]}
