"""Telling: how the traces of a protocol are written, merged and shown, beyond what the rows say.

A trace holds events, effects and messages of a protocol; to write them as JSON their classes need names.  A story is
about one *subject* (a transfer, a transaction, a lock), so each step and each message names its subject.  A received
message has to be matched with the sent one.  Parties and machines need names.

The defaults of `Telling` fit a protocol whose events name their machine first, whose subject is that name, and whose
messages leave as `Transmit`.  Other protocols override what does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from kvproto.fsm import codec, vocabulary
from kvproto.fsm.machine import Machine
from kvproto.fsm.plain_json import DIGITS, Bounds, FieldForm, PlainError, PlainJson, named
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Effect, Event, TimerFired, Transmit

if TYPE_CHECKING:
    from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry, TraceEntry

#: of a machine: its key; of a story: what it is about (None: nothing that stories are told of)
Key = tuple[Any, ...]
Subject = Any
#: of every protocol's traces: seconds on a clock and of a timer, and places in tables
COMMON: Bounds = {
    "time": (-1e12, 1e12), "period": (1e-9, 1e9), "row": (0, 1 << 16), "route": (0, 1 << 16), "number": (0, 1 << 62)
}  # fmt: skip


Way = Literal["", "lost", "ended", "untold", "repeated", "unseen"]


class Message(msgspec.Struct, frozen=True):
    """A message: its sender, its receiver, its subject."""

    sender: str
    receiver: str
    subject: Subject
    name: str
    fields: tuple[tuple[str, object], ...]


class LogHead(msgspec.Struct, frozen=True):
    """The head of a log: its party; `peers`: names of the others, by the numbers that this party uses."""

    name: str
    digest: str
    timing: Any
    whole: bool
    #: name of the routes by which its messages come
    routes: str
    peers: dict[int, str]


class Moment(msgspec.Struct):
    """One entry of the story; `cause` is the index of the moment that led to it (None: the world did)."""

    index: int
    party: str
    time: float
    entry: TraceEntry
    cause: int | None = None
    source: str = ""
    message: Message | None = None
    way: Way = ""


class SenderClues:
    """Other possible causes of a received message whose sending is in no log."""

    def note(self, moment: Moment, step: StepEntry) -> None:
        """Hear of each step, in the story's order."""

    def comes_later(self, message: Message) -> bool:
        """Whether the story has still to tell of what led to this message."""
        del message
        return False

    def cause(self, message: Message) -> int | None:
        """The moment that led to this message; None: it came from nowhere."""
        del message
        return None


