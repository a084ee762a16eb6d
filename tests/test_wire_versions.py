"""Every wire version that was released: its frames are decoded and answered for ever, byte for byte."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kvproto.fsm.codec import Body, WireError
from kvproto.fsm.vocabulary import Effect
from kvproto.layout.plan import plan_between
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import ForeignCallError, decode, encode
from kvproto.protocol.states import DLink, PLink
from kvproto.protocol.versions import Build, build_of
from kvproto.rank.base import Rank
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.draw import wire_versions
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.draw.wire_versions import EPOCH, HELLO, LAYOUT, ROOM, faults

KEPT = wire_versions.read()
SPOKEN = [version for version in KEPT if msg.OLDEST <= version <= msg.VERSION]
NEWEST = KEPT[msg.VERSION]
#: the answer of a rank that has a link and the room, by message; "": none
ANSWERS = {
    "HELLO": "", "HEARTBEAT": "", "WATERMARK": "", "OPEN": "OPENED", "ANNOUNCE": "", "ABORT": "DRAINED",
    "WATERMARK_REQ": "WATERMARK", "STAGING_REQ": "STAGING_RSP", "PAGES_REQ": "PAGES", "STG_NOTIFY": "CHUNK_ACK",
    "AUX": "AUX_ACK", "DRAINED": "NOTED", "GOODBYE": "GOODBYE",
}  # fmt: skip


def frames(version: int, name: str) -> list[bytes]:
    (found,) = [said["examples"] for said in KEPT[version]["messages"] if said["name"] == name]
    return [bytes.fromhex(each["frame"]) for each in found]


def hear(rank: Rank, frame: bytes, link: int = 1) -> list[Effect]:
    epoch, room, body = decode(frame)
    return rank.receive(link, epoch, room, body, 1.0, b"there" if not room else b"")


def prefill(version: int) -> PrefillRank:
    """A prefill rank that a decode rank of this version has called; its engine has opened the room."""
    rank = PrefillRank(LAYOUT, 1, group=1, chunk_tokens=HELLO["chunk_tokens"], incarnation=1)
    assert [type(each) for each in hear(rank, frames(version, "HELLO")[0], 0)] == [do.BindLink, do.Connect]
    rank.handle(ev.WiredUp(1, HELLO["session"], "wire"), 1.0)
    assert rank.links[1].state is PLink.UP and rank.links[1].epoch == EPOCH
    assert rank.links[1].build.version == version
    return rank


def decoding(version: int) -> DecodeRank:
    """A decode rank that a prefill rank of this version has welcomed; its engine has opened the room."""
    rank = DecodeRank(LAYOUT, 1, group=1, chunk_tokens=HELLO["chunk_tokens"], incarnation=HELLO["session"] >> 16)
    plan = plan_between(LAYOUT, LAYOUT, HELLO["chunk_tokens"])
    rank.call(HELLO["group"], 1, plan, 0.0, "there")
    hear(rank, frames(version, "WELCOME")[0])
    assert rank.links[1].state is DLink.UP and rank.links[1].build.version == version
    rank.handle(ev.RoomOpened(ROOM, rank.terms(HELLO["group"], plan), 4 * HELLO["chunk_tokens"], 0), 0.0)
    hear(rank, encode(EPOCH, ROOM, msg.Opened()))
    return rank


def answered(effects: list[Effect]) -> set[str]:
    """The names of the messages that leave."""
    pages = {"PAGES" for each in effects if isinstance(each, do.TransmitPages)}
    said = (each.body for each in effects if isinstance(each, do.Transmit))
    return pages | {str(type(body).__struct_config__.tag) for body in said}


# --------------------------------------------------------------------------------------------- for ever
@pytest.mark.parametrize("version", SPOKEN)
def test_this_code_speaks_each_version_as_it_was_released(version: int) -> None:
    assert faults(KEPT[version]) == []


@pytest.mark.parametrize("version", SPOKEN)
@pytest.mark.parametrize(
    "talk", [talk for talk in TALK if talk.name not in ("WELCOME", "REFUSAL")], ids=lambda t: t.name
)
def test_each_frame_of_each_version_is_heard_and_answered(version: int, talk: Any) -> None:
    for frame in frames(version, talk.name):
        for make, side in ((prefill, "prefill"), (decoding, "decode")):
            if talk.sender == side:
                continue
            rank: Rank = make(version)
            if talk.name == "STG_NOTIFY":
                hear(rank, frames(version, "STAGING_REQ")[0])
            dropped = rank.counts.copy()
            effects = hear(rank, frame)
            wanted = ANSWERS.get(talk.name, "")
            again = getattr(decode(frame)[2], "again", False)  # a room that is asked after, and unknown: it is over
            if again or (talk.name == "GOODBYE" and side == "prefill"):
                wanted = ""
            assert answered(effects) >= ({wanted} if wanted else set()), (side, talk.name, effects)
            assert rank.counts == dropped, (side, talk.name)


@pytest.mark.parametrize("version", [version for version in KEPT if version < msg.OLDEST])
def test_a_version_that_is_not_spoken_any_more_is_refused_by_name(version: int) -> None:
    told = f"the decode rank speaks {version}, the prefill rank "
    for frame in frames(version, "HELLO"):
        rank = PrefillRank(LAYOUT, 1, group=1, chunk_tokens=HELLO["chunk_tokens"], incarnation=1)
        try:
            (said,) = [each for each in hear(rank, frame, 0) if isinstance(each, do.SayRefusal)]
            why = said.why
        except ForeignCallError as error:
            why = rank.unlike(Build(error.call.version, error.call.version))
        assert why.startswith("no common wire version: ") and told in why and why.endswith("upgrade the decode rank")
    for frame in frames(version, "REFUSAL"):
        assert isinstance(decode(frame)[2], msg.Refusal)


# ------------------------------------------------------------------------------------- the newest version
def test_the_newest_version_is_kept_as_this_code_speaks_it() -> None:
    """A changed message is another version: its file is written by `kvproto.verify.cli.versions_command`."""
    assert {**wire_versions.document(), "released": NEWEST["released"]} == NEWEST
    assert (wire_versions.FOLDER / f"{msg.VERSION}.json").read_text() == wire_versions.text(NEWEST)
    assert build_of(msg.Hello(**HELLO, endpoint=b"")).oldest == msg.VERSION, "left out: one version alone"


def test_every_message_has_an_example_with_and_without_what_may_be_left_out() -> None:
    for said in NEWEST["messages"]:
        names = {field["name"] for field in said["fields"] if not field["required"]}
        made = [each["message"] for each in said["examples"]]
        assert made and (not names or any(all(each[name] for name in names) for each in made)), said["name"]


def test_a_released_file_is_never_written_again(tmp_path: Path) -> None:
    path = wire_versions.write(tmp_path)
    assert json.loads(path.read_text())["released"] is False
    path.write_text(wire_versions.text({**NEWEST, "released": True, "causes": {}}))
    assert json.loads(wire_versions.write(tmp_path).read_text())["causes"] == {}


# ------------------------------------------------------------------------------- what would break a version
def field(kept: Any, name: str, at: int) -> Any:
    (found,) = [said["fields"] for said in kept["messages"] if said["name"] == name]
    return found[at]


def example(kept: Any, name: str) -> Any:
    (found,) = [said["examples"] for said in kept["messages"] if said["name"] == name]
    return found[0]


def test_what_would_break_a_released_version_is_named() -> None:
    breaks: list[tuple[str, Any]] = [
        ("STG_NOTIFY.grant was", lambda kept: field(kept, "STG_NOTIFY", 1).update(type="u32")),
        ("OPEN.word was", lambda kept: field(kept, "OPEN", 2).update(name="word")),
        ("CHUNK_ACK.chunk was added without a default", lambda kept: kept["messages"][18]["fields"].clear()),
        ("HINT is gone", lambda kept: kept["messages"].append({"name": "HINT", "fields": [], "examples": []})),
        ("GONE: a frame of it decodes to", lambda kept: example(kept, "GONE").update(message={"type": "NOTED"})),
        ("PAGES_REQ: a frame of it does not decode", lambda kept: example(kept, "PAGES_REQ").update(frame="94")),
        ("cause STALLED is no longer 7", lambda kept: kept["causes"].update(STALLED=7)),
        ("Layout.page_size was", lambda kept: kept["structs"]["Layout"][6].update(type="text")),
    ]  # fmt: skip
    assert NEWEST["messages"][18]["name"] == "CHUNK_ACK"
    for told, change in breaks:
        kept = deepcopy(NEWEST)
        change(kept)
        wrong = faults(kept)
        assert any(sentence.startswith(told) for sentence in wrong), (told, wrong)


def test_a_field_that_was_added_with_a_default_breaks_nothing() -> None:
    older = deepcopy(NEWEST)
    field_names = [field(older, "STAGING_REQ", at)["name"] for at in range(2)]
    assert field_names == ["chunk", "asked"]
    (said,) = [each for each in older["messages"] if each["name"] == "STAGING_REQ"]
    del said["fields"][1]
    short = encode(EPOCH, ROOM, msg.StagingReq(3)).replace(b"\x93\xab", b"\x92\xab")[:-9]
    said["examples"] = [{"frame": short.hex(), "message": {"type": "STAGING_REQ", "chunk": 3}}]
    assert faults(older) == []
    with pytest.raises(WireError):
        decode(short[:-1])


def test_bodies_have_no_fields_that_a_newer_one_could_not_follow() -> None:
    """Every message passes over fields behind those that it knows."""
    for each in wire_versions.EXAMPLES:
        assert isinstance(each, Body) and not type(each).__struct_config__.forbid_unknown_fields
