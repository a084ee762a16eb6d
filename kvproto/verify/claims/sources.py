"""Sources: the origins of the protocol's events; the lint holds tables and routes against them.

Messages have their routes; here is the rest.  `ENGINE` is what an engine's calls raise, `ANSWERS` what the handler of
an effect may answer, `RAISED` what the rank raises when it carries out an internal effect.  Events that one row sends
to another machine are read from the rows.
"""

from __future__ import annotations

from kvproto.fsm.vocabulary import Effect, Event, State
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.routes import ChunkIs, LinkIs, decode_routes, prefill_routes
from kvproto.protocol.states import DGrant, DLink, PLink, PSend
from kvproto.protocol.tables import TABLES
from kvproto.verify.framework.sources import Sources

ENGINE = (
    ev.EngineOpened, ev.ForwardScheduled, ev.TokensProduced, ev.TokensWithdrawn, ev.AuxProvided, ev.EngineAborted,
    ev.EngineRefused, ev.RoomOpened, ev.RoomAnnounced, ev.RoomRenewed,
    ev.CallAsked, ev.DisconnectAsked, ev.CloseAsked,
)  # fmt: skip
#: a fault in any handler of an effect that names a room ends the room
ANSWERS: dict[type[Effect], tuple[type[Event], ...]] = {
    do.LaunchGather: (ev.Gathered, ev.GatherFailed, ev.RoomFailed),
    do.PostWrite: (
        ev.BatchReady, ev.BatchCompleted, ev.BatchFailed, ev.BatchSettled, ev.BatchDeferred, ev.BatchRefused,
    ),
    do.PreparePages: (ev.BatchReady, ev.BatchUnmade),
    do.PostBatch: (ev.BatchCompleted, ev.BatchFailed, ev.BatchSettled, ev.BatchDeferred, ev.BatchRefused),
    do.LaunchScatter: (ev.Scattered, ev.ScatterFailed, ev.RoomFailed),
    do.Connect: (ev.WiredUp, ev.WireFailed),
    do.AdoptWire: (ev.TransportLost,),
    do.Dial: (ev.DialFailed,),
    do.TryAddress: (ev.AddressAnswered,),
    do.Transmit: (ev.QueueOverflowed,),
}
RAISED: dict[type[Effect], tuple[type[Event], ...]] = {
    do.OpenWindow: (ev.SendOpened,),
    do.OfferKv: (ev.KvProduced,),
    do.OfferAux: (ev.AuxReady,),
    do.WithdrawKv: (ev.KvWithdrawn,),
    do.ConfirmTold: (ev.ChunkAcked,),
    do.StopSends: (ev.SendStopped, ev.SendsStopped),
    do.TakeSlot: (ev.SlotTaken,),
    do.FreeSlot: (ev.SlotTaken,),
    do.TakeCredit: (ev.CreditTaken,),
    do.FreeCredit: (ev.CreditTaken,),
    do.TakePermit: (ev.PermitTaken,),
    do.FreePermit: (ev.PermitTaken,),
    do.ReleaseWaiting: (ev.WatermarkReached,),
    do.StopGrants: (ev.RoomStopped, ev.GrantsStopped),
    do.DrainGrants: (ev.RoomDrained,),
    do.ReserveSpace: (ev.SpaceReserved, ev.SpaceQueued, ev.SpaceDenied),
    do.FreeSpace: (ev.SpaceReserved, ev.SpaceUsable),
    do.AskLinks: (ev.OpenAsked, ev.QuietAsked),
    do.RaiseLinkUp: (ev.LinkCameUp,),
    do.RaiseLinkDown: (ev.LinkWentDown,),
    do.RaisePeerQuiet: (ev.PeerQuiet,),
}
#: what a fact about a message says of the machine that hears it
STATES = (
    (LinkIs.STRANGER, (PLink.NEW, DLink.NEW)),
    (LinkIs.STALE, (*set(PLink) - {PLink.NEW, PLink.FORGOTTEN}, *set(DLink) - {DLink.NEW})),
    (LinkIs.CURRENT, (PLink.UP, DLink.UP)),
    (LinkIs.BESIDE, tuple(set(DLink) - {DLink.NEW})),
    (ChunkIs.BARE, (DGrant.NEW,)),
    (ChunkIs.GRANTED, tuple(set(DGrant) - {DGrant.NEW, DGrant.FREED})),
)
#: a call may come from any place: it concerns the caller's link, not the one that it comes by
ELSEWHERE = (ev.HelloReceived,)
#: messages name chunks of a room, and the aux row is none of them (`AUX_CHUNK` is no chunk on the wire)
AUX = (PSend.AWAIT_AUX, PSend.AWAIT_AUX_ACK)
ANSWERED = (ev.StagingGranted, ev.StagingDeferred, ev.StagingDenied, ev.PagesGranted)
NEVER: dict[type[Event], tuple[State, ...]] = dict.fromkeys(ANSWERED, AUX)

SOURCES = Sources(
    TABLES, (prefill_routes, decode_routes), engine=ENGINE, answers=ANSWERS, raised=RAISED, states=STATES,
    elsewhere=ELSEWHERE, never=NEVER,
)  # fmt: skip
