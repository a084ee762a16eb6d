"""Library: compiles printed tables, and fires their rows on Python's values."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.table import Output, Row, Table
from kvproto.fsm.timing import NamedTimers
from kvproto.verify.framework.native.c_code import NONE, CCode
from kvproto.verify.framework.native.c_types import Record
from kvproto.verify.framework.native.words import WORD, Words

FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-w")
#: bytes for texts and sets that one step makes, and effects that one row has at most
MEMORY, EFFECTS = 1 << 23, 16
Fired = tuple[Row | None, Any, tuple[Output, ...]]


class CompilerError(KvprotoError, RuntimeError):
    """There is no compiler, or it refuses what was printed."""


class _Run(ctypes.Structure):
    _fields_ = (("wrong", ctypes.c_uint64), ("made", ctypes.c_uint64),
                ("free", ctypes.c_void_p), ("end", ctypes.c_void_p))  # fmt: skip


def compiler() -> str | None:
    """Return the path of a C compiler, if there is one."""
    return shutil.which("gcc") or shutil.which("cc")


def compiled(code: CCode, folder: Path, *, optimise: int = 1, more: str = "") -> Path:
    """Compile a printed file in this folder; returns the library.  `more`: C that is put behind it."""
    source, library = folder / "tables.c", folder / "tables.so"
    source.write_text(code.source + more)
    found = compiler()
    if found is None:
        raise CompilerError("there is no C compiler: install gcc, with the headers of the C library")
    command = [found, f"-O{optimise}", *FLAGS, "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # printed just now
    if done.returncode:
        raise CompilerError(f"{found} refuses {source}: {done.stderr[:2000]}")
    return library


class Library:
    """The steps of a compiled file."""

    def __init__(self, code: CCode, library: Path) -> None:
        states = {each.table.value: each.table.states for each in code.tables}
        self.code, self.words = code, Words(code.records, states)
        self._c = ctypes.CDLL(str(library))
        self._memory = ctypes.create_string_buffer(MEMORY)
        self._run = _Run()
        self._out = ctypes.create_string_buffer(WORD * (1 + code.records.out_words) * EFFECTS)
        self._tables = {id(each.table): each for each in code.tables}
        self._steps: dict[str, Any] = {}
        self._timers: dict[tuple[int, NamedTimers], bytes] = {}
        for each in code.tables:
            step = self._steps[each.function] = getattr(self._c, each.function)
            step.restype = ctypes.c_int64
            step.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_double,
                             ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)  # fmt: skip

    def fire(self, table: Table[Any], timing: NamedTimers, value: Any, event: Any, now: float) -> Fired | None:
        """Return what the step leaves, without reports; None: C cannot say it.

        Raises MisfitError if value or event has a number that its field cannot hold.
        """
        code, words, run = self._tables[id(table)], self.words, self._run
        before, what = words.written(value), words.written(event)
        after = ctypes.create_string_buffer(WORD * words.words(Record(table.value)))
        key = id(table), timing
        if key not in self._timers:
            self._timers[key] = timers(table, timing)
        start = ctypes.addressof(self._memory)
        run.wrong, run.made, run.free, run.end = 0, 0, start, start + MEMORY
        row = self._steps[code.function](
            ctypes.byref(run), before, code.events[type(event)], what, now, self._timers[key], after, self._out
        )  # fmt: skip
        if run.wrong:
            return None
        effects = tuple(map(self._effect, range(run.made)))
        return None if row == NONE else table.rows[row], words.read(table.value, after.raw), effects

    def _effect(self, at: int) -> Output:
        size = WORD * (1 + self.code.records.out_words)
        raw = ctypes.string_at(ctypes.addressof(self._out) + at * size, size)
        made: Output = self.words.read(self.code.records.effects[int.from_bytes(raw[:WORD], "little")], raw, WORD)
        return made


def timers(table: Table[Any], timing: NamedTimers) -> bytes:
    """Return period and longest period of each state's timer, as C has them."""
    known = [timing.named(table.timers[state]) if state in table.timers else None for state in table.states]
    pairs = [(each.period, each.longest) if each is not None else (0.0, 0.0) for each in known]
    return b"".join((ctypes.c_double * 2)(*pair) for pair in pairs)
