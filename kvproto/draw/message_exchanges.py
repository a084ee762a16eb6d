"""Who says what: which side sends each message, and what answers it.  A test demands that every message is here."""

from __future__ import annotations

import msgspec

from kvproto.fsm.codec import Body
from kvproto.protocol import messages as msg


class Talk(msgspec.Struct, frozen=True):
    """A message's sender (`prefill`, `decode` or `either`) and its answers ("" where none is expected)."""

    body: type[Body]
    sender: str
    answer: str = ""

    @property
    def name(self) -> str:
        """The name on the wire."""
        return str(self.body.__struct_config__.tag)


TALK: tuple[Talk, ...] = (
    Talk(msg.Hello, "decode", "`WELCOME`, or `REFUSAL`; nothing while the transport connects or an old write flies"),
    Talk(msg.Welcome, "prefill"),
    Talk(msg.Refusal, "prefill"),
    Talk(msg.Heartbeat, "either", "`RESET` if the epoch is not the receiver's"),
    Talk(msg.Reset, "either"),
    Talk(msg.Open, "decode", "`OPENED`, or `DRAINED` with the cause"),
    Talk(msg.Opened, "prefill"),
    Talk(msg.StagingReq, "prefill", "`STAGING_RSP`, `STAGING_REFUSED`; nothing while the ring is full"),
    Talk(msg.StagingRsp, "decode"),
    Talk(msg.StagingRefused, "decode"),
    Talk(msg.WatermarkReq, "prefill", "`WATERMARK`"),
    Talk(msg.Watermark, "decode"),
    Talk(msg.PagesReq, "prefill", "`PAGES_RSP`"),
    Talk(msg.PagesRsp, "decode"),
    Talk(msg.StgNotify, "prefill", "`CHUNK_ACK`"),
    Talk(msg.ChunkAck, "decode"),
    Talk(msg.Aux, "prefill", "`AUX_ACK`"),
    Talk(msg.AuxAck, "decode"),
    Talk(msg.Abort, "decode", "`DRAINED`, once nothing of the room is in flight"),
    Talk(msg.Drained, "prefill", "`NOTED`"),
    Talk(msg.Noted, "decode"),
    Talk(msg.Gone, "decode"),
)
