"""Instances that are killed while rooms are under way, over NIXL: others take the rooms over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("nixl._api")

from kvproto import cli
from kvproto.endpoint.resume_point import ResumePoint
from kvproto.lab.torture.report import takeover_page
from kvproto.lab.torture.takeover import MovedRoom, Takeover, takeover
from kvproto.lab.torture.takeover_plan import VICTIMS, TakeoverPlan, Victim

ROOMS = 12


@pytest.mark.parametrize("victim", VICTIMS)
def test_every_room_is_taken_over_in_the_middle_and_no_byte_is_wrong(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TakeoverPlan, "moment", lambda *_: (0.4, True))
    result = takeover(TakeoverPlan(4, ROOMS, victim), "nixl-tcp", tmp_path / "traces")
    assert result.ok, takeover_page(result)
    assert result.rooms == ROOMS <= result.kills and result.wrong_bytes == 0
    assert 0 < result.kept_bytes < result.prompt_bytes
    assert not (tmp_path / "traces").exists()
    assert result.prompt_bytes <= result.written_bytes < 2 * result.prompt_bytes


def test_a_room_whose_decode_instance_dies_after_the_transfer_sends_no_byte_of_kv_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TakeoverPlan, "moment", lambda *_: (1.0, True))
    result = takeover(TakeoverPlan(5, ROOMS, "decode"), "nixl-tcp", tmp_path)
    assert result.ok, takeover_page(result)
    assert result.kept_bytes == result.written_bytes == result.prompt_bytes


def test_other_kv_is_sent_whole_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TakeoverPlan, "moment", lambda *_: (1.0, True))
    result = takeover(TakeoverPlan(9, ROOMS, "prefill"), "nixl-tcp", tmp_path)
    assert result.ok, takeover_page(result)
    assert 0 < result.other_kv < ROOMS
    assert result.written_bytes - result.prompt_bytes == result.prompt_bytes - result.kept_bytes > 0


# ----------------------------------------------------------------------- what the judge is worth: it finds these
class TooFar(Takeover):
    """Points that say a chunk more than has arrived."""

    def _hear(self, name: str, kind: str, data: Any) -> None:
        if kind == "points" and (each := self.rooms.get(data[0])) is not None:
            data = (*data[:2], min(each.room.tokens, data[2] + 32))
        super()._hear(name, kind, data)


class SentAgain(Takeover):
    """Successors that do not know of the prefix."""

    def _open(self, rooms: list[MovedRoom], life: int) -> None:
        for each in rooms:
            each.prefix = 0
        super()._open(rooms, life)


class Unasked(Takeover):
    """Rooms that go on at a replacement without a look at its KV."""

    def _agreed(self, rooms: list[MovedRoom], points: dict[int, ResumePoint], life: int) -> dict[int, int]:
        super()._agreed(rooms, points, life)
        return {number: point.upto for number, point in points.items()}


class GivenUp(Takeover):
    """A room that one engine gives up at once."""

    def _open(self, rooms: list[MovedRoom], life: int) -> None:
        super()._open(rooms, life)
        self.crew.tell("P0", "abort", ([rooms[0].name],))


@pytest.mark.parametrize(
    ("kind", "victim", "share", "what"),
    [
        (GivenUp, "decode", 1.0, "room 0, .* ended before the kill: PREFILL_ABORTED .*the prefill engine"),
        (TooFar, "decode", 0.6, "at the takeover: .* bytes of its first"),
        (SentAgain, "decode", 0.6, "at the end: .* marked"),
        (Unasked, "prefill", 1.0, "at the end: .* not marked"),
    ],
)  # fmt: skip
def test_the_judge_finds_what_is_wrong(
    kind: type[Takeover], victim: Victim, share: float, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TakeoverPlan, "moment", lambda *_: (share, True))
    result = kind(TakeoverPlan(13, ROOMS, victim), "nixl-tcp", tmp_path, lambda _: None).play()
    with pytest.raises(AssertionError, match=what):
        raise AssertionError("; ".join(result.found))
    assert result.traces == str(tmp_path) and result.found[0] == (tmp_path / "found.txt").read_text().strip()
    traces = sorted(map(str, tmp_path.glob("*.jsonl")))
    assert {"P0", "P1"} <= {Path(each).stem for each in traces}
    assert cli.main(["replay", *traces]) == 0
