"""The CUDA driver as far as transports call it, in one process without a device; tests control it.

A device's context has to be the thread's when it is asked for anything but whether an event is over; the fake insists.
"""

from __future__ import annotations

import ctypes
from typing import Any

NOT_READY = 600


def uuid_of(device: int) -> bytes:
    """As the driver of this file tells it."""
    return b"device %9d" % device


class Contexts:
    """Contexts of devices, which are held and given back, made the thread's and not."""

    def __init__(self) -> None:
        #: devices whose context is held, those where it is the thread's, and whether either can be had
        self.held: list[int] = []
        self.pushed = 0
        self.retains = self.pushes = 0
        #: devices that were asked for a context
        self.asked: list[int] = []

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:  # noqa: N802
        context._obj.value = 77
        self.asked.append(device)
        self.held += [device] * (self.retains == 0)
        return self.retains

    def cuDeviceGet(self, place: Any, device: int) -> int:  # noqa: N802
        place._obj.value = device
        return 0

    def cuDeviceGetUuid_v2(self, uuid: Any, place: ctypes.c_int) -> int:  # noqa: N802
        ctypes.memmove(ctypes.addressof(uuid._obj), uuid_of(place.value), 16)
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> int:  # noqa: N802
        self.held.remove(device)
        return 0

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:  # noqa: N802
        assert context.value == 77 and self.held
        self.pushed += self.pushes == 0
        return self.pushes

    def cuCtxPopCurrent_v2(self, _context: Any) -> int:  # noqa: N802
        assert self.pushed
        self.pushed -= 1
        return 0


class Copies(Contexts):
    """Streams of copies between addresses of this process, each done when it is let or waited for."""

    def __init__(self) -> None:
        super().__init__()
        #: what calls answer that do nothing else, by name
        self.refuses: dict[str, int] = {}
        #: by stream: copies that are queued and events among them
        self.streams: dict[int, list[tuple[int, int, int] | int]] = {}
        #: by event: what a query answers
        self.events: dict[int, int] = {}
        #: by address: how many bytes are page-locked
        self.locked: dict[int, int] = {}
        #: with which flags streams, events and page-locked memory were made
        self.flags: list[tuple[str, int]] = []
        self._made = 0

    def run(self, fault: int = 0) -> None:
        """Have all that is queued happen, or not, for this reason."""
        for queue in self.streams.values():
            for each in queue:
                if isinstance(each, int):
                    self.events[each] = fault
                elif not fault:
                    ctypes.memmove(*each)
            queue.clear()

    def _asked(self, call: str) -> int:
        assert self.pushed, f"{call} without a context"
        return self.refuses.get(call, 0)

    def _new(self) -> int:
        self._made += 1
        return self._made

    def cuStreamCreate(self, place: Any, flags: int) -> int:  # noqa: N802
        if code := self._asked("cuStreamCreate"):
            return code
        self.flags.append(("stream", flags))
        place._obj.value = self._new()
        self.streams[place._obj.value] = []
        return 0

    def cuStreamDestroy_v2(self, stream: ctypes.c_void_p) -> int:  # noqa: N802
        assert self.pushed and stream.value is not None and not self.streams.pop(stream.value)
        return 0

    def cuStreamSynchronize(self, stream: ctypes.c_void_p) -> int:  # noqa: N802
        assert self.pushed and stream.value in self.streams
        self.run()
        return 0

    def cuEventCreate(self, place: Any, flags: int) -> int:  # noqa: N802
        if code := self._asked("cuEventCreate"):
            return code
        self.flags.append(("event", flags))
        place._obj.value = self._new()
        self.events[place._obj.value] = 0
        return 0

    def cuEventRecord(self, event: ctypes.c_void_p, stream: ctypes.c_void_p) -> int:  # noqa: N802
        if code := self._asked("cuEventRecord"):
            return code
        assert event.value is not None and stream.value is not None
        self.events[event.value] = NOT_READY
        self.streams[stream.value].append(event.value)
        return 0

    def cuEventQuery(self, event: ctypes.c_void_p) -> int:  # noqa: N802
        assert event.value is not None
        return self.events[event.value]

    def cuEventDestroy_v2(self, event: ctypes.c_void_p) -> int:  # noqa: N802
        assert event.value is not None
        del self.events[event.value]
        return 0

    def cuMemcpyAsync(  # noqa: N802
        self, to: ctypes.c_uint64, source: ctypes.c_uint64, nbytes: ctypes.c_size_t, stream: ctypes.c_void_p
    ) -> int:
        if code := self._asked("cuMemcpyAsync"):
            return code
        assert stream.value is not None
        self.streams[stream.value].append((to.value, source.value, nbytes.value))
        return 0

    def cuMemHostRegister_v2(self, addr: ctypes.c_void_p, nbytes: ctypes.c_size_t, flags: int) -> int:  # noqa: N802
        if code := self._asked("cuMemHostRegister_v2"):
            return code
        assert addr.value is not None and addr.value not in self.locked
        self.flags.append(("lock", flags))
        self.locked[addr.value] = nbytes.value
        return 0

    def cuMemHostUnregister(self, addr: ctypes.c_void_p) -> int:  # noqa: N802
        assert self.pushed and addr.value is not None
        del self.locked[addr.value]
        return 0
