"""Rank traces: how traces of ranks, rooms, chunks and links are written and shown.

A story is about a room.  Messages about a link alone belong to no room, and a chart shows them only on request.
`written` has the form of heads, rooms and secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Literal, get_args

from kvproto.fsm import records
from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import FieldForm
from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry
from kvproto.fsm.table import Output, Table
from kvproto.fsm.telling import COMMON, Key, Message, Moment, Telling
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.observe.written import RankLogHead, hidden, hidden_from, room_from
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import room_of
from kvproto.protocol.messages import AUX_CHUNK, LinkBody
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.rank.base import Rank
from kvproto.rank.prefill import PrefillRank

#: which fields of an event name the machine
KEYS = {"room": ("room",), "send": ("room", "chunk", "peer"), "write": ("room", "chunk", "peer"),
        "grant": ("room", "chunk"), "link": ("peer",)}  # fmt: skip
#: messages that are about a link
LINK_BODIES = get_args(LinkBody)
#: calls and their answers: they leave as they are, and are told by their session alone
CALLS = {do.SayHello: "HELLO", do.SayWelcome: "WELCOME", do.SayRefusal: "REFUSAL"}
#: where the writes of a send go, by the event that begins them
INTO: dict[type[Event], str] = {ev.WriteBegun: "one write into the ring", ev.PagesBegun: "many writes into the pages"}


class RankTelling(Telling):
    """Traces of ranks."""

    party, subject, part, nobodys = "rank", "room", "chunk", "links"
    header = ("link", "epoch", "room")
    head = RankLogHead
    bounds: ClassVar = {
        "chunk": (-2, 1 << 24), "peer": (-1, 1 << 20), "tokens": (0, 1 << 28), "prefix": (0, 1 << 28), **COMMON
    }  # fmt: skip
    forms: ClassVar = {
        "room": FieldForm(lambda key: "{}.{}".format(*room_of(key)), room_from),
        "secret": FieldForm(hidden, hidden_from),
    }  # fmt: skip
    sources: ClassVar = {
        "engine": (ev.EngineOpened, ev.RoomOpened, ev.ForwardScheduled, ev.TokensProduced, ev.AuxProvided,
                   ev.EngineAborted, ev.CallAsked),
        "kernel": (ev.Gathered, ev.GatherFailed, ev.Scattered, ev.ScatterFailed),
        "transport": (ev.BatchReady, ev.BatchUnmade, ev.BatchDeferred, ev.BatchRefused, ev.BatchCompleted,
                      ev.BatchFailed, ev.BatchSettled, ev.WiredUp, ev.WireFailed, ev.TransportLost),
        "control plane": (ev.DialFailed, ev.QueueOverflowed),
        "timer": (ev.TimerFired,),
    }  # fmt: skip
    inner = (
        ev.SendFinished, ev.SendsStopped, ev.RoomFailed, ev.PeerQuiet, ev.LinkCameUp, ev.LinkWentDown, ev.ChunkLanded,
        ev.GrantClosed, ev.SendOpened, ev.WatermarkReached, ev.KvProduced, ev.AuxReady, ev.SlotTaken, ev.SendStopped,
        ev.SpaceReserved, ev.SpaceDenied, ev.SpaceUsable, ev.RoomStopped, ev.RoomDrained, ev.WatermarkSeen,
        ev.StagingRequested, ev.PagesRequested, ev.WriteBegun, ev.PagesBegun, ev.WriteStopped, ev.WriteCompleted,
        ev.WriteFailed, ev.WriteLapsed, ev.OpenAsked, ev.QuietAsked,
    )  # fmt: skip
    told = (
        do.LaunchGather, do.LaunchScatter, do.PostBatch, do.AnnounceOutcome, do.AnnounceReleased, do.DeliverAux, Report
    )  # fmt: skip
    untold = frozenset({"room", "terms", "writers", "body", "within", "runs", "ahead", "layers", "asked"})

    def __init__(self) -> None:
        super().__init__(TABLES, Timing, tables_digest, (ev, do, msg), Body)

    # ----------------------------------------------------------------------------------------------- ranks
    def head_of(self, party: Rank, *, whole: bool) -> RankLogHead:
        """Return side, group and index, and the peer at the other end of each link."""
        links = {link: (peer.group, peer.rank) for link, peer in list(party.peers.items())}
        side: Literal["prefill", "decode"] = "prefill" if isinstance(party, PrefillRank) else "decode"
        native_notify = isinstance(party, PrefillRank) and party.native_notify
        digest, timing = self.digest(), party.settings.timing
        return RankLogHead(side, party.group, party.index, digest, timing, whole, links, native_notify)

    def names(self, heads: Iterable[RankLogHead]) -> dict[Any, str]:
        """`P0`, or `P0@1` where several groups of a side tell the story."""
        heads = list(heads)
        groups = {side: {head.group for head in heads if head.side == side} for side in ("prefill", "decode")}
        return {self.identity(h): h.name if len(groups[h.side]) == 1 else f"{h.name}@{h.group}" for h in heads}

    def identity(self, head: RankLogHead) -> tuple[str, int, int]:
        return head.side, head.group, head.index

    def peers(self, head: RankLogHead, names: Mapping[Any, str]) -> dict[int, str]:
        side = "decode" if head.side == "prefill" else "prefill"
        return {
            link: names.get((side, group, index), f"{side[0].upper()}{index}")
            for link, (group, index) in head.links.items()
        }

    def longest_flight(self, head: RankLogHead) -> float:
        """Return the silence after which a link is lost: what comes later is of an epoch that is over."""
        beats: Timer = head.timing.heartbeat
        return beats.period * beats.tries

    def title(self, party: str) -> str:
        """`prefill rank 0`."""
        return f"{'prefill' if party[0] == 'P' else 'decode'} rank {party[1:]}"

    def column(self, party: str) -> tuple[bool, str]:
        """Prefill ranks first."""
        return party[0] != "P", party

    # -------------------------------------------------------------------------------------------- machines
    def key_of(self, table: Table[Any], event: Event) -> Key:
        """Room, chunk and peer, or those of them that name the machine."""
        return tuple(getattr(event, name) for name in KEYS[table.name.partition("_")[2]])

    def key_getter(self, table: Table[Any]) -> Callable[[Event], Hashable]:
        return attrgetter(*KEYS[table.name.partition("_")[2]])

    def subject_of(self, step: StepEntry) -> int | None:
        """The room; a link is of none."""
        return None if self.background(step) else getattr(step.event, "room", None)

    def subject_name(self, subject: int) -> str:
        """`7.0`."""
        return "{}.{}".format(*room_of(subject))

    def subject_title(self, subject: int) -> str:
        """`room 7 gen 0`."""
        return "room {} gen {}".format(*room_of(subject))

    def subject_from(self, text: str) -> int:
        """`7` is `7.0`."""
        return room_from(text if "." in text else f"{text}.0", "--room")

    def part_of(self, step: StepEntry) -> object:
        """The chunk of a send, a write or a grant."""
        chunk = None if self.background(step) or step.machine.endswith("room") else getattr(step.event, "chunk", None)
        return "aux" if chunk == AUX_CHUNK else chunk

    def part_of_message(self, message: Message) -> object:
        return dict(message.fields).get("chunk")

    def machine(self, step: StepEntry) -> str:
        """`send 0 to D1`, `grant 0`, `room`."""
        kind = step.machine.partition("_")[2]
        part, peer = self.part_of(step), getattr(step.event, "peer", None)
        to = f" to D{peer}" if kind in {"send", "write"} else f" {peer}" if kind == "link" else ""
        return kind + ("" if part is None else f" {part}") + to

    def track(self, step: StepEntry) -> str:
        """`room 7`, `room 7.1 chunk 0 to D1`, `link 1`."""
        kind = step.machine.partition("_")[2]
        if kind == "link":
            return f"link {getattr(step.event, 'peer', 0)}"
        room, gen = room_of(getattr(step.event, "room", 0))
        name = f"room {room}" + (f".{gen}" if gen else "")
        if kind == "room":
            return name
        part = self.part_of(step)
        name += " aux" if part == "aux" else f" chunk {part}"
        if kind in {"send", "write"}:
            name += f" to D{getattr(step.event, 'peer', 0)}"
        return name + (" (write)" if kind == "write" else "")

    def background(self, step: StepEntry) -> bool:
        return step.machine.endswith("link")

    # -------------------------------------------------------------------------------------------- messages
    def heard(self, entry: HeardEntry) -> tuple[int, int | None, Body]:
        """The link, the room (of a message about one), the message."""
        link, _, room = entry.header
        return link, self._about(room, type(entry.body)), entry.body

    def left(self, effect: Effect) -> tuple[int, int | None, str, tuple[tuple[str, object], ...]] | None:
        """Messages that handlers put together are known by what the effect says of them."""
        link, room = getattr(effect, "link", 0), getattr(effect, "room", 0)
        if isinstance(effect, do.Transmit):
            return link, self._about(room, type(effect.body)), *self.spoken(effect.body)
        if isinstance(effect, do.TransmitPages):
            return link, room, "PAGES_RSP", (("chunk", effect.chunk),)
        if isinstance(effect, do.TransmitAux):
            return link, room, "AUX", ()
        name = CALLS.get(type(effect))
        return (link, None, name, (("session", getattr(effect, "session", 0)),)) if name else None

    def era(self, entry: HeardEntry | SentEntry) -> tuple[int, bool]:
        """Return epoch (0: calls), and whether a room is named: a link's own messages go first."""
        if isinstance(entry, HeardEntry):
            _, epoch, room = entry.header
        else:
            epoch, room = getattr(entry.effect, "epoch", 0), getattr(entry.effect, "room", 0)
        return epoch, bool(room)

    @staticmethod
    def _about(room: int, kind: type[Any]) -> int | None:
        return None if kind in LINK_BODIES and not room else room

    def spoken(self, body: Body) -> tuple[str, tuple[tuple[str, object], ...]]:
        """Return name and shown fields of a message: of a call the session alone, never times or blames."""
        if isinstance(body, msg.Hello | msg.Welcome | msg.Refusal):
            return str(type(body).__struct_config__.tag), (("session", body.session),)
        name, fields = super().spoken(body)
        return name, tuple(each for each in fields if each[0] not in {"asked", "blame"})

    def aside(self, message: Message) -> bool:
        """Whether a message is about a link alone, and no heartbeat."""
        return message.subject is None and message.name != "HEARTBEAT"

    # ------------------------------------------------------------------------------------------------ words
    def said(self, message: Message) -> str:
        if message.name == "STAGING_RSP":
            at = "region {grant} at {offset} to {end} of round {round}; watermark {mark_round}, {mark_tail}"
            return f"{message.name} chunk {{chunk}}: {at}".format(**dict(message.fields))
        return super().said(message)

    def field(self, name: str, value: object) -> str:
        """The aux row's chunk is no number; whose a room is, goes by the group."""
        if isinstance(value, ev.Claim):
            return f"for group {value.group}"
        return "aux" if name == "chunk" and value == AUX_CHUNK else super().field(name, value)

    def remember(self, moment: Moment, step: StepEntry, memory: dict[Any, Any]) -> None:
        """Remember where the writes of a send go."""
        if type(step.event) in INTO:
            memory[moment.party, step.key] = INTO[type(step.event)]

    def drawn(self, moment: Moment, effect: Output, memory: dict[Any, Any]) -> Iterator[str]:
        rank, step = moment.party, moment.entry
        assert isinstance(step, StepEntry)
        if isinstance(effect, do.LaunchGather | do.LaunchScatter):
            kernel = type(effect).__name__.removeprefix("Launch").lower()
            yield f"    {rank}->>{rank}: {kernel} chunk {effect.chunk}"
        elif isinstance(effect, do.PostBatch):
            yield f"    {rank}-)D{effect.peer}: chunk {effect.chunk}: {memory.get((rank, step.key), 'a write')}"
        elif isinstance(effect, do.AnnounceOutcome):
            cause = "success" if not effect.cause else effect.cause.name
            yield f"    Note over {rank}: tells its engine: {cause}"
        elif isinstance(effect, do.AnnounceReleased):
            yield f"    Note over {rank}: the engine's pages are free"

    def drawn_background(self, moment: Moment, step: StepEntry) -> Iterator[str]:
        if step.source != step.target:
            yield f"    Note over {moment.party}: link is {step.target}"


TELLING = RankTelling()
#: the log of a rank's trace as it is now; a log as lines of JSON; a rank's trace into a file
log_of = partial(records.log_of, telling=TELLING)
lines = partial(records.lines, telling=TELLING)
save = partial(records.save, telling=TELLING)