class Telling:
    """Names and rules for the traces of one protocol."""

    #: what a party is called; what stories are told of; a part of that ("": there are none); what is of no subject
    party, subject, part, nobodys = "party", "subject", "", ""
    #: what a party is told with a message, in the order of its trace
    header: tuple[str, ...] = ("peer",)
    #: the first line of a log
    head: type[Any] = LogHead
    #: fields of their own form, by name
    forms: ClassVar[Mapping[str, FieldForm]] = {}
    #: what numbers may be, by field name; those that are places in masks, or count what is made, need bounds
    bounds: ClassVar[Bounds] = {"peer": (-1, 1 << 20), **COMMON}
    #: who raises an event that no message and no other machine does
    sources: ClassVar[Mapping[str, tuple[type[Event], ...]]] = {}
    #: whose events a sequence chart notes, beside the timers
    noted: tuple[str, ...] = ("engine", "application", "log")
    #: events that a party raises itself, in the pass in which they are caused
    inner: tuple[type[Event], ...] = ()
    #: effects that a story tells of beside the messages
    told: tuple[type[Effect], ...] = ()
    #: what is claimed of tables, by name, as far as a trace can tell
    claims: ClassVar[Mapping[str, Any]] = {}
    #: fields that go without saying
    untold: frozenset[str] = frozenset({"body"})

    def __init__(
        self, tables: Iterable[Table[Any]], timing: type[msgspec.Struct], digest: Callable[[], str],
        vocabularies: Iterable[ModuleType], body: type[msgspec.Struct],
    ) -> None:  # fmt: skip
        """`vocabularies`: the modules of events, effects and messages; `body`: the base of all messages."""
        self.tables = {table.name: table for table in tables}
        self.by_value: dict[type[Value], Table[Any]] = {table.value: table for table in self.tables.values()}
        self.timing, self.digest, self.body = timing, digest, body
        every = [each for module in (vocabulary, *vocabularies) for each in vars(module).values()]
        things = [each for each in every if each is not codec.Message]
        self.events, self.effects = named(Event, things), named(Effect, things)
        self.messages = named(body, things)
        self.json = PlainJson({Event: self.events, Effect: self.effects, body: self.messages}, self.forms, self.bounds)

    def machines(self, timing: Any) -> dict[str, Machine[Any]]:
        """Every table compiled, by name: a step is pure, and fires again as it did."""
        return {name: Machine(table, timing) for name, table in self.tables.items()}

    # --------------------------------------------------------------------------------------------- parties
    def head_of(self, party: Any, *, whole: bool) -> Any:
        """The first line of this party's log."""
        return LogHead(party.name, self.digest(), party.timing, whole, party.routes.name, dict(party.peers))

    def names(self, heads: Iterable[Any]) -> dict[Any, str]:
        """The names under which these parties are told of, by `identity`."""
        return {self.identity(head): head.name for head in heads}

    def identity(self, head: Any) -> Any:
        """Return what is the same in all incarnations of a party."""
        return head.name

    def peers(self, head: Any, names: Mapping[Any, str]) -> dict[int, str]:
        """The others' names by the numbers that this party gives them."""
        del names
        peers: dict[int, str] = head.peers
        return peers

    def longest_flight(self, head: Any) -> float:
        """Return for how many seconds a message to this party may be under way; one that takes longer is lost."""
        del head
        return math.inf

    def title(self, party: str) -> str:
        """Return the heading of the party's column."""
        return party

    def column(self, party: str) -> Any:
        """Return the key by which parties are sorted."""
        return party

    def clues(self, logs: Iterable[Any], names: Mapping[Any, str]) -> SenderClues:
        """Return other possible causes of received messages."""
        del logs, names
        return SenderClues()

    # --------------------------------------------------------------------------------------------- machines
    def key_of(self, table: Table[Any], event: Event) -> Key:
        """Return the key of the table's machine that the event concerns."""
        del table
        return (getattr(event, event.__struct_fields__[0]),)

    def key_getter(self, table: Table[Any]) -> Callable[[Event], Hashable]:
        """Return a fast function from an event to the key of its machine, in any hashable form."""
        return lambda event: self.key_of(table, event)

    def subject_of(self, step: StepEntry) -> Subject:
        """Return the subject of a step."""
        return step.key[0]

    def subject_name(self, subject: Subject) -> str:
        """How people name the subject, and `subject_from` reads it."""
        return str(subject)

    def subject_title(self, subject: Subject) -> str:
        """The subject's name in a sentence."""
        return f"{self.subject} {self.subject_name(subject)}"

    def subject_from(self, text: str) -> Subject:
        """The subject that people name so; `PlainError` if there can be none such."""
        if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS):
            raise PlainError(f"{text!r} is no {self.subject}: write its number")
        return int(text)

    def part_of(self, step: StepEntry) -> object:
        """Return the part of the subject that a step concerns; None: all of it."""
        del step
        return None

    def part_of_message(self, message: Message) -> object:
        """Return the part of the subject that a message concerns; None: all of it."""
        del message
        return None

    def machine(self, step: StepEntry) -> str:
        """Return the name of the machine that moved."""
        return step.machine

    def track(self, step: StepEntry) -> str:
        """Return the names of machine and subject of a step."""
        return f"{self.subject_title(self.subject_of(step))}: {self.machine(step)}"

    def background(self, step: StepEntry) -> bool:
        """Whether a chart leaves the step out unless it is asked for."""
        del step
        return False

    # --------------------------------------------------------------------------------------------- messages
    def heard(self, entry: HeardEntry) -> tuple[int, Subject, Any]:
        """The sender's number, the subject, and the message."""
        return entry.header[0], self.subject_of_body(entry.body), entry.body

    def subject_of_body(self, body: Any) -> Subject:
        """Return the subject of a message."""
        return getattr(body, type(body).__struct_fields__[0])

    def left(self, effect: Effect) -> tuple[int, Subject, str, tuple[tuple[str, object], ...]] | None:
        """Return receiver, subject, name and fields of the message that an effect sends; None: it sends none."""
        if not isinstance(effect, Transmit):
            return None
        return effect.peer, self.subject_of_body(effect.body), *self.spoken(effect.body)

    def era(self, entry: HeardEntry | SentEntry) -> Hashable:
        """Return the group of messages between two parties whose copies are numbered together."""
        del entry
        return 0

    def spoken(self, body: Any) -> tuple[str, tuple[tuple[str, object], ...]]:
        """A message's name and the fields that are told; both ends give the same."""
        said = type(body)
        fields = tuple((f, v) for f in said.__struct_fields__ if not isinstance(v := getattr(body, f), bytes))
        return str(said.__struct_config__.tag), fields

    def aside(self, message: Message) -> bool:
        """Whether the message is about no subject, and worth telling where such ones are."""
        return message.subject is None

    # ------------------------------------------------------------------------------------------------ words
    def said(self, message: Message) -> str:
        """The message in a line."""
        said = [self.field(name, value) for name, value in message.fields if value is not False]
        return f"{message.name} {', '.join(said)}".strip()

    def fact(self, fact: Output) -> str:
        """`StagingGranted(chunk 0, usable)`: a struct without what goes without saying."""
        shown = [] if isinstance(fact, TimerFired) else [
            self.field(name, value) for name in type(fact).__struct_fields__
            if name not in self.untold and not isinstance(value := getattr(fact, name), bytes)
        ]  # fmt: skip
        return f"{type(fact).__name__}({', '.join(shown)})" if shown else type(fact).__name__

    def field(self, name: str, value: object) -> str:
        """One field of an event, an effect or a message; of a struct its name."""
        if isinstance(value, bool):
            return name if value else f"not {name}"
        return f"{name} {type(value).__name__}(…)" if isinstance(value, msgspec.Struct) else f"{name} {word(value)}"

    def drawn(self, moment: Moment, effect: Output, memory: dict[Any, Any]) -> Iterator[str]:
        """Yield the lines of a sequence chart for an effect; `memory` lasts as long as the chart."""
        del memory
        if isinstance(effect, self.told):
            yield f"    Note over {moment.party}: {self.fact(effect)}"

    def drawn_background(self, moment: Moment, step: StepEntry) -> Iterator[str]:
        """Yield the lines of a sequence chart for a step in the background."""
        if step.source != step.target:
            yield f"    Note over {moment.party}: {self.machine(step)} is {step.target}"

    def remember(self, moment: Moment, step: StepEntry, memory: dict[Any, Any]) -> None:
        """Keep what later effects of the same machine are drawn with."""


def word(value: object) -> str:
    """A value as people read it."""
    return value.name if isinstance(value, Enum) else str(value)
