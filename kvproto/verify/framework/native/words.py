"""Words: write Python's values as words of C, and read them back.

A struct is its fields in order.  A number that its field cannot hold is an error here: so what a step leaves in C can
be compared with what it leaves in Python, up to the last bit, and nothing is cut off on the way.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.kinds import Number
from kvproto.verify.framework.native.c_types import (
    MASK_BITS,
    MASK_WORDS,
    Boxed,
    Carried,
    Choice,
    CType,
    Masked,
    Numbers,
    Option,
    Real,
    Record,
    Text,
    Truth,
    Unbounded,
    Whole,
    field_types,
    in_words,
    words_of,
)
from kvproto.verify.framework.native.records import Records

WORD = 8
Writer = Callable[[Any, bytearray], None]
#: of the bytes and a place in them: what lies there
Reader = Callable[[bytes, int], Any]
_double = struct.Struct("<d")
_pair = struct.Struct("<QQ")


class MisfitError(KvprotoError, ValueError):
    """A value that its field cannot hold."""


class Words:
    """Writes and reads the values of one printed file."""

    def __init__(self, records: Records, states: dict[type[Any], type[Any]]) -> None:
        """`states`: of each table's value, the enum of its states."""
        self.records, self.states = records, states
        self.box_words = records.box_words
        #: what boxes and fields carry by its place; the first ones are named in C
        self.carried: list[Any] = list(records.constants)
        self._place = {id(each): at for at, each in enumerate(self.carried)}
        self._kept: dict[bytes, tuple[int, Any]] = {}
        self._writers: dict[CType, Writer] = {}
        self._readers: dict[CType, Reader] = {}

    def words(self, of: CType) -> int:
        return words_of(of, self.box_words)

    # ------------------------------------------------------------------------------------------------ writing
    def written(self, value: msgspec.Struct) -> bytes:
        out = bytearray()
        self._writer(Record(type(value)))(value, out)
        return bytes(out)

    def _writer(self, of: CType) -> Writer:
        found = self._writers.get(of)
        if found is None:
            found = self._writers[of] = self._new_writer(of)
        return found

    def _new_writer(self, of: CType) -> Writer:
        match of:
            case Whole(kind):
                return _number_writer(kind, WORD * self.words(of))
            case Masked():
                return _write_mask
            case Real():
                return lambda value, out: out.extend(_double.pack(value))
            case Truth() | Choice():
                return lambda value, out: out.extend(int(value).to_bytes(WORD, "little"))
            case Record(kind):
                return self._record_writer(kind)
            case Option(inner):
                return self._option_writer(inner)
            case Boxed():
                return self._write_box
            case Carried():
                return lambda value, out: out.extend(self._place_of(value).to_bytes(WORD, "little"))
        return self._run_writer(of)

    def _record_writer(self, kind: type[msgspec.Struct]) -> Writer:
        parts = [(field, self._writer(each)) for field, each in field_types(kind).items()]

        def record(value: msgspec.Struct, out: bytearray) -> None:
            for field, write in parts:
                try:
                    write(getattr(value, field), out)
                except MisfitError as error:
                    raise MisfitError(f"{kind.__name__}.{field}: {error}") from error

        return record

    def _option_writer(self, inner: CType) -> Writer:
        write, absent = self._writer(inner), bytes(WORD * (1 + self.words(inner)))

        def option(value: Any, out: bytearray) -> None:
            if value is None:
                out += absent
            else:
                out += (1).to_bytes(WORD, "little")
                write(value, out)

        return option

    def _write_box(self, value: Any, out: bytearray) -> None:
        end = len(out) + WORD * (1 + self.box_words)
        if type(value) in self.records.boxed:
            out += (1 + self.records.boxed.index(type(value))).to_bytes(WORD, "little")
            self._writer(Record(type(value)))(value, out)
        else:
            out += _pair.pack(0, self._place_of(value))
        out += bytes(end - len(out))

    def _run_writer(self, of: CType) -> Writer:
        """A length and an address."""
        match of:
            case Text(kind) if kind is str:
                raw: Callable[[Any], bytes] = lambda value: value.encode("utf-8", "surrogatepass")  # noqa: E731
                size = 1
            case Text():
                raw, size = bytes, 1
            case Numbers():
                raw, size = _packed_numbers, WORD
            case Unbounded():
                raw, size = _set_bytes, WORD
            case _:
                raise TypeError(f"{in_words(of)} has no words")

        def run(value: Any, out: bytearray) -> None:
            inside = raw(value)
            out += _pair.pack(len(inside) // size, self._address(inside))

        return run

    def _address(self, inside: bytes) -> int:
        found = self._kept.get(inside)
        if found is None:
            held = ctypes.create_string_buffer(inside, len(inside) + WORD)
            found = self._kept[inside] = ctypes.addressof(held), held
        return found[0]

    def _place_of(self, value: Any) -> int:
        at = self._place.get(id(value))
        if at is None:
            at = self._place[id(value)] = len(self.carried)
            self.carried.append(value)
        return at

    # ------------------------------------------------------------------------------------------------ reading
    def read(self, kind: type[Any], words: bytes, at: int = 0) -> Any:
        return self._reader(Record(kind))(words, at)

    def _reader(self, of: CType) -> Reader:
        found = self._readers.get(of)
        if found is None:
            found = self._readers[of] = self._new_reader(of)
        return found

    def _new_reader(self, of: CType) -> Reader:
        match of:
            case Whole(kind):
                size, signed = WORD * self.words(of), kind.signed
                return lambda words, at: int.from_bytes(words[at : at + size], "little", signed=signed)
            case Masked():
                return lambda words, at: int.from_bytes(words[at : at + WORD * MASK_WORDS], "little")
            case Real():
                return lambda words, at: _double.unpack_from(words, at)[0]
            case Truth():
                return lambda words, at: bool(words[at])
            case Choice(enum):
                return lambda words, at: enum(int.from_bytes(words[at : at + WORD], "little"))
            case Record(kind):
                return self._record_reader(kind)
            case Option(inner):
                read = self._reader(inner)
                return lambda words, at: read(words, at + WORD) if words[at] else None
            case Boxed():
                return self._read_box
            case Carried():
                return lambda words, at: self.carried[int.from_bytes(words[at : at + WORD], "little")]
        return self._run_reader(of)

    def _record_reader(self, kind: type[msgspec.Struct]) -> Reader:
        parts, place = [], 0
        fields = field_types(kind)
        for field, each in fields.items():
            of = Choice(self.states[kind]) if field == "state" and kind in self.states else each
            parts.append((place, self._reader(of)))
            place += WORD * self.words(each)
        return lambda words, at: kind(*[read(words, at + offset) for offset, read in parts])

    def _read_box(self, words: bytes, at: int) -> Any:
        tag, place = _pair.unpack_from(words, at)
        return self.read(self.records.boxed[tag - 1], words, at + WORD) if tag else self.carried[place]

    @staticmethod
    def _run_reader(of: CType) -> Reader:
        def run(words: bytes, at: int, size: int = 1) -> bytes:
            length, address = _pair.unpack_from(words, at)
            return ctypes.string_at(address, size * length) if length else b""

        match of:
            case Text(kind) if kind is str:
                return lambda words, at: run(words, at).decode("utf-8", "surrogatepass")
            case Text():
                return run
            case Numbers():
                return lambda words, at: tuple(each for (each,) in struct.iter_unpack("<q", run(words, at, WORD)))
        return lambda words, at: int.from_bytes(run(words, at, WORD), "little")


def _number_writer(kind: Number, size: int) -> Writer:
    least, most, signed = kind.least, kind.most, kind.signed

    def number(value: int, out: bytearray) -> None:
        if not least <= value <= most:
            raise MisfitError(f"{value} is not from {least} to {most}")
        out += value.to_bytes(size, "little", signed=signed)

    return number


def _write_mask(value: int, out: bytearray) -> None:
    if not 0 <= value < 1 << MASK_BITS:
        raise MisfitError(f"{value:#x} is no mask of {MASK_BITS} bits")
    out += value.to_bytes(WORD * MASK_WORDS, "little")


def _packed_numbers(value: tuple[int, ...]) -> bytes:
    try:
        return struct.pack(f"<{len(value)}q", *value)
    except struct.error as error:
        raise MisfitError(f"{value} has numbers of more than 64 bits") from error


def _set_bytes(value: int) -> bytes:
    if value < 0:
        raise MisfitError(f"{value} is no set")
    return value.to_bytes(-(-value.bit_length() // 64) * WORD, "little")
