"""ZMTP: the control plane's bytes cut into a greeting, commands, and messages of several frames.

ZMTP 3 (rfc.zeromq.org/spec/23): 64 bytes of greeting; then frames, each a byte of flags (1: more frames of this message
follow, 2: the length has eight bytes instead of one, 4: a command), the length, and so many bytes.

A proxy that loses, doubles or mixes up *messages* does to the protocol what the protocol must bear; one that did it to
bytes would only end connections. Where a mechanism seals messages (CURVE), each carries a number, and the receiver
hangs up when one is missing: such connections can be cut and held, not doubled.
"""

from __future__ import annotations

GREETING = 64
MORE, LONG, COMMAND = 1, 2, 4


class MessageCutter:
    """One direction of one connection; bytes go in as they come, whole units come out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._greeting = GREETING
        self._begun = 0  # bytes of the message at the beginning of `_rest` whose frames are whole

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """(bytes, whether it is a message) of what is complete by now, in order; greetings go on at once."""
        units: list[tuple[bytes, bool]] = []
        if self._greeting:
            greeting, data = data[: self._greeting], data[self._greeting :]
            self._greeting -= len(greeting)
            units.append((greeting, False))
        self._rest += data
        while (frame := self._frame(self._begun)) is not None:
            flags, end = frame
            self._begun = end
            if flags & COMMAND or not flags & MORE:
                units.append((bytes(self._rest[:end]), not flags & COMMAND))
                del self._rest[:end]
                self._begun = 0
        return units

    def _frame(self, at: int) -> tuple[int, int] | None:
        """(flags, end) of the frame that begins there; None: it is not all here."""
        if len(self._rest) < at + 2:
            return None
        flags = self._rest[at]
        body = at + (9 if flags & LONG else 2)
        if len(self._rest) < body:
            return None
        end = body + int.from_bytes(self._rest[at + 1 : body], "big")
        return (flags, end) if len(self._rest) >= end else None
