"""PROTOCOL.md's prose about the wire is what the codec, the digest, the sockets and the plan do."""

from __future__ import annotations

import hashlib
import json
import re

import msgspec
import pytest

from kvproto.fsm.codec import WireError
from kvproto.fsm.plain_json import hints
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import MAX_FRAME, UnknownMessageError, decode, encode
from kvproto.protocol.events import room_key
from kvproto.protocol.versions import AGREEMENTS, CAPABILITIES
from kvproto.verify.claims.protocol_digest import protocol_texts
from kvproto.verify.draw.generated_docs import ROOT
from kvproto.verify.draw.message_exchanges import TALK
from kvproto.verify.draw.wire_tables import field_sentence

PAGE = (ROOT / "PROTOCOL.md").read_text()


def section(title: str) -> str:
    """The text under this heading, up to the next one of its level or above."""
    level = PAGE[: PAGE.index(f" {title}\n")].rpartition("\n")[2]
    rest = PAGE[PAGE.index(f"{level} {title}\n") :]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, flags=re.MULTILINE)[1]


def packed(epoch: int, room: int, gen: int, *body: object) -> bytes:
    """A frame as the page says, made without the codec."""
    return msgspec.msgpack.encode([epoch, room, gen, list(body)])


def test_every_field_of_every_message_has_a_sentence() -> None:
    table = section("What the fields mean").splitlines()
    for talk in TALK:
        for field in hints(talk.body):
            said = field_sentence(talk.body, field)
            assert len(said.split()) >= 3, (talk.name, field)
            lines = [line for line in table if line.startswith(f"| `{field}` ") and f"`{talk.name}`" in line]
            assert len(lines) == 1 and said in lines[0]


def test_the_export_has_the_same_sentences() -> None:
    document = json.loads((ROOT / "spec" / "kvproto.json").read_text())
    for message in document["messages"]:
        assert all(field["doc"] for field in message["fields"]), message["name"]


def test_the_frame_in_bytes_is_what_the_codec_makes() -> None:
    (shown,) = re.findall(r"^    (94 .*)$", section("Frames"), flags=re.MULTILINE)
    body = msg.StagingReq(3, 1.5)
    assert encode(65537, room_key(7, 0), body).hex(" ") == shown and len(shown.split()) == 31
    assert decode(bytes.fromhex(shown)) == (65537, 7, body)
    assert bytes.fromhex(shown) == packed(65537, 7, 0, "STAGING_REQ", 3, 1.5)


def test_the_parts_of_the_example_are_those_of_the_plan() -> None:
    def held(tp: int) -> Layout:
        return Layout(layers=2, heads=8, k_dim=128, v_dim=128, itemsize=2, dtype="bfloat16", page_size=16, tp=tp)

    said, plan = section("Layout: who writes what, and where"), Plan(held(2), held(1), 256)
    first, second = plan.writers(0)
    size, region = plan.part_bytes(first, Cut(0, 256)), plan.grant_bytes(0, Cut(0, 256))
    assert f"{size:,}" == "1,048,576" and f" = {size:,} bytes" in said and f"the region has {region:,}" in said
    assert plan.part_bytes(second, Cut(0, 256)) == size and plan.grant_bytes(0, Cut(0, 100)) < region


def test_terms_are_explained_before_they_are_used() -> None:
    words = section("Words")
    first = re.search(r"\bterms\b", PAGE)
    assert first is not None and PAGE.index(words) < first.start() < PAGE.index(words) + len(words)
    assert "| terms |" in words


def test_the_digest_is_made_as_the_page_says() -> None:
    document = json.loads((ROOT / "spec" / "kvproto.json").read_text())
    texts = protocol_texts()
    said = " ".join(f"{name}:{hashlib.sha256(text.encode()).hexdigest()[:8]}" for name, text in texts.items())
    assert document["protocol"] == {"name": "kvproto", "wire_version": msg.VERSION, "digest": said}
    about = section("Versions")
    assert f"`version` ({msg.VERSION} is the newest and the oldest one;" in about and msg.OLDEST == msg.VERSION
    assert "first 8 hex digits of the SHA-256" in about
    assert all(f"`{name}`" in about for name in (*AGREEMENTS, *CAPABILITIES)) and set(AGREEMENTS.values()) == {1}


def test_a_frame_is_what_the_page_says() -> None:
    frame = packed(3, 7, 2, "STG_NOTIFY", 4, 9)
    assert decode(frame) == (3, room_key(7, 2), msg.StgNotify(4, 9))
    assert decode(packed(3, 0, 0, "HEARTBEAT")) == (3, 0, msg.Heartbeat())


def test_fields_at_the_end_that_have_a_default_may_be_left_out() -> None:
    assert decode(packed(3, 7, 0, "OPEN", 100, 16))[2] == msg.Open(100, 16, b"", b"")
    with pytest.raises(WireError):
        decode(packed(3, 7, 0, "OPEN", 100))


def test_fields_behind_the_known_ones_are_passed_over_and_unknown_messages_are_told_apart() -> None:
    assert decode(packed(3, 7, 0, "CHUNK_ACK", 4, "more", {"of": "it"}))[2] == msg.ChunkAck(4)
    with pytest.raises(UnknownMessageError):
        decode(packed(3, 7, 0, "NO_SUCH_THING", 4))


@pytest.mark.parametrize(
    "frame",
    [packed(3, 7, 0, "OPEN", 16, 17), packed(3, 7, 0, "ABORT", 0), packed(3, 7, 0, "HEARTBEAT"),
     packed(3, 7, 0, "STAGING_REQ", 1 << 24), packed(3, 7, 0, "AUX", bytes(msg.MAX_AUX + 1)),
     packed(3, 7, 0, "NO_SUCH_THING"), packed(1 << 64 - 1, 7, 1 << 32, "GONE"), b"\x94" + bytes(MAX_FRAME)],
    ids=["prefix", "cause", "room of a link", "chunk", "aux", "name", "generation", "size"],
)  # fmt: skip
def test_what_is_beyond_the_bounds_does_not_decode(frame: bytes) -> None:
    with pytest.raises(WireError):
        decode(frame)


def test_the_numbers_in_the_prose_are_those_of_the_code() -> None:
    pytest.importorskip("zmq")
    from kvproto.io.control import control, gate

    assert f"{MAX_FRAME:,} bytes" in section("Bounds")
    trust = " ".join(section("Who is trusted with what").split())
    assert f"{gate.BURST} are let in at once and {gate.PACE:g} a second" in trust
    assert f"a handshake has {gate.HANDSHAKE_S:g} s" in trust
    assert f"an outbox {control.MAX_BYTES >> 20} MiB" in trust
    assert f"at most {MAX_FRAME / (1 << 20):.1f} MiB" in trust


@pytest.mark.parametrize("prefix", [4, 8, 20, 30])
def test_a_prefix_need_not_be_whole_pages_of_the_prefill_rank(prefix: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("zmq")
    from kvproto.verify.testing.pair import Pair

    def layout(tp: int, page: int) -> Layout:
        return Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=page, tp=tp)

    with Pair(layout(2, 16), layout(1, 4), chunk_tokens=16) as pair:
        room = pair.open(30, prefix=prefix)
        pair.finish(room)
        assert {cause.name for cause in pair.causes(room)} == {"NONE"}
        pair.check(room)
