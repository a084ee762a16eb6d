"""What messages become at SGLang's ranks, and what is looked up for it."""

from __future__ import annotations

from examples.others.sglang_staging.effects import (
    AckHeard,
    Landed,
)
from examples.others.sglang_staging.events import (
    AbortReceived,
    AckReceived,
    ChunkArrived,
    Grant,
    GrantReceived,
    KvStatusReceived,
    MetadataReceived,
    Noted,
    PongReceived,
    ReqReceived,
    Subscribed,
    WatermarkSeen,
)
from examples.others.sglang_staging.words import (
    ALL,
    Abort,
    AbortAck,
    ChunkReady,
    D,
    KvStatus,
    Ping,
    Pong,
    StagingReq,
    StagingRsp,
    TransferInfo,
    Watermark,
)
from kvproto.fsm.party import MemberMessage
from kvproto.fsm.routing import Fact, Routes


class ListenerIs(Fact):
    """The thread that takes messages."""

    RUNNING = 0
    DEAD = 1


def metadata(h: MemberMessage) -> MetadataReceived:
    """The number of decode ranks is `required_dst_info_num`."""
    return MetadataReceived(h.body.room, h.body.life, h.peer, len(h.party.setting.rooms[h.body.room].readers))


def granted(h: MemberMessage) -> GrantReceived:
    """Filled into `TransferInfo.staging`."""
    body = h.body
    return GrantReceived(body.room, body.life, Grant(body.chunk, h.peer, body.offset, body.end, body.round))


def watermark(h: MemberMessage) -> WatermarkSeen:
    """The newest of this decode rank."""
    return WatermarkSeen(h.peer, (h.body.round, h.body.tail))


def aborted(h: MemberMessage) -> AbortReceived:
    """A decode rank has given up."""
    return AbortReceived(h.body.room, h.body.life, h.peer)


def pong(h: MemberMessage) -> PongReceived:
    """A decode rank is there."""
    return PongReceived(h.body.room, h.peer)


to_prefill = Routes("prefill", ALL, ())
to_prefill.route(TransferInfo, to=metadata)
to_prefill.route(StagingRsp, to=granted)
to_prefill.route(Watermark, to=watermark)
to_prefill.route(Abort, to=aborted)
to_prefill.route(Pong, to=pong)
to_prefill.drop((StagingReq, ChunkReady, KvStatus, AbortAck, Ping), why="messages for the other side")


def asked(h: MemberMessage) -> ReqReceived:
    """What `handle_staging_req` finds of the room and of the ring."""
    party, room = h.party, h.party.room(h.body.room)
    size = party.setting.rooms[h.body.room].sizes[h.body.chunk]
    known = room is not None and room.state in (D.REGISTERED, D.SUCCESS, D.HELD)
    return ReqReceived((h.body.room, h.body.chunk), h.peer, party.setting.staging, known,
                       room is not None and room.state is D.DETACHED, size <= party.setting.ring)  # fmt: skip


def subscribed(h: MemberMessage) -> Subscribed:
    """`register_wm_subscriber`."""
    room = h.party.room(h.body.room)
    return Subscribed(h.peer, room is not None and room.state in (D.REGISTERED, D.SUCCESS, D.HELD))


def landed(h: MemberMessage) -> Noted:
    """The bytes are there, whatever the tables make of it."""
    body = h.body
    return Noted(Landed((body.room, body.life, body.chunk), h.peer, body.offset, body.end, body.nth))


def arrived(h: MemberMessage) -> ChunkArrived:
    """`handle_chunk_ready`."""
    body, party = h.body, h.party
    room = party.room(body.room)
    known = room is not None and room.state in (D.REGISTERED, D.SUCCESS, D.HELD)
    same = room is not None and room.life == body.life
    return ChunkArrived((body.room, body.chunk), known, same, body.writer, len(party.setting.rooms[body.room].writers))


def ended(h: MemberMessage) -> KvStatusReceived:
    """A prefill rank has ended."""
    return KvStatusReceived(h.body.room, h.body.life, h.peer, h.body.ok)


def stopped(h: MemberMessage) -> Noted:
    """After so many writes."""
    return Noted(AckHeard(h.peer, h.body.posted))


def acknowledged(h: MemberMessage) -> AckReceived:
    """A prefill rank has stopped."""
    return AckReceived(h.body.room, h.body.life, h.peer)


def answer_ping(h: MemberMessage) -> Pong:
    """I am."""
    return Pong(h.body.room)


to_decode = Routes("decode", ALL, (ListenerIs,))
to_decode.drop(ALL, ListenerIs.DEAD, why="nobody listens")
to_decode.route(StagingReq, to=asked, then=subscribed)
to_decode.route(ChunkReady, to=landed, then=arrived)
to_decode.route(KvStatus, to=ended)
to_decode.route(AbortAck, to=stopped, then=acknowledged)
to_decode.answer(Ping, to=answer_ping, why="I am here")
to_decode.drop((TransferInfo, StagingRsp, Watermark, Abort, Pong), why="messages for the other side")
