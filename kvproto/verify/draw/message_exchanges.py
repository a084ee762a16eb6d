"""Message exchanges: each message's sender and answer. A test demands that every message is here."""

from __future__ import annotations

import msgspec

from kvproto.fsm.codec import Body
from kvproto.protocol import messages as msg


class MessageExchange(msgspec.Struct, frozen=True):
    """A message's sender (`prefill`, `decode` or `either`) and its answers ("" where none is expected)."""

    body: type[Body]
    sender: str
    answer: str = ""

    @property
    def name(self) -> str:
        return str(self.body.__struct_config__.tag)


TALK: tuple[MessageExchange, ...] = (
    MessageExchange(
        msg.Hello, "decode", "`WELCOME`, or `REFUSAL`; nothing while the transport connects or an old write flies"
    ),
    MessageExchange(msg.Welcome, "prefill"),
    MessageExchange(msg.Refusal, "prefill"),
    MessageExchange(msg.Heartbeat, "either", "`RESET` if the epoch is not the receiver's"),
    MessageExchange(msg.Reset, "either"),
    MessageExchange(msg.Goodbye, "either", "`GOODBYE`, by a decode rank"),
    MessageExchange(msg.Open, "decode", "`OPENED`, or `DRAINED` with the cause"),
    MessageExchange(msg.Announce, "decode", "nothing, or `DRAINED` with the cause"),
    MessageExchange(msg.Opened, "prefill"),
    MessageExchange(
        msg.StagingReq, "prefill", "`STAGING_RSP` or `STAGING_REFUSED`; first `STAGING_QUEUED` while the ring is full"
    ),
    MessageExchange(msg.StagingRsp, "decode"),
    MessageExchange(msg.StagingQueued, "decode"),
    MessageExchange(msg.StagingRefused, "decode"),
    MessageExchange(msg.WatermarkReq, "prefill", "`WATERMARK`"),
    MessageExchange(msg.Watermark, "decode"),
    MessageExchange(msg.PagesReq, "prefill", "`PAGES_RSP`, or `CHUNK_ACK`: the part is in place"),
    MessageExchange(msg.PagesRsp, "decode"),
    MessageExchange(msg.StgNotify, "prefill", "`CHUNK_ACK`"),
    MessageExchange(msg.ChunkAck, "decode"),
    MessageExchange(msg.Aux, "prefill", "`AUX_ACK`"),
    MessageExchange(msg.AuxAck, "decode"),
    MessageExchange(msg.Abort, "decode", "`DRAINED`, once nothing of the room is in flight"),
    MessageExchange(msg.Drained, "prefill", "`NOTED`"),
    MessageExchange(msg.Noted, "decode"),
    MessageExchange(msg.Gone, "decode"),
)
