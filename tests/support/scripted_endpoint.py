"""ScriptedEndpoint: keeps every call that an adapter makes, and answers as it is told to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kvproto.errors import NotFoundError

PAGE = 4


class ScriptedEndpoint:
    """Both sides' calls; `answers` by name: what is returned, or raised."""

    def __init__(self) -> None:
        self.calls, self.called = list[tuple[Any, ...]](), set[int]()
        self.answers: dict[str, Any] = {"finished": [], "released": [], "withdrawn": True, "any_up": False,
                                        "has_left": False, "agreed": False, "ready": True,
                                        "leads_to": True}  # fmt: skip
        self.pool = SimpleNamespace(page_size=PAGE, ends=(), device=SimpleNamespace(type="cpu"))

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.calls.append((name, *args, more) if more else (name, *args))
            answer = self.answers.get(name)
            if name == "connect":
                self.called.add(more["group"])
            elif name == "disconnect":
                self.called.discard(args[0])
            elif name == "ready" and args[0] not in self.called:
                raise NotFoundError("nobody is called by this number")
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]
